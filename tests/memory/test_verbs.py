"""What every public verb keeps, whatever it does: one table of all verbs, and one test for each promise.

A verb that is missing in ``tests/support/verbs.py`` fails a test here. A mutation is a verb that takes ``request_id``.
"""

import asyncio
import builtins
import inspect
import io
import os
import pickle
import re
import time
import types
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from refold import EXISTS, NO_STREAM, InvalidInput, Memory, NotFound, ReadOnly, RefoldError, WrongVersion
from refold.embedders import CachedEmbedder
from refold.memory.conversation import FormerMethod
from tests.conftest import PLACES, Servers
from tests.support.memories import assert_sound, elsewhere, refused
from tests.support.verbs import ELSEWHERE, VERBS
from tests.support.worlds import Kit, World

NO_MUTATIONS = {"Memory.context", "Memory.mirror", "Memory.search", "Memory.fork/read", "Conversation.snapshot/bytes"}
NO_MUTATIONS |= {"Project.search_many", "Board.hydrate", "Skills.choose"}
"""Their options are others, or the call of the table is another one."""


def method(name: str) -> Any:
    return getattr(VERBS[name].kind, name.partition(".")[2].partition("/")[0], None)


def is_mutation(name: str) -> bool:
    """Whether a verb takes the three options; some hand them on."""
    if name in NO_MUTATIONS or not callable(method(name)):
        return False
    return not {"request_id", "options", "writing"}.isdisjoint(inspect.signature(method(name)).parameters)


PLAIN = [name for name, verb in VERBS.items() if not (verb.opens or verb.closes or verb.thread or verb.embedder)]
MUTATIONS = [name for name in PLAIN if is_mutation(name)]
ERASED = ("Conversation", "Project", "Profile", "Journal", "Files", "Board", "Table")
ERASURES = ["Memory.erase", *(f"{kind}.erase" for kind in ERASED), "Table.erase/prefix"]
WRITERS = [*ERASURES, "Memory.batch", "Memory.load", "Memory.show", "Memory.tools", "Board.hydrate", "Skills.choose"]
WRITERS += ["ScopedState.pop", "ScopedState.setdefault", "ScopedState.update", "Skills.maybe_generate", "Skills.remove"]
WRITERS += ["Memory.acting", "Memory.transact"]
"""What appends, and takes none of the three options."""

WRITES = [*MUTATIONS, *WRITERS]
READS = [name for name in PLAIN if name not in WRITES]
UNCHANGED = {"Conversation.restore", "Project.approve", "Project.decay"}
"""Calls of the table that have nothing to do, and append nothing."""

OF_A_STORE = {*ERASURES, "Memory.load", "Memory.fork", "Memory.fork/alone"}
"""What no batch holds and no fork does."""

UNBATCHED = {*OF_A_STORE, "Memory.restore", "Memory.snapshot", "Memory.context", "Memory.show", "Memory.batch"} | {
    "Conversation.fork",
    "Conversation.summarize",
}
UNBATCHED |= {
    "Conversation.fork/alone",
    "Conversation.fork/replace",
    "Conversation.close",
    "Conversation.snapshot",
    "Skills.edit",
}
"""What a batch refuses; ``tests/engine/test_batch_edges.py`` has the words."""

LIVE_ONLY = {"Memory.backup", "Memory.subscribe", "Memory.mirror", "Memory.fork/read", "Board.subscribe"}
LIVE_ONLY |= {
    "Memory.watch",
    "Board.subscribe_settings",
    "Subscription.close",
    "Skills.create",
    "Skills.export",
    "Skills.index",
}
LIVE_ONLY |= {"Skills.overview"}
"""Reads that need a live store, write files of their own, or tell the time of a scan of files."""

CHAINED = {"Memory.fork", "Conversation.fork", "Conversation.close", "Conversation.append/request"}
"""Calls of the table that are two, or have options already."""

SYNC_ONLY = {
    *CHAINED,
    "Memory.acting",
    "Memory.add",
    "Memory.recall",
    "Memory.upsert",
    "Memory.tools",
    "Memory.load",
    "Memory.batch",
    "Memory.transact",
    "Memory.show",
}
SYNC_ONLY |= {"ScopedState.update"}
SYNC_ONLY |= {name for name in WRITES if name.startswith(("Skill", "Batch"))}
"""What the handles for asyncio do not have, or as two calls."""


