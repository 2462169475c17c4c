"""Sessions and memories of Google's ADK: equal to its own services, and shown as conversations."""

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

WHY_NOT = "Google's ADK is not in the development environment; tools/test --adapters tests its adapter"
pytest.importorskip("google.adk", reason=WHY_NOT)

from google.adk.agents import BaseAgent  # noqa: E402 - it is there from here on
from google.adk.errors import StaleSessionError  # noqa: E402
from google.adk.errors.session_not_found_error import SessionNotFoundError  # noqa: E402
from google.adk.events._rewind_events import _apply_rewinds  # noqa: E402
from google.adk.events.event import Event  # noqa: E402
from google.adk.events.event_actions import EventActions  # noqa: E402
from google.adk.memory import InMemoryMemoryService  # noqa: E402
from google.adk.platform import time as adk_time  # noqa: E402
from google.adk.runners import Runner  # noqa: E402
from google.adk.sessions import DatabaseSessionService, InMemorySessionService  # noqa: E402
from google.adk.sessions.base_session_service import GetSessionConfig  # noqa: E402
from google.genai import types  # noqa: E402

from refold.adapters.google_adk import RefoldMemoryService, RefoldSessionService  # noqa: E402

START = 1_900_000_000.0
"""The time of the first event: behind all that services take from the clock themselves."""

APPS, USERS, SESSIONS = ("trips", "a/b"), ("ann", "b\0c"), ("s1", "s2", "c/d")
KEYS = ("app:theme", "user:name", "temp:step", "count", "app:", "nested")


@pytest.fixture(autouse=True)
def _ticking() -> Any:
    """ADK's clock, which ticks by a second at each look: of equal times its services have orders of their own."""
    now = [1_800_000_000.0]

    def tick() -> float:
        now[0] += 1
        return now[0]

    adk_time.set_time_provider(tick)
    yield
    adk_time.reset_time_provider()


def content(*parts: Any, role: str = "model") -> types.Content:
    return types.Content(role=role, parts=list(parts))


def drawn(step: int, draw: Random) -> Event:
    delta = {key: draw.choice([None, step, {"a": [step]}]) for key in draw.sample(KEYS, draw.randint(0, 3))}
    text = types.Part(text=f"Text {step}")
    call = types.Part(function_call=types.FunctionCall(id=f"c{step % 5}", name="port_of", args={"none": None}))
    answer = types.Part(
        function_response=types.FunctionResponse(id=f"c{draw.randrange(5)}", name="port_of", response={"port": step})
    )
    blob = types.Part(inline_data=types.Blob(data=b"\0\xff", mime_type="image/png"))
    said = draw.choice(
        [None, content(text, role="user"), content(text, call), content(answer, role="user"), content(blob)]
    )
    author = "user" if said and said.role == "user" else "agent"
    return Event(
        author=author,
        invocation_id=f"i{step}",
        content=said,
        actions=EventActions(state_delta=delta),
        timestamp=START + step,
        long_running_tool_ids={"x"} if draw.random() < 0.1 else None,
        partial=draw.random() < 0.05 or None,
    )


def plain(session: Any) -> Any:
    """A session without what is its service's own affair: when a new one was made."""
    if session is None:
        return None
    dumped = session.model_dump(mode="json")
    if not session.events:
        del dumped["last_update_time"]
    return dumped


async def outcome(service: Any, kind: str, names: dict[str, str], event: Event, config: Any) -> Any:
    if kind == "create":
        return plain(await service.create_session(**names, state=dict(event.actions.state_delta)))
    if kind == "get":
        return plain(await service.get_session(**names, config=config))
    if kind == "list":
        user = names["user_id"] if config else None
        found = (await service.list_sessions(app_name=names["app_name"], user_id=user)).sessions
        return sorted((session.user_id, session.id, session.state, session.events) for session in found)
    if kind == "delete":
        return await service.delete_session(**names)
    if kind == "user":
        return await service.get_user_state(app_name=names["app_name"], user_id=names["user_id"])
    session = await service.get_session(**names)
    if session is None:
        return None
    appended = await service.append_event(session, event.model_copy(deep=True))
    # What the caller holds has temporary state too, which nobody else ever sees.
    return plain(session), appended.model_dump(mode="json")


