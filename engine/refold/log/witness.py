"""The file of a witness: the store, and the seq and link that its log was seen to reach; see ``engine/FORMAT.md``.

Two slots hold this, each with a checksum, and a change overwrites the older slot in place. So a crash at any instant
leaves one slot whole, no file is left behind but the witness itself, and a disk that has become full refuses nothing.
This module only handles bytes: the engine checks that the log still holds what the file says.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from struct import Struct
from typing import Final, NamedTuple

from refold.errors import InvalidInput, NotFound, StoreBusy, StoreCorrupt, StoreError, StoreVersion
from refold.limits import HASH_BYTES, RETRIES_COUNT_MAX, WITNESS_WAIT_SECONDS_MAX
from refold.log.disk import disk_error, flush, unfinished_file
from refold.text import blake2b

MAGIC: Final = b"REFOLDWT"
FORMAT: Final = 1
"""The format of the file. A reader refuses a higher one."""

FRONT: Final = Struct(">8sB7x16sQ32s")
"""magic, format, store_id, seq, link: the fields that the checksum covers."""

SLOT: Final = Struct(">8sB7x16sQ32s32s")
"""The same fields, then the checksum."""

SLOT_BYTES: Final = 4_096
"""The offset of the second slot: a page further on, so that no sector holds bytes of both."""

_POLL_SECONDS: Final = 0.002
_flush = getattr(os, "fdatasync", os.fsync)
"""The file's size never changes, so only its content has to reach the disk."""

assert SLOT.size == FRONT.size + HASH_BYTES


class WitnessSlot(NamedTuple):
    """The content of a slot: the store, the last seq, and the link of the commit that ends there."""

    store_id: bytes
    seq: int
    link: bytes


def pack_slot(witnessed: WitnessSlot) -> bytes:
    """Return the used bytes of a slot."""
    front = FRONT.pack(MAGIC, FORMAT, *witnessed)
    return front + blake2b(front, digest_size=HASH_BYTES).digest()


def read(path: str) -> WitnessSlot | None:
    """Read the file and return its newer slot, ``None`` if there is no file.

    Raises ``StoreCorrupt`` if neither slot is whole, ``StoreVersion`` for a newer format, ``InvalidInput`` if the path
    is not a file, ``StoreError`` if the system refuses.
    """
    try:
        with _open_file(path, os.O_RDONLY) as file:
            return _newer_slot(_slots(file, path), path)
    except FileNotFoundError:
        return None


def create(path: str, witnessed: WitnessSlot) -> bool:
    """Create the file, whole or not at all, and return whether it was created; an existing file is kept."""
    try:
        parent, name = os.path.split(os.path.abspath(path))
        with unfinished_file(parent, f".{name}.") as (file, building):
            _write(file, pack_slot(witnessed).ljust(SLOT_BYTES, b"\0") * 2, 0)
            os.fsync(file)
            os.link(building, path)
        flush(parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise _witness_error(error, "creating", path) from error
    return True


def replace(path: str, known: WitnessSlot, witnessed: WitnessSlot) -> bool:
    """Durably write ``witnessed`` if the file still holds ``known``, and return whether it did.

    No other process writes meanwhile. Raises ``StoreBusy`` if another process does not release the file,
    ``StoreError`` if the file is gone, and otherwise as ``read`` does.
    """
    try:
        with _open_file(path, os.O_RDWR) as file, _lock_file(file, path):
            slots = _slots(file, path)
            if _newer_slot(slots, path) != known:
                return False
            older = slots.index(known) ^ 1
            _write(file, pack_slot(witnessed), older * SLOT_BYTES)
            _flush(file)
            return True
    except FileNotFoundError as error:
        raise StoreError(gone_message(path)) from error


def gone_message(path: str) -> str:
    """Return the error message for a witness that has disappeared."""
    return f"the witness {path} is gone; put it back, or open the store again to begin a new one"


def check_room(path: str) -> None:
    """Raise ``NotFound`` if the parent directory of a witness does not exist."""
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise NotFound(f"the parent directory {parent} of the witness does not exist; create it first")


@contextmanager
def _open_file(path: str, how: int) -> Generator[int]:
    """Open the file; ``FileNotFoundError`` is left to the caller, every other error is translated."""
    try:
        file = os.open(path, how | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _witness_error(error, "opening", path) from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise InvalidInput(f"the witness {path} is not a file; give the path of a file")
        yield file
    except OSError as error:
        raise _witness_error(error, "using", path) from error
    finally:
        os.close(file)


def _witness_error(error: OSError, doing: str, path: str) -> InvalidInput | StoreError:
    """Return the refold error for an error of the system."""
    if isinstance(error, IsADirectoryError):
        return InvalidInput(f"the witness {path} is a directory; give the path of a file")
    return disk_error(
        error,
        f"{doing} the witness {path}; what was acknowledged is in the store",
        "check who owns the file, then flush or open the store again",
    )


@contextmanager
def _lock_file(file: int, path: str) -> Generator[None]:
    """Keep other writers of the file out; polls for the lock, because the process that holds it may be stopped."""
    end = time.monotonic() + WITNESS_WAIT_SECONDS_MAX
    while not _try_lock(file):
        if time.monotonic() > end:
            raise StoreBusy(
                f"another process holds the witness {path} for more than WITNESS_WAIT_SECONDS_MAX = "
                f"{WITNESS_WAIT_SECONDS_MAX} s; see which one has been stopped, then flush again"
            )
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        # Explicitly: a child forked meanwhile has the file open too, and would keep the lock.
        fcntl.flock(file, fcntl.LOCK_UN)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _slots(file: int, path: str) -> list[WitnessSlot | None]:
    """Read the slots, ``None`` for a damaged one.

    The file is read without a lock, because a writer changes only one slot. Both are in doubt only if two writes follow
    each other during one read, and then the file is read again.
    """
    slots: list[WitnessSlot | None] = []
    for _ in range(RETRIES_COUNT_MAX):
        content = os.pread(file, 2 * SLOT_BYTES, 0)
        slots = [_unpack_slot(content[begin : begin + SLOT.size], path) for begin in (0, SLOT_BYTES)]
        if any(slots):
            break
    return slots


def _unpack_slot(content: bytes, path: str) -> WitnessSlot | None:
    if len(content) < SLOT.size:
        return None
    magic, form, store_id, seq, link, checksum = SLOT.unpack(content)
    if magic == MAGIC and checksum == blake2b(content[: FRONT.size], digest_size=HASH_BYTES).digest():
        if form > FORMAT:
            raise StoreVersion(
                f"the witness {path} is of format {form}, and this refold reads up to {FORMAT}; upgrade refold"
            )
        return WitnessSlot(store_id, seq, link)
    return None


def _newer_slot(slots: list[WitnessSlot | None], path: str) -> WitnessSlot:
    """Return the newer slot, the one with the higher seq, because a witness never goes back."""
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        raise StoreCorrupt(
            f"the witness {path} is damaged, or no witness: neither of its slots is whole. Put a copy of it back; if "
            f"you trust the store as it is, remove the file, and the next opening begins a new witness"
        )
    return max(whole, key=lambda witnessed: witnessed.seq)


def _write(file: int, content: bytes, place: int) -> None:
    if os.pwrite(file, content, place) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
