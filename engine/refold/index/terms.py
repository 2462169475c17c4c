"""Terms of texts: the stems of all but the most common English words; and a text's share of questions. Pure."""

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Final, TypeAlias

from refold.text import is_unspaced, words

# From words to terms: the most common English words are dropped, and the others reduced to their stems.
#
# The stemmers are Porter's algorithm of 1980 (M. F. Porter, An algorithm for suffix stripping), and a lighter one of
# four steps. Both leave words with letters other than a to z unchanged.

_STEMS_MAX: Final = 65_536  # Words whose stems are cached.

_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been but by can could did do does for from had has have he her him his how i if in into "
        "is it its just me my no not of on or our out she should so some than that the their them then there these "
        "they this those to too up us was we were what when where which who whom why will with would you your",
    )
)


def terms_of(text: str, stemmer: str) -> tuple[list[str], int]:
    """Split a text into terms, with repetitions; return them and the length of the text in words.

    In a script without spaces between words, each pair of characters and each character is a term, and two pairs count
    as one word. `stemmer` is a key of `STEMMERS`.

    >>> terms_of("The dogs were barking", "porter")
    (['dog', 'bark'], 2)
    """
    found, length = words_of(text)
    return list(map(STEMMERS[stemmer], found)), length


def words_of(text: str) -> tuple[list[str], int]:
    """Split a text into the words that `terms_of` stems, without accents; return them and the number of its words.

    >>> words_of("Jos\u00e9 in M\u00e1laga")[0] == words_of("Jose in Malaga")[0]
    True
    """
    if text.isascii():
        plain_words = [word for word in words(text) if word not in _COMMON]
        return plain_words, len(plain_words)
    found: list[str] = []
    pairs = 0
    plain = 0
    for word in words(text):
        if is_unspaced(word):
            found += [word, *word] if len(word) > 1 else [word]  # No stemmer changes them.
            pairs += 1
        elif word not in _COMMON:
            found.append(_without_accents(word))
            plain += 1
    return found, plain + (pairs + 1) // 2


# Letters that Unicode does not decompose into a letter and its mark.
_PLAIN_LETTERS: Final = str.maketrans(
    dict(zip("\u0142\u00f8\u0111\u00f0\u0131\u0451", "loddi\u0435", strict=True))
    | {"\u00e6": "ae", "\u0153": "oe", "\u00fe": "th"}
)
_CYRILLIC: Final = "\u0400"  # Where marks make other letters, as from here on: Latin and Greek come before.
_POINTS: Final = re.compile("[\u0591-\u05c7\u0640\u064b-\u0652]")  # Of Hebrew and Arabic, which are mostly left out.


@lru_cache(_STEMS_MAX)
def _without_accents(word: str) -> str:
    """Return a word as it is typed without accents: marks of Latin and Greek letters, and points, are left out."""
    if word.isascii():
        return word
    from unicodedata import normalize  # noqa: PLC0415 - only texts beyond ASCII pay for it

    letters = list[str]()
    for letter in normalize("NFD", word.translate(_PLAIN_LETTERS)):
        is_accent = "\u0300" <= letter <= "\u036f" and letters and letters[-1] < _CYRILLIC
        if not is_accent:
            letters.append(letter)
    return normalize("NFC", _POINTS.sub("", "".join(letters))) or word


