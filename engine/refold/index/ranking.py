"""A ranking is data: the weights of signals and their shapes; columns hold what is compared, a score compares."""

import re
from collections.abc import Callable, Iterator, Mapping
from math import isfinite, log, sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn

from msgspec import Struct

from refold.errors import InvalidInput
from refold.index.columns import grown
from refold.index.text import STEMMERS, Posting, Postings, Sessions, question_share, terms_of
from refold.text import keywords

if TYPE_CHECKING:
    from numpy import bool_, float32, int64, intp, uint16
    from numpy.typing import NDArray


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
            raise InvalidInput(f"ranking {self.name!r} has no weight; give at least one of {', '.join(SIGNALS)}")
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
    raise InvalidInput(f"{field} of the ranking {ranking.name!r} is {getattr(ranking, field)!r}; {advice}")


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
        raise InvalidInput(
            f"ranking is {ranking!r}; give a refold.index.ranking.Ranking, or one of {', '.join(map(repr, RANKINGS))}"
        )
    return found


# The terms of every row, and the signals that are computed from them.

_LENGTH_MAX: Final = 2**16 - 1
_MONTHS: Final = tuple(
    re.findall(r"\w+", "January February March April May June July August September October November December")
)
_DAY_NS: Final = 86_400 * 10**9


class Lexicon:
    """An index of terms that is kept row by row, and answers like one that is built anew.

    Terms are those of ``terms_of`` with one stemmer, and the month and year in which a row occurred, if that is known.
    """

    def __init__(self, stemmer: str) -> None:
        import numpy  # noqa: PLC0415 - loads when the first row comes

        self._stemmer = stemmer
        self._postings = Postings()
        self._sessions = Sessions()
        self._lengths: NDArray[uint16] = numpy.empty(0, dtype=numpy.uint16)
        self._length_sum = 0
        self._norms: NDArray[float32] | None = None

    def add(self, row: int, text: str, session: str | int | None, occurred_ns: int | None) -> None:
        """Add a row that is not here."""
        terms, length = terms_of(text, self._stemmer)
        if occurred_ns is not None:
            dated, dated_length = terms_of(month_of(occurred_ns), self._stemmer)
            terms, length = terms + dated, length + dated_length
        self.reach(row + 1)
        self._postings.add(row, terms)
        self._sessions.add(row, session)
        self._lengths[row] = min(length, _LENGTH_MAX)
        self._length_sum += int(self._lengths[row])
        self._norms = None

    def remove(self, row: int, session: str | int | None) -> None:
        """Take a row out."""
        self._postings.remove(row)
        self._sessions.remove(row, session)
        self._length_sum -= int(self._lengths[row])
        self._lengths[row] = 0
        self._norms = None

    def reach(self, size: int) -> None:
        """Make room for so many rows, though the last of them were removed before they came here."""
        self._lengths = grown(self._lengths, size, 0)
        self._sessions.reach(size)

    def lengths(self) -> "NDArray[uint16]":
        """Return how many words each row is long."""
        return self._lengths

    def bm25(self, ranking: Ranking, text: str, size: int) -> "NDArray[float32]":
        """Return Okapi BM25 of each row, as a part of the most that any row could have."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        found = numpy.zeros(size, dtype=numpy.float32)
        k1, b = ranking.bm25_saturation, ranking.bm25_length
        mean = self._length_sum / max(1, len(self._postings)) or 1.0
        most = 0.0
        for posting, idf in self._weighed(text):
            most += idf * (k1 + 1)
            if posting is not None:
                rows, repeats = posting.rows(), posting.repeats()
                spread = k1 * (1 - b + b * (self._lengths[rows] / mean))
                found[rows] += idf * repeats * (k1 + 1) / (repeats + spread)
        return _share(found, most)

    def idf_cosine(self, text: str, size: int) -> "NDArray[float32]":
        """Return the cosine of the sets of terms, each term weighed by its rarity."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        found = numpy.zeros(size, dtype=numpy.float32)
        squares = 0.0
        for posting, idf in self._weighed(text):
            squares += idf * idf
            if posting is not None:
                found[posting.rows()] += idf * idf
        norms = self._row_norms(size)
        found /= numpy.where(norms > 0, norms, 1)
        return _share(found, sqrt(squares))

    def coverage(self, ranking: Ranking, text: str, size: int) -> "NDArray[float32]":
        """Return how much of the query's rarity each row has, itself or through its neighbours."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        found = numpy.zeros(size, dtype=numpy.float32)
        spread = _Spread(ranking, self._lengths, self._sessions, size)
        most = 0.0
        for posting, idf in self._weighed(text):
            most += idf
            if posting is not None:
                spread.add(found, posting.rows(), idf)
        if ranking.damping:
            found *= _damping(ranking, int(self._lengths[:size].max(initial=0)))[self._lengths[:size]]
        return _share(found, most)

    def _weighed(self, text: str) -> "Iterator[tuple[Posting | None, float]]":
        """Yield each term of a query, once: its posting, if a row has it, and its rarity."""
        count = len(self._postings)
        for term in dict.fromkeys(terms_of(text, self._stemmer)[0]):
            posting = self._postings.get(term)
            yield posting, _rarity(count, 0 if posting is None else len(posting))

    def _row_norms(self, size: int) -> "NDArray[float32]":
        """Return the length of each row's terms as a vector of rarities; every write changes them all."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        if self._norms is None or len(self._norms) < size:
            squares = numpy.zeros(size)
            count = len(self._postings)
            for posting in self._postings.all():
                squares[posting.rows()] += _rarity(count, len(posting)) ** 2
            self._norms = numpy.sqrt(squares).astype(numpy.float32)
        return self._norms[:size]


