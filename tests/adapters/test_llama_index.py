"""LlamaIndex's chat store in a memory: equal to its own store in SQL, and shown as conversations."""

import asyncio
import doctest
import importlib
from pathlib import Path
from random import Random
from typing import Any

import pytest
import run_blocks

from refold import Memory
from tests.support.memories import assert_sound, is_stored
from tests.support.paths import ROOT

WHY_NOT = "LlamaIndex is not in the development environment; tools/test --adapters tests its adapter"
pytest.importorskip("llama_index.core", reason=WHY_NOT)

from llama_index.core.base.llms.types import ToolCallBlock  # noqa: E402 - it is there from here on
from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.core.memory import Memory as ChatMemory  # noqa: E402
from llama_index.core.storage.chat_store.base_db import MessageStatus  # noqa: E402
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore  # noqa: E402
from sqlalchemy import text as sql  # noqa: E402

from refold.adapters.llama_index import RefoldChatStore  # noqa: E402

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED
KEYS = ("a", "", "b\0c/\x01")
ENDINGS = 24
"""A step in so many is one that may take much away."""


async def id_at(store: Any, key: str, place: int) -> int:
    """The id of the message at a place: rows have ids, ours have places."""
    query = sql("select id from messages where key = :key order by timestamp, id")
    async with store._async_session_factory() as session:
        ids = [row[0] for row in (await session.execute(query, {"key": key})).fetchall()]
    return ids[place] if place < len(ids) else -1


def drawn(step: int, draw: Random) -> tuple[str, tuple[Any, ...]]:
    one = ChatMessage(f"m{step}", role=draw.choice(["user", "assistant", "system", "chatbot"]))
    two = ChatMessage(f"n{step}", role="user", additional_kwargs={"mood": "good"})
    status = draw.choice([ACTIVE, ACTIVE, ACTIVE, ARCHIVED])
    verbs: list[tuple[str, tuple[Any, ...]]] = [
        ("add_message", (one,)),
        ("add_messages", ([one, two],)),
        ("add_messages", ([one, two], status)),
        ("delete_oldest_messages", (draw.randint(0, 2),)),
        ("archive_oldest_messages", (draw.randint(0, 3),)),
        ("get_messages", (status,)),
        ("get_messages", (draw.choice([status, None]), draw.randint(0, 3), draw.choice([None, 0, 2]))),
        ("count_messages", (draw.choice([status, None]),)),
        ("delete_message", (draw.randint(0, 6),)),
    ]
    if not draw.randrange(ENDINGS):
        verbs = [("set_messages", ([one, two], status)), ("delete_messages", (status,)), ("delete_messages", ())]
    return draw.choice(verbs)


@pytest.mark.parametrize("seed", range(12))
def test_random_steps_lead_where_llama_indexs_own_store_leads(memory: Memory, seed: int) -> None:
    """200 steps for each seed: 2,400 in all; after each the window shows what is active."""
    draw = Random(seed)
    ours = RefoldChatStore(memory)
    theirs = SQLAlchemyChatStore(table_name="messages", async_database_uri="sqlite+aiosqlite:///:memory:")

    async def steps() -> None:
        await theirs.get_keys()
        for step in range(200):
            key = draw.choice(KEYS)
            verb, arguments = drawn(step, draw)
            place = (await id_at(theirs, key, arguments[0]),) if verb == "delete_message" else arguments
            expected = await getattr(theirs, verb)(key, *place)
            assert await getattr(ours, verb)(key, *arguments) == expected, (step, verb, arguments)
            window = [message.content for message in memory.conversation(f"llama-index/{key}").window()]
            assert window == [message.content for message in await ours.get_messages(key)]
        assert await ours.get_keys() == sorted(await theirs.get_keys())
        for key in KEYS:
            assert await ours.get_messages(key, None) == await theirs.get_messages(key, None)
        await theirs._async_engine.dispose()

    asyncio.run(steps())
    assert_sound(memory)


