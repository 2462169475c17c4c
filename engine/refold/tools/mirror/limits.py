"""Every bound of mirrors that is not one of their files'."""

from typing import Final

from refold.limits import POLL_MS

MIRROR_POLL_MS: Final = 500
"""How often an open mirror looks at its files; an edit is taken when two looks in a row saw the same file."""

MIRROR_REDO_COUNT_MAX: Final = 16
"""How often one round begins anew because the log or a file moved while it was decided."""

assert POLL_MS < MIRROR_POLL_MS
