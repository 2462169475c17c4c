"""refold beside its peers, each in a process of its own that does a round when it is its turn."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from peers.interface import FULL, LARGE, QUICK, TINY, PeerSizes
from peers.registry import LOG, PEERS, SEARCH, WINDOW, of_kind
from rounds import Target, median, ratio_of
from rows.table import Options, Row, recalled, skipped

SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}
TARGETS = {
    ("search: nearest", "Chroma", LARGE.vectors): 3.0,
    ("search: nearest", "sqlite-vec", LARGE.vectors): 60.0,
}
"""How often a peer's rate is to be reached, from so many vectors on."""

RECALL = 0.98
WRITING = {"append", "batch", "insert"}
"""Jobs that are compared only between those whose writes survive the same."""

APPROXIMATE = {"Chroma"}
"""Peers whose search is that of a graph: they are held against our nearest, and against no exact search."""

_HERE = Path(__file__).resolve().parent.parent


class Child:
    """A process that drives one peer."""

    def __init__(self, name: str, directory: Path, sizes: PeerSizes) -> None:
        directory.mkdir(parents=True)
        command = [sys.executable, "-m", "peers.child", name, str(directory), json.dumps(sizes)]
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        paths = [str(path) for path in (_HERE, *(Path(each).resolve() for each in given))]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
        self._errors = (directory / "errors").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=directory,
        )
        self.facts: dict[str, Any] = self._answer()

    def round(self, job: str) -> float:
        """Do a round of a job and return what one operation took, in nanoseconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{job}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"the peer ended with {self._process.returncode}: {self._errors.read()[-2_000:]}")
        return json.loads(line)

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()


def log_rows(options: Options) -> Iterator[Row]:
    """Measure those who keep messages."""
    yield from _rows(LOG, options, SIZES[options.peer_sizes])


def search_rows(options: Options) -> Iterator[Row]:
    """Measure those who find vectors."""
    yield from _rows(SEARCH, options, SIZES[options.peer_sizes])


def large_search_rows(options: Options) -> Iterator[Row]:
    """Measure them on ten times as many vectors, where that is the size asked for."""
    sizes = SIZES[options.peer_sizes]
    yield from _rows(
        SEARCH, options._replace(peer_rounds=min(options.peer_rounds, 10)), LARGE if sizes is FULL else sizes
    )


def window_rows(options: Options) -> Iterator[Row]:
    """Measure those who keep a window."""
    yield from _rows(WINDOW, options, SIZES[options.peer_sizes])


def _rows(kind: str, options: Options, sizes: PeerSizes) -> Iterator[Row]:
    ours, *others = of_kind(kind)
    for name in others:
        if PEERS[name].reason:
            yield skipped(kind, name, PEERS[name].reason)
    there = [name for name in others if not PEERS[name].reason]
    with ExitStack() as closing:
        children: dict[str, Child] = {}
        for place, name in enumerate([ours, *there]):
            try:
                child = Child(name, options.directory / f"{kind}-{place}", sizes)
            except RuntimeError as error:
                if name == ours:
                    raise
                last = str(error).strip().splitlines()[-1]
                yield skipped(kind, name, f"it does not run here: {last}")
                continue
            children[name] = child
            closing.callback(child.close)
        for job in children[ours].facts["jobs"]:
            samples = _alternated(children, job, options.peer_rounds)
            sides = {name: Side(child.facts, samples[name]) for name, child in children.items()}
            found = [name for name in there if name in sides and not (job == "search" and name in APPROXIMATE)]
            yield from (_row(f"{kind}: {job}", name, sides[ours], sides[name], sizes.vectors) for name in found)


def _alternated(children: dict[str, Child], job: str, rounds: int) -> dict[str, list[float]]:
    """Let every peer do a round, in an order that moves on by one; the first of all is not kept."""
    names = list(children)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for place in range(rounds + 1):
        shift = place % len(names)
        for name in names[shift:] + names[:shift]:
            nanoseconds = children[name].round(job)
            if place:
                samples[name].append(nanoseconds)
    return samples


class Side(NamedTuple):
    """What a peer says of itself, and what its rounds took."""

    facts: dict[str, Any]
    samples: list[float]


def _row(job: str, name: str, ours: Side, theirs: Side, vectors: int) -> Row:
    """Return our rate over the peer's; there is no ratio for writing where what survives is not the same."""
    mine, other = ours.facts["durability"], theirs.facts["durability"]
    said = f"{theirs.facts['said']}; survives: {other}"
    verb = job.partition(": ")[2]
    if verb in theirs.facts.get("recall", {}):
        found, own = (side.facts["recall"][verb] for side in (theirs, ours))
        said += f"; {vectors:,} vectors, recall {found:.3f} (ours {own:.3f})"
    is_equal = mine == other or verb not in WRITING
    ratio = ratio_of(ours.samples, theirs.samples, "at least") if is_equal else None
    note = said if is_equal else f"not compared, because ours survives: {mine}; {said}"
    row = Row(job, median(ours.samples), f"{name} {theirs.facts['version']}", median(theirs.samples), ratio, note=note)
    return _judged(row, name, ours, vectors)


def _judged(row: Row, name: str, ours: Side, vectors: int) -> Row:
    """Return the row with what is to be reached against this peer, if anything is at this size."""
    bounds = [
        bound for (job, peer, least), bound in TARGETS.items() if (job, peer) == (row.job, name) and vectors >= least
    ]
    if not bounds or row.ratio is None:
        return row
    target = Target("at least", bounds[0])
    judged = row._replace(target=f"at least {target.bound:g} x its rate", is_met=target.is_met(row.ratio.value))
    # An exact scan finds everything: whoever is compared with it for speed alone has to find as good as all.
    return recalled(judged, RECALL, ours.facts["recall"][row.job.partition(": ")[2]])
