"""Words into terms: without the commonest English ones, and reduced to their stems.

Porter's algorithm of 1980 (M. F. Porter, An algorithm for suffix stripping), and a lighter one of four steps. Both
leave alone what is not of the letters a to z: no stems are known for other scripts and languages.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from refold.limits import STEMS_COUNT_MAX
from refold.text import is_unspaced, words

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
