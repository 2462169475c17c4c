"""Batches that meet on keys: only who read a key conflicts, and every event points at the value that it replaced."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from pathlib import Path
from random import Random
from typing import Any

import pytest

from refold import Memory, Snapshot, WrongVersion
from refold.engine.batch import Batch, leave
from refold.engine.writer import Ticket
from refold.event import Erased, Recorded, unpack_json
from refold.views.profile import ProfileDeleted, ProfileSet
from refold.views.scratchpad import ScratchpadCleared, ScratchpadDeleted, ScratchpadSet
from refold.views.state import RoundEnded, StateDeleted, StateSet
from tests.support.bounds import Clock, seeded_bytes
from tests.support.memories import assert_sound, elsewhere, in_batch, remembering
from tests.support.seams import engine_of

# Verbs by name, each with the key that it is about, and the world as a plain dictionary of keys, in the same words.

Op = tuple[str, str, str]
"""A verb, a place (a handle and a key of it) and a value."""

PLACES = [f"{handle}/{key}" for handle in ("pad", "state", "profile") for key in ("a", "b")] + [
    "state/temp:a",
    "state/project:a",
]


def handle_of(memory: Memory, place: str) -> Any:
    chat = memory.conversation("chat", project="p")
    return {"pad": chat.scratchpad, "state": chat.state, "profile": memory.profile()}[place.partition("/")[0]]


def run(memory: Memory, op: Op) -> object:
    """Do an operation and return what it returned."""
    verb, place, value = op
    chat, key = memory.conversation("chat", project="p"), place.partition("/")[2]
    match verb:
        case "set":
            return handle_of(memory, place).set(key, value)
        case "get":
            return handle_of(memory, place).get(key)
        case "delete":
            return handle_of(memory, place).delete(key)
        case "keys":
            return sorted(dict(handle_of(memory, place).items()).items())
        case "clear":
            return chat.scratchpad.clear()
        case "end_round":
            return chat.end_round()
        case _:
            return chat.scratchpad.note(value)


class Script:
    """One batch in a context of its own, what it did, and what others may not have changed when it is written."""

    def __init__(self, memory: Memory, number: int) -> None:
        self.memory, self.number = memory, number
        self.context: Context = copy_context()
        self.block: Batch = memory.batch()
        self.context.run(self.block.__enter__)
        self.done: list[tuple[Op, object]] = []
        self.foreign: set[str] = set()
        """Places that others changed since this began, and the handles with them."""

    def do(self, op: Op) -> None:
        self.done.append((op, self.context.run(run, self.memory, op)))

    @property
    def may_conflict(self) -> bool:
        """Whether others changed something that this may have read."""
        for (verb, place, _), _ in self.done:
            if verb in ("keys", "clear", "end_round"):
                # What is read as a whole is a stream: those of a conversation are one, its project's is another.
                if self.foreign:
                    return True
            elif verb != "note" and place in self.foreign and (verb != "set" or self._may_be_there(place)):
                return True
        return False

    def _may_be_there(self, place: str) -> bool:
        return any(op[0] == "get" and op[1] == place for op, _ in self.done)

    @property
    def changed(self) -> list[str]:
        """The places that this may change."""
        return [place for op, _ in self.done for place in changes(op)]

    def ticket(self) -> Ticket:
        self.context.run(leave, self.block)
        return Ticket(self.block.transaction)


def changes(op: Op) -> list[str]:
    """The places that an operation may change."""
    verb, place, _ = op
    if verb == "clear":
        return [each for each in PLACES if each.startswith("pad/")]
    if verb == "end_round":
        return ["state/temp:a"]
    return [place] if verb in ("set", "delete") else ["pad/note"] if verb == "note" else []


def drawn(chance: Random, mark: str) -> Op:
    verb = chance.choices(("set", "delete", "get", "keys", "clear", "end_round", "note"), (40, 18, 18, 3, 4, 4, 6))[0]
    return verb, chance.choice(PLACES), f"{mark} {chance.randrange(10**9)}"


def write_group(memory: Memory, scripts: list[Script]) -> Iterator[Script]:
    """Write batches as one group, what has to wait in those after it; yield those that were, in the log's order."""
    writer, tickets = engine_of(memory).writer, {id(script): script.ticket() for script in scripts}
    left = [(script, tickets[id(script)]) for script in scripts]
    with writer.exclusive():
        while left:
            deferred = writer.write([ticket for _, ticket in left])
            for script, ticket in left:
                if ticket in deferred:
                    continue
                if ticket.error is None:
                    yield script
                else:
                    assert isinstance(ticket.error, WrongVersion)
                    assert script.may_conflict, (script.done, script.foreign)
            left = [(script, ticket) for script, ticket in left if ticket in deferred]


