"""The command ``refold``: where it starts, and what it says where its two libraries are not installed."""

import sys
from importlib.util import find_spec

from refold.faces.exits import EXIT_INTERRUPTED


def main() -> int:
    """Run the command line; return its exit code: 0 fine, 1 an error, 2 wrong usage, 3 a store that is damaged."""
    missing = [name for name in ("click", "rich") if find_spec(name) is None]
    if missing:
        print(f"refold: the command line needs {' and '.join(missing)}; pip install 'refold[cli]'", file=sys.stderr)
        return 1
    try:
        from refold.faces.commands import run

        return run()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
