"""The vectors of messages in the store, each made by an embedder and kept so that nothing is embedded twice.

A row is for one message and one embedder. All rows are a cache: a message without one is found by its words until it is
embedded again.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from refold.limits import CHECKPOINT_ROWS_MAX, PAGE_EVENTS
from refold.log.protocol import Log, Row, scan
from refold.log.record import SEQ
from refold.text import blake2b

_HASH_BYTES: Final = 8
_KEY: Final = Struct(f">QI{_HASH_BYTES}s")


class VectorModel(NamedTuple):
    """An embedder as rows name it, with the number of dimensions of its vectors."""

    hash: bytes
    dimensions: int

    @classmethod
    def of(cls, name: str, dimensions: int) -> "VectorModel":
        """Return the embedder with a name and a number of dimensions."""
        return cls(blake2b(f"{dimensions} {name}".encode(), digest_size=_HASH_BYTES).digest(), dimensions)


def pack_row(model: VectorModel, place: tuple[int, int], vector: bytes) -> Row:
    """Return the row of a packed vector of a message, given by seq and place, with a checksum."""
    return _row(_KEY.pack(*place, model.hash), vector)


def move_row(key: bytes, seq: int, vector: bytes) -> Row:
    """Return the row of a packed vector for a message whose event has another seq now."""
    return _row(SEQ.pack(seq) + key[SEQ.size :], vector)


def _row(key: bytes, vector: bytes) -> Row:
    return "vectors", key, _digest(key, vector) + vector


def unpack_row(key: bytes, value: bytes) -> bytes | None:
    """Return the packed vector of a row, or ``None`` if its checksum is wrong."""
    vector = value[_HASH_BYTES:]
    return vector if value[:_HASH_BYTES] == _digest(key, vector) else None


def _digest(key: bytes, vector: bytes) -> bytes:
    return blake2b(key + vector, digest_size=_HASH_BYTES).digest()


def has_rows(log: Log) -> bool:
    """Return whether any vector is stored."""
    return bool(log.rows("vectors", b"", 1))


def load_vectors(
    log: Log, model: VectorModel, keys: Sequence[tuple[int, int]], *, is_dense: bool
) -> dict[tuple[int, int], bytes]:
    """Return the packed vectors that are stored for messages by a model; messages are given by seq and place, in order.

    ``is_dense`` means that these are most of the messages between the first and the last.
    """
    if not has_rows(log):
        return {}
    wanted = (_KEY.pack(seq, place, model.hash) for seq, place in keys)
    rows = (
        _rows_between(log, keys[0][0], keys[-1][0]) if is_dense else ((key, log.row("vectors", key)) for key in wanted)
    )
    found: dict[tuple[int, int], bytes] = {}
    for key, value in rows:
        vector = None if value is None else unpack_row(key, value)
        seq, place, made_by = _KEY.unpack(key)
        if vector is not None and made_by == model.hash and len(vector) == model.dimensions:
            found[seq, place] = vector
    return found


def _rows_between(log: Log, first: int, last: int) -> Iterator[tuple[bytes, bytes | None]]:
    for key, value in scan(log, "vectors", b"", PAGE_EVENTS, SEQ.pack(first)):
        if key[: SEQ.size] > SEQ.pack(last):
            return
        yield key, value


def other_model_deletions(log: Log, model: VectorModel) -> Iterator[list[Row]]:
    """Yield deletions of all rows by other models, in pages."""
    page: list[Row] = []
    for key, _ in scan(log, "vectors", b"", PAGE_EVENTS):
        if not key.endswith(model.hash):
            page.append(("vectors", key, None))
        if len(page) == CHECKPOINT_ROWS_MAX:
            yield page
            page = []
    yield page


def rows_of(log: Log, seqs: Sequence[int]) -> Iterator[tuple[bytes, bytes]]:
    """Return the keys and values of the rows of events."""
    if has_rows(log):
        for seq in seqs:
            yield from scan(log, "vectors", SEQ.pack(seq), PAGE_EVENTS)
