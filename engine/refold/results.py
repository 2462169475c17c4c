"""What the public verbs hand out besides messages and notes: frozen Structs of plain values."""

from typing import Any

import msgspec
from msgspec import Struct


class Scratchpad(Struct, frozen=True):
    """The whole scratchpad of a conversation: its keys, sorted, and its notes, in order."""

    entries: dict[str, str]
    notes: list[str]

    def to_json(self) -> str:
        """Return the scratchpad as one JSON object with ``entries`` and ``notes``."""
        return msgspec.json.encode(self).decode()


class Change(Struct, frozen=True):
    """One difference between two states: where it is, and what stood there before and after."""

    stream: str
    view: str
    path: tuple[str | int, ...]
    before: Any
    after: Any


class Finding(Struct, frozen=True):
    """One thing that is not as it should be: what was checked, at which seq (0: none), and what was found."""

    check: str
    seq: int
    message: str


class Report(Struct, frozen=True):
    """What ``verify`` found; ``ok`` when that is nothing."""

    ok: bool
    findings: tuple[Finding, ...]
    events: int
    streams: int
    state_hash: str
    first_bad_seq: int = 0
    """The lowest seq that a finding names, 0 where none does."""


class Stats(Struct, frozen=True):
    """Counts of a store: events, streams by kind, and bytes on disk (in RAM for ``Memory()``)."""

    events: int
    conversations: int
    projects: int
    profiles: int
    journals: int
    snapshots: int
    store_bytes: int
    path: str | None


class Loaded(Struct, frozen=True):
    """What ``load`` did: the events it appended, none where the file had been loaded before."""

    events: int
    streams: int
    repeated: bool = False
