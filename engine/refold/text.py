"""Tokens of a text counted without a model, its keywords, and the hashes of its bytes.

Pure: nothing here reads anything but its arguments.
"""

import re
from collections.abc import Iterator
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable


# The two hashes of refold, without what loading them both at once would cost.
#
# ``hashlib`` loads OpenSSL, a tenth of the time that importing refold may take. BLAKE2 has a module of its own
# beneath it; SHA-256 is loaded when the first state is hashed.

try:
    from _blake2 import blake2b as blake2b  # noqa: PLC0414 - for others
except ImportError:  # An interpreter that is built otherwise.
    from hashlib import blake2b as blake2b  # noqa: PLC0414 - for others


@cache
def _sha256() -> "Callable[[bytes], Any]":
    from hashlib import sha256 as digest  # noqa: PLC0415 - see above

    return digest


def sha256(content: bytes) -> bytes:
    """Return the SHA-256 of some bytes, of 32 bytes."""
    digest: bytes = _sha256()(content).digest()
    return digest


_LETTERS: Final = bytes(range(65, 91)) + bytes(range(97, 123))
_UPPERCASE: Final = bytes(range(65, 91))
_DIGITS: Final = bytes(range(48, 58))
_SPACES: Final = b" \t\n\r\v\f"
_BEYOND_ASCII: Final = bytes(range(128, 256))
_PUNCTUATION: Final = bytes(sorted(set(range(128)) - set(_LETTERS) - set(_DIGITS) - set(_SPACES)))

_WEIGHTS: Final = (
    (_LETTERS, 0.195),
    (_UPPERCASE, 0.151),
    (_DIGITS, 0.503),
    (_PUNCTUATION, 0.599),
    (_SPACES, 0.160),
    (_BEYOND_ASCII, 0.382),
)
"""Tokens per byte of each class, fitted to the o200k vocabulary on chat, JSON tool output and Markdown."""

_RUNS: Final = re.compile(r"\w+")
_KEYWORD_BYTES_MIN: Final = 3

_ASCII_WORDS: Final = re.compile(r"[a-z0-9]+")
_DROPPED_CATEGORIES: Final = frozenset({"Cf"})
_WORD_CATEGORIES: Final = frozenset({"Ll", "Lm", "Lo", "Lt", "Lu", "Nd", "Nl", "No"})
_MARK_CATEGORIES: Final = frozenset({"Mc", "Me", "Mn"})
_UNSPACED: Final = (
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\uac00-\ud7ff"  # Korean, whose particles stand at the word
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Japanese kana and marks of repetition
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese characters
    "\U00020000-\U0003ffff"  # and the rarer ones of them
    "]+"
)


