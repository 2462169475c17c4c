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


class Receipt(Struct, frozen=True):
    """What an erasure reached: seqs asked for and derived from them, new names of streams, cached rows that went.

    ``occurrences`` is how often one of ``markers`` texts and values of the erased bodies, those inside of others too,
    was found afterwards in ``files`` files of the store, as they are or in base64: 0, unless something that was not
    erased says the same, such as the name of a tool that others call. Those in ``markers_too_short`` were not looked
    for. ``beyond_reach`` names where copies may be that no store can reach.
    """

    seqs: tuple[int, ...]
    derived: tuple[int, ...]
    streams: tuple[str, ...]
    cached_rows: int
    markers: int
    markers_too_short: int
    files: int
    searched_bytes: int
    occurrences: int
    beyond_reach: tuple[str, ...]


class Loaded(Struct, frozen=True):
    """What ``load`` did: the events it appended, none where the file had been loaded before."""

    events: int
    streams: int
    repeated: bool = False


class Backup(Struct, frozen=True):
    """A backup that was made: where, of which store (its id in hex), up to which event, and what it must hash to.

    ``head`` is the seq of its last event and ``link`` the hash chain's there; ``state_hash`` is that of the main memory
    at ``head``, ``sha256`` that of the data file, of ``data_bytes`` bytes.
    """

    path: str
    store: str
    head: int
    streams: int
    time_ns: int
    state_hash: str
    link: str
    data_bytes: int
    sha256: str


class Recovered(Struct, frozen=True):
    """A store that was recovered: where, of which store, and what it holds.

    Its log is the old one's up to ``seq``. ``head`` is greater where one more event had to say which bodies were erased
    later on; ``state_hash`` is the old memory's at ``seq`` in any case.
    """

    path: str
    store: str
    seq: int
    head: int
    streams: int
    state_hash: str
    link: str
