"""A ranking is data: the weights of the signals, and what shapes each of them."""

from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType
from typing import Final, NoReturn

from msgspec import Struct

from refold.errors import InvalidInput
from refold.rank.stemming import STEMMERS

SIGNALS: Final = (
    "cosine",
    "keywords",
    "bm25",
    "idf_cosine",
    "coverage",
    "question",
    "importance",
    "recency",
)
"""What a memory can be weighed by; each is a field of ``Ranking``, whose value is its weight."""

CURVES: Final = ("hyperbolic", "exponential")

NEIGHBOURS_COUNT_MAX: Final = 16


class Ranking(Struct, frozen=True, kw_only=True):
    """Weights of signals and their shapes; the score of a memory is the sum of its signals times their weights.

    Signals, by field. All but ``cosine`` lie from 0 to 1:

    - ``cosine``: of the query's vector and the memory's, from -1 to 1.
    - ``keywords``: how many keywords both have, of all that either has (Jaccard; two empty sets: 0).
    - ``bm25``: Okapi BM25 of the terms, as a part of the best that any text could reach.
    - ``idf_cosine``: of the sets of terms, each weighed by its rarity.
    - ``coverage``: how much of the query's terms, weighed by rarity, the memory or a neighbour of it has.
    - ``question``: how much of a short text is a question; with a negative weight, what only asks comes later.
    - ``importance``: of the memory.
    - ``recency``: of its last access.

    ``bm25``, ``idf_cosine`` and ``coverage`` see terms: the words of a text (``refold.text.words``) without the
    commonest English ones, stemmed by ``stemmer`` (``"porter"``, ``"light"`` or ``"none"``), and the month and year in
    which it occurred, if that is known. How rare a term is, is counted among the live rows before any filter.

    - ``recency_curve``: ``"hyperbolic"``, 1 / (1 + ``recency_rate`` * days), or ``"exponential"``, ``recency_weekly``
      to the power of days / 7. Days are fractions, and never below 0.
    - ``bm25_saturation`` and ``bm25_length``: k1 and b.
    - ``neighbours``: what a term counts that stands not in the memory but one, two, ... rows before or after it in its
      session. Rows without a session have none. ``gate_terms``: a neighbour of so many terms counts half, in both
      directions; 0 lets all pass.
    - ``pivot_terms`` and ``damping``: coverage is divided by (terms / ``pivot_terms``) ** ``damping`` where a text
      has more terms, because a long one has every word by chance.
    - ``question_terms``: only texts with fewer terms are looked at as questions.

    Raises ``InvalidInput`` for a weight or a shape that cannot be, naming it.

    >>> Ranking(name="meaning first", cosine=0.9, importance=0.1).recency
    0.0
    """

    name: str = "custom"
    cosine: float = 0.0
    keywords: float = 0.0
    bm25: float = 0.0
    idf_cosine: float = 0.0
    coverage: float = 0.0
    question: float = 0.0
    importance: float = 0.0
    recency: float = 0.0
    stemmer: str = "porter"
    recency_curve: str = "hyperbolic"
    recency_rate: float = 0.1
    recency_weekly: float = 0.95
    bm25_saturation: float = 0.9
    bm25_length: float = 0.4
    neighbours: tuple[float, ...] = (0.8, 0.5, 0.2)
    gate_terms: float = 80.0
    pivot_terms: float = 40.0
    damping: float = 0.8
    question_terms: int = 15

    def __post_init__(self) -> None:
        name = _given(self, "name")
        if not isinstance(name, str) or not name:
            _refuse(self, "name", "give a text that is not empty")
        for signal in SIGNALS:
            _number(self, signal, float("-inf"), float("inf"))
        if not any(self.weights().values()):
            message = f"ranking {self.name!r} has no weight; give at least one of {', '.join(SIGNALS)}"
            raise InvalidInput(message)
        _choice(self, "stemmer", tuple(STEMMERS))
        _choice(self, "recency_curve", CURVES)
        for field, least, most in _SHAPES:
            _number(self, field, least, most)
        _check_neighbours(self)

    def weights(self) -> dict[str, float]:
        """Return the weight of each signal that has one."""
        return {signal: weight for signal in SIGNALS if (weight := getattr(self, signal))}