class Interleaving:
    """Batches beside each other and beside lone verbs; whatever is written is repeated one by one in the twin."""

    def __init__(self, memory: Memory, twin: Memory, seed: int, *, erases: bool) -> None:
        self.memory, self.twin, self.erases = memory, twin, erases
        self.chance, self.scripts = Random(seed), list[Script]()

    def run(self, count: int) -> None:
        """Take so many steps at random."""
        for number in range(count):
            action = self.chance.random()
            if action < 0.2 and len(self.scripts) < 4:
                self.scripts.append(Script(self.memory, number))
            elif action < 0.32:
                op = drawn(self.chance, f"lone {number}")
                self.repeat(op, run(self.memory, op))
                self.note(changes(op))
            elif action < 0.36 and self.erases and self.memory.head:
                seq = self.chance.randrange(1, self.memory.head + 1)
                for each in (self.memory, self.twin):
                    each.erase([seq], derived="keep")
                self.note([*PLACES, "pad/note"])
            elif action < 0.5 and self.scripts:
                self.end()
            elif self.scripts:
                self.go_on(self.chance.choice(self.scripts))

    def repeat(self, op: Op, returned: object) -> None:
        """Do in the twin what was written, which returns the same there."""
        assert run(self.twin, op) == returned, op

    def note(self, places: list[str]) -> None:
        """Tell the batches that are open that others changed something."""
        for script in self.scripts:
            script.foreign.update(places)

    def go_on(self, script: Script) -> None:
        """Let a batch do something, and at times set a key to what it is."""
        op = drawn(self.chance, f"batch {script.number}")
        if op[0] == "set" and self.chance.random() < 0.15:
            look = ("get", *op[1:])
            script.do(look)
            if (known := script.done[-1][1]) is not None:
                op = ("set", op[1], str(known))
        script.do(op)

    def end(self) -> None:
        """Write some batches as one group."""
        ending = self.chance.sample(self.scripts, self.chance.randint(1, len(self.scripts)))
        self.scripts = [script for script in self.scripts if script not in ending]
        for script in ending:
            for other in ending:
                if other is not script:
                    script.foreign.update(other.changed)
        for script in write_group(self.memory, ending):
            for op, returned in script.done:
                self.repeat(op, returned)
            self.note(script.changed)


def events_of(memory: Memory) -> list[tuple[object, int, str, int]]:
    # The digests in an erasure are of records, which hold what was written together.
    return [
        (event.seqs if isinstance(event, Erased) else event, stamp.seq, stamp.stream, stamp.version)
        for event, stamp in memory.events()
    ]


