"""What `refold bench` is given: files and stores that are broken, strange or large, and labels that cannot be."""

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from refold import InvalidInput, Memory
from refold.embedders import HashedEmbedder
from refold.errors import NotFound
from refold.evaluation import eviction, retrieval
from refold.evaluation.cases import Case, CaseQuestion, Item, cases_of, make_case
from refold.evaluation.eviction import POLICIES, Need, Piece, Trace, bounds, replay
from refold.evaluation.retrieval import (
    BASELINES,
    COMBINATIONS_MAX,
    SYSTEMS,
    answers,
    embed_cases,
    figures,
    grid_of,
    load_vectors,
    sweep_rankings,
)
from refold.index.ranking import RANKINGS
from tests.evaluation.test_eviction import traces
from tests.evaluation.test_retrieval import SAID, locomo, longmemeval
from tests.support.command import Run, running

numpy = pytest.importorskip("numpy")

NAMED = {system.name: system for system in SYSTEMS}
FIFO = POLICIES[0]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store") as memory:
        for text in SAID:
            memory.conversation("chat").append("user", text)
    return tmp_path / "store"


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""
    monkeypatch.delenv("REFOLD_DB", raising=False)
    return running(monkeypatch, capfd)


# Files of queries.


@pytest.mark.parametrize("text", [b"", b"\n \n", b'{"query": "\xff", "seqs": [2]}', b'{"query": ' + b"[" * 100_000])
def test_a_file_of_queries_that_has_none_or_cannot_be_read_is_refused_by_name(store: Path, text: bytes) -> None:
    queries = store.parent / "queries.jsonl"
    queries.write_bytes(text)
    with pytest.raises(InvalidInput, match=r"queries\.jsonl"):
        cases_of(store, queries)


def test_queries_ask_for_the_memories_of_a_project_too(store: Path, refold: Run) -> None:
    with Memory(store) as memory:
        project = memory.project("home")
        added = [
            project.add(text, importance=part, keywords=["cat"])
            for text, part in zip(SAID, (0.1, 0.9, 0.5, 0.5), strict=True)
        ]
        gone = memory.project("other").add("Gone")
        memory.project("other").delete(gone.id)
    queries = store.parent / "queries.jsonl"
    lines = [
        {"query": "cat", "ids": [added[0].id]},
        {"query": "cat", "ids": [added[1].id, added[3].id], "project": "home"},
    ]
    queries.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (case,) = cases_of(store, queries)
    assert (case.origin, case.name, [set(question.evidence) for question in case.questions]) == (
        "memories",
        "home",
        [{0}, {1, 3}],
    )
    with Memory(store, readonly=True) as memory:
        hits = memory.project("home").search("cat", ranking=BASELINES["bm25"], top_k=9, min_importance=0, now=0)
        order = [hit.entry.id for hit in hits]
    found = answers(embed_cases([case], HashedEmbedder()), NAMED["bm25"])
    assert [sorted(answer.ranks) for answer in found] == [
        [order.index(added[0].id) + 1],
        sorted(order.index(added[place].id) + 1 for place in (1, 3)),
    ]
    refused = refold("bench", "eviction", "--data", store, "--queries", queries)
    assert (refused.code, "which no window holds" in refused.err) == (1, True)
    for wrong in (
        {"query": "x", "ids": [gone.id]},
        {"query": "x", "ids": [added[0].id], "project": "other"},
        {"query": "x", "ids": [added[0].id], "at": 3},
    ):
        queries.write_text(json.dumps(wrong), encoding="utf-8")
        with pytest.raises(InvalidInput, match=r"queries\.jsonl, line 1"):
            cases_of(store, queries)


# LongMemEval.


