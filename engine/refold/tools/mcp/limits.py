"""Every bound of remote tools, unit last; relations between them are asserted below."""

from typing import Final

from refold.tools.limits import TOOL_RESULT_BYTES_MAX, TOOL_SCHEMA_BYTES_MAX, TOOLS_COUNT_MAX

MCP_CONNECT_SECONDS_DEFAULT: Final = 30.0
"""What starting a server and listing its tools may take."""

MCP_CALL_SECONDS_DEFAULT: Final = 60.0
"""What one call may take, a connection that has to be made anew included."""

MCP_SECONDS_MAX: Final = 3_600.0

MCP_END_SECONDS: Final = 1.0
"""How long a server may take to end by itself, and again after it was asked to, before it is killed."""

MCP_MESSAGE_BYTES_MAX: Final = 2 * TOOL_RESULT_BYTES_MAX
"""One message of a server: over it, nothing of the connection can be trusted any more."""

MCP_RESULT_BYTES_DEFAULT: Final = 1024 * 1024
"""What one call may return: a model that is given more has no room for anything else."""

MCP_TOOLS_COUNT_MAX: Final = TOOLS_COUNT_MAX
"""Tools of one server."""

MCP_PAGES_COUNT_MAX: Final = 64
"""Pages of a server's list of tools: one that never ends would hang the connection."""

MCP_ATTEMPTS_COUNT_MAX: Final = 5
"""How often a connection is tried anew before a call or a reconnection gives up."""

MCP_FIRST_WAIT_SECONDS: Final = 0.5
"""The wait behind the first attempt that failed; each further one is twice as long."""

MCP_WAIT_SECONDS_MAX: Final = 30.0

MCP_DESCRIPTION_CHARS_MAX: Final = 4_096
"""Characters of a tool's description."""

MCP_COMPLAINT_CHARS_MAX: Final = 2_000
"""The end of what a server wrote to its standard error, which is shown when it fails."""

MCP_ASKED_COUNT_MAX: Final = 1_024
"""Requests of a server whose answers it has not read: over it, it is one that only asks."""

MCP_CLOSE_SECONDS: Final = 5 * MCP_END_SECONDS
"""What a connection may take to end by itself, before its end is given up, too."""

MCP_UNANSWERED_COUNT_MAX: Final = 8
"""Calls over HTTP, one after another, that nobody answered: a new connection is made, for each holds one open."""

MCP_SECRET_CHARS_MIN: Final = 6
"""Values of an environment and of headers that are taken for secrets, and left out of messages; a shorter is a flag."""

MCP_SCHEMA_DEPTH_MAX: Final = 24
"""Schemas inside each other: what lies deeper is described and no longer checked."""

MCP_SCHEMA_PARTS_COUNT_MAX: Final = 4_096
"""Schemas inside of one, each reference counted wherever it is used."""

MCP_SCHEMA_BYTES_MAX: Final = 16 * TOOL_SCHEMA_BYTES_MAX
"""A schema as a server sends it: of one over it nothing is read."""

MCP_ALTERNATIVES_COUNT_MAX: Final = 2**18
"""Properties of all alternatives of an object times its alternatives: over it, they are not joined."""

MCP_CHECKS_COUNT_MAX: Final = 100_000
"""Steps of the check of one result against its schema: about a tenth of a second."""

MCP_NOTE_CHARS_MAX: Final = 500
"""What a description says of a rule that providers do not take."""

assert MCP_CONNECT_SECONDS_DEFAULT <= MCP_CALL_SECONDS_DEFAULT <= MCP_SECONDS_MAX
assert MCP_FIRST_WAIT_SECONDS < MCP_WAIT_SECONDS_MAX < MCP_CALL_SECONDS_DEFAULT
assert TOOL_SCHEMA_BYTES_MAX < MCP_RESULT_BYTES_DEFAULT <= TOOL_RESULT_BYTES_MAX < MCP_MESSAGE_BYTES_MAX
assert TOOL_SCHEMA_BYTES_MAX < MCP_SCHEMA_BYTES_MAX < MCP_MESSAGE_BYTES_MAX
assert MCP_SCHEMA_PARTS_COUNT_MAX < MCP_ALTERNATIVES_COUNT_MAX
assert 3 * MCP_END_SECONDS < MCP_CLOSE_SECONDS
assert MCP_NOTE_CHARS_MAX < MCP_DESCRIPTION_CHARS_MAX
