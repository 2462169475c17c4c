"""Many queries at once: all of one state, multiplied with the rows together."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from refold import checks
from refold.engine import searching
from refold.engine.searching import Question
from refold.engine.similarity import Sight
from refold.engine.similarity import Wanted as Sought
from refold.entry import ACTIVE
from refold.limits import QUERIES_BYTES_MAX, QUERIES_COUNT_MAX, REDO_COUNT_MAX
from refold.memory import finding
from refold.memory.embedding import Vector
from refold.memory.finding import Wanted
from refold.memory.looking import look
from refold.memory.remembering import Place, settled
from refold.rank import Columns, Ranking
from refold.results import Hits

if TYPE_CHECKING:
    import datetime


class SearchOptions(TypedDict, total=False):
    """What of a search is the same for all queries."""

    top_k: int
    categories: Sequence[str] | None
    statuses: Sequence[str] | None
    min_importance: float
    metadata: Mapping[str, Any] | None
    ranking: str | Ranking
    now: "int | datetime.datetime | None"
    explain: bool


DEFAULTS: Final[SearchOptions] = {
    "top_k": 10,
    "categories": None,
    "statuses": (ACTIVE,),
    "min_importance": 0.1,
    "metadata": None,
    "ranking": "seed",
    "now": None,
    "explain": False,
}
"""Those of a search for one query."""


class _Posed(NamedTuple):
    """A query, ready for any state, and its vector."""

    question: Question
    vector: Vector | None


def search_many(place: Place, queries: object, vectors: object, options: SearchOptions) -> list[Hits]:
    """Return the hits of each query."""
    said = _texts(queries)
    given, asked = _given(vectors, len(said)), _wanted(options)
    return settled(lambda: _searched(place, said, given, asked), place)


def _searched(place: Place, said: Sequence[str], given: Sequence[object], asked: Wanted) -> list[Hits]:
    posed = _posed(place, said, given, asked)
    for _ in range(REDO_COUNT_MAX):
        hits = place.door.engine.kept.whole(lambda: _attempt(place, posed))
        if hits is not None:
            return hits
    raise finding.too_fast(place)


def _texts(queries: object) -> list[str]:
    if isinstance(queries, (str, bytes)) or not isinstance(queries, Sequence):
        checks.invalid(f"queries must be a list of str, not {type(queries).__name__} ({checks.shown(queries)})")
    said = [checks.text(query, "a query") for query in cast("Sequence[object]", queries)]
    if len(said) > QUERIES_COUNT_MAX:
        checks.invalid(f"{len(said)} queries are more than QUERIES_COUNT_MAX ({QUERIES_COUNT_MAX}); ask in parts")
    return said


def _given(vectors: object, count: int) -> list[object]:
    """Return the vector of each query, ``None`` where it is to be made."""
    if vectors is None:
        return [None] * count
    try:
        given = list(cast("Sequence[object]", vectors))
    except TypeError:
        checks.invalid(f"vectors must be a list, not {type(vectors).__name__} ({checks.shown(vectors)})")
    if len(given) != count:
        checks.invalid(f"{len(given)} vectors for {count} queries; give one for each, or None in its place")
    return given


def _wanted(options: SearchOptions) -> Wanted:
    unknown = sorted(options.keys() - DEFAULTS.keys())
    if unknown:
        message = f"search_many() got unexpected options {unknown}; it takes vectors and {list(DEFAULTS)}"
        raise TypeError(message)
    chosen: dict[str, Any] = {**DEFAULTS, **options}
    return finding.wanted(**chosen, vector=None)


def _posed(place: Place, said: Sequence[str], given: Sequence[object], asked: Wanted) -> list[_Posed]:
    """Return the queries with their vectors: those that are missing are made at once."""
    pairs = [finding.checked_query(text, asked._replace(vector=one)) for text, one in zip(said, given, strict=True)]
    embedding, now_ns = place.door.embedding_at(place.at), finding.moment(place, asked.now_ns)
    vectors = [None if one is None else embedding.given(one) for one in given]
    if place.read(lambda facts: bool(facts.entries)):
        bare = [number for number, (_, ranking) in enumerate(pairs) if vectors[number] is None and ranking.cosine]
        for number, made in zip(bare, embedding.of_all([said[number] for number in bare]), strict=True):
            vectors[number] = made
    return [
        _Posed(
            Question(
                text=text,
                ranking=ranking,
                packed=None if vector is None else vector.packed,
                now_ns=now_ns,
                top_k=asked.top_k,
                filter=asked.filter,
                explains=asked.explain,
            ),
            vector,
        )
        for (text, ranking), vector in zip(pairs, vectors, strict=True)
    ]


def _attempt(place: Place, posed: Sequence[_Posed]) -> list[Hits] | None:
    """Return the hits of all queries, ``None`` if memories changed too much while they were looked for."""
    needs_everyone = any(one.question.filter.metadata is not None for one in posed)
    needs_texts = any(one.question.needs_texts for one in posed)
    sight = look(place, Sought(needs_own=needs_texts, needs_everyone=needs_everyone))
    if sight is None:
        return [finding.nothing(one.question) for one in posed]
    if not needs_texts:
        return _answered(place, sight, posed, None)
    texts = sight.stock.texts
    with texts.lock:
        sight = look(place, Sought(needs_own=True, changes_of=sight.stock, needs_everyone=needs_everyone))
        if sight is None or sight.changes is None:
            return None
        texts.update(sight.changes)
        return _answered(place, sight, posed, texts.columns)


def _answered(place: Place, sight: Sight, posed: Sequence[_Posed], columns: Columns | None) -> list[Hits] | None:
    for one in posed:
        finding.check_fits(sight, one.vector)
    answers: list[Hits] = []
    for block in _blocks(posed, sight.moment.count):
        questions = [one.question for one in block]
        orders = sight.moment.frame.orders
        texts = [
            searching.compared(columns, orders, question) if columns is not None and question.needs_texts else None
            for question in questions
        ]
        for question, text, found in zip(
            questions, texts, searching.found_together(sight, questions, texts), strict=True
        ):
            hits = finding.hits_of(place, sight, question, text, found)
            if hits is None:
                return None
            answers.append(hits)
    return answers


def _blocks(posed: Sequence[_Posed], rows: int) -> Iterator[list[_Posed]]:
    """Yield queries that follow each other and are ranked alike: as many as there is room for what texts say."""
    size = max(1, QUERIES_BYTES_MAX // (8 * max(rows, 1)))
    for _, group in groupby(posed, key=lambda one: one.question.ranking):
        alike = list(group)
        for begin in range(0, len(alike), size):
            yield alike[begin : begin + size]
