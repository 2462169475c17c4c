"""Explicit memory commands: what a user's message asks to remember, to forget or to look up.

Pure, and without a model: a message is a command only if it begins with one of the phrases below. Forgetting is looked
for before asking, and asking before remembering, so that "stop remembering" is never taken for "remember".
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from refold import checks

COMMAND_IMPORTANCE: Final = 0.95
"""What a user says to remember matters more than what was found out."""


class Remember(Struct, frozen=True, tag="remember"):
    """The user asks to remember something; it is stored with this importance."""

    content: str
    importance: float = COMMAND_IMPORTANCE


class Forget(Struct, frozen=True, tag="forget"):
    """The user asks to forget what this query finds."""

    query: str


class Query(Struct, frozen=True, tag="query"):
    """The user asks what is remembered; where nothing is named, the query is the question's own words."""

    query: str


MemoryCommand: TypeAlias = Remember | Forget | Query

_FORGET: Final = (
    "forget that",
    "forget about",
    "stop remembering",
    "delete memory about",
    "delete the memory about",
    "delete memories about",
    "delete the memories about",
    "remove memory about",
    "remove the memory about",
    "remove memories about",
    "remove the memories about",
)
# "What do you know about" is not here: it asks the model about the world more often than about the user.
_QUERY: Final = (
    "what do you remember",
    "what do you remember about",
    "what are my preferences",
    "do you remember",
    "show me what you remember",
    "list my memories",
    "what memories do you have",
)
_REMEMBER: Final = (
    "remember that",
    "remember:",
    "remember this:",
    "note that",
    "note:",
    "keep in mind that",
    "keep in mind:",
    "don't forget that",
    "don't forget:",
)
# A rule is kept with its verb: "always use pnpm" is no rule without "always use".
_RULES: Final = ("always", "always use", "never", "never do", "never use")

_STOPS: Final = ".?!\u3002\uff1f\uff01\uff0e\uff61"
_COLONS: Final = ":\uff1a"
_SEPARATORS: Final = f"{_COLONS},\uff0c"
_GAP: Final = re.compile(rf"\A[\s{_SEPARATORS}]+")
_DISMISSAL: Final = re.compile(r"never\s*mind\b", re.IGNORECASE)


def _longest(phrases: tuple[str, ...]) -> str:
    """Return what matches the longest of the phrases at the beginning of a text, however its words are spaced."""
    return "|".join(map(_phrase, sorted(phrases, key=len, reverse=True)))


def _phrase(phrase: str) -> str:
    words = r"\s+".join(re.escape(word) for word in phrase.removesuffix(":").split())
    ends = rf"\s*[{_COLONS}]" if phrase.endswith(":") else rf"(?=[\s{_SEPARATORS}{_STOPS}]|$)"
    return words.replace("'", "['\u2019]") + ends


def _remembered(_: str, payload: str, __: str) -> Remember | None:
    return Remember(payload) if payload else None


def _ruled(_: str, payload: str, whole: str) -> Remember | None:
    return Remember(whole) if payload and not _DISMISSAL.match(whole) else None


def _forgotten(_: str, payload: str, __: str) -> Forget | None:
    return Forget(payload) if payload else None


def _asked(phrase: str, payload: str, _: str) -> Query:
    return Query(payload or " ".join(phrase.lower().split()))


_KINDS: Final[tuple[tuple[re.Pattern[str], Callable[[str, str, str], MemoryCommand | None]], ...]] = (
    (re.compile(_longest(_FORGET), re.IGNORECASE), _forgotten),
    (re.compile(_longest(_QUERY), re.IGNORECASE), _asked),
    (re.compile(_longest(_REMEMBER), re.IGNORECASE), _remembered),
    (re.compile(_longest(_RULES), re.IGNORECASE), _ruled),
)


def detect_memory_command(text: str) -> MemoryCommand | None:
    """Return what a message asks of the memory, ``None`` if it is no command.

    The message has to begin with the phrase, in any case and after any spaces; a polite word or a quotation mark before
    it makes it something that is said, not asked. What follows is returned without the spaces and full stops at its
    end. Raises ``InvalidInput`` if the message is no text, ``LimitExceeded`` over
    ``VALUE_BYTES_MAX``.

    >>> detect_memory_command("Remember that the tests need Docker.")
    Remember(content='the tests need Docker', importance=0.95)
    >>> detect_memory_command("always use pnpm")
    Remember(content='always use pnpm', importance=0.95)
    >>> detect_memory_command("What are my preferences?")
    Query(query='what are my preferences')
    """
    whole = _ended(checks.text(text, "text").lstrip())
    for pattern, command in _KINDS:
        found = pattern.match(whole)
        if found is not None:
            payload = _GAP.sub("", whole[found.end() :], count=1)
            return command(found.group(), payload, whole)
    return None


def _ended(text: str) -> str:
    """Return a text without the spaces and full stops at its end."""
    end = len(text)
    while end and (text[end - 1].isspace() or text[end - 1] in _STOPS):
        end -= 1
    return text[:end]
