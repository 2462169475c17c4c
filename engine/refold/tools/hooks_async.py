"""The hooks for asyncio: each point is awaited, and the hooks run where they hold up no other task."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from refold.memory.memory import Memory
from refold.tools.hooks import Hooks

P = ParamSpec("P")
R = TypeVar("R")


def _firing(
    verb: Callable[Concatenate[Hooks, P], R],
) -> Callable[Concatenate["AsyncHooks", P], Coroutine[Any, Any, R]]:
    """Return a point of the plain handle as a coroutine, under the same name."""

    @wraps(verb)
    async def fire(self: "AsyncHooks", /, *arguments: P.args, **options: P.kwargs) -> R:
        # A thread of its own, and not the one that writes for event loops: a hook may wait for what it writes.
        return await asyncio.to_thread(verb, self.plain, *arguments, **options)

    return fire


class AsyncHooks:
    """The hooks of one memory, for asyncio; what was registered with the plain handle counts here, too.

    >>> import asyncio
    >>> from refold import Memory
    >>> memory = Memory()
    >>> shout = memory.hooks.register("user_message", lambda context, text: text.upper())
    >>> told = memory.hooks.context(memory.conversation("c"))
    >>> asyncio.run(memory.aio.hooks.fire_user_message(told, "hello")).modified_message
    'HELLO'
    """

    __slots__ = ("plain",)

    def __init__(self, plain: Hooks) -> None:
        self.plain = plain
        """The plain handle: hooks are registered with it, and contexts are made by it."""

    fire_session_start = _firing(Hooks.fire_session_start)
    fire_user_message = _firing(Hooks.fire_user_message)
    fire_deferred = _firing(Hooks.fire_deferred)
    fire_before_llm = _firing(Hooks.fire_before_llm)
    fire_after_llm = _firing(Hooks.fire_after_llm)
    fire_before_tool = _firing(Hooks.fire_before_tool)
    fire_after_tool = _firing(Hooks.fire_after_tool)
    fire_session_end = _firing(Hooks.fire_session_end)
    fire_compaction = _firing(Hooks.fire_compaction)
    compacted = _firing(Hooks.compacted)

    def __repr__(self) -> str:
        """Return the hooks with their counts."""
        return f"Async{self.plain!r}"


def async_hooks_of(memory: Memory) -> AsyncHooks:
    """Return the hooks of a memory for asyncio."""
    return AsyncHooks(memory.hooks)
