"""One table of rates: refold, bare LMDB, SQLite and eventsourcing, alone and beside a thread that computes.

Everybody writes durably and gets the same texts, LMDB and SQLite as records of the size that the first format had.
"""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import workloads
from crews import Crew, Neighbour
from floors import BareLog
from peers.loader import load
from peers.sqlite_log import SqliteLog
from rounds import MINIMUM_ROUNDS, Job, Samples, alternate, median
from rows.table import Options, Row, compared, rate, skipped

from refold import Memory

THREADS_COUNT = 16
REFOLD = "refold"
LMDB = "bare LMDB, records of the same texts, durable"
SQLITE = "SQLite WAL, synchronous=FULL, records of the same texts"
PEER = "eventsourcing on SQLite, same texts"
ONE = "one writer"
THREADS = f"{THREADS_COUNT} threads"
BUSY_SHARE = 10
"""Beside a busy thread a round has a tenth of the single appends: each waits for several switches."""

ROUNDS_SHARE = 2
BUSY_ROUNDS_SHARE = 4


class Amounts(NamedTuple):
    """How many events a round of each job has."""

    writer_events: int
    thread_events: int
    batch_events: int

    @property
    def batch(self) -> str:
        """The name of the batched job."""
        return f"{self.batch_events:,} in one commit"


class Contestant(Protocol):
    """Somebody who writes: whatever is not writing is prepared beforehand."""

    def prepare(self, count: int) -> None:
        """Get ready to write so many events."""
        ...

    def write(self, place: int, count: int) -> None:
        """Write so many events to a conversation, each durable by itself."""
        ...

    def write_batch(self, count: int) -> None:
        """Write so many events in one durable commit."""
        ...


class Refold:
    """The whole public path."""

    def __init__(self, directory: Path) -> None:
        self.memory = Memory(directory / "throughput-refold", window_tokens=workloads.WINDOW_TOKENS)
        self._chats = workloads.handles(self.memory, THREADS_COUNT)
        self._said = workloads.texts()
        workloads.append_batch(self.memory, self._chats, self._said[:THREADS_COUNT])

    def prepare(self, count: int) -> None:
        """Need nothing."""

    def write(self, place: int, count: int) -> None:
        """Append to a conversation."""
        workloads.say(self._chats[place], self._said[:count])

    def write_batch(self, count: int) -> None:
        """Append to all conversations in turn."""
        workloads.append_batch(self.memory, self._chats, self._said[:count])

    def close(self) -> None:
        """Release the memory."""
        self.memory.close()


class Rows:
    """A log that takes records as they are: bare LMDB, or SQLite."""

    def __init__(self, log: BareLog | SqliteLog) -> None:
        self._log = log
        self.values = log.values
        self.close = log.close

    def prepare(self, count: int) -> None:
        """Take so many records."""
        self._log.prepare(workloads.records(workloads.share(0, count)))

    def write(self, _place: int, count: int) -> None:
        """Put rows one by one, each in a durable transaction."""
        self._log.put_some(count)

    def write_batch(self, _count: int) -> None:
        """Put all rows in one durable transaction."""
        self._log.put_multi()


class Eventsourcing:
    """The peer, where it is installed."""

    def __init__(self, peer: Any, directory: Path) -> None:
        self.log = peer.Log(directory / "throughput-eventsourcing", THREADS_COUNT, workloads.WINDOW_TOKENS)
        self.close = self.log.close
        self._said = workloads.texts()

    def prepare(self, count: int) -> None:
        """Need nothing."""

    def write(self, place: int, count: int) -> None:
        """Append to a conversation and save after each."""
        self.log.append_each(place, self._said[:count])

    def write_batch(self, count: int) -> None:
        """Append to all conversations in turn and save once."""
        self.log.append(self._said[:count])


@contextmanager
def contestants(directory: Path) -> Generator[dict[str, Contestant], None, None]:
    """Open everybody who is here."""
    refold = Refold(directory)
    found: dict[str, Contestant] = {REFOLD: refold}
    with ExitStack() as stack:
        stack.callback(refold.close)
        found[LMDB] = stack.enter_context(closing(Rows(BareLog(directory / "throughput-lmdb"))))
        found[SQLITE] = stack.enter_context(closing(Rows(SqliteLog(directory / "throughput.sqlite"))))
        peer, _ = load("eventsourcing_log", "eventsourcing")
        if peer is not None:
            found[PEER] = stack.enter_context(closing(Eventsourcing(peer, directory)))
        yield found


def jobs_of(name: str, contestant: Contestant, crew: Crew, amounts: Amounts) -> dict[tuple[str, str], Job]:
    """Return the three jobs of somebody who writes."""
    prepare, write, write_batch = contestant.prepare, contestant.write, contestant.write_batch
    one, each, batch = amounts
    return {
        (ONE, name): Job(lambda: write(0, one), one, lambda: prepare(one)),
        (THREADS, name): crew.job(lambda place: write(place, each), each, lambda: prepare(crew.count * each)),
        (amounts.batch, name): Job(lambda: write_batch(batch), batch, lambda: prepare(batch)),
    }


def amounts_of(sizes: workloads.Sizes, share: int) -> Amounts:
    """Return how much a round of each job is; the batch stays whole, because it waits for few switches."""
    return Amounts(max(sizes.writer_events // share, 1), max(sizes.thread_events // share, 1), sizes.batch_events)


def all_jobs(found: dict[str, Contestant], crew: Crew, amounts: Amounts) -> dict[tuple[str, str], Job]:
    """Return the jobs of everybody."""
    return {key: job for name, one in found.items() for key, job in jobs_of(name, one, crew, amounts).items()}


def measured(jobs: dict[tuple[str, str], Job], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Return the samples of the jobs, all in the same rounds."""
    samples: Samples = alternate({" / ".join(key): job for key, job in jobs.items()}, rounds)
    return {key: samples[" / ".join(key)] for key in jobs}


def rows(options: Options) -> Iterator[Row]:
    """Measure everybody alone, then everybody beside a busy thread."""
    with contestants(options.directory) as found, Crew(THREADS_COUNT) as crew, Neighbour() as neighbour:
        amounts = amounts_of(options.sizes, 1)
        rounds = max(options.rounds // ROUNDS_SHARE, MINIMUM_ROUNDS)
        yield from _compared(amounts, "", measured(all_jobs(found, crew, amounts), rounds))
        amounts = amounts_of(options.sizes, BUSY_SHARE)
        jobs = {key: neighbour.beside(job) for key, job in all_jobs(found, crew, amounts).items()}
        rounds = max(options.rounds // BUSY_ROUNDS_SHARE, MINIMUM_ROUNDS)
        yield from _compared(amounts, ", beside a busy thread", measured(jobs, rounds))


def _compared(amounts: Amounts, where: str, samples: dict[tuple[str, str], list[float]]) -> Iterator[Row]:
    """Return a row for each job and each of the others, with both rates."""
    for job in (ONE, THREADS, amounts.batch):
        said = f"{job}{where}, per event"
        ours = samples[job, REFOLD]
        for other in (LMDB, SQLITE, PEER):
            theirs = samples.get((job, other))
            if theirs is None:
                yield skipped(said, other, load("eventsourcing_log", "eventsourcing")[1])
            else:
                note = f"({rate(median(ours))} against {rate(median(theirs))})"
                yield compared(said, ours, other, theirs, None, note=note)
