"""The index of terms, kept row by row: always equal to one built anew, and to the formulas."""

from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.index.ranking import Query, Ranking
from refold.index.signals import RowText, TextIndex
from tests.index import formulas

ALL: Any = dict.fromkeys(("keywords", "bm25", "idf_cosine", "coverage", "question", "importance", "recency"), 1.0)
RANKINGS = [
    Ranking(**ALL),
    Ranking(**ALL, stemmer="light", recency_curve="exponential", neighbours=(1.0, 0.3), gate_terms=5, pivot_terms=3),
    Ranking(**ALL, stemmer="none", neighbours=(), damping=0, bm25_saturation=1.2, bm25_length=1.0, question_terms=4),
    Ranking(**ALL, irregular=True),
]
WORDS = ["tea", "teas", "Ada", "go", "went", "the", "green", "\u732b\u304c\u597d\u304d", "\u0447\u0430\u0439", "2024"]

texts = st.builds(
    lambda words, ends: "".join(f"{word}{end}" for word, end in zip(words, ends, strict=False)),
    st.lists(st.sampled_from(WORDS), max_size=9),
    st.lists(st.sampled_from([" ", "? ", ". ", " "]), min_size=9, max_size=9),
)
memories = st.builds(
    formulas.Memory,
    text=texts,
    keywords=st.lists(st.sampled_from(WORDS), max_size=4).map(tuple),
    importance=st.sampled_from([0.0, 0.25, 1.0]),
    accessed_ns=st.integers(0, 40).map(lambda days: days * formulas.DAY_NS // 3),
    session=st.sampled_from([None, "a", "b"]),
    occurred_ns=st.sampled_from([None, 0, 1_715_000_000 * 10**9]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), memories),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("change"), st.integers(0, 30), memories),
        st.tuples(st.just("score"), st.sampled_from(RANKINGS)),
    ),
    max_size=25,
)


def put(texts: TextIndex, row: int, memory: formulas.Memory) -> None:
    texts.add(
        row,
        RowText(memory.text, memory.session, memory.occurred_ns),
        keywords=memory.keywords,
        importance=memory.importance,
        accessed_ns=memory.accessed_ns,
    )


def rebuilt(rows: formulas.Rows, size: int) -> TextIndex:
    """Texts of the same rows, made in one go; a row that is gone leaves a number behind."""
    texts = TextIndex()
    filler = formulas.Memory("filler", ("filler",), 0, 0, "filler", 0)
    for row in range(size):
        put(texts, row, rows.get(row, filler))
        if row not in rows:
            texts.remove(row)
    return texts


@settings(deadline=None)
@given(steps=steps, query=texts, given=st.lists(st.sampled_from(WORDS), max_size=3).map(tuple), days=st.integers(0, 30))
def test_an_index_kept_row_by_row_equals_one_built_anew_and_the_formulas(
    steps: list[Any], query: str, given: tuple[str, ...], days: int
) -> None:
    texts = TextIndex()
    rows: formulas.Rows = {}
    size = 0
    asked = Query(text=query, words=given, now_ns=days * formulas.DAY_NS)
    for kind, *arguments in steps:
        live = sorted(rows)
        if kind == "add":
            put(texts, size, arguments[0])
            rows[size] = arguments[0]
            size += 1
        elif kind == "score":
            texts.score(msgspec.structs.replace(asked, ranking=arguments[0]))
        elif live:
            row = live[arguments[0] % len(live)]
            texts.remove(row)
            del rows[row]
            if kind == "change":
                put(texts, row, arguments[1])
                rows[row] = arguments[1]
    assert (len(texts), texts.size) == (len(rows), size)
    assert texts.live_rows().tolist() == sorted(rows)
    for ranking in RANKINGS:
        total, parts = texts.score(msgspec.structs.replace(asked, ranking=ranking))
        other_total, other_parts = rebuilt(rows, size).score(msgspec.structs.replace(asked, ranking=ranking))
        live = sorted(rows)
        assert total[live].tolist() == other_total[live].tolist()
        assert {name: part[live].tolist() for name, part in parts.items()} == {
            name: part[live].tolist() for name, part in other_parts.items()
        }
        for row in live:
            expected = formulas.signals(rows, row, query, given, ranking=ranking, now_ns=days * formulas.DAY_NS)
            assert {name: float(part[row]) for name, part in parts.items()} == pytest.approx(expected, abs=1e-5)
            assert float(total[row]) == pytest.approx(sum(expected.values()), abs=1e-5)


def test_a_row_in_the_midst_of_a_session_leaves_its_neighbours_side_by_side() -> None:
    ranking = Ranking(coverage=1.0, neighbours=(0.8,), gate_terms=0, damping=0)
    texts = TextIndex()
    for row, text in enumerate(["alpha", "beta", "gamma"]):
        put(texts, row, formulas.Memory(text, (), 0, 0, "s", None))
    assert texts.score(Query(text="alpha", ranking=ranking))[0].tolist() == pytest.approx([1, 0.8, 0])
    texts.remove(1)
    assert texts.score(Query(text="alpha", ranking=ranking))[0][[0, 2]].tolist() == pytest.approx([1, 0.8])
    put(texts, 1, formulas.Memory("delta", (), 0, 0, "s", None))
    assert texts.score(Query(text="alpha", ranking=ranking))[0].tolist() == pytest.approx([1, 0.8, 0])
    assert texts.score(Query(text="gamma", ranking=ranking))[0].tolist() == pytest.approx([0, 0.8, 1])
    assert texts.score(Query(text="delta", ranking=ranking))[0].tolist() == pytest.approx([0.8, 1, 0.8])


def test_a_hundred_thousand_words_in_one_text_are_one_row() -> None:
    texts = TextIndex()
    put(texts, 0, formulas.Memory("tea " * 100_000, (), 0, 0, None, None))
    put(texts, 1, formulas.Memory("tea", (), 0, 0, None, None))
    total, parts = texts.score(Query(text="tea", ranking=Ranking(coverage=1.0, bm25=1.0)))
    assert parts["coverage"][0] < 0.01 < parts["coverage"][1]
    assert numpy.isfinite(total).all()


def test_the_nearest_neighbour_counts_where_several_have_a_term() -> None:
    ranking = Ranking(coverage=1.0, neighbours=(0.8, 0.5), gate_terms=0, damping=0)
    texts = TextIndex()
    for row, text in enumerate(["tea", "yes", "no", "tea"]):
        put(texts, row, formulas.Memory(text, (), 0, 0, "s", None))
    assert texts.score(Query(text="tea", ranking=ranking))[0].tolist() == pytest.approx([1, 0.8, 0.8, 1])
