"""Scores: every row under a ranking, and the best of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from refold.errors import InvalidInput
from refold.rank.columns import Columns
from refold.rank.ranking import Ranking
from refold.text import keywords

if TYPE_CHECKING:
    from numpy import float32, intp
    from numpy.typing import NDArray

_DAY_NS: Final = 86_400 * 10**9
_DECIMALS: Final = 6


class Query(Struct, frozen=True, kw_only=True):
    """What is looked for: a text, keywords instead of those of the text, the moment, the cosine of each row.

    ``cosine`` is a column of float32 with a number for every row, the removed ones included; only rankings without a
    weight for it go without.
    """

    text: str = ""
    keywords: tuple[str, ...] | None = None
    now_ns: int = 0
    cosine: "NDArray[float32] | None" = None


def score(ranking: Ranking, query: Query, columns: Columns) -> "tuple[NDArray[float32], dict[str, NDArray[float32]]]":
    """Return the score of every row, and by name each signal that has a weight; a removed row's numbers mean nothing.

    Raises ``InvalidInput`` if the ranking weighs the cosine and the query has none, or one of another size.

    >>> columns = Columns()
    >>> columns.add(0, "Ada likes tea", keywords=("ada", "likes", "tea"), importance=0.5, accessed_ns=0)
    >>> total, parts = score(Ranking(keywords=1.0, importance=0.2), Query(text="Which tea?"), columns)
    >>> round(float(total[0]), 6), parts["keywords"].tolist()
    (0.35, [0.25])
    """
    import numpy  # noqa: PLC0415 - loads when the first query comes

    total = numpy.zeros(columns.size, dtype=numpy.float32)
    parts: dict[str, NDArray[float32]] = {}
    for name, weight in ranking.weights().items():
        part = _SIGNALS[name](ranking, query, columns)
        parts[name] = part
        total += numpy.float32(weight) * part
    return total, parts


def best(
    total: "NDArray[float32]", columns: Columns, count: int, rows: "NDArray[intp] | None" = None
) -> list[tuple[int, float]]:
    """Return the rows with the highest scores, best first, each with its score rounded to 6 decimals.

    Among ``rows``, or all live ones. Equal scores, after rounding, stand by their importance, the higher first, then by
    their rows, the lower first: so the order does not depend on how a machine rounds.
    """
    import numpy  # noqa: PLC0415 - loads when the first query comes

    among = columns.live_rows() if rows is None else rows
    scores = total[among]
    count = min(count, len(among))
    if count <= 0:
        return []
    least = numpy.partition(scores, len(scores) - count)[len(scores) - count]
    near = among[scores >= least - 2 * 10**-_DECIMALS]
    rounded = numpy.round(total[near].astype(numpy.float64), _DECIMALS)
    order = numpy.lexsort((near, -columns.importance()[near], -rounded))[:count]
    return list(zip(near[order].tolist(), rounded[order].tolist(), strict=True))


def _cosine(_ranking: Ranking, query: Query, columns: Columns) -> "NDArray[float32]":
    cosine = query.cosine
    if cosine is None or len(cosine) != columns.size:
        found = "no cosine" if cosine is None else f"{len(cosine)} cosines"
        message = f"the query has {found} for {columns.size} rows; compute one for each, or take a ranking without it"
        raise InvalidInput(message)
    return cosine


def _keywords(_ranking: Ranking, query: Query, columns: Columns) -> "NDArray[float32]":
    return columns.jaccard(keywords(query.text) if query.keywords is None else query.keywords)


def _bm25(ranking: Ranking, query: Query, columns: Columns) -> "NDArray[float32]":
    return columns.lexicon(ranking.stemmer).bm25(ranking, query.text, columns.size)


def _idf_cosine(ranking: Ranking, query: Query, columns: Columns) -> "NDArray[float32]":
    return columns.lexicon(ranking.stemmer).idf_cosine(query.text, columns.size)


def _coverage(ranking: Ranking, query: Query, columns: Columns) -> "NDArray[float32]":
    return columns.lexicon(ranking.stemmer).coverage(ranking, query.text, columns.size)


def _question(ranking: Ranking, _query: Query, columns: Columns) -> "NDArray[float32]":
    lengths = columns.lexicon(ranking.stemmer).lengths()[: columns.size]
    share: NDArray[float32] = columns.questions() * (lengths < ranking.question_terms)
    return share


def _importance(_ranking: Ranking, _query: Query, columns: Columns) -> "NDArray[float32]":
    return columns.importance()


def _recency(ranking: Ranking, query: Query, columns: Columns) -> "NDArray[float32]":
    import numpy  # noqa: PLC0415 - loads when the first query comes

    days = numpy.maximum(query.now_ns - columns.accessed_ns(), 0) / _DAY_NS
    if ranking.recency_curve == "hyperbolic":
        recency = 1 / (1 + ranking.recency_rate * days)
    else:
        recency = ranking.recency_weekly ** (days / 7)
    part: NDArray[float32] = recency.astype(numpy.float32)
    return part


_SIGNALS: Final[dict[str, "Callable[[Ranking, Query, Columns], NDArray[float32]]"]] = {
    "cosine": _cosine,
    "keywords": _keywords,
    "bm25": _bm25,
    "idf_cosine": _idf_cosine,
    "coverage": _coverage,
    "question": _question,
    "importance": _importance,
    "recency": _recency,
}
