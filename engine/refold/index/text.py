"""Terms of texts: their stems, the rows that have them, the sessions that rows stand in."""

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from refold.index.columns import grown
from refold.limits import STEMS_COUNT_MAX
from refold.text import is_unspaced, words

if TYPE_CHECKING:
    from numpy import intp, uint16
    from numpy.typing import NDArray


# Words into terms: without the commonest English ones, and reduced to their stems.
#
# Porter's algorithm of 1980 (M. F. Porter, An algorithm for suffix stripping), and a lighter one of four steps. Both
# leave alone what is not of the letters a to z: no stems are known for other scripts and languages.

_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been but by can could did do does for from had has have he her him his how i if in into "
        "is it its just me my no not of on or our out she should so some than that the their them then there these "
        "they this those to too up us was we were what when where which who whom why will with would you your",
    )
)


def terms_of(text: str, stemmer: str) -> tuple[list[str], int]:
    """Return the terms of a text, with repetitions, and how many words long it is.

    Of a script that does not part words, each pair of characters and each character is a term, and two pairs are
    counted as one word. ``stemmer`` is a key of ``STEMMERS``.

    >>> terms_of("The dogs were barking", "porter")
    (['dog', 'bark'], 2)
    """
    stem = STEMMERS[stemmer]
    if text.isascii():
        stems = [stem(word) for word in words(text) if word not in _COMMON]
        return stems, len(stems)
    found: list[str] = []
    pairs = 0
    plain = 0
    for word in words(text):
        if is_unspaced(word):
            found += [word, *word] if len(word) > 1 else [word]
            pairs += 1
        elif word not in _COMMON:
            found.append(stem(word))
            plain += 1
    return found, plain + (pairs + 1) // 2


def unstemmed(word: str) -> str:
    """Return the word itself."""
    return word


@lru_cache(STEMS_COUNT_MAX)
def light(word: str) -> str:
    """Return a word without its commonest English ending."""
    if not word.isascii():
        return word
    for suffix, replacement in _LIGHT_ENDINGS:
        if word.endswith(suffix) and len(word) - len(suffix) >= _LIGHT_LETTERS_MIN:
            word = word[: -len(suffix)] + replacement
            break
    if len(word) > _LIGHT_LETTERS_MIN and word.endswith("e"):
        word = word[:-1]
    if len(word) > _LIGHT_LETTERS_MIN and word[-1] == word[-2] and word[-1].isalpha() and word[-1] not in "lsz":
        word = word[:-1]
    return word[:-1] + "i" if len(word) >= _LIGHT_LETTERS_MIN and word.endswith("y") else word


_LIGHT_LETTERS_MIN: Final = 3
_LIGHT_ENDINGS: Final = (("ing", ""), ("edly", ""), ("ed", ""), ("ies", "y"), ("es", ""), ("s", ""), ("ly", ""))


@lru_cache(STEMS_COUNT_MAX)
def porter(word: str) -> str:
    """Return the stem of an English word by Porter's algorithm."""
    if len(word) <= _PORTER_LETTERS or not (word.isascii() and word.isalpha()):
        return word
    word = _without_plural(word)
    word = _without_past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    for endings, measure_min in _PORTER_STEPS:
        word = _replaced(word, endings, measure_min)
    word = _without_last(word)
    return _without_final_e(word)


_PORTER_LETTERS: Final = 2

_TO_SHORTER: Final = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("abli", "able"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
)
_TO_ADJECTIVE: Final = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_PORTER_STEPS: Final = ((_TO_SHORTER, 1), (_TO_ADJECTIVE, 1))
_LAST: Final = tuple(
    re.findall(r"\w+", "ement ance ence able ible ment ant ent ism ate iti ous ive ize ion al er ic ou")
)


def _shape(stem: str) -> str:
    """Return a stem as v and c, for vowels and consonants; a y behind a consonant is a vowel."""
    shape = ""
    for letter in stem:
        is_vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if is_vowel else "c"
    return shape


def _measure(stem: str) -> int:
    """Return how often a vowel is followed by a consonant."""
    return _shape(stem).count("vc")


def _has_vowel(stem: str) -> bool:
    return "v" in _shape(stem)


def _ends_double(stem: str) -> bool:
    return len(stem) > 1 and stem[-1] == stem[-2] and _shape(stem)[-1] == "c"


def _ends_short(stem: str) -> bool:
    """Return whether a stem ends in consonant, vowel, consonant, the last of them not w, x or y."""
    return _shape(stem).endswith("cvc") and stem[-1] not in "wxy"


def _without_plural(word: str) -> str:
    for suffix, replacement in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(suffix):
            return word[: -len(suffix)] + replacement
    return word


def _without_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            return _mended(stem) if _has_vowel(stem) else word
    return word


def _mended(stem: str) -> str:
    """Return a stem with the e that its ending took, or without the consonant that was doubled for it."""
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _ends_double(stem) and stem[-1] not in "lsz":
        return stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _ends_short(stem) else stem


def _replaced(word: str, endings: tuple[tuple[str, str], ...], measure_min: int) -> str:
    """Return a word with the longest of some endings replaced, where enough of it stays."""
    found = [pair for pair in endings if word.endswith(pair[0])]
    if not found:
        return word
    suffix, replacement = max(found, key=lambda pair: len(pair[0]))
    stem = word[: -len(suffix)]
    return stem + replacement if _measure(stem) >= measure_min else word


def _without_last(word: str) -> str:
    suffix = max((suffix for suffix in _LAST if word.endswith(suffix)), key=len, default="")
    stem = word[: -len(suffix)] if suffix else word
    if not suffix or _measure(stem) <= 1 or (suffix == "ion" and not stem.endswith(("s", "t"))):
        return word
    return stem


