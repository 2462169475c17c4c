"""Names that are spelled as words of everyday talk or of grammar are, told by how a text writes them. Pure."""

import re
from itertools import pairwise
from typing import Final

from refold.index.terms import grammar_words, porter, talk_terms, writes_compounds

_TOKEN: Final = re.compile(r"[^\W\d_]+")
_ENDING: Final = re.compile(r"[.?!:;\n\u2026\u3002]")  # Between two words, the second of which begins a sentence.
_TITLE_WORDS: Final = 3  # With so many capitals, and fewer small letters, a text writes all words like names.

# Given names among the words of talk and grammar. Other words of English talk that a text begins with a capital letter
# are part of a greeting or of a heading more often than a name; and German begins each noun with one.
_GIVEN: Final = frozenset(re.findall(r"\w+", "al april august ben dan don ella elle guy hope ines june mia mio tua"))
_MONTHS: Final = frozenset(("april", "august", "june"))
# What precedes the name of a month, and not that of a person.
_DATING: Final = frozenset(
    re.findall(
        r"\w+",
        "a before by during each early every for from in last late mid middle next of on since than this "
        "through till to until",
    )
)
# Words of grammar that are written with a capital letter without being a name: articles and prepositions, which names
# only begin with, and pronouns for a person who is addressed politely.
_NOT_NAMED: Final = frozenset(
    re.findall(
        r"\w+",
        "a am as au auf aus aux bei bitte da dal dalla das de dei dein deine del dem den der des di dich die "
        "dir du e ee een ein eine el els em en er es est et euch euer eure i ich ihm ihn ihnen ihr ihre ihrem "
        "ihren ihrer il im in io l la las le lei les lo los lui ma mal me mi mir mit mon my na nel non nos o "
        "ou para per por qu que qui s sa se si sie su sua suo sur t te ti toi tu u uit un una und une voi "
        "voor vos votre vous y zu zum zur",
    )
)
_ACRONYMS: Final = frozenset(("AI", "CE", "EU", "LA", "MIT"))
# Nouns of a verb and what is no word of its own: "check-in", "take-off".
_PARTICLE: Final = re.compile(r"(?<![\w-])(?!one-)([^\W\d_]+)-(?:in|out|off|up|down|over|back|away|by)(?![\w-])")


def names_in(text: str) -> list[str]:
    """Return the words of talk and grammar that a text writes as names, and such verbs of hyphenated nouns.

    >>> names_in("When does Mia meet Ben at the check-in?"), names_in("Is AI good for Hope?")
    (['mia', 'ben', 'check'], ['ai', 'hope'])
    >>> names_in("Was habe ich Ihnen gesagt? Mia casa."), names_in("What did June do in August?")
    ([], ['june'])
    """
    tokens = list(_TOKEN.finditer(text))
    # A word that begins a sentence has a capital letter whatever it is.
    inner = [
        (before, token) for before, token in pairwise(tokens) if not _ENDING.search(text, before.end(), token.start())
    ]
    capitals = sum(token.group()[0].isupper() for _, token in inner)
    found = list[str]()
    if capitals < _TITLE_WORDS or capitals <= len(inner) - capitals:
        is_compounding = writes_compounds(text)
        found = [
            token.group().lower()
            for before, token in inner
            if _is_name(token.group(), is_compounding=is_compounding) and not _is_date(text, before, token)
        ]
    talk = talk_terms()
    return found + [verb for verb in _PARTICLE.findall(text.lower()) if porter(verb) in talk]


def _is_name(word: str, *, is_compounding: bool) -> bool:
    if word in _ACRONYMS:
        return not is_compounding
    plain = word.lower()
    if word != plain.capitalize() or plain in _NOT_NAMED:
        return False
    return plain in _GIVEN or (not is_compounding and plain in grammar_words())


def _is_date(text: str, before: "re.Match[str]", token: "re.Match[str]") -> bool:
    """Return whether a word is the name of a month rather than of a person."""
    near = text[before.end() : token.start()] + text[token.end() : token.end() + 3]
    has_number = any(map(str.isdigit, near))
    return token.group().lower() in _MONTHS and (has_number or before.group().lower() in _DATING)
