"""Names of remote tools: qualified ones, which say whose they are, and those that every provider takes; pure."""

import re
from hashlib import sha256
from typing import Final

from refold.tools.limits import TOOL_NAME_CHARS_MAX

_DIGEST_CHARS: Final = 10
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def qualified_name(server: str, tool: str) -> str:
    """Return the name of a server's tool as people read it: ``mcp:server:tool``."""
    return f"mcp:{server}:{tool}"


def wire_name(server: str, tool: str) -> str:
    """Return the name of a server's tool for models: ``mcp__server__tool``, as letters, digits, ``_`` and ``-``.

    A name that does not fit, or that two tools could share, ends with a digest of the qualified one: always the same,
    so that prompts and records stay as they are.

    >>> wire_name("files", "read"), wire_name("my files", "read")
    ('mcp__files__read', 'mcp__my_files__read_12d4bf92f1')
    """
    plain = f"mcp__{server}__{tool}"
    is_clear = "__" not in server and not server.endswith("_")
    if is_clear and len(plain) <= TOOL_NAME_CHARS_MAX and not _OTHER.search(plain):
        return plain
    digest = sha256(qualified_name(server, tool).encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{_OTHER.sub('_', plain)[: TOOL_NAME_CHARS_MAX - _DIGEST_CHARS - 1]}_{digest}"
