"""Terms of texts: the stems of all but the most common English words; and a text's share of questions. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
            found.append(without_accents(word))
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
def without_accents(word: str) -> str:
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


# Where somebody says who they are, a question for the name is answered without the word.
_INTRODUCTION: Final = re.compile(
    r"(?<!\w)(?i:I['\u2019]?m|I am|call me|this is|ich bin|ich hei(?:\u00df|ss)e|je suis|je m['\u2019]appelle|"
    r"me llamo|soy|mi chiamo|sono|me chamo|eu sou|ik ben|ik heet)\s+[A-Z\u00c0-\u00de][^\W\d_]{1,20}(?![\w'\u2019])"
)


def with_name(text: str) -> str:
    """Return a text with the word name behind it if somebody says in it who they are.

    >>> with_name("Hi! I'm Lena."), with_name("I'm tired.")
    ("Hi! I'm Lena. name", "I'm tired.")
    """
    return text if _INTRODUCTION.search(text) is None else f"{text} name"


_MARK: Final = "\0"


def mark_stem(stem: str) -> str:
    """Mark a stem with a prefix that no word has, for an index that otherwise holds words."""
    return f"{_MARK}{stem}"


# Compounds: German, Dutch and Scandinavian words are one word of several, as "Zahnarzttermin" is. Without a dictionary,
# a word is a compound if another word is its beginning or its end, and enough is left to be a word, too. In a query of
# another language, where "rest" is no part of "restaurant", what is left has to be a word of the messages.

_PART_LETTERS_MIN: Final = 4
_SURE_LETTERS_MIN: Final = 5  # Of a part in a query that is not in such a language.
_REST_LETTERS_MIN: Final = 3
_FORM_LETTERS_MIN: Final = 6  # Words with so many letters in common at their beginning are forms of one word.
_COMPOUND_LETTERS_MAX: Final = 64  # Longer words are no compounds, but data.
_LINKS: Final = ("", "s", "n", "en", "es", "e")

# Words of grammar that English has not, of German, Dutch, Swedish, Danish and Norwegian; and letters of theirs.
_COMPOUNDING: Final = frozenset(
    re.findall(
        r"\w+",
        "aber auf beim bist dein deine dem der eine einem einen einer eines habe haben ich ihr ist kein keine kommt "
        "mein meine meinen meiner meines nicht oder sind und unser unsere unseren unserer vom wann warum welche "
        "welchem welchen welcher welches wer wie wieviel wird wo worden wurde zum zur bij deze een heb heeft het "
        "hebben ik jouw mijn naar niet ons onze ook waar waarom wanneer wat welk welke wie wij wordt zijn det ett "
        "finns hur hva hvad hvem hvor hvorfor ikke inte jag jeg mig mitt mycket och og skal vad vem vilken",
    )
)
_COMPOUNDING_LETTERS: Final = re.compile("[\u00e4\u00f6\u00fc\u00df\u00e5\u00f8\u00e6]")


def writes_compounds(text: str) -> bool:
    """Return whether a text looks to be in a language that writes compounds as one word.

    >>> writes_compounds("Wo ist der Schl\u00fcssel?"), writes_compounds("Where is the key?")
    (True, False)
    """
    return any(word in _COMPOUNDING or _COMPOUNDING_LETTERS.search(word) for word in words(text))


def can_be_part(stem: str) -> bool:
    """Return whether a stem has the length of a compound, or of a part of one."""
    return _PART_LETTERS_MIN <= len(stem) <= _COMPOUND_LETTERS_MAX and stem.isalpha() and not is_unspaced(stem)


def _is_compound(stem: str, part: str) -> bool:
    rest = len(stem) - len(part)
    if stem.startswith(part):
        return rest >= (1 if len(part) >= _FORM_LETTERS_MIN else _REST_LETTERS_MIN)
    return rest >= _REST_LETTERS_MIN and stem.endswith(part)


def _rests_of(stem: str, part: str) -> Iterator[str]:
    """Yield what is left of a compound without a part at its beginning or end, with and without linking letters."""
    for link in _LINKS:
        if stem.startswith(part + link):
            yield stem[len(part + link) :]
        if stem.endswith(link + part):
            yield stem[: len(stem) - len(link + part)]


def splits_of(stem: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of words that a compound may be of, with or without letters that link them.

    >>> ("heizung", "wartung") in splits_of("heizungswartung")
    True
    """
    for end in range(_PART_LETTERS_MIN, len(stem) - _PART_LETTERS_MIN + 1):
        for link in _LINKS:
            last = stem[end + len(link) :]
            if stem.startswith(link, end) and len(last) >= _PART_LETTERS_MIN:
                yield stem[:end], last


