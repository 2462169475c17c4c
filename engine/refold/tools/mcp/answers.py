"""What a remote tool answered, as the value of a call; and how remote tools fail."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from refold.tools.protocol import ToolFailed
from refold.tools.storable import storable

if TYPE_CHECKING:
    from mcp.types import CallToolResult

TIMEOUT: Final = "timeout"
UNREACHABLE: Final = "unreachable"
BROKEN: Final = "broken"
REMOTE: Final = "remote"
TOO_LARGE: Final = "too_large"


class McpFailed(ToolFailed):
    """A remote tool gave no result; ``reason`` is timeout, unreachable, broken, remote or too_large.

    ``unreachable``: there is no connection, and none could be made. ``broken``: the server died, or does not keep to
    the protocol or to its own schema. ``remote``: the server or the tool itself says that it failed.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(storable(message))
        self.reason = reason


def value_of(result: "CallToolResult", name: str, bytes_max: int) -> Any:
    """Return the value of a call: its structured content, or its texts, or all of it as JSON where some is no text.

    Raises ``McpFailed`` for a call that failed there, and for a value over ``bytes_max``.
    """
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    joined = "\n".join(texts)
    if result.is_error:
        raise McpFailed(REMOTE, joined or msgspec.json.encode(blocks).decode())
    structured: Any = result.structured_content
    value = joined if structured is None else structured
    if len(texts) != len(blocks):
        value = {"content": blocks} if structured is None else {"content": blocks, "structuredContent": structured}
    size = len(msgspec.json.encode(value))
    if size > bytes_max:
        bound = f"result_bytes_max = {bytes_max:,}"
        raise McpFailed(TOO_LARGE, f"{name} returned {size:,} bytes, over {bound}; ask it for less")
    return value
