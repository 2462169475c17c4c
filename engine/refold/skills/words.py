"""Scores of skills by the words of a message, which show the skills that it asks for, if any. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy

from refold.index.terms import talk_terms, terms_of
from refold.limits import SKILL_SENTENCES_COUNT_MAX, SKILL_WORDS_COUNT_MAX

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    from refold.skills.format import Skill

# Parameters that were chosen on one half of the published skills and of recorded talk, and evaluated on the other half:
# benchmarks/README.

_NAME: Final = 2.0  # The weight of a word in the name; a word in the description or the tags has weight 1.
_BODY: Final = 0.2
_HEAD_LENGTH: Final = 0.5  # How much a long description, or a long body, lowers the weight of its words.
_BODY_LENGTH: Final = 0.75
_SATURATION: Final = 1.2
# Rarity is computed as if the library had this many more skills, so that even a library of one skill has rare words.
_OTHER_SKILLS: Final = 100
_TALK: Final = 0.5  # The weight of words of everyday talk.
_UNNAMED: Final = 0.7  # The factor for skills that have the words only in their bodies.
_SENTENCE: Final = 0.8  # The factor for one of several sentences, because one of many matches a skill by chance.
_MASS_POWER: Final = 0.75  # The exponent that sets how much words that no skill has lower a score.
_MASS_LEAST: Final = 4.0
_FLOOR: Final = 0.6  # Small talk scores below it; final scores are multiples of it.

# The parts of "don't" and "it's" around the apostrophe carry no meaning, and are rare among skills.
_CONTRACTED: Final = re.compile(r"(?:\b[a-z]+n['\u2019]t|['\u2019](?:s|re|ve|ll|d|m))\b", re.IGNORECASE)
_SENTENCE_END: Final = re.compile(r"(?<=[.?!;])\s+|(?<=[\u3002\uff01\uff1f\uff1b])\s*|\n+")


class _TermScores(NamedTuple):
    rows: "NDArray[numpy.intp]"
    scores: "NDArray[float64]"
    named: "NDArray[numpy.intp]"  # The rows of the skills that have the word in name, description or tags.


class WordScorer:
    """Scores skills by the words of a message: names count most, then descriptions and tags, then bodies.

    A skill is scored by the sentence of the message that matches it best, relative to all words of that sentence. A
    score of 1.0 or more means that the message is about the skill's task.

    >>> WordScorer(()).scores("anything")
    []
    """

    def __init__(self, skills: "Sequence[Skill]") -> None:
        self._count = len(skills)
        heads = [(_terms(skill.name), _terms(f"{skill.description} {' '.join(skill.tags)}")) for skill in skills]
        bodies = [_terms(f"{skill.note}\n{skill.body}") for skill in skills]
        self._heads = _postings([name.keys() | about.keys() for name, about in heads])
        texts = zip(heads, bodies, strict=True)
        self._all = _postings([name.keys() | about.keys() | body.keys() for (name, about), body in texts])
        abouts = [about for _, about in heads]
        self._weights = [
            (name, about, about_share, body, body_share)
            for (name, about), about_share, body, body_share in zip(
                heads, _shares(abouts, _HEAD_LENGTH), bodies, _shares(bodies, _BODY_LENGTH), strict=True
            )
        ]
        self._called: dict[frozenset[str], list[int]] = {}
        """The skills by the words of their names: a sentence that consists of a skill's name asks for that skill."""
        for row, (name, _) in enumerate(heads):
            self._called.setdefault(frozenset(name), []).append(row)
        self._known: dict[str, _TermScores] = {}

    def scores(self, query: str) -> list[float]:
        """Score each skill, in the order of the index."""
        best = numpy.zeros(self._count)
        for terms, scores in self._score_sentences(query):
            numpy.maximum(best, scores, out=best)
            for row in self._called.get(frozenset(terms), ()):
                best[row] = max(best[row], 1.0)
        return best.tolist()

    def parts(self, query: str, row: int) -> dict[str, float]:
        """Compute the contribution of each word in a skill's best sentence to its score, by the words' stems."""
        terms, whole = max(
            self._score_sentences(query), key=lambda postings: postings[1][row], default=(Counter[str](), None)
        )
        if whole is None or not whole[row]:
            return {}
        postings = {term: self._term_scores(term) for term in terms if row in self._all.get(term, ())}
        contributions = {term: float(posting.scores[posting.rows == row][0]) for term, posting in postings.items()}
        share = float(whole[row]) / sum(contributions.values())
        return {term: share * number for term, number in contributions.items()}

    def _score_sentences(self, query: str) -> "list[tuple[Counter[str], NDArray[float64]]]":
        """Score each skill for each sentence of a query."""
        sentences = [terms for sentence in _sentences(query) if (terms := _terms(sentence))] if self._count else []
        share = _SENTENCE if len(sentences) > 1 else 1.0
        return [(terms, share / _FLOOR * self._score_sentence(terms)) for terms in sentences]

    def _score_sentence(self, terms: Counter[str]) -> "NDArray[float64]":
        scores, is_named, mass = numpy.zeros(self._count), numpy.full(self._count, _UNNAMED), 0.0
        for term in terms:
            mass += self._rarity(len(self._heads.get(term, ())))
            if term in self._all:
                posting = self._term_scores(term)
                scores[posting.rows] += posting.scores
                is_named[posting.named] = 1.0
        scores *= is_named / (mass**_MASS_POWER + _MASS_LEAST)
        return scores

    def _term_scores(self, term: str) -> _TermScores:
        """Return the contribution of a term to each skill that has it."""
        posting = self._known.get(term)
        if posting is None:
            rows, named = self._all[term], self._heads.get(term, [])
            frequencies = numpy.array([self._frequency(row, term) for row in rows])
            rarity = (self._rarity(len(named)) + self._rarity(len(rows))) / 2
            weight = rarity * (_TALK if term in talk_terms() else 1.0) * (_SATURATION + 1)
            scores = weight * frequencies / (frequencies + _SATURATION)
            posting = _TermScores(numpy.array(rows, numpy.intp), scores, numpy.array(named, numpy.intp))
            if len(self._known) >= SKILL_WORDS_COUNT_MAX:
                self._known.clear()
            self._known[term] = posting
        return posting

    def _frequency(self, row: int, term: str) -> float:
        name, about, about_share, body, body_share = self._weights[row]
        return _NAME * name[term] + about[term] * about_share + _BODY * body[term] * body_share

    def _rarity(self, having: int) -> float:
        return log(1 + (self._count + _OTHER_SKILLS - having + 0.5) / (having + 0.5))


