"""Token counts of texts without a model, their keywords, and hashes of bytes.

Pure: everything here depends only on its arguments.
"""

import re
from collections.abc import Iterator
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable


# The two hashes of refold, without the cost of loading both at once.
#
# ``hashlib`` loads OpenSSL, a tenth of the time that importing refold may take. BLAKE2 has a module of its own beneath
# it; SHA-256 is loaded when the first state is hashed.

try:
    from _blake2 import blake2b as blake2b  # noqa: PLC0414 - for other modules
except ImportError:  # An interpreter that was built differently.
    from hashlib import blake2b as blake2b  # noqa: PLC0414 - for other modules


@cache
def _sha256() -> "Callable[[bytes], Any]":
    from hashlib import sha256 as digest  # noqa: PLC0415 - see above

    return digest


def sha256(content: bytes) -> bytes:
    """Return the SHA-256 of some bytes, in 32 bytes."""
    digest: bytes = _sha256()(content).digest()
    return digest


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun, whose plural adds an s unless ``many`` is given.

    >>> counted(1, "memory", "memories"), counted(0, "memory", "memories"), counted(1_000, "event")
    ('1 memory', '0 memories', '1000 events')
    """
    return f"{count} {one if count == 1 else many or f'{one}s'}"


_LETTERS: Final = bytes(range(65, 91)) + bytes(range(97, 123))
_UPPERCASE: Final = bytes(range(65, 91))
_DIGITS: Final = bytes(range(48, 58))
_SPACES: Final = b" \t\n\r\v\f"
_BEYOND_ASCII: Final = bytes(range(128, 256))

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
    "\u1100-\u11ff\uac00-\ud7ff"  # Korean, whose particles follow the word
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Japanese kana and marks of repetition
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese characters
    "\U00020000-\U0003ffff"  # rarer Chinese characters
    "]+"
)


@runtime_checkable
class TokenCounter(Protocol):
    """A token counter: a name that is recorded with every conversation, and a count."""

    @property
    def id(self) -> str:
        """The name under which the counter is recorded."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens in a text."""
        ...


class ByteClassCounter:
    """The built-in counter: a weighted sum over six classes of UTF-8 bytes, rounded up.

    Its mean error is 4-9 % on chat and on JSON; characters/4 undercounts JSON by 31 %.

    >>> ByteClassCounter().count('{"city": "Oslo", "nights": 3}')
    11
    """

    id = "refold-bytes-1"

    def count(self, text: str) -> int:
        """Return the estimated number of tokens, 0 for an empty text."""
        # Each class is cut out of the remainder of the one before, which is soon short. The bytes are scanned in C: six
        # scans of all of them took 2.3 us for 210 bytes.
        raw = text.encode()
        others = raw.translate(None, _LETTERS)
        unspaced = others.translate(None, _SPACES)
        signs = unspaced.translate(None, _DIGITS)
        beyond = 0 if text.isascii() else len(signs) - len(signs.translate(None, _BEYOND_ASCII))
        # Tokens per byte of each class, fitted to the o200k vocabulary on chat, JSON tool output and Markdown.
        return ceil(
            0.195 * (len(raw) - len(others))
            + 0.151 * (len(raw) - len(raw.translate(None, _UPPERCASE)))
            + 0.503 * (len(unspaced) - len(signs))
            + 0.599 * (len(signs) - beyond)
            + 0.160 * (len(others) - len(unspaced))
            + 0.382 * beyond
        )


def keywords(text: str) -> tuple[str, ...]:
    """Return the keywords of a text, each once, in the order of their first occurrence.

    A keyword is a run of letters, digits and ``_`` of any script, in lower case, of at least 3 bytes in UTF-8. There
    are no stop words and there is no stemming. Chinese and Japanese do not separate words, so there a run is the text
    between two punctuation marks, and a single character of 3 bytes is a keyword; Korean has a run for each word with
    its particles. Finding a word inside such a run is left to the other signals of a ranking
    (``refold.index.ranking``).

    >>> keywords("Use pnpm, not npm: use_workspaces is on.")
    ('use', 'pnpm', 'not', 'npm', 'use_workspaces')
    """
    runs: list[str] = _RUNS.findall(text.lower())
    # A run has at least as many bytes as characters, so that few runs have to be encoded.
    least = _KEYWORD_BYTES_MIN
    return tuple(dict.fromkeys([run for run in runs if len(run) >= least or len(run.encode()) >= least]))


