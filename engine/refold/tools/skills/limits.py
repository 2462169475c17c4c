"""Every bound of skills beside those of their files; relations between bounds are asserted below."""

from typing import Final

from refold.store.limits import SKILL_FILE_BYTES_MAX

SKILL_FRONT_BYTES_MAX: Final = 64 * 1024
"""The YAML at the head of a skill file, in UTF-8."""

SKILL_FRONT_VALUES_COUNT_MAX: Final = 4_096
"""Keys and values of that YAML."""

SKILL_NESTING_COUNT_MAX: Final = 32
"""Lists and mappings inside each other in that YAML."""

SKILL_NAME_CHARS_MAX: Final = 64
"""The name of a skill, as the specification of Agent Skills has it."""

SKILL_DESCRIPTION_CHARS_MAX: Final = 1_024
"""The description of a skill, as the specification has it."""

SKILL_COMPATIBILITY_CHARS_MAX: Final = 500
"""What a skill says of where it runs, as the specification has it."""

SKILL_SETTING_COUNT_MAX: Final = 10_000
"""The skills, and the lines of each, that a configuration may ask for."""

SKILL_WORDS_COUNT_MAX: Final = 65_536
"""Words of queries whose weight in each skill is kept for the next query."""

SKILL_SCORERS_COUNT_MAX: Final = 4
"""Rankings whose look at an index is kept for the next query."""

assert SKILL_NAME_CHARS_MAX < SKILL_COMPATIBILITY_CHARS_MAX < SKILL_DESCRIPTION_CHARS_MAX < SKILL_FRONT_BYTES_MAX
assert SKILL_FRONT_BYTES_MAX < SKILL_FILE_BYTES_MAX
