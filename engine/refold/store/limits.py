"""Every bound of the files that are read beside a store: those of skills, those of a mirror."""

from typing import Final

from refold.limits import VALUE_BYTES_MAX

SKILL_FILE_BYTES_MAX: Final = 1024**2
"""A skill file, a convention file, or a file that a detection looks into; a larger one is named and not read."""

SKILL_DEPTH_COUNT_MAX: Final = 8
"""Directories inside each other that are entered in search of skill files."""

SKILL_DIRECTORIES_COUNT_MAX: Final = 4_096
"""Directories that one search for skill files enters."""

SKILL_FILES_COUNT_MAX: Final = 4_096
"""Markdown files that one search takes."""

assert SKILL_FILE_BYTES_MAX < VALUE_BYTES_MAX
assert SKILL_DEPTH_COUNT_MAX < SKILL_DIRECTORIES_COUNT_MAX

MIRROR_FILE_BYTES_MAX: Final = VALUE_BYTES_MAX
"""A file of a mirror that is read: one note or value, which is what a hand may add to it, fits."""

MIRROR_FILES_COUNT_MAX: Final = 100_000
"""Files of days that a mirror looks at: 273 years of them."""

MIRROR_STATE_BYTES_MAX: Final = 256 * 1024 * 1024
"""What a mirror keeps of its files: digests, eight bytes for a line."""

assert MIRROR_FILE_BYTES_MAX <= VALUE_BYTES_MAX < MIRROR_STATE_BYTES_MAX