def words(text: str) -> list[str]:
    r"""Return the words of a text for searching, with repetitions, in order.

    A word is a run of letters and digits of any script with their combining marks, regardless of case and of how a
    character is composed. Scripts that do not separate words (Chinese, Japanese, Thai and similar ones), and Korean,
    whose particles follow the word, give overlapping pairs of characters instead, so that a word in the middle of a run
    is found; a lone character is its own term.

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
    """Return whether a word of ``words`` comes from a script that does not separate words."""
    return not word.isascii() and _unspaced().match(word) is not None


def _split_unspaced(run: str) -> Iterator[str]:
    end = 0
    for match in _unspaced().finditer(run):
        yield from _led_by_letter(run[end : match.start()])
        piece, end = match.group(), match.end()
        for i in range(max(1, len(piece) - 1)):
            yield from _led_by_letter(piece[i : i + 2])
    yield from _led_by_letter(run[end:])


def _led_by_letter(run: str) -> Iterator[str]:
    """Yield a run unless it is empty or consists of marks alone, as those of emoji do."""
    if run.isalnum() or any(map(str.isalnum, run)):
        yield run


class _Breaks(dict[int, int | None]):
    """The replacement of each character when a text is split into words, computed on first use."""

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
    """Compile the pattern for the first text beyond ASCII, which takes longer than loading the rest of this module."""
    return re.compile(_UNSPACED)


def countable(content: str | list[dict[str, Any]] | None, tool_calls: list[dict[str, Any]] | None) -> Iterator[str]:
    """Yield the texts of a message that a model charges for: text parts, names and arguments of tool calls."""
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


# Two statements that look alike but say different things: they differ in a number, a name or a negation.

_NUMBER: Final = re.compile(r"\d+(?:[.,:/-]\d+)*")
_TOKEN: Final = re.compile(r"[^\W_][\w'\u2019]*(?:[._@/-]\w+)*")
_DENIAL: Final = re.compile(
    r"\b(?:not|no|never|none|nothing|nobody|without|cannot|\w+n['\u2019]t|stop(?:s|ped)?|avoid(?:s|ed)?|"
    r"forbid(?:s|den)?|refuse[sd]?|dislike[sd]?|hate[sd]?|nicht|kein\w*|nie|niemals|ne|pas|jamais|nunca)\b|"
    "[\u4e0d\u6ca1\u6c92\u522b\u5225]|\u306a\u3044|\u307e\u305b\u3093",
    re.IGNORECASE,
)
_OPPOSITES: Final = (
    *(("dark", "light"), ("on", "off"), ("true", "false"), ("before", "after"), ("tabs", "spaces"), ("left", "right")),
    *(("enable", "disable"), ("enabled", "disabled"), ("minimum", "maximum"), ("min", "max"), ("sync", "async")),
    *(("public", "private"), ("allow", "deny"), ("allowed", "denied"), ("start", "end"), ("open", "closed")),
    *(("morning", "evening"), ("day", "night"), ("single", "double"), ("first", "last"), ("more", "less")),
    *(("increase", "decrease"), ("required", "optional"), ("old", "new"), ("upper", "lower"), ("yes", "no")),
)
# Words at the beginning of a sentence that do not name anyone in particular.
_ANYBODY: Final = frozenset(
    (
        *("a", "an", "all", "any", "anything", "both", "each", "either", "every", "everyone", "everything", "he"),
        *("her", "his", "i", "it", "its", "my", "no", "nobody", "nothing", "one", "our", "ours", "she", "some"),
        *("someone", "something", "that", "the", "their", "them", "there", "these", "they", "this", "those"),
        *("user", "users", "we", "what", "who", "you", "your"),
    )
)
_IS: Final = frozenset(
    (*("is", "has", "was", "had", "will", "can", "could", "should", "would", "must", "may", "does", "did"),)
)
_STEM_CHARS: Final = 4
_PIECES_MAX: Final = 64


def contradiction(text: str, other: str) -> str | None:
    """Return the difference because of which two similar statements must not be joined, or `None` if none is found.

    It is a difference in numbers or names, a negation, or one of a few opposites. Content that only one of the two has
    is not a contradiction, except for a negation. In texts that were joined with `" | "`, each piece is compared.

    >>> contradiction("The API listens on port 8080.", "The API listens on port 9090.")
    'the numbers differ (8080, 9090)'
    >>> contradiction("The API listens on port 8080.", "The API is on 8080, behind nginx.") is None
    True
    """
    pieces, others = (each.split(" | ")[:_PIECES_MAX] for each in (text, other))
    reasons = (_difference(one, another) for one in pieces for another in others)
    return next((reason for reason in reasons if reason), None)


def _difference(text: str, other: str) -> str | None:
    numbers, others = (dict.fromkeys(_NUMBER.findall(each)) for each in (text, other))
    if reason := _differing("numbers", numbers, others):
        return reason
    denials = [bool(_DENIAL.search(each)) for each in (text, other)]
    if denials[0] != denials[1]:
        return "only one of them denies it"
    words, known = ([word.lower() for word in _TOKEN.findall(each)] for each in (text, other))
    if not words or not known:
        return None
    first, second = set(words), set(known)
    if denials[0] and _order(words, second) != _order(known, first):
        return "the order of what is denied differs"
    for one, opposite in _OPPOSITES:
        if {one, opposite} & first != {one, opposite} & second and {one, opposite} <= first ^ second:
            return f"{one} is not {opposite}"
    if words[:-1] == known[:-1] and words[-2:-1] in (["is"], ["are"]) and not _is_akin(words[-1], known[-1]):
        return f"{words[-1]} is not {known[-1]}"
    if (
        words[1:] == known[1:]
        and words[1:]
        and not {words[0], known[0]} & _ANYBODY
        and not _is_akin(words[0], known[0])
    ):
        return f"{words[0]} is not {known[0]}"
    names = {name: None for name in _names(text) if name.lower() not in second}
    unlike = {name: None for name in _names(other) if name.lower() not in first}
    return _differing("names", names, unlike)


def _differing(what: str, one: dict[str, None], other: dict[str, None]) -> str | None:
    """Name the difference if both texts have something that the other lacks."""
    first, second = [each for each in one if each not in other], [each for each in other if each not in one]
    return f"the {what} differ ({first[0]}, {second[0]})" if first and second else None


def _is_akin(word: str, other: str) -> bool:
    return word == other or (word[:_STEM_CHARS] == other[:_STEM_CHARS] and min(len(word), len(other)) >= _STEM_CHARS)


def _order(words: list[str], known: set[str]) -> list[str]:
    """List the words of one text that the other has, in order, without short words and negations."""
    shared = (word for word in dict.fromkeys(words) if len(word) >= _KEYWORD_BYTES_MIN and word in known)
    return [word for word in shared if not _DENIAL.fullmatch(word)]


def _names(text: str) -> Iterator[str]:
    """Yield names: capitalized words inside a sentence, words with signs or digits inside, and capitalized subjects."""
    begins, last = True, 0
    tokens = list(_TOKEN.finditer(text))
    for place, token in enumerate(tokens):
        word = token.group()
        begins = begins or any(sign in text[last : token.start()] for sign in ".!?:;\n")
        following = tokens[place + 1].group().lower() if place + 1 < len(tokens) else ""
        is_subject = word.lower() not in _ANYBODY and (following in _IS or following.endswith(("s", "ed")))
        is_marked = not word.isalpha() and "'" not in word and "\u2019" not in word and not word.isdigit()
        if is_marked or (word[0].isupper() and (not begins or (is_subject and word.isalpha()))):
            yield word
        begins, last = False, token.end()
