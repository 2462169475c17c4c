"""Appends: one durable event at a time, and a thousand per commit through the whole public path.

The floors put one record per event, of the size that the first format had: fixed, so that no format moves them.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import workloads
from floors import BareLog
from peers.loader import load
from peers.sqlite_log import SqliteLog
from rounds import Job, Spent, Target, alternate, quantile
from rows.table import Options, Row, compared, limited, processor, skipped, spread

from refold import Conversation, Memory

REFOLD = "refold"
PUT_ONE = "bare LMDB, one put in a durable transaction"
PUT = "bare LMDB, put, one durable transaction"
PUT_MULTI = "bare LMDB, putmulti, one durable transaction"
SQLITE = "SQLite WAL, synchronous=FULL, executemany"
PEER = "eventsourcing on SQLite, one save"
CPU_NS = 3_000.0
"""What the processor may take for an event of a batch."""

TARGETS = {1: Target("at least", 0.45), 100: Target("at least", 0.35)}
"""Of the rate of bare puts, by the number of conversations."""

OPERATIONS_PER_ROUND = 25
"""A single append is a round of its own, so that every flush of ours has one of the floor's beside it."""


class OneWriter:
    """Appends of one event, each durable when it returns, and the floor's put of a record of the same text."""

    def __init__(self, directory: Path) -> None:
        self.memory = Memory(directory / "one-writer", window_tokens=workloads.WINDOW_TOKENS)
        self.chat = self.memory.conversation("chat")
        self.floor = BareLog(directory / "one-writer-floor")
        self._texts = workloads.texts()
        self._places = count()
        self._floor_places = count()
        self.chat.append("user", "The conversation is open.", tokens=5)

    def append(self) -> None:
        """Append the next text."""
        content, tokens = self._texts[next(self._places) % workloads.TEXTS]
        self.chat.append("user", content, tokens=tokens)

    def prepare_floor(self) -> None:
        """Give the floor a record of the next text."""
        self.floor.prepare(workloads.records([self._texts[next(self._floor_places) % workloads.TEXTS]]))

    def jobs(self) -> dict[str, Job]:
        """Return our job and the floor's."""
        return {REFOLD: Job(self.append), PUT_ONE: Job(self.floor.put_one, prepare=self.prepare_floor)}

    def close(self) -> None:
        """Release both logs."""
        self.memory.close()
        self.floor.close()


class Batches:
    """Commits of many events, and the floors' puts of records of the same texts."""

    def __init__(
        self,
        directory: Path,
        conversations: int,
        events: int,
        said: Sequence[workloads.Text] | None = None,
        window_tokens: int = workloads.WINDOW_TOKENS,
    ) -> None:
        self.memory = Memory(directory / f"batches-{conversations}", window_tokens=window_tokens)
        self.chats: list[Conversation] = workloads.handles(self.memory, conversations)
        self.put = BareLog(directory / f"batches-{conversations}-put")
        self.put_multi = BareLog(directory / f"batches-{conversations}-putmulti")
        self.sqlite = SqliteLog(directory / f"batches-{conversations}.sqlite")
        self.events = events
        self._said = workloads.share(0, events) if said is None else said
        self.records = workloads.records(self._said)
        for chat in self.chats:
            chat.append("user", "The conversation is open.", tokens=5)

    def append(self) -> None:
        """Append a batch through the public path."""
        workloads.append_batch(self.memory, self.chats, self._said)

    def jobs(self) -> dict[str, Job]:
        """Return our job and the floors'."""
        return {REFOLD: Job(self.append, self.events), PUT: self._putting(self.put, self.put.put)}

    def other_jobs(self) -> dict[str, Job]:
        """Return the jobs of those who write many rows with one call."""
        return {
            PUT_MULTI: self._putting(self.put_multi, self.put_multi.put_multi),
            SQLITE: self._putting(self.sqlite, self.sqlite.put_multi),
        }

    def _putting(self, log: BareLog | SqliteLog, put: Callable[[], object]) -> Job:
        return Job(put, self.events, lambda: log.prepare(self.records))

    def close(self) -> None:
        """Release all logs."""
        for log in (self.memory, self.put, self.put_multi, self.sqlite):
            log.close()


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
    directory: Path,
    conversations: int,
    events: int,
    said: Sequence[workloads.Text] | None = None,
    window_tokens: int = workloads.WINDOW_TOKENS,
) -> Generator[Batches, None, None]:
    """Open the jobs of batches, of texts that are given or of the usual ones."""
    jobs = Batches(directory, conversations, events, said, window_tokens)
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
    note = f"({processor(samples, REFOLD, PUT_ONE)}; {spread(ours)})"
    yield compared("durable append, one writer", ours, PUT_ONE, floor, Target("at most", 1.12), note=note)


def batch_rows(options: Options) -> Iterator[Row]:
    """Measure batches into one conversation and into a hundred."""
    for conversations, said in ((1, "1 conversation"), (100, "100 conversations")):
        yield from _batch_rows(options, conversations, f"batched append, {said}, per event")


def _batch_rows(options: Options, conversations: int, job: str) -> Iterator[Row]:
    events = options.sizes.batch_events
    with ExitStack() as stack:
        batch = stack.enter_context(batches(options.directory, conversations, events))
        jobs = {**batch.jobs(), SQLITE: batch.other_jobs()[SQLITE]}
        peer, reason = load("eventsourcing_log", "eventsourcing")
        if peer is not None:
            log = stack.enter_context(peer.opened(options.directory, conversations, workloads.WINDOW_TOKENS))
            said = workloads.share(0, events)
            jobs[PEER] = Job(lambda: log.append(said), events)
        samples = alternate(jobs, options.rounds)
    yield from against_puts(job, samples, conversations)
    yield compared(job, samples[REFOLD], SQLITE, samples[SQLITE], Target("at least", 0.8))
    if reason:
        yield skipped(job, PEER, reason)
    else:
        yield compared(job, samples[REFOLD], PEER, samples[PEER], Target("at least", 10))


def against_puts(job: str, samples: Spent, conversations: int) -> Iterator[Row]:
    """Return a batch held against the floor's puts, and the processor's time for it against a limit."""
    note = f"({processor(samples, REFOLD, PUT)})"
    yield compared(job, samples[REFOLD], PUT, samples[PUT], TARGETS[conversations], note=note)
    worked = quantile(samples.processor[REFOLD], 1)
    yield limited(f"{job}, of the processor", worked, CPU_NS, "(fastest tenth of the rounds)")