def test_a_memory_of_llama_index_archives_what_no_longer_fits(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        chat_memory = ChatMemory.from_defaults(
            session_id="trip", token_limit=60, token_flush_size=20, chat_store=RefoldChatStore(memory)
        )
        for number in range(12):
            role = "assistant" if number % 2 else "user"
            chat_memory.put(ChatMessage(f"Message {number} has some ten tokens in it.", role=role))
        window = [message.content for message in memory.conversation("llama-index/trip").window()]
    with Memory(tmp_path / "store") as memory:
        store, chat = RefoldChatStore(memory), memory.conversation("llama-index/trip")
        again = ChatMemory.from_defaults(session_id="trip", token_limit=60, chat_store=store)
        assert [message.content for message in again.get()] == window
        archived = asyncio.run(store.get_messages("trip", ARCHIVED))
        assert [message.content for message in archived] + window == [each.content for each in chat.history()]
        assert archived
        assert window
        assert chat.search("Message 0")[0].entry.content == archived[0].content
        actors = {stamp.actor for _, stamp in memory.events() if stamp.stream.startswith("table/")}
        assert actors == {"llama-index"}
        assert_sound(memory)


def calls_and_answers(call: str, secret: str = "") -> list[ChatMessage]:
    block = ToolCallBlock(tool_call_id=call, tool_name="port_of", tool_kwargs={"service": f"db{secret}"})
    return [
        ChatMessage("Which port?", role="user"),
        ChatMessage([block], role="assistant"),
        ChatMessage("5432", role="tool", additional_kwargs={"tool_call_id": call, "name": "port_of"}),
        ChatMessage("It is 5432.", role="assistant"),
    ]


def test_calls_of_tools_and_their_answers_are_shown_as_such(memory: Memory) -> None:
    store, chat = RefoldChatStore(memory), memory.conversation("llama-index/port")
    messages = calls_and_answers("c1") + calls_and_answers("c1") + calls_and_answers("c2")
    asyncio.run(store.add_messages("port", messages))
    window = chat.window()
    assert [message.role for message in window] == ["user", "assistant", "tool", "assistant"] * 3
    called = [message.tool_calls[0]["id"] for message in window if message.tool_calls]
    assert (called, window[2].tool_call_id, window[10].tool_call_id) == (["c1", "c2"], "c1", "c2")
    # An answer is not shown without its call, and is still the store's.
    asyncio.run(store.delete_oldest_messages("port", 10))
    assert [message.content for message in chat.window()] == ["It is 5432."]
    assert asyncio.run(store.get_messages("port")) == messages[10:]
    asyncio.run(store.add_message("port", messages[2]))
    assert [(message.role, message.tool_call_id) for message in chat.window()[1:]] == [("tool", None)]


def test_a_key_goes_on_when_its_conversation_gets_a_budget(memory: Memory) -> None:
    store, chat = RefoldChatStore(memory), memory.conversation("llama-index/k")
    messages = [ChatMessage(f"Message {number} of some length.") for number in range(20)]
    asyncio.run(store.add_messages("k", messages[:1]))
    chat.set_window_tokens(60)
    asyncio.run(store.add_messages("k", messages[1:]))
    assert 0 < len(chat.window()) < 20
    assert asyncio.run(store.get_messages("k")) == messages
    asyncio.run(store.delete_messages("k"))
    assert (chat.window(), chat.window_tokens) == ([], 60)
    assert_sound(memory)


def test_tasks_add_at_once_and_no_message_is_lost(memory: Memory) -> None:
    store = RefoldChatStore(memory)

    async def add() -> None:
        await asyncio.gather(*(store.add_message("k", ChatMessage(f"{number}")) for number in range(24)))

    asyncio.run(add())
    before = memory.head
    asyncio.run(store.add_messages("k", calls_and_answers("c")))
    assert len({stamp.time_ns for _, stamp in memory.events(after=before)}) == 1
    assert {message.content for message in asyncio.run(store.get_messages("k", limit=24))} == set(map(str, range(24)))
    assert len(memory.conversation("llama-index/k").window()) == 28


def test_a_secret_is_erased_from_the_store_and_from_what_is_shown(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        store = RefoldChatStore(memory)
        texts = [ChatMessage("before"), ChatMessage("the secret is plum")]
        asyncio.run(store.add_messages("k", [*texts, *calls_and_answers("c", ": secret is plum")]))
        asyncio.run(store.archive_oldest_messages("k", 2))
        memory.erase(text="secret is plum")
        left = asyncio.run(store.get_messages("k", None))
        assert [message.content for message in left[:2]] == ["before", "(erased)"]
        assert left[3].content == "(erased)"
        assert left[3].blocks[1].tool_call_id == "c"
        assert left[3].blocks[1].tool_kwargs == {}
        asyncio.run(store.archive_oldest_messages("k", 3))
        asyncio.run(store.add_message("k", ChatMessage("more")))
        assert len(asyncio.run(store.get_messages("k", None))) == 7
        assert_sound(memory)
    for file in (tmp_path / "store").iterdir():
        assert b"secret is plum" not in file.read_bytes()


def test_a_message_that_is_erased_is_not_sent_to_the_model_any_more(memory: Memory) -> None:
    store, chat = RefoldChatStore(memory), memory.conversation("llama-index/k")
    asyncio.run(store.add_messages("k", [ChatMessage(text) for text in ("one", "Elm Street", "two", "Oak Street")]))
    asyncio.run(store.archive_oldest_messages("k", 2))
    shown = {message.content: message for message in chat.history()}
    memory.erase([shown["Elm Street"], shown["Oak Street"]])
    left = [message.content for message in asyncio.run(store.get_messages("k", None))]
    assert left == ["one", "(erased)", "two", "(erased)"]
    chat.erase()
    assert {message.content for message in asyncio.run(store.get_messages("k", None))} == {"(erased)"}
    assert_sound(memory)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_key_is_erased_from_the_files(tmp_path: Path, is_deleted: bool) -> None:
    with Memory(tmp_path / "store") as memory:
        store = RefoldChatStore(memory)
        for key, text in (("ann", "Elm Street"), ("anne", "Oak Street")):
            asyncio.run(store.add_messages(key, [ChatMessage(text), ChatMessage(text + "!")]))
            asyncio.run(store.archive_oldest_messages(key, 1))
        if is_deleted:
            asyncio.run(store.delete_messages("ann"))
        asyncio.run(store.erase("ann"))
        assert asyncio.run(store.get_messages("ann", None)) == []
        assert len(asyncio.run(store.get_messages("anne", None))) == 2
        assert memory.conversations(prefix="llama-index/") == ["llama-index/anne"]
        assert_sound(memory)
    assert [is_stored(tmp_path / "store", text) for text in ("Elm Street", "Oak Street")] == [False, True]


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "engine" / "docs" / "guides.md"
    assert run_blocks.run_file(page, sections="Keep the chats of LlamaIndex".__eq__) == 1


def test_the_examples_hold() -> None:
    results = doctest.testmod(importlib.import_module("refold.adapters.llama_index"))
    assert (results.failed, results.attempted > 0) == (0, True)
