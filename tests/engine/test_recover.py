"""Recovering: any state that ended a commit comes back as it was, goes on, and holds nothing of what came later."""

import asyncio
import datetime as dates
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, NamedTuple

import msgspec
import pytest

from refold import (
    Conversation,
    InvalidInput,
    Memory,
    NotFound,
    RefoldError,
    StoreCorrupt,
    StoreError,
    StoreVersion,
    recover,
)
from refold.engine.reader import end_of_command
from refold.event import Erased
from tests.engine.test_backup import names_in
from tests.engine.test_transfer import branch, fill
from tests.engine.test_verify import add_unknown_event, erase_silently
from tests.support.blanks import blank
from tests.support.bounds import lowered, seeded_bytes
from tests.support.memories import Clock, assert_sound, refused
from tests.support.rows import Rows
from tests.support.seams import log_of, records_in

BOUNDS = {"CHECKPOINT_EVENTS": 5, "TAIL_EVENTS_MAX": 40, "PACKED_COUNT_MIN": 1, "CUT_ROWS": 30}


def ends(memory: Memory) -> list[int]:
    """The seqs at which a command ends, 0 among them."""
    commands = [command for record in records_in(memory) for command in record.commands]
    return sorted({*(command - 1 for command in commands), memory.head})


class Deed(NamedTuple):
    """What one step of a life has to do with."""

    memory: Memory
    chat: Conversation
    random: Random
    text: str


def in_a_batch(deed: Deed) -> None:
    with deed.memory.batch():
        for number in range(deed.random.randint(2, 6)):
            deed.chat.append("user", f"{deed.text} {number}", tokens=10)
        deed.memory.journal().append(deed.text)


def back_and_forth(deed: Deed) -> None:
    handle = deed.random.choice((deed.memory, deed.chat))
    deed.chat.scratchpad.note(deed.text)
    snapshot = handle.snapshot(deed.text[:9])
    deed.chat.scratchpad.set("key", deed.text)
    handle.restore(snapshot)


def fork_one(deed: Deed) -> None:
    deed.chat.scratchpad.note(deed.text)
    deed.chat.fork(f"of {deed.text[:9]}").append("user", deed.text, tokens=5)


def fork_all(deed: Deed) -> None:
    fork = deed.memory.fork(deed.text[:9], at=deed.random.randint(0, deed.memory.head))
    fork.conversation("a").append("user", deed.text, tokens=5, request_id="in the fork")
    fork.profile().set("theme", deed.text)


DEEDS: tuple[Callable[[Deed], object], ...] = (
    *[lambda deed: deed.chat.append("user", deed.text, tokens=9, request_id=deed.text)] * 4,
    lambda deed: deed.chat.scratchpad.set(deed.random.choice("kl"), deed.text),
    lambda deed: deed.chat.scratchpad.delete("k", request_id=deed.text),
    lambda deed: deed.memory.profile().set("k", deed.text, sources=range(1, deed.memory.head + 1)[-1:]),
    lambda deed: deed.memory.flush(),
    *(in_a_batch, in_a_batch, back_and_forth, fork_one, fork_all),
)


def live(memory: Memory, random: Random, clock: Clock, rounds: int) -> None:
    """Do whatever a memory can do, in a drawn order."""
    for number in range(rounds):
        clock.advance(random.choice([0, 0, 1]))
        text = f"{memory.head:>4}.{number:03} " + "x" * random.choice([0, 300])
        random.choice(DEEDS)(Deed(memory, memory.conversation(random.choice("abc")), random, text))


