"""The bytes of a record and of a commit row: what the log stores and what the hash chain covers.

A record is ``header | salt | array``. The header is fixed and read without decoding the array; the array is opaque
here but for the byte where its body begins. ``engine/FORMAT.md`` draws it. Pure but for hashing.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from refold.event import FLAG_BODY_ELSEWHERE, FLAG_ERASED
from refold.limits import BRANCH_BYTES, HASH_BYTES, KEYED_HASH_BYTES, SALT_BYTES
from refold.text import blake2b

_SLICE_BYTES: Final = 2_047
"""hashlib gives up the GIL above this size; many small releases cost far more than one long hash."""

FORMAT: Final = 1
"""The format of records written by this program. A reader refuses a higher one."""

SCHEMA: Final = 1
"""The schema of an event's structural fields; a new structural field is a new schema."""

HEADER: Final = Struct(">IIqqQIHHQQIIIHHBB32s")
"""stream, version, time_ns, occurred_ns, cause, actor, flags, tag, prev_seq, command, branch, key_id, body_begin,
partition, events, schema, format, commitment."""

FRESH: Final = Struct(">IIqqQIHHQQ8xI2xHBB32s")
"""The same bytes for an event without branch, key or partition: those are zero, and not passed."""

HEADER_BYTES: Final = HEADER.size
ARRAY_BEGIN: Final = HEADER_BYTES + SALT_BYTES
PREFIX_BYTES: Final = 1
"""The array's own prefix, which says how many elements follow: erasure changes it, so the link leaves it out."""

FLAGS_BEGIN: Final = 36
FLAGS: Final = Struct(">H")
BRANCH_BEGIN: Final = 56
BRANCH: Final = Struct(">I")
UNMASKED: Final = 0xFFFF & ~(FLAG_ERASED | FLAG_BODY_ELSEWHERE)
"""Flags that the link covers: all but *erased* and *body elsewhere*, which may change later."""

STAMP: Final = Struct(">IIqqQIHH")
"""The front of the header, all that a fold needs: up to and with the tag."""

STREAM: Final = Struct(">I")
"""What comes first in a header: the number of the stream."""

SEQ: Final = Struct(">Q")
COMMIT: Final = Struct(">QQq32s")
"""first_seq, next_seq, time_ns, link."""

NO_LINK: Final = bytes(HASH_BYTES)
NO_SALT: Final = bytes(SALT_BYTES)

assert BRANCH.size == BRANCH_BYTES
assert FLAGS_BEGIN + FLAGS.size + 2 == STAMP.size
assert FRESH.size == HEADER.size


class Header(NamedTuple):
    """A header, field by field."""

    stream: int
    version: int
    time_ns: int
    occurred_ns: int
    cause: int
    actor: int
    flags: int
    tag: int
    prev_seq: int
    command: int
    branch: int
    key_id: int
    body_begin: int
    partition: int
    events: int
    schema: int
    format: int
    commitment: bytes


class CommitRow(NamedTuple):
    """One LMDB commit: the events it wrote, when, and the link of the hash chain after it."""

    first_seq: int
    next_seq: int
    time_ns: int
    link: bytes


def last_seq_of(commit: bytes) -> int:
    """Return the seq of the last event of a commit row: the row's key."""
    return int(COMMIT.unpack(commit)[1]) - 1


def header_of(record: bytes) -> Header:
    """Return the header of a record."""
    return Header._make(HEADER.unpack_from(record))


def branch_of(record: bytes) -> int:
    """Return the branch that a record belongs to."""
    return int(BRANCH.unpack_from(record, BRANCH_BEGIN)[0])


def in_branch(header: bytes, branch: int) -> bytes:
    """Return a header that was packed for the main line, of another branch."""
    return header[:BRANCH_BEGIN] + BRANCH.pack(branch) + header[BRANCH_BEGIN + BRANCH.size :]


