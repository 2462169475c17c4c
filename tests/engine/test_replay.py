"""Replay equality where it is most likely to break: at checkpoint boundaries, through bases, across stores."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from refold import InvalidInput, Memory, Snapshot
from refold.engine.streams import APPLIED_KEY
from refold.importers import transcript
from refold.limits import CHECKPOINT_EVENTS
from refold.log.protocol import scan
from tests.support.blanks import blank
from tests.support.bounds import Clock, lowered, seeded_bytes
from tests.support.paths import ROOT
from tests.support.seams import counted_reads, log_of

BOUNDARIES = (CHECKPOINT_EVENTS - 1, CHECKPOINT_EVENTS, CHECKPOINT_EVENTS + 1, 2 * CHECKPOINT_EVENTS)
ENVIRONMENTS = [(hash_seed, zone) for hash_seed in ("0", "1") for zone in ("UTC", "Asia/Kathmandu")]


def hashes(memory: Memory) -> list[str]:
    """The state hash at every seq."""
    return [memory.state_hash(at=seq) for seq in range(memory.head + 1)]


def replays(memory: Memory) -> list[str]:
    """The hash of a replay up to every seq."""
    return [memory.replay_hash(at=seq) for seq in range(memory.head + 1)]


def fill(memory: Memory, name: str, events: int, *, tokens: int = 1) -> None:
    """Brings a new conversation to a number of events: it is opened, then messages and keys take turns."""
    chat = memory.conversation(name, window_tokens=10_000)
    for place in range(events - 1):
        if place % 3:
            chat.append("user", f"message {place}", tokens=tokens)
        else:
            chat.scratchpad.set(f"key {place % 7}", f"value {place}")


def remembered(memory: Memory, events: int) -> dict[int, str]:
    """The live hash at every seq, taken while one conversation grows."""
    chat, live = memory.conversation("a", window_tokens=50), {0: memory.state_hash()}
    for place in range(events):
        chat.append("user", f"message {place}", tokens=1 + place % 3)
        live[memory.head] = memory.state_hash()
    return live


@pytest.mark.parametrize("events", BOUNDARIES)
def test_a_stream_of_a_boundary_length_reads_alike_live_frozen_and_reopened(
    memory: Memory, reopen: Callable[[], Memory], events: int
) -> None:
    fill(memory, "a", events)
    assert memory.head == events
    live = memory.state_hash()
    near = [seq for edge in BOUNDARIES for seq in range(edge - 2, edge + 2) if seq <= events]
    before = {seq: memory.state_hash(at=seq) for seq in near}
    assert before == {seq: memory.replay_hash(at=seq) for seq in near}
    memory = reopen()
    assert memory.state_hash() == live
    assert before == {seq: memory.state_hash(at=seq) for seq in near}


def test_the_hash_at_a_seq_is_what_it_was_live(memory: Memory, reopen: Callable[[], Memory]) -> None:
    live = remembered(memory, 2 * CHECKPOINT_EVENTS + 5)
    assert {seq: memory.state_hash(at=seq) for seq in live} == live
    memory = reopen()
    assert {seq: memory.state_hash(at=seq) for seq in live} == live


@pytest.mark.parametrize("before", [1, CHECKPOINT_EVENTS - 1, CHECKPOINT_EVENTS])
@pytest.mark.parametrize("batched", [2, CHECKPOINT_EVENTS, 3 * CHECKPOINT_EVENTS])
def test_a_batch_jumps_over_a_boundary(memory: Memory, reopen: Callable[[], Memory], before: int, batched: int) -> None:
    fill(memory, "a", before)
    with memory.batch():
        for place in range(batched):
            memory.conversation("a").append("user", f"batched {place}", tokens=1)
            memory.conversation("b").scratchpad.set("key", str(place))
    live, head = memory.state_hash(), memory.head
    assert head == before + 2 * batched + 1
    edges = range(0, head + 1, 97)
    frozen = [memory.state_hash(at=seq) for seq in edges]
    memory = reopen()
    assert memory.state_hash() == live
    assert [memory.state_hash(at=seq) for seq in edges] == frozen == [memory.replay_hash(at=seq) for seq in edges]


def test_a_window_holds_more_messages_than_events_between_checkpoints(
    memory: Memory, reopen: Callable[[], Memory]
) -> None:
    fill(memory, "a", 3 * CHECKPOINT_EVENTS)
    ids = [message.id for message in memory.conversation("a").window()]
    assert len(ids) > CHECKPOINT_EVENTS
    memory = reopen()
    assert [message.id for message in memory.conversation("a").window()] == ids
    memory.conversation("a").set_window_tokens(300)
    assert [message.id for message in memory.conversation("a").window()] == ids[-300:]


def test_a_store_left_by_a_killed_process_keeps_its_kept_checkpoints(tmp_path: Path) -> None:
    """A kept row that stands at its stream's last event must outlive an opening that scans the tail behind it."""
    with lowered(CHECKPOINT_EVENTS=4):
        memory = Memory(tmp_path / "store")
        memory.conversation("idle").scratchpad.set("key", "value")
        fill(memory, "a", 4)
        memory.conversation("idle").scratchpad.set("key", "other")
        wanted = hashes(memory)
        left = tmp_path / "left"
        left.mkdir()
        (left / "data.mdb").write_bytes((tmp_path / "store" / "data.mdb").read_bytes())
        memory.close()
        for _ in range(3):
            with Memory(left) as found:
                assert hashes(found) == wanted
                assert [stamp.seq for _, stamp in found.conversation("a").events()] == [3, 4, 5, 6]
                assert found.verify().ok