KINDS = [*["create"] * 2, *["get"] * 4, "list", "user", *["append"] * 8]


@pytest.mark.parametrize("seed", range(12))
def test_random_steps_lead_where_adks_own_service_leads(memory: Memory, seed: int) -> None:
    """200 steps for each seed: 2,400 in all, where ADK's services in RAM and for databases answer the same.

    They differ in what the interface leaves open: the one in RAM has events in the order of their coming, as we do, and
    the other by their times, which rise here; the one in RAM takes a stale session, which the other and we refuse, and
    drops an event that it has; it strips ids of sessions, as we do.
    """
    draw = Random(seed)
    ours, theirs = RefoldSessionService(memory), InMemorySessionService()

    async def steps() -> None:
        for step in range(200):
            names = {"app_name": draw.choice(APPS), "user_id": draw.choice(USERS), "session_id": draw.choice(SESSIONS)}
            kind = "delete" if draw.random() < 0.02 else draw.choice(KINDS)
            count, since = draw.choice([None, 0, 1, 3]), draw.choice([None, START + step - draw.randrange(24)])
            config = draw.choice([None, GetSessionConfig(num_recent_events=count, after_timestamp=since)])
            event = drawn(step, draw)
            results = []
            for service in (ours, theirs):
                try:
                    results.append(await outcome(service, kind, names, event, config))
                except Exception as error:  # noqa: BLE001 - which error it is has to be the same
                    results.append(type(error))
            assert results[0] == results[1], (step, kind, names, config)

    asyncio.run(steps())
    assert_sound(memory)


async def stale(service: Any) -> list[Any]:
    names = {"app_name": "trips", "user_id": "ann", "session_id": "rome"}
    results: list[Any] = []

    async def append(session: Any, text: str) -> None:
        try:
            await service.append_event(session, Event(author="user", message=text))
            results.append(session.events[-1].message.parts[0].text)
        except (StaleSessionError, SessionNotFoundError) as error:
            results.append(type(error))

    first = await service.create_session(**names)
    second = await service.get_session(**names)
    await append(first, "one")
    await append(second, "refused")
    await append(first, "two")
    # Tasks that share a session take turns.
    await asyncio.gather(*(append(first, "of many") for _ in range(6)))
    # One that was made by hand goes by its events.
    by_hand = first.model_copy(deep=True, update={"last_update_time": 0.0})
    by_hand._storage_update_marker = None
    behind = by_hand.model_copy(deep=True, update={"events": by_hand.events[:-1]})
    await append(behind, "refused")
    await append(by_hand, "by hand")
    session = await service.get_session(**names)
    await append(first, "refused")
    await append(session, "three")
    await service.delete_session(**names)
    await append(session, "refused")
    await service.create_session(**names)
    await append(session, "refused")
    return [*results, len(session.events)]


def test_a_session_that_others_appended_to_is_refused_as_by_adks_database_service(memory: Memory) -> None:
    async def both() -> list[Any]:
        async with DatabaseSessionService("sqlite+aiosqlite:///:memory:") as theirs:
            return [await stale(RefoldSessionService(memory)), await stale(theirs)]

    ours, theirs = asyncio.run(both())
    assert ours == theirs
    assert ours.count(StaleSessionError) == 4
    assert_sound(memory)


class Clerk(BaseAgent):
    """An agent without a model: it calls, answers and says."""

    async def _run_async_impl(self, ctx: Any) -> Any:
        call = types.FunctionCall(id="c1", name="port_of", args={"service": "db"})
        answer = types.FunctionResponse(id="c1", name="port_of", response={"port": 5432})
        for part in (
            types.Part(function_call=call),
            types.Part(function_response=answer),
            types.Part(text="It is 5432."),
        ):
            yield Event(invocation_id=ctx.invocation_id, author=self.name, content=content(part))


