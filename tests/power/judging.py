"""What must hold of a store after a power cut."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from refold import Memory
from refold.store.building import SITE_SUFFIX
from tests.bounds import Clock, seeded_bytes
from tests.power.workloads import witness_of

NOTHING: Final = -1
"""Acknowledged so far, before the store was opened for the first time; 0 is an empty store."""


class Acknowledged(NamedTuple):
    """The last seq that was acknowledged, and the names of the backups and recovered stores that were."""

    seq: int = NOTHING
    beside: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Expected:
    """The whole log as it was in the end, and the seqs at which an atomic group of events ends."""

    events: Sequence[Any]
    ends: frozenset[int]


def judge(path: Path, expected: Expected, acknowledged: Acknowledged) -> list[str]:
    """Return what is wrong with the store at a path and beside it; damage may raise anything: each is a finding."""
    try:
        beside = list(_beside(path, expected, acknowledged.beside))
        return [*_findings(path, expected, acknowledged.seq), *beside]
    except Exception as error:  # noqa: BLE001 - whatever opening or reading raises is what a user would see
        return [f"{type(error).__name__}: {error}"]


def _findings(path: Path, expected: Expected, acknowledged: int) -> Iterator[str]:
    is_there = (path / "data.mdb").exists()
    if not is_there and acknowledged > NOTHING:
        yield f"the store is gone, and up to seq {acknowledged} it was acknowledged"
        return
    with _opened(path) as memory:
        if not is_there and memory.head:
            yield f"a fresh store begins at seq {memory.head}"
        yield from _log_findings(memory, expected, acknowledged)
        yield from _sound("after the cut", memory)
        yield from _still_writable(memory)
        head, state_hash = memory.head, memory.state_hash()
    with _opened(path) as again:
        if (again.head, again.state_hash()) != (head, state_hash):
            yield f"reopened, seq {head} is seq {again.head}, or has another state"


def _beside(path: Path, expected: Expected, acknowledged: frozenset[str]) -> Iterator[str]:
    """Check that every directory beside the store is a whole one, or says that it is not finished."""
    there = {found.name for found in path.parent.iterdir() if found.is_dir()} - {path.name}
    for name in sorted(acknowledged - there):
        yield f"{name} is gone, and it was acknowledged"
    for name in sorted(there):
        if not name.startswith("."):
            yield from (f"{name}: {finding}" for finding in _copied(path.with_name(name), expected))
        elif not name.endswith(SITE_SUFFIX) and not name.startswith(f".{path.name}."):
            yield f"{name} does not say what it is"


def _copied(path: Path, expected: Expected) -> Iterator[str]:
    manifest = path / "backup.json"
    if path.name.startswith("backup"):
        told, found = json.loads(manifest.read_text()), (path / "data.mdb").read_bytes()
        if told["sha256"] != hashlib.sha256(found).hexdigest():
            yield "the file is not the one that the manifest speaks of"
    with Memory(path, readonly=True) as memory:
        yield from _log_findings(memory, expected, 0)
        yield from _sound("after the cut", memory)


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
    if found != expected.events[: len(found)]:
        pairs = zip(found, expected.events, strict=False)
        seq = next((seq for seq, (one, other) in enumerate(pairs, 1) if one != other), len(expected.events) + 1)
        yield f"the event at seq {seq} is not the one that was written"


def _sound(when: str, memory: Memory) -> Iterator[str]:
    """Compare every state, from checkpoints and tail, with the replay from the first event, then verify all of it."""
    if memory.state_hash() != memory.replay_hash():
        yield f"{when} the state at seq {memory.head} is not the replay of the log"
    report = memory.verify()
    if not report.ok:
        yield f"{when} verify found {report.findings[0]} and {len(report.findings) - 1} more"


def _still_writable(memory: Memory) -> Iterator[str]:
    head = memory.head
    message = memory.conversation("after the cut").append("user", "Is anybody there?")
    if message.seq != head + 2:
        yield f"opening a conversation at seq {head} gave its message seq {message.seq}"
    yield from _sound("after a write", memory)
