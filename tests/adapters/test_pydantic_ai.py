"""pydantic-ai's conversations in a memory: equal to pydantic-ai's own store, and shown as conversations."""

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from refold import Memory
from refold.adapters.pydantic_ai import RefoldConversationStore
from tests.support.memories import assert_sound, is_stored


def content(message: Any) -> Any:
    return message.parts[0].content


def said(step: int, draw: Random) -> list[ModelMessage]:
    question: ModelMessage = ModelRequest(parts=[UserPromptPart(f"q{step}")])
    answer: ModelMessage = ModelResponse(parts=[TextPart(f"a{step}")])
    return draw.choice(([question], [answer], [question, answer]))


async def outcome(store: Any, kind: str, name: str, other: str, at: int, messages: list[ModelMessage]) -> Any:
    loaded = await store.load(name)
    if kind == "say":
        one = loaded or Conversation(conversation_id=name)
        one.messages.extend(messages)
        return len(await store.save(one, scope="s" if name == "a" else None))
    if kind == "rewrite":
        one = Conversation(conversation_id=name, messages=messages, revision=loaded and loaded.revision)
        return len(await store.save(one))
    if kind == "branch":
        branched = await store.branch(name, at=at, expected_revision=loaded and loaded.revision)
        return list(map(content, branched.messages))
    if kind == "fork":
        return len((await store.fork(name, at=at, new_conversation_id=other)).messages)
    if kind == "delete":
        return await store.delete(name)
    if kind == "list":
        return sorted(record.conversation_id for record in await store.list_conversations(scope="s"))
    one = await store.load(name, limit=at)
    return one and list(map(content, one.messages))


@pytest.mark.parametrize("seed", range(12))
def test_random_steps_lead_where_pydantic_ais_own_store_leads(memory: Memory, seed: int) -> None:
    """200 steps for each seed: 2,400 in all; after each the window shows what the conversation holds."""
    draw = Random(seed)
    ours, theirs = RefoldConversationStore(memory), InMemoryConversationStore()
    kinds = ["say", "say", "say", "rewrite", "branch", "fork", "delete", "list", "load"]

    async def steps() -> None:
        for step in range(200):
            kind, name, other, at = draw.choice(kinds), draw.choice("abc"), draw.choice("abc"), draw.randint(0, 4)
            messages, results = said(step, draw), []
            for store in (ours, theirs):
                try:
                    results.append(await outcome(store, kind, name, other, at, messages))
                except Exception as error:  # noqa: BLE001 - which error it is has to be the same
                    results.append(type(error))
            assert results[0] == results[1], (step, kind, name)
            loaded = await ours.load(name)
            window = [message.content for message in memory.conversation(f"pydantic-ai/{name}").window()]
            assert window == (list(map(content, loaded.messages)) if loaded else [])

    asyncio.run(steps())
    assert_sound(memory)


def save(store: RefoldConversationStore, name: str, *texts: str) -> None:
    """Load a conversation, add answers and save it."""
    one = asyncio.run(store.load(name)) or Conversation(conversation_id=name)
    one.messages.extend(ModelResponse(parts=[TextPart(text)]) for text in texts)
    asyncio.run(store.save(one))


def test_a_message_larger_than_the_window_is_appended_once(memory: Memory) -> None:
    store, chat = RefoldConversationStore(memory), memory.conversation("pydantic-ai/c")
    chat.set_window_tokens(100)
    for turn in range(6):
        save(store, "c", f"question {turn}", "long " * 150 + str(turn))
        assert len(chat.history()) == 2 * (turn + 1)
    assert_sound(memory)


def test_a_branch_from_an_evicted_message_appends_only_what_is_new(memory: Memory) -> None:
    store, chat = RefoldConversationStore(memory), memory.conversation("pydantic-ai/c")
    chat.set_window_tokens(60)
    save(store, "c", *(f"answer {place} with some more words" for place in range(12)))
    loaded = asyncio.run(store.load("c"))
    assert loaded is not None
    assert 0 < len(chat.window()) < 10
    asyncio.run(store.branch("c", at=2, expected_revision=loaded.revision))
    assert chat.window() == []
    save(store, "c", "another way")
    assert [message.content for message in chat.window()] == ["another way"]
    assert len(chat.history()) == 13


def test_a_window_cleared_by_hand_stays_so(memory: Memory) -> None:
    store, chat = RefoldConversationStore(memory), memory.conversation("pydantic-ai/c")
    save(store, "c", "one", "two")
    chat.clear_window()
    save(store, "c", "three")
    assert [message.content for message in chat.window()] == ["three"]


