"""The exact search of the shelf is the brute-force scan: now, at any seq, in forks, whatever was done before."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from refold import EmbeddingMismatch, InvalidInput
from refold.index import columns
from refold.index.columns import DAY_NS
from refold.index.ranking import RANKINGS, Filter, Query, Ranking
from refold.index.table import PastValues, VectorTable
from tests.index.scan import (
    BEGIN_NS,
    CATEGORIES,
    MODEL,
    WORDS,
    Plain,
    alive_at,
    ask,
    assert_same,
    filled,
    gone,
    near,
    put,
    scanned,
    searched,
    searched_many,
    told,
    unit,
)

WISH = Query(now_ns=BEGIN_NS)
DIMENSIONS = 6
STATUSES = ("active", "pending_review", "archived")

weights = st.sampled_from([0.0, 0.15, 0.4, 1.0, -0.3])
scorings = st.builds(
    Ranking,
    importance=st.sampled_from([0.2, 0.5, 1.0]),
    cosine=weights,
    keywords=weights,
    recency=weights,
    recency_curve=st.sampled_from(["hyperbolic", "exponential"]),
    recency_rate=st.sampled_from([0.0, 0.1, 2.5]),
    recency_weekly=st.sampled_from([1.0, 0.95, 0.1]),
)
filters = st.builds(
    Filter,
    categories=st.none() | st.lists(st.sampled_from(CATEGORIES), max_size=2).map(tuple),
    statuses=st.none() | st.just(("active",)) | st.just(("archived", "pending_review", "unheard_of")),
    min_importance=st.none() | st.sampled_from([0.25, 0.5]),
)
wishes = st.builds(
    Query,
    now_ns=st.sampled_from([BEGIN_NS, BEGIN_NS + 40 * DAY_NS, BEGIN_NS - 60 * DAY_NS]),
    top_k=st.sampled_from([0, 1, 3, 10, 1_000]),
    ranking=st.just(RANKINGS["seed"]) | scorings,
    filter=st.just(Filter()) | filters,
)
# Few different numbers, so that many rows tie.
vectors = st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0]), min_size=DIMENSIONS, max_size=DIMENSIONS).filter(any)
asked_words = st.lists(st.sampled_from([*WORDS[:5], "unknown"]), max_size=4)
queries = st.tuples(st.none() | vectors, asked_words).map(lambda pair: ask(*pair))
rows_drawn = st.builds(
    Plain,
    place=st.just(0),
    seq=st.just(0),
    vector=vectors,
    category=st.sampled_from(CATEGORIES),
    keywords=st.lists(st.sampled_from(WORDS[:6]), max_size=5).map(tuple),
    importance=st.sampled_from([0.0, 0.25, 0.5, 0.7]),
    accessed_ns=st.integers(0, 90).map(lambda days: BEGIN_NS - days * DAY_NS),
    status=st.sampled_from(STATUSES),
)


class ShelfMachine(RuleBasedStateMachine):
    """Random writes, after each of which every search is the brute-force scan of what there is."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = VectorTable(DIMENSIONS, MODEL)
        self.seq = 0
        self.rows: list[Plain] = []
        self.pasts: list[tuple[int, list[Plain]]] = []
        self.moment = (self.shelf.view(), list(self.rows))

    def teardown(self) -> None:
        self.shelf.close()

    def _next(self) -> int:
        self.pasts.append((self.seq, list(self.rows)))
        self.seq += 1
        return self.seq

    @rule(row=rows_drawn)
    def add(self, row: Plain) -> None:
        row = replace(row, seq=self._next(), place=len(self.rows))
        place = self.shelf.add(
            row.seq,
            np.array(row.vector, np.float32).tobytes(),
            category=row.category,
            keywords=row.keywords,
            importance=row.importance,
            accessed_ns=row.accessed_ns,
            status=row.status,
        )
        assert place == len(self.rows)
        self.rows.append(row)

    @rule(drawn=st.lists(rows_drawn, min_size=8, max_size=40))
    def extend(self, drawn: list[Plain]) -> None:
        seq = self._next()
        rows = [replace(row, seq=seq, place=len(self.rows) + place) for place, row in enumerate(drawn)]
        put(self.shelf, rows)
        self.rows.extend(rows)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        alive = [row.place for row in self.rows if row.died is None]
        places = data.draw(st.lists(st.sampled_from(alive), unique=True)) if alive else []
        seq = self._next()
        self.shelf.remove(seq, places)
        gone(self.rows, places, seq)

    @rule(data=st.data(), importance=st.none() | st.sampled_from([0.1, 0.5]), days=st.none() | st.integers(0, 50))
    def change(self, data: st.DataObject, importance: float | None, days: int | None) -> None:
        alive = [row.place for row in self.rows if row.died is None]
        if not alive:
            return
        places = data.draw(st.lists(st.sampled_from(alive), unique=True, min_size=1))
        status = data.draw(st.none() | st.sampled_from(STATUSES))
        accessed_ns = None if days is None else BEGIN_NS - days * DAY_NS
        self.shelf.change(self._next(), places, importance=importance, accessed_ns=accessed_ns, status=status)
        given = {"importance": importance, "accessed_ns": accessed_ns, "status": status}
        changed = {name: value for name, value in given.items() if value is not None}
        for place in places:
            self.rows[place] = replace(self.rows[place], **changed)  # type: ignore[arg-type]

    @rule()
    def hold(self) -> None:
        """Keeps a moment, which has to stay what it is."""
        self.moment = (self.shelf.view(), list(self.rows))

    @rule(query=queries, wish=wishes)
    def search(self, query: Query, wish: Query) -> None:
        alive = alive_at(self.rows, self.seq)
        found = searched(self.shelf, query, wish)
        assert found.exact
        assert_same(found.hits, scanned(alive, query, wish))
        moment, rows = self.moment
        assert_same(searched(self.shelf, query, wish, view=moment).hits, scanned(_alive(rows), query, wish))

    @rule(query=queries, wish=wishes, seed=st.integers(0, 100))
    def search_with_extra_scores(self, query: Query, wish: Query, seed: int) -> None:
        extra = np.random.default_rng(seed).integers(0, 3, len(self.rows)) / 4
        found = searched(self.shelf, query, wish, extra=extra)
        assert_same(found.hits, scanned(_alive(self.rows), query, wish, extra))

    @rule(many=st.lists(queries, max_size=4), wish=wishes)
    def search_many(self, many: list[Query], wish: Query) -> None:
        found = searched_many(self.shelf, many, wish)
        assert [told(one.hits) for one in found] == [told(searched(self.shelf, query, wish).hits) for query in many]

    @rule(data=st.data(), query=queries, wish=wishes)
    def search_as_of(self, data: st.DataObject, query: Query, wish: Query) -> None:
        if self.pasts:
            at, rows = data.draw(st.sampled_from(self.pasts))
            stale = self.shelf.stale_rows(at)
            moment = self.shelf.view_at(at, _past([rows[place] for place in stale]))
            assert_same(searched(self.shelf, query, wish, view=moment).hits, scanned(_alive(rows), query, wish))

    @rule(vector=vectors, wish=wishes)
    def nearest(self, vector: list[float], wish: Query) -> None:
        plain = Ranking(cosine=1.0)
        cosine = Query(now_ns=wish.now_ns, top_k=wish.top_k, ranking=plain, filter=wish.filter)
        found = near(self.shelf, vector, wish)
        assert found.exact
        assert_same(found.hits, scanned(_alive(self.rows), ask(vector), cosine))


