"""Token counts of texts without a model, their words, whether one repeats or contradicts another, and hashes of bytes.

Pure: everything here depends only on its arguments.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast, runtime_checkable

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


def pluralize(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun, whose plural adds an s unless ``many`` is given.

    >>> pluralize(1, "memory", "memories"), pluralize(0, "memory", "memories"), pluralize(1_000, "event")
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
    runs = _runs(text)
    return runs if text.isascii() else [word for run in runs for word in _split_unspaced(run)]


def _runs(text: str) -> list[str]:
    """Return the runs of letters and digits of a text with their combining marks, in lower case and NFKC."""
    if text.isascii():
        return _ASCII_WORDS.findall(text.lower())
    from unicodedata import normalize  # noqa: PLC0415 - only texts beyond ASCII pay for it

    return normalize("NFKC", normalize("NFKC", text).casefold()).translate(_breaks()).split()


def is_unspaced(word: str) -> bool:
    """Return whether a word of ``words`` comes from a script that does not separate words."""
    return not word.isascii() and _unspaced_pattern().match(word) is not None


def _split_unspaced(run: str) -> Iterator[str]:
    end = 0
    for match in _unspaced_pattern().finditer(run):
        yield from _skip_marks(run[end : match.start()])
        piece, end = match.group(), match.end()
        for i in range(max(1, len(piece) - 1)):
            yield from _skip_marks(piece[i : i + 2])
    yield from _skip_marks(run[end:])


def _skip_marks(run: str) -> Iterator[str]:
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
def _unspaced_pattern() -> re.Pattern[str]:
    """Compile the pattern for the first text beyond ASCII, which takes longer than loading the rest of this module."""
    return re.compile(_UNSPACED)


# Japanese and Chinese particles between two words that are not written in hiragana, and runs that are one word.
_PARTICLES: Final = re.compile(r"(?<=[^\W\u3040-\u309f])[のはがをにでともへや的](?=[^\W\u3040-\u309f])")
_KATAKANA: Final = "[\u30a1-\u30fa\u30fc]"
_KANJI: Final = "[\u3005-\u3007\u3400-\u9fff\uf900-\ufaff]"
_KANA: Final = re.compile("[\u3041-\u30ff]")
_IN_KATAKANA: Final = re.compile(_KATAKANA)
_NOT_BESIDE_KANJI: Final = re.compile(rf"(?<!{_KANJI})\w(?!{_KANJI})")


@cache
def _script_runs() -> re.Pattern[str]:
    return re.compile(rf"{_KATAKANA}+|(?:(?!{_KATAKANA}){_UNSPACED[:-1]})+|(?:(?!{_UNSPACED[:-1]})\w)+")


def short_words(text: str) -> tuple[str, ...]:
    """Return the keywords of a text, those of scripts without spaces cut at particles and where the script changes.

    >>> short_words("pnpmとカレーが好き") == ("pnpm", "カレー", "好き")
    True
    """
    found = keywords(text)
    if text.isascii():
        return found
    runs = (run for word in found for part in _PARTICLES.split(word) for run in _script_runs().findall(part))
    return tuple(dict.fromkeys(run for run in runs if len(run.encode()) >= _KEYWORD_BYTES_MIN))


def has_inside(text: str, word: str) -> bool:
    """Return whether a text has a word of a script without spaces within a run.

    A word in katakana is a whole run. In Japanese, a single kanji beside another is only a part of a word.
    """
    if word.isascii() or not is_unspaced(word) or _IN_KATAKANA.match(word):
        return False
    lowered = text.lower()
    is_alone = len(word) == 1 and _KANA.search(lowered) is not None
    return word in (_NOT_BESIDE_KANJI.findall(lowered) if is_alone else lowered)


def countable_texts(
    content: str | list[dict[str, Any]] | None, tool_calls: list[dict[str, Any]] | None
) -> Iterator[str]:
    """Yield the texts of a message that a model charges for: text parts, documents that are text, and tool calls."""
    if isinstance(content, str):
        yield content
    elif content is not None:
        for part in content:
            yield from _texts_of_part(part)
    for call in tool_calls or ():
        yield from _texts_of_call(call)


def _texts_of_part(part: dict[str, Any]) -> Iterator[str]:
    for field in ("text", "name", "thinking", "refusal"):
        if isinstance(value := part.get(field), str):
            yield value
    for field in ("input", "json"):
        if field in part:
            yield _to_text(part[field])
    for field in _GEMINI_CALLS:
        if isinstance(call := part.get(field), dict):
            yield from map(_to_text, cast("dict[str, Any]", call).values())
    media = _media_of(part)
    if media is not None and media.text is not None:
        yield media.text
    inner = _inner_of(part)
    if isinstance(inner, str):
        yield inner
    else:
        for nested in inner:
            yield from _texts_of_part(nested)


_GEMINI_CALLS: Final = ("functionCall", "function_call", "functionResponse", "function_response")


def _inner_of(part: dict[str, Any]) -> str | list[dict[str, Any]]:
    """Return the text or the blocks in a block: of the result of a tool, or of a document."""
    source = part.get("source")
    inner: object = part.get("content")
    if inner is None and isinstance(source, dict):
        inner = cast("dict[str, Any]", source).get("content")
    if isinstance(inner, str):
        return inner
    blocks = cast("list[object]", inner) if isinstance(inner, list) else []
    return [cast("dict[str, Any]", block) for block in blocks if isinstance(block, dict)]


# Blocks of messages that are no text, in each provider's format.


class _MediaFile(NamedTuple):
    kind: str
    text: str | None
    """The text of a document that is one."""


_MEDIA_BY_TYPE: Final = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "video_url": "video",
    "document": "document",
    "file": "document",
    "input_file": "document",
}
_MEDIA_FIELDS: Final = ("inlineData", "inline_data", "fileData", "file_data")
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml")


def media_kinds(content: str | list[dict[str, Any]] | None) -> Iterator[str]:
    """Yield the kinds of the images, sounds, videos and documents of a message, without documents that are text.

    >>> list(media_kinds([{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "data:"}}]))
    ['image']
    """
    for part in content if isinstance(content, list) else ():
        media, inner = _media_of(part), _inner_of(part)
        if media is not None and media.text is None and not inner:
            yield media.kind
        if isinstance(inner, list):
            yield from media_kinds(inner)


def _media_of(part: dict[str, Any]) -> _MediaFile | None:
    kind = part.get("type")
    if isinstance(kind, str):
        media = _MEDIA_BY_TYPE.get(kind)
        return None if media is None else _MediaFile(media, _document_text(part) if media == "document" else None)
    for field in _MEDIA_FIELDS:
        if kind is None and isinstance(file := part.get(field), dict):
            fields = cast("dict[str, Any]", file)
            media_type = str(fields.get("mimeType", fields.get("mime_type", "")))
            main = media_type.partition("/")[0]
            media = main if main in ("image", "audio", "video") else "document"
            return _MediaFile(media, _decode_text(media_type, fields.get("data")))
    return None


def readable_text(part: dict[str, Any]) -> str | None:
    r"""Return the title and the text of a document that is text, or of a search result; ``None`` for other blocks.

    >>> readable_text({"type": "document", "title": "Rent", "source": {"type": "text", "data": "It is 500 euros."}})
    'Rent\nIt is 500 euros.'
    """
    media = _media_of(part)
    text = None if media is None else media.text
    if text is None and part.get("type") in _TEXT_BLOCKS:
        inner = _inner_of(part)
        blocks = [] if isinstance(inner, str) else inner
        texts = [inner] if isinstance(inner, str) else [block["text"] for block in blocks if _is_text(block)]
        text = "\n".join(texts) if len(texts) == max(len(blocks), 1) else None
    if text is None or not text.strip():
        return None
    heads = (part.get(field) for field in ("title", "context"))
    return "\n".join([*(head for head in heads if isinstance(head, str) and head.strip()), text])


_TEXT_BLOCKS: Final = ("document", "search_result")


def _is_text(block: dict[str, Any]) -> bool:
    return isinstance(block.get("text"), str)


def _document_text(part: dict[str, Any]) -> str | None:
    """Return the text of a document of Anthropic's or OpenAI's, ``None`` for one of another kind."""
    source, file = part.get("source"), part.get("file", part)
    if isinstance(source, dict):
        fields = cast("dict[str, Any]", source)
        if fields.get("type") == "text":
            return text if isinstance(text := fields.get("data"), str) else None
        return _decode_text(str(fields.get("media_type", "")), fields.get("data"))
    url: object = cast("dict[str, Any]", file).get("file_data") if isinstance(file, dict) else None
    if isinstance(url, str) and url.startswith("data:"):
        media_type, _, data = url.removeprefix("data:").partition(";base64,")
        return _decode_text(media_type, data)
    return None


def _decode_text(media_type: str, data: object) -> str | None:
    """Return the text in base64, ``None`` if its media type is not one of texts or it cannot be decoded."""
    if not media_type.startswith(_TEXT_TYPES) or not isinstance(data, str):
        return None
    from base64 import b64decode  # noqa: PLC0415 - only documents pay for it

    try:
        return b64decode(data, validate=True).decode("utf-8", "replace")
    except ValueError:
        return None


def _texts_of_call(call: dict[str, Any]) -> Iterator[str]:
    function = call.get("function", call)
    if not isinstance(function, dict):
        return
    for field in ("name", "arguments", "input"):
        if field in function:
            yield _to_text(function[field])


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    import msgspec  # noqa: PLC0415 - only messages whose arguments are not text pay for it

    return msgspec.json.encode(value).decode()


# Two statements of which one repeats the other. Only punctuation around words is left out: C++ is not C, 10% is not 10.

_PIECES: Final = " | "
_OPENING: Final = "\"'`([{\u00ab\u2039\u201c\u201e\u2018\u00bf\u00a1\u300c\u300e\uff08"
_CLOSING: Final = (
    "\"'`)]}\u00bb\u203a\u201d\u201c\u2019\u300d\u300f\uff09.,;:!?\u2026\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f"
)
_BULLETS: Final = frozenset("-*\u2022\u00b7\u2013\u2014")


def contains(text: str, other: str) -> bool:
    """Return whether a text has all words of another in their order, regardless of case, spaces and punctuation.

    In texts that were joined with `" | "`, each piece of the other must be in one of the text. In a script without
    spaces between words, a character counts as a word.

    >>> contains("Alice likes green tea.", "green  TEA!"), contains("Alice likes teapots.", "Alice likes tea.")
    (True, False)
    """
    pieces, others = ([f" {_plain_words(piece)} " for piece in each.split(_PIECES)] for each in (text, other))
    return all(any(one in piece for piece in pieces) for one in others)


def _plain_words(text: str) -> str:
    """Return the words of a text in lower case, separated by spaces, without bullets and punctuation around them."""
    if not text.isascii():
        text = _unspaced_pattern().sub(lambda run: f" {' '.join(run.group())} ", text)
    words = text.casefold().split()
    words = words[1:] if words and words[0] in _BULLETS else words
    return " ".join(filter(None, (word.lstrip(_OPENING).rstrip(_CLOSING) for word in words)))


# Two statements that look alike but say different things: they differ in a number, a sign, a name, a negation, or in
# who does what to whom.

_NUMBER: Final = re.compile(r"(?:(?<!\w)[-\u2212])?\d+(?:[.,:/-]\d+)*")
_SIGN: Final = re.compile(
    r"[#%&+<=>@^~$\u00a2-\u00a9\u00ac-\u00b1\u00d7\u00f7\u20a0-\u20bf\u2100-\u2bff\U0001f000-\U0001faff]+"
)
_TOKEN: Final = re.compile(r"[^\W_][\w'\u2019]*(?:[._@/-]\w+)*")
_SHORT_NOT: Final = re.compile(r"n['\u2019]t\b", re.IGNORECASE)

# Words that negate a statement, or as verbs say the opposite of doing or liking, as `_runs` returns them. A word that
# means something else in another language keeps two memories apart at worst.
_DENIALS: Final = {
    "English": "not no non never none nothing nobody nowhere neither nor without cannot cant dont doesnt didnt isnt "
    "arent wasnt wont shouldnt stop stops stopped avoid avoids avoided forbid forbids forbidden refuse refuses "
    "refused dislike dislikes disliked hate hates hated",
    "German": "nicht nichts nie niemals niemand nirgends weder ohne kein keine keinem keinen keiner keines keinerlei",
    "French": "ne pas jamais aucun aucune rien non sans",
    "Spanish": "no nunca jamás ningún ninguno ninguna nadie nada tampoco sin",
    "Portuguese": "não nunca jamais nenhum nenhuma ninguém nada nem sem",
    "Italian": "non no mai nessun nessuno nessuna niente nulla né neanche senza",
    "Dutch": "niet geen nooit niemand niets nergens noch zonder",
    "Swedish, Danish, Norwegian": "inte icke ej ikke ikkje aldrig aldri ingen inget inga intet utan uden uten",
    "Finnish": "ei eivät emme älä ilman",
    "Hungarian": "nem ne nincs sem soha nélkül",
    "Polish": "nie nigdy nikt nic żaden żadna żadne brak bez",
    "Czech, Slovak": "ne není nikdy nikdo nic žádný žádná nie nikto bez",
    "Croatian, Serbian": "ne nije nema nikad nikada nitko niko bez",
    "Turkish": "değil yok hiç hayır asla",
    "Greek": "δεν δε μη μην όχι ποτέ χωρίς",
    "Russian, Ukrainian, Bulgarian": "не нет нельзя ни ні никогда ніколи никога нема немає няма никто ничего без",
    "Arabic": "لا ولا ليس ليست وليس لست لم ولم لن ما مش مو غير بدون بلا",
    "Persian": "نه نیست نیستم هرگز بدون",
    "Urdu": "نہیں نہ مت بغیر",
    "Hebrew": "לא אין אל אינו אינה בלי",
    "Hindi": "नहीं नही मत न ना बिना",
    "Bengali": "না নেই নয়",
    "Vietnamese": "không chưa đừng chẳng",
    "Indonesian, Malay": "tidak bukan jangan tanpa belum",
    "Korean": "안 못",
}
# The same in scripts without spaces between words, and in Korean endings; not in words such as "especially" or "few".
_DENIALS_INSIDE: Final = re.compile(
    r"(?P<Chinese>[不没沒勿嫌]|(?<![特区區性个個级級])[别別](?!人)|[无無](?![论論料])|未(?![来來])|非(?!常)|讨厌|討厭|"
    r"禁止|避免|拒[绝絕])|"
    r"(?P<Japanese>(?<![少危])な(?:い|かっ|く|けれ)|ません|無し|なし)|"
    r"(?P<Korean>[않없]|아니|못(?=[하해합])|지\s?(?:마|말))|"
    r"(?P<Thai>ไม่|อย่า|ห้าม)"
)
# Prefixes that turn a word of at least so many letters into its opposite; Czech and Persian negate verbs by them.
_DENYING_PREFIXES: Final = ("un", "in", "im", "dis", "non", "ne", "nie", "ن")
_PREFIXED_CHARS_MIN: Final = 4
_CONJUNCTIONS: Final = frozenset(
    (
        *("and", "or", "&", "und", "oder", "et", "ou", "y", "o", "e", "ed", "en", "och", "eller", "og", "i", "a", "ja"),
        *("ve", "veya", "и", "или", "та", "і", "و", "او", "और", "या", "和", "或", "と", "や"),
    )
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


def contradiction(text: str, other: str, *, denials: bool = True) -> str | None:
    """Return the difference because of which two similar statements must not be joined, or `None` if none is found.

    It is a difference in numbers, signs or names, a negation, one of a few opposites, or the order of the same words or
    names, unless only one part has moved or a list is sorted otherwise. Content that only one of the two has is not a
    contradiction, except for a negation. In texts that were joined with `" | "`, each piece is compared. Without
    `denials`, negations are not compared: a text that names a subject denies nothing.

    >>> contradiction("The API listens on port 8080.", "The API listens on port 9090.")
    'the numbers differ (8080, 9090)'
    >>> contradiction("The API listens on port 8080.", "The API is on 8080, behind nginx.") is None
    True
    """
    pieces, others = (_pieces(each) for each in (text, other))
    reasons = (_difference(one, another, denials=denials) for one in pieces for another in others)
    return next((reason for reason in reasons if reason), None)


def entails(text: str, other: str) -> bool:
    """Return whether a text already says what another does: it contains all words of it, and contradicts nothing.

    Of texts that were joined with `" | "`, some piece of the text must say what each piece of the other does.

    >>> entails("Use pnpm, not npm, for all packages.", "Use pnpm, not npm."), entails("Do not use npm.", "Use npm.")
    (True, False)
    """
    pieces, others = ([(piece, f" {_plain_words(piece)} ") for piece in _pieces(each)] for each in (text, other))
    return len(others) < _PIECES_MAX and all(
        any(one in words and _difference(piece, another, denials=True) is None for piece, words in pieces)
        for another, one in others
    )


def _pieces(text: str) -> list[str]:
    """Return the first pieces of a joined text in NFC, so that an accent may be a character of its own."""
    if not text.isascii():
        from unicodedata import normalize  # noqa: PLC0415 - only texts beyond ASCII pay for it

        text = normalize("NFC", text)
    return text.split(_PIECES)[:_PIECES_MAX]


def _difference(text: str, other: str, *, denials: bool) -> str | None:
    for what, pattern in (("numbers", _NUMBER), ("signs", _SIGN)):
        found, others = (dict.fromkeys(pattern.findall(each)) for each in (text, other))
        if reason := _compare_words(what, found, others):
            return reason
    if denials and (reason := _denial_difference(text, other)):
        return reason
    words, known = ([word.lower() for word in _TOKEN.findall(each)] for each in (text, other))
    first, second = set(words), set(known)
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
    own, foreign = {name.lower(): name for name in _names(text)}, {name.lower(): name for name in _names(other)}
    return _compare_words(
        "names",
        {name: None for word, name in own.items() if not _has_form(second, word)},
        {name: None for word, name in foreign.items() if not _has_form(first, word)},
    ) or _order_difference(text, other, (own.keys() | foreign.keys()) & first & second)


def _compare_words(what: str, one: dict[str, None], other: dict[str, None]) -> str | None:
    """Name the difference if both texts have something that the other lacks."""
    first, second = [each for each in one if each not in other], [each for each in other if each not in one]
    return f"the {what} differ ({first[0]}, {second[0]})" if first and second else None


def _has_form(words: AbstractSet[str], word: str) -> bool:
    """Return whether a word is among others, in the singular or plural."""
    return word in words or f"{word}s" in words or (word.endswith("s") and word[:-1] in words)


def _is_akin(word: str, other: str) -> bool:
    return word == other or (word[:_STEM_CHARS] == other[:_STEM_CHARS] and min(len(word), len(other)) >= _STEM_CHARS)


# Negations.


def _denial_difference(text: str, other: str) -> str | None:
    """Return how two texts differ in what they negate: one does so more often, in another language, or by a prefix.

    Negations that both have cancel out. "Never" and "not" agree, and so do all others of one language.
    """
    runs, others = (_runs(_SHORT_NOT.sub(" not", each)) for each in (text, other))
    own, known = Counter(_denials(text, runs)), Counter(_denials(other, others))
    left, right = (
        Counter(language for _, languages in each.elements() for language in languages)
        for each in (own - known, known - own)
    )
    if (left or right) and not left.items() & right.items():
        return "only one of them denies it"
    first, second = set(runs), set(others)
    if _has_prefix_form(first - second, second - first) or _has_prefix_form(second - first, first - second):
        return "only one of them denies it"
    one, another = (["not" if run in _languages() else run for run in each] for each in (runs, others))
    shared = {run for run in set(one) & set(another) if len(run) >= _KEYWORD_BYTES_MIN}
    return "the order of what is denied differs" if own and not _is_moved(one, another, shared) else None


def _denials(text: str, runs: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each negation of a text with the languages that it belongs to."""
    languages = _languages()
    yield from ((run, languages[run]) for run in runs if run in languages)
    if not text.isascii():
        yield from ((match.group(), (match.lastgroup or "",)) for match in _DENIALS_INSIDE.finditer(text))


