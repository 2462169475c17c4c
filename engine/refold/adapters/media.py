"""Media of frameworks as blocks that messages can hold and every provider's format can read."""

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from refold.limits import MEDIA_TOKENS
from refold.memory.blocks import is_readable

_DATA_URL: Final = re.compile(r"data:([^;,]*+)(?:;(?!base64,)[^;,]*+)*+;base64,")
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


_MEDIA: Final = {
    "computer_screenshot": "image",
    "image_generation_call": "image",
    "input_image": "image",
    "input_audio": "audio",
    "input_file": "document",
}
"""The kinds of media by the types of items and blocks."""
_LETTERS_PER_TOKEN: Final = 4


def estimate_tokens(value: object) -> int:
    """Return about how many tokens a model charges for data that no message has a field for; media count by their kind.

    >>> estimate_tokens({"type": "input_image", "image_url": "data:image/png;base64," + "A" * 80_000})
    1001
    """
    media, letters = _weigh(value)
    return media + letters // _LETTERS_PER_TOKEN + 1


def _weigh(value: object) -> tuple[int, int]:
    """Return the tokens of the media in data, and the letters of the rest."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if fields.get("type") in _MEDIA:
            return MEDIA_TOKENS[_MEDIA[fields["type"]]], 0
        parts = [*map(_weigh, fields.values()), (0, sum(map(len, fields)))]
    elif isinstance(value, (list, tuple)):
        parts = [*map(_weigh, cast("Sequence[object]", value))]
    elif isinstance(value, str) and (found := _DATA_URL.match(value)) is not None:
        main = found[1].partition("/")[0]
        return MEDIA_TOKENS[main if main in MEDIA_TOKENS else "document"], 0
    else:
        return 0, len(str(value))
    return sum(media for media, _ in parts), sum(letters for _, letters in parts)


def readable_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block as it is if a provider's format knows it, else a text that says what it was."""
    return block if is_readable(block) else label(block.get("type", "a block without a type"))


def label(kind: object) -> dict[str, Any]:
    """Return the text that says what a block of a framework was for which messages have none."""
    return {"type": "text", "text": f"({kind})"}
