"""What `refold bench` measures: labels of every source, figures by hand, and the command itself."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from refold import InvalidInput, Memory, NotFound
from refold.cli import bench
from refold.embedders import HashedEmbedder
from refold.evaluation.cases import MEMORIES, Case, CaseQuestion, Item, cases_of, conversations
from refold.evaluation.eviction import BUDGETS, POLICIES, evictions, trace_of
from refold.evaluation.retrieval import (
    EMBEDDERS,
    SYSTEMS,
    Answer,
    EmbeddedCase,
    answers,
    embed_cases,
    figures,
    grid_of,
    interval,
    load_vectors,
    questions_of,
    ranks,
    sweep_rankings,
)
from refold.index.ranking import RANKINGS
from tests.support.command import Run, running
from tests.support.paths import DATA

numpy = pytest.importorskip("numpy")

LEXICAL = next(system for system in SYSTEMS if system.name == "lexical")
SAID = ("My cat is called Ranga.", "What a nice name!", "I moved to Oslo in May.", "How is the weather there?")


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""
    monkeypatch.delenv("REFOLD_DB", raising=False)
    return running(monkeypatch, capfd)


def locomo(path: Path) -> Path:
    """A sample in LoCoMo's form, of our own words."""
    turns = [
        {"speaker": ("Ada", "Bo")[place % 2], "dia_id": f"D1:{place + 1}", "text": text}
        for place, text in enumerate(SAID)
    ]
    asked = [
        {"question": "What is the cat called?", "evidence": ["D1:1"], "category": 4},
        {"question": "Where did Ada move, and what did Bo ask?", "evidence": ["D1:03; D1:4"], "category": 1},
        {"question": "What is the dog called?", "evidence": ["D1:1"], "category": 5},
        {"question": "Who is lost?", "evidence": ["D7:1"], "category": 3},
    ]
    talk = {"speaker_a": "Ada", "speaker_b": "Bo", "session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    path.write_text(json.dumps([{"sample_id": "own-1", "conversation": talk, "qa": asked}]), encoding="utf-8")
    return path


def beam(path: Path) -> Path:
    messages = [
        {"id": str(place), "role": ("user", "assistant")[place % 2], "batch": "1", "time_anchor": None, "content": text}
        for place, text in enumerate(SAID)
    ]
    asked = [
        {"type": "abstention", "question": "Who?"},
        {"type": "recall", "question": "Where is home?", "source_chat_ids": {"one": [2], "two": [[0]]}},
    ]
    path.write_text(json.dumps({"id": "1", "messages": messages, "questions": asked}) + "\n", encoding="utf-8")
    return path


def longmemeval(path: Path) -> Path:
    turns = [{"role": "user", "content": text} for text in SAID]
    entry = {
        "question_id": "q",
        "question_type": "update",
        "question": "What is the cat called?",
        "answer_session_ids": ["one"],
        "haystack_dates": ["2023/07/12 (Wed) 10:14", "2023/08/02 (Wed) 05:58"],
        "haystack_session_ids": ["one", "two"],
        "haystack_sessions": [turns[:2], turns[2:]],
    }
    path.write_text(json.dumps([entry]), encoding="utf-8")
    return path


def tools(path: Path) -> Path:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "find", "arguments": '{"id": "user_77", "kind": "it"}'},
    }
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "I am user_77, find my order."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "order 9"},
    ]
    path.write_text(json.dumps(messages) + "\n", encoding="utf-8")
    return path


def evidence(cases: list[Case]) -> list[set[int]]:
    return [set(question.evidence) for case in cases for question in case.questions]


def test_locomo_says_its_evidence_and_adversarial_questions_have_none(tmp_path: Path) -> None:
    cases = cases_of(locomo(tmp_path / "own.json"))
    assert evidence(cases) == [{0}, {2, 3}, set(), set()]
    assert cases[0].items[0].text == "Ada: My cat is called Ranga."
    assert cases[0].items[0].occurred_ns == 1_683_554_160 * 10**9
    assert [item.session for item in cases[0].items] == ["1"] * 4