class _Spread:
    """Adds what a term counts: 1 where it stands, and less for the neighbours of where it stands."""

    def __init__(self, ranking: Ranking, lengths: "NDArray[uint16]", sessions: Sessions, size: int) -> None:
        import numpy  # noqa: PLC0415 - loads when the first query comes

        self._shares = ranking.neighbours if len(sessions) else ()
        self._chains = sessions.chains()
        self._marks: NDArray[float32] = numpy.zeros(size, dtype=numpy.float32)
        self._gates = _gates(ranking, int(lengths[:size].max(initial=0)))[lengths[:size]]

    def add(self, found: "NDArray[float32]", rows: "NDArray[intp]", rarity: float) -> None:
        """Add one term to every row that has it, or whose neighbour has it; the highest mark counts, once."""
        marked = [rows, *self._mark_neighbours(rows)]
        self._marks[rows] = 1
        for places in marked:
            found[places] += rarity * self._marks[places]
            self._marks[places] = 0

    def _mark_neighbours(self, rows: "NDArray[intp]") -> "Iterator[NDArray[intp]]":
        import numpy  # noqa: PLC0415 - loads when the first query comes

        for chain in self._chains:
            places = rows
            gates = self._gates[rows]
            for share in self._shares:
                places = chain[places]
                is_there = places >= 0
                places, gates = places[is_there], gates[is_there]
                self._marks[places] = numpy.maximum(self._marks[places], share * gates * self._gates[places])
                yield places


