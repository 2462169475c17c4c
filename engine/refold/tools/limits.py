"""Every bound of what stands between a memory and a model, unit last; relations between them are asserted below."""

from typing import Final

from refold.limits import VALUE_BYTES_MAX

# Tools of a model.
TOOLS_COUNT_MAX: Final = 128
"""Tools of one registry: as many as the providers take in a request."""

TOOL_NAME_CHARS_MAX: Final = 64
"""Characters of a tool's name: the least that a provider allows."""

TOOL_SCHEMA_BYTES_MAX: Final = 64 * 1024
"""The JSON schema of a tool's arguments."""

TOOL_ARGUMENTS_BYTES_MAX: Final = 1024 * 1024
"""The arguments of one call as JSON: a model that writes more has gone astray."""

TOOL_RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
"""What one call returns, as JSON."""

assert TOOL_SCHEMA_BYTES_MAX < TOOL_ARGUMENTS_BYTES_MAX < TOOL_RESULT_BYTES_MAX <= VALUE_BYTES_MAX

# Contexts of a model.
CONTEXT_TOKENS_DEFAULT: Final = 5_500
"""All parts of a context together, without the window."""

CONTEXT_CHARS_MAX: Final = 16 * 1024 * 1024
"""What a budget may allow, in characters, tokens or memories."""

CONTEXT_DAYS: Final = 3
"""Calendar days whose notes are in a context."""

PROFILE_CHARS_DEFAULT: Final = 8_000
NOTES_CHARS_DEFAULT: Final = 8_000
MEMORIES_CHARS_DEFAULT: Final = 2_000
SESSION_CHARS_DEFAULT: Final = 2_000

assert CONTEXT_TOKENS_DEFAULT < PROFILE_CHARS_DEFAULT < CONTEXT_CHARS_MAX <= VALUE_BYTES_MAX
assert max(MEMORIES_CHARS_DEFAULT, NOTES_CHARS_DEFAULT, SESSION_CHARS_DEFAULT) < CONTEXT_CHARS_MAX

# Hooks.
HOOK_SECONDS_DEFAULT: Final = 30
"""What one hook may take before the session goes on without it."""

HOOK_SECONDS_MAX: Final = 3_600

assert HOOK_SECONDS_DEFAULT < HOOK_SECONDS_MAX
