"""Media of frameworks as blocks that messages can hold and every provider's format can read."""

import re
from typing import Any, Final

from refold.memory.blocks import is_readable

_DATA_URL: Final = re.compile(r"data:([^;,]*)[^,]*;base64,")
_STANDARD: Final = str.maketrans("-_", "+/")


def media_block(url: str, media_type: str | None = None) -> dict[str, Any]:
    """Return an image, a document, a sound or a video as a block, given by its URL or as a data URL.

    >>> media_block("data:audio/wav;base64,AAAA")
    {'inlineData': {'mimeType': 'audio/wav', 'data': 'AAAA'}}
    """
    found = _DATA_URL.match(url)
    if found is not None:
        return data_block(url[found.end() :], media_type or found[1] or "application/octet-stream")
    if media_type is None or media_type.startswith("image/"):
        return {"type": "input_image", "image_url": url}
    return {"fileData": {"mimeType": media_type, "fileUri": url}}


def data_block(data: str, media_type: str) -> dict[str, Any]:
    """Return media given in base64, of either alphabet, as a block."""
    return {"inlineData": {"mimeType": media_type, "data": data.translate(_STANDARD)}}


def readable_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block as it is if a provider's format knows it, else a text that says what it was."""
    return block if is_readable(block) else label(block.get("type", "a block without a type"))


def label(kind: object) -> dict[str, Any]:
    """Return the text that says what a block of a framework was for which messages have none."""
    return {"type": "text", "text": f"({kind})"}