@pytest.mark.parametrize("seed", range(60))
def test_any_interleaving_gives_what_the_same_verbs_one_by_one_give(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "store" if seed % 10 == 0 else None
    with (
        remembering(path, clock_ns=Clock(), random_bytes=seeded_bytes(1)) as memory,
        remembering(clock_ns=Clock(), random_bytes=seeded_bytes(1)) as twin,
    ):
        Interleaving(memory, twin, seed, erases=seed % 3 == 0).run(60)
        assert events_of(memory) == events_of(twin)
        assert memory.state_hash() == twin.state_hash()
        for seq in range(memory.head + 1):
            assert memory.state_hash(seq) == twin.state_hash(seq)


# Erasure: an event's value, and the value that it replaced, are gone.

SETS = {ScratchpadSet: "pad", StateSet: "state", ProfileSet: "profile"}
DELETES = {ScratchpadDeleted: "pad", StateDeleted: "state", ProfileDeleted: "profile"}


def remaining(recorded: list[Recorded], erased: int) -> dict[tuple[str, str, str], int]:
    """The seq of the value of each key after all events, if one of them was erased: said in the plainest way."""
    values: dict[tuple[str, str, str], int] = {}
    for event, stamp in recorded:
        kind: Any = type(event)
        if (kind in SETS or kind in DELETES) and stamp.seq == erased:
            values.pop((stamp.stream, (SETS | DELETES)[kind], getattr(event, "key", "")), None)
        elif kind in SETS:
            values[stamp.stream, SETS[kind], getattr(event, "key", "")] = stamp.seq
        elif kind in DELETES:
            values.pop((stamp.stream, DELETES[kind], getattr(event, "key", "")), None)
        elif kind in (ScratchpadCleared, RoundEnded):
            handle, begin = ("pad", "") if kind is ScratchpadCleared else ("state", "temp:")
            for key in [key for key in values if key[:2] == (stamp.stream, handle) and key[2].startswith(begin)]:
                del values[key]
    return values


def held(memory: Memory, texts: dict[str, int]) -> dict[tuple[str, str, str], int]:
    """The seq of the event whose value each key has."""
    chat, beside = memory.conversation("chat"), memory.conversation("beside", project="p")
    found: dict[tuple[str, str, str], Any] = {
        **{("conversation/chat", "pad", key): value for key, value in chat.scratchpad.items()},
        **{("profile/default", "profile", key): value for key, value in memory.profile().items()},
        **{
            ("conversation/chat", "state", key): chat.state[key] for key in chat.state if not key.startswith("project:")
        },
        **{("project/p", "state", key.removeprefix("project:")): value for key, value in beside.state.items()},
    }
    return {place: texts[value] for place, value in found.items()}


@pytest.mark.parametrize("seed", range(1, 9))
def test_to_erase_any_event_takes_its_value_and_the_one_that_it_replaced(seed: int, tmp_path: Path) -> None:
    with (
        remembering(clock_ns=Clock(), random_bytes=seeded_bytes(1)) as memory,
        Memory(clock_ns=Clock(), random_bytes=seeded_bytes(1)) as twin,
    ):
        Interleaving(memory, twin, seed, erases=False).run(60)
        recorded = list(memory.events())
        texts: dict[str, int] = {}
        for event, stamp in recorded:
            if type(event) in SETS:
                value = unpack_json(event.packed) if isinstance(event, StateSet) else getattr(event, "value", "")
                texts[value] = stamp.seq
        memory.export(tmp_path / "export")
        assert held(memory, texts) == remaining(recorded, 0)
        for erased in range(1, memory.head + 1):
            with Memory() as copy:
                copy.load(tmp_path / "export")
                copy.erase([erased], derived="keep")
                assert held(copy, texts) == remaining(recorded, erased), erased
                assert copy.state_hash() == copy.replay_hash()


# Who conflicts, and who does not.


def others(memory: Memory, *ops: Op) -> Callable[[], object]:
    """What somebody else does meanwhile."""
    return lambda: elsewhere(lambda: [run(memory, op) for op in ops])


SOME = [("pad/k", "1"), ("state/k", "1"), ("state/project:k", "1"), ("profile/k", "1")]


@pytest.mark.parametrize(("place", "value"), SOME)
class TestOneKey:
    def test_that_is_only_set_conflicts_with_nothing(self, place: str, value: str) -> None:
        with remembering() as memory:
            run(memory, ("set", place, "0"))
            in_batch(
                memory,
                lambda: run(memory, ("set", place, value)),
                others(memory, ("set", place, "2"), ("delete", place, ""), ("set", place, "3")),
                lambda: run(memory, ("set", place, "4")),
            )
            first, last = [event for event, _ in memory.events() if getattr(event, "key", "") == "k"][-2:]
            assert (first.prior, last.prior) == (memory.head - 2, memory.head - 1)  # type: ignore[attr-defined]
            assert run(memory, ("get", place, "")) == "4"

    @pytest.mark.parametrize("read", ["get", "delete", "set to what it is"])
    def test_that_was_read_conflicts_with_whoever_changes_it(self, place: str, value: str, read: str) -> None:
        memory = Memory()
        run(memory, ("set", place, value))
        hashed = memory.state_hash()
        call = ("set", place, value) if read == "set to what it is" else (read, place, "")
        with pytest.raises(WrongVersion, match=r"key 'k' of .* was changed while a batch was open"):
            in_batch(
                memory,
                lambda: run(memory, call),
                lambda: run(memory, ("note", "", "mine")),
                others(memory, ("set", place, "2"), ("set", place, value)),
            )
        assert memory.conversation("chat").scratchpad.notes() == []
        assert memory.state_hash() != hashed
        assert_sound(memory)

    @pytest.mark.parametrize("read", ["get", "delete", "set to what it is"])
    def test_that_was_read_conflicts_with_no_other_key(self, place: str, value: str, read: str) -> None:
        with remembering() as memory:
            run(memory, ("set", place, value))
            call = ("set", place, value) if read == "set to what it is" else (read, place, "")
            in_batch(memory, lambda: run(memory, call), others(memory, ("set", place + "2", "x"), ("note", "", "x")))
            assert run(memory, ("get", place + "2", "")) == "x"

    def test_that_was_not_there_conflicts_with_whoever_sets_it(self, place: str, value: str) -> None:
        memory = Memory()
        for verb in ("get", "delete"):
            with pytest.raises(WrongVersion):
                in_batch(
                    memory,
                    lambda verb=verb: run(memory, (verb, place, "")),  # type: ignore[misc]
                    lambda: run(memory, ("note", "", "mine")),
                    others(memory, ("set", place, value)),
                )
            run(memory, ("delete", place, ""))
        assert memory.conversation("chat").scratchpad.notes() == []
        assert_sound(memory)

    def test_that_is_as_it_was_conflicts_with_nothing(self, place: str, value: str) -> None:
        with remembering() as memory:
            in_batch(
                memory,
                lambda: run(memory, ("get", place, "")),
                others(memory, ("set", place, value), ("delete", place, "")),
            )

    def test_of_the_batch_itself_is_no_read(self, place: str, value: str) -> None:
        with remembering() as memory:
            run(memory, ("set", place, "0"))
            in_batch(
                memory,
                lambda: run(memory, ("set", place, value)),
                lambda: run(memory, ("get", place, "")),
                lambda: run(memory, ("set", place, value)),
                lambda: run(memory, ("delete", place, "")),
                lambda: run(memory, ("delete", place, "")),
                others(memory, ("set", place, "2")),
            )
            assert run(memory, ("get", place, "")) is None

    def test_whose_value_is_erased_conflicts_only_where_it_was_read(self, place: str, value: str) -> None:
        memory = Memory()
        run(memory, ("set", place, value))
        erase = [memory.head]
        with pytest.raises(WrongVersion):
            in_batch(memory, lambda: run(memory, ("get", place, "")), lambda: elsewhere(lambda: memory.erase(erase)))
        run(memory, ("set", place, value))
        erase = [memory.head]
        in_batch(memory, lambda: run(memory, ("set", place, "2")), lambda: elsewhere(lambda: memory.erase(erase)))
        assert list(memory.events())[-1].event.prior == 0  # type: ignore[attr-defined]
        assert_sound(memory)

    def test_with_an_expected_version_conflicts_with_every_change_of_its_stream(self, place: str, value: str) -> None:
        if "project:" in place:
            return
        memory = Memory()
        run(memory, ("set", place, "0"))
        handle, beside = handle_of(memory, place), place + "2"
        version = list(memory.events())[-1].stamp.version
        with pytest.raises(WrongVersion, match="moved from version"):
            in_batch(memory, lambda: handle.set("k", value, expected=version), others(memory, ("set", beside, "x")))
        assert run(memory, ("get", place, "")) == "0"
        assert_sound(memory)

    def test_of_a_batch_that_read_the_stream_conflicts_with_every_change(self, place: str, value: str) -> None:
        memory = Memory()
        run(memory, ("set", place, "0"))
        for reads_first in (True, False):
            read, write = lambda: run(memory, ("keys", place, "")), lambda: run(memory, ("set", place, value))
            calls = (read, write) if reads_first else (write, read)
            with pytest.raises(WrongVersion, match="moved from version"):
                in_batch(memory, *calls, others(memory, ("set", place + "2", str(reads_first))))
        assert run(memory, ("get", place, "")) == "0"
        assert_sound(memory)


def test_what_a_batch_has_cleared_has_no_value_that_a_set_replaces() -> None:
    with remembering() as memory:
        pad = memory.conversation("chat").scratchpad
        pad.set("k", "0")
        with memory.batch():
            pad.set("other", "0")
            pad.clear()
            pad.set("k", "1")
            assert pad.delete("other") is False
        assert [getattr(event, "prior", None) for event, _ in memory.events()][-3:] == [0, None, 0]


def test_a_set_before_the_stream_was_read_points_at_the_value_that_it_replaces() -> None:
    with remembering() as memory:
        pad = memory.conversation("chat").scratchpad
        pad.set("k", "0")
        with memory.batch():
            pad.set("k", "1")
            pad.set("l", "1")
            elsewhere(lambda: pad.set("k", "2"))
            assert pad.items() == [("k", "1"), ("l", "1")]
            pad.set("m", "1")
        assert [getattr(event, "prior", None) for event, _ in memory.events()][1:] == [0, 2, 3, 0, 0]


def test_values_of_a_restored_state_are_known_by_their_place(tmp_path: Path) -> None:
    with Memory() as other:
        pad = other.conversation("o").scratchpad
        for key in "abc":
            pad.set(key, key)
        carried = other.conversation("o").snapshot().to_bytes()
    with remembering(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        with memory.batch():
            chat.scratchpad.set("b", "mine")
            elsewhere(lambda: chat.restore(Snapshot.from_bytes(carried)))
        event: Any = list(memory.events())[-1].event
        assert (event.prior, event.place) == (memory.head - 1, 1)
        memory.erase([memory.head])
        assert chat.scratchpad.keys() == ["a", "c"]


def test_switches_and_notes_of_skills_conflict_by_name() -> None:
    with remembering() as memory:
        library = memory.skills.library
        library.note("a", "first")
        with memory.batch():
            library.toggle("a", enabled=False)
            library.note("a", "mine")
            elsewhere(lambda: library.toggle("b", enabled=False))
            elsewhere(lambda: library.note("b", "theirs"))
        assert library.notes() == {"a": "mine", "b": "theirs"}
        assert library.disabled_names() == {"a", "b"}
        for change in (lambda: library.note("a", "theirs"), lambda: library.toggle("c", enabled=False)):
            with pytest.raises(WrongVersion):
                in_batch(
                    memory,
                    lambda: library.note("a", "again"),
                    lambda: library.toggle("c", enabled=False),
                    lambda change=change: elsewhere(change),  # type: ignore[misc]
                )
        assert library.notes()["a"] == "theirs"


class TestOneGroup:
    def test_holds_batches_that_open_and_set_the_same_stream(self, tmp_path: Path) -> None:
        with remembering(tmp_path / "store") as memory:
            scripts = [Script(memory, number) for number in range(5)]
            for script in scripts:
                script.do(("set", "pad/k", str(script.number)))
                script.do(("set", "pad/k", f"{script.number} again"))
                script.do(("note", "", str(script.number)))
            assert list(write_group(memory, scripts)) == scripts
            assert len({stamp.time_ns for _, stamp in memory.events()}) == 1
            pad = memory.conversation("chat").scratchpad
            assert (pad.get("k"), pad.notes()) == ("4 again", ["0", "1", "2", "3", "4"])
            opened, *rest = [event for event, _ in memory.events()]
            assert type(opened).__name__ == "ConversationOpened"
            assert [getattr(event, "prior", -1) for event in rest] == [
                *(0, 2, -1, 3, 5, -1),
                *(6, 8, -1, 9, 11, -1, 12, 14, -1),
            ]

    def test_refuses_who_read_a_key_that_an_earlier_one_has_changed(self) -> None:
        with remembering() as memory:
            scripts = [Script(memory, number) for number in range(3)]
            scripts[0].do(("set", "profile/k", "first"))
            scripts[1].do(("get", "profile/k", ""))
            scripts[1].do(("set", "profile/l", "second"))
            scripts[2].do(("set", "profile/k", "third"))
            scripts[1].foreign.add("profile/k")
            assert list(write_group(memory, scripts)) == [scripts[0], scripts[2]]
            assert memory.profile().items() == [("k", "third")]
            assert list(memory.events())[-1].event.prior == 1  # type: ignore[attr-defined]

    def test_lets_who_read_the_stream_wait_for_the_next(self) -> None:
        with remembering() as memory:
            memory.profile().set("k", "v")
            scripts = [Script(memory, number) for number in range(2)]
            scripts[0].do(("set", "profile/k", "first"))
            scripts[1].do(("keys", "profile/", ""))
            scripts[1].do(("note", "", "second"))
            scripts[1].foreign.add("profile/k")
            assert list(write_group(memory, scripts)) == [scripts[0]]


# How often what many do at once has to be done.

COUNT, ATTEMPTS_MAX = 100, 110


class Counted:
    """Blind sets of one conversation and one profile, counted as often as they are done."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.attempts, self._lock = memory, 0, threading.Lock()

    def count(self) -> None:
        with self._lock:
            self.attempts += 1

    def check(self) -> None:
        chat = self.memory.conversation("chat")
        assert chat.state["first"] == chat.state["second"] == chat.scratchpad.get("third")
        assert self.attempts <= ATTEMPTS_MAX
        sets = [event for event, _ in self.memory.events() if isinstance(event, (StateSet, ScratchpadSet, ProfileSet))]
        assert len(sets) == 4 * COUNT


def test_a_hundred_batches_of_sixteen_threads_are_done_once_each(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        counted, chat = Counted(memory), memory.conversation("chat")

        def work(number: int) -> None:
            def sets() -> None:
                counted.count()
                chat.state.set("first", str(number))
                chat.state.set("second", str(number))
                chat.scratchpad.set("third", str(number))
                memory.profile().set("fourth", str(number))

            memory.transact(sets)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(COUNT)))
        counted.check()


def test_a_hundred_batches_of_tasks_are_done_once_each(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory:
        counted, chat, profile = Counted(memory), memory.aio.conversation("chat"), memory.aio.profile()

        async def work(number: int) -> None:
            async def sets() -> None:
                counted.count()
                await chat.state.set("first", str(number))
                await asyncio.sleep(0)
                await chat.state.set("second", str(number))
                await chat.scratchpad.set("third", str(number))
                await profile.set("fourth", str(number))

            await memory.aio.transact(sets)

        async def everything() -> None:
            await asyncio.gather(*map(work, range(COUNT)))

        asyncio.run(everything())
        counted.check()