@cache
def _languages() -> dict[str, tuple[str, ...]]:
    languages: dict[str, tuple[str, ...]] = {}
    for language, denials in _DENIALS.items():
        for word in denials.split():
            languages[word] = (*languages.get(word, ()), language)
    return languages


def _has_prefix_form(words: AbstractSet[str], others: AbstractSet[str]) -> bool:
    """Return whether one of the others is one of the words with a prefix that negates it."""
    long = (word for word in words if len(word) >= _PREFIXED_CHARS_MIN)
    return any(f"{prefix}{word}" in others for word in long for prefix in _DENYING_PREFIXES)


# The order of the same words and names.


def _order_difference(text: str, other: str, names: AbstractSet[str]) -> str | None:
    """Return how two texts differ in order: of their words if one has all words of the other, else of their names."""
    words, known = (
        [word for word in _plain_words(each).split() if word not in _CONJUNCTIONS] for each in (text, other)
    )
    least, most = sorted((words, known), key=len)
    rest = iter(most)
    if all(word in rest for word in least):
        return None
    shared = set(words) & set(known)
    if len(shared) == min(len(set(words)), len(set(known))):
        is_same = _is_moved(words, known, shared) and _denied_words(words) == _denied_words(known)
        return None if is_same else "the order of the words differs"
    return None if _order(text, names) == _order(other, names) else "the order of the names differs"