class Optioned:
    """A handle whose verb is called with more options than the table knows."""

    def __init__(self, handle: Any, verb: str, options: dict[str, Any]) -> None:
        self._handle, self._verb, self._options = handle, verb, options

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._handle, name)
        return (lambda *given, **named: found(*given, **named, **self._options)) if name == self._verb else found


class Stand:
    """A world with another memory: a frozen one, a fork, or one for asyncio."""

    def __init__(self, world: World, memory: Any) -> None:
        self.memory, self.known, self.things, self.new_path = memory, world.known, world.things, world.new_path


def call(name: str, world: Any, **options: Any) -> Any:
    verb = VERBS[name]
    handle = verb.handle(world)
    return verb.call(Optioned(handle, name.partition(".")[2].partition("/")[0], options) if options else handle, world)


def events(memory: Memory, after: int) -> list[tuple[str, str]]:
    return [(stamp.stream, type(event).__name__) for event, stamp in memory.events() if stamp.seq > after]


UNAWAITED = {f"Memory.{name}" for name in ("at", "conversations", "diff", "events", "export", "search")}
UNAWAITED |= {
    f"Memory.{name}"
    for name in (
        "journals",
        "profiles",
        "projects",
        "replay_hash",
        "skills",
        "snapshots",
        "state_hash",
        "stats",
        "tables",
        "verify",
    )
}
UNAWAITED |= {"Memory.health", "Memory.at/occurred", "Memory.conversations/dropped", "Memory.sweep", "Memory.what_if"}
UNAWAITED |= {"Conversation.place", "Conversation.snapshot/bytes", *(name for name in READS if name[:5] == "Skill")}
"""Reads that the handles for asyncio do not have."""


def shown(result: Any) -> Any:
    """A result as something that can be compared: handles have no equality of their own."""
    return re.sub(r"\bAsync(?=[A-Z])| at 0x\w+|at=\d+, |score=[\d.]+, parts=\{[^}]*\}", "", repr(result))


def texts(event: Any) -> Iterator[str]:
    """Every text of several words in an event: its body, not one of the names and ids that stay."""
    rest = [msgspec.to_builtins(event)]
    while rest:
        value = rest.pop()
        if isinstance(value, str) and " " in value:
            yield value
        elif isinstance(value, dict):
            rest += [*value.values(), *value]
        elif isinstance(value, list | tuple):
            rest += value


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, log_home: str, servers: Servers) -> Iterator[Kit]:
    """One filled store, of which each test has a copy."""
    logs = None if log_home in PLACES else servers.logs(log_home)
    with Kit(tmp_path_factory.mktemp("verbs"), logs) as made:
        yield made


@pytest.fixture
def new_world(template: Kit) -> Iterator[Callable[[str], World]]:
    worlds: list[World] = []

    def make(name: str) -> World:
        worlds.append(World(template, "durable", "warm", VERBS[name]))
        return worlds[-1]

    yield make
    for world in worlds:
        world.memory.close()
        world.end()


def public_names() -> set[str]:
    """Every public name of every handle, the class before it."""
    kinds = {verb.kind for verb in VERBS.values() if verb.kind is not None}
    members = [(kind, name, value) for kind in kinds for name, value in inspect.getmembers(kind) if name[0] != "_"]
    hidden = (FormerMethod, types.MemberDescriptorType)
    return {f"{kind.__name__}.{name}" for kind, name, value in members if not isinstance(value, hidden)}


class TestTheTable:
    def test_has_every_public_verb_or_says_why_not(self) -> None:
        called = {name.partition("/")[0] for name in VERBS} - {"Memory", "Batch.leave", "Subscription.close"}
        assert called.isdisjoint(ELSEWHERE)
        assert called | set(ELSEWHERE) == public_names()

    def test_has_every_handle(self) -> None:
        memory = Memory()
        chat = memory.conversation("c")
        handles = [memory, chat, chat.scratchpad, chat.state, chat.session]
        handles += [memory.project(), memory.profile(), memory.journal()]
        handles += [
            memory.board(session="c"),
            memory.files(),
            memory.table("t"),
            memory.settings,
            memory.skills,
            memory.skills.library,
        ]
        assert {type(handle) for handle in handles} == {verb.kind for verb in VERBS.values()} - {None}


HANDLES: dict[str, Callable[[Any], Any]] = {
    verb.kind.__name__: verb.handle for verb in VERBS.values() if verb.kind is not None
}

LEFT_OUT = {"Memory": "aio mirror skills tools"}
"""What the handles for asyncio do not have: a plain memory reads it at once, or a thread calls it."""