def test_the_past_of_a_long_conversation_is_read_from_the_checkpoint_before_it(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered(memory, 6 * CHECKPOINT_EVENTS)
    reads = counted_reads(memory, monkeypatch)
    for seq in range(CHECKPOINT_EVENTS, memory.head + 1, CHECKPOINT_EVENTS // 2):
        reads.clear()
        frozen = memory.conversation("a").at(seq)
        assert [message.seq for message in frozen.window(last=3)] == [seq - 2, seq - 1, seq]
        assert sum(reads) <= CHECKPOINT_EVENTS + len(frozen.window())
    rows = [key for key, _ in scan(log_of(memory), "checkpoints", b"", 100) if key != APPLIED_KEY]
    assert len(rows) == 6


def test_a_restored_state_is_read_without_the_restores_before_it(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(memory, "a", 20)
    chat = memory.conversation("a")
    for _ in range(50):
        before = chat.snapshot()
        chat.append("user", "taken back", tokens=1)
        chat.restore(before)
        chat.append("user", "and on", tokens=1)
    reads = counted_reads(memory, monkeypatch)
    assert len(chat.at(memory.head - 1).window()) == len(chat.window()) - 1
    assert len(reads) <= 5


@pytest.mark.slow
def test_three_hundred_restores_in_a_row(memory: Memory, reopen: Callable[[], Memory]) -> None:
    chat = memory.conversation("a")
    chat.append("user", "first", tokens=1)
    chat.scratchpad.set("key", "first")
    start = chat.snapshot()
    chat.scratchpad.set("key", "second")
    for place in range(300):
        other = chat.snapshot()
        chat.restore(start)
        assert chat.scratchpad.get("key") == ("first" if place % 2 == 0 else "second")
        start = other
    live = memory.state_hash()
    assert [memory.state_hash(at=seq) for seq in (250, 260, 304)] == [
        memory.replay_hash(at=seq) for seq in (250, 260, 304)
    ]
    memory = reopen()
    assert memory.state_hash() == live
    assert memory.conversation("a").scratchpad.get("key") == "second"


@pytest.mark.slow
def test_restores_that_each_point_at_the_one_before(memory: Memory, reopen: Callable[[], Memory]) -> None:
    chats = [memory.conversation(name) for name in ("a", "b")]
    for place in range(300):
        chats[0].scratchpad.note(f"note {place}")
        chats[1].restore(chats[0].snapshot())
        chats.reverse()
    assert len(chats[0].scratchpad.notes()) == 300
    memory = reopen()
    assert memory.conversation("a").scratchpad.notes() == [f"note {place}" for place in range(300)]


def test_forks_of_forks_of_any_depth(tmp_path: Path) -> None:
    depth = 300
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("fork 0", window_tokens=10_000)
        for place in range(1, depth + 1):
            chat.append("user", f"depth {place - 1}", tokens=1)
            chat = chat.fork(f"fork {place}")
        chat.replace(chat.window()[0], "replaced", tokens=1)
    expected = ["replaced", *(f"depth {place}" for place in range(1, depth))]
    with Memory(tmp_path / "store") as memory:
        deepest = memory.conversation(f"fork {depth}")
        assert [message.content for message in deepest.window()] == expected
        assert [message.content for message in deepest.history()] == expected
        assert [message.content for message in deepest.history(limit=2, before=deepest.window()[9].seq)] == expected[
            7:9
        ]
        assert [message.content for message in transcript(memory, deepest.id)] == expected
        found = deepest.search("depth 7 replaced", top_k=2)
        assert {hit.entry.content for hit in found} == {"replaced", "depth 7"}
        assert memory.why("depth 5", conversation=deepest).present
        assert "depth 299" in str(memory.context(deepest, query="depth 299"))
        assert memory.state_hash() == memory.replay_hash()
        assert memory.verify().ok
        deepest.fork("one more").drop()
        hashed = memory.state_hash()
        memory.export(tmp_path / "export")
    with Memory() as other:
        other.load(tmp_path / "export")
        assert other.state_hash() == hashed
        assert other.conversation("fork 0").erase(forks="erase").seqs
        assert other.verify().ok


def test_a_dropped_fork_is_empty_and_its_id_can_be_used_again(memory: Memory, reopen: Callable[[], Memory]) -> None:
    chat = memory.conversation("a", window_tokens=100)
    chat.append("user", "kept", tokens=1)
    middle = chat.fork("b")
    leaf = middle.fork("c")
    leaf.append("user", "lost", tokens=1)
    at = memory.head
    leaf.close(drop=True)
    assert (leaf.window(), leaf.version) == ([], 3)
    with pytest.raises(InvalidInput):
        middle.fork("c")
    again = memory.conversation("c", window_tokens=7)
    again.append("user", "new", tokens=7)
    memory = reopen()
    assert [message.content for message in memory.conversation("c").window()] == ["new"]
    assert [message.content for message in memory.conversation("c").at(at).window()] == ["kept", "lost"]
    assert [message.content for message in memory.conversation("b").window()] == ["kept"]
    with pytest.raises(InvalidInput):
        memory.conversation("c").close(drop=True)


def test_a_fork_is_a_fork_whatever_it_was_restored_to(memory: Memory) -> None:
    chat = memory.conversation("a")
    chat.append("user", "one", tokens=1)
    fork = chat.fork("b")
    fork.append("user", "two", tokens=1)
    there = fork.snapshot()
    fork.restore(chat.snapshot())
    fork.close(drop=True)
    assert fork.window() == []
    chat.restore(there)
    head = memory.head
    with pytest.raises(InvalidInput):
        chat.close(drop=True)
    assert memory.head == head
    assert len(chat.window()) == 2


@pytest.mark.parametrize("through_bytes", [False, True])
def test_the_first_verb_may_be_a_restore_and_the_project_stays(memory: Memory, through_bytes: bool) -> None:
    with Memory() as other:
        giver = (other if through_bytes else memory).conversation("giver")
        giver.append("user", "one", tokens=1)
        snapshot = giver.snapshot()
        given = Snapshot.from_bytes(snapshot.to_bytes()) if through_bytes else snapshot
        memory.conversation("taker", project="acme").restore(given)
    taker = memory.conversation("taker")
    assert taker.project == "acme"
    assert [message.content for message in taker.window()] == ["one"]


@pytest.mark.parametrize("verb", ["restore", "drop"])
def test_a_batch_may_empty_a_conversation_and_go_on(memory: Memory, reopen: Callable[[], Memory], verb: str) -> None:
    chat = memory.conversation("a")
    empty = chat.snapshot()
    chat.append("user", "one", tokens=1)
    if verb == "drop":
        chat = chat.fork("b")
    with memory.batch():
        if verb == "drop":
            chat.close(drop=True)
        else:
            chat.restore(empty)
        chat.append("user", "two", tokens=2)
        assert [message.content for message in chat.window()] == ["two"]
    memory = reopen()
    assert [message.content for message in memory.conversation(chat.id).window()] == ["two"]


def test_an_imported_value_that_was_overwritten_does_not_come_back(memory: Memory) -> None:
    with Memory() as other:
        giver = other.conversation("giver")
        giver.scratchpad.set("kept", "1")
        giver.scratchpad.set("gone", "old")
        giver.state["kept"] = 1
        giver.state["gone"] = "old"
        taker = memory.conversation("taker")
        taker.restore(Snapshot.from_bytes(giver.snapshot().to_bytes()))
    taker.scratchpad.set("gone", "new")
    taker.state["gone"] = "new"
    blank(memory, [memory.head - 1, memory.head])
    assert taker.scratchpad.items() == [("kept", "1")]
    assert taker.state.items() == [("kept", 1)]


def test_a_state_goes_from_store_to_store(memory: Memory, reopen: Callable[[], Memory]) -> None:
    snapshot: Snapshot | None = None
    for place in range(5):
        with Memory(random_bytes=seeded_bytes(100 + place)) as other:
            chat = other.conversation("traveller")
            if snapshot is not None:
                chat.restore(snapshot)
            chat.append("user", f"store {place}", tokens=1)
            chat.scratchpad.note(f"store {place}")
            assert other.state_hash() == other.replay_hash()
            snapshot = Snapshot.from_bytes(chat.snapshot().to_bytes())
    assert snapshot is not None
    memory.conversation("home").restore(snapshot)
    head = memory.head
    memory.conversation("home").restore(snapshot)
    assert memory.head == head
    home = reopen().conversation("home")
    assert [message.content for message in home.window()] == [f"store {place}" for place in range(5)]
    assert home.scratchpad.notes() == [f"store {place}" for place in range(5)]


# The same log, opened in every way.


def recorded_script(memory: Memory) -> None:
    """Appends events of every kind, the same in every process."""
    random = Random(2)
    chats = [memory.conversation("a", window_tokens=40), memory.conversation("b", project="p", window_tokens=25)]
    for place in range(120):
        chat = chats[random.randrange(2)]
        chat.append("user", f"message {place} \u00e9", tokens=random.randrange(9), metadata={"b": [1.5], "a": place})
        chat.state[f"temp:{place % 5}"] = {"z": place, "a": [None, True]}
        chat.scratchpad.set(f"key {place % 4}", f"{place} " * random.randrange(1, 99))
        memory.profile().set(f"fact {place % 3}", str(place))
        memory.journal().append(f"note {place}")
        if place % 30 == 17:
            chat.append("assistant", None, tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}])
            chat.append("tool", "found", tool_call_id="c", pinned=True, tokens=3)
            chat.snapshot(f"at {place}")
            chats[1 - chats.index(chat)].restore(chat.snapshot())
            chat.fork(f"fork {place}").end_round()
            chat.clear_window()
    blank(memory, [7, 19, 202, memory.head])


def print_script() -> None:
    """Folds the recorded script and prints the hash at every seq: what child processes run."""
    memory = Memory(clock_ns=Clock(), random_bytes=seeded_bytes(1), timezone="Asia/Kathmandu")
    recorded_script(memory)
    print("\n".join(hashes(memory)))  # noqa: T201 - read by the process that started this one


def in_child(call: str, **environment: str) -> str:
    """What a call of this module prints in a process of its own."""
    program = f"import tests.engine.test_replay as module; module.{call}"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_hash_seed_and_time_zone_change_no_hash() -> None:
    printed = {in_child("print_script()", PYTHONHASHSEED=seed, TZ=zone) for seed, zone in ENVIRONMENTS}
    assert len(printed) == 1
    assert len(set(printed.pop().split())) > 500


def openings(path: Path) -> Iterator[tuple[str, Memory]]:
    """The ways to come to the events of a store, each under another configuration."""
    export = path.parent / "export.jsonl"
    yield "another budget", Memory(path, window_tokens=1)
    with Memory(path, window_tokens=3) as memory:
        memory.export(export)
    yield "no budget", Memory(path)
    yield "read-only", Memory(path, readonly=True)
    loaded = Memory(window_tokens=9)
    loaded.load(export)
    yield "loaded into RAM", loaded
    loaded = Memory(path.parent / "loaded", timezone="Asia/Kathmandu")
    loaded.load(export)
    yield "loaded", loaded


@pytest.mark.slow
def test_a_store_has_one_hash_at_every_seq_however_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Memory(path, window_tokens=77, clock_ns=Clock(), random_bytes=seeded_bytes(1)) as memory:
        recorded_script(memory)
        wanted = hashes(memory)
        assert wanted == replays(memory)
    found = {}
    for name, opening in openings(path):
        with opening as opened:
            found[name] = hashes(opened)
            assert opened.verify().ok
    assert {name: found[name] == wanted for name in found} == dict.fromkeys(found, True)
    assert len(found) == 5


def append_until_killed(path: str, seed: int) -> None:
    """Appends for ever and says after each call that it is acknowledged; run by a child process."""
    random = Random(seed)
    memory = Memory(path)
    while True:
        chat = memory.conversation(f"chat {random.randrange(4)}", window_tokens=30)
        with memory.batch():
            for _ in range(random.randrange(1, 4)):
                chat.append("user", "x" * random.randrange(300), tokens=random.randrange(9))
        print(memory.head, memory.state_hash(), flush=True)  # noqa: T201 - read by the process that kills this one


def killed(path: Path, seed: int, acknowledged: int) -> list[str]:
    """The lines of a child that was killed with no warning after it had acknowledged so many commits."""
    program = f"import tests.engine.test_replay as module; module.append_until_killed({str(path)!r}, {seed})"
    command = [sys.executable, "-c", program]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(acknowledged)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    return [line for line in lines if line.endswith("\n")]


@pytest.mark.slow
def test_a_process_killed_in_mid_append_leaves_an_acknowledged_prefix(tmp_path: Path) -> None:
    """Twenty generations of processes go on in one store; the seed of each is its number."""
    path = tmp_path / "store"
    for seed in range(20):
        lines = killed(path, seed, acknowledged=1 + Random(seed).randrange(40))
        head, hashed = lines[-1].split()
        with Memory(path) as memory:
            assert memory.head >= int(head), f"seed {seed} lost what it acknowledged"
            assert memory.state_hash(at=int(head)) == hashed, f"seed {seed}"
            assert memory.state_hash() == memory.replay_hash(), f"seed {seed}"
            report = memory.verify()
            assert report.ok, (seed, report.findings)
