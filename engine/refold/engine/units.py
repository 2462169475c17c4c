"""Vectors of length 1: from other rows where they have them, from an open batch, from the log."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from refold.engine.loader import Loader
from refold.errors import StoreCorrupt
from refold.event import Event
from refold.limits import VECTORS_READ_COUNT
from refold.renewal import FLOAT_BYTES
from refold.store.columns import Array
from refold.store.normalising import normalised

if TYPE_CHECKING:
    from refold.engine.stock import Stock

DECIMALS: Final = 6
"""Of a cosine that an event records."""


def vector_of(event: Event) -> bytes:
    """Return the vector that an event holds, as raw float32."""
    vector: bytes = getattr(event, "vector")  # noqa: B009 - several kinds of events have one
    return vector


def unit(packed: bytes) -> Array:
    """Return a vector of the length 1, from raw float32."""
    found: Array = normalised(packed, len(packed) // 4)[0]
    return found


def exact(one: Array, other: Array) -> float:
    """Return the cosine of two unit vectors to 6 decimals: the same wherever they stand, and on every machine."""
    product = float(np.dot(one.astype(np.float64), other.astype(np.float64)))
    return round(max(-1.0, min(1.0, product)), DECIMALS)


class Units:
    """Reads the vectors of events; needs no lock."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def load(
        self,
        seqs: Sequence[int],
        donors: "Sequence[Stock]" = (),
        pending: Sequence[Event] = (),
        *,
        dimensions: int,
    ) -> Array:
        """Return the vectors at seqs, of length 1: those of open batches are negative, and in ``pending``.

        One that was erased is all zeros: nothing is like it.
        """
        read = partial(self._read, pending=pending, dimensions=dimensions)
        wanted = np.asarray(seqs, np.int64)
        lent = _lent(wanted, donors)
        missing = np.flatnonzero(~lent[0]) if lent is not None else np.arange(len(wanted))
        found = [
            read(wanted[missing[begin : begin + VECTORS_READ_COUNT]].tolist())
            for begin in range(0, len(missing), VECTORS_READ_COUNT)
        ]
        if lent is None:
            return found[0] if len(found) == 1 else np.concatenate(found)
        if found:
            lent[1][missing] = np.concatenate(found)
        return lent[1]

    def _read(self, seqs: Sequence[int], *, pending: Sequence[Event], dimensions: int) -> Array:
        raw: dict[int, bytes] = {seq: vector_of(pending[-1 - seq]) for seq in seqs if seq < 0}
        stored = sorted({seq for seq in seqs if seq > 0})
        raw |= zip(stored, self._loader.vectors(stored), strict=True)
        sizes = {len(packed) for packed in raw.values()}
        if sizes - {0, dimensions * FLOAT_BYTES}:
            message = f"vectors at seqs {seqs[0]} to {seqs[-1]} are of {sorted(sizes)} bytes; run `refold verify`"
            raise StoreCorrupt(message)
        there = [place for place, seq in enumerate(seqs) if raw.get(seq)]
        if len(there) == len(seqs):
            return normalised(b"".join(raw[seq] for seq in seqs), dimensions)
        units: Array = np.zeros((len(seqs), dimensions), np.float32)
        if there:
            units[there] = normalised(b"".join(raw[seqs[place]] for place in there), dimensions)
        return units


def _lent(wanted: Array, donors: "Sequence[Stock]") -> tuple[Array, Array] | None:
    """Return which of the vectors other rows have, and lines in which those are filled in; ``None`` without donors."""
    if not donors:
        return None
    is_lent: Array = np.zeros(len(wanted), np.bool_)
    units: Array = np.empty((len(wanted), donors[0].shelf.dimensions), np.float32)
    for donor in donors:
        frame = donor.shelf.now().frame
        standing = np.argsort(frame.sources, kind="stable")
        known = frame.sources[standing]
        places = known.searchsorted(wanted)
        found = ~is_lent & (np.append(known, -1)[places] == wanted)
        units[found] = frame.matrix[standing[places[found]]]
        is_lent |= found
    return is_lent, units
