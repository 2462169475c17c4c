"""Checkpoint rows of large projects are packed slice by slice: nobody waits for the whole, and no answer changes."""

import random
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import Memory, Project, StoreCorrupt, fold
from refold.engine.streams import APPLIED_KEY, checkpoint_of, number_of
from refold.event import FLAG_BASE, Cut, Recorded
from refold.skills import SkillLibrary
from refold.views import VIEWS
from tests.engine.test_transfer import branch
from tests.engine.test_transfer import fill as write_all_kinds
from tests.memory.test_reembed import Letters
from tests.support.bounds import lowered
from tests.support.seams import engine_of, log_of, reader_of

SLICE = 3
# Rows come as often as they may, however large they are.
SMALL = {"CHECKPOINT_EVENTS": 8, "CHECKPOINT_EVENT_BYTES": 1_000_000, "PACKED_SLICE_COUNT": SLICE}


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many memories were packed, slice by slice."""
    counts: list[int] = []
    step = Cut.step

    def counted(cut: Cut[Any]) -> None:
        before = cut._done_count
        step(cut)
        counts.append(min(cut._done_count, len(cut._rows)) - before)

    monkeypatch.setattr(Cut, "step", counted)
    return counts


@pytest.fixture
def small() -> Iterator[None]:
    with lowered(**SMALL):
        yield


def vector(number: int) -> list[float]:
    return [1.0, number, number**0.5, 1.0 / (1 + number)]


def fill(project: Project, begin: int, end: int) -> None:
    for number in range(begin, end):
        project.add(f"memory {number}", vector=vector(number), importance=0.5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("broken", ["short key", "long key", "no value"])
def test_a_row_that_cannot_be_read_is_reported_as_damage(memory: Memory, broken: str) -> None:
    fill(memory.project("p"), 0, 20)
    key, packed = next(row for row in log_of(memory).rows("checkpoints", b"", 100) if row[0] != APPLIED_KEY)
    with pytest.raises(StoreCorrupt, match="run `refold verify`"):
        checkpoint_of(
            {"short key": key[:9], "long key": key + b"x"}.get(broken, key), b"" if broken == "no value" else packed
        )


def rows_of(memory: Memory) -> list[tuple[int, Any]]:
    """The stored checkpoint rows, by the number of their stream."""
    rows = log_of(memory).rows("checkpoints", b"", 10_000)
    return [(number_of(key), checkpoint_of(key, packed)) for key, packed in rows if key != APPLIED_KEY]


def assert_sound(memory: Memory) -> int:
    """Every stored row is what packing the state at its seq gives; returns how many there are."""
    engine = engine_of(memory)
    rows = rows_of(memory)
    with engine.reader.state_lock:
        for number, row in rows:
            state = engine.reader.loader.state_at(engine.reader.streams.at_number(number), row.seq)
            assert (row.inline, row.pointed) == fold.pack(state)
    report = memory.verify()
    assert report.ok, report.findings
    return len(rows)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 15, 16, 17, 31, 65_535, 65_536, 65_537])
def test_an_array_in_slices_has_the_bytes_of_one_at_once(count: int) -> None:
    rows = [(place, "x", None) for place in range(count)]
    before, after = [1] * (count % 16), [2] * (count % 3)
    cut = Cut(before, rows, after, row_of=lambda row: row, seq_of=lambda row: row[0])
    while not cut.is_done:
        cut.step()
    assert cut.result() == (msgspec.msgpack.encode([*before, rows, *after]), list(range(count)))


KEYS_COUNT = 8


def grow(memory: Memory) -> None:
    """Writes events of every kind, and some keys of every view again and again, in turns."""
    write_all_kinds(memory)
    branch(memory)
    chat, project = memory.conversation("large", project="large"), memory.project("large")
    table = memory.table("large")
    board, files, library = memory.board(session="large"), memory.files(), SkillLibrary(memory._core, None)
    for number in range(3 * KEYS_COUNT):
        key = f"key {number % KEYS_COUNT}"
        with memory.acting(f"tool:{key}"):
            memory.profile().set(key, f"value {number}")
        memory.journal().append(f"note {number}", day=f"2026-01-{1 + number % 5:02}")
        chat.append("user", f"message {number}", tokens=20_000)
        chat.scratchpad.set(key, f"value {number}")
        chat.scratchpad.note(f"note {number}")
        chat.state[key] = number
        chat.state[f"project:{key}"] = number
        chat.session.note_file(key, lines=number)
        memory.tools.execute("memory_read", {}, memory.tools.context(chat), record=True)
        memory.show(memory.context(chat))
        for place in range(SLICE):
            project.add(f"memory {number}.{place}")
        project.record_episode("success", task=key, outcome=f"value {number}")
        project.delete(project.update(project.list()[0], importance=0.1))
        chat.snapshot(f"snapshot {number}")
        memory.settings.count_usage("skill_used")
        memory.settings.set("memory_enabled", value=number % 2 == 0)
        board.append_message({"content": f"message {number}"})
        table.put(key, number, expires=timedelta(days=number) if number % 2 else None)
        table.put(("part", key), [number])
        table.delete(("part", key))
        if number % 4 == 0:
            table.delete_prefix("key 1")
        files.create(f"/memories/{number}", f"text {number}\n")
        files.insert(f"/memories/{number}", 1, "another line\n")
        library.toggle(key, enabled=number % 2 == 0)
        library.note(key, f"note {number} " * (40 if number % 3 else 1))
        library.record((), query=key, conversation="large")
        if number % KEYS_COUNT == KEYS_COUNT - 1:
            memory.reembed(Letters("abcdefgh"[number // KEYS_COUNT :], f"letters {number}"))
            memory.erase([chat.window()[-1]])


def states(memory: Memory) -> Iterator[tuple[fold.State, Iterator[Recorded]]]:
    """A fresh state of every stream before each of its events, with the events from there on."""
    engine = engine_of(memory)
    streams: dict[int, list[Recorded]] = {}
    after = 0
    while page := engine.reader.loader.numbered_events(after, engine.reader.head):
        for number, event, stamp in page:
            streams.setdefault(number, []).append(Recorded(event, stamp))
            after = stamp.seq
    for number, events in streams.items():
        slot = engine.reader.streams.at_number(number)
        for place, recorded in enumerate(events):
            yield engine.reader.loader.state_at(slot, recorded.stamp.seq - 1), iter(events[place:])


def test_what_is_packed_is_the_state_at_which_it_was_begun_whatever_is_folded_meanwhile() -> None:
    """Of every view, begun before every event, with a slice behind every event that follows."""
    memory, changed, folded = Memory(), set[str](), set[type]()
    grow(memory)
    with lowered(PACKED_SLICE_COUNT=1):
        for state, events in states(memory):
            packed, digests = fold.pack(state), fold.digests(state)
            packing = fold.Packing(state)
            for event, stamp in events:
                if stamp.flags & FLAG_BASE:
                    break  # The live state becomes another one, which leaves this one as it is.
                fold.fold(state, stamp, event)
                folded.add(type(event))
                if not packing.is_done:
                    packing.step()
            while not packing.is_done:
                packing.step()
            assert packing.result() == packed
            changed |= {name for name, digest in digests if (name, digest) not in fold.digests(state)}
    assert changed >= {view.name for view in VIEWS} - {"session"}
    assert folded >= set(fold.TAGS) - set(fold.BASE_TYPES)
    memory.close()


def test_every_row_of_every_view_holds_the_state_at_its_seq(tmp_path: Path) -> None:
    with lowered(
        CHECKPOINT_EVENTS=4,
        CHECKPOINT_EVENT_BYTES=1_000_000,
        PACKED_SLICE_COUNT=1,
        TAIL_EVENTS_MAX=60,
        PACKED_COUNT_MIN=1,
    ):
        with Memory(tmp_path / "store", durability="delayed") as memory:
            grow(memory)
            assert assert_sound(memory) >= 100
            hashes = {seq: memory.state_hash(at=seq) for seq in range(0, memory.head + 1, 7)}
            assert hashes == {seq: memory.replay_hash(at=seq) for seq in hashes}
        with Memory(tmp_path / "store") as memory:
            assert_sound(memory)


@pytest.mark.usefixtures("small")
def test_no_commit_packs_more_than_two_slices(encoded: list[int]) -> None:
    memory = Memory()
    project = memory.project("p")
    most = 0
    for number in range(120):
        encoded.clear()
        fill(project, number, number + 1)
        most = max(most, sum(encoded))
    assert SLICE < most <= 2 * SLICE
    assert assert_sound(memory) >= 3


@pytest.mark.usefixtures("small")
def test_a_large_commit_packs_on_as_it_grows(encoded: list[int]) -> None:
    """Else a project that only grows by batches would never have a row."""
    memory = Memory()
    project = memory.project("p")
    for begin in range(0, 200, 50):
        encoded.clear()
        with memory.batch():
            fill(project, begin, begin + 50)
        assert sum(encoded) <= 50 * 8
    fill(project, 200, 203)
    assert assert_sound(memory) >= 2


def underway(memory: Memory) -> bool:
    engine = engine_of(memory)
    slot = engine.reader.find("project/p")
    assert slot is not None
    return engine.reader.packer.is_packing(slot)


def begin_one(memory: Memory) -> int:
    """Adds memories until a row of the project is under way; returns how many there are."""
    project = memory.project("p")
    count = project.count()
    while not (count > 30 and underway(memory)):
        fill(project, count, count + 1)
        count += 1
        assert count < 1_000
    return count


def flushed(memory: Memory, count: int) -> int:
    memory.flush()
    assert not underway(memory)
    return count


def restored(memory: Memory, _: int) -> int:
    begun = next(row.seq for row in (recorded.stamp for recorded in memory.events()) if row.version == FIRST_COUNT)
    memory.restore(memory.at(begun).snapshot())
    return FIRST_COUNT


def cleared(memory: Memory, _: int) -> int:
    memory.project("p").clear()
    return 0


def erased(memory: Memory, count: int) -> int:
    assert memory.erase([memory.project("p").list()[-1].seq]).occurrences == 0
    return count - 1


def forked(memory: Memory, count: int) -> int:
    fork = memory.fork("f")
    fill(fork.project("p"), 2_000, 2_020)
    assert fork.project("p").count() == count + 20
    return count


EVENTS: dict[str, Callable[[Memory, int], int]] = {
    "nothing": lambda _, count: count,
    "flushed": flushed,
    "restored": restored,
    "cleared": cleared,
    "erased": erased,
    "forked": forked,
}
FIRST_COUNT = 12


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("is_closed", [False, True])
def test_what_happens_while_a_row_is_under_way(tmp_path: Path, event: str, is_closed: bool) -> None:
    path = tmp_path / "store"
    memory = Memory(path, durability="delayed")
    fill(memory.project("p"), 0, FIRST_COUNT)
    count = EVENTS[event](memory, begin_one(memory))
    if is_closed:
        memory.close()
        memory = Memory(path, durability="delayed")
    assert memory.project("p").count() == count
    fill(memory.project("p"), 1_000, 1_100)
    assert memory.project("p").count() == count + 100
    assert assert_sound(memory) >= 2
    state = memory.state_hash()
    memory.close()
    with Memory(path, durability="delayed") as memory:
        assert memory.state_hash() == state
        assert_sound(memory)


@pytest.mark.usefixtures("small")
def test_a_copy_made_while_a_row_is_under_way_opens_without_it(tmp_path: Path) -> None:
    """What a crash leaves is the same: the log, and the rows that were finished."""
    with Memory(tmp_path / "store", durability="delayed") as memory:
        begin_one(memory)
        memory.backup(tmp_path / "copy")
        with Memory(tmp_path / "copy") as copy:
            assert copy.state_hash() == memory.state_hash()
            fill(copy.project("p"), 1_000, 1_050)
            assert_sound(copy)


def test_a_large_project_leaves_ram_slice_by_slice(encoded: list[int]) -> None:
    with lowered(PACKED_SLICE_COUNT=SLICE, MEMORY_BYTES_MIN=1):
        memory = Memory(memory_bytes=1)
        fill(memory.project("p"), 0, 40)
        engine = engine_of(memory)
        most = 0
        for number in range(200):
            encoded.clear()
            memory.conversation(f"c{number % 7}").scratchpad.note("something else")
            most = max(most, sum(encoded))
            if engine.reader.streams.peek("project/p") is None:
                break
        assert engine.reader.streams.peek("project/p") is None, "it never left"
        assert most <= 4 * SLICE  # A note into a new conversation looks at its stream, and is two events.
        assert memory.project("p").count() == 40
        assert_sound(memory)


@pytest.mark.parametrize("seed", range(3))
def test_the_tail_is_cut_in_order_whatever_is_under_way(seed: int, tmp_path: Path) -> None:
    """The events that no row covers stay known in the order of their seqs, or an opening would miss some."""
    draw = random.Random(seed)
    with lowered(CHECKPOINT_EVENTS=6, PACKED_SLICE_COUNT=2, TAIL_EVENTS_MAX=25, PACKED_COUNT_MIN=1):
        memory = Memory(tmp_path / "store", durability="delayed")
        for number in range(300):
            if draw.random() < 0.6:
                fill(memory.project(draw.choice("pq")), number, number + 1)
            else:
                memory.conversation(draw.choice("abcdefgh")).scratchpad.note(f"note {number}")
            dirty = list(reader_of(memory).streams.dirty.values())
            assert dirty == sorted(dirty)
            assert len(dirty) == len(set(dirty))
        engine = engine_of(memory)
        assert engine.reader.head - engine.reader.streams.applied_seq(engine.reader.head) <= 25 + 60
        assert assert_sound(memory) >= 10
        memory.close()


@pytest.mark.parametrize("seed", range(4))
def test_what_a_crash_leaves_is_covered_by_rows_up_to_where_they_say(tmp_path: Path, seed: int) -> None:
    """A row that is due in the middle of a batch says nothing of what the batch wrote to other conversations."""
    chance = random.Random(seed)
    with lowered(CHECKPOINT_EVENTS=4, PACKED_COUNT_MIN=1, TAIL_EVENTS_MAX=15), Memory(tmp_path / "store") as memory:
        chats = [memory.conversation(f"chat-{number}", window_tokens=20) for number in range(3)]
        for turn in range(12):
            with memory.batch():
                for _ in range(chance.randint(1, 9)):
                    chance.choice(chats).append("user", "Hello!", tokens=1)
            crashed = shutil.copytree(tmp_path / "store", tmp_path / str(turn))
            with Memory(crashed) as again:
                assert again.verify().ok
                assert again.state_hash() == again.replay_hash() == memory.state_hash()