def _without_final_e(word: str) -> str:
    if word.endswith("e"):
        stem = word[:-1]
        measure = _measure(stem)
        if measure > 1 or (measure == 1 and not _ends_short(stem)):
            word = stem
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


STEMMERS: Final[dict[str, Callable[[str], str]]] = {"porter": porter, "light": light, "none": unstemmed}


# How much of a text is a question: what only asks seldom holds the answer.

_SPEAKER: Final = re.compile(r"\w[\w .'-]{0,40}: ")
_SENTENCES: Final = re.compile(r"(?<=[.?!\u061f])\s+|(?<=[\u3002\uff01\uff1f])\s*")
_QUESTION_MARKS: Final = ("?", "\u061f", "\uff1f")


def question_share(text: str) -> float:
    """Return which part of a text, by characters, stands in sentences that end as questions; a speaker is left out.

    >>> question_share("Ada: How are you?")
    1.0
    """
    speaker = _SPEAKER.match(text)
    said = text[speaker.end() :] if speaker else text
    if not any(mark in said for mark in _QUESTION_MARKS):
        return 0.0
    sentences = [sentence.strip() for sentence in _SENTENCES.split(said)]
    asked = sum(len(sentence) for sentence in sentences if sentence.endswith(_QUESTION_MARKS))
    return asked / max(1, sum(map(len, sentences)))


# Which rows have which term: lists that grow and shrink row by row, and equal those built anew.

_REPEATS_MAX: Final = 2**16 - 1


class Posting:
    """The rows that have one term, in order, and how often each of them has it."""

    __slots__ = ("_repeats", "_rows", "term")

    def __init__(self, term: str) -> None:
        self.term = term
        self._rows = array("q")
        self._repeats = array("H")

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> "NDArray[intp]":
        """Return the rows, as a copy."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        return numpy.array(self._rows, dtype=numpy.intp)

    def repeats(self) -> "NDArray[uint16]":
        """Return how often each row has the term, as a copy."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        return numpy.array(self._repeats, dtype=numpy.uint16)

    def add(self, row: int, repeats: int) -> None:
        """Note that a row has the term; rows come in order, as a rule."""
        repeats = min(repeats, _REPEATS_MAX)
        if not self._rows or self._rows[-1] < row:
            self._rows.append(row)
            self._repeats.append(repeats)
        else:
            place = bisect_left(self._rows, row)
            self._rows.insert(place, row)
            self._repeats.insert(place, repeats)

    def remove(self, row: int) -> None:
        """Forget a row that has the term."""
        place = bisect_left(self._rows, row)
        del self._rows[place]
        del self._repeats[place]


class Postings:
    """The postings of every term, and the terms of every row."""

    def __init__(self) -> None:
        self._postings: dict[str, Posting] = {}
        self._of_row: dict[int, tuple[Posting, ...]] = {}

    def __len__(self) -> int:
        """How many rows have terms here, or were added without any."""
        return len(self._of_row)

    def add(self, row: int, terms: Iterable[str]) -> None:
        """Add a row that is not here, with its terms and their repetitions."""
        assert row not in self._of_row, "a row is removed before it is added again"
        held: list[Posting] = []
        for term, repeats in Counter(terms).items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = Posting(term)
            posting.add(row, repeats)
            held.append(posting)
        self._of_row[row] = tuple(held)

    def remove(self, row: int) -> None:
        """Take a row out, and every term that no other row has."""
        for posting in self._of_row.pop(row):
            posting.remove(row)
            if not len(posting):
                del self._postings[posting.term]

    def get(self, term: str) -> Posting | None:
        """Return the posting of a term, or None if no row has it."""
        return self._postings.get(term)

    def all(self) -> Iterable[Posting]:
        """Return every posting, in the order in which their terms came."""
        return self._postings.values()


_NONE = -1


class Sessions:
    """For each row, the rows before and after it in its session; -1 where there is none."""

    def __init__(self) -> None:
        import numpy  # noqa: PLC0415 - loads when the first row comes

        self._before: NDArray[intp] = numpy.empty(0, dtype=numpy.intp)
        self._after: NDArray[intp] = numpy.empty(0, dtype=numpy.intp)
        self._rows: dict[str | int, list[int]] = {}

    def __len__(self) -> int:
        """How many sessions there are."""
        return len(self._rows)

    def reach(self, size: int) -> None:
        """Make room for so many rows."""
        self._before = grown(self._before, size, _NONE)
        self._after = grown(self._after, size, _NONE)

    def add(self, row: int, session: str | int | None) -> None:
        """Place a row in its session, by its number."""
        self._before[row] = self._after[row] = _NONE
        if session is not None:
            rows = self._rows.setdefault(session, [])
            place = bisect_left(rows, row)
            rows.insert(place, row)
            self._link(*rows[max(0, place - 1) : place + 1])
            self._link(*rows[place : place + 2])

    def remove(self, row: int, session: str | int | None) -> None:
        """Take a row out; its neighbours become neighbours of each other."""
        if session is not None:
            rows = self._rows[session]
            del rows[bisect_left(rows, row)]
            if not rows:
                del self._rows[session]
            before, after = int(self._before[row]), int(self._after[row])
            if before != _NONE:
                self._after[before] = after
            if after != _NONE:
                self._before[after] = before
        self._before[row] = self._after[row] = _NONE

    def chains(self) -> "tuple[NDArray[intp], NDArray[intp]]":
        """Return, for each row, the row before it and the row after it."""
        return self._before, self._after

    def _link(self, left: int, right: int | None = None) -> None:
        if right is not None:
            self._after[left] = right
            self._before[right] = left