def array_of(record: bytes) -> bytes:
    """Return the msgpack array of a record."""
    return record[ARRAY_BEGIN:]


_COMMITMENT: Final = blake2b(digest_size=HASH_BYTES)
_copy = _COMMITMENT.copy


def commit_to(salt: bytes, body: bytes) -> bytes:
    """Return the commitment to a body, of 32 bytes: BLAKE2b over salt and body.

    A long body is fed in slices: above 2,047 bytes hashlib gives up the GIL, and next to a busy thread each such
    release costs a switch interval of 5 ms.
    """
    digest = _copy()
    if len(body) <= _SLICE_BYTES - SALT_BYTES:
        digest.update(salt + body)
    else:
        digest.update(salt)
        _feed(digest, body)
    return digest.digest()


def _feed(digest: blake2b, content: bytes) -> None:
    view = memoryview(content)
    for begin in range(0, len(content), _SLICE_BYTES):
        digest.update(view[begin : begin + _SLICE_BYTES])


def link_after(previous: bytes, covered: Iterable[bytes]) -> bytes:
    """Return the next link of the chain: BLAKE2b over the previous link and what a commit's records cover."""
    content = previous + b"".join(covered)
    digest = _copy()
    if len(content) <= _SLICE_BYTES:
        digest.update(content)
    else:
        _feed(digest, content)
    return digest.digest()


def covered(record: bytes, known: Header | None = None) -> tuple[bytes, bytes]:
    """Return the parts of a record that the link covers: its header, changing flags masked, and its structural part.

    ``known`` is its header, if it has been read already.
    """
    header = record[:HEADER_BYTES]
    (flags,) = FLAGS.unpack_from(header, FLAGS_BEGIN)
    masked = header[:FLAGS_BEGIN] + FLAGS.pack(flags & UNMASKED) + header[FLAGS_BEGIN + FLAGS.size :]
    body_begin = (known or header_of(record)).body_begin
    return masked, record[ARRAY_BEGIN + PREFIX_BYTES : ARRAY_BEGIN + body_begin]


def is_intact(record: bytes, known: Header | None = None) -> bool:
    """Return whether a record's body is what its header commits to; an erased one has neither body nor salt."""
    header = known or header_of(record)
    salt, body = record[HEADER_BYTES:ARRAY_BEGIN], record[ARRAY_BEGIN + header.body_begin :]
    if header.flags & FLAG_ERASED:
        return salt == NO_SALT and not body
    return commit_to(salt, body) == header.commitment


def commitments(records: Iterable[bytes], begins: Iterable[int]) -> tuple[bytes, ...]:
    """Return the commitments of records, none of them erased, given where the body of each array begins."""
    copy, joined_max = _copy, _SLICE_BYTES
    found: list[bytes] = []
    for record, begin in zip(records, begins, strict=True):
        digest = copy()
        content = record[HEADER_BYTES:ARRAY_BEGIN] + record[ARRAY_BEGIN + begin :]
        if len(content) <= joined_max:
            digest.update(content)
        else:
            _feed(digest, content)
        found.append(digest.digest())
    return tuple(found)


def blanked(record: bytes, elements: int) -> bytes:
    """Return the erased form of a record: flag set, salt zero, the array cut to its ``elements`` structural ones."""
    header = header_of(record)
    flags = FLAGS.pack(header.flags | FLAG_ERASED)
    front = record[:FLAGS_BEGIN] + flags + record[FLAGS_BEGIN + FLAGS.size : HEADER_BYTES]
    structural = record[ARRAY_BEGIN + PREFIX_BYTES : ARRAY_BEGIN + header.body_begin]
    return front + NO_SALT + bytes([0x90 | elements]) + structural


def keyed_hash(key: bytes, content: bytes) -> bytes:
    """Return a hash that says nothing without the store's key, of 16 bytes."""
    return blake2b(content, key=key, digest_size=KEYED_HASH_BYTES).digest()
