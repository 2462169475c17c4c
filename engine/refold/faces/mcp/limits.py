"""Every bound of the server, unit last; relations between them are asserted below."""

from typing import Final

from refold.limits import VALUE_BYTES_MAX
from refold.tools.limits import TOOL_ARGUMENTS_BYTES_MAX

LISTED_COUNT_MAX: Final = 100
"""Conversations or projects of one page of a list, and values of one completion."""

PAGE_EVENTS_MAX: Final = 500
"""Events of one page of a conversation's events; fewer where they are large."""

PAGE_ENTRIES_MAX: Final = 500
"""Memories of one page of a project's memories; fewer where they are large."""

PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Events or memories as JSON on one page; the first is shown whatever its size."""

RECENT_DAYS: Final = 30
"""Days whose notes are listed, and completed."""

RECALL_COUNT_DEFAULT: Final = 10
"""Memories that the prompt ``recall`` shows."""

LINE_BYTES_MAX: Final = VALUE_BYTES_MAX
"""One message over stdio; a longer one is skipped and answered with an error."""

LINES_COUNT_MAX: Final = 16
"""Messages that were read and wait; the client waits behind them."""

OPEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Requests over stdio that are not answered yet, each at least ``REQUEST_BYTES_MIN``; more wait unread."""

REQUEST_BYTES_MIN: Final = 16 * 1024
"""About what a small request takes in RAM while it is not answered."""

DRAIN_SECONDS: Final = 10
"""How long what was asked before stdin was closed may go on."""

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""One message over HTTP."""

SESSIONS_COUNT_MAX: Final = 1_000
"""Sessions over HTTP that are open at a time."""

READERS_COUNT: Final = 4
"""Threads that read resources for clients; tools and prompts have others."""

WATCHED_COUNT_MAX: Final = 1_000
"""Resources that one connection may watch."""

SHUTDOWN_SECONDS: Final = 1
"""How long open streams may go on when the server ends."""

assert TOOL_ARGUMENTS_BYTES_MAX < BODY_BYTES_MAX <= LINE_BYTES_MAX
# Streams stay open, and the SDK lets 1,024 be; there is room for others beside them.
assert 2 * 1_024 * REQUEST_BYTES_MIN <= OPEN_BYTES_MAX
assert LINE_BYTES_MAX <= OPEN_BYTES_MAX
assert PAGE_BYTES_MAX <= VALUE_BYTES_MAX