def test_messages_saved_without_a_window_are_shown_once_there_is_one(memory: Memory) -> None:
    save(RefoldConversationStore(memory), "c", "one")
    save(RefoldConversationStore(memory, project_messages=False), "c", "two")
    save(RefoldConversationStore(memory), "c", "three")
    window = memory.conversation("pydantic-ai/c").window()
    assert [message.content for message in window] == ["one", "two", "three"]


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"It is {last.content}.")])
    if "port" in str(getattr(last, "content", "")):
        return ModelResponse(parts=[ToolCallPart("port_of", {"service": "db"}, tool_call_id="c1")])
    return ModelResponse(parts=[TextPart(f"{len(messages)} messages so far.")])


def test_an_agent_goes_on_in_another_process_and_is_seen_as_messages(tmp_path: Path) -> None:
    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    def port_of(service: str) -> str:
        return {"db": "5432"}[service]

    async def turn(memory: Memory, text: str) -> str:
        store = RefoldConversationStore(memory)
        conversation = await store.load("trip") or Conversation(conversation_id="trip")
        result = await agent.run(text, conversation=conversation)
        await store.save(result)
        return result.output

    with Memory(tmp_path / "store") as memory:
        assert asyncio.run(turn(memory, "Which port?")) == "It is 5432."
    with Memory(tmp_path / "store") as memory:
        assert asyncio.run(turn(memory, "Thanks.")) == "5 messages so far."
        window = memory.conversation("pydantic-ai/trip").window()
        assert [message.role for message in window] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert window[1].tool_calls is not None
        assert (window[1].tool_calls[0]["id"], window[2].tool_call_id, window[2].content) == ("c1", "c1", "5432")
        assert {stamp.actor for _, stamp in memory.events() if stamp.stream.startswith("table/")} == {"pydantic-ai"}
        assert_sound(memory)


def test_of_two_that_save_at_once_one_learns_of_the_other(memory: Memory) -> None:
    store = RefoldConversationStore(memory)

    async def both() -> list[Any]:
        first = Conversation(conversation_id="c", messages=[ModelRequest(parts=[UserPromptPart("one")])])
        await store.save(first)
        copies = [await store.load("c") for _ in range(8)]
        for number, copy in enumerate(copies):
            assert copy is not None
            copy.messages.append(ModelResponse(parts=[TextPart(f"{number}")]))
        return await asyncio.gather(*(store.save(copy) for copy in copies if copy), return_exceptions=True)

    results = asyncio.run(both())
    assert [type(result) for result in results].count(list) == 1
    assert {type(result) for result in results} == {list, ConversationConflict}
    assert len(memory.conversation("pydantic-ai/c").window()) == 2


def test_a_secret_is_erased_from_entries_and_messages(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        store = RefoldConversationStore(memory)
        texts = ["before", "the secret is plum", "behind"]
        messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(text)]) for text in texts]
        asyncio.run(store.save(Conversation(conversation_id="c", messages=messages)))
        memory.erase(text="secret is plum")
        loaded = asyncio.run(store.load("c"))
        assert loaded is not None
        assert list(map(content, loaded.messages)) == ["before", "(erased)", "behind"]
        loaded.messages.append(ModelResponse(parts=[TextPart("more")]))
        asyncio.run(store.save(loaded))
        assert len(memory.conversation("pydantic-ai/c").window()) == 4
    for file in (tmp_path / "store").iterdir():
        assert b"secret is plum" not in file.read_bytes()


def texts_of(store: RefoldConversationStore, name: str) -> list[str]:
    loaded = asyncio.run(store.load(name))
    return [] if loaded is None else list(map(content, loaded.messages))


def test_a_message_that_is_erased_is_not_sent_to_the_model_any_more(memory: Memory) -> None:
    store, chat = RefoldConversationStore(memory), memory.conversation("pydantic-ai/c")
    save(store, "c", "one", "Elm Street", "two")
    asyncio.run(store.fork("c", at=2, new_conversation_id="fork"))
    save(store, "fork", "three")
    memory.erase([chat.window()[1]])
    assert texts_of(store, "c") == ["one", "(erased)", "two"]
    # The entry is the fork's too.
    assert texts_of(store, "fork") == ["one", "(erased)", "three"]
    assert [message.content for message in memory.conversation("pydantic-ai/fork").window()] == ["one", None, "three"]
    memory.erase([memory.conversation("pydantic-ai/fork").window()[0]])
    assert (texts_of(store, "c"), texts_of(store, "fork")) == (
        ["(erased)", "(erased)", "two"],
        ["(erased)", "(erased)", "three"],
    )
    chat.erase()
    assert texts_of(store, "c") == ["(erased)"] * 3
    save(store, "c", "four")
    assert texts_of(store, "c") == [*["(erased)"] * 3, "four"]
    assert_sound(memory)


