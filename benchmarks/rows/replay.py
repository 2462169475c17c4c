"""Replay: the whole log read, decoded and folded from seq 1 on; and the verification of all of it."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import workloads
from floors import BareLog, BareWindow
from peers.loader import load
from rounds import Job, Target, alternate, median
from rows.table import Options, Row, compared, limited, processor, rate, skipped

from refold import Memory, fold
from refold.log.record import EventBytes
from refold.message import MessageAppended
from refold.views.window import WINDOW

REFOLD = "refold"
FLOOR = "cursor + decode + fold, payload only, same conversations"
PEER = "eventsourcing repository.get"
REPLAY_TARGETS = {1: Target("at least", 0.85), workloads.WIDE: Target("at least", 0.65)}
VERIFY_PER_SECOND = {1: 900_000, workloads.WIDE: 350_000}
"""What is to be reached, by the number of conversations."""


def replay(memory: Memory) -> dict[int, fold.State]:
    """Fold the whole log from seq 1 on into a state per stream, checking no hash: what a replay from zero does."""
    states: dict[int, fold.State] = workloads.engine_of(memory).reader.loader.replay_states(memory.head)
    return states


class Replays:
    """A store's whole log, and a bare log with the arrays of the same messages."""

    def __init__(self, memory: Memory, directory: Path) -> None:
        self.memory = memory
        self.events = memory.head
        self.decode = msgspec.msgpack.Decoder(MessageAppended).decode
        arrays, self._owners = _payloads(workloads.events(memory, 1, self.events))
        self.messages = len(arrays)
        self.floor = BareLog(directory)
        self.floor.prepare(arrays)
        self.floor.put_multi()
        self.windows: list[BareWindow] = []

    def replay(self) -> dict[int, fold.State]:
        """Replay refold's log."""
        return replay(self.memory)

    def fold_floor(self) -> None:
        """Fold the bare log into as many windows."""
        self.floor.fold(self.decode, self._owned, workloads.WINDOW_TOKENS)

    def prepare_floor(self) -> None:
        """Begin with empty windows, and say for every row whose it is."""
        self.windows = [BareWindow() for _ in range(max(self._owners) + 1)]
        self._owned = [self.windows[owner] for owner in self._owners]

    def jobs(self) -> dict[str, Job]:
        """Return our job and the floor's."""
        return {
            REFOLD: Job(self.replay, self.events),
            FLOOR: Job(self.fold_floor, self.messages, self.prepare_floor),
        }

    def close(self) -> None:
        """Release the bare log; the store stays open."""
        self.floor.close()


def _payloads(events: Sequence[EventBytes]) -> tuple[list[bytes], list[int]]:
    """Return the arrays of the messages among the events, and for each the place of its conversation."""
    messages = [event for event in events if fold.tag_of(event.array) == fold.TAGS[MessageAppended]]
    places = {number: place for place, number in enumerate(dict.fromkeys(event.number for event in messages))}
    return [event.array for event in messages], [places[event.number] for event in messages]


@contextmanager
def replays(memory: Memory, directory: Path) -> Generator[Replays, None, None]:
    """Open the jobs of a replay."""
    jobs = Replays(memory, directory)
    try:
        yield jobs
    finally:
        jobs.close()


def contents(state: fold.State) -> list[Any]:
    """Return the texts of a state's live messages."""
    return [message.content for message in state.part(WINDOW).live()]


def rows(options: Options) -> Iterator[Row]:
    """Measure the replay of one long conversation and of many."""
    for conversations in (1, workloads.WIDE):
        said = f"{conversations} conversation{'s' if conversations > 1 else ''}"
        yield from _replay_rows(options, conversations, f"replay of {options.sizes.log_events:,} events, {said}")


def _replay_rows(options: Options, conversations: int, job: str) -> Iterator[Row]:
    memory = options.stores.filled(conversations)
    with replays(memory, options.directory / f"replay-floor-{conversations}") as jobs:
        samples = alternate(jobs.jobs(), max(options.rounds // 4, 3))
    note = f"(integrity check off; {processor(samples, REFOLD, FLOOR)})"
    yield compared(job, samples[REFOLD], FLOOR, samples[FLOOR], REPLAY_TARGETS[conversations], note=note)
    if conversations == 1:
        yield _peer_row(options, memory, job)


def _peer_row(options: Options, memory: Memory, job: str) -> Row:
    """Compare rates; the peer replays a shorter log of one conversation, which is its best case."""
    peer, reason = load("eventsourcing_log", "eventsourcing")
    if peer is None:
        return skipped(job, PEER, reason)
    said = workloads.share(0, options.sizes.peer_log_events)
    directory = options.directory / "replay-peer"
    directory.mkdir()
    with peer.opened(directory, 1, workloads.WINDOW_TOKENS) as log:
        log.append(said)
        duel = {REFOLD: Job(lambda: replay(memory), memory.head), PEER: Job(log.replayed, len(said))}
        samples = alternate(duel, max(options.rounds // 8, 3))
    return compared(job, samples[REFOLD], PEER, samples[PEER], Target("at least", 30))


def verify_rows(options: Options) -> Iterator[Row]:
    """Measure the verification of a whole store: file, chain, digests, checkpoints and live states."""
    for conversations, per_second in VERIFY_PER_SECOND.items():
        said = f"{conversations} conversation{'s' if conversations > 1 else ''}"
        memory = options.stores.filled(conversations)
        yield verified(memory, f"verify, {said}, per event", per_second, max(options.rounds // 12, 3))


def verified(memory: Memory, job: str, per_second: int, rounds: int) -> Row:
    """Return a row that holds the verification of a store by one process against a rate."""
    samples = alternate({REFOLD: Job(memory.verify, memory.head)}, rounds)[REFOLD]
    return limited(job, median(samples), 1_000_000_000 / per_second, f"({rate(median(samples))})")
