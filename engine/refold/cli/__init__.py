"""The command `refold`: its startup, and its message if one of the two libraries that it needs is not installed."""

import os
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Final

# The exit codes of the command line; 0 means fine, and 2, wrong usage, comes from click.

EXIT_ERROR: Final = 1
EXIT_INTEGRITY: Final = 3
EXIT_INTERRUPTED: Final = 130


_STANDARD: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def main() -> int:
    """Run the command line and return its exit code: 0 fine, 1 an error, 2 wrong usage, 3 a damaged store.

    Ctrl-C ends it with 130. A server that SIGTERM ended, once its memory is closed, lets that signal end the process: a
    supervisor such as systemd counts this as clean, which it does not for an exit code other than 0.
    """
    _keep_standard_streams()
    missing = [name for name in ("click", "rich") if find_spec(name) is None]
    if missing:
        print(f"refold: the command line needs {' and '.join(missing)}; pip install 'refold[cli]'", file=sys.stderr)
        return 1
    try:
        from refold.cli.commands import run

        return run()
    except KeyboardInterrupt as interruption:
        if interruption.args == (signal.SIGTERM,):
            _end_by(signal.SIGTERM)
        return EXIT_INTERRUPTED


def _end_by(number: signal.Signals) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _keep_standard_streams() -> None:
    """Open any closed standard stream (stdin, stdout or stderr) on the null device.

    Otherwise the next file opened, possibly the store itself, would get its number, and output would be written into
    it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) < len(_STANDARD):
        continue
    os.close(number)
    for place, (name, mode) in enumerate(_STANDARD):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(place, mode, closefd=False))
