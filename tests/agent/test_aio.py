"""Sessions, settings, contexts and hooks on an event loop."""

import asyncio
from typing import Any

import pytest

from refold import InvalidInput, Memory
from refold.agent.hooks import AsyncHooks, Hooks, UserMessageResult
from refold.memory.aio import AsyncSession, AsyncSettings
from refold.memory.handles import SessionMemory, Settings

OWN = {"core", "plain"}


def names(kind: type[object]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("loops", "plain"), [(AsyncSession, SessionMemory), (AsyncSettings, Settings)])
def test_they_have_the_verbs_of_the_plain_handles(loops: type[object], plain: type[object]) -> None:
    assert names(loops) - OWN == names(plain)


def test_every_point_is_awaited() -> None:
    assert names(AsyncHooks) - OWN == {name for name in names(Hooks) if name.startswith("fire")} | {"compacted"}


def test_a_context_is_built_shown_and_built_again(memory: Memory) -> None:
    async def work() -> None:
        chat = memory.aio.conversation("c")
        await memory.aio.project().add("The deploy runs on Friday.")
        await chat.append("user", "When is the deploy?")
        context = await memory.aio.context(chat, query="deploy")
        assert context == memory.context(chat.plain, query="deploy")
        assert context == await memory.aio.context(chat.plain, query="deploy"), "the plain handle is taken too"
        rebuilt = await memory.aio.rebuild(await memory.aio.show(context))
        assert rebuilt.context == context
        async with memory.aio.batch():
            with pytest.raises(InvalidInput):
                await memory.aio.context(chat)

    asyncio.run(work())


def test_a_hook_that_waits_for_what_it_writes_holds_up_no_task(memory: Memory) -> None:
    order: list[str] = []

    async def hook(context: Any, text: str) -> UserMessageResult:
        await context.memory.aio.journal().append(f"heard {text}")
        order.append("hook")
        return UserMessageResult(text.upper())

    async def meanwhile(done: asyncio.Event) -> None:
        while not done.is_set():
            await memory.aio.conversation("other").append("user", "tick", tokens=1)
        order.append("meanwhile")

    async def work() -> None:
        done = asyncio.Event()
        task = asyncio.create_task(meanwhile(done))
        told = memory.hooks.context(memory.conversation("c"))
        heard = await memory.aio.hooks.fire_user_message(told, "hello")
        done.set()
        await task
        assert heard.modified_message == "HELLO"

    memory.hooks.register("user_message", hook)
    asyncio.run(work())
    assert order == ["hook", "meanwhile"]
    assert [note.text for note in memory.journal().recent()] == ["heard hello"]
