"""The signals of texts: the postings of their terms, and the signals of each row for a query. Pure."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log, sqrt
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy import float32
from numpy.typing import NDArray

from refold.errors import InvalidInput
from refold.index.columns import DAY_NS, Array, Column, Posting, Rows, add_terms, postings_of, remove_terms
from refold.index.packed import PackedTerms, refuse
from refold.index.ranking import DEFAULT, RANKINGS, Query, Ranking
from refold.index.terms import forms_of, question_share, terms_of

_Floats: TypeAlias = NDArray[float32]


# Sessions and terms of rows, updated row by row, and always equal to a newly built index.

_NONE: Final = -1
_LENGTH_MAX: Final = 2**16 - 1
_MONTHS: Final = tuple(
    re.findall(r"\w+", "January February March April May June July August September October November December")
)


class _Sessions:
    """The rows before and after each row in its session; -1 if there is none."""

    def __init__(self) -> None:
        self.before = Column(np.intp)
        self.after = Column(np.intp)
        self._rows: dict[str | int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def pack(self, sessions: Sequence[str | int | None]) -> tuple[list[str | int], dict[str, Array]]:
        """Return the names of the sessions of all rows, and the columns that `unpack` also needs."""
        numbers = {session: number for number, session in enumerate(self._rows)}
        of_rows = [_NONE if session is None else numbers[session] for session in sessions]
        return list(numbers), {"sessions": np.array(of_rows, np.int32)}

    def unpack(self, names: Sequence[str | int], of_rows: Array) -> None:
        """Fill this empty object with rows whose sessions are given by number."""
        self.pad(len(of_rows))
        if not names:
            return
        order = np.argsort(of_rows, kind="stable")[int((of_rows < 0).sum()) :]
        followers = np.flatnonzero(of_rows[order][1:] == of_rows[order][:-1])
        self.after.values[order[followers]] = order[followers + 1]
        self.before.values[order[followers + 1]] = order[followers]
        ends = of_rows[order].searchsorted(np.arange(len(names)), "right").tolist()
        rows = order.tolist()
        self._rows = {
            name: rows[begin:end] for name, begin, end in zip(names, [0, *ends], ends, strict=False) if end > begin
        }

    def pad(self, size: int) -> None:
        self.before.pad(size, _NONE)
        self.after.pad(size, _NONE)

    def add(self, row: int, session: str | int | None) -> None:
        if session is not None:
            rows = self._rows.setdefault(session, [])
            place = bisect_left(rows, row)
            rows.insert(place, row)
            self._link(*rows[max(0, place - 1) : place + 1])
            self._link(*rows[place : place + 2])

    def remove(self, row: int, session: str | int | None) -> None:
        if session is None:
            return
        rows = self._rows[session]
        del rows[bisect_left(rows, row)]
        if not rows:
            del self._rows[session]
        before, after = int(self.before.values[row]), int(self.after.values[row])
        if before != _NONE:
            self.after.values[before] = after
        if after != _NONE:
            self.before.values[after] = before
        self.before.values[row] = self.after.values[row] = _NONE

    def _link(self, left: int, right: int | None = None) -> None:
        if right is not None:
            self.after.values[left] = right
            self.before.values[right] = left


class _Lexicon:
    """The terms of every row under one stemmer, with the month and year if they are known."""

    def __init__(self, stemmer: str) -> None:
        self._stemmer = stemmer
        self._postings: dict[str, Posting] = {}
        self._packed: PackedTerms | None = None
        """The terms of the packed rows; `_postings` has those of the other rows."""
        self._row_count = 0
        self._sessions = _Sessions()
        self._lengths = Column(np.uint16)
        self._length_sum = 0
        self._norms: _Floats | None = None

    def fill(self, texts: Sequence["RowText | None"]) -> None:
        """Fill the empty lexicon with the texts of all rows, several times as fast as one by one."""
        flat: list[str] = []
        counts = [0] * len(texts)
        self.pad(len(texts))
        for row, text in enumerate(texts):
            if text is not None:
                terms = self._note(row, text)
                flat += terms
                counts[row] = len(terms)
        self._postings = postings_of(flat, np.repeat(np.arange(len(texts)), counts))

    def add(self, row: int, text: "RowText") -> None:
        self.pad(row + 1)
        add_terms(self._postings, row, self._note(row, text))

    def pack(self, sessions: Sequence[str | int | None]) -> tuple[list[str | int], dict[str, Array]]:
        """Return the names of the sessions of all rows, and the columns that `unpack` also needs."""
        names, columns = self._sessions.pack(sessions)
        return names, columns | {"lengths": self._lengths.values} | PackedTerms.of(self._all())

    def unpack(self, names: Sequence[str | int], arrays: Mapping[str, Array]) -> None:
        """Fill the empty lexicon with packed rows."""
        self._packed = PackedTerms.from_arrays(arrays)
        self._lengths = Column.of(arrays["lengths"])
        self._sessions.unpack(names, arrays["sessions"])
        self._row_count = int(np.count_nonzero(arrays["live"]))
        self._length_sum = int(self._lengths.values.sum(dtype=np.int64))

    def remove(self, row: int, text: "RowText") -> None:
        """Remove a row; for a packed row, only the session of `text` matters."""
        if self._packed is not None and self._packed.has(row):
            self._packed.remove(row)
        else:
            remove_terms(self._postings, row, self._terms(text)[0])
        self._sessions.remove(row, text.session)
        self._row_count -= 1
        self._length_sum -= int(self._lengths.values[row])
        self._lengths.values[row] = 0
        self._norms = None

    def _note(self, row: int, text: "RowText") -> list[str]:
        """Record everything about a row except its postings, and return its terms."""
        terms, length = self._terms(text)
        self._sessions.add(row, text.session)
        self._row_count += 1
        self._lengths.values[row] = min(length, _LENGTH_MAX)
        self._length_sum += min(length, _LENGTH_MAX)
        self._norms = None
        return terms

    def _terms(self, text: "RowText") -> tuple[list[str], int]:
        terms, length = terms_of(text.text, self._stemmer)
        if text.occurred_ns is not None:
            month_terms, month_length = terms_of(month_of(text.occurred_ns), self._stemmer)
            terms, length = terms + month_terms, length + month_length
        return terms, length

    def pad(self, size: int) -> None:
        """Make room for `size` rows, even if the last of them were removed before this index was built."""
        self._lengths.pad(size, 0)
        self._sessions.pad(size)

    def bm25(self, query: Query, size: int) -> _Floats:
        """Compute Okapi BM25 of each row, as a share of the highest that any row could have."""
        scores: _Floats = np.zeros(size, dtype=float32)
        k1, b = query.ranking.bm25_saturation, query.ranking.bm25_length
        mean = self._length_sum / max(1, self._row_count) or 1.0
        most = 0.0
        for posting, idf in self._query_terms(query.text):
            most += idf * (k1 + 1)
            if posting is not None:
                rows, repeats = posting
                spread = k1 * (1 - b + b * (self._lengths.values[rows] / mean))
                scores[rows] += idf * repeats * (k1 + 1) / (repeats + spread)
        return _scale(scores, most)

    def idf_cosine(self, query: Query, size: int) -> _Floats:
        """Compute the cosine of the sets of terms, each term weighted by its rarity."""
        scores: _Floats = np.zeros(size, dtype=float32)
        squares = 0.0
        for posting, idf in self._query_terms(query.text):
            squares += idf * idf
            if posting is not None:
                scores[posting[0]] += idf * idf
        norms = self._row_norms(size)
        scores /= np.where(norms > 0, norms, 1)
        return _scale(scores, sqrt(squares))

    def coverage(self, query: Query, size: int) -> _Floats:
        """Compute the share of the query's rarity that each row has, itself or through its neighbours."""
        chains = (self._sessions.before.values, self._sessions.after.values) if len(self._sessions) else ()
        return coverage_of(query.ranking, self._lengths.values[:size], chains, self._query_rows(query))

    def _query_rows(self, query: Query) -> Iterator[tuple[Rows | None, float]]:
        """Yield, for each term of a query, the rows that have it or an equivalent form of it, and its rarity."""
        terms, stemmer = terms_of(query.text, self._stemmer)[0], self._stemmer
        for forms in dict.fromkeys(forms_of(term, stemmer) if query.ranking.irregular else (term,) for term in terms):
            rows_of_forms = [posting[0] for posting in map(self._find, forms) if posting is not None]
            rows = _unite_rows(rows_of_forms) if rows_of_forms else None
            yield rows, rarity(self._row_count, 0 if rows is None else len(rows))

    def question(self, query: Query, shares: _Floats) -> _Floats:
        scores: _Floats = shares * (self._lengths.values[: len(shares)] < query.ranking.question_terms)
        return scores

    def _query_terms(self, text: str) -> Iterator[tuple[tuple[Rows, Array] | None, float]]:
        """Yield, for each distinct term of a query, its rows and repeats, if any row has it, and its rarity."""
        count = self._row_count
        for term in dict.fromkeys(terms_of(text, self._stemmer)[0]):
            posting = self._find(term)
            yield posting, rarity(count, 0 if posting is None else len(posting[0]))

    def _find(self, term: str) -> tuple[Rows, Array] | None:
        """Return the rows that have a term, in order, and how often each has it."""
        posting = self._postings.get(term)
        packed = None if self._packed is None else self._packed.find(term)
        if posting is None:
            return packed
        own = (posting.rows(), posting.repeats())
        return own if packed is None else _merge_postings(own, packed)

    def _all(self) -> dict[str, tuple[Rows, Array]]:
        """Return the result of `_find` for every term."""
        fresh = {term: (posting.rows(), posting.repeats()) for term, posting in self._postings.items()}
        packed = {} if self._packed is None else self._packed.all()
        return packed | {
            term: _merge_postings(own, packed[term]) if term in packed else own for term, own in fresh.items()
        }

    def _row_norms(self, size: int) -> _Floats:
        if self._norms is None or len(self._norms) < size:
            squares = np.zeros(size)
            for rows, _ in self._all().values():
                squares[rows] += rarity(self._row_count, len(rows)) ** 2
            self._norms = np.sqrt(squares).astype(float32)
        return self._norms[:size]


