"""Rankings as data, filters, and queries that combine them. Pure."""

from collections.abc import Mapping
from math import isfinite, log, log1p
from types import MappingProxyType
from typing import Any, Final, NoReturn, cast

from msgspec import Struct
from msgspec.structs import asdict

from refold.errors import InvalidInput
from refold.text import keywords

# The signals by which memories are ranked; each is a field of `Ranking`, whose value is its weight.
SIGNALS: Final = ("cosine", "keywords", "bm25", "idf_cosine", "coverage", "question", "importance", "recency")
TEXT_SIGNALS: Final = ("bm25", "idf_cosine", "coverage", "question")  # The signals that compare texts.
STEMMERS: Final = ("porter", "light", "none")

_BOUNDS: Final = {signal: (float("-inf"), float("inf")) for signal in SIGNALS} | {
    "recency_rate": (0.0, 1e6),
    "recency_weekly": (0.0, 1.0),
    "bm25_saturation": (0.0, 1e6),
    "bm25_length": (0.0, 1.0),
    "gate_terms": (0.0, 1e9),
    "pivot_terms": (1.0, 1e9),
    "damping": (0.0, 10.0),
    "question_terms": (0.0, 1e9),
}
_CHOICES: Final = {
    "stemmer": STEMMERS,
    "recency_curve": ("hyperbolic", "exponential"),
    "irregular": (False, True),
}
_NEIGHBOURS_MAX: Final = 16
_DECIMALS: Final = 6  # Floors are rounded to this many digits.
_WORDLESS_ROWS_MIN: Final = 7  # The floor of a best row without a word of the query is that of at least so many rows.
_AT_ONCE: Final = 1e18  # The rate of a recency that fades at once.


class Ranking(Struct, frozen=True, kw_only=True):
    """Weights and shapes of signals; the score of a memory is the weighted sum of its signals.

    Signals, by field. All except `cosine` range from 0 to 1:

    - `cosine`: the cosine of the query's vector and the memory's, from -1 to 1.
    - `keywords`: the Jaccard index of the query's keywords and the memory's; 0 if both have none.
    - `bm25`: Okapi BM25 of the terms, as a share of the highest score that any text could reach.
    - `idf_cosine`: the cosine of the sets of terms, each term weighted by its rarity.
    - `coverage`: the share of the query's terms, weighted by rarity, that the memory or a neighbour of it has.
    - `question`: the share of a short text that is a question; a negative weight ranks mere questions lower.
    - `importance`: the importance of the memory.
    - `recency`: the recency of its last access.

    `bm25`, `idf_cosine` and `coverage` compare terms: the words of a text (`refold.text.words`) without the most common
    English ones, stemmed by `stemmer` (`"porter"`, `"light"` or `"none"`), and the month and year in which it occurred,
    if known. The rarity of a term is counted among the live rows before any filter.

    - `recency_curve`: `"hyperbolic"`, 1 / (1 + `recency_rate` * days), or `"exponential"`, `recency_weekly` to the
      power of days / 7. Days can be fractions, and are never below 0.
    - `bm25_saturation` and `bm25_length`: k1 and b of BM25.
    - `neighbours`: the weights of a term that is not in the memory but one, two, ... rows before or after it in its
      session. Rows without a session have no neighbours. `gate_terms`: a row with this many terms gives its neighbours
      half, and takes half from them; 0 lets everything pass.
    - `pivot_terms` and `damping`: coverage is divided by (terms / `pivot_terms`) ** `damping` if a text has more terms,
      because a long text contains any word by chance.
    - `irregular`: whether coverage treats the forms of an irregular verb or noun as one word: go, went and gone.
    - `question_terms`: only texts with fewer terms are examined for questions.

    Raises `InvalidInput`, which names the field, for an invalid weight or shape.

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
    irregular: bool = False

    def __post_init__(self) -> None:
        given = asdict(self)  # As the caller passed it, of any type.
        if not isinstance(given["name"], str) or not given["name"]:
            self._refuse("name", "give a text that is not empty")
        for field, (least, most) in _BOUNDS.items():
            value = given[field]
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
                self._refuse(field, "give a finite number")
            if not least <= value <= most:
                self._refuse(field, f"give a number from {least:g} to {most:g}")
        if not any(self.weights().values()):
            raise InvalidInput(f"ranking {self.name!r} has no weight; give at least one of {', '.join(SIGNALS)}")
        for field, choices in _CHOICES.items():
            if given[field] not in choices:
                self._refuse(field, f"give one of {', '.join(map(repr, choices))}")
        shares = cast("tuple[Any, ...]", given["neighbours"])
        is_tuple = isinstance(given["neighbours"], tuple) and len(shares) <= _NEIGHBOURS_MAX
        if not is_tuple or not all(type(share) in (int, float) and 0 <= share <= 1 for share in shares):
            advice = f"give a tuple of at most {_NEIGHBOURS_MAX} numbers from 0 to 1, the nearest first"
            self._refuse("neighbours", advice)

    def _refuse(self, field: str, advice: str) -> NoReturn:
        raise InvalidInput(f"{field} of the ranking {self.name!r} is {getattr(self, field)!r}; {advice}")

    def weights(self) -> dict[str, float]:
        """Return the weight of each signal that has one."""
        return {signal: weight for signal in SIGNALS if (weight := getattr(self, signal))}

    @property
    def daily_rate(self) -> float:
        """The decay rate of recency: the rate in 1 / (1 + rate * days), or in exp(-rate * days)."""
        if self.recency_curve == "hyperbolic":
            return self.recency_rate
        return max(-log(self.recency_weekly) / 7, 0.0) if self.recency_weekly else _AT_ONCE


_PRESETS: Final = (
    Ranking(name="hybrid", cosine=0.5, coverage=0.5, question=-0.1, pivot_terms=50.0, irregular=True),
    Ranking(name="window", cosine=0.5, coverage=0.5, stemmer="light"),
    Ranking(name="lexical", coverage=1.0, question=-0.1, pivot_terms=50.0, irregular=True),
    Ranking(name="seed", cosine=0.40, keywords=0.25, importance=0.20, recency=0.15),
    Ranking(name="browse", importance=0.80, recency=0.20),
)

RANKINGS: Final[Mapping[str, Ranking]] = MappingProxyType({ranking.name: ranking for ranking in _PRESETS})
"""The named rankings.