def _alive(rows: list[Plain]) -> list[Plain]:
    return [row for row in rows if row.died is None]


def _past(rows: list[Plain]) -> PastValues:
    return PastValues(
        np.array([row.place for row in rows], np.intp),
        [row.importance for row in rows],
        [row.accessed_ns for row in rows],
        [row.status for row in rows],
    )


TestShelfMachine = ShelfMachine.TestCase
TestShelfMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def added(shelf: VectorTable, seq: int, vector: object, **options: object) -> int:
    given: dict[str, object] = {"category": "fact", "importance": 0.5, "accessed_ns": BEGIN_NS, **options}
    return shelf.add(seq, vector, **given)  # type: ignore[arg-type]


def test_the_formula_of_the_seed_by_hand() -> None:
    shelf = VectorTable(2, MODEL)
    added(shelf, 7, [3.0, 4.0], keywords=("pnpm", "node"), importance=0.9, accessed_ns=BEGIN_NS - 10 * DAY_NS)
    (hit,) = searched(shelf, ask([1.0, 0.0], ["pnpm", "yarn", "npm"]), WISH).hits
    assert (hit.row, hit.seq) == (0, 7)
    assert hit.cosine == pytest.approx(0.6)
    assert hit.keywords == pytest.approx(1 / 4)
    assert hit.importance == 0.9
    assert hit.recency == pytest.approx(1 / 2)
    assert hit.score == pytest.approx(0.40 * 0.6 + 0.25 / 4 + 0.20 * 0.9 + 0.15 / 2)