def _merge_postings(one: tuple[Rows, Array], other: tuple[Rows, Array]) -> tuple[Rows, Array]:
    rows = np.concatenate([one[0], other[0]])
    order = np.argsort(rows)
    return rows[order], np.concatenate([one[1], other[1]])[order]


def _unite_rows(lists: Sequence[Rows]) -> Rows:
    """Return the union of lists of rows, in order; a mask is faster than sorting them."""
    if len(lists) == 1:
        return lists[0]
    marks = np.zeros(1 + max(int(rows[-1]) for rows in lists), np.bool_)
    for rows in lists:
        marks[rows] = True
    united: Rows = np.flatnonzero(marks)
    return united


def coverage_of(
    ranking: Ranking, lengths: NDArray[np.uint16], chains: Sequence[Rows], terms: Iterable[tuple[Rows | None, float]]
) -> _Floats:
    """Compute the share of the terms' rarity that each row has, itself or through its neighbours.

    `lengths` are the lengths of the rows, `chains` the neighbours of each row in both directions, and `terms` the rows
    that have each of the query's terms, with its rarity.
    """
    size = len(lengths)
    longest = np.arange(int(lengths.max(initial=0)) + 1)
    gates: _Floats = np.ones(len(longest), dtype=float32)
    if ranking.gate_terms:
        gates = (1 / (1 + (longest / ranking.gate_terms) ** 2)).astype(float32)
    gates = gates[lengths]
    scores: _Floats = np.zeros(size, dtype=float32)
    marks: _Floats = np.zeros(size, dtype=float32)
    most = 0.0
    for rows, idf in terms:
        most += idf
        if rows is not None:
            marked = [rows, *_mark_neighbours(marks, rows, gates, chains, ranking.neighbours)]
            marks[rows] = 1
            for places in marked:  # The highest mark of a row counts, once.
                scores[places] += idf * marks[places]
                marks[places] = 0
    if ranking.damping:
        scores *= (np.maximum(1, longest / ranking.pivot_terms) ** -ranking.damping).astype(float32)[lengths]
    return _scale(scores, most)


