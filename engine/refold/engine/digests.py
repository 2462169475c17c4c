"""Digests of the views of live streams: computed when a hash is asked for, kept until the stream moves, and stored.

A stored digest is a cache like a checkpoint: with it, hashing a store loads only the streams that have moved since.
"""

from typing import Final

import msgspec

from refold import fold
from refold.engine.loader import Loader
from refold.engine.slots import Slot
from refold.engine.streams import Streams, number_key
from refold.errors import StoreCorrupt
from refold.store.protocol import Log, Row

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(tuple[int, list[tuple[str, bytes]]]).decode


def digests_of(packed: bytes) -> tuple[int, list[tuple[str, bytes]]]:
    """Return the seq and the digests that a stored row holds."""
    try:
        return _DECODE(packed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"a row of digests cannot be read ({error}); run `refold verify` and restore a backup"
        raise StoreCorrupt(message) from error


class Digests:
    """The digests of all streams: those stored, and those computed since the last flush."""

    def __init__(self, log: Log, streams: Streams, loader: Loader) -> None:
        self._log = log
        self._streams = streams
        self._loader = loader
        self._fresh: dict[int, Slot] = {}

    def of(self, slot: Slot) -> list[tuple[str, bytes]]:
        """Return the digests of a stream's views at its last event."""
        if slot.base is not None and not slot.number:
            elder = self._streams.at_number(slot.base[0])
            if elder.seq != slot.seq:
                return fold.digests(self._loader.live(slot))
            slot = elder
        if slot.digest is None:
            row = self._log.row("digests", number_key(slot.number))
            slot.digest = None if row is None else digests_of(row)
        if slot.digest is None or slot.digest[0] != slot.seq:
            slot.digest = (slot.seq, fold.digests(self._loader.live(slot)))
            self._fresh[slot.number] = slot
        return slot.digest[1]

    def take(self) -> list[Row]:
        """Return rows for what was computed since the last call and still is the digest of the stream's last event."""
        fresh, self._fresh = self._fresh, {}
        return [
            ("digests", number_key(slot.number), _ENCODE(slot.digest))
            for slot in fresh.values()
            if slot.digest is not None and slot.digest[0] == slot.seq
        ]