@runtime_checkable
class TokenCounter(Protocol):
    """A counter of tokens: a name that is recorded with every conversation, and a count."""

    @property
    def id(self) -> str:
        """The name under which the counter is recorded."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        ...


class ByteClassCounter:
    """The built-in counter: a weighted sum over six classes of UTF-8 bytes, rounded up.

    Its mean error is 4-9 % on chat and on JSON, where characters/4 undercounts JSON by 31 %.

    >>> ByteClassCounter().count('{"city": "Oslo", "nights": 3}')
    11
    """

    id = "refold-bytes-1"

    def count(self, text: str) -> int:
        """Return the estimated number of tokens, 0 for an empty text."""
        raw = text.encode()
        size = len(raw)
        return ceil(sum(weight * (size - len(raw.translate(None, kind))) for kind, weight in _WEIGHTS))


def keywords(text: str) -> tuple[str, ...]:
    """Return the keywords of a text, each once, in the order in which they first occur.

    A keyword is a run of letters, digits and ``_`` of any script, in lower case, of at least 3 bytes in UTF-8. There
    are no stop words and no stems. Chinese and Japanese do not part their words, so there a run is the text between
    two punctuation marks, and a single character of 3 bytes is a keyword; Korean has a run for each word with its
    particles. Finding a word inside such a run is left to the other signals of a ranking (``refold.index.ranking``).

    >>> keywords("Use pnpm, not npm: use_workspaces is on.")
    ('use', 'pnpm', 'not', 'npm', 'use_workspaces')
    """
    runs: list[str] = _RUNS.findall(text.lower())
    # As many characters are as many bytes or more, so that few runs have to be encoded.
    least = _KEYWORD_BYTES_MIN
    return tuple(dict.fromkeys([run for run in runs if len(run) >= least or len(run.encode()) >= least]))


def words(text: str) -> list[str]:
    r"""Return the words of a text for finding it, with repetitions, in their order.

    A word is a run of letters and digits of any script with the marks on them, without regard to case and to how a
    character is composed. Scripts that do not part words (Chinese, Japanese, Thai and their like), and Korean, whose
    particles stand at the word, give overlapping pairs of characters instead, so that a word in the midst of a run
    is found; a lone character stands for itself.

    >>> words("Stra\u00dfe 7b, use_workspaces")
    ['strasse', '7b', 'use', 'workspaces']
    >>> words("\u6771\u4eac\u90fd 2020") == ["\u6771\u4eac", "\u4eac\u90fd", "2020"]
    True
    """
    if text.isascii():
        return _ASCII_WORDS.findall(text.lower())
    from unicodedata import normalize  # noqa: PLC0415 - only texts beyond ASCII pay for it

    plain = normalize("NFKC", normalize("NFKC", text).casefold()).translate(_breaks())
    return [word for run in plain.split() for word in _split_unspaced(run)]


def is_unspaced(word: str) -> bool:
    """Return whether a word of ``words`` comes from a script that does not part words."""
    return _unspaced().match(word) is not None


def _split_unspaced(run: str) -> Iterator[str]:
    end = 0
    for match in _unspaced().finditer(run):
        yield from _led_by_letter(run[end : match.start()])
        piece, end = match.group(), match.end()
        for i in range(max(1, len(piece) - 1)):
            yield from _led_by_letter(piece[i : i + 2])
    yield from _led_by_letter(run[end:])


def _led_by_letter(run: str) -> Iterator[str]:
    """Yield a run unless it is empty or marks alone: those of emoji stand on no letter."""
    if run.isalnum() or any(map(str.isalnum, run)):
        yield run


class _Breaks(dict[int, int | None]):
    """The replacement of each character when a text is cut into words, computed when it is first met."""

    def __missing__(self, point: int) -> int | None:
        from unicodedata import category  # noqa: PLC0415 - only texts beyond ASCII pay for it

        kind = category(chr(point))
        fate = point if kind in _WORD_CATEGORIES or kind in _MARK_CATEGORIES else 32
        self[point] = None if kind in _DROPPED_CATEGORIES else fate
        return self[point]


@cache
def _breaks() -> _Breaks:
    return _Breaks()


@cache
def _unspaced() -> re.Pattern[str]:
    """Compiled when a text beyond ASCII comes: it takes longer than the rest of this module does to load."""
    return re.compile(_UNSPACED)


def countable(content: str | list[dict[str, Any]] | None, tool_calls: list[dict[str, Any]] | None) -> Iterator[str]:
    """Return the texts of a message that a model is charged for: text parts, names and arguments of tool calls."""
    if isinstance(content, str):
        yield content
    elif content is not None:
        for part in content:
            yield from _texts_of_part(part)
    for call in tool_calls or ():
        yield from _texts_of_call(call)


def _texts_of_part(part: dict[str, Any]) -> Iterator[str]:
    for field in ("text", "name", "thinking"):
        if isinstance(value := part.get(field), str):
            yield value
    if "input" in part:
        yield _rendered(part["input"])
    inner = part.get("content")
    if isinstance(inner, str):
        yield inner
    elif isinstance(inner, list):
        for nested in cast("list[object]", inner):
            if isinstance(nested, dict):
                yield from _texts_of_part(cast("dict[str, Any]", nested))


def _texts_of_call(call: dict[str, Any]) -> Iterator[str]:
    function = call.get("function", call)
    if not isinstance(function, dict):
        return
    for field in ("name", "arguments", "input"):
        if field in function:
            yield _rendered(function[field])


def _rendered(value: Any) -> str:
    if isinstance(value, str):
        return value
    import msgspec  # noqa: PLC0415 - only messages whose arguments are not text pay for it

    return msgspec.json.encode(value).decode()