@pytest.mark.parametrize("kind", sorted({verb.kind.__name__ for verb in VERBS.values() if verb.kind is not None}))
def test_the_handles_for_asyncio_have_the_same_names_with_the_same_options(kind: str) -> None:
    if kind.startswith("Skill"):
        return
    plain = HANDLES[kind](SimpleNamespace(memory=Memory()))
    twin = HANDLES[kind](SimpleNamespace(memory=Memory().aio))
    assert twin.plain.__class__ is plain.__class__
    public = {name for name in dir(type(plain)) if name[0] != "_"} & {*dir(plain)}
    assert {*LEFT_OUT.get(kind, "").split()} == {name for name in public if not hasattr(type(twin), name)}
    for name in public & {*dir(type(twin))}:
        own, given = (getattr(type(each), name) for each in (plain, twin))
        if inspect.isfunction(own):
            options, taken = (inspect.signature(each).parameters.values() for each in (own, given))
            if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken):
                known = [(each.name, each.kind, each.default) for each in taken]
                assert known == [(each.name, each.kind, each.default) for each in options], name
        elif name not in {"aio", "hooks", "scratchpad", "session", "settings", "state"}:
            assert getattr(twin, name) == getattr(plain, name)


def test_handles_for_asyncio_are_compared_like_their_twins(memory: Memory) -> None:
    memory.conversation("c").append("user", "Hello!")
    memory.project("p").add("A fact.")
    fork = memory.conversation("c").fork("d")
    fork.append("user", "Another way.")
    awaited, chat, project = memory.aio, memory.conversation("c"), memory.project("p")
    twin, facts = awaited.conversation("c"), awaited.project("p")
    assert memory.diff(twin, awaited.conversation("d")) == memory.diff(chat, fork) != []
    assert memory.diff(twin.at(1), chat) == memory.diff(chat.at(1), chat) != []
    assert memory.diff(facts.at(1), facts) == memory.diff(project.at(1), project) != []
    assert memory.diff(0, awaited) == memory.diff(0, memory) != []


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "asyncio"])
@pytest.mark.parametrize("kind", HANDLES)
@pytest.mark.parametrize("copied", [pickle.dumps, deepcopy])
def test_a_handle_is_not_copied_and_says_what_is(
    kind: str, copied: Callable[[Any], Any], new_world: Callable[[str], World], *, is_async: bool
) -> None:
    world = new_world("Memory.head")
    if is_async and kind.startswith("Skill"):
        return
    handle = HANDLES[kind](Stand(world, world.memory.aio) if is_async else world)
    with pytest.raises(TypeError, match=r"cannot be pickled or deep-copied.*Memory\(path\)\.conversation\(id\)"):
        copied(handle)