def test_a_runner_goes_on_in_another_process_and_is_seen_as_messages(tmp_path: Path) -> None:
    async def turn(memory: Memory, text: str) -> int:
        service = RefoldSessionService(memory)
        runner = Runner(app_name="trips", agent=Clerk(name="clerk"), session_service=service, auto_create_session=True)
        said = content(types.Part(text=text), role="user")
        _ = [event async for event in runner.run_async(user_id="ann", session_id="rome", new_message=said)]
        session = await service.get_session(app_name="trips", user_id="ann", session_id="rome")
        assert session is not None
        return len(session.events)

    with Memory(tmp_path / "store") as memory:
        assert asyncio.run(turn(memory, "Which port?")) == 4
    with Memory(tmp_path / "store") as memory:
        assert asyncio.run(turn(memory, "Thanks.")) == 8
        window = memory.conversation("google-adk/trips/ann/rome").window()
        assert [message.role for message in window] == ["user", "assistant", "tool", "assistant"] * 2
        assert window[1].tool_calls is not None
        assert (window[1].tool_calls[0]["id"], window[2].tool_call_id) == ("c1", "c1")
        assert [message.content for message in window[2:5]] == ['{"port": 5432}', "It is 5432.", "Thanks."]
        actors = {stamp.actor for _, stamp in memory.events() if stamp.stream.startswith("table/")}
        assert actors == {"google-adk"}
        assert_sound(memory)


def test_a_session_is_read_as_of_one_moment(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = RefoldSessionService(memory), RefoldSessionService(memory)
    names: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}
    session = asyncio.run(writer.create_session(**names))
    look, actions = reader._merge_state, EventActions(state_delta={"said": 1})
    events = [Event(author="user", message="Hello!", actions=actions)]

    def interrupted(own: Any) -> dict[str, Any]:
        state = look(own)
        while events:
            asyncio.run(writer.append_event(session, events.pop()))
        return state

    monkeypatch.setattr(reader, "_merge_state", interrupted)
    read = asyncio.run(reader.get_session(**names))
    assert read is not None
    assert (read.state, len(read.events)) == ({"said": 1}, 1)


def test_names_with_a_slash_lead_to_conversations_of_their_own(memory: Memory) -> None:
    service = RefoldSessionService(memory)

    async def say(app_name: str, user_id: str) -> None:
        session = await service.create_session(app_name=app_name, user_id=user_id, session_id="s%2F")
        await service.append_event(session, Event(author="user", message=app_name))

    asyncio.run(say("a/b", "c"))
    asyncio.run(say("a", "b/c"))
    assert set(memory.conversations()) == {"google-adk/a%2Fb/c/s%252F", "google-adk/a/b%2Fc/s%252F"}


def test_an_event_is_one_commit(memory: Memory) -> None:
    service = RefoldSessionService(memory)

    async def append() -> int:
        session = await service.create_session(app_name="a", user_id="u", session_id="s")
        before = memory.head
        actions = EventActions(state_delta={"app:x": 1, "user:y": 2, "z": 3})
        await service.append_event(session, Event(author="user", message="Hello!", actions=actions))
        return before

    before = asyncio.run(append())
    assert len({stamp.time_ns for _, stamp in memory.events(after=before)}) == 1
    asyncio.run(service.delete_session(app_name="a", user_id="u", session_id="s"))
    chat = memory.conversation("google-adk/a/u/s")
    assert (chat.window(), [message.content for message in chat.history()]) == ([], ["Hello!"])


def test_a_session_goes_on_when_its_conversation_gets_a_budget(memory: Memory) -> None:
    service: Any = RefoldSessionService(memory)
    names = {"app_name": "a", "user_id": "u", "session_id": "s"}

    async def say(session: Any, count: int) -> None:
        for number in range(count):
            await service.append_event(session, Event(author="user", message=f"Message {number} of some length."))

    async def steps() -> None:
        session = await service.create_session(**names)
        await say(session, 1)
        chat.set_window_tokens(60)
        await say(session, 20)
        session = await service.get_session(**names)
        assert (len(session.events), 0 < len(chat.window()) < 20) == (21, True)
        await service.delete_session(**names)

    chat = memory.conversation("google-adk/a/u/s")
    asyncio.run(steps())
    assert (chat.window(), chat.window_tokens) == ([], 60)
    assert_sound(memory)


WORDS = ("apple", "bridge", "copper", "dragon", "ember", "falcon")