@contextmanager
def lived(path: Path, seed: int, rounds: int, *, erases: bool = False) -> Iterator[Memory]:
    """A memory with a life behind it, begun with an export of another one."""
    print(f"seed {seed}")  # noqa: T201 - to live it again
    random, clock = Random(seed), Clock()
    with lowered(**BOUNDS), Memory(path, clock_ns=clock, random_bytes=seeded_bytes(seed), window_tokens=60) as memory:
        with Memory(clock_ns=clock) as other:
            fill(other)
            other.export(path.with_suffix(".jsonl"))
        live(memory, random, clock, rounds)
        names = ("profile/default", "journal/default")
        memory.load(path.with_suffix(".jsonl"), rename={name: f"{name} of another" for name in names})
        live(memory, random, clock, rounds)
        for _ in range(4 if erases else 0):
            known = {seq for _, event in memory.events() for seq in getattr(event, "seqs", ())}
            whole = [stamp.seq for _, stamp in memory.events() if not stamp.erased and stamp.stream != "store/main"]
            blank(memory, set(random.sample(whole, 3)) - known)
            live(memory, random, clock, rounds // 4)
        yield memory


def check(memory: Memory, backup: Path, new: Path, seq: int) -> None:
    """Recover to a seq and compare everything with the memory as it was then."""
    made = recover(backup, new, to=seq)
    bare = sorted(stamp.seq for _, stamp in memory.at(seq).events() if stamp.erased)
    assert (made.seq, made.state_hash) == (seq, memory.state_hash(at=seq))
    with Memory(new) as again:
        assert again.head == made.head == seq + (made.head > seq)
        assert assert_sound(again) == made.state_hash
        assert list(again.events(until=seq)) == list(memory.events(until=seq))
        frozen = memory.at(seq)
        assert (again.conversations(), again.forks()) == (frozen.conversations(), frozen.forks())
        assert [(s.stream, s.seq, s.name) for s in again.snapshots()] == [
            (s.stream, s.seq, s.name) for s in frozen.snapshots()
        ]
        for name in again.forks():
            assert again.fork(name).state_hash() == memory.fork(name).state_hash(at=seq)
        if made.head > seq:
            ((event, _),) = again.events(after=seq)
            assert isinstance(event, Erased)
            assert set(event.seqs) <= set(bare)
        for name in again.conversations():
            again.conversation(name).append("user", "goes on", tokens=1)
        head, hashed = again.head, assert_sound(again)
    with Memory(new, readonly=True) as again:
        assert (again.head, assert_sound(again)) == (head, hashed)
    shutil.rmtree(new)


def check_some(tmp_path: Path, seed: int, *, rounds: int, count: int, erases: bool) -> None:
    with lived(tmp_path / "store", seed, rounds, erases=erases) as memory:
        memory.backup(tmp_path / "backup")
        possible = ends(memory)
        for seq in {0, memory.head, *Random(seed).sample(possible, count)}:
            check(memory, tmp_path / "backup", tmp_path / "new", seq)
        assert names_in(tmp_path) == {"store", "store.jsonl", "backup"}


@pytest.mark.parametrize("erases", [False, True])
def test_a_few_states_come_back_as_they_were(tmp_path: Path, erases: bool) -> None:
    check_some(tmp_path, SystemRandom().randrange(2**32), rounds=25, count=1, erases=erases)


@pytest.mark.slow
@pytest.mark.parametrize("erases", [False, True])
def test_many_states_come_back_as_they_were(tmp_path: Path, erases: bool) -> None:
    check_some(tmp_path, SystemRandom().randrange(2**32), rounds=80, count=10, erases=erases)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_very_many_states_come_back_as_they_were(tmp_path: Path, number: int) -> None:
    check_some(tmp_path, SystemRandom().randrange(2**32), rounds=200, count=60, erases=bool(number % 2))


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store", clock_ns=Clock()) as memory:
        fill(memory)
        branch(memory)
        memory.backup(tmp_path / "backup")
    return tmp_path / "backup"


class TestWhereToCut:
    def test_a_whole_one_needs_no_seq(self, tmp_path: Path, backup: Path) -> None:
        made = recover(backup, tmp_path / "new")
        with Memory(backup, readonly=True) as old, Memory(tmp_path / "new") as new:
            assert (made.seq, made.head, made.state_hash) == (old.head, old.head, old.state_hash())
            assert assert_sound(new) == made.state_hash

    def test_a_seq_inside_a_command_is_refused_with_those_around_it(self, tmp_path: Path, backup: Path) -> None:
        words = r"seq 3 is inside the command of seqs 3 to 4, .* recover to 2 or to 4$"
        with pytest.raises(InvalidInput, match=words):
            recover(backup, tmp_path / "new", to=3)
        assert names_in(tmp_path) == {"store", "backup"}
        for seq in (2, 4):
            assert recover(backup, tmp_path / f"new-{seq}", to=seq).head == seq

    def test_commands_that_were_written_together_are_cut_apart(self, tmp_path: Path) -> None:
        async def tick(memory: Memory) -> None:
            chat = memory.aio.conversation("chat")
            await asyncio.gather(*(chat.append("user", f"said {number}") for number in range(6)))

        with Memory(tmp_path / "store") as memory:
            asyncio.run(tick(memory))
            asyncio.run(tick(memory))
            assert len(records_in(memory)) == 2 < len(ends(memory))
            for seq in ends(memory):
                check(memory, tmp_path / "store", tmp_path / f"new-{seq}", seq)

    @pytest.mark.parametrize("to", [-1, 10**6, True, "3", 2.0, dates.datetime(2030, 1, 1)])  # noqa: DTZ001 - naive
    def test_what_is_no_moment_of_the_log_is_refused(self, tmp_path: Path, backup: Path, to: Any) -> None:
        with pytest.raises(InvalidInput):
            recover(backup, tmp_path / "new", to=to)
        assert names_in(tmp_path) == {"store", "backup"}

    def test_a_time_means_the_last_event_by_then(self, tmp_path: Path) -> None:
        clock = Clock()
        with Memory(tmp_path / "store", clock_ns=clock) as memory:
            for number in range(5):
                clock.advance(10)
                memory.profile().set("number", str(number))
        begin = dates.datetime.fromtimestamp(Clock()() // 10**9, dates.UTC)
        for seconds, head in ((10, 1), (29.9, 2), (30, 3), (1_000, 5)):
            new = tmp_path / f"new-{seconds}"
            assert recover(tmp_path / "store", new, to=begin + dates.timedelta(seconds=seconds)).head == head
        with pytest.raises(InvalidInput, match=r"nothing had been written by .*; give a later time, or a seq"):
            recover(tmp_path / "store", tmp_path / "none", to=begin)


class TestWhatComesAlong:
    def test_nothing_of_what_came_later_is_in_the_file(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            for number in range(150):
                memory.conversation(f"chat-{number % 7}").scratchpad.note(
                    f"mark-{number:05} " + "x" * (number * 97 % 6_000)
                )
            until = ends(memory)[80]
            kept = sum(getattr(event, "text", "").startswith("mark") for event, _ in memory.at(until).events())
        recover(tmp_path / "store", tmp_path / "new", to=until)
        contents = b"".join(path.read_bytes() for path in (tmp_path / "new").iterdir())
        found = [number for number in range(150) if f"mark-{number:05}".encode() in contents]
        assert found == list(range(kept))
        assert b"chat-6" in contents

    def test_requests_that_were_answered_by_then_are_answered_again(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            first = chat.append("user", "one", request_id="first")
            chat.append("user", "two", request_id="second")
        recover(tmp_path / "store", tmp_path / "new", to=first.seq)
        with Memory(tmp_path / "new") as memory:
            chat = memory.conversation("chat")
            assert chat.append("user", "one", request_id="first").seq == first.seq == memory.head
            assert chat.append("user", "another two", request_id="second").seq == memory.head == 3

    def test_an_erasure_behind_the_cut_is_said_again(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            seqs = [chat.append("user", f"secret {number}", tokens=1).seq for number in range(4)]
            blank(memory, [seqs[0]])
            cut = memory.head
            blank(memory, [seqs[1], seqs[2]])
            then = memory.state_hash(at=cut)
        made = recover(tmp_path / "store", tmp_path / "new", to=cut)
        assert (made.seq, made.head, made.state_hash) == (cut, cut + 1, then)
        with Memory(tmp_path / "new") as memory:
            ((event, stamp),) = memory.events(after=cut)
            assert isinstance(event, Erased)
            assert (event.seqs, stamp.stream) == ((seqs[1], seqs[2]), "store/main")
            assert [message.erased for message in memory.conversation("chat").window()] == [True, True, True, False]
            assert_sound(memory)

    def test_a_body_that_nobody_said_was_erased_is_damage(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            for number in range(9):
                memory.conversation("chat").append("user", f"secret {number}", tokens=1)
        rows = Rows(tmp_path / "store")
        erase_silently(rows)
        rows.close()
        with pytest.raises(StoreCorrupt, match="at seq 5 was erased from, and is not what the erasure left"):
            recover(tmp_path / "store", tmp_path / "new", to=8)
        assert names_in(tmp_path) == {"store"}

    def test_a_load_that_is_cut_in_two_goes_on(self, tmp_path: Path, backup: Path) -> None:
        with Memory(backup, readonly=True) as memory:
            memory.export(tmp_path / "export")
            whole = memory.state_hash()
        with Memory(tmp_path / "loaded") as memory:
            memory.load(tmp_path / "export")
        made = recover(tmp_path / "loaded", tmp_path / "new", to=12)
        with Memory(tmp_path / "new") as memory:
            assert (memory.head, memory.state_hash()) == (12, made.state_hash)
            memory.load(tmp_path / "export")
            assert assert_sound(memory) == whole
            assert memory.load(tmp_path / "export").repeated

    @pytest.mark.parametrize("cut", [1, 8, 30])
    def test_a_load_beside_others_that_is_cut_in_two_goes_on(self, tmp_path: Path, cut: int) -> None:
        with Memory(clock_ns=Clock()) as memory:
            fill(memory)
            memory.export(tmp_path / "export")
        with Memory(tmp_path / "both", clock_ns=Clock()) as memory:
            memory.profile("mine").set("k", "v")
            memory.load(tmp_path / "export")
            hashed, head, seq = memory.state_hash(), memory.head, end_of_command(log_of(memory), cut) if cut else 0
        recover(tmp_path / "both", tmp_path / "new", to=seq)
        with Memory(tmp_path / "new", clock_ns=Clock()) as memory:
            assert memory.load(tmp_path / "export").events == head - seq
            assert (memory.head, assert_sound(memory)) == (head, hashed)
            assert memory.load(tmp_path / "export").repeated

    def test_events_of_an_unknown_tag_are_carried_through_or_left_behind(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            for number in range(5):
                chat.scratchpad.note(str(number))
        rows = Rows(tmp_path / "store")
        rows.put("meta", b"tags", msgspec.msgpack.encode([1, 7, 999]))
        add_unknown_event(rows)
        rows.close()
        assert recover(tmp_path / "store", tmp_path / "with", to=7).head == 7
        with Memory(tmp_path / "with") as memory, refused(memory, RefoldError, "tags [999]"):
            memory.profile().set("k", "v")
        recover(tmp_path / "store", tmp_path / "without", to=6)
        with Memory(tmp_path / "without") as memory:
            memory.profile().set("k", "v")
            assert_sound(memory)


class TestWhatIsRefused:
    @pytest.mark.parametrize("to", [None, 2])
    def test_a_place_that_is_taken(self, tmp_path: Path, backup: Path, to: int | None) -> None:
        (tmp_path / "empty").mkdir()
        for new in (backup, tmp_path / "store", tmp_path / "empty", backup / "inside"):
            with pytest.raises(InvalidInput, match=r"is there already|lies in the store"):
                recover(backup, new, to=to)
        with pytest.raises(NotFound, match="create it first"):
            recover(backup, tmp_path / "missing" / "new", to=to)
        assert names_in(tmp_path) == {"store", "backup", "empty"}
        assert names_in(backup) >= {"data.mdb", "backup.json"}

    def test_what_is_no_backup(self, tmp_path: Path, backup: Path) -> None:
        with pytest.raises(NotFound, match=r"there is no backup at .*missing to recover"):
            recover(tmp_path / "missing", tmp_path / "new")
        (tmp_path / "file").write_text("no store", encoding="utf-8")
        with pytest.raises(StoreVersion):
            recover(tmp_path / "file", tmp_path / "new")
        with pytest.raises(InvalidInput, match="clock_ns must be a function"):
            recover(backup, tmp_path / "new", clock_ns=5)  # type: ignore[arg-type]
        assert names_in(tmp_path) == {"store", "backup", "file"}

    def test_a_backup_whose_data_was_exchanged(self, tmp_path: Path, backup: Path) -> None:
        """An older copy of the same store, or another store, is not what the manifest speaks of."""
        with Memory(tmp_path / "other") as memory:
            fill(memory)
        recover(backup, tmp_path / "older", to=9)
        for other in ("other", "older"):
            shutil.copy(tmp_path / other / "data.mdb", backup / "data.mdb")
            with pytest.raises(StoreCorrupt, match=r"does not hold the log that its backup\.json speaks of") as refusal:
                recover(backup, tmp_path / "new")
            with Memory(backup, readonly=True) as memory:
                for jobs in (1, 2):
                    report = memory.verify(jobs=jobs)
                    assert not report.ok
                    assert [(each.check, each.message) for each in report.findings] == [("backup", str(refusal.value))]

    @pytest.mark.parametrize("manifest", [b"", b"{", b"\xff", b"[]", b'{"format": 1}'])
    def test_a_manifest_that_cannot_be_read(self, tmp_path: Path, backup: Path, manifest: bytes) -> None:
        (backup / "backup.json").write_bytes(manifest)
        with pytest.raises(StoreCorrupt, match=r"backup\.json in .* cannot be read"):
            recover(backup, tmp_path / "new")
        with Memory(backup, readonly=True) as memory:
            assert [each.check for each in memory.verify().findings] == ["backup"]

    @pytest.mark.parametrize("kind", ["pipe", "link", "endless"])
    def test_a_manifest_that_is_no_file(self, tmp_path: Path, backup: Path, kind: str) -> None:
        manifest = backup / "backup.json"
        manifest.unlink()
        if kind == "pipe":
            os.mkfifo(manifest)
        else:
            manifest.symlink_to("/dev/zero" if kind == "endless" else tmp_path / "elsewhere")
        with pytest.raises(StoreError, match=r"reading backup\.json"):
            recover(backup, tmp_path / "new")

    def test_a_backup_that_went_on_is_still_one(self, tmp_path: Path, backup: Path) -> None:
        with Memory(backup) as memory:
            memory.profile().set("after", "the backup")
            memory.conversation(memory.conversations()[0]).erase(forks="erase")
            assert memory.verify().ok
            head = memory.head
        assert recover(backup, tmp_path / "new").head == head

    @pytest.mark.parametrize("seed", range(12))
    def test_a_damaged_backup_is_refused_or_comes_back_whole(self, tmp_path: Path, backup: Path, seed: int) -> None:
        random = Random(seed)
        with Memory(backup, readonly=True) as memory:
            hashed = memory.state_hash(at=20)
        rows = Rows(backup)
        table = random.choice(["log", "log", "names", "streams", "checkpoints", "requests", "meta"])
        entries = [(key, value) for key, value in rows.all(table) if value]
        key, value = random.choice(entries)
        rows.put(table, key, random.choice([None, value[: len(value) // 2], bytes(len(value)), entries[0][1]]))
        rows.close()
        try:
            made = recover(backup, tmp_path / "new", to=20)
        except RefoldError:
            assert names_in(tmp_path) == {"store", "backup"}
        else:
            assert made.state_hash == hashed


def test_a_store_that_others_write_to_can_be_recovered(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("chat").append("user", "one", tokens=1)
        made = recover(tmp_path / "store", tmp_path / "new", to=2)
        assert made.state_hash == memory.state_hash()
        memory.conversation("chat").append("user", "two", tokens=1)
        assert recover(tmp_path / "store", tmp_path / "newer", to=3).state_hash == memory.state_hash()
