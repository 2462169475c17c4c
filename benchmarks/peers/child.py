"""One peer in a process of its own: does a round of a job each time that a line on stdin names one.

    python -m peers.child NAME DIRECTORY SIZES      # SIZES as a JSON list, in the order of PeerSizes

Every answer is a line of JSON on stdout; what the peer itself prints goes to stderr.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

# Before any peer is imported: nothing is told to anybody, and nothing is fetched.
os.environ.update(
    ANONYMIZED_TELEMETRY="False",
    OPENAI_AGENTS_DISABLE_TRACING="1",
    HF_HUB_OFFLINE="1",
    TIKTOKEN_CACHE_DIR=os.devnull,
)

import workloads
from peers.interface import PeerSizes
from peers.registry import LOG, PEERS, SEARCH, Entry
from rounds import in_short_slices

Job = Callable[[], int]
"""Does what a round has of a job and returns how many operations that were."""

LAST = 50
TOP = 10


def log_jobs(peer: Any, sizes: PeerSizes) -> dict[str, Job]:
    """Return the jobs of those who keep messages."""
    turn = cycle(workloads.texts())
    said = list(islice(turn, 2 * LAST))
    peer.append_many(said)
    for text in islice(turn, LAST // 2):
        said.append(text)
        peer.append(text)
    check_last(peer, said)

    def append() -> int:
        for text in islice(turn, sizes.appends):
            peer.append(text)
        return sizes.appends

    def append_many() -> int:
        peer.append_many(list(islice(turn, sizes.batch_events)))
        return sizes.batch_events

    def read() -> int:
        for _ in range(sizes.reads):
            assert len(peer.last(LAST)) == LAST
        return sizes.reads

    return {"append": append, "batch": append_many, "read last 50": read}


def check_last(peer: Any, said: Sequence[workloads.Text]) -> None:
    """Check that a peer gives the last messages and no others, the oldest of them first: else it does another job."""
    found = list(map(str, peer.last(LAST)))
    expected = [text.content for text in said[-LAST:]]
    assert len(found) == LAST, f"{len(found)} messages where {LAST} were asked for"
    assert all(text in message for text, message in zip(expected, found, strict=True)), "not the last ones, in order"


def window_jobs(peer: Any, sizes: PeerSizes) -> dict[str, Job]:
    """Return the job of those who keep a window."""

    def step() -> int:
        for _ in range(sizes.steps):
            assert abs(peer.step() - workloads.WINDOW_MESSAGES) <= workloads.WINDOW_MESSAGES // 5
        return sizes.steps

    return {"append, evict, read all": step}


class Searching:
    """The vectors that everybody gets, and how much of the exact answer a peer gives."""

    def __init__(self, peer: Any, sizes: PeerSizes) -> None:
        from rows.search import vectors  # noqa: PLC0415 - only searches need it

        self._peer = peer
        self._sizes = sizes
        self._vectors = _normalised(vectors(sizes.vectors, 1))
        self._queries = _normalised(vectors(64, 2))
        self._spare = cycle(_normalised(vectors(256, 3)))
        self._places = count(sizes.vectors)
        begin = time.perf_counter_ns()
        peer.load(self._vectors)
        self.load_ns = time.perf_counter_ns() - begin
        self._nearest = getattr(peer, "nearest", peer.search)
        self.recall = {"search": self._recall(peer.search), "nearest": self._recall(self._nearest)}
        self._turn = cycle(self._queries)

    def _recall(self, search: Callable[[Any, int], list[int]]) -> float:
        """Return which part of the ten nearest of every query is found, before anything is inserted."""
        found = 0
        for query in self._queries:
            exact = set((-(self._vectors @ query)).argsort()[:TOP].tolist())
            found += len(exact & set(search(query, TOP)))
        return found / (TOP * len(self._queries))

    def search(self) -> int:
        for _ in range(self._sizes.searches):
            assert len(self._peer.search(next(self._turn), TOP)) == TOP
        return self._sizes.searches

    def nearest(self) -> int:
        """Search approximately, where a peer has another verb for that."""
        for _ in range(self._sizes.searches):
            assert len(self._nearest(next(self._turn), TOP)) == TOP
        return self._sizes.searches

    def insert(self) -> int:
        for _ in range(self._sizes.inserts):
            self._peer.insert(next(self._places), next(self._spare))
        return self._sizes.inserts


def _normalised(rows: Any) -> Any:
    return rows / (rows**2).sum(axis=1, keepdims=True) ** 0.5


def prepared(entry: Entry, peer: Any, sizes: PeerSizes) -> tuple[dict[str, Job], dict[str, Any]]:
    """Return the jobs of a peer, and what was found while it got ready."""
    if entry.kind == LOG:
        return log_jobs(peer, sizes), {}
    if entry.kind == SEARCH:
        searching = Searching(peer, sizes)
        facts = {"recall": searching.recall, "load_ns": searching.load_ns / sizes.vectors}
        return {"search": searching.search, "nearest": searching.nearest, "insert": searching.insert}, facts
    return window_jobs(peer, sizes), {}


def serve(entry: Entry, directory: Path, sizes: PeerSizes) -> None:
    """Do a round of every job that is asked for, until nothing more is."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    peer = entry.driver().open_peer(directory, sizes)
    try:
        jobs, facts = prepared(entry, peer, sizes)
        settings = peer.settings._asdict()
        print(json.dumps({"jobs": list(jobs), "version": entry.version, **settings, **facts}), file=answers, flush=True)
        for line in sys.stdin:
            begin = time.perf_counter_ns()
            operations = jobs[line.strip()]()
            nanoseconds = time.perf_counter_ns() - begin
            print(json.dumps(nanoseconds / operations), file=answers, flush=True)
    finally:
        peer.close()


if __name__ == "__main__":
    in_short_slices(serve, PEERS[sys.argv[1]], Path(sys.argv[2]), PeerSizes(*json.loads(sys.argv[3])))