@pytest.mark.parametrize("seed", range(4))
def test_a_search_finds_the_events_that_adks_own_service_finds(memory: Memory, seed: int) -> None:
    draw = Random(seed)
    ours, theirs = RefoldMemoryService(memory, ranking="lexical"), InMemoryMemoryService()
    hybrid, sessions = RefoldMemoryService(memory), RefoldSessionService(memory)

    async def found(service: Any, user: str, query: str) -> list[str]:
        response = await service.search_memory(app_name="trips", user_id=user, query=query)
        return [f"{each.id} {each.author} {each.content.parts[0].text}" for each in response.memories]

    async def steps() -> None:
        for user in ("ann", "bob"):
            session = await sessions.create_session(app_name="trips", user_id=user)
            for _ in range(9):
                text = " ".join(draw.sample(WORDS, draw.randint(1, 2)))
                await sessions.append_event(session, Event(author="user", message=text))
                for service in (ours, theirs):
                    await service.add_session_to_memory(session)  # As often as one likes.
            gone = session.events[0].id
            for service in (ours, theirs):
                await service.delete_memory(app_name="trips", user_id=user, memory_id=gone)
                await service.add_session_to_memory(session)
        for user in ("ann", "bob", "eve"):
            for query in (*WORDS, "apple falcon", "xylophone", " "):
                expected = sorted(await found(theirs, user, query))
                assert sorted(await found(ours, user, query)) == expected, (user, query)
                # What is near it otherwise comes behind.
                assert sorted((await found(hybrid, user, query))[: len(expected)]) == expected, (user, query)

    asyncio.run(steps())
    assert_sound(memory)


def test_a_secret_is_erased_from_sessions_states_and_memories(tmp_path: Path) -> None:
    names = {"app_name": "trips", "user_id": "ann", "session_id": "rome"}
    secret = "the secret is plum"  # noqa: S105 - a fruit
    call = types.Part(function_call=types.FunctionCall(id="c", name="tell", args={"what": secret}))
    answer = types.Part(function_response=types.FunctionResponse(id="c", name="tell", response={"is": "told"}))

    async def fill(memory: Memory) -> None:
        service = RefoldSessionService(memory)
        session = await service.create_session(**names, state={"user:fruit": secret, "app:x": 1})
        for each in (types.Part(text="before"), types.Part(text=secret), call, answer):
            await service.append_event(session, Event(author="agent", content=content(each)))
        await RefoldMemoryService(memory).add_session_to_memory(session)

    with Memory(tmp_path / "store") as memory:
        asyncio.run(fill(memory))
        memory.erase(text="secret is plum")

        async def read() -> None:
            service, memories = RefoldSessionService(memory), RefoldMemoryService(memory, ranking="lexical")
            session = await service.get_session(**names)
            assert session is not None
            assert session.state == {"app:x": 1}
            parts = [event.content.parts[0] for event in session.events]
            assert [part.text for part in parts[:2]] == ["before", "(erased)"]
            assert (parts[2].function_call.id, parts[3].function_response.response) == ("c", {"is": "told"})
            await service.append_event(session, Event(author="user", message="more"))
            await memories.add_session_to_memory(session)
            left = [
                await memories.search_memory(app_name="trips", user_id="ann", query=query)
                for query in ("before", "plum")
            ]
            assert [len(each.memories) for each in left] == [1, 0]

        asyncio.run(read())
        assert_sound(memory)
    for file in (tmp_path / "store").iterdir():
        assert b"secret is plum" not in file.read_bytes()


