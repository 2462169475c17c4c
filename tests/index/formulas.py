"""What every signal of a ranking says, computed row by row from its formula: slow, and without numpy or an index."""

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import log, sqrt

from refold.index.ranking import Ranking
from refold.index.terms import forms_of, terms_of

DAY_NS = 86_400 * 10**9


@dataclass(frozen=True)
class Memory:
    """One row, as the oracle keeps it."""

    text: str
    keywords: tuple[str, ...]
    importance: float
    accessed_ns: int
    session: str | None
    occurred_ns: int | None


Rows = dict[int, Memory]


@cache
def terms(memory: Memory, stemmer: str) -> tuple[list[str], int]:
    """The terms of a row and its length, its month among them."""
    found, length = terms_of(memory.text, stemmer)
    if memory.occurred_ns is not None:
        month = datetime.fromtimestamp(memory.occurred_ns // 10**9, UTC).strftime("%B %Y")
        dated, dated_length = terms_of(month, stemmer)
        found, length = found + dated, length + dated_length
    return found, length


def rarity(rows: Rows, term: str, stemmer: str) -> float:
    """The idf of a term among all rows."""
    having = sum(term in terms(memory, stemmer)[0] for memory in rows.values())
    return log(1 + (len(rows) - having + 0.5) / (having + 0.5))


def asked(query: str, rows: Rows, ranking: Ranking) -> dict[str, float]:
    """The terms of a query with their idf."""
    return {term: rarity(rows, term, ranking.stemmer) for term in dict.fromkeys(terms_of(query, ranking.stemmer)[0])}


def jaccard(left: tuple[str, ...], right: tuple[str, ...]) -> float:
    """What two sets of keywords share, in lower case."""
    one, other = {word.lower() for word in left}, {word.lower() for word in right}
    return len(one & other) / len(one | other) if one | other else 0.0


def recency(ranking: Ranking, days: float) -> float:
    """Either curve of recency."""
    days = max(days, 0.0)
    return 1 / (1 + 0.1 * days) if ranking.recency_curve == "hyperbolic" else 0.95 ** (days / 7)


def bm25(rows: Rows, row: int, query: str, ranking: Ranking) -> float:
    """Okapi BM25 over the best that a text could reach."""
    weights = asked(query, rows, ranking)
    repeats, length = Counter(terms(rows[row], ranking.stemmer)[0]), terms(rows[row], ranking.stemmer)[1]
    mean = sum(terms(memory, ranking.stemmer)[1] for memory in rows.values()) / len(rows) or 1
    k1, b = ranking.bm25_saturation, ranking.bm25_length
    spread = k1 * (1 - b + b * length / mean)
    found = sum(
        idf * repeats[term] * (k1 + 1) / (repeats[term] + spread) for term, idf in weights.items() if repeats[term]
    )
    return found / most if (most := (k1 + 1) * sum(weights.values())) else 0.0


def idf_cosine(rows: Rows, row: int, query: str, ranking: Ranking) -> float:
    """The cosine of two sets of terms, weighed by their idf."""
    weights = asked(query, rows, ranking)
    own = {term: rarity(rows, term, ranking.stemmer) for term in terms(rows[row], ranking.stemmer)[0]}
    lengths = sqrt(sum(idf**2 for idf in weights.values())) * sqrt(sum(idf**2 for idf in own.values()))
    return sum(idf**2 for term, idf in weights.items() if term in own) / lengths if lengths else 0.0


def covered(query: str, rows: Rows, ranking: Ranking) -> dict[tuple[str, ...], float]:
    """The words of a query, each as the terms that count as it, with its idf."""
    stemmer, weights = ranking.stemmer, dict[tuple[str, ...], float]()
    for term in terms_of(query, stemmer)[0]:
        forms = forms_of(term, stemmer) if ranking.irregular else (term,)
        having = sum(any(form in terms(memory, stemmer)[0] for form in forms) for memory in rows.values())
        weights[forms] = log(1 + (len(rows) - having + 0.5) / (having + 0.5))
    return weights


def coverage(rows: Rows, row: int, query: str, ranking: Ranking) -> float:
    """The share of the query's idf that a row or a neighbour of it has."""
    weights = covered(query, rows, ranking)
    most = sum(weights.values())
    if not most:
        return 0.0
    memory = rows[row]
    session = [
        other
        for other in sorted(rows)
        if other == row or (memory.session is not None and rows[other].session == memory.session)
    ]
    place = session.index(row)
    length = {other: terms(rows[other], ranking.stemmer)[1] for other in session}

    def gate(other: int) -> float:
        return 1 / (1 + (length[other] / ranking.gate_terms) ** 2)

    def has(other: int, forms: tuple[str, ...]) -> bool:
        return any(form in terms(rows[other], ranking.stemmer)[0] for form in forms)

    def mark(forms: tuple[str, ...]) -> float:
        if has(row, forms):
            return 1.0
        marks = [0.0]
        for distance, share in enumerate(ranking.neighbours, 1):
            near = [session[at] for at in (place - distance, place + distance) if 0 <= at < len(session)]
            marks += [share * gate(row) * gate(other) for other in near if has(other, forms)]
        return max(marks)

    damping = float(max(1, length[row] / ranking.pivot_terms) ** -ranking.damping)
    return damping * sum(idf * mark(forms) for forms, idf in weights.items()) / most


def question(rows: Rows, row: int, ranking: Ranking) -> float:
    """Which part of a short text asks, for texts of plain sentences."""
    if terms(rows[row], ranking.stemmer)[1] >= ranking.question_terms:
        return 0.0
    sentences = [part for part in re.split(r"(?<=[.?!])\s+", rows[row].text.strip()) if part]
    return sum(len(part) for part in sentences if part[-1] == "?") / max(1, sum(map(len, sentences)))


def signals(
    rows: Rows, row: int, query: str, given: tuple[str, ...], *, ranking: Ranking, now_ns: int
) -> dict[str, float]:
    """Every signal but the cosine."""
    memory = rows[row]
    return {
        "keywords": jaccard(given, memory.keywords),
        "bm25": bm25(rows, row, query, ranking),
        "idf_cosine": idf_cosine(rows, row, query, ranking),
        "coverage": coverage(rows, row, query, ranking),
        "question": question(rows, row, ranking),
        "importance": memory.importance,
        "recency": recency(ranking, (now_ns - memory.accessed_ns) / DAY_NS),
    }