class Words:
    """Distinct words of texts, which can be found by their stem without stemming all of them.

    >>> words = Words("porter")
    >>> words.add(["dogs", "dig", "dog"])
    >>> words.flush()
    >>> sorted(words.find_words("dog"))
    ['dog', 'dogs']
    """

    def __init__(self, stemmer: str) -> None:
        self._stem = STEMMERS[stemmer]
        self._groups: dict[str, set[str]] = {}  # By their first letters.
        self._fresh: set[str] = set()
        self._count = 0

    @property
    def nbytes(self) -> int:
        """Approximate bytes in RAM."""
        return _WORD_BYTES * (self._count + len(self._fresh))

    def add(self, words: Iterable[str]) -> None:
        """Add words, which `find_words` finds after the next `flush`."""
        self._fresh.update(words)

    def flush(self) -> None:
        """Make all added words searchable; `find_words` needs no lock while this runs."""
        groups = self._groups
        if self._fresh:
            for word in self._fresh:
                key = word[:_GROUP_LETTERS]
                if key not in groups:
                    groups[key] = set()
                groups[key].add(word)
            self._fresh = set()
            self._count = sum(map(len, groups.values()))

    def find_words(self, term: str) -> list[str]:
        """List the words whose stem is `term`."""
        beginning = term[: max(1, len(term) - _CHANGED_LETTERS_MAX)]
        key = beginning[:_GROUP_LETTERS]
        if len(key) == _GROUP_LETTERS:
            groups = [self._groups.get(key, set())]
        else:
            groups = [group for begun, group in list(self._groups.items()) if begun.startswith(key)]
        return [
            word for group in groups for word in list(group) if word.startswith(beginning) and self._stem(word) == term
        ]


_GROUP_LETTERS: Final = 2
_CHANGED_LETTERS_MAX: Final = 2
"""More than the number of final letters in which any stem differs from its word; the first letter never differs."""
_WORD_BYTES: Final = 250