def test_ties_go_to_the_higher_importance_and_then_to_the_lower_seq() -> None:
    shelf = VectorTable(2, MODEL)
    for seq in range(1, 60):
        added(shelf, seq, [1.0, 1.0], importance=0.25)
    for seq in range(60, 120):
        added(shelf, seq, [1.0, 1.0], importance=0.75)
    balanced = Ranking(cosine=1.0)
    found = searched(shelf, ask([2.0, 2.0]), Query(now_ns=BEGIN_NS, top_k=62, ranking=balanced))
    assert [hit.seq for hit in found.hits] == [*range(60, 120), 1, 2]


def test_rows_of_the_future_count_as_accessed_now() -> None:
    shelf = VectorTable(2, MODEL)
    added(shelf, 1, [1.0, 0.0], accessed_ns=BEGIN_NS + 50 * DAY_NS)
    added(shelf, 2, [1.0, 0.0], accessed_ns=BEGIN_NS)
    for fading in ("hyperbolic", "exponential"):
        hits = searched(
            shelf,
            ask(None),
            Query(now_ns=BEGIN_NS, ranking=msgspec.structs.replace(RANKINGS["seed"], recency_curve=fading)),
        ).hits
        assert [hit.recency for hit in hits] == [1.0, 1.0]


def test_a_shelf_without_rows_finds_nothing() -> None:
    shelf = VectorTable(2, MODEL)
    assert searched(shelf, ask([1.0, 0.0], ["word"]), WISH).hits == ()
    assert near(shelf, [1.0, 0.0], WISH).hits == ()
    assert searched_many(shelf, [ask([1.0, 0.0])], WISH)[0].hits == ()
    assert shelf.view_at(5).count == 0
    assert shelf.graph_to_bytes(0) is None


def test_many_keywords_are_counted_like_few() -> None:
    shelf = VectorTable(2, MODEL)
    words = [f"term{place}" for place in range(700)]
    sizes = [0, 3, 255, 256, 700]
    for seq, size in enumerate(sizes, 1):
        added(shelf, seq, [1.0, 0.0], keywords=words[:size])
    overlap = Ranking(keywords=1.0)
    for asked in (3, 255, 300, 700):
        hits = searched(shelf, ask(None, words[:asked]), Query(now_ns=BEGIN_NS, ranking=overlap)).hits
        expected = {seq: min(size, asked) / max(size, asked) for seq, size in enumerate(sizes, 1)}
        assert {hit.seq: hit.keywords for hit in hits} == pytest.approx(expected)


def test_common_keywords_go_on_being_counted_while_rows_come() -> None:
    shelf = VectorTable(2, MODEL)
    overlap = Query(now_ns=BEGIN_NS, top_k=300, ranking=Ranking(keywords=1.0))
    for seq in range(1, 200):
        added(shelf, seq, [1.0, 0.0], keywords=["every", f"third{seq % 3}"])
        if seq % 7 == 0:
            hits = searched(shelf, ask(None, ["every", "third0"]), overlap).hits
            assert {hit.seq: hit.keywords for hit in hits} == {
                place: 1.0 if place % 3 == 0 else pytest.approx(1 / 3) for place in range(1, seq + 1)
            }