class Words:
    """Distinct words of texts, which can be found by their stem without stemming all of them.

    Marked stems of other words can be among them.

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

    def has_stem(self, stem: str) -> bool:
        """Return whether any word has a stem."""
        marked = mark_stem(stem)
        return marked in self._groups.get(marked[:_GROUP_LETTERS], ()) or bool(self.find_words(stem))

    def find_compounds(self, part: str, *, is_sure: bool) -> list[str]:
        """List the words, and marked stems, that begin or end with a stem and are longer.

        Unless it `is_sure` that the language has compounds, what is left of each must be a word, too.
        """
        if not is_sure and len(part) < _SURE_LETTERS_MIN:
            return []
        beginning = part[:-1]  # A stem differs from its word in the last letter at most.
        likely = (word for group in list(self._groups.values()) for word in list(group) if beginning in word)
        found = ((word, self._stem_of(word)) for word in likely)
        return [word for word, stem in found if _is_compound(stem, part) and (is_sure or self._is_of_words(stem, part))]

    def _is_of_words(self, stem: str, part: str) -> bool:
        if stem.startswith(part) and len(part) >= _FORM_LETTERS_MIN:
            return True
        return any(len(rest) >= _REST_LETTERS_MIN and self.has_stem(self._stem(rest)) for rest in _rests_of(stem, part))

    def _stem_of(self, word: str) -> str:
        return word[len(_MARK) :] if word.startswith(_MARK) else self._stem(word)


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


def sentences_to_question(text: str) -> list[str]:
    """Split a text into sentences up to its last question; none if it has no question.

    >>> sentences_to_question("That is 40 euros. Shall I order it? Just say yes.")
    ['That is 40 euros.', 'Shall I order it?']
    """
    sentences = [sentence.strip() for sentence in _SENTENCES.split(text)]
    questions = [place for place, sentence in enumerate(sentences) if sentence.endswith(_QUESTION_MARKS)]
    return sentences[: questions[-1] + 1] if questions else []


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


# Words that German, French, Spanish, Italian, Portuguese, Dutch, Arabic and Russian sentences have whatever they are
# about, question words and modal verbs among them, without those that mean something else in English, as die, dove,
# hat, man, pour, son, van and war do.

_GRAMMAR: Final = (
    "aan abbiamo ad\u00f3nde agli ai al alla alle allez allons am anche andiamo ao aonde aos au auch auf aus aux "
    "avais avait avec avete aveva avevo avez avons \u00e0 \u00e0s bei ben bent bis bist bitte ce cela ces cet cette "
    "che chez chi com combien come como con conmigo contigo cos cosa c\u00f3mo cual cuales cuando cuanta cuantas "
    "cuanto cuantos cu\u00e1l cu\u00e1les cu\u00e1ndo cu\u00e1nta cu\u00e1ntas cu\u00e1nto cu\u00e1ntos \u00e7a da "
    "daf\u00fcr dal dalla dans darf darfst das dat davon dazu de debe debemos deben deber\u00eda deber\u00edamos "
    "deber\u00edas debes debo dein deine del della dem den denn der des deve devem devemos deveria dever\u00edamos "
    "deves devez devo devono devons devrais devrait devriez devrions deze di dich diese diesem diesen dieser dieses "
    "dir dit dobbiamo doen doet dois doit doivent donde dont dov dovete dovrebbe dovrei dovremmo dovresti d\u00f3nde "
    "du durfte durften d\u00fcrfen d\u00fcrft d\u00fcrfte d\u00fcrften e een ein eine einem einen einer el ela ele "
    "ella elle elles em en er erano eres es esa esas ese eso esos est esta estamos estar estas est\u00e1 est\u00e1n "
    "est\u00e1s est\u00e3o este esto estos estou estoy et eu euch euer eure \u00e8 \u00e9 \u00e9l \u00e9s "
    "\u00e9taient \u00e9tais \u00e9tait \u00eates \u00eatre faccio faire fais fait faudrait faut fue fueron f\u00fcr "
    "gaan gaat geen gegen gibt gli gostaria haar habe haben hab\u00eda habt hace hacemos hacer haces hago hai hanno "
    "hast hatte hatten h\u00e1 h\u00e4tte h\u00e4tten heb hebben hebt heeft hemos het hij ho hoe hoelang hoeveel hun "
    "ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ik il ils im ins io ist isto j je jij jou jouw jullie kan kann "
    "kannst kein keine kon konden konnte konnten k\u00f6nnen k\u00f6nnt k\u00f6nnte k\u00f6nnten k\u00f6nntest kun "
    "kunnen kunt l la laquelle las le lei lequel les lesquelles lesquels leur leurs lhe lo los lui ma mal mein meine "
    "meinem meinen meiner mes met meu meus mi mia mich miei mijn mim minha minhas mio mir mis mit m\u00ed mocht "
    "moest moet moeten mogen moi mon m\u00f6chte m\u00f6chten m\u00f6chtest muss musst musste mussten mu\u00df "
    "m\u00fcssen m\u00fcsst m\u00fcsste m\u00fcssten n na naar nach nas n\u00e3o ne nei nel nella nelle nello nicht "
    "niet noch noi non nos nosotros nossa nossas nosso nossos nostra nostre nostri nostro notre nous n\u00f3s "
    "nuestra nuestras nuestro nuestros num numa o oder ohne onde ons ont onze op os ou o\u00f9 para pas pela pelo "
    "per perche perch\u00e9 peut peuvent peux pode podem podemos poderia poderiam poderias poder\u00edamos podes "
    "pod\u00e9is podr\u00eda podr\u00edamos podr\u00edan podr\u00edas por porque porqu\u00ea possiamo posso possono "
    "potete potrebbe potrei potremmo potresti pourquoi pourrai pourrais pourrait pourriez pourrions pouvez pouvons "
    "puede pueden puedes puedo puis puoi pu\u00f2 qu quais qual quale quali quand quando quanta quantas quante "
    "quanti quanto quantos que quel quelle quelles quels quem quer querem queremos queres queria quero questa questo "
    "qu\u00e9 qui quien quienes quiere quieren quieres quiero qui\u00e9n qui\u00e9nes quisiera quoi sa sabe sabes "
    "sai sais sans s\u00e3o se seid sein seine seinem seinen seiner seit ser sera serait ses seu seus si siamo sie "
    "siete sind sobre soll sollen sollst sollt sollte sollten solltest sommes somos son sono sont sou soy stai sto "
    "su sua suas suis sul sulla suo suoi sur sus t ta tem temos tenemos tengo tenho tens tes teu teus t\u00eam ti "
    "tiene tienen tienes tinha toi tu tua tuas tue tuo tuoi tus tuve t\u00fa uit um uma un und une uno unos uns "
    "unser unsere unserem unseren unserer \u00fcber vado vai vais vamos vanno v\u00e3o veulent veut veux voc\u00ea "
    "voc\u00eas vogliamo voglio vogliono volete von vont voor vor vorrei vos vostra vostro votre vou voudrais "
    "voudrait voulez voulons vous voy vuoi vuole waar waarheen waarmee waarom waarover wann wanneer waren warst "
    "warum wat w\u00e4re w\u00e4ren weet wegen weisst welche welchen welcher welches welk welke wem wen wer werde "
    "werden weshalb wessen wie wieso wieviel wij wil wilde willen willst wilt wir wird wirst wo wof\u00fcr woher "
    "wohin wollen wollt wollte womit woran worauf worden wordt wor\u00fcber wovon wozu wurde wurden w\u00fcrde "
    "w\u00fcrden w\u00fcrdest y yo zal zij zijn zou zouden zu zullen zum zur "
    "\u0623\u0633\u062a\u0637\u064a\u0639 \u0623\u0646 \u0623\u0646\u0627 \u0623\u0646\u062a \u0623\u0648 "
    "\u0623\u064a \u0623\u064a\u0629 \u0623\u064a\u0646 \u0625\u0644\u0649 \u0625\u0646 "
    "\u0627\u0633\u062a\u0637\u064a\u0639 \u0627\u0644\u062a\u064a \u0627\u0644\u0630\u064a \u0627\u0644\u0649 "
    "\u0627\u0646 \u0627\u0646\u0627 \u0627\u0646\u062a \u0627\u064a \u0627\u064a\u0646 \u062a\u0643\u0648\u0646 "
    "\u062a\u0644\u0643 \u062b\u0645 \u0630\u0644\u0643 \u0639\u0644\u0649 \u0639\u0646 \u0639\u0646\u062f\u0643 "
    "\u0639\u0646\u062f\u064a \u0641\u064a \u0642\u062f \u0643\u0627\u0646 \u0643\u0627\u0646\u062a \u0643\u0644 "
    "\u0643\u0645 \u0643\u064a\u0641 \u0644\u0627 \u0644\u062f\u064a \u0644\u062f\u064a\u0643 \u0644\u0643 "
    "\u0644\u0645 \u0644\u0645\u0627\u0630\u0627 \u0644\u0646 \u0644\u0647 \u0644\u0647\u0627 \u0644\u064a "
    "\u0645\u0627 \u0645\u0627\u0630\u0627 \u0645\u062a\u0649 \u0645\u0639 \u0645\u0646 \u0646\u062d\u0646 "
    "\u0647\u0630\u0627 \u0647\u0630\u0647 \u0647\u0644 \u0647\u0645 \u0647\u0646\u0627\u0643 \u0647\u0648 "
    "\u0647\u064a \u064a\u062c\u0628 \u064a\u0643\u0648\u0646 \u064a\u0645\u0643\u0646 "
    "\u064a\u0645\u0643\u0646\u0646\u064a \u064a\u0646\u0628\u063a\u064a "
    "\u0430 \u0431\u0435\u0437 \u0431\u0443\u0434\u0435\u0442 \u0431\u0443\u0434\u0443 \u0431\u044b "
    "\u0431\u044b\u043b \u0431\u044b\u043b\u0430 \u0431\u044b\u043b\u0438 \u0431\u044b\u043b\u043e "
    "\u0431\u044b\u0442\u044c \u0432 \u0432\u0430\u0441 \u0432\u0430\u0448 \u0432\u044b \u0433\u0434\u0435 "
    "\u0434\u0430 \u0434\u043b\u044f \u0434\u043e \u0434\u043e\u043b\u0436\u0435\u043d "
    "\u0434\u043e\u043b\u0436\u043d\u0430 \u0435\u0433\u043e \u0435\u0435 \u0435\u0439 \u0435\u043c\u0443 "
    "\u0435\u0441\u043b\u0438 \u0435\u0441\u0442\u044c \u0435\u0449\u0435 \u0435\u0449\u0451 \u0435\u0451 "
    "\u0437\u0430 \u0437\u0430\u0447\u0435\u043c \u0438 \u0438\u0437 \u0438\u043b\u0438 \u0438\u043c \u0438\u0445 "
    "\u043a \u043a\u0430\u043a \u043a\u0430\u043a\u0430\u044f \u043a\u0430\u043a\u0438\u0435 "
    "\u043a\u0430\u043a\u043e\u0435 \u043a\u0430\u043a\u043e\u0439 \u043a\u043e\u0433\u0434\u0430 "
    "\u043a\u043e\u043c\u0443 \u043a\u0442\u043e \u043a\u0443\u0434\u0430 \u043b\u0438 \u043c\u0435\u043d\u044f "
    "\u043c\u043d\u0435 \u043c\u043e\u0433\u0443 \u043c\u043e\u0435 \u043c\u043e\u0435\u0433\u043e "
    "\u043c\u043e\u0435\u0439 \u043c\u043e\u0436\u0435\u043c \u043c\u043e\u0436\u0435\u0442 "
    "\u043c\u043e\u0436\u0435\u0448\u044c \u043c\u043e\u0436\u043d\u043e \u043c\u043e\u0438 \u043c\u043e\u0438\u0445 "
    "\u043c\u043e\u0439 \u043c\u043e\u044f \u043c\u043e\u0451 \u043c\u044b \u043d\u0430 \u043d\u0430\u0434\u043e "
    "\u043d\u0430\u043c \u043d\u0430\u0441 \u043d\u0430\u0448 \u043d\u0430\u0448\u0430 \u043d\u0435 "
    "\u043d\u0435\u0433\u043e \u043d\u0435\u0435 \u043d\u0435\u0439 \u043d\u0435\u043c\u0443 \u043d\u0435\u0442 "
    "\u043d\u043e \u043d\u0443\u0436\u043d\u043e \u043e \u043e\u0431 \u043e\u043d \u043e\u043d\u0430 "
    "\u043e\u043d\u0438 \u043e\u0442 \u043e\u0442\u043a\u0443\u0434\u0430 \u043f\u043e \u043f\u043e\u0434 "
    "\u043f\u043e\u0447\u0435\u043c\u0443 \u043f\u0440\u0438 \u0441 \u0441\u0435\u0431\u044f "
    "\u0441\u043a\u043e\u043b\u044c\u043a\u043e \u0441\u043e \u0442\u0430\u043a \u0442\u0430\u043c "
    "\u0442\u0432\u043e\u0439 \u0442\u0432\u043e\u044f \u0442\u0435\u0431\u0435 \u0442\u0435\u0431\u044f "
    "\u0442\u043e \u0442\u043e\u0442 \u0442\u044b \u0443 \u0443\u0436\u0435 \u0445\u043e\u0442\u0435\u043b "
    "\u0445\u043e\u0447\u0435\u0442 \u0445\u043e\u0447\u0435\u0448\u044c \u0445\u043e\u0447\u0443 "
    "\u0447\u0435\u0433\u043e \u0447\u0435\u0439 \u0447\u0435\u043c \u0447\u0442\u043e "
    "\u0447\u0442\u043e\u0431\u044b \u044d\u0442\u0430 \u044d\u0442\u0438 \u044d\u0442\u043e "
    "\u044d\u0442\u043e\u0442 \u044f"
)

# Words of the same kind and languages that mean something else in English: no subject beside a word of grammar.

_ELSEWHERE: Final = (
    "andere anderen anderer antes aussi autre autres avant beide beiden beim bien bin comment contra contre "
    "damals dann deja depuis dernier derniere desde despues die dies doch dove durante durch eben eigentlich "
    "encore entre etwas gerade ha hacia han hasta hat immer jamais jemand jetzt keinen letzte letzten letztes mag "
    "man mas mehr meme menos mismo moins muy nada nadie nie niets nochmal nunca nur otra otras otro otros pendant "
    "plus pour rien schon sehr selbst siempre sin son tambien todavia ton toujours tres trotz ultima ultimo unter "
    "va van vers vom war wieder ya zuletzt zwischen"
)

# Verbs of asking, saying and proposing, which say how something came up: an answer need not have them. After an article
# or a possessive pronoun they are nouns, and can be what a question is about.

_SAID: Final = frozenset(
    re.findall(
        r"\w+",
        "aanbevolen aangeraden aconsejado aconsejaste aconselhou advice advis advise against ask asked beschlossen "
        "besloten chiesto choisi choos choose chose chosen conseille conseilles conseillez consigliato dado dato "
        "decidido decidimos deciso deste detto dije dijiste dijo disse diste donne eleg elegimos empfohlen "
        "entschieden escogimos escolhemos gave gegeben gegeven gekozen genannt geraten gesagt gewahlt gezegd nannte "
        "propos proposal propose proposto propuesto propusiste raccomandato recomendado recomendaste recomendou "
        "recommande recommend sagte scelto sugerido sugeriste sugeriu suggere suggerito suggest voorgesteld "
        "vorgeschlagen",
    )
)

_BEFORE_NOUN: Final = frozenset(("the", "my", "our", "a", "an"))
_SAID_NOUNS: Final = frozenset(re.findall(r"\w+", "advice proposal recommendation suggestion"))  # "My final proposal".

# Words of dates: a message has its date beside its text.

_DATES: Final = re.compile(
    r"january|february|march|april|june|july|august|september|october|november|december|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:19|20)\d\d|\d\d?(?:st|nd|rd|th)"
)


@cache
def talk_terms() -> frozenset[str]:
    """Return the stems of the words of everyday talk, and of grammar."""
    return frozenset(map(porter, f"{_TALK} {_GRAMMAR}".split()))


@cache
def grammar_words() -> frozenset[str]:
    """Return the words of grammar of other languages than English."""
    return frozenset(_GRAMMAR.split())


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

_CONTRACTION: Final = re.compile(
    r"\b\w+n['\u2019]t\b|(?<=\w)['\u2019](?:d|ll|m|re|s|ve)\b|"
    r"\b(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|d?all|dell|dov|nell|quest|sull)['\u2019](?!(?:d|ll|m|re|s|ve)\b)(?=\w)",
    re.IGNORECASE,
)


def strip_contractions(text: str) -> str:
    """Return a text without the s of possessives, contracted verbs and negations, and elided French and Italian words.

    >>> strip_contractions("What's my dog's name, and why don't I know it?")
    'What my dog name, and why  I know it?'
    >>> strip_contractions("Qu'est-ce que tu m'as dit de l'accent ?")
    'est-ce que tu as dit de accent ?'
    """
    return _CONTRACTION.sub("", text)


_FIRST_LETTER: Final = 2  # Characters of a text up to its first letter, which is small after an inverted mark, too.
_SMALL_WORDS: Final = re.compile(r"(?<!\w)[^\W\d_A-Z][^\W\d_]*")  # Others can be names.
_FOREIGN_COUNT_MIN: Final = 2  # So many words of another language, or half of all, tell that a text is in one.
_FOREIGN_SHARE_MIN: Final = 0.5
_ALSO_ENGLISH: Final = frozenset(("com", "de", "el", "es", "la", "op", "per", "si"))  # In addresses, names and rates.


@cache
def _of_other_languages() -> tuple[frozenset[str], frozenset[str]]:
    """Return the words that no English text has, and those that are no subject in a text of another language."""
    telling = grammar_words() - _COMMON - frozenset(_TALK.split()) - _ALSO_ENGLISH
    return telling, frozenset(_ELSEWHERE.split())


def _is_foreign(text: str) -> bool:
    """Return whether the small words of a text are those of another language than English."""
    telling, elsewhere = _of_other_languages()
    small = _SMALL_WORDS.findall(text[:_FIRST_LETTER].lower() + text[_FIRST_LETTER:])
    count = len(telling.intersection(small))
    likely = sum(word in telling or without_accents(word) in elsewhere or word in _ALSO_ENGLISH for word in small)
    return count >= _FOREIGN_COUNT_MIN or (count > 0 and likely >= _FOREIGN_SHARE_MIN * len(small))


def subject_of(text: str) -> str:
    """Return the words of a text without those of everyday talk and, if others are left, of dates and of proposals.

    >>> subject_of("Thank you! When do we paint the kitchen again in June?")
    'you we paint the kitchen'
    >>> subject_of("Was hat der Arzt vorgeschlagen?"), subject_of("Which hat did you recommend?")
    ('was arzt', 'which hat did you')
    >>> subject_of("Where is my recommendation?"), subject_of("How much is the van per day?")
    ('is my recommendation', 'is the van')
    """
    talk, found = talk_terms(), words(text)
    left = [place for place, word in enumerate(found) if porter(word) not in talk]
    if _is_foreign(text):
        elsewhere = _of_other_languages()[1]
        left = [place for place in left if without_accents(found[place]) not in elsewhere] or left
    telling = [place for place in left if not (_DATES.fullmatch(found[place]) or _is_of_saying(found, place))]
    subject = " ".join(found[place] for place in telling)
    return subject if words_of(subject)[0] else " ".join(found[place] for place in left)


def _is_of_saying(found: Sequence[str], place: int) -> bool:
    """Return whether one of the words of a text is a verb of asking, saying or proposing, by the words before it."""
    word, before = found[place], 2 if found[place].removesuffix("s") in _SAID_NOUNS else 1
    is_noun = any(each in _BEFORE_NOUN for each in found[max(place - before, 0) : place])
    return not is_noun and (porter(word) in _SAID or without_accents(word) in _SAID)


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


# Words that are small talk in a text that asks nothing and has no others but everyday talk: thanks, greetings, praise
# and laughter in English, German, French, Spanish, Italian, Portuguese, Dutch and Russian. Elsewhere they can be a
# subject.

_COURTESIES: Final = (
    "abend absolutely adeus adios agreed alright amazing arrivederci avond awesome beaucoup bedankt bem bene bien "
    "boa bom bon bonjour bonne bonsoir brilliant buena buenas bueno buenos buona buonanotte buonasera buongiorno "
    "bye cheers ciao claro congrats congratulations coucou cute dag dank danke dankjewel dia dias doei excellent "
    "fantastic favor favore funny gedaan genau genial gern gerne geschehen goede goedemorgen goedenavond goodbye "
    "gracias grazie gut gute guten guter gutes hallo hilarious hoi hola huh impressive incredible journee klar leuk "
    "lovely merci mille moin morgen muchas muchisimas nacht nada nah nein noche noches noite nope notte nuit "
    "obrigada obrigado ola oops oui perfecto perfekt perfetto prego prima rien rofl salut schon sehr sense servus "
    "sim soiree super tag tarde tardes tchau thx toll tres tschuss tutto ty vale valeu vielen wel whoa woah yay yep "
    "yup \u0431\u043e\u043b\u044c\u0448\u043e\u0435 "
    "\u0437\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439\u0442\u0435 \u043f\u043e\u043a\u0430 "
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u0441\u043f\u0430\u0441\u0438\u0431\u043e "
    "\u0445\u043e\u0440\u043e\u0448\u043e"
)
_LAUGHTER: Final = re.compile("a?(?:[hj][aei])+h?|h+m+|lo+l|lmao+")
# Questions for how someone is, and requests to make something up, which nothing that was said answers.
_IDLE: Final = re.compile(
    r"(?:(?:hi|hey|hello|hallo|hoi|bonjour|salut|hola|ciao|ola|\u043f\u0440\u0438\u0432\u0435\u0442) )?(?:"
    r"(?:please )?tell (?:me|us) (?:an?|another|some)(?: \w+){0,2} (?:jokes?|riddles?|stor(?:y|ies))(?: please)?|"
    r"(?:und )?wie gehts?(?: es)?(?: (?:dir|euch|ihnen))?(?: heute)?|"
    r"(?:comment )?(?:ca|tu|vous)? ?(?:va|vas)(?: bien)?|comment allez vous|"
    r"(?:que tal|como (?:estas?|te va|vai|esta voce))(?: hoy)?|come (?:stai|va|sta)|tudo bem|"
    r"hoe gaat het(?: met (?:je|jou|u))?|\u043a\u0430\u043a \u0434\u0435\u043b\u0430|"
    r"erzahle? (?:mir|uns) (?:noch )?einen witz|raconte (?:moi|nous) une(?: autre)? blague|"
    r"cuenta(?:me|nos) (?:un|otro) chiste|racconta(?:mi|ci) (?:una|un altra) barzelletta|"
    r"(?:me )?cont[ae](?: me)? (?:uma|outra) piada|vertel (?:(?:me|ons) )?(?:nog )?een mop)"
)


@cache
def _courtesies() -> frozenset[str]:
    return frozenset(_COURTESIES.split())


def idle_words() -> frozenset[str]:
    """Return the words of everyday talk and of courtesy."""
    return frozenset(_TALK.split()) | _courtesies()


def is_small_talk(text: str) -> bool:
    """Return whether a text only greets, thanks, praises or laughs, asks how someone is, or for a joke or a story.

    >>> is_small_talk("Haha, cool"), is_small_talk("Tell me a joke!"), is_small_talk("Which joke did I tell?")
    (True, True, False)
    """
    if _IDLE.fullmatch(" ".join(map(without_accents, words(text)))):
        return True
    rest = [] if is_question(text) else words_of(subject_of(text))[0]
    return bool(rest) and all(word in _courtesies() or _LAUGHTER.fullmatch(word) for word in rest)
