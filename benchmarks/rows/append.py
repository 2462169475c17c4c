"""Appends: one durable event at a time, and a thousand per commit through the whole public path."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import workloads
from floors import BareLog
from peers.loader import load
from rounds import Job, Target, alternate
from rows.table import Options, Row, compared, skipped, spread

from refold import Conversation, Memory

REFOLD = "refold"
PUT_ONE = "bare LMDB, one put in a durable transaction"
PUT = "bare LMDB, put, same rows, one durable transaction"
PUT_MULTI = "bare LMDB, putmulti, same rows, one durable transaction"
PEER = "eventsourcing on SQLite, one save"

OPERATIONS_PER_ROUND = 25
"""A single append is a round of its own, so that every flush of ours has one of the floor's beside it."""


class OneWriter:
    """Appends of one event, each durable when it returns, and the floor's put of the record that this just wrote."""

    def __init__(self, directory: Path) -> None:
        self.memory = Memory(directory / "one-writer", window_tokens=workloads.WINDOW_TOKENS)
        self.chat = self.memory.conversation("chat")
        self.floor = BareLog(directory / "one-writer-floor")
        self._texts = workloads.texts()
        self._places = count()
        self.chat.append("user", "The conversation is open.", tokens=5)

    def append(self) -> None:
        """Append the next text."""
        content, tokens = self._texts[next(self._places) % workloads.TEXTS]
        self.chat.append("user", content, tokens=tokens)

    def prepare_floor(self) -> None:
        """Give the floor the last record."""
        self.floor.prepare(workloads.rows(self.memory, self.memory.head, 1))

    def jobs(self) -> dict[str, Job]:
        """Return our job and the floor's."""
        return {REFOLD: Job(self.append), PUT_ONE: Job(self.floor.put_one, prepare=self.prepare_floor)}

    def close(self) -> None:
        """Release both logs."""
        self.memory.close()
        self.floor.close()


class Batches:
    """Commits of many events, and the floors' puts of the very rows that the last one of ours wrote."""

    def __init__(
        self, directory: Path, conversations: int, events: int, said: Sequence[workloads.Text] | None = None
    ) -> None:
        self.memory = Memory(directory / f"batches-{conversations}", window_tokens=workloads.WINDOW_TOKENS)
        self.chats: list[Conversation] = workloads.handles(self.memory, conversations)
        self.put = BareLog(directory / f"batches-{conversations}-put")
        self.put_multi = BareLog(directory / f"batches-{conversations}-putmulti")
        self.events = events
        self._said = workloads.share(0, events) if said is None else said
        for chat in self.chats:
            chat.append("user", "The conversation is open.", tokens=5)

    def append(self) -> None:
        """Append a batch through the public path."""
        workloads.append_batch(self.memory, self.chats, self._said)

    def rows(self) -> list[bytes]:
        """Return the records of the last batch, as refold wrote them."""
        return workloads.rows(self.memory, self.memory.head - self.events + 1, self.events)

    def jobs(self) -> dict[str, Job]:
        """Return our job and the floors'; ours has to run before the first of theirs."""
        return {
            REFOLD: Job(self.append, self.events),
            PUT: Job(self.put.put, self.events, lambda: self.put.prepare(self.rows())),
            PUT_MULTI: Job(self.put_multi.put_multi, self.events, lambda: self.put_multi.prepare(self.rows())),
        }

    def close(self) -> None:
        """Release all three logs."""
        self.memory.close()
        self.put.close()
        self.put_multi.close()


@contextmanager
def one_writer(directory: Path) -> Generator[OneWriter, None, None]:
    """Open the jobs of one writer."""
    jobs = OneWriter(directory)
    try:
        yield jobs
    finally:
        jobs.close()


@contextmanager
def batches(
    directory: Path, conversations: int, events: int, said: Sequence[workloads.Text] | None = None
) -> Generator[Batches, None, None]:
    """Open the jobs of batches, of texts that are given or of the usual ones."""
    jobs = Batches(directory, conversations, events, said)
    try:
        jobs.append()
        yield jobs
    finally:
        jobs.close()


def single_rows(options: Options) -> Iterator[Row]:
    """Measure one durable append."""
    with one_writer(options.directory) as jobs:
        samples = alternate(jobs.jobs(), options.rounds * OPERATIONS_PER_ROUND, warm_up=5)
    ours, floor = samples[REFOLD], samples[PUT_ONE]
    yield compared(
        "durable append, one writer", ours, PUT_ONE, floor, Target("at most", 1.15), note=f"({spread(ours)})"
    )


def batch_rows(options: Options) -> Iterator[Row]:
    """Measure batches into one conversation and into a hundred."""
    for conversations, said in ((1, "1 conversation"), (100, "100 conversations")):
        yield from _batch_rows(options, conversations, f"batched append, {said}, per event")


def _batch_rows(options: Options, conversations: int, job: str) -> Iterator[Row]:
    events = options.sizes.batch_events
    with ExitStack() as stack:
        jobs = stack.enter_context(batches(options.directory, conversations, events)).jobs()
        peer, reason = load("eventsourcing_log", "eventsourcing")
        if peer is not None:
            log = stack.enter_context(peer.opened(options.directory, conversations, workloads.WINDOW_TOKENS))
            said = workloads.share(0, events)
            jobs[PEER] = Job(lambda: log.append(said), events)
        samples = alternate(jobs, options.rounds)
    ours = samples[REFOLD]
    yield compared(job, ours, PUT, samples[PUT], Target("at least", 0.40))
    yield compared(job, ours, PUT_MULTI, samples[PUT_MULTI], Target("at least", 0.30))
    if reason:
        yield skipped(job, PEER, reason)
    else:
        yield compared(job, ours, PEER, samples[PEER], Target("at least", 20))
