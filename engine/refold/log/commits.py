"""The interface of a shared log: ordered commits on a server, to which several machines append.

A commit holds the records that one turn wrote, and the rows that belong to them. Its bytes are opaque to the server.
Commits form a chain: each has a link of its own, and the link of the commit before it. A log that was set back and went
on has other links, even if the numbers are the same.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from refold.errors import InvalidInput, StoreCorrupt, StoreVersion
from refold.log.protocol import Row
from refold.log.record import SEQ, Sealed

if TYPE_CHECKING:
    from urllib.parse import SplitResult

FORMAT: Final = 1
"""The format of the commits written by this program. A reader refuses any other format."""

POSITION_KEY: Final = b"position"
"""The row of ``meta`` with the number of the last applied commit of the server; a store with this row is a copy."""

MOVING_KEY: Final = b"moving"
"""The row of ``meta`` that marks a log being moved to a server; the log cannot be opened until the move is complete."""

PREFIXES: Final = ("postgresql://", "postgres://", "nats://", "tls://")
"""The prefixes that mark the address of a shared log."""


_PASSWORD: Final = re.compile(r"(?<=://)([^:@]*:).*(?=@)|((?<=[?&])[^=&]*pass[^=&]*=)[^&]*", re.IGNORECASE | re.DOTALL)


def hide_password(address: str) -> str:
    """Return an address with its password hidden; if the password is not properly escaped, more may be hidden too."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", address)


def split_address(address: str) -> "SplitResult":
    """Return the parts of an address; ``InvalidInput`` if it would be split wrongly, as with a ``/`` in a password.

    The message quotes no part of the address, because any part could belong to the password.
    """
    from urllib.parse import urlsplit  # noqa: PLC0415 - loaded only if the log is on a server

    with suppress(ValueError):
        parts = urlsplit(address)
        user, _, hosts = parts.netloc.rpartition("@")
        ports = (host.rpartition("]")[2].partition(":")[2] for host in hosts.split(","))
        if "@" not in user + parts.path + parts.fragment and all(map(str.isdigit, filter(None, ports))):
            return parts
    raise InvalidInput(
        "the address of a log is not SCHEME://USER:PASSWORD@HOST:PORT/NAME; write % @ : / ? # of a name or a password "
        "as %25 %40 %3A %2F %3F %23"
    )


def is_address(path: object) -> bool:
    """Return whether ``path`` is the address of a shared log rather than the path of a directory."""
    return isinstance(path, str) and path.startswith(PREFIXES)


LINK_BYTES: Final = 16


class Commit(Struct, frozen=True, array_like=True):
    """One commit: records to append, rows to put or delete, and records that replace existing ones.

    A replacement keeps ``before`` and ``link``, so that the chain outlasts an erasure.
    """

    format: int
    records: tuple[Sealed, ...] = ()
    rows: tuple[Row, ...] = ()
    erased: tuple[Sealed, ...] = ()
    before: bytes = b""
    """The link of the commit before, empty in the first commit."""
    link: bytes = bytes(LINK_BYTES)
    """Random bytes at the end of the commit. A hash would let who guesses erased data see that it is right."""


class CommitBytes(NamedTuple):
    """A commit as stored on the server, with its number."""

    number: int
    packed: bytes


class CopyPosition(NamedTuple):
    """How far a copy is: the number of its last commit, and of the one before it and of the last erasure, or 0."""

    number: int = 0
    before: int = 0
    erasure: int = 0
    link: bytes = b""
    """The link of the last commit."""

    def pack(self) -> bytes:
        """Encode the position as the row of ``POSITION_KEY``."""
        return SEQ.pack(self.number) + SEQ.pack(self.before) + SEQ.pack(self.erasure) + self.link

    @classmethod
    def unpack(cls, row: bytes) -> "CopyPosition":
        """Decode a row; ``StoreVersion`` if another version of refold wrote it."""
        if len(row) != 3 * SEQ.size + LINK_BYTES:
            raise StoreVersion(f"the position of a copy has {len(row)} bytes; remove the copy, and open the log again")
        number, before, erasure = (SEQ.unpack_from(row, place * SEQ.size)[0] for place in range(3))
        return cls(number, before, erasure, row[-LINK_BYTES:])


class Lag(NamedTuple):
    """The lag of a copy behind its server: the number of commits it knows of but lacks, and how long it may lack more.

    ``seconds`` is the time since the copy last had every commit of the server. It reaches about ``FOLLOW_SECONDS``
    between two checks.
    """

    commits: int
    seconds: float


