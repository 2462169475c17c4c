"""Checkpoint rows: cached states of streams, as pointers and small values, never needed for an answer.

A *kept* row stands at every 256th event of a stream (or after as many events as its window holds messages, so that
the cost of packing stays a constant per event); ``at`` starts from it. A *floating* row is written when a store is
closed or its tail has grown too long, and replaced by the next row. Rows wait in RAM and travel with the next commit.

Every row names the events since a kept one, not always the last: several processes write rows, each from what it knows.
So a kept row stays for ever, and a row in RAM that would take its place is not written.
"""

from typing import Final, NamedTuple

import msgspec

from refold.errors import StoreCorrupt
from refold.limits import CHECKPOINT_EVENTS
from refold.store.protocol import Log, Row
from refold.store.record import SEQ

_LAST_SEQ: Final = b"\xff" * 8
APPLIED_KEY: Final = bytes(12)
"""The key of no stream: the row stands among the checkpoint rows that it speaks of, and goes when they go."""


class Checkpoint(NamedTuple):
    """A cached state: the stream's version at a seq, what ``fold.pack`` gave, and the seqs since the last kept row."""

    seq: int
    version: int
    kept: bool
    inline: bytes
    pointed: list[int]
    since: list[int]

    @property
    def due(self) -> int:
        """Return how many events may follow before the next kept row."""
        return max(CHECKPOINT_EVENTS, len(self.pointed))


class _Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    version: int
    kept: bool
    inline: bytes
    pointed: list[int]
    since: list[int]


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(_Stored).decode


def _key(number: int, seq: int) -> bytes:
    return number.to_bytes(4, "big") + SEQ.pack(seq)


def number_of(key: bytes) -> int:
    """Return the stream whose checkpoint row has the key."""
    return int.from_bytes(key[:4], "big")


class Checkpoints:
    """The rows of all streams: those stored, and those waiting for the next commit; none at all without a log."""

    def __init__(self, log: Log | None) -> None:
        self._log = log
        self._waiting: list[Row] = []
        self.is_shared = False
        """Whether other processes were seen to write: what is known here of the stored rows may be old."""
        self._fresh: dict[int, dict[int, Checkpoint]] = {}

    def put(self, number: int, row: Checkpoint, *, replaces: int) -> None:
        """Let a row wait for the next commit; it takes the place of the floating row at ``replaces``."""
        self._fresh.setdefault(number, {})[row.seq] = row
        packed = _ENCODE(_Stored(row.version, row.kept, row.inline, row.pointed, row.since))
        self._waiting.append(("checkpoints", _key(number, row.seq), packed))
        if replaces and replaces != row.seq:
            # Behind its successor: rows may be written in several transactions, and a stream must never be without.
            self._waiting.append(("checkpoints", _key(number, replaces), None))
            self._fresh[number].pop(replaces, None)

    def keep(self, row: Row) -> None:
        """Let a row of another cache wait for the next commit."""
        self._waiting.append(row)

    def waiting(self) -> list[Row]:
        """Return the rows that the next commit is to carry."""
        return self._waiting

    def allowed(self, rows: list[Row]) -> list[Row]:
        """Return the rows without those that would take the place of another process's kept row; call it in a turn."""
        return [row for row in rows if not self._unkeeps(row)] if self.is_shared else rows

    def _unkeeps(self, row: Row) -> bool:
        table, key, packed = row
        if self._log is None or table != "checkpoints" or key == APPLIED_KEY:
            return False
        if packed is not None and checkpoint_of(key, packed).kept:
            return False
        stored = self._log.row(table, key)
        return stored is not None and checkpoint_of(key, stored).kept

    def written(self) -> None:
        """Forget the waiting rows: they are stored now."""
        self._waiting = []
        self._fresh = {}

    def last(self, number: int) -> Checkpoint | None:
        """Return the last row of a stream."""
        return self.before(number, int.from_bytes(_LAST_SEQ, "big"))

    def before(self, number: int, seq: int) -> Checkpoint | None:
        """Return the last row of a stream whose seq is at most ``seq``."""
        fresh = [row for at, row in self._fresh.get(number, {}).items() if at <= seq]
        if fresh:
            return max(fresh, key=lambda row: row.seq)
        found = self._log.row_before("checkpoints", _key(number, seq)) if self._log else None
        return _checkpoint(number, found) if found else None

    def after(self, number: int, seq: int) -> Checkpoint | None:
        """Return the first row of a stream whose seq is greater than ``seq``."""
        for found in self._log.rows("checkpoints", _key(number, seq + 1), 1) if self._log else ():
            row = _checkpoint(number, found)
            if row is not None:
                return row
        fresh = [row for at, row in self._fresh.get(number, {}).items() if at > seq]
        return min(fresh, key=lambda row: row.seq) if fresh else None


def _checkpoint(number: int, found: tuple[bytes, bytes]) -> Checkpoint | None:
    key, packed = found
    return checkpoint_of(key, packed) if number_of(key) == number else None


def checkpoint_of(key: bytes, packed: bytes) -> Checkpoint:
    """Return the checkpoint of a stored row."""
    try:
        return Checkpoint(SEQ.unpack(key[4:])[0], *msgspec.structs.astuple(_DECODE(packed)))
    except msgspec.DecodeError as error:
        message = f"the checkpoint row {key.hex()} cannot be read ({error}); run `refold verify` and restore a backup"
        raise StoreCorrupt(message) from error
