"""A file system of a few megabytes in RAM, which can be filled to the last byte; only root may mount one."""

import contextlib
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

BALLAST = "ballast"
_CHUNK_BYTES = 1 << 20


@contextlib.contextmanager
def small_disk(directory: Path, size_bytes: int) -> Generator[bool]:
    """Mount one at a directory for a block and say so; ``False`` where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "refold-test", str(directory)]
    is_there = os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield is_there
    finally:
        if is_there:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> None:
    """Leave no byte free."""
    with (directory / BALLAST).open("wb", buffering=0) as ballast:
        for size in (_CHUNK_BYTES, 1):
            with contextlib.suppress(OSError):
                while ballast.write(b"\0" * size):
                    pass


def make_room(directory: Path) -> None:
    """Give it all back."""
    (directory / BALLAST).unlink()
