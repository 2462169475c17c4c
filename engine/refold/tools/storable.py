"""Texts from elsewhere made fit to be stored and shown: what a model, a tool or a hook says, whatever it is. Pure."""

from typing import Final

from refold import checks
from refold.tools.limits import TOOL_MESSAGE_CHARS_MAX

_CUT: Final = "..."
"""What ends a text that was cut; with it, too, the text is within its bound, and not cut again."""


def storable(said: object, chars_max: int = TOOL_MESSAGE_CHARS_MAX) -> str:
    r"""Return what was said as a text of valid Unicode, cut to a number of characters.

    >>> storable("caf\udce9"), storable(ValueError("no"))
    ('caf?', 'no')
    """
    try:
        text = str(said)
    except Exception:  # noqa: BLE001 - a stranger's __str__ may fail in any way
        text = checks.shown(said)
    cut = text if len(text) <= chars_max else f"{text[: chars_max - len(_CUT)]}{_CUT}"
    return cut.encode("utf-8", "replace").decode()
