"""Replay, its floor and the verification: each reaches the state that the live run had."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import workloads
from peers.loader import load
from rounds import Job, Measure
from rows import replay

from refold import Memory

CONVERSATIONS = [1, workloads.WIDE]


@pytest.fixture(params=CONVERSATIONS)
def memory(request: pytest.FixtureRequest, sizes: workloads.Sizes, tmp_path: Path) -> Iterator[Memory]:
    with workloads.fill(tmp_path / "filled", sizes.log_events, request.param, sizes.batch_events) as filled:
        yield filled


def live_contents(memory: Memory) -> dict[str, list[object]]:
    """Return the texts of every conversation's live window."""
    names = memory.conversations()
    return {name: [message.content for message in memory.conversation(name).window()] for name in names}


def test_replay_reaches_the_live_state(memory: Memory, measure: Measure, tmp_path: Path) -> None:
    with replay.replays(memory, tmp_path / "floor") as jobs:
        measure(jobs.jobs()[replay.REFOLD])
        states = jobs.replay()
    name_of = workloads.engine_of(memory).reader.streams.name_of
    found = {name_of(number).partition("/")[2]: replay.contents(state) for number, state in states.items()}
    assert found == live_contents(memory)


def test_the_floor_reaches_the_live_state(memory: Memory, measure: Measure, tmp_path: Path) -> None:
    with replay.replays(memory, tmp_path / "floor") as jobs:
        measure(jobs.jobs()[replay.FLOOR])
        found = [[event.content for event in window.messages] for window in jobs.windows]
        assert jobs.floor.count() == jobs.messages
    assert sorted(map(str, found)) == sorted(map(str, live_contents(memory).values()))


def test_verify(memory: Memory, measure: Measure) -> None:
    measure(Job(memory.verify))
    assert memory.verify().ok


def test_replay_of_eventsourcing(measure: Measure, sizes: workloads.Sizes, tmp_path: Path) -> None:
    peer, reason = load("eventsourcing_log", "eventsourcing")
    if peer is None:
        pytest.skip(reason)
    with peer.opened(tmp_path, 1, workloads.WINDOW_TOKENS) as log:
        log.append(workloads.texts()[: sizes.peer_log_events])
        measure(Job(log.replayed))
        assert log.replayed()[0].messages == log.chats[0].messages