- `"hybrid"`: the default; the best on long messages and facts, and on chats with a model's vectors.
- `"window"`: the same weights of cosine and coverage, with a lighter stemmer and the default shapes, without questions.
- `"lexical"`: without vectors, for texts that share words; on chats, a little better than `"hybrid"` with the built-in
  embedder.
- `"seed"`: gives the same results as other programs with this formula.
- `"browse"`: for an empty query.
"""


DEFAULT: Final = "hybrid"
"""The name of the ranking that searches use by default."""


def ranking_of(ranking: object) -> Ranking:
    """Resolve a ranking given by name or as a `Ranking`; raises `InvalidInput` for anything else.

    >>> ranking_of("browse").importance
    0.8
    """
    if isinstance(ranking, Ranking):
        return ranking
    preset = RANKINGS.get(ranking) if isinstance(ranking, str) else None
    if preset is None:
        raise InvalidInput(
            f"ranking is {ranking!r}; give a refold.index.ranking.Ranking, or one of {', '.join(map(repr, RANKINGS))}"
        )
    return preset


class Filter(Struct, frozen=True, kw_only=True):
    """The rows that a search can find; `None` allows all."""

    categories: tuple[str, ...] | None = None
    statuses: tuple[str, ...] | None = ("active",)
    min_importance: float | None = None
    metadata: Mapping[str, Any] | None = None  # Pairs that a memory's metadata must contain.
    rows: Any = None  # An array of row numbers: a filter by data that a table does not hold.


class Query(Struct, frozen=True, kw_only=True):
    """A validated search: its text and vector, the rows that it can find, and their ranking."""

    text: str = ""
    vector: Any = None  # Numbers or raw float32; without a vector the cosine counts as 0.
    filter: Filter = Filter()
    ranking: Ranking = RANKINGS["seed"]
    now_ns: int | None = None  # The time from which recency is counted; `None` for that of the state.
    top_k: int = 10
    explain: bool = False  # Whether hits carry every signal, not only those with a weight.
    approximate: bool = False  # Whether an unproved answer is accepted if it is faster to find.
    words: tuple[str, ...] | None = None  # The keywords to compare, instead of those of the text.
    floor: float | None = None  # The best score must reach this for any result; `None` to use `floor_rate`.
    floor_rate: float = 0.0  # The floor, divided by the logarithm of one plus the number of rows.

    def floor_of(self, rows_count: int, parts: Mapping[str, float]) -> float:
        """Return the score that the best of `rows_count` rows, with its signals, must reach for any result.

        0 means no floor. By chance, the best of many scores grows with the logarithm of their number, but the chance
        cosine of a row that has no word of the query is no smaller among few.
        """
        if self.floor is not None:
            return self.floor
        has_words = parts.get("coverage", 1.0) > 0
        return round(
            self.floor_rate * log1p(rows_count if has_words else max(rows_count, _WORDLESS_ROWS_MIN)), _DECIMALS
        )

    @property
    def keywords(self) -> tuple[str, ...]:
        """The keywords to compare."""
        return keywords(self.text) if self.words is None else self.words

    @property
    def compares_texts(self) -> bool:
        """Whether any signal that compares texts is needed."""
        return self.explain or any(getattr(self.ranking, name) for name in TEXT_SIGNALS)
