"""What rankings find on recorded conversations stays what was published; left out where they are not on the machine."""

from functools import cache

import pytest
from retrieval import DATA, EMBEDDERS, compared, loaded, percent, recalls
from retrieval_sets import SETS, Conversation, beam, flat, locomo, skills

LOADERS = {"LoCoMo": locomo, "BEAM-100K": beam, "skills": skills}

# The set, the ranking, the recall that was published for it in percent, and how far from it is still the same.
PUBLISHED = [
    ("LoCoMo", "seed", 23.9, 0.5),
    ("LoCoMo", "seed-without-recency, stemmed keywords", 45.7, 1.0),
    ("LoCoMo", "seed-exponential, stemmed keywords", 31.9, 1.0),
    ("BEAM-100K", "seed-exponential, stemmed keywords", 46.4, 1.0),
    ("LoCoMo", "window", 75.8, 0.3),
    ("BEAM-100K", "window", 63.4, 0.3),
]
LEAST = [("LoCoMo", "hybrid", 76.0), ("BEAM-100K", "hybrid", 64.0), ("skills", "hybrid", 78.0)]


@cache
def conversations(name: str) -> list[Conversation]:
    try:
        return LOADERS[name](DATA, EMBEDDERS["stored"])
    except FileNotFoundError as error:
        pytest.skip(f"{name} is not on this machine: no {error.filename}")


def recall(name: str, label: str) -> float:
    ranking, keywords_of = next((each, words) for shown, each, words in compared() if shown == label)
    answers = recalls(conversations(name), ranking, SETS[name][1], keywords_of)
    return percent([value for _, value in answers])


@pytest.mark.parametrize(("name", "label", "published", "margin"), PUBLISHED)
def test_a_published_figure_is_reproduced(name: str, label: str, published: float, margin: float) -> None:
    assert recall(name, label) == pytest.approx(published, abs=margin)


@pytest.mark.parametrize(("name", "label", "least"), LEAST)
def test_one_preset_is_good_on_every_set(name: str, label: str, least: float) -> None:
    assert recall(name, label) >= least


def test_questions_that_count_are_those_of_the_published_figures() -> None:
    counts = {name: sum(len(each.questions) for each in conversations(name)) for name in LOADERS}
    assert counts == {"LoCoMo": 1_121, "BEAM-100K": 215, "skills": 1_026}


def test_a_set_that_is_absent_is_left_out_with_its_reason(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(loaded(tmp_path_factory.mktemp("empty"), "stored")) == []
    shown = capsys.readouterr().out
    assert shown.count("left out, ") == len(SETS)
    assert "turns.jsonl is not on this machine" in shown


def test_evidence_is_found_in_any_nest() -> None:
    assert flat({"a": [1, [2]], "b": {"c": 3}, "d": None}) == [1, 2, 3]
