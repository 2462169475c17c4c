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

TOOL_MESSAGE_CHARS_MAX: Final = 16 * 1024
"""What a model is told of a call that failed; a longer message is cut."""

assert TOOL_NAME_CHARS_MAX < TOOL_MESSAGE_CHARS_MAX < TOOL_SCHEMA_BYTES_MAX
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

# Asking a model.
PROVIDER_SECONDS_DEFAULT: Final = 30
"""What one question to a model may take, all its channels together."""

REPLY_BYTES_MAX: Final = 16 * 1024 * 1024
"""What a provider may answer with."""

REPLY_TOKENS_DEFAULT: Final = 2_048
"""Tokens that a model may answer with."""

REPLY_CHARS_MAX: Final = 1024 * 1024
"""Characters of a model's answer in which JSON is looked for."""

JSON_BEGINNINGS_COUNT_MAX: Final = 64
"""Brackets of a model's answer at which a JSON value is looked for."""

# Extraction.
EXTRACTED_CHARS_MAX: Final = 2_000
"""One extracted memory: what is longer is no concise statement."""

EXTRACTED_COUNT_MAX: Final = 50
"""Memories of one extraction."""

EXTRACTION_CHARS_MAX: Final = 24_000
"""Characters of a conversation that a model is asked about at once; a longer one is read in pages."""

EXTRACTION_PAGES_COUNT_MAX: Final = 8
"""Pages that one extraction reads; what is left waits for the next."""

KNOWN_COUNT_MAX: Final = 50
"""Memories that a model is told are known already, the most important ones."""

assert EXTRACTED_CHARS_MAX < EXTRACTION_CHARS_MAX < REPLY_CHARS_MAX < REPLY_BYTES_MAX

# The loop.
LOOP_STEPS_COUNT_DEFAULT: Final = 20
"""How often a model is asked for one message of a user."""

assert LOOP_STEPS_COUNT_DEFAULT < TOOLS_COUNT_MAX
