"""Verbs of plain handles made into those of handles for asyncio: written, done by a thread, or answered at once."""

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from refold.engine import batch as batches
from refold.memory.door import Door

H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")


class _Handle(Protocol[H]):
    """A handle for asyncio: the plain one, and the door that it shares."""

    plain: H
    door: Door


def writing(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[_Handle[H], P], Coroutine[Any, Any, R]]:
    """Return a verb of a plain handle as a coroutine of the handle for asyncio, under the same name."""

    @wraps(verb)
    async def write(self: _Handle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        door = self.door
        if batches.active(door.engine) is not None:
            return verb(self.plain, *arguments, **options)  # The block's end writes it.
        result: R = await door.ticks.ask(partial(verb, self.plain, *arguments, **options))
        return result

    return write


def hopping(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[_Handle[H], P], Coroutine[Any, Any, R]]:
    """Return a verb that takes long, or that no batch can hold, as a coroutine that waits for a thread to do it."""

    @wraps(verb)
    async def hop(self: _Handle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        batches.refuse(self.door.engine, f"a {verb.__name__}")  # Before the hop: the thread knows no batch of ours.
        result: R = await self.door.ticks.hop(partial(verb, self.plain, *arguments, **options))
        return result

    return hop


def reading(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[_Handle[H], P], R]:
    """Return a verb that only reads: it answers at once, from RAM, and is not awaited."""

    @wraps(verb)
    def read(self: _Handle[H], /, *arguments: P.args, **options: P.kwargs) -> R:
        return verb(self.plain, *arguments, **options)

    return read