def test_beam_says_its_evidence_in_any_nest_and_times_are_drawn_out(tmp_path: Path) -> None:
    cases = cases_of(beam(tmp_path / "own.jsonl"))
    assert evidence(cases) == [set(), {0, 2}]
    assert [item.occurred_ns for item in cases[0].items] == [None] * 4
    assert cases[0].items[0].accessed_ns == 0 < cases[0].items[3].accessed_ns


def test_longmemeval_is_about_sessions(tmp_path: Path) -> None:
    cases = cases_of(longmemeval(tmp_path / "own.json"))
    assert cases[0].units == (0, 0, 1, 1)
    assert evidence(cases) == [{0}]
    found = answers(embed_cases(cases, HashedEmbedder()), LEXICAL)
    assert found == [Answer("update", (1,))]
    traces = list(map(trace_of, cases))
    assert traces[0].needs[0].evidence == {0, 1}


def test_a_call_needs_what_its_arguments_repeat(tmp_path: Path) -> None:
    cases = cases_of(tools(tmp_path / "own.jsonl"))
    question = cases[0].questions[0]
    assert (set(question.evidence), question.arrived) == ({0}, 1)
    assert question.text == "I am user_77, find my order."


def test_a_store_is_labelled_by_queries_and_is_not_written(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        said = [memory.conversation("chat").append("user", text) for text in SAID]
        head = memory.head
    lines = [{"query": "cat?", "seqs": [said[0].seq]}, {"query": "Oslo?", "ids": [said[2].id], "category": "places"}]
    queries = tmp_path / "queries.jsonl"
    queries.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    cases = cases_of(tmp_path / "store", queries)
    assert evidence(cases) == [{0}, {2}]
    assert [question.category for question in cases[0].questions] == ["all", "places"]
    with Memory(tmp_path / "store") as memory:
        assert memory.head == head


@pytest.mark.parametrize(
    ("fields", "arrived", "own"),
    [
        ({}, 3, (1,)),  # At its own message, the first one behind the evidence.
        ({"query": "Which cat?"}, 6, ()),  # Nobody asked it there.
        ({"query": "Which cat?", "at": 4}, 3, ()),
        ({"at": 7}, 6, (1, 3, 5)),
        ({"at": 5}, 4, (1, 3)),
    ],
)
def test_a_question_comes_up_where_it_was_asked(
    tmp_path: Path, fields: dict[str, Any], arrived: int, own: tuple[int, ...]
) -> None:
    texts = ("Hello.", "My cat?", "It is Ranga.", "My cat?", "Ranga.", "My cat?")
    with Memory(tmp_path / "store") as memory:
        said = [memory.conversation("chat").append("user", text) for text in texts]
    assert said[0].seq == 2
    queries = tmp_path / "queries.jsonl"
    queries.write_text(json.dumps({"query": "My cat?", "seqs": [said[2].seq], **fields}), encoding="utf-8")
    (case,) = cases_of(tmp_path / "store", queries)
    assert [(each.arrived, each.own_places) for each in case.questions] == [(arrived, own)]
    for system in SYSTEMS:
        assert len(answers(embed_cases([case], HashedEmbedder()), system)) == 1


@pytest.mark.parametrize(("asked", "name", "arrived"), [(True, "b", 3), (False, "a", 2)])
def test_a_question_that_a_fork_asked_comes_up_there(tmp_path: Path, asked: bool, name: str, arrived: int) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("a")
        fact, _ = chat.append("user", "My cat is Ranga."), chat.append("assistant", "Nice.")
        fork = chat.fork("b")
        for text in ("It rains.", "My cat?" if asked else "Dogs?", "Ranga."):
            fork.append("user", text)
    queries = tmp_path / "queries.jsonl"
    queries.write_text(json.dumps({"query": "My cat?", "seqs": [fact.seq]}), encoding="utf-8")
    (case,) = cases_of(tmp_path / "store", queries)
    assert (case.name, [each.arrived for each in case.questions]) == (name, [arrived])


@pytest.mark.parametrize("name", [None, "Ada"])
def test_a_message_that_is_the_question_does_not_compete(tmp_path: Path, name: str | None) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        said = [chat.append("user", text, name=name) for text in (*SAID, "What is my cat called?")]
    queries = tmp_path / "queries.jsonl"
    queries.write_text(json.dumps({"query": said[-1].content, "seqs": [said[0].seq]}), encoding="utf-8")
    found = answers(embed_cases(cases_of(tmp_path / "store", queries), HashedEmbedder()), LEXICAL)
    assert found == [Answer("all", (1,))]


def test_the_message_that_led_to_a_call_does_not_compete(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": "user_77"}'}}
    texts = ("I am user_77.", "Good morning.", "Find the order of the user.")
    messages: list[dict[str, Any]] = [{"role": "user", "content": text} for text in texts]
    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    (tmp_path / "own.jsonl").write_text(json.dumps(messages) + "\n", encoding="utf-8")
    (case,) = cases_of(tmp_path / "own.jsonl")
    assert [(set(each.evidence), each.own_places) for each in case.questions] == [({0}, (2,))]
    assert answers(embed_cases([case], HashedEmbedder()), LEXICAL) == [Answer("tool call", (1,))]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"query": "x", "seqs": [999]}', "no conversation holds"),
        ('{"query": "x", "ids": ["none"]}', "no conversation holds"),
        ('{"query": "x", "seqs": [2], "conversation": "other"}', "does not hold"),
        ('{"query": 3}', "line 1"),
        ('{"query": "x", "seq": [2]}', "unknown field `seq`.* the fields are query, seqs, ids, .* at$"),
        ('{"query": "x", "seqs": [2], "at": 0}', "at is 0; give a seq of the log, from 1 to 2"),
        ('{"query": "x", "seqs": [2], "at": 3}', "at is 3; give a seq of the log, from 1 to 2"),
        ('{"query": "x", "seqs": [2], "at": 1}', "at is 1, before the evidence at seq 2; give that seq or a later one"),
    ],
)
def test_a_query_without_evidence_is_refused(tmp_path: Path, line: str, words: str) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("chat").append("user", "Hello")
    (tmp_path / "queries.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises(InvalidInput, match=words):
        cases_of(tmp_path / "store", tmp_path / "queries.jsonl")


def test_nothing_at_a_path_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is nothing at"):
        cases_of(tmp_path / "none")


def test_figures_are_those_that_a_person_would_compute() -> None:
    found = [Answer("a", (1, 11)), Answer("a", (2,)), Answer("b", (30,))]
    whole, *kinds = figures("mine", found)
    assert [each.category for each in kinds] == ["a", "b"]
    assert whole.recall == pytest.approx({1: 1 / 6, 5: 0.5, 10: 0.5, 20: 2 / 3})
    assert whole.full == pytest.approx({1: 0.0, 5: 1 / 3, 10: 1 / 3, 20: 2 / 3})
    assert whole.reciprocal_rank == pytest.approx((1 + 1 / 2 + 1 / 30) / 3)
    assert whole.recall_interval.low <= whole.recall[10] <= whole.recall_interval.high
    assert len(figures("mine", found[:2])) == 1


def test_questions_without_a_category_have_one_row() -> None:
    found = [Answer("all", (1,)), Answer("all", (2,))]
    assert [each.category for each in figures("mine", found)] == ["all"]
    mixed = figures("mine", [*found, Answer("a", (3,))])
    assert [(each.category, each.questions) for each in mixed] == [("all", 3), ("a", 1)]


def test_intervals_are_seeded_and_narrow_with_more_values() -> None:
    few, many = [0.0, 1.0] * 10, [0.0, 1.0] * 1_000
    assert interval(few) == interval(few)
    thirds = [place % 3 / 7 for place in range(100)]
    assert interval(thirds) != interval(thirds, seed=1)
    assert interval(many).high - interval(many).low < (interval(few).high - interval(few).low) / 3


def test_a_sweep_finds_what_each_ranking_finds_by_itself(tmp_path: Path) -> None:
    cases = embed_cases(cases_of(locomo(tmp_path / "own.json")), HashedEmbedder())
    grid = grid_of(RANKINGS["hybrid"], {"cosine": (0.0, 0.5), "pivot_terms": (1.0, 50.0)})
    assert len(grid) == 4
    for each in sweep_rankings(cases, grid):
        ranking = next(ranking for ranking in grid if ranking.name == each.system)
        system = type(LEXICAL)(name=each.system, ranking=ranking)
        assert each == figures(each.system, answers(cases, system))[0]


@given(some.lists(some.integers(0, 3), min_size=1, max_size=20), some.data())
@settings(deadline=None, max_examples=30)
def test_a_rank_is_the_place_among_the_best(scores: list[int], data: some.DataObject) -> None:
    items = tuple(
        Item(place, str(place), "cat", 3, "user", importance=data.draw(some.sampled_from((0.1, 0.5))))
        for place in range(len(scores))
    )
    evidence = data.draw(some.frozensets(some.sampled_from(range(len(scores))), min_size=1))
    question = CaseQuestion("cat", "all", evidence, len(scores))
    vectors = numpy.zeros((len(scores), 2), dtype=numpy.float32)
    each = EmbeddedCase(Case("own", "chat", items, (question,)), vectors, vectors[:1])
    ((*_, texts),) = questions_of(each, LEXICAL)
    total = numpy.asarray(scores, dtype=numpy.float32) + numpy.float32(1e-8)
    order = [row for row, _ in texts.best(total, len(scores))]
    assert sorted(ranks(total, texts, each, question)) == sorted(order.index(row) + 1 for row in evidence)


def test_vectors_of_files_have_to_fit(tmp_path: Path) -> None:
    cases = cases_of(locomo(tmp_path / "own.json"))
    made = embed_cases(cases, HashedEmbedder())
    numpy.save(tmp_path / "turns.npy", made[0].items)
    with pytest.raises(NotFound, match="0 files"):
        load_vectors(cases, tmp_path)
    numpy.save(tmp_path / "questions.npy", made[0].questions)
    again = load_vectors(cases, tmp_path)
    assert answers(again, LEXICAL) == answers(made, LEXICAL)
    numpy.save(tmp_path / "questions.npy", made[0].questions[1:])
    with pytest.raises(InvalidInput, match="one row for each of 4 texts"):
        load_vectors(cases, tmp_path)


def test_what_is_needed_is_looked_for_among_what_was_there() -> None:
    items = tuple(Item(place, str(place), f"word{place} cat", 3, "user") for place in range(4))
    case = Case("own", "chat", items, (CaseQuestion("cat", "all", frozenset({0}), 2),))
    vectors = numpy.zeros((4, 2), dtype=numpy.float32)
    each = EmbeddedCase(case, vectors, vectors[:1])
    assert set(trace_of(case).needs[0].ranked) == {0, 1}
    assert answers([each], LEXICAL) == [Answer("all", (1,))]


def test_every_policy_and_both_bounds_are_told_for_every_budget(tmp_path: Path) -> None:
    traces = list(map(trace_of, cases_of(tools(tmp_path / "t"))))
    told = list[tuple[int, int]]()
    found = list(evictions(traces, progress=lambda done, whole: told.append((done, whole))))
    assert len(found) == len(BUDGETS) * (2 * len(POLICIES) + 2)
    assert told[-1] == (len(BUDGETS) * (len(POLICIES) + 1),) * 2
    assert {each.survival for each in found} == {1.0}
    assert {(each.survival_interval.low, each.survival_interval.high) for each in found if each.survival_interval} == {
        (1.0, 1.0)
    }
    assert all(each.append_ns for each in found if each.evicted is not None)


def test_the_choices_of_the_command_are_those_there_are() -> None:
    assert tuple(EMBEDDERS) == bench._EMBEDDERS


def test_retrieval_shows_figures_and_speaks_json(refold: Run, tmp_path: Path) -> None:
    path = locomo(tmp_path / "own.json")
    shown = refold("bench", "retrieval", "--data", path, "--ranking", "lexical", "--by-category")
    assert shown.code == 0
    assert "2 questions, 1 conversations" in shown.out
    said = refold("bench", "retrieval", "--data", path, "--json", "--depth", 3).json_lines[0]
    assert said["questions"] == 2
    assert {each["system"] for each in said["figures"]} == {system.name for system in SYSTEMS}
    assert str(tmp_path) not in json.dumps(said)


@pytest.mark.parametrize("embed", [False, True])
def test_the_search_of_messages_is_that_of_a_conversation(embed: bool) -> None:
    words = ["The port is 5432.", "Which port?", "Ports are harbours.", "The pier has a crane.", " ", "And the ship?"]
    embedder = HashedEmbedder()
    with Memory(embedder=embedder) as memory:
        chat = memory.conversation("own", embed=embed)
        for text in words:
            chat.append("user", text)
        while chat.search("port").pending:
            time.sleep(0.01)
        name, items, _, _ = next(conversations(memory))
        evidence = (frozenset({0, 3}), frozenset({4}))
        asked = [
            ("the port?", evidence[0], ()),
            ("a ship at the pier", evidence[1], ()),
            ("Which port?", evidence[0], (1,)),
        ]
        questions = tuple(CaseQuestion(text, "all", found, 6, own) for text, found, own in asked)
        embedded = embed_cases([Case("own", name, items, questions)], embedder)
        system = next(each for each in SYSTEMS if each.name == ("messages, embedded" if embed else "messages"))
        ranks_of = [sorted(answer.ranks) for answer in answers(embedded, system)]
        for (text, found, own), places in zip(asked, ranks_of, strict=True):
            order = [hit.entry.seq for hit in chat.search(text, top_k=20)]
            order = [seq for seq in order if seq not in [items[place].seq for place in own]]
            seqs = [items[place].seq for place in found]
            assert places == sorted(1 + order.index(seq) if seq in order else 1_000_000 for seq in seqs)


def test_a_search_of_messages_answers_no_questions_about_memories(refold: Run, tmp_path: Path) -> None:
    items = (Item(1, "1", "The port is 5432.", 0, "memory"),)
    case = Case(MEMORIES, "own", items, (CaseQuestion("the port", "all", frozenset({0}), 1),))
    system = next(each for each in SYSTEMS if each.name == "messages")
    assert answers(embed_cases([case], HashedEmbedder()), system) == []
    path = locomo(tmp_path / "own.json")
    swept = refold("bench", "retrieval", "--data", path, "--ranking", "messages", "--sweep", "cosine=1,2")
    assert swept.code == 1
    assert "--sweep varies rankings of memories, and 'messages' is none" in swept.err


def test_a_sweep_is_shown_from_best_to_worst(refold: Run, tmp_path: Path) -> None:
    path = locomo(tmp_path / "own.json")
    told = refold(
        "bench", "retrieval", "--data", path, "--sweep", "cosine=0.1,0.9", "--sweep", "stemmer=light", "--json"
    )
    recalls = [each["recall"]["10"] for each in told.json_lines[0]["figures"]]
    assert len(recalls) == 2
    assert recalls == sorted(recalls, reverse=True)


def test_eviction_shows_grids_and_speaks_json(refold: Run, tmp_path: Path) -> None:
    path = tools(tmp_path / "own.jsonl")
    shown = refold("bench", "eviction", "--data", path, "--budget", 2048, "--policy", "fifo")
    assert shown.code == 0
    assert "survival, %" in shown.out
    assert "2k" in shown.out
    said = refold("bench", "eviction", "--data", path, "--budget", 10, "--json").json_lines[0]
    assert [each["policy"] for each in said["evictions"]][-2:] == ["clairvoyant", "clairvoyant-recall"]
    assert "assumes" not in shown.out
    rows = [line.rsplit(maxsplit=1)[0].strip() for line in shown.out.splitlines() if line.startswith("fifo")]
    assert rows == ["fifo", "fifo + search", "fifo", "fifo + search", "fifo", "fifo", "fifo"]
    assert "rows + search: an upper bound" in shown.out
    assert [each["with_search"] for each in said["evictions"] if each["policy"] == "fifo"] == [False, True]


def test_recalls_are_searched_only_for_a_policy_that_needs_them() -> None:
    items = tuple(Item(place, str(place), f"cat {place}", 3, "user") for place in range(4))
    each = Case("own", "chat", items, ())
    named = {policy.name: policy for policy in POLICIES}
    assert [piece.recalled for piece in trace_of(each, [named["fifo"]]).pieces] == [()] * 4
    whole = trace_of(each, [named["fifo"], named["least-recalled"]])
    assert [set(piece.recalled) for piece in whole.pieces] == [set(), {0}, {0, 1}, {0, 1, 2}]


def test_eviction_says_what_a_policy_assumes_of_a_program(refold: Run, tmp_path: Path) -> None:
    path = tools(tmp_path / "own.jsonl")
    shown = refold("bench", "eviction", "--data", path, "--budget", 10, "--policy", "least-recalled")
    assert "least-recalled assumes chat.recall(text, top_k=3) for each message of the user" in shown.out
    said = refold("bench", "eviction", "--data", path, "--budget", 10, "--json").json_lines[0]
    assert said["assumptions"].keys() == {"least-recalled", "least-important"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("eviction", "--policy", "none"), "the policy 'none' is unknown"),
        (("retrieval", "--ranking", "none"), "the ranking 'none' is unknown"),
        (("retrieval", "--sweep", "cosine"), "give a field and its values"),
        (("retrieval", "--sweep", "nothing=1"), "no field of a ranking"),
        (("retrieval", "--sweep", "cosine=1", "--ranking", "seed", "--ranking", "bm25"), "give one --ranking"),
    ],
)
def test_what_cannot_be_measured_is_said(refold: Run, tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    ended = refold("bench", *options, "--data", locomo(tmp_path / "own.json"))
    assert ended.code == 1
    assert words in ended.err


def test_conversations_without_labels_have_no_retrieval(refold: Run, tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps([{"role": "user", "content": "Hello"}]), encoding="utf-8")
    assert "label its conversations" in refold("bench", "retrieval", "--data", path).err
    assert refold("bench", "eviction", "--data", path, "--budget", 10).code == 0


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "locomo-emb").is_dir(), reason="the vectors of LoCoMo are not on this machine")
@pytest.mark.parametrize(
    ("source", "vectors", "system", "published"),
    [
        ("locomo/locomo7_dev.json", "locomo-emb", "cosine", 42.4),
        ("locomo/locomo7_dev.json", "locomo-emb", "window", 75.8),
        ("locomo/locomo7_dev.json", "locomo-emb", "seed-without-recency, stemmed", 45.7),
        ("locomo/locomo7_dev.json", "locomo-emb", "seed-exponential, stemmed", 31.9),
        ("beam/beam_100K_dev12.jsonl", "beam-emb", "cosine", 56.9),
        ("beam/beam_100K_dev12.jsonl", "beam-emb", "window", 63.4),
        ("beam/beam_100K_dev12.jsonl", "beam-emb", "bm25, no dates", 34.6),
    ],
)
def test_published_figures_come_out_of_the_raw_files(source: str, vectors: str, system: str, published: float) -> None:
    cases = load_vectors(cases_of(DATA / source), DATA / vectors)
    found = figures(system, answers(cases, next(each for each in SYSTEMS if each.name == system)))
    assert 100 * found[0].recall[10] == pytest.approx(published, abs=1.0)
