"""The exit codes of the command line; 0 is fine and 2, wrong usage, is click's."""

from typing import Final

EXIT_ERROR: Final = 1
EXIT_INTEGRITY: Final = 3
EXIT_INTERRUPTED: Final = 130