def month_of(time_ns: int) -> str:
    """Return the month and year of a time, in UTC.

    >>> month_of(0)
    'January 1970'
    """
    # Days to a date by eras of 400 years, each of which begins with March, so that a leap day is the last of its year.
    days = time_ns // _DAY_NS + 719_468
    era, day = divmod(days, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    month = (5 * (day - (365 * year + year // 4 - year // 100)) + 2) // 153
    return f"{_MONTHS[(month + 2) % 12]} {year + era * 400 + (month >= 10)}"  # noqa: PLR2004 - January is the tenth


def _rarity(count: int, having: int) -> float:
    """Return the weight of a term that so many of all rows have (idf, never below 0)."""
    return log(1 + (count - having + 0.5) / (having + 0.5))


def _share(found: "NDArray[float32]", most: float) -> "NDArray[float32]":
    if most > 0:
        found /= most
    return found


def _gates(ranking: Ranking, length_max: int) -> "NDArray[float32]":
    """Return what passes between neighbours, by length."""
    import numpy  # noqa: PLC0415 - loads when the first query comes

    lengths = numpy.arange(length_max + 1)
    if not ranking.gate_terms:
        return numpy.ones(length_max + 1, dtype=numpy.float32)
    return (1 / (1 + (lengths / ranking.gate_terms) ** 2)).astype(numpy.float32)


def _damping(ranking: Ranking, length_max: int) -> "NDArray[float32]":
    """Return what is left of the coverage of a text, by its length."""
    import numpy  # noqa: PLC0415 - loads when the first query comes

    lengths = numpy.arange(length_max + 1)
    return (numpy.maximum(1, lengths / ranking.pivot_terms) ** -ranking.damping).astype(numpy.float32)


# What of every memory is compared with a query: one column for each, kept row by row.


class Row(Struct, frozen=True):
    """What of a memory is compared as text, and where it stands."""

    text: str
    keywords: tuple[str, ...]
    session: str | int | None
    occurred_ns: int | None


class Columns:
    """The columns of a project's memories, brought up to date memory by memory.

    Rows have numbers from 0, in the order of their memories' seqs. A row that is removed keeps its number and is never
    found; it may be added again, with other values, when its memory was changed. Indexes of terms are built when a
    ranking first asks for their stemmer, and kept from then on. Nothing here locks: who adds while another thread
    scores sees to that.

    >>> columns = Columns()
    >>> columns.add(0, "Ada likes tea", keywords=("tea",), importance=0.5, accessed_ns=0)
    >>> len(columns)
    1
    """

    def __init__(self) -> None:
        import numpy  # noqa: PLC0415 - loads when the first memory comes

        self._rows: list[Row | None] = []
        self._count = 0
        self._importance: NDArray[float32] = numpy.empty(0, dtype=numpy.float32)
        self._accessed_ns: NDArray[int64] = numpy.empty(0, dtype=numpy.int64)
        self._keyword_counts: NDArray[float32] = numpy.empty(0, dtype=numpy.float32)
        self._live: NDArray[bool_] = numpy.empty(0, dtype=numpy.bool_)
        self._keywords = Postings()
        self._lexicons: dict[str, Lexicon] = {}
        self._questions: NDArray[float32] | None = None

    def __len__(self) -> int:
        """How many rows are live."""
        return self._count

    @property
    def size(self) -> int:
        """How many rows there are, the removed ones included."""
        return len(self._rows)

    def is_live(self, row: int) -> bool:
        """Return whether a row is there and was not removed."""
        return row < len(self._rows) and self._rows[row] is not None

    def add(
        self,
        row: int,
        text: str,
        *,
        keywords: tuple[str, ...],
        importance: float,
        accessed_ns: int,
        session: str | int | None = None,
        occurred_ns: int | None = None,
    ) -> None:
        """Add a row that is new or was removed. Keywords are compared in lower case.

        Raises ``InvalidInput`` if the row is live, or if its number leaves a gap.
        """
        if row > len(self._rows) or self.is_live(row):
            raise InvalidInput(
                f"row {row} cannot be added where there are {len(self._rows)}; give that number, or a removed row"
            )
        lowered = tuple(dict.fromkeys(keyword.lower() for keyword in keywords))
        added = Row(text, lowered, session, occurred_ns)
        if row == len(self._rows):
            self._rows.append(None)
            self._grow(row + 1)
        self._rows[row] = added
        self._count += 1
        self._live[row] = True
        self._importance[row] = importance
        self._accessed_ns[row] = accessed_ns
        self._keyword_counts[row] = len(lowered)
        self._keywords.add(row, lowered)
        for lexicon in self._lexicons.values():
            lexicon.add(row, text, session, occurred_ns)
        if self._questions is not None:
            self._questions[row] = question_share(text)

    def remove(self, row: int) -> None:
        """Take a live row out; raises ``InvalidInput`` for any other."""
        held = self._rows[row] if row < len(self._rows) else None
        if held is None:
            raise InvalidInput(f"row {row} is not live; remove a row that was added")
        self._rows[row] = None
        self._count -= 1
        self._live[row] = False
        self._keywords.remove(row)
        for lexicon in self._lexicons.values():
            lexicon.remove(row, held.session)

    def set_importance(self, row: int, importance: float) -> None:
        """Change the importance of a row."""
        self._importance[row] = importance

    def set_accessed(self, row: int, accessed_ns: int) -> None:
        """Change when a row was accessed last."""
        self._accessed_ns[row] = accessed_ns

    def importance(self) -> "NDArray[float32]":
        """Return the importance of each row."""
        return self._importance[: self.size]

    def accessed_ns(self) -> "NDArray[int64]":
        """Return when each row was accessed last."""
        return self._accessed_ns[: self.size]

    def live_rows(self) -> "NDArray[intp]":
        """Return the numbers of the live rows."""
        return self._live[: self.size].nonzero()[0]

    def jaccard(self, keywords: tuple[str, ...]) -> "NDArray[float32]":
        """Return for each row how many keywords it shares with the query, of all that either has."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        asked = dict.fromkeys(keyword.lower() for keyword in keywords)
        shared = numpy.zeros(self.size, dtype=numpy.float32)
        for keyword in asked:
            posting = self._keywords.get(keyword)
            if posting is not None:
                shared[posting.rows()] += 1
        either = self._keyword_counts[: self.size] + len(asked) - shared
        shared /= numpy.maximum(either, 1)
        return shared

    def lexicon(self, stemmer: str) -> Lexicon:
        """Return the index of terms with a stemmer, built now if it was not asked for before."""
        lexicon = self._lexicons.get(stemmer)
        if lexicon is None:
            lexicon = Lexicon(stemmer)
            for row, held in enumerate(self._rows):
                if held is not None:
                    lexicon.add(row, held.text, held.session, held.occurred_ns)
            lexicon.reach(self.size)
            self._lexicons[stemmer] = lexicon
        return lexicon

    def questions(self) -> "NDArray[float32]":
        """Return how much of each row's text is a question."""
        import numpy  # noqa: PLC0415 - loads when the first query comes

        if self._questions is None:
            self._questions = numpy.zeros(len(self._importance), dtype=numpy.float32)
            for row, held in enumerate(self._rows):
                if held is not None:
                    self._questions[row] = question_share(held.text)
        return self._questions[: self.size]

    def _grow(self, size: int) -> None:
        self._live = grown(self._live, size, 0)
        self._importance = grown(self._importance, size, 0)
        self._accessed_ns = grown(self._accessed_ns, size, 0)
        self._keyword_counts = grown(self._keyword_counts, size, 0)
        if self._questions is not None:
            self._questions = grown(self._questions, size, 0)


# Scores: every row under a ranking, and the best of them.

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
        raise InvalidInput(
            f"the query has {found} for {columns.size} rows; compute one for each, or take a ranking without it"
        )
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