@pytest.mark.parametrize(
    ("vector", "error", "words"),
    [
        ([0.0, 0.0], InvalidInput, "is zero"),
        ([float("nan"), 1.0], InvalidInput, "not finite"),
        ([float("inf"), 1.0], InvalidInput, "not finite"),
        ([1e39, 1.0], InvalidInput, "not finite"),
        ([1.0, 2.0, 3.0], EmbeddingMismatch, "3 numbers where rows have 2"),
        (b"12345", EmbeddingMismatch, "5 bytes"),
        (b"", EmbeddingMismatch, "0 bytes"),
        ("text", InvalidInput, "cannot be read"),
        ([[1.0, 0.0], [0.0, 1.0]], InvalidInput, "2 vectors where 1"),
        (np.zeros((1, 1, 2)), EmbeddingMismatch, "embedder"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_what_is_no_vector_is_refused_and_changes_nothing(vector: object, error: type[Exception], words: str) -> None:
    shelf = VectorTable(2, MODEL)
    added(shelf, 1, [1.0, 0.0])
    calls: list[Callable[[], object]] = [
        lambda: added(shelf, 2, vector),
        lambda: searched(shelf, ask(vector), WISH),
        lambda: near(shelf, vector, WISH),
        lambda: searched_many(shelf, [ask(vector)], WISH),
    ]
    for call in calls:
        with pytest.raises(error, match=words):
            call()
    assert [hit.seq for hit in searched(shelf, ask([1.0, 0.0]), WISH).hits] == [1]
    assert len(shelf) == 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_there_are_as_many_vectors_as_were_asked_for(count: int) -> None:
    vectors = np.ones((count, DIMENSIONS), np.float32)
    for given in (vectors, vectors.tobytes()):
        assert columns.normalise(given, DIMENSIONS, count=count).shape == (count, DIMENSIONS)
        for wanted in {0, 1, 2, 3} - {count}:
            with pytest.raises(InvalidInput, match=f"^{count} vectors where {wanted} "):
                columns.normalise(given, DIMENSIONS, count=wanted)


def test_a_subnormal_vector_has_a_direction() -> None:
    shelf = VectorTable(2, MODEL)
    added(shelf, 1, [1e-42, 0.0])
    (hit,) = near(shelf, [3e38, 3e38], WISH).hits
    assert hit.cosine == pytest.approx(0.5**0.5)


def test_what_cannot_be_a_row_is_refused() -> None:
    shelf = VectorTable(2, MODEL)
    added(shelf, 5, [1.0, 0.0])
    with pytest.raises(InvalidInput, match="order of their seqs"):
        added(shelf, 4, [1.0, 0.0])
    given = {"categories": ["fact"], "importance": 0.5, "accessed_ns": BEGIN_NS}
    with pytest.raises(InvalidInput, match="order of seqs"):
        shelf.extend([7, 6], np.eye(2), **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="column of 3 values for 2 rows"):
        shelf.extend([6, 7, 8], np.eye(2), **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="1 lists of keywords"):
        shelf.extend([6, 7], np.eye(2), keywords=[["one"]], **given)  # type: ignore[arg-type]
    for place in range(254):
        shelf.change(6, [0], status=f"status {place}")
    with pytest.raises(InvalidInput, match="one more than 255"):
        shelf.change(6, [0], status="another")
    assert len(shelf) == 1
    for dimensions in (0, 10_000):
        with pytest.raises(InvalidInput, match="VECTOR_DIMENSIONS_MAX"):
            VectorTable(dimensions, MODEL)


def test_what_cannot_be_a_score_is_refused() -> None:
    shelf = VectorTable(2, MODEL)
    added(shelf, 5, [1.0, 0.0])
    for extra in ([float("nan")], [1.0, 2.0]):
        with pytest.raises(InvalidInput, match="finite number for each of the 1 rows"):
            searched(shelf, ask([1.0, 0.0]), WISH, extra=extra)
    with pytest.raises(InvalidInput, match="top_k is -1"):
        searched(shelf, ask([1.0, 0.0]), Query(now_ns=BEGIN_NS, top_k=-1))


def test_a_moment_wants_to_know_what_changed_since() -> None:
    shelf = VectorTable(2, MODEL)
    added(shelf, 1, [1.0, 0.0], importance=0.5)
    added(shelf, 2, [1.0, 0.0], importance=0.5)
    shelf.change(3, [1], importance=0.1)
    assert shelf.stale_rows(2).tolist() == [1]
    assert shelf.stale_rows(3).tolist() == []
    assert shelf.stale_rows(1).tolist() == []
    with pytest.raises(InvalidInput, match=r"row 1 and 0 more were changed after seq 2"):
        shelf.view_at(2)
    then = shelf.view_at(2, PastValues([1], [0.5], [BEGIN_NS], ["active"]))
    assert [hit.importance for hit in searched(shelf, ask(None), WISH, view=then).hits] == [0.5, 0.5]


def test_scores_are_the_same_alone_and_among_many() -> None:
    """However a row is found: in another matrix, among other candidates, with other queries."""
    shelf, alone = VectorTable(64, MODEL), VectorTable(64, MODEL)
    rows = filled(shelf, 3_000, 11)
    query = ask(rows[17].vector + rows[90].vector, WORDS[:3])
    wish = Query(now_ns=BEGIN_NS, top_k=40)
    found = searched(shelf, query, wish).hits
    best = sorted(hit.row for hit in found)
    put(alone, [rows[place] for place in best])
    again = searched(alone, query, wish).hits
    assert [(hit.seq, hit.score, hit.cosine) for hit in again] == [(hit.seq, hit.score, hit.cosine) for hit in found]
    others = [ask(row.vector) for row in rows[:30]]
    assert searched_many(shelf, [*others, query], wish)[-1] == searched(shelf, query, wish)


@pytest.mark.parametrize("category", [None, *CATEGORIES])
def test_large_shelves_are_scanned_like_small_ones(category: str | None) -> None:
    """Rows enough for gathered products, listed rows and partitions."""
    shelf = VectorTable(16, MODEL)
    rows = filled(shelf, 4_000, 5)
    rare = [replace(row, category="rare", place=4_000 + row.place, seq=5_000) for row in rows[:50]]
    put(shelf, rare)
    rows.extend(rare)
    places = range(0, 4_000, 9)
    shelf.remove(6_000, list(places))
    gone(rows, places, 6_000)
    filters = Filter(categories=None if category is None else (category, "rare"), min_importance=0.1)
    for top_k in (1, 10, 500):
        wish = Query(now_ns=BEGIN_NS, top_k=top_k, filter=filters)
        query = ask(rows[3].vector, WORDS[2:5])
        assert_same(searched(shelf, query, wish).hits, scanned(_alive(rows), query, wish))
    listed = Filter(rows=np.arange(100, 200))
    wish = Query(now_ns=BEGIN_NS, filter=listed)
    assert_same(searched(shelf, query, wish).hits, scanned(_alive(rows), query, wish))


def test_the_stored_vector_has_length_one_whichever_way_it_came() -> None:
    one, many = VectorTable(48, MODEL), VectorTable(48, MODEL)
    rows = filled(many, 200, 3)
    for row in rows:
        added(one, row.seq, row.vector)
    assert np.array_equal(one.view().columns.matrix, many.view().columns.matrix)
    assert np.array_equal(one.view().columns.matrix, np.array([unit(row.vector) for row in rows]))


def test_a_row_after_many_copies_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit would wait for that."""
    monkeypatch.setattr(columns, "LARGE_COLUMN_BYTES", 0)
    shelf = VectorTable(8, MODEL)
    filled(shelf, 1_000, 5)
    matrix = shelf.view().columns.matrix
    filled(shelf, 900, 6, first_seq=2_000)
    assert np.shares_memory(shelf.view().columns.matrix, matrix)
    shelf.change(9_000, [3], importance=0.1)
    assert np.shares_memory(shelf.view().columns.matrix, matrix)