_Endings: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Endings, for a single call that rules out most words; and pairs of each ending and its replacement."""


def _endings(pairs: str) -> _Endings:
    """Parse endings and their replacements, longest first, so that the first one that matches is the one to replace."""
    parts = (pair.partition(":") for pair in sorted(pairs.split(), key=lambda pair: -len(pair.partition(":")[0])))
    replacements = tuple((ending, replacement) for ending, _, replacement in parts)
    return tuple(ending for ending, _ in replacements), replacements


_LIGHT_LETTERS_MIN: Final = 3
# In the order in which they are tried.
_LIGHT_ENDINGS: Final = (("ing", ""), ("edly", ""), ("ed", ""), ("ies", "y"), ("es", ""), ("s", ""), ("ly", ""))
# The steps of Porter's paper, by their numbers.
_PLURALS_1A: Final = _endings("sses:ss ies:i ss:ss s:")
_ENDINGS_2: Final = _endings(
    "ational:ate tional:tion enci:ence anci:ance izer:ize abli:able alli:al entli:ent eli:e ousli:ous ization:ize "
    "ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble"
)
_ENDINGS_3: Final = _endings("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:")
_ENDINGS_4: Final = _endings("ement ance ence able ible ment ant ent ism ate iti ous ive ize ion al er ic ou")


@lru_cache(_STEMS_MAX)
def light(word: str) -> str:
    """Remove the most common English endings from a word."""
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


@lru_cache(_STEMS_MAX)
def porter(word: str) -> str:
    """Reduce an English word to its stem by Porter's algorithm."""
    if len(word) <= 2 or not (word.isascii() and word.isalpha()):  # noqa: PLR2004 - the paper's bound
        return word
    word = _replace_ending(word, _PLURALS_1A, measure_min=0)
    word = _strip_past(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replace_ending(word, _ENDINGS_2)
    word = _replace_ending(word, _ENDINGS_3)
    if not word.endswith("ion") or word[-4:-3] in {"s", "t"}:
        word = _replace_ending(word, _ENDINGS_4, measure_min=2)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


_SHAPES: Final = {code: "v" if chr(code) in "aeiou" else "c" for code in range(ord("a"), ord("z") + 1)}


def _shape(stem: str) -> str:
    """Spell a stem as v and c, for vowels and consonants; a y after a consonant is a vowel."""
    if "y" not in stem:
        return stem.translate(_SHAPES)
    shape = ""
    for letter in stem:
        is_vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if is_vowel else "c"
    return shape


def _measure(stem: str) -> int:
    return _shape(stem).count("vc")


def _ends_short(stem: str) -> bool:
    """Return whether a stem ends in consonant, vowel, consonant, and the last is not w, x or y."""
    return _shape(stem).endswith("cvc") and stem[-1] not in "wxy"


def _replace_ending(word: str, endings: _Endings, *, measure_min: int = 1) -> str:
    """Replace the longest matching ending, if enough of the word remains."""
    if not word.endswith(endings[0]):
        return word
    for suffix, replacement in endings[1]:
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            return stem + replacement if _measure(stem) >= measure_min else word
    return word


def _strip_past(word: str) -> str:
    if not word.endswith(("ed", "ing")):
        return word
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    stem = word[: -len("ed")] if word.endswith("ed") else word[: -len("ing")]
    if "v" not in _shape(stem):
        return word
    # Restore the e that the ending replaced, and remove a consonant that was doubled before it.
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if len(stem) > 1 and stem[-1] == stem[-2] and _shape(stem)[-1] == "c" and stem[-1] not in "lsz":
        return stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _ends_short(stem) else stem


STEMMERS: Final[dict[str, Callable[[str], str]]] = {"porter": porter, "light": light, "none": str}


# The share of a text that is a question: a text that only asks rarely contains the answer.

_SPEAKER: Final = re.compile(r"\w[\w .'-]{0,40}: ")
_SENTENCES: Final = re.compile(r"(?<=[.?!\u061f])\s+|(?<=[\u3002\uff01\uff1f])\s*")
_QUESTION_MARKS: Final = ("?", "\u061f", "\uff1f")


def question_share(text: str) -> float:
    """Compute the share of a text's characters in sentences that end as questions, leaving out its speaker.

    >>> question_share("Ada: How are you?")
    1.0
    """
    speaker = _SPEAKER.match(text)
    content = text[speaker.end() :] if speaker else text
    if not any(mark in content for mark in _QUESTION_MARKS):
        return 0.0
    sentences = [sentence.strip() for sentence in _SENTENCES.split(content)]
    questions = sum(len(sentence) for sentence in sentences if sentence.endswith(_QUESTION_MARKS))
    return questions / max(1, sum(map(len, sentences)))


# Words of everyday talk, which say little about a text's subject, in addition to the words that `terms_of` drops.

_TALK: Final = (
    "about again all also am any anyone anything around away back bad because bit both bring buy call came care "
    "certainly chance change cheap check come coming cool couldn couple course day days dear decide decided didn "
    "different discuss discussed doesn doing don done down each easy else end enjoy enough even ever every everyone "
    "everything exactly excited explain feel feeling few file fine first fix folks forget forward friend friends fun "
    "get getting give given glad go going gone gonna good got great guess guys happen happened happy hard hear hello "
    "help here hey hi home hope hour hours however hows idea instead interesting isn job keep kind know known last "
    "later least let life like little ll long look looking looks lot lots love loved made make makes making many "
    "maybe mean means meant mention mentioned might mind minute moment month months more morning most much must "
    "myself name need needed needs never new next nice night nothing now off often oh ok okay old once one only open "
    "other over own part people perfect perhaps person place please point possible pretty problem put quick quite "
    "rather re ready real really recall remember remind right run said same saw say second see seem seems seen set "
    "show since small somebody someone something sometimes soon sorry sort sound sounds start still stop stuff sure "
    "take taken takes talk talking tell ten thank thanks thing things think third thought three time times today "
    "together told tomorrow tonight took total tried true try trying turn two until use used using usually ve very "
    "wait want wanted wants wasn way week weekend weeks welcome well went weren whats whens wheres while whole whos "
    "without won wonder wonderful work worked working works world worry wow wrong yeah year years yes yesterday yet"
)


# Words that German, French, Spanish, Italian, Portuguese and Dutch sentences have whatever they are about, without
# those that mean something else in English: die, dove, hat, man, van, war.

_GRAMMAR: Final = (
    "ai al alla am au auch auf aus aux avec avez avons bei ben bent bist ce ces cette che chez chi com combien come "
    "como con cu\u00e1l cu\u00e1les cu\u00e1ndo cu\u00e1nto c\u00f3mo da dans das dat de dein deine del della dem den "
    "der des deze di dich dir dit du d\u00f3nde e een ein eine einem einen einer el ela ele ella elle elles em en er "
    "es est esta este esto et eu f\u00fcr geen gli habe haben hai hast hatte heb hebt heeft het hij ho hoe hoeveel "
    "ich ihr ik il ils im ins io ist isto je jij jouw kann kannst kein keine la las le lei les lo los lui ma mal mein "
    "meine meinem meinen meiner mes met meu meus mi mia mich miei mijn minha mio mir mis mit mon na naar nach ne "
    "nicht niet noch noi non nos nosotros nossa nosso nostra nostro notre nous nuestra nuestro n\u00e3o n\u00f3s o "
    "oder onde ons onze op os ou o\u00f9 pas per por pourquoi quais qual quale quali quand quando quanto que quel "
    "quelle quelles quels quem questa questo qui qui\u00e9n qui\u00e9nes quoi qu\u00e9 sabe sabes sai sais se seu si "
    "sie sind son sono sont sua s\u00e3o ta tem tengo tenho tes teu tienes tu tua tuo tus t\u00fa uit um uma un und "
    "une uno unos uns unser unsere unseren voc\u00ea von voor vos votre vous waar waarom wann wanneer warum wat weet "
    "weisst welche welchen welcher welches welke wem wen wer werden wessen wie wieso wij wir wird wo y yo zij zijn zu "
    "zum zur \u00e8 \u00e9 \u00e9l \u00e9tait \u00fcber"
)

# Words of dates: a message has its date beside its text.

_DATES: Final = re.compile(
    r"january|february|march|april|june|july|august|september|october|november|december|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:19|20)\d\d|\d\d?(?:st|nd|rd|th)"
)


@cache
def talk_terms() -> frozenset[str]:
    """Return the stems of the words of everyday talk, and of grammar."""
    return frozenset(map(porter, f"{_TALK} {_GRAMMAR}".split()))


# Verbs and nouns whose forms no stemmer unifies: the base form, then the others. Forms that are better known as another
# word are left out: bit, bound, ground, lay, leaves, lives, lit, rose, wound.

_IRREGULAR: Final = (
    "become became|begin began begun|bend bent|bleed bled|blow blew blown|break broke broken|bring brought|"
    "build built|burn burnt|buy bought|catch caught|child children|choose chose chosen|come came|creep crept|"
    "deal dealt|dig dug|draw drew drawn|dream dreamt|drink drank drunk|drive drove driven|eat ate eaten|"
    "fall fell fallen|feed fed|feel felt|fight fought|find found|flee fled|fly flew flown|foot feet|"
    "forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got gotten|give gave given|"
    "go goes went gone|grow grew grown|hang hung|hear heard|hide hid hidden|hold held|keep kept|knife knives|"
    "know knew known|lead led|leap leapt|learn learnt|leave left|lend lent|lose lost|make made|man men|mean meant|"
    "meet met|mouse mice|pay paid|person people|ride rode ridden|ring rang rung|run ran|say said|see saw seen|"
    "seek sought|sell sold|send sent|shake shook shaken|shine shone|shoot shot|shrink shrank|sing sang sung|"
    "sink sank sunk|sit sat|sleep slept|slide slid|speak spoke spoken|spend spent|spin spun|spring sprang|"
    "stand stood|steal stole stolen|stick stuck|sting stung|strike struck|strive strove|swear swore sworn|"
    "sweep swept|swim swam swum|swing swung|take took taken|teach taught|tear tore torn|tell told|think thought|"
    "throw threw thrown|tooth teeth|understand understood|wake woke woken|wear wore worn|weep wept|wife wives|"
    "win won|withdraw withdrew withdrawn|woman women|write wrote written"
)


@cache
def _irregular_terms(stemmer: str) -> dict[str, tuple[str, ...]]:
    groups = (tuple(dict.fromkeys(map(STEMMERS[stemmer], forms.split()))) for forms in _IRREGULAR.split("|"))
    return {term: group for group in groups for term in group}


def forms_of(term: str, stemmer: str) -> tuple[str, ...]:
    """List the terms of all forms of an irregular word, the base form first; for any other word only its own term.

    >>> forms_of("wrote", "none"), forms_of("paint", "none")
    (('write', 'wrote', 'written'), ('paint',))
    """
    return _irregular_terms(stemmer).get(term, (term,))


_ASKING: Final = frozenset(
    (
        *("how", "what", "when", "where", "which", "who", "whom", "whose", "why"),
        *("hows", "whats", "whens", "wheres", "whos"),  # Typed without the apostrophe.
    )
)

# In a question of everyday talk alone, the words that say which fact about a person it is for: what the person has, as
# in "my name", and what the person is or does, as in "where do I work". In "how does it work" they say nothing.
_OWNERS: Final = frozenset(("her", "his", "my", "our", "their"))
_OWNED: Final = ("friend", "home", "job", "name", "work")
_SUBJECTS: Final = frozenset(("he", "i", "she", "they", "we"))
_DONE: Final = ("buy", "enjoy", "like", "love", "need", "old", "own", "want", "work")

_CONTRACTION: Final = re.compile(r"\b\w+n['\u2019]t\b|(?<=\w)['\u2019](?:d|ll|m|re|s|ve)\b", re.IGNORECASE)


def strip_contractions(text: str) -> str:
    """Return a text without the s of possessives, contracted verbs and contracted negations.

    >>> strip_contractions("What's my dog's name, and why don't I know it?")
    'What my dog name, and why  I know it?'
    """
    return _CONTRACTION.sub("", text)


def subject_of(text: str) -> str:
    """Return the words of a text without those of everyday talk and, if others are left, of dates.

    >>> subject_of("Thank you! When do we paint the kitchen again in June?")
    'you we paint the kitchen'
    """
    talk = talk_terms()
    left = [word for word in words(text) if porter(word) not in talk]
    timeless = [word for word in left if not _DATES.fullmatch(word)]
    return " ".join(timeless if words_of(" ".join(timeless))[0] else left)


def fact_words(question: str) -> list[str]:
    """Return the words of everyday talk that say which fact about a person a question is for.

    >>> fact_words("What is my name?"), fact_words("Where do we work?"), fact_words("How does it work?")
    (['name'], ['work'], [])
    """
    found = words(question)
    known = frozenset(found)
    terms = set[str]()
    if known & _OWNERS:
        terms |= set(map(porter, _OWNED))
    if known & _SUBJECTS and known & _ASKING:
        terms |= set(map(porter, _DONE))
    return [word for word in found if porter(word) in terms]


# Requests to say what is known, which ask without a question mark.
_REQUEST: Final = re.compile(
    r"(?<!\w)(?:(?:tell|remind)(?: me| us)|what about|how about|"
    r"erz\u00e4hl(?:e)?(?: mir| uns)|erinner(?:e)? mich|sag(?:e)?(?: mir| uns)|"
    r"parle[- ]moi|dis[- ]moi|rappelle[- ]moi|h\u00e1blame|dime|recu\u00e9rdame|parlami|dimmi|ricordami|"
    r"me fal[ae]|me lembr[ae]|vertel me|herinner me)(?!\w)|"
    r"(?:\u6559\u3048\u3066|\u544a\u8bc9\u6211|\u63d0\u9192\u6211)|[\u304b\u5417\u5462][\s\u3002]*\Z",
    re.IGNORECASE,
)


def is_question(text: str) -> bool:
    """Return whether a text begins with a question word, has a sentence that ends as a question, or asks to be told.

    >>> is_question("when do we paint"), is_question("We paint now.")
    (True, False)
    """
    return question_share(text) > 0 or next(iter(words(text)), "") in _ASKING or _REQUEST.search(text) is not None