def _sentences(query: str) -> list[str]:
    """Split a message into sentences; of a very long one, keep the beginning and end, where users state requests."""
    sentences = [sentence for sentence in _SENTENCE_END.split(_CONTRACTED.sub(" ", query)) if sentence.strip()]
    half = SKILL_SENTENCES_COUNT_MAX // 2
    return sentences if len(sentences) <= 2 * half else sentences[:half] + sentences[-half:]


def _terms(text: str) -> Counter[str]:
    lines = [text] if text.isascii() else text.splitlines()
    plain = "\n".join(line for line in lines if line.isascii())  # Ten times as fast to split as the other lines.
    other = "\n".join(line for line in lines if not line.isascii())
    return Counter(terms_of(plain, "porter")[0] + terms_of(other, "porter")[0])


def _postings(rows: "Sequence[frozenset[str] | set[str]]") -> dict[str, list[int]]:
    postings: dict[str, list[int]] = {}
    for row, terms in enumerate(rows):
        for term in terms:
            postings.setdefault(term, []).append(row)
    return postings


def _shares(texts: Sequence[Counter[str]], length: float) -> list[float]:
    """Compute the weight of an occurrence in each text, which is lower in longer texts."""
    sizes = [max(1, text.total()) for text in texts]
    mean = sum(sizes) / max(1, len(sizes))
    return [1 / (1 - length + length * size / mean) for size in sizes]