@pytest.mark.parametrize("projects", [True, False])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_conversation_is_erased_from_the_files(tmp_path: Path, is_deleted: bool, projects: bool) -> None:
    with Memory(tmp_path / "store") as memory:
        store = RefoldConversationStore(memory, project_messages=projects)
        save(store, "ann", "Elm Street 1", "Elm Street 2")
        save(store, "bob", "Oak Street 1")
        asyncio.run(store.fork("ann", at=1, new_conversation_id="fork"))
        if is_deleted:
            asyncio.run(store.delete("ann"))
        asyncio.run(store.erase("ann"))
        assert texts_of(store, "ann") == []
        assert (texts_of(store, "fork"), texts_of(store, "bob")) == (["(erased)"], ["Oak Street 1"])
        assert "pydantic-ai/ann" not in memory.conversations()
        save(store, "fork", "more")
        assert_sound(memory)
    assert [is_stored(tmp_path / "store", text) for text in ("Elm Street", "Oak Street")] == [False, True]


IMAGE = BinaryContent(data=b"\xfb\xff" * 30, media_type="image/png")
DATA = {"status": "shipped", "carrier": "Hermes", "note": "left with the neighbour " * 40}


def shown(memory: Memory, *messages: ModelMessage) -> Any:
    """Save messages, and return the conversation that shows them."""
    store = RefoldConversationStore(memory)
    asyncio.run(store.save(Conversation(conversation_id="t", messages=list(messages))))
    return memory.conversation("pydantic-ai/t")


@pytest.mark.parametrize(
    ("returned", "content", "tokens"),
    [
        ("shipped", "shipped", 1),
        (DATA, json.dumps(DATA), 200),
        ([DATA, 5], json.dumps([DATA, 5]), 200),
        ([], "[]", 0),
        (None, "null", 1),
        (["a cat", IMAGE], None, 1_000),
        (IMAGE, None, 1_000),
    ],
)
def test_what_a_tool_returned_counts_is_found_and_is_sent(returned: Any, content: Any, tokens: int) -> None:
    memory = Memory()
    chat = shown(
        memory,
        ModelRequest(parts=[UserPromptPart("Where is order 7?")]),
        ModelResponse(parts=[ToolCallPart("order", {"number": 7}, "c1")]),
        ModelRequest(parts=[ToolReturnPart("order", returned, "c1")]),
    )
    result = chat.window()[2]
    assert (result.role, result.tool_call_id) == ("tool", "c1")
    assert result.tokens >= tokens
    if content is not None:
        assert result.content == content
    if returned is DATA:
        assert [hit.entry.id for hit in chat.search("Hermes carrier", top_k=1)] == [result.id]
    for form in ("openai", "openai-responses", "anthropic", "gemini", "ollama"):
        assert len(chat.messages(form)) == 3
    assert memory.context(chat, query="Where is it?", budget=4_000).messages()


def test_media_thoughts_and_the_tools_of_providers_leave_a_conversation_that_can_be_sent() -> None:
    memory = Memory()
    audio = AudioUrl("https://example.org/a.mp3")
    chat = shown(
        memory,
        ModelRequest(parts=[ToolAvailabilityDeltaPart(tools_added=["order"])]),
        ModelRequest(parts=[UserPromptPart(["look", ImageUrl("https://example.org/y.png"), IMAGE, audio])]),
        ModelResponse(
            parts=[
                ThinkingPart("hm"),
                NativeToolCallPart("web_search", {"query": "cats"}, "n1"),
                NativeToolReturnPart("web_search", {"found": 3}, "n1"),
                FilePart(IMAGE),
                TextPart("A cat."),
            ]
        ),
    )
    question, answer = chat.window()
    assert [question.role, answer.role, answer.tool_calls] == ["user", "assistant", None]
    assert question.tokens == 1 + 1_000 + 1_000 + 2_000
    assert [block.get("text") for block in answer.content] == ["(web_search)", None, "A cat."]
    for form in ("openai", "openai-responses", "anthropic", "gemini", "ollama"):
        sent = str(chat.messages(form))
        assert all(text in sent for text in ("look", "A cat.", "(web_search)"))
        assert "None" not in sent
    assert question.content[2]["inlineData"]["data"].startswith("+//7")