class Check(NamedTuple):
    """The result of one check of a server: ``"ok"``, ``"warn"`` or ``"bad"``, a message, and the next step if any."""

    name: str
    state: str
    message: str
    next_step: str = ""


MISSING_LOG: Final = Check(
    "log", "bad", "there is no log of this name", "open it once to write, or give the address of another log"
)


class Replacement(NamedTuple):
    """New bytes for a commit, with the bytes they replace."""

    number: int
    before: bytes
    after: bytes


class AppendConflict(Exception):
    """Another machine appended first; nothing was appended."""


class CommitsLost(Exception):
    """The server does not have the commit after which others were to be read."""


class ConnectionLost(Exception):
    """The connection was lost during an append, which may or may not have taken effect."""


class CommitLog(Protocol):
    """Commits in order; their numbers increase, possibly with gaps.

    Only one thread at a time may call methods other than ``head``, ``wait`` and ``close``. Methods raise
    ``StoreUnreachable`` if the server cannot be reached.
    """

    @property
    def name(self) -> str:
        """The address without its password, for messages."""
        ...

    @property
    def connections(self) -> int:
        """A number that grows with each new connection: behind it may be a server that was set back."""
        ...

    def head(self) -> int:
        """Return the number of the last commit, 0 in an empty log."""
        ...

    def read(self, after: int) -> list[CommitBytes]:
        """Return the next commits after a number, about ``PAGE_BYTES`` in total, and at least one if there is any.

        Raises ``StoreCorrupt`` if a commit has gone missing, and ``CommitsLost`` if the last one is before ``after``.
        """
        ...

    def append(self, expected: int, packed: bytes, before: bytes | None = None) -> int:
        """Durably append a commit after the commit numbered ``expected``, and return its number.

        Raises ``AppendConflict`` if ``expected`` is no longer the last commit, or if its link is not ``before``, unless
        that is ``None``; and ``ConnectionLost``. It may also refuse the right link of a commit that was replaced.
        """
        ...

    def replace(self, commits: Sequence[Replacement]) -> bool:
        """Durably replace the bytes of commits; the old bytes can no longer be read afterwards.

        Returns whether all of them were replaced; a commit whose bytes have changed was replaced by another machine.

        The server's own maintenance, which ``sweep`` requests, removes remains of the old bytes from its files.
        """
        ...

    def sweep(self) -> None:
        """Ask the server to drop replaced bytes from its files, as far as it supports that."""
        ...

    def queue(self) -> None:
        """Wait for this machine's turn among the machines that are about to append, if the server supports turns."""
        ...

    def leave(self) -> None:
        """Release the turn from ``queue``; a no-op without one."""
        ...

    def wait(self, seconds: float) -> int | None:
        """Wait up to ``seconds`` for a commit; return the number of the last one, or ``None`` if none was announced."""
        ...

    def size_bytes(self) -> int:
        """Return the approximate size of the commits on the server, in bytes."""
        ...

    def checks(self) -> list[Check]:
        """Check the server for an operator: versions, durability, replicas, missing commits, clock."""
        ...

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        ...


PAGE_BYTES: Final = 4 * 1024**2
"""The approximate number of bytes of commits read from the server at a time."""

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODER: Final = msgspec.msgpack.Decoder(Commit)


def pack(
    records: Sequence[Sealed], rows: Sequence[Row], erased: Sequence[Sealed] = (), *, before: bytes = b""
) -> bytes:
    """Encode a new commit with a new link; ``before`` is the link of the commit before it."""
    return _ENCODE(Commit(FORMAT, tuple(records), tuple(rows), tuple(erased), before, os.urandom(LINK_BYTES)))


def pack_rest(commit: Commit, records: Sequence[Sealed], rows: Sequence[Row], erased: Sequence[Sealed]) -> bytes:
    """Encode what is left of a commit after an erasure, in its place in the chain."""
    return _ENCODE(Commit(FORMAT, tuple(records), tuple(rows), tuple(erased), commit.before, commit.link))


def link_of(packed: bytes) -> bytes:
    """Return the link of an encoded commit."""
    return packed[-LINK_BYTES:]


def unpack(commit: CommitBytes, name: str) -> Commit:
    """Decode a commit; ``StoreCorrupt`` if the bytes are not a commit, ``StoreVersion`` if they have another format."""
    try:
        found = _DECODER.decode(commit.packed)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(
            f"commit {commit.number} of {name} holds no commit ({error}); restore the server from its backup"
        ) from error
    if found.format != FORMAT:
        raise StoreVersion(
            f"commit {commit.number} of {name} has format {found.format}, and this refold reads {FORMAT}; upgrade it"
        )
    return found
