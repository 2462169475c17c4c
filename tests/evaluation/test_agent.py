"""What `refold bench agent` measures: recorded conversations through the default path, and their questions after it."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, Memory
from refold.evaluation.agent import BUDGETS, SYSTEMS, Agent, Presence, measure_contexts, presences, recordings_of
from tests.support.command import Run, running

TALK = {
    1: ("My cat is called Ranga.", "Lovely!", "I moved to Oslo in May.", "How is the weather there?"),
    2: ("I play the cello in an orchestra now.", "Since when?"),
}
OBSERVED = {
    "session_1_observation": {
        "Ada": [["Ada has a cat called Ranga.", "D1:1"], ["Ada lives in Oslo, where she moved to.", ["D1:3; D1:4"]]],
        "Bo": [["Bo likes a name.", "D9:9"]],
    },
    "session_2_observation": {"Ada": [["Ada plays the cello in an orchestra.", "D2:1, D2:2"]]},
}
ASKED = [
    {"question": "What is the cat of Ada called?", "evidence": ["D1:1", "D1:2"], "category": 4},
    {"question": "Which instrument does Ada play?", "evidence": ["D2:1"], "category": 1},
    {"question": "What is the dog called?", "evidence": ["D1:1"], "category": 5},
]


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return running(monkeypatch, capfd)


def locomo(path: Path, observed: Any = OBSERVED) -> Path:
    talk: dict[str, Any] = {"speaker_a": "Ada", "speaker_b": "Bo"}
    for session, texts in TALK.items():
        talk[f"session_{session}_date_time"] = f"1:56 pm on 8 May, 202{session}"
        talk[f"session_{session}"] = [
            {"speaker": ("Ada", "Bo")[place % 2], "dia_id": f"D{session}:{place + 1}", "text": text}
            for place, text in enumerate(texts)
        ]
    sample = {"sample_id": "own", "conversation": talk, "qa": ASKED, "observation": observed}
    path.write_text(json.dumps([sample]), encoding="utf-8")
    return path


def beam(path: Path) -> Path:
    texts = ["The port of the server is 5432.", "Noted. " + "word " * 2_000, "My favourite editor is Kakoune.", "Fine."]
    messages = [
        {"id": place + 1, "role": ("user", "assistant")[place % 2], "batch": place // 2, "content": text}
        for place, text in enumerate(texts)
    ]
    asked = [{"type": "recall", "question": "Which port has the server?", "source_chat_ids": [1]}]
    path.write_text(json.dumps({"id": 1, "messages": messages, "questions": asked}) + "\n", encoding="utf-8")
    return path


def shares(path: Path, budget: int) -> dict[str, list[float]]:
    results = measure_contexts(recordings_of(path), [budget])
    return {system: [each.share for each in results if each.system == system] for system in SYSTEMS}


def test_what_was_learned_in_a_session_is_in_the_context_of_a_later_question(tmp_path: Path) -> None:
    # The answer "Lovely!" is in no memory, and in the newest messages of an ample budget.
    assert shares(locomo(tmp_path / "locomo.json"), 1_000) == {
        "context": [0.5, 1.0],
        "window": [1.0, 1.0],
        "messages": [1.0, 1.0],
        "memories": [0.5, 1.0],
    }


def test_a_small_budget_holds_the_newest_messages_and_the_best_of_a_search(tmp_path: Path) -> None:
    small = shares(beam(tmp_path / "beam.jsonl"), 300)
    assert small == {"context": [1.0], "window": [0.0], "messages": [1.0], "memories": [1.0]}


def test_a_memory_that_a_command_made_is_evidence_of_its_message(tmp_path: Path) -> None:
    path = beam(tmp_path / "beam.jsonl")
    line = path.read_text(encoding="utf-8")
    path.write_text(
        line.replace("My favourite editor is Kakoune.", "Always edit in Kakoune.").replace("[1]", "[3]"),
        encoding="utf-8",
    )
    assert shares(path, 1_000)["memories"] == [1.0], "remembered without the full stop"


def test_a_message_of_several_lines_is_learned_from(tmp_path: Path) -> None:
    path = beam(tmp_path / "beam.jsonl")
    line = path.read_text(encoding="utf-8")
    text = json.dumps("The server:\n\nits port is 5432.\n    Its name is not known.")
    path.write_text(line.replace('"The port of the server is 5432."', text), encoding="utf-8")
    assert shares(path, 1_000)["memories"] == [1.0]


def test_no_system_sends_more_than_its_budget(tmp_path: Path) -> None:
    for path, budget in product((locomo(tmp_path / "locomo.json"), beam(tmp_path / "beam.jsonl")), (200, 1_000)):
        assert all(each.tokens <= budget for each in measure_contexts(recordings_of(path), [budget]))


def test_sessions_are_lived_by_the_default_path(tmp_path: Path) -> None:
    (recording,) = recordings_of(locomo(tmp_path / "locomo.json"))
    memory = Agent(recording).memory
    project = memory.project(recording.case.name)
    assert [entry.content for entry in project.list()] == [fact.text for fact in recording.facts]
    assert memory.conversations() == ["session 1", "session 2"]
    assert [message.role for message in memory.conversation("session 1").window()] == ["user", "assistant"] * 2
    assert project.stats().episodes == 2


def test_figures_are_means_over_questions_in_all_and_by_category(tmp_path: Path) -> None:
    results = presences(measure_contexts(recordings_of(locomo(tmp_path / "locomo.json")), [1_000, 2_000]))
    assert [(each.category, each.budget, each.system) for each in results] == [
        (category, budget, system) for category in ("all", "1", "4") for budget in (1_000, 2_000) for system in SYSTEMS
    ]
    first = results[0]
    assert isinstance(first, Presence)
    assert (first.questions, first.share, first.full) == (2, 0.75, 0.5)
    assert first.share_interval.low <= 0.75 <= first.share_interval.high
    assert 0 < first.tokens <= 1_000


def test_observations_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the observations are not as LoCoMo has them"):
        recordings_of(locomo(tmp_path / "locomo.json", {"session_1_observation": [["text", "D1:1"]]}))


# The command.


def test_a_directory_of_sets_is_measured(tmp_path: Path, refold: Run) -> None:
    (tmp_path / "sets").mkdir()
    locomo(tmp_path / "sets" / "locomo10.json")
    beam(tmp_path / "sets" / "beam.jsonl")
    said = refold("bench", "agent", tmp_path, "--budget", 1_000)
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "locomo10: 2 questions, 1 conversations"
    assert lines[1].split() == ["evidence,", "%", "1,000", "tokens"]
    assert [line.split()[0] for line in lines[2:6]] == list(SYSTEMS)
    assert lines[2].split()[1] == "75.0"
    assert "4, 1 questions" in refold("bench", "agent", tmp_path, "--budget", 1_000, "--by-category").out
    bare = refold("bench", "agent", tmp_path, "--budget", 1_000, "--without-facts", "--json").json
    assert bare["facts"] is False
    assert {row["share"] for each in bare["sets"] for row in each["figures"] if row["system"] == "memories"} == {0.0}
    assert {row["share"] for each in bare["sets"] for row in each["figures"] if row["system"] == "context"} == {
        0.75,
        1.0,
    }
    (first, second) = refold("bench", "agent", tmp_path, "--json").json["sets"]
    assert (first["name"], second["name"]) == ("locomo10", "beam")
    assert [each["budget"] for each in first["figures"]] == [budget for budget in BUDGETS for _ in SYSTEMS]


def test_where_the_data_are_not_it_fails_and_says_where_to_get_them(tmp_path: Path, refold: Run) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        for options in ((), ("--json",)):
            said = refold("bench", "agent", path, *options)
            assert (said.code, said.out) == (1, "")
            assert "https://github.com/snap-research/LoCoMo" in said.err
            assert "https://github.com/mohammadtavakoli78/BEAM" in said.err


def test_a_store_is_refused_and_sent_to_the_other_verbs(tmp_path: Path, refold: Run) -> None:
    with Memory(tmp_path) as memory:
        memory.conversation("chat").append("user", "Hello")
    said = refold("bench", "agent", tmp_path)
    assert (said.code, "is a store; give files of LoCoMo or BEAM" in said.err) == (1, True)


def test_a_file_without_evidence_is_refused(tmp_path: Path, refold: Run) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "hello"}]}\n', encoding="utf-8")
    assert "no question with known evidence" in refold("bench", "agent", path).err
