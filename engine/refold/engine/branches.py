"""Branches: what one branch of a memory sees at a seq, and in which streams two such states may differ."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from refold.engine.damage import guarded
from refold.engine.keys import Names
from refold.engine.reading import Reading
from refold.engine.streams import STORE_STREAM
from refold.limits import PAGE_EVENTS
from refold.store.record import BRANCH, STAMP, branch_of
from refold.views.settings import SETTINGS, Branch


class Side(NamedTuple):
    """A state: of a whole branch at a seq, or of one of its streams."""

    branch: int
    seq: int
    stream: str | None = None


def branches_at(engine: Reading, at: int | None) -> list[Branch]:
    """Return the branches that were there at a seq, in the order of their forking."""
    return engine.read(STORE_STREAM, lambda state: list(state.part(SETTINGS).branches), at)


def name_of(engine: Reading, branch: int) -> str:
    """Return the name of a branch, empty for the main line."""
    return branches_at(engine, None)[branch - 1].name if branch else ""


def names(engine: Reading) -> Names:
    """Return what the numbers in events stand for."""
    known = ["", *(branch.name for branch in branches_at(engine, None))]
    return Names(engine.streams.name_of, known.__getitem__, engine.streams.branch_of)


def request_prefix(branch: int) -> bytes:
    """Return what is hashed in front of a request's id: the same id in another branch is another request."""
    return b"branch" + BRANCH.pack(branch) if branch else b"id"


def descends(branches: list[Branch], branch: int, elder: int) -> bool:
    """Return whether a branch was forked from another one, directly or through others."""
    while branch:
        branch = branches[branch - 1].parent
        if branch == elder:
            return True
    return False


def depth_of(branches: list[Branch], branch: int) -> int:
    """Return how many forks lie between a branch and the main line."""
    depth = 0
    while branch:
        branch, depth = branches[branch - 1].parent, depth + 1
    return depth


def differing(engine: Reading, a: Side, b: Side) -> set[str]:
    """Return the names of the streams that have events on one side only, leaving out the store's own."""
    with engine.state_lock:
        bounds = [engine.streams.bounds(side.branch, side.seq) for side in (a, b)]
        spans = {
            branch: sorted(bound.get(branch, _begin(engine, branch)) for bound in bounds)
            for branch in {*bounds[0], *bounds[1]}
        }
        begin = min((low for low, high in spans.values() if low < high), default=0)
        end = max((high for low, high in spans.values() if low < high), default=0)
    numbers = {
        number
        for seq, number, branch in _heads(engine, begin, end)
        if branch in spans and spans[branch][0] < seq <= spans[branch][1]
    }
    return {engine.streams.name_of(number) for number in numbers} - {STORE_STREAM}


def _begin(engine: Reading, branch: int) -> int:
    """Return the seq behind which a branch may have events."""
    return engine.streams.branch(branch).seq if branch else 0


def _heads(engine: Reading, after: int, until: int) -> Iterator[tuple[int, int, int]]:
    """Return seq, stream and branch of the events with ``after < seq <= until``."""
    while after < until:
        seqs = range(after + 1, min(after + PAGE_EVENTS, until) + 1)
        yield from zip(seqs, *_places(engine.log.read_at(seqs)), strict=True)
        after = seqs[-1]


@guarded
def _places(records: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """Return the streams and the branches of records."""
    return [STAMP.unpack_from(record)[0] for record in records], [branch_of(record) for record in records]
