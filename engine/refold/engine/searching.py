"""A ranking answered from the rows of a project: what is linear by the shelf, what compares texts beside it."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from refold.engine.similarity import Sight
from refold.engine.units import unit
from refold.entry import Entry
from refold.rank import SIGNALS, Columns, Query, Ranking, score
from refold.store.answering import Query as Asked
from refold.store.answering import Wish
from refold.store.columns import Array
from refold.store.moments import Filters
from refold.store.scanning import Match, Matches
from refold.store.scoring import Scoring, faded
from refold.text import keywords

TEXTUAL: Final = ("bm25", "idf_cosine", "coverage", "question")
"""The signals that compare texts; the others are columns of a shelf."""

_LINEAR: Final = tuple(name for name in SIGNALS if name not in TEXTUAL)
_AT_ONCE: Final = 1e18
"""The rate of a recency that is gone after a moment."""


class Filter(NamedTuple):
    """Which memories a search may find."""

    categories: tuple[str, ...] | None
    statuses: tuple[str, ...] | None
    min_importance: float
    metadata: Mapping[str, Any] | None

    def lets(self, entry: Entry) -> bool:
        """Return whether a memory has the metadata that is asked for."""
        held = entry.metadata or {}
        return all(name in held and held[name] == value for name, value in (self.metadata or {}).items())

    def of(self, sight: Sight) -> Filters:
        """Return the filter as a shelf takes it."""
        rows = None
        if self.metadata is not None:
            passing = [row for row, entry in enumerate(sight.everyone) if entry is not None and self.lets(entry)]
            rows = np.array([row for row in passing if row < sight.moment.count], np.intp)
        least = self.min_importance or None
        return Filters(categories=self.categories, statuses=self.statuses, min_importance=least, rows=rows)


class Question(NamedTuple):
    """What is looked for, ready for any state."""

    text: str
    ranking: Ranking
    packed: bytes | None
    now_ns: int
    top_k: int
    filter: Filter
    explains: bool

    @property
    def needs_texts(self) -> bool:
        """Whether texts have to be compared."""
        return self.explains or any(getattr(self.ranking, name) for name in TEXTUAL)


class Texts(NamedTuple):
    """What the comparison of texts says of each row, weighted, and signal by signal."""

    extra: Array | None
    parts: dict[str, Array]


@lru_cache(maxsize=64)
def scoring_of(ranking: Ranking) -> Scoring:
    """Return the part of a ranking that is linear in what a shelf knows."""
    is_exponential = ranking.recency_curve == "exponential"
    rate = ranking.recency_rate
    if is_exponential:
        rate = -math.log(ranking.recency_weekly) / 7 if ranking.recency_weekly else _AT_ONCE
    return Scoring(
        cosine=ranking.cosine,
        keywords=ranking.keywords,
        importance=ranking.importance,
        recency=ranking.recency,
        fading="exponential" if is_exponential else "hyperbolic",
        rate=max(rate, 0.0),
    )


def compared(columns: Columns, orders: Array, question: Question) -> Texts:
    """Return what the texts say of each row; ``orders`` are the rows' places among them."""
    ranking = question.ranking
    weights = {name: getattr(ranking, name) for name in TEXTUAL}
    query = Query(text=question.text, now_ns=question.now_ns)
    nothing = dict.fromkeys(_LINEAR, 0.0)
    extra: Array | None = None
    parts: dict[str, Array] = {}
    if any(weights.values()):
        total, parts = score(replace(ranking, **nothing), query, columns)
        extra = np.take(total, orders, mode="clip")
    if question.explains:
        parts = score(replace(ranking, **nothing, **dict.fromkeys(TEXTUAL, 1.0)), query, columns)[1]
    return Texts(extra, {name: np.take(part, orders, mode="clip") for name, part in parts.items()})


def found(sight: Sight, question: Question, texts: Texts | None) -> Matches:
    """Return the rows that answer a question best."""
    return sight.stock.shelf.search(_asked(question, texts), _wish(question, sight), moment=sight.moment)


def found_together(sight: Sight, questions: Sequence[Question], texts: Sequence[Texts | None]) -> list[Matches]:
    """Return what ``found`` returns for questions that differ in what is looked for alone."""
    asked = list(map(_asked, questions, texts))
    return sight.stock.shelf.search_many(asked, _wish(questions[0], sight), moment=sight.moment)


def _asked(question: Question, texts: Texts | None) -> Asked:
    ranking = question.ranking
    return Asked(
        question.packed if ranking.cosine else None,
        keywords(question.text) if ranking.keywords else (),
        None if texts is None else texts.extra,
    )


def _wish(question: Question, sight: Sight) -> Wish:
    scoring = scoring_of(question.ranking)
    return Wish(now_ns=question.now_ns, top_k=question.top_k, scoring=scoring, filters=question.filter.of(sight))


def parts_of(
    sight: Sight, question: Question, texts: Texts | None, pairs: Sequence[tuple[Match, Entry]]
) -> list[dict[str, float]]:
    """Return the signals of each match: those that have a weight, or all of them."""
    ranking = question.ranking
    if not question.explains:
        names = tuple(ranking.weights())
        if texts is None:
            return [{name: getattr(match, name) for name in names} for match, _ in pairs]
        return [
            {
                name: float(texts.parts[name][match.row]) if name in texts.parts else getattr(match, name)
                for name in names
            }
            for match, _ in pairs
        ]
    assert texts is not None, "an explanation compares texts"
    asked = set(keywords(question.text))
    wide = None if question.packed is None else unit(question.packed).astype(np.float64)
    explained: list[dict[str, float]] = []
    for match, entry in pairs:
        signals = {} if wide is None else {"cosine": _cosine(sight, match.row, wide)}
        own = {word.lower() for word in entry.words}
        signals["keywords"] = len(asked & own) / max(len(asked | own), 1)
        signals |= {name: float(part[match.row]) for name, part in texts.parts.items()}
        signals["importance"] = entry.importance
        (signals["recency"],) = faded(
            scoring_of(ranking), question.now_ns, [int(sight.moment.frame.accessed[match.row])]
        )
        explained.append({name: signals[name] for name in SIGNALS if name in signals})
    return explained


def _cosine(sight: Sight, row: int, wide: Array) -> float:
    return min(1.0, max(-1.0, float(np.add.reduce(sight.moment.frame.matrix[row] * wide))))
