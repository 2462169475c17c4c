"""What must hold of a store after a power cut."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from refold import Memory, Recorded, fold
from refold.event import FLAG_ERASED
from refold.views.store import ERASED_PREFIX
from tests.rigs import judge
from tests.rigs.power.workloads import witness_of
from tests.support.bounds import Clock, seeded_bytes

TEXT: Final = re.compile(rb"(?<![g-v])[g-v]{12}")
"""How every text of a workload begins."""

ERASED_NAME: Final = f"/{ERASED_PREFIX}"
NOTHING: Final = -1
"""Acknowledged so far, before the store was opened for the first time; 0 is an empty store."""


class Acknowledged(NamedTuple):
    """The last seq that was acknowledged, the names of backups and recovered stores, and the seqs that were erased."""

    seq: int = NOTHING
    beside: frozenset[str] = frozenset()
    erased: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Expected:
    """The whole log as it was in the end, and the seqs at which an atomic group of events ends."""

    events: Sequence[Recorded]
    ends: frozenset[int]
    originals: Mapping[int, bytes]
    """What events said, encoded, before something was erased."""


def judged(path: Path, expected: Expected, acknowledged: Acknowledged) -> list[str]:
    """Return what is wrong with the store at a path and beside it; damage may raise anything: each is a finding."""
    try:
        beside = list(_beside(path, expected, acknowledged.beside))
        return [*_findings(path, expected, acknowledged), *beside]
    except Exception as error:  # noqa: BLE001 - whatever opening or reading raises is what a user would see
        return [f"{type(error).__name__}: {error}"]


def _findings(path: Path, expected: Expected, acknowledged: Acknowledged) -> Iterator[str]:
    is_there = (path / "data.mdb").exists()
    if not is_there and acknowledged.seq > NOTHING:
        yield f"the store is gone, and up to seq {acknowledged.seq} it was acknowledged"
        return
    with _opened(path) as memory:
        if not is_there and memory.head:
            yield f"a fresh store begins at seq {memory.head}"
        yield from _log_findings(memory, expected, acknowledged.seq)
        yield from _erasure_findings(memory, acknowledged.erased)
        yield from judge.unsound(memory)
        yield from judge.remains(path, _erased_texts(expected, _erased(memory)))
        yield from judge.unwritable(memory, memory.head)
        head, state_hash = memory.head, memory.state_hash()
    with _opened(path) as again:
        if (again.head, again.state_hash()) != (head, state_hash):
            yield f"reopened, seq {head} is seq {again.head}, or has another state"


def _beside(path: Path, expected: Expected, acknowledged: frozenset[str]) -> Iterator[str]:
    """Check that every directory beside the store is a whole one, or says that it is not finished."""
    copies, findings = judge.beside(path, acknowledged)
    yield from findings
    for copy in copies:
        yield from (f"{copy.name}: {finding}" for finding in _copied(copy, expected))


def _copied(path: Path, expected: Expected) -> Iterator[str]:
    if path.name.startswith("backup"):
        yield from judge.mismatched(path)
    with Memory(path, readonly=True) as memory:
        yield from _log_findings(memory, expected, 0)
        yield from judge.unsound(memory)
        yield from judge.remains(path, _erased_texts(expected, _erased(memory)))


def _opened(path: Path) -> Memory:
    witness = witness_of(path)
    known = witness if Path(witness).exists() else None
    return Memory(path, witness=known, clock_ns=Clock(), random_bytes=seeded_bytes(0))


def _log_findings(memory: Memory, expected: Expected, acknowledged: int) -> Iterator[str]:
    """Compare with the log as it was in the end, of which this must be a beginning that cuts no group in two."""
    found = list(memory.events())
    if len(found) < acknowledged:
        yield f"seqs {len(found) + 1} to {acknowledged} were acknowledged and are missing"
    if len(found) not in expected.ends:
        yield f"the log ends at seq {len(found)}, inside a command"
    for seq, recorded in enumerate(found, 1):
        if seq > len(expected.events) or not _is_as_written(recorded, expected.events[seq - 1], expected.originals):
            yield f"the event at seq {seq} is not the one that was written"
            return


def _is_as_written(found: Recorded, final: Recorded, originals: Mapping[int, bytes]) -> bool:
    """Return whether an event is what was written: as it is in the end, or as it was before it was erased."""
    if found == final:
        return True
    stamp = found.stamp
    if ERASED_NAME in final.stamp.stream:
        stamp = replace(stamp, stream=final.stamp.stream)
    if stamp.erased:
        return (found.event, stamp) == final
    is_same_place = replace(stamp, flags=stamp.flags | FLAG_ERASED) == final.stamp
    return is_same_place and fold.encode(found.event) == originals.get(stamp.seq)


def _erased(memory: Memory) -> list[int]:
    return [stamp.seq for _, stamp in memory.events() if stamp.erased]


def _erasure_findings(memory: Memory, acknowledged: frozenset[int]) -> Iterator[str]:
    """Check that what was said to be erased is."""
    for seq in sorted(acknowledged.difference(_erased(memory))):
        yield f"the erasure of seq {seq} was acknowledged, and the event is there"


def _erased_texts(expected: Expected, erased: Iterable[int]) -> Iterator[tuple[str, bytes]]:
    """Yield what the erased events said; a text begins with what no other text has."""
    for seq in erased:
        yield from ((f"what seq {seq}", text) for text in TEXT.findall(expected.originals[seq]))
