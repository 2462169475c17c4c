"""What a model answered, made into memories: bounded, clamped, without secrets, echoes and nonsense.

Pure. Every item that is dropped has its reason, which never shows a secret.
"""

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct

from refold.entry import CATEGORIES
from refold.limits import KEYWORDS_COUNT_MAX
from refold.text import keywords as keywords_of
from refold.tools.limits import EXTRACTED_CHARS_MAX, EXTRACTED_COUNT_MAX
from refold.tools.parsing import NoJson
from refold.tools.secrets import secret_in

_LISTS: Final = ("memories", "items")
_IMPORTANCE: Final = 0.5
_ECHO_RATIO: Final = 0.8
_KEYWORD_CHARS_MAX: Final = 100
_WORD: Final = re.compile(r"[\w']+")
_DENIAL: Final = re.compile(
    r"\b(?:not|no|never|none|without|cannot|don't|doesn't|isn't|aren't|can't|won't|stop|avoid)\b"
)
"""What turns a statement into its opposite; none of it is a keyword."""


class LearntItem(Struct, frozen=True):
    """One memory that a model proposes, as it may be stored."""

    content: str
    category: str
    keywords: list[str]
    importance: float


class _Told(NamedTuple):
    """A text as two are compared: in lower case, its keywords in their order, and how often it denies something."""

    plain: str
    words: tuple[str, ...]
    denials: int


class Learnt(Struct, frozen=True):
    """What a model proposes, and why other proposals were dropped."""

    items: tuple[LearntItem, ...]
    dropped: tuple[str, ...]


def learnt(answer: object, *, is_cut_off: bool = False, echoes: Sequence[str] = ()) -> Learnt:
    """Return what an answer proposes: an array, or an object that holds one as ``memories`` or ``items``.

    Raises ``NoJson`` for anything else.
    """
    items: list[LearntItem] = []
    dropped = ["the answer was cut off; only its whole items were read"] if is_cut_off else []
    seen = [_told(echo) for echo in echoes]
    for place, proposed in enumerate(_listed(answer)):
        item = _item(proposed) if place < EXTRACTED_COUNT_MAX else f"over EXTRACTED_COUNT_MAX = {EXTRACTED_COUNT_MAX}"
        if isinstance(item, LearntItem):
            echo = _told(item.content)
            if any(_is_echo(echo, known) for known in seen):
                item = "it repeats what was recalled or said before"
            else:
                items.append(item)
                seen.append(echo)
        if isinstance(item, str):
            dropped.append(f"item {place}: {item}")
    return Learnt(tuple(items), tuple(dropped[: 2 * EXTRACTED_COUNT_MAX]))


def _listed(answer: object) -> list[object]:
    if isinstance(answer, dict):
        held = cast("dict[str, object]", answer)
        answer = next((held[name] for name in _LISTS if name in held), [held] if "content" in held else None)
    if not isinstance(answer, list):
        message = f"Failed to parse memory extraction JSON: expected an array, got {type(answer).__name__}"
        raise NoJson(message)
    return cast("list[object]", answer)


def _item(proposed: object) -> LearntItem | str:
    """Return a proposal as it may be stored, or the reason why it may not."""
    if not isinstance(proposed, dict):
        return f"it is a {type(proposed).__name__}, not an object"
    given = cast("dict[str, Any]", proposed)
    content, category = given.get("content"), given.get("category", "fact")
    if not isinstance(content, str) or not content.strip():
        return "its content is empty"
    if not isinstance(category, str) or category.strip().lower() not in CATEGORIES:
        return "Invalid memory category: " + ascii(category)[:_KEYWORD_CHARS_MAX]
    words = _keywords(given.get("keywords"), content)
    refused = _refused(content, words)
    if refused is not None:
        return refused
    return LearntItem(content.strip(), category.strip().lower(), words, clamped(given.get("importance")))


def _refused(content: str, words: Sequence[str]) -> str | None:
    """Return why a text may not be stored."""
    if len(content) > EXTRACTED_CHARS_MAX:
        return f"its content is over EXTRACTED_CHARS_MAX = {EXTRACTED_CHARS_MAX}"
    kind = secret_in("\n".join([content, *words]))
    if kind is not None:
        return f"it seems to hold {kind}"
    return None if _is_storable(content) else "its content is no valid Unicode"


def clamped(importance: object) -> float:
    """Return an importance from 0 to 1; what is no number counts as 0.5."""
    if not isinstance(importance, (int, float)) or isinstance(importance, bool):
        return _IMPORTANCE
    if isinstance(importance, float) and not isfinite(importance):
        return _IMPORTANCE
    return float(min(max(importance, 0), 1))


def _keywords(given: object, content: str) -> list[str]:
    """Return keywords that are texts; without any, those of the content."""
    listed = cast("list[object]", given) if isinstance(given, list) else []
    words = [word.strip()[:_KEYWORD_CHARS_MAX] for word in listed if isinstance(word, str) and word.strip()]
    storable = [word for word in words if _is_storable(word)]
    return list(storable or keywords_of(content))[:KEYWORDS_COUNT_MAX]


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


def _told(text: str) -> _Told:
    """Return what a text says in a form in which two are compared; of a long one only so much counts."""
    plain = _plain(text[: 2 * EXTRACTED_CHARS_MAX])
    return _Told(plain, tuple(dict.fromkeys(keywords_of(plain))), len(_DENIAL.findall(plain)))


def _is_echo(said: _Told, known: _Told) -> bool:
    """Return whether a text says what another one said: it is in it, or nearly all of their keywords are the same."""
    if said.denials != known.denials:
        return False
    if f" {said.plain} " in f" {known.plain} ":
        return True
    both = {*said.words, *known.words}
    shared = [word for word in said.words if word in known.words]
    # "Use npm, not pnpm" has all the words of "Use pnpm, not npm".
    is_in_order = shared == [word for word in known.words if word in said.words]
    return bool(both) and is_in_order and len(shared) / len(both) >= _ECHO_RATIO
