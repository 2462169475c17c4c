"""The interface of a shared log: commits in order on a server, to which several machines append.

A commit is what one turn wrote: records, and the rows that go with them. Its bytes have no meaning for the server.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from refold.errors import InvalidInput, StoreCorrupt, StoreVersion
from refold.log.protocol import Row
from refold.log.record import Sealed

if TYPE_CHECKING:
    from urllib.parse import SplitResult

FORMAT: Final = 1
"""The format of the commits written by this program. A reader refuses any other one."""

POSITION_KEY: Final = b"position"
"""The row of ``meta`` that says which commit of the server was applied last: a store that has it is a copy."""

MOVING_KEY: Final = b"moving"
"""The row of ``meta`` of a log that is being moved to a server: it cannot be opened before it is whole."""

PREFIXES: Final = ("postgresql://", "postgres://", "nats://", "tls://")
"""How the address of a shared log begins."""


_PASSWORD: Final = re.compile(r"(?<=://)([^:@]*:).*(?=@)|((?<=[?&])[^=&]*pass[^=&]*=)[^&]*", re.IGNORECASE | re.DOTALL)


def shown_address(address: str) -> str:
    """Return an address without a password; with one that is not written as it should be, more may be left out."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", address)


def split_address(address: str) -> "SplitResult":
    """Return the parts of an address; ``InvalidInput`` where they are not what they seem, as with ``/`` in a password.

    Nothing of it is in the message: it may be a part of the password.
    """
    from urllib.parse import urlsplit  # noqa: PLC0415 - loaded only by those whose log is on a server

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
    """Return whether this is the address of a shared log, and not the path of a directory."""
    return isinstance(path, str) and path.startswith(PREFIXES)


class Commit(Struct, frozen=True, array_like=True):
    """One commit: records for the end of the log, rows to put or to delete, and records in the place of others."""

    format: int
    records: tuple[Sealed, ...] = ()
    rows: tuple[Row, ...] = ()
    erased: tuple[Sealed, ...] = ()


class Numbered(NamedTuple):
    """A commit as the server has it, under its number."""

    number: int
    packed: bytes


class Lag(NamedTuple):
    """How far a copy is behind its server: the commits that it is told of and lacks, and since when it may lack more.

    ``seconds`` are those since the copy last had all commits that the server had; up to about ``FOLLOW_SECONDS`` of
    them pass between two looks.
    """

    commits: int
    seconds: float


class Check(NamedTuple):
    """What was found out about a server: ``"ok"``, ``"warn"`` or ``"bad"``, a message, and the next step if any."""

    name: str
    state: str
    message: str
    next_step: str = ""


class Replacement(NamedTuple):
    """Bytes that are to take the place of those that a commit has."""

    number: int
    before: bytes
    after: bytes


class Overtaken(Exception):
    """Another machine appended first; nothing was appended."""


class Disconnected(Exception):
    """The connection was lost during an append, which may have been carried out."""


class CommitLog(Protocol):
    """Commits in order. Numbers grow from one commit to the next; they need not be without gaps.

    Calls come from one thread at a time, but for ``head``, ``wait`` and ``close``. Where the server cannot be reached
    they raise ``StoreUnreachable``.
    """

    @property
    def name(self) -> str:
        """The address, for messages: without a password."""
        ...

    def head(self) -> int:
        """Return the number of the last commit, 0 in an empty log."""
        ...

    def read(self, after: int) -> list[Numbered]:
        """Return the first commits behind a number, about ``PAGE_BYTES`` of them and at least one where there is one.

        Raises ``StoreCorrupt`` where one that was there is missing.
        """
        ...

    def append(self, expected: int, packed: bytes) -> int:
        """Append a commit behind the one numbered ``expected``, durably, and return its number.

        Raises ``Overtaken`` where another one is the last by now, and ``Disconnected``.
        """
        ...

    def replace(self, commits: Sequence[Replacement]) -> bool:
        """Put other bytes in the place of commits, durably; nothing of the old ones can be read then.

        Returns whether that was done with all; another machine has replaced what is not as it was any more.

        What the server keeps of them in its files goes with its own upkeep, which ``sweep`` asks for.
        """
        ...

    def sweep(self) -> None:
        """Have the server drop what was replaced from its files, as far as it can be asked for that."""
        ...

    def queue(self) -> None:
        """Wait for this machine's turn among those that are about to append, where the server knows of turns."""
        ...

    def leave(self) -> None:
        """Give that turn back; without one nothing happens."""
        ...

    def wait(self, seconds: float) -> int | None:
        """Wait so long at most for a commit and return the number of the last one, ``None`` where that is not told."""
        ...

    def size_bytes(self) -> int:
        """Return the bytes that the commits take on the server, about."""
        ...

    def checks(self) -> list[Check]:
        """Return what an operator should know of the server: versions, durability, replicas, missing commits, clock."""
        ...

    def close(self) -> None:
        """End the connections; a second call does nothing."""
        ...


PAGE_BYTES: Final = 4 * 1024**2
"""The bytes of commits that are read from the server at a time."""

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODER: Final = msgspec.msgpack.Decoder(Commit)


def pack(records: Sequence[Sealed], rows: Sequence[Row], erased: Sequence[Sealed] = ()) -> bytes:
    """Return the bytes of a commit."""
    return _ENCODE(Commit(FORMAT, tuple(records), tuple(rows), tuple(erased)))


def unpack(commit: Numbered, name: str) -> Commit:
    """Return the commit that bytes hold; ``StoreCorrupt`` or ``StoreVersion`` where they hold none of this format."""
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