def change(path: Path, **fields: Any) -> Path:
    (entry,) = json.loads(longmemeval(path).read_text(encoding="utf-8"))
    changed = {key: value for key, value in (entry | fields).items() if value is not ...}
    path.write_text(json.dumps([changed]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "fields",
    [
        {"haystack_dates": ...},
        {"haystack_session_ids": ...},
        {"haystack_dates": ["2023/07/12 (Wed) 10:14"]},
        {"haystack_dates": ["yesterday", "today"]},
        {"haystack_dates": [1, 2]},
        {"haystack_sessions": [["Hello"], []]},
        {"haystack_sessions": [[{"content": "Hello"}], []]},
        {"haystack_sessions": 5},
    ],
)
def test_a_haystack_of_another_form_is_refused_by_name(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"own\.json"):
        cases_of(change(tmp_path / "own.json", **fields))


def test_a_file_that_only_mentions_haystacks_is_refused(tmp_path: Path) -> None:
    for text in ('["haystack_sessions"]', '{"haystack_sessions": []}', "5"):
        (tmp_path / "own.json").write_text(text, encoding="utf-8")
        with pytest.raises(InvalidInput):
            cases_of(tmp_path / "own.json")


@pytest.mark.parametrize("cited", [..., 5, None, [["one"], ["two"]], [{"one": 1}, "two"]])
def test_a_haystack_without_labels_that_can_be_read_has_no_evidence_or_some(tmp_path: Path, cited: Any) -> None:
    (case,) = cases_of(change(tmp_path / "own.json", answer_session_ids=cited))
    assert len(case.items) == len(SAID)
    assert all(question.evidence <= {0, 1} for question in case.questions)


@pytest.mark.parametrize("made", [locomo, longmemeval])
def test_reading_tells_how_far_it_is(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    told: list[tuple[int, int]] = []
    cases_of(made(tmp_path / "own.json"), progress=lambda done, whole: told.append((done, whole)))
    assert told
    assert told[-1][0] == told[-1][1] > 0


# What a store's own messages say of themselves.


@pytest.mark.parametrize(
    "source",
    [
        {"qa": [{"question": 1, "evidence": 5}]},
        {"qa": [{"question": "x", "evidence": [{"a": ["D1:1"]}]}]},
        {"questions": ["a", "b"], "answer_session_ids": [["x"]]},
        {"questions": ["a"], "answer_session_ids": [5]},
        {"questions": ["a"], "answer_session_ids": [None]},
        {"questions": ["a"], "answer_session_ids": [[["x"], {}]]},
        {"questions": [{"question": "x", "source_chat_ids": {"a": [[1]]}}]},
    ],
)
def test_metadata_that_looks_like_labels_stops_nothing(store: Path, source: dict[str, Any]) -> None:
    with Memory(store) as memory:
        memory.conversation("strange").append("user", "Hello", metadata={"source": source})
    assert sum(len(case.items) for case in cases_of(store)) == len(SAID) + 1


@pytest.mark.parametrize("arguments", ["[" * 5_000, "[" * 800 + '"user_77"' + "]" * 800])
def test_arguments_of_any_depth_are_looked_through(store: Path, arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": arguments}}
    with Memory(store) as memory:
        memory.conversation("chat").append("user", "I am user_77.")
        memory.conversation("chat").append("assistant", None, tool_calls=[call])
    (case,) = cases_of(store)
    found = [set(question.evidence) for question in case.questions]
    assert found == ([{len(SAID)}] if "user_77" in arguments else [])


@given(some.lists(some.tuples(some.booleans(), some.sampled_from(("id-10", "id-20", "id-3"))), max_size=12))
@settings(deadline=None)
def test_a_call_needs_the_last_that_said_a_value(said: list[tuple[bool, str]]) -> None:
    items = tuple(
        Item(place, str(place), f'["{word}"]', 1, "assistant" if is_call else "user", ("c",) if is_call else ())
        for place, (is_call, word) in enumerate(said)
    )
    expected = {
        place: {max(earlier for earlier in range(place) if said[earlier][1] == word)}
        for place, (is_call, word) in enumerate(said)
        if is_call and word in [other for _, other in said[:place]]
    }
    found = {question.arrived: set(question.evidence) for question in make_case("own", items, {}).questions}
    assert found == {place: each for place, each in expected.items() if len(said[place][1]) >= 5}


# Vectors of a folder.


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows[:, :-1],
        lambda rows: rows * numpy.nan,
        lambda rows: rows * numpy.inf,
        lambda rows: rows.astype(str),
        lambda rows: rows + 1j,
        lambda rows: rows.astype(object),
        lambda rows: rows.astype(numpy.float64) * 1e300,
    ],
)
def test_vectors_that_cannot_be_compared_are_refused(tmp_path: Path, spoil: Callable[[Any], Any]) -> None:
    """What is no number would stand first in every order: nothing is above it."""
    (each,) = embed_cases(cases_of(locomo(tmp_path / "own.json")), HashedEmbedder())
    numpy.save(tmp_path / "questions.npy", each.questions)
    numpy.save(tmp_path / "turns.npy", spoil(each.items + 1), allow_pickle=True)
    with pytest.raises(InvalidInput, match="give"):
        load_vectors([each.case], tmp_path)


@pytest.mark.parametrize("blob", [b"", b"no array", b"\x93NUMPY", b"PK\x03\x04"])
def test_a_file_that_is_no_array_is_refused_by_name(tmp_path: Path, blob: bytes) -> None:
    (each,) = embed_cases(cases_of(locomo(tmp_path / "own.json")), HashedEmbedder())
    numpy.save(tmp_path / "questions.npy", each.questions)
    (tmp_path / "turns.npy").write_bytes(blob)
    with pytest.raises((InvalidInput, NotFound), match=r"turns\.npy"):
        load_vectors([each.case], tmp_path)


# What is found.


@pytest.mark.parametrize("name", sorted(NAMED))
def test_what_comes_after_a_question_changes_no_rank(name: str) -> None:
    said = ("a red tea cup", "a green tea pot", "a cup of coffee", "the tea is cold", "red red tea cup tea", "tea?")
    items = tuple(
        Item(place, str(place), text, 3, "user", session="s", accessed_ns=place * 10**15, occurred_ns=place * 10**15)
        for place, text in enumerate(said)
    )
    question = CaseQuestion("Where is the red tea cup?", "all", frozenset({1, 3}), 4)
    whole, cut = (
        embed_cases([Case("own", "chat", items[:count], (question,))], HashedEmbedder()) for count in (len(items), 4)
    )
    assert answers(whole, NAMED[name]) == answers(cut, NAMED[name])
    grid = grid_of(NAMED[name].ranking, {"importance": (0.0, 0.3)})
    assert sweep_rankings(whole, grid) == sweep_rankings(cut, grid)


def test_a_sweep_takes_texts_as_the_ranking_does_that_it_varies(tmp_path: Path) -> None:
    cases = embed_cases(cases_of(locomo(tmp_path / "own.json")), HashedEmbedder())
    system = NAMED["seed, stemmed"]
    (same,) = sweep_rankings(cases, grid_of(system.ranking, {"cosine": (system.ranking.cosine,)}), system=system)
    assert same == figures(same.system, answers(cases, system))[0]


def test_a_field_cannot_be_swept_twice(refold: Run, tmp_path: Path) -> None:
    given = ("--data", locomo(tmp_path / "own.json"), "--sweep", "cosine=0.1", "--sweep", "cosine=0.9")
    ended = refold("bench", "retrieval", *given)
    assert (ended.code, "given twice for cosine" in ended.err) == (1, True)


def test_a_sweep_counts_every_setting_once_and_has_an_end() -> None:
    assert len(grid_of(RANKINGS["hybrid"], {"cosine": (0.1, 0.1, 0.2)})) == 2
    many = tuple(place / 1_000 for place in range(200))
    with pytest.raises(InvalidInput, match=f"{COMBINATIONS_MAX:,}"):
        grid_of(RANKINGS["hybrid"], {"cosine": many, "coverage": many})


# Bounds: of room, and of what can be kept.


def test_an_interval_is_the_same_whatever_is_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [place % 7 / 6 for place in range(301)]
    expected = retrieval.interval(values)
    monkeypatch.setattr(retrieval, "_DRAWN_AT_ONCE", 1_000)
    assert retrieval.interval(values) == expected


def test_a_long_list_takes_no_more_room_than_a_short_one() -> None:
    import tracemalloc

    tracemalloc.start()
    try:
        retrieval.interval([0.0, 1.0] * 10_000)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024**2


def test_a_search_gives_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    items = tuple(Item(place, str(place), f"The cat said word{place}.", 3, "user") for place in range(900))
    case = Case("own", "chat", items, (CaseQuestion("What did the cat say about word2?", "all", frozenset({0}), 900),))
    monkeypatch.setattr(eviction, "RANKED_MAX", 60)
    (need,) = eviction.trace_of(case).needs
    assert need.ranked[0] == 2
    assert len(need.ranked) <= 60


_TWICE = (Piece(0, role="assistant", call_ids=("a",)), Piece(1), Piece(0, role="tool", answers="a"))


@given(traces(), some.integers(1, 120))
@example(Trace("the id of a call that left, used again", (*_TWICE, Piece(1, role="assistant", call_ids=("a",))), ()), 1)
@settings(deadline=None)
def test_a_window_is_broken_when_an_answer_stands_in_it_without_its_call(trace: Trace, budget: int) -> None:
    """The plain policy by hand: a list that gives up its oldest."""
    live: list[Piece] = []
    broken = 0
    for piece in trace.pieces:
        live.append(piece)
        while sum(each.tokens for each in live) > budget:
            live.pop(0)
        broken += any(_is_orphan(live, place) for place in range(len(live)))
    assert replay(trace, FIFO, budget).broken == broken


def _is_orphan(live: list[Piece], place: int) -> bool:
    answers = live[place].answers
    return answers is not None and not any(answers in each.call_ids for each in live[:place])


@some.composite
def small(draw: some.DrawFn) -> Trace:
    arriving = tuple(Piece(draw(some.integers(0, 9))) for _ in range(draw(some.integers(1, 7))))
    places = some.integers(0, len(arriving) - 1)
    evidence = some.frozensets(places, min_size=1, max_size=3)
    return Trace(
        "small", arriving, tuple(Need(len(arriving), draw(evidence)) for _ in range(draw(some.integers(1, 4))))
    )


@given(small(), some.integers(1, 30))
@settings(deadline=None, max_examples=200)
def test_no_choice_of_messages_beats_the_bounds_and_they_are_reached_where_messages_can_be_cut(
    trace: Trace, budget: int
) -> None:
    """Every set of messages that fits is tried, for all needs at once and for each alone."""
    places = range(len(trace.pieces))
    fitting = [
        set(chosen)
        for count in range(len(places) + 1)
        for chosen in combinations(places, count)
        if sum(trace.pieces[place].tokens for place in chosen) <= budget
    ]
    parts = [[len(need.evidence & kept) / len(need.evidence) for need in trace.needs] for kept in fitting]
    found = bounds(trace, budget)
    best_together = max(map(sum, parts))
    best_alone = [max(part[place] for part in parts) for place in range(len(trace.needs))]
    assert best_together <= sum(found["clairvoyant"]) + 1e-9
    assert all(one <= bound + 1e-9 for one, bound in zip(best_alone, found["clairvoyant-recall"], strict=True))
    # One message more than fits is all that a bound may be above what can be reached.
    largest = max(piece.tokens for piece in trace.pieces)
    more = bounds(trace, max(budget - largest, 0))
    assert sum(more["clairvoyant"]) <= best_together + 1e-9