@pytest.fixture
def off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whatever would stall an event loop refuse to run on its thread: embedders, files, waits."""
    for place, name in ((CachedEmbedder, "embed"), (builtins, "open"), (io, "open"), (os, "open"), (time, "sleep")):
        slow = getattr(place, name)

        def elsewhere(*arguments: Any, name: str = name, slow: Callable[..., Any] = slow, **options: Any) -> Any:
            assert asyncio._get_running_loop() is None, f"{name} on the loop's thread"
            return slow(*arguments, **options)

        monkeypatch.setattr(place, name, elsewhere)


class TestARead:
    @pytest.mark.parametrize("name", READS)
    def test_appends_nothing(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        hashed = world.memory.state_hash()
        call(name, world)
        assert (world.memory.head, world.memory.state_hash()) == (world.head, hashed)

    @pytest.mark.parametrize("name", [name for name in READS if name not in LIVE_ONLY])
    def test_answers_the_same_frozen_and_opened_anew(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        memory = world.memory
        said = shown(call(name, world))
        assert shown(call(name, Stand(world, memory.at(memory.head)))) == said
        memory.close()
        world.forget()
        assert shown(call(name, world)) == said

    @pytest.mark.parametrize("name", [name for name in READS if name not in LIVE_ONLY and name not in UNAWAITED])
    @pytest.mark.usefixtures("off_the_loop")
    def test_answers_the_same_on_an_event_loop(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        answers = []

        async def work() -> None:
            found = call(name, Stand(world, world.memory.aio))
            answers.append(await found if inspect.isawaitable(found) else found)

        asyncio.run(work())
        assert shown(answers[0]) == shown(call(name, world))


class TestAWrite:
    @pytest.mark.parametrize("name", WRITES)
    def test_is_replayed_reopened_verified_exported_and_leaves_the_past_alone(
        self, name: str, new_world: Callable[[str], World], tmp_path: Path
    ) -> None:
        world = new_world(name)
        memory = world.memory
        before = memory.state_hash()
        call(name, world)
        assert (memory.head > world.head) is (name not in UNCHANGED)
        if name not in ERASURES:
            assert memory.state_hash(at=world.head) == before
        after = assert_sound(memory)
        memory.export(tmp_path / "export")
        memory.close()
        world.forget()
        assert assert_sound(world.memory) == after
        with Memory() as other:
            other.load(tmp_path / "export")
            assert assert_sound(other) == after

    @pytest.mark.parametrize("name", [name for name in WRITES if name not in UNBATCHED])
    def test_in_a_batch_is_seen_by_nobody_and_undone_or_done_as_one(
        self, name: str, new_world: Callable[[str], World]
    ) -> None:
        world = new_world(name)
        memory = world.memory
        before = (memory.head, memory.state_hash())
        with pytest.raises(ZeroDivisionError), memory.batch():  # noqa: PT012 - the batch is what the error ends
            call(name, world)
            assert elsewhere(lambda: (memory.head, memory.state_hash())) == before
            raise ZeroDivisionError
        assert (memory.head, memory.state_hash()) == before
        with memory.batch():
            call(name, world)
        alone = new_world(name)
        call(name, alone)
        assert events(memory, world.head) == events(alone.memory, alone.head)
        assert_sound(memory)

    @pytest.mark.parametrize("name", [name for name in WRITES if name not in OF_A_STORE])
    def test_of_a_fork_leaves_the_main_line_alone(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        memory = world.memory
        fork = memory.fork("line")
        before = memory.state_hash()
        call(name, Stand(world, fork))
        assert memory.state_hash() == before
        alone = new_world(name)
        call(name, alone)
        assert events(fork, fork.head - (alone.memory.head - alone.head)) == events(alone.memory, alone.head)
        assert_sound(memory)
        assert fork.state_hash() == fork.replay_hash()

    @pytest.mark.parametrize("name", [name for name in WRITES if name not in OF_A_STORE and "Settings" not in name])
    def test_is_undone_by_a_restore_of_the_whole(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        memory = world.memory
        memory.snapshot("before")
        head = memory.head
        call(name, world)
        memory.restore("before")
        assert [change for change in memory.diff(head, memory) if change.view != "store"] == []
        assert_sound(memory)

    @pytest.mark.parametrize("name", [name for name in WRITES if name not in OF_A_STORE])
    def test_leaves_no_byte_where_it_is_erased(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        memory = world.memory
        every = [memory, *map(memory.fork, memory.forks())]
        old = {text for handle in every for event, _ in handle.events() for text in texts(event)}
        call(name, world)
        written = [(event, stamp) for event, stamp in memory.events() if stamp.seq > world.head]
        new = {text for event, _ in written for text in texts(event)} - old
        memory.erase([stamp.seq for _, stamp in written])
        assert_sound(memory)
        memory.close()
        left = world.left()
        assert [text for text in new if text.encode() in left] == []

    @pytest.mark.parametrize("name", [name for name in WRITES if name != "Memory.tools"])
    def test_is_refused_by_a_frozen_handle(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        with refused(world.memory, ReadOnly):
            call(name, Stand(world, world.memory.at(world.head)))

    @pytest.mark.parametrize("name", [name for name in WRITES if name not in SYNC_ONLY])
    @pytest.mark.usefixtures("off_the_loop")
    def test_is_the_same_on_an_event_loop(self, name: str, new_world: Callable[[str], World]) -> None:
        world, alone = new_world(name), new_world(name)

        async def work() -> None:
            found = call(name, Stand(world, world.memory.aio))
            if inspect.isawaitable(found):
                await found

        asyncio.run(work())
        call(name, alone)
        assert events(world.memory, world.head) == events(alone.memory, alone.head)
        assert world.memory.state_hash() == world.memory.replay_hash()


async def ended(call: Callable[[], Any]) -> str:
    """How a call ended: with a result, or with which error of refold."""
    try:
        found = call()
        if inspect.isawaitable(found):
            await found
    except RefoldError as error:
        return type(error).__name__
    return "a result"


UNREAD = {"Memory.board", "Memory.close", "Memory.files", "Memory.hooks", "Memory.journal", "Memory.profile"}
UNREAD |= {"Memory.project", "Memory.settings", "Memory.table", "Conversation.scratchpad"}
UNREAD |= {"Board.node", "Board.project", "Board.session"}
"""What reads nothing of the store: it makes a handle, or says what one was made with."""

AWAITED = [name for name in READS if name not in LIVE_ONLY and name not in UNAWAITED]
AWAITED += [*(name for name in WRITES if name not in SYNC_ONLY), "Memory.backup", "Memory.close"]


class TestOfAClosedMemory:
    @pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
    @pytest.mark.parametrize("name", AWAITED)
    def test_ends_the_same_on_an_event_loop(
        self, name: str, new_world: Callable[[str], World], *, is_shared: bool
    ) -> None:
        world = new_world(name)
        verb = VERBS[name]
        other = world.opened() if is_shared else None

        async def work() -> tuple[str, str]:
            stand: Any = Stand(world, world.memory.aio)
            plain, handle = verb.handle(world), verb.handle(stand)
            await stand.memory.close()
            return await ended(lambda: verb.call(plain, world)), await ended(lambda: verb.call(handle, stand))

        plain, awaited = asyncio.run(work())
        assert awaited == plain
        assert plain == "Closed" or name in UNREAD
        if other is not None:
            assert_sound(other)
            other.close()


@pytest.mark.parametrize("name", [name for name in MUTATIONS if name not in CHAINED])
class TestItsOptions:
    def test_one_request_is_done_once(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        memory = world.memory
        first = shown(call(name, world, request_id="request"))
        head, hashed = memory.head, memory.state_hash()
        assert shown(call(name, world, request_id="request")) == first
        memory.close()
        world.forget()
        assert shown(call(name, world, request_id="request")) == first
        assert (world.memory.head, world.memory.state_hash()) == (head, hashed)

    def test_one_request_is_done_once_in_a_batch(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        memory = world.memory
        try:
            with memory.batch():
                first = call(name, world, request_id="request")
                again = call(name, world, request_id="request")
        except InvalidInput as error:
            assert "inside a batch is refused" in str(error)  # noqa: PT017 - some verbs are no part of a batch
            return
        assert shown(again) == shown(first)
        assert shown(call(name, world, request_id="request")) == shown(first)
        assert_sound(memory)

    def test_the_id_of_another_request_is_refused(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        world.memory.profile("elsewhere").set("k", "v", request_id="request")
        with refused(world.memory, InvalidInput, "used for another request", "an id of its own"):
            call(name, world, request_id="request")

    def test_the_id_of_another_verb_is_refused_though_what_was_asked_is_erased(
        self, name: str, new_world: Callable[[str], World]
    ) -> None:
        world = new_world(name)
        if name != "Settings.set":
            world.memory.settings.set("memory_enabled", value=False, request_id="request")
        else:
            world.memory.journal().append("a note", request_id="request")
        world.memory.erase([world.memory.head])
        with refused(world.memory, InvalidInput, "used for another request", "an id of its own"):
            call(name, world, request_id="request")

    def test_it_is_answered_though_what_was_asked_is_erased(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        memory = world.memory
        call(name, world, request_id="request")
        memory.erase([memory.head])
        head, hashed = memory.head, memory.state_hash()
        if name in {"Memory.fork/alone", "Memory.snapshot"}:  # Erased with its name.
            with pytest.raises(NotFound, match="'another'"):
                call(name, world, request_id="request")
        else:
            call(name, world, request_id="request")
        assert (memory.head, memory.state_hash()) == (head, hashed)

    def test_another_version_than_expected_is_refused_and_the_right_one_is_not(
        self, name: str, new_world: Callable[[str], World]
    ) -> None:
        world = new_world(name)
        with refused(world.memory, WrongVersion, "not at 1000000", "read it again"):
            call(name, world, request_id="request", expected=1_000_000)
        with pytest.raises(WrongVersion) as raised:
            call(name, world, expected=1_000_000)
        assert raised.value.expected == 1_000_000
        assert_sound(world.memory)
        call(name, world, request_id="request", expected=raised.value.actual)

    def test_exactly_one_of_there_and_not_there_is_refused(self, name: str, new_world: Callable[[str], World]) -> None:
        outcomes = []
        for expected in (EXISTS, NO_STREAM):
            world = new_world(name)
            try:
                call(name, world, expected=expected)
            except WrongVersion:
                outcomes.append(expected)
        assert len(outcomes) == 1

    def test_its_sources_stand_in_its_events(self, name: str, new_world: Callable[[str], World]) -> None:
        world = new_world(name)
        call(name, world, sources=[1, 3])
        written = [event for event, stamp in world.memory.events() if stamp.seq > world.head]
        assert name in UNCHANGED or any({1, 3} <= set(event.sources) for event in written)
