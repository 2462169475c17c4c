"""An adversary who has files of a store from after an erasure, and a list of what the erased body may have said.

He is told everything but that one body: every other field, every other body of its record, which bodies were erased
before which. He puts each candidate in the place of the body, under every salt that stands in a record of his files,
and looks for the digest, and for the link that it would give, anywhere in the bytes of those files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from refold.event import FLAG_ERASED
from refold.fold import strip_body
from refold.limits import HASH_BYTES
from refold.log.record import HEAD_BEGIN, Columns, Head, Record, digest_of, encode, link_after
from refold.text import blake2b
from tests.support.rows import Rows


class Taken(NamedTuple):
    """What somebody took of a store at some time: its records in order, and every 32 bytes of its files."""

    records: list[Record]
    windows: set[bytes]

    def record(self, last_seq: int) -> Record:
        """The record that ends with a seq."""
        return next(record for record in self.records if record.last_seq == last_seq)


def taken(store: Path) -> Taken:
    """Takes what there is of a closed store."""
    rows = Rows(store)
    records = [Record(packed) for _, packed in rows.all("log")]
    rows.close()
    windows = set[bytes]()
    for path in store.iterdir():
        content = path.read_bytes()
        windows.update(content[begin : begin + HASH_BYTES] for begin in range(len(content) - HASH_BYTES + 1))
    return Taken(records, windows)


class Secret(NamedTuple):
    """A record as it was before anything was erased from it, and which of its events were erased in which order."""

    before: Record
    previous: bytes
    """The link of the record in front of it."""
    erased: Sequence[int]


def contents(secret: Secret, target: int, candidate: bytes, salts: Iterable[bytes]) -> Iterator[bytes]:
    """Everything that the record ever was while the target's body was there, if that is the candidate."""
    before = secret.before
    columns = before.to_columns()
    marks, arrays = list(columns.marks), list(columns.arrays)
    arrays[target] = candidate
    for gone in (None, *secret.erased[: secret.erased.index(target)]):
        if gone is not None:
            marks[gone] |= FLAG_ERASED
            arrays[gone] = strip_body(arrays[gone])
        held = Columns(
            columns.streams,
            columns.owners,
            marks,
            columns.actors,
            columns.causes,
            columns.occurred,
            arrays,
        )
        for salt in salts:
            # An erased record names the digest of what it was first, which is the adversary's to see.
            for origin in {b"", before.digest()} if gone is not None else {b""}:
                yield encode(Head(before.first_seq, before.time_ns, before.command, salt, origin), held)


def confirmed(secret: Secret, target: int, candidates: Mapping[str, bytes], files: Sequence[Taken]) -> list[str]:
    """The candidates for the array of the event at a place that files of the store confirm."""
    windows = set[bytes]().union(*(each.windows for each in files))
    salts = {record.salt for each in files for record in each.records}
    found: list[str] = []
    by_size: dict[int, list[str]] = {}
    for name, array in candidates.items():
        by_size.setdefault(len(array), []).append(name)
    for size, names in by_size.items():
        # A record of the same sizes is the same bytes in front of the array and behind it.
        mark = bytes(range(256)) * (1 + size // 256)
        for content in contents(secret, target, mark[:size], salts):
            front, _, back = content.partition(mark[:size])
            begun = blake2b(front, digest_size=HASH_BYTES)
            for name in names:
                hashed = begun.copy()
                hashed.update(candidates[name] + back)
                digest = hashed.digest()
                if digest in windows or link_after(secret.previous, digest) in windows:
                    found.append(name)
    return sorted(set(found))


def is_what_it_was(secret: Secret) -> bool:
    """Whether a record is built anew as it was: else nothing would ever be confirmed."""
    place = secret.erased[0]
    (content,) = contents(secret, place, secret.before.array(place), [secret.before.salt])
    link = link_after(secret.previous, digest_of(content))
    return (content, link) == (secret.before.content, secret.before.link) and len(content) > HEAD_BEGIN