def _is_moved(words: Iterable[str], known: Iterable[str], shared: AbstractSet[str]) -> bool:
    """Return whether the order of the words that two texts share differs at most by one part that has moved."""
    one, another = ([*dict.fromkeys(word for word in each if word in shared)] for each in (words, known))
    places = [place for place, pair in enumerate(zip(one, another, strict=True)) if pair[0] != pair[1]]
    if not places:
        return True
    one, another = one[places[0] : places[-1] + 1], another[places[0] : places[-1] + 1]
    begin = one.index(another[0])
    return [*one[begin:], *one[:begin]] == another


def _denied_words(words: Sequence[str]) -> set[str]:
    """Return the words before which a negation stands."""
    return {following for word, following in pairwise(words) if word in _languages()}


def _order(text: str, names: AbstractSet[str]) -> list[str]:
    """List some names in their order in a text; those that it lists side by side, sorted."""
    lists: list[list[str]] = []
    end, found = 0, set[str]()
    for token in _TOKEN.finditer(text):
        name = token.group().lower()
        if name in names and name not in found:
            found.add(name)
            link = text[end : token.start()].replace(",", " ").lower().split()
            if not lists or not _CONJUNCTIONS.issuperset(link):
                lists.append([])
            lists[-1].append(name)
            end = token.end()
    return [name for each in lists for name in sorted(each)]


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
