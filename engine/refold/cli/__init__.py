"""The command `refold`: its start, and its message where its two libraries are not installed."""

import os
import sys
from importlib.util import find_spec
from typing import Final

# The exit codes of the command line; 0 is fine and 2, wrong usage, is click's.

EXIT_ERROR: Final = 1
EXIT_INTEGRITY: Final = 3
EXIT_INTERRUPTED: Final = 130


_STANDARD: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def main() -> int:
    """Run the command line; return its exit code: 0 fine, 1 an error, 2 wrong usage, 3 a damaged store."""
    _keep_standard_streams()
    missing = [name for name in ("click", "rich") if find_spec(name) is None]
    if missing:
        print(f"refold: the command line needs {' and '.join(missing)}; pip install 'refold[cli]'", file=sys.stderr)
        return 1
    try:
        from refold.cli.commands import run

        return run()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _keep_standard_streams() -> None:
    """Open onto nothing whichever of stdin, stdout and stderr is closed.

    Else the next file to be opened takes its number, which may be the store's own, and output would be written into it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) < len(_STANDARD):
        continue
    os.close(number)
    for place, (name, mode) in enumerate(_STANDARD):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(place, mode, closefd=False))