_SHAPES: Final = (
    ("recency_rate", 0.0, 1e6),
    ("recency_weekly", 0.0, 1.0),
    ("bm25_saturation", 0.0, 1e6),
    ("bm25_length", 0.0, 1.0),
    ("gate_terms", 0.0, 1e9),
    ("pivot_terms", 1.0, 1e9),
    ("damping", 0.0, 10.0),
    ("question_terms", 0, 1e9),
)


def _given(ranking: Ranking, field: str) -> object:
    """Return what the caller gave, whatever its type should have been."""
    given: object = getattr(ranking, field)
    return given


def _refuse(ranking: Ranking, field: str, advice: str) -> NoReturn:
    message = f"{field} of the ranking {ranking.name!r} is {getattr(ranking, field)!r}; {advice}"
    raise InvalidInput(message)


def _number(ranking: Ranking, field: str, least: float, most: float) -> None:
    value = _given(ranking, field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        _refuse(ranking, field, "give a finite number")
    if not least <= value <= most:
        _refuse(ranking, field, f"give a number from {least:g} to {most:g}")


def _choice(ranking: Ranking, field: str, choices: tuple[str, ...]) -> None:
    if getattr(ranking, field) not in choices:
        _refuse(ranking, field, f"give one of {', '.join(map(repr, choices))}")


def _check_neighbours(ranking: Ranking) -> None:
    shares = _given(ranking, "neighbours")
    advice = f"give a tuple of at most {NEIGHBOURS_COUNT_MAX} numbers from 0 to 1, the nearest first"
    if not isinstance(shares, tuple) or not all(type(share) in (int, float) for share in ranking.neighbours):
        _refuse(ranking, "neighbours", advice)
    if len(ranking.neighbours) > NEIGHBOURS_COUNT_MAX or not all(0 <= share <= 1 for share in ranking.neighbours):
        _refuse(ranking, "neighbours", advice)


_SEED: Final = Ranking(name="seed", cosine=0.40, keywords=0.25, importance=0.20, recency=0.15)

_PRESETS: Final = (
    _SEED,
    Ranking(name="seed-without-recency", cosine=0.40, keywords=0.25, importance=0.20),
    Ranking(
        name="seed-exponential", cosine=0.40, keywords=0.25, importance=0.20, recency=0.15, recency_curve="exponential"
    ),
    Ranking(name="browse", importance=0.80, recency=0.20),
    Ranking(name="window", cosine=0.5, coverage=0.5, stemmer="light"),
    Ranking(name="hybrid", cosine=0.5, coverage=0.5, question=-0.1, pivot_terms=50.0),
    Ranking(name="lexical", coverage=1.0, question=-0.1, pivot_terms=50.0),
    Ranking(name="bm25", bm25=1.0, stemmer="light"),
    Ranking(name="idf-cosine", cosine=0.40, idf_cosine=0.25, stemmer="light"),
    Ranking(name="idf-coverage", cosine=0.40, coverage=0.25, stemmer="light", neighbours=(), damping=0.0),
)

RANKINGS: Final[Mapping[str, Ranking]] = MappingProxyType({ranking.name: ranking for ranking in _PRESETS})
"""The rankings that have a name.

- ``"seed"``: the default, and what other programs with the same formula answer.
- ``"hybrid"``: found best on chats and on long messages both; for search in conversations, facts and skills.
- ``"window"``: the same with a lighter stemmer and without the look at questions.
- ``"lexical"``: without vectors, for texts that share words.
- ``"browse"``: for an empty query.
- ``"seed-without-recency"``, ``"seed-exponential"``, ``"bm25"``, ``"idf-cosine"``, ``"idf-coverage"``: to compare with.
"""


def ranking_of(ranking: object) -> Ranking:
    """Return a ranking given by its name or as itself; raises ``InvalidInput`` for anything else.

    >>> ranking_of("browse").importance
    0.8
    """
    if isinstance(ranking, Ranking):
        return ranking
    found = RANKINGS.get(ranking) if isinstance(ranking, str) else None
    if found is None:
        message = f"ranking is {ranking!r}; give a refold.Ranking, or one of {', '.join(map(repr, RANKINGS))}"
        raise InvalidInput(message)
    return found