def _mark_neighbours(
    marks: _Floats, rows: Rows, gates: _Floats, chains: Sequence[Rows], shares: tuple[float, ...]
) -> Iterator[Rows]:
    for chain in chains:
        places, passed = rows, gates[rows]
        for share in shares:
            places = chain[places]
            is_there = places >= 0
            places, passed = places[is_there], passed[is_there]
            marks[places] = np.maximum(marks[places], share * passed * gates[places])
            yield places


def month_of(time_ns: int) -> str:
    """Name the month and year of a time, in UTC.

    >>> month_of(0)
    'January 1970'
    """
    # Converts days to a date by eras of 400 years, each of which begins in March, so that a leap day is the last of its
    # year.
    days = time_ns // DAY_NS + 719_468
    era, day = divmod(days, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    month = (5 * (day - (365 * year + year // 4 - year // 100)) + 2) // 153
    return f"{_MONTHS[(month + 2) % 12]} {year + era * 400 + (month >= 10)}"  # noqa: PLR2004 - January is the tenth


def rarity(count: int, having: int) -> float:
    """Compute the idf of a term that `having` of `count` rows have; it is never below 0."""
    return log(1 + (count - having + 0.5) / (having + 0.5))


def _scale(scores: _Floats, most: float) -> _Floats:
    if most > 0:
        scores /= most
    return scores


class RowText(NamedTuple):
    """The text of a row, its session, and the time when it occurred."""

    text: str
    session: str | int | None = None
    occurred_ns: int | None = None


_DECIMALS: Final = 6


_PACKED: Final = RowText("")
"""The placeholder of a packed text that was not read yet."""
PACKED_STEMMER: Final = RANKINGS[DEFAULT].stemmer


class TextIndex:
    """An index of texts with keywords, importance and time of access, updated row by row.

    Rows are numbered from 0 in the order of their memories' seqs. A removed row keeps its number and is never found; it
    can be added again with other values. Terms are indexed when a ranking first needs their stemmer. Not thread-safe:
    the caller locks.

    >>> texts = TextIndex()
    >>> texts.add(0, RowText("Ada likes tea"), keywords=("tea",), importance=0.5, accessed_ns=0)
    >>> len(texts)
    1
    """

    def __init__(self) -> None:
        self._texts: list[RowText | None] = []
        self._count = 0
        self.importance = Column(float32)
        self.accessed_ns = Column(np.int64)
        self._keyword_counts = Column(float32)
        self._keywords: dict[str, Posting] = {}
        self._keywords_of_row: dict[int, set[str]] = {}
        self._lexicons: dict[str, _Lexicon] = {}
        self._questions: Column | None = None
        self._read: Callable[[Sequence[int]], list[RowText]] | None = None
        """Reads the texts of packed rows, for which `_PACKED` stands in until then."""
        self._sessions: list[str | int | None] = []
        """The sessions of the packed rows."""

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """The number of rows, removed ones included."""
        return len(self._texts)

    def add(
        self, row: int, text: RowText, *, keywords: Iterable[str] = (), importance: float = 0.0, accessed_ns: int = 0
    ) -> None:
        """Add a row that is new or was removed; keywords are compared in lower case.

        Raises `InvalidInput` if the row is live, or if its number leaves a gap.
        """
        if row > len(self._texts) or (row < len(self._texts) and self._texts[row] is not None):
            raise InvalidInput(
                f"row {row} cannot be added where there are {len(self._texts)}; give that number, or a removed row"
            )
        if row == len(self._texts):
            self._texts.append(None)
            for column in (self.importance, self.accessed_ns, self._keyword_counts):
                column.pad(row + 1, 0)
        lowered = {keyword.lower() for keyword in keywords}
        self._texts[row] = text
        self._count += 1
        self.importance.values[row] = importance
        self.accessed_ns.values[row] = accessed_ns
        self._keyword_counts.values[row] = len(lowered)
        if lowered:
            self._keywords_of_row[row] = lowered
            add_terms(self._keywords, row, lowered)
        for lexicon in self._lexicons.values():
            lexicon.add(row, text)
        if self._questions is not None:
            self._questions.pad(row + 1, 0)
            self._questions.values[row] = question_share(text.text)

    def fill(self, texts: Sequence[RowText | None]) -> None:
        """Fill the empty index with texts that have no keywords, `None` for rows that were removed."""
        self._texts = list(texts)
        self._count = sum(text is not None for text in texts)
        for column in (self.importance, self.accessed_ns, self._keyword_counts):
            column.pad(len(texts), 0)

    def remove(self, row: int) -> None:
        """Remove a live row; raises `InvalidInput` for any other."""
        text = self._texts[row] if row < len(self._texts) else None
        if text is None:
            raise InvalidInput(f"row {row} is not live; remove a row that was added")
        if text is _PACKED:
            text = RowText("", self._session(row))
        self._texts[row] = None
        self._count -= 1
        remove_terms(self._keywords, row, self._keywords_of_row.pop(row, ()))
        for lexicon in self._lexicons.values():
            lexicon.remove(row, text)

    def is_live(self, row: int) -> bool:
        """Return whether a row was added and has not been removed since."""
        return row < len(self._texts) and self._texts[row] is not None

    def live_rows(self) -> Rows:
        """List the numbers of the live rows."""
        return np.array([row for row, text in enumerate(self._texts) if text is not None], np.intp)

    def signals(self, query: Query, names: Iterable[str], cosine: _Floats | None = None) -> dict[str, _Floats]:
        """Compute the named signals of every row; the values of removed rows are meaningless.

        `cosine` has a number for every row, and only the signal of that name needs it. Raises `InvalidInput` if it is
        needed and missing, or has another size.
        """
        computed: dict[str, Callable[[], _Floats]] = {
            "cosine": lambda: self._check_cosine(cosine),
            "keywords": lambda: self._jaccard(query.keywords),
            "bm25": lambda: self._lexicon(query).bm25(query, self.size),
            "idf_cosine": lambda: self._lexicon(query).idf_cosine(query, self.size),
            "coverage": lambda: self._lexicon(query).coverage(query, self.size),
            "question": lambda: self._lexicon(query).question(query, self._question_shares()),
            "importance": lambda: self.importance.values,
            "recency": lambda: self._recency(query),
        }
        return {name: computed[name]() for name in names}

    def score(self, query: Query, cosine: _Floats | None = None) -> tuple[_Floats, dict[str, _Floats]]:
        """Compute the score of every row, and by name each signal with a weight.

        >>> texts = TextIndex()
        >>> texts.add(0, RowText("Ada likes tea"), keywords=("ada", "likes", "tea"), importance=0.5)
        >>> query = Query(text="Which tea?", ranking=Ranking(keywords=1.0, importance=0.2))
        >>> total, parts = texts.score(query)
        >>> round(float(total[0]), 6), parts["keywords"].tolist()
        (0.35, [0.25])
        """
        parts = self.signals(query, query.ranking.weights(), cosine)
        return weigh_signals(query.ranking, parts, self.size), parts

    def best(self, total: _Floats, count: int, rows: Rows | None = None) -> list[tuple[int, float]]:
        """Return the rows with the highest scores, best first, each with its score rounded to 6 decimals.

        Considers `rows`, or all live rows. Rows with equal rounded scores are ordered by importance, the higher first,
        then by number, so that the order does not depend on how a machine rounds.
        """
        among = self.live_rows() if rows is None else rows
        scores = total[among]
        count = min(count, len(among))
        if count <= 0:
            return []
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        near = among[scores >= least - 2 * 10**-_DECIMALS]
        rounded = np.round(total[near].astype(np.float64), _DECIMALS)
        order = np.lexsort((near, -self.importance.values[near], -rounded))[:count]
        return list(zip(near[order].tolist(), rounded[order].tolist(), strict=True))

    def pack(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """Return all rows as values and arrays; `None` unless the default ranking's stemmer has been used.

        Also `None` if a row has keywords, because the keywords of memories are stored in a table.
        """
        lexicon = self._lexicons.get(PACKED_STEMMER)
        if lexicon is None or self._keywords:
            return None
        sessions = [
            None if text is None else self._session(row) if text is _PACKED else text.session
            for row, text in enumerate(self._texts)
        ]
        names, arrays = lexicon.pack(sessions)
        live = np.array([text is not None for text in self._texts], np.bool_)
        return {"sessions": names}, arrays | {"live": live, "questions": self._question_shares()}

    def unpack(
        self, values: Mapping[str, Any], arrays: Mapping[str, Array], read: Callable[[Sequence[int]], list[RowText]]
    ) -> None:
        """Fill the empty index with packed rows; `read` returns their texts when they are needed.

        Raises `UnfitRows` unless the arrays are the result of `pack`.
        """
        live, numbers, names = arrays["live"], arrays["sessions"], values["sessions"]
        if not len(live) == len(arrays["lengths"]) == len(arrays["questions"]) == len(numbers):
            refuse("its texts have other rows")
        if len(numbers) and int(numbers.max()) >= len(names):
            refuse("its texts are of sessions that it has not")
        lexicon = _Lexicon(PACKED_STEMMER)
        lexicon.unpack(names, arrays)
        texts: list[RowText | None] = [_PACKED] * len(live)
        for row in np.flatnonzero(~live).tolist():
            texts[row] = None
        self.fill(texts)
        self._read = read
        self._sessions = [None if number < 0 else names[number] for number in numbers.tolist()] if names else []
        self._questions = Column.of(arrays["questions"])
        self._lexicons[PACKED_STEMMER] = lexicon

    def _session(self, row: int) -> str | int | None:
        """Return the session of a packed row."""
        return self._sessions[row] if self._sessions else None

    def _read_packed(self) -> None:
        """Read the texts of the packed rows that have not changed since."""
        rows = [row for row, text in enumerate(self._texts) if text is _PACKED]
        if rows:
            assert self._read is not None, "no row was packed"
            for row, text in zip(rows, self._read(rows), strict=True):
                self._texts[row] = text

    def _lexicon(self, query: Query) -> _Lexicon:
        lexicon = self._lexicons.get(query.ranking.stemmer)
        if lexicon is None:
            self._read_packed()
            lexicon = self._lexicons[query.ranking.stemmer] = _Lexicon(query.ranking.stemmer)
            lexicon.fill(self._texts)
        return lexicon

    def _check_cosine(self, cosine: _Floats | None) -> _Floats:
        if cosine is None or len(cosine) != self.size:
            count = "no cosine" if cosine is None else f"{len(cosine)} cosines"
            raise InvalidInput(
                f"the query has {count} for {self.size} rows; compute one for each, or take a ranking without it"
            )
        return cosine

    def _jaccard(self, keywords: Iterable[str]) -> _Floats:
        lowered = {keyword.lower() for keyword in keywords}
        shared: _Floats = np.zeros(self.size, dtype=float32)
        for keyword in lowered:
            posting = self._keywords.get(keyword)
            if posting is not None:
                shared[posting.rows()] += 1
        shared /= np.maximum(self._keyword_counts.values + len(lowered) - shared, 1)
        return shared

    def _question_shares(self) -> _Floats:
        if self._questions is None:
            self._questions = Column(float32)
            shares = [0.0 if text is None else question_share(text.text) for text in self._texts]
            self._questions.extend(shares, len(shares))
        return self._questions.values

    def _recency(self, query: Query) -> _Floats:
        ranking = query.ranking
        days = np.maximum((query.now_ns or 0) - self.accessed_ns.values, 0) / DAY_NS
        if ranking.recency_curve == "hyperbolic":
            recency = 1 / (1 + ranking.recency_rate * days)
        else:
            recency = ranking.recency_weekly ** (days / 7)
        column: _Floats = recency.astype(float32)
        return column


def weigh_signals(ranking: Ranking, parts: dict[str, _Floats], size: int) -> _Floats:
    """Sum signals, each times its weight in a ranking."""
    total: _Floats = np.zeros(size, dtype=float32)
    for name, part in parts.items():
        total += float32(getattr(ranking, name)) * part
    return total
