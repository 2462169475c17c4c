"""The manifest of a backup: the log that it held when it was made, and the check that a store still holds that log."""

import errno
import io
import os
import stat
from pathlib import Path
from typing import Annotated, Final

import msgspec

from refold import checks
from refold.engine.reader import STORE_ID_KEY
from refold.errors import StoreCorrupt
from refold.log.disk import FILE_FLAGS, disk_error
from refold.log.protocol import Log
from refold.log.record import Record

MANIFEST_FILE: Final = "backup.json"
"""The file of a backup that describes it."""
MANIFEST_FORMAT: Final = 1
_MANIFEST_BYTES_MAX: Final = 65_536


class Manifest(msgspec.Struct, frozen=True):
    """The description of a backup when it was made; the hash covers the main line, the data includes the forks."""

    format: int
    store: str
    head: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    streams: int
    time_ns: int
    state_hash: str
    link: str
    data_bytes: int
    sha256: str

    def check(self, path: str, store_id: bytes | None, last_record: bytes | None) -> None:
        """Raise ``StoreCorrupt`` unless a store has this id, and this record as the one that ends at the head.

        A backup may have been written to since; its log must then continue the one that was backed up.
        """
        is_same = not self.head or (last_record is not None and Record(last_record).link.hex() == self.link)
        if (store_id or b"").hex() != self.store or not is_same:
            raise StoreCorrupt(
                f"{path} does not hold the log that its {MANIFEST_FILE} speaks of, that of store {self.store} up to "
                f"seq {self.head} with the link {self.link}; use another backup"
            )


def check_manifest(path: str, log: Log) -> None:
    """Raise ``StoreCorrupt`` if there is a manifest at a path and the log there does not match it."""
    manifest = read_manifest(path)
    if manifest is not None:
        records = dict(log.read(manifest.head - 1, manifest.head)) if manifest.head else {}
        manifest.check(path, log.row("meta", STORE_ID_KEY), records.get(manifest.head))


def read_manifest(path: str) -> Manifest | None:
    """Return the manifest at a path, ``None`` if there is none; ``StoreCorrupt`` if it cannot be read."""
    try:
        return msgspec.json.decode(_manifest_bytes(Path(path, MANIFEST_FILE)), type=Manifest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(error, f"reading {MANIFEST_FILE} in {path}", "check who owns it and call again") from error
    except checks.UNDECODABLE as error:
        raise StoreCorrupt(f"{MANIFEST_FILE} in {path} cannot be read ({error}); use another backup") from error


def _manifest_bytes(file: Path) -> bytes:
    """Return the bytes of a manifest, which may come from elsewhere: follow no link and do not block on a pipe."""
    flags = os.O_RDONLY | os.O_NONBLOCK | FILE_FLAGS
    with io.FileIO(file, "r", opener=lambda name, _: os.open(name, flags)) as manifest:
        if not stat.S_ISREG(os.fstat(manifest.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(file))
        return manifest.read(_MANIFEST_BYTES_MAX)
