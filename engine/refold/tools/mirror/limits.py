"""Every bound of mirrors that is not one of their files'."""

from typing import Final

from refold.limits import POLL_MS

MIRROR_POLL_MS: Final = 500
"""How often an open mirror looks at its files; an edit is taken when two looks in a row saw the same file."""

MIRROR_REDO_COUNT_MAX: Final = 64
"""How often one round begins anew because the log or a file moved while it was decided."""

MIRROR_RECENT_COUNT_MAX: Final = 256
"""Writes of a profile's file that an editor may have missed when it saves an older copy."""

assert POLL_MS < MIRROR_POLL_MS