def test_a_message_that_is_erased_is_not_sent_to_the_model_any_more(memory: Memory) -> None:
    service: Any = RefoldSessionService(memory)
    memories = RefoldMemoryService(memory, ranking="lexical")
    names = {"app_name": "a", "user_id": "ann", "session_id": "x"}

    async def fill() -> None:
        session = await service.create_session(**names)
        actions = EventActions(state_delta={"home": "Elm Street", "user:home": "kept"})
        for text in ("hello", "I live at Elm Street", "bye"):
            event = Event(author="user", message=text, actions=actions if "Elm" in text else EventActions())
            await service.append_event(session, event)
        await memories.add_session_to_memory(session)

    async def read() -> tuple[list[str], dict[str, Any], int]:
        session = await service.get_session(**names)
        found = await memories.search_memory(app_name="a", user_id="ann", query="Street")
        texts = [part.text for event in session.events for part in event.content.parts]
        return texts, session.state, len(found.memories)

    asyncio.run(fill())
    chat = memory.conversation("google-adk/a/ann/x")
    memory.erase([chat.window()[1]])
    assert asyncio.run(read()) == (["hello", "(erased)", "bye"], {"user:home": "kept"}, 0)
    chat.erase()
    assert asyncio.run(read())[0] == ["(erased)"] * 3
    assert_sound(memory)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_user_is_erased_from_the_files(tmp_path: Path, is_deleted: bool) -> None:
    async def steps(memory: Memory) -> None:
        service, memories = RefoldSessionService(memory), RefoldMemoryService(memory)
        for user, home in (("ann/1", "Elm Street 51"), ("ann", "Oak Street 52")):
            for each in ("x", "y"):
                state = {"user:home": home, "home": home}
                session = await service.create_session(app_name="a", user_id=user, session_id=each, state=state)
                await service.append_event(session, Event(author="user", message=f"I live at {home} {each}"))
                await memories.add_session_to_memory(session)
        if is_deleted:
            await service.delete_session(app_name="a", user_id="ann/1", session_id="x")
        receipts = await service.erase_session(app_name="a", user_id="ann/1", session_id="y")
        assert sum(len(receipt.derived) for receipt in receipts) > 0
        assert await service.get_session(app_name="a", user_id="ann/1", session_id="y") is None
        await service.erase_user(app_name="a", user_id="ann/1")
        await memories.erase_user(app_name="a", user_id="ann/1")
        for user, count in (("ann/1", 0), ("ann", 2)):
            found = await memories.search_memory(app_name="a", user_id=user, query="Street")
            sessions = (await service.list_sessions(app_name="a", user_id=user)).sessions
            state = await service.get_user_state(app_name="a", user_id=user)
            assert (len(found.memories), len(sessions), len(state)) == (count, count, count // 2)
        assert_sound(memory)

    with Memory(tmp_path / "store") as memory:
        asyncio.run(steps(memory))
    assert [is_stored(tmp_path / "store", text) for text in ("Elm Street", "ann%2F1", "ann/1", "Oak Street")] == [
        False,
        False,
        False,
        True,
    ]


class Echo(BaseAgent):
    """An agent that answers with what a model would be sent."""

    async def _run_async_impl(self, ctx: Any) -> Any:
        texts = [part.text for event in _apply_rewinds(ctx.session.events) for part in _parts_of(event)]
        yield Event(invocation_id=ctx.invocation_id, author=self.name, content=content(types.Part(text=str(texts))))


def _parts_of(event: Event) -> list[Any]:
    return (event.content.parts if event.content else None) or []


def test_a_rewind_takes_the_conversation_back(memory: Memory) -> None:
    service: Any = RefoldSessionService(memory)
    runner = Runner(app_name="a", agent=Echo(name="echo"), session_service=service)
    names: dict[str, Any] = {"user_id": "u", "session_id": "s"}
    chat = memory.conversation("google-adk/a/u/s")

    async def say(text: str) -> list[object]:
        said = content(types.Part(text=text), role="user")
        sent = [event.content.parts[0].text async for event in runner.run_async(**names, new_message=said)][-1]
        assert str([message.content for message in chat.window()[:-1]]) == sent
        return [message.content for message in chat.window() if message.role == "user"]

    async def rewind(place: int) -> None:
        session = await service.get_session(app_name="a", **names)
        turns = list(dict.fromkeys(event.invocation_id for event in session.events if event.content))
        await runner.rewind_async(**names, rewind_before_invocation_id=turns[place])

    async def steps() -> None:
        await service.create_session(app_name="a", **names)
        for text in ("one", "two", "three"):
            await say(text)
        await rewind(1)
        assert await say("four") == ["one", "four"]
        # Before a turn that was itself rewound: what came before it is there again.
        await rewind(2)
        assert await say("five") == ["one", "two", "five"]
        await rewind(0)
        assert await say("six") == ["six"]

    asyncio.run(steps())
    assert_sound(memory)


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "engine" / "docs" / "guides.md"
    assert run_blocks.run_file(page, sections="Keep the sessions of Google's ADK".__eq__) == 2


def test_the_examples_hold() -> None:
    results = doctest.testmod(importlib.import_module("refold.adapters.google_adk"))
    assert (results.failed, results.attempted > 0) == (0, True)
