"""What rankings find on recorded conversations stays what was published; left out where they are not on the machine."""

from functools import cache

import pytest
from retrieval import DATA, EMBEDDERS, counted, loaded, recall
from retrieval_sets import SETS, beam, locomo, skills

from refold.measuring.vectors import Embedded

LOADERS = {"LoCoMo": locomo, "BEAM-100K": beam, "skills": skills}

# The set, the ranking, the recall that was published for it in percent, and how far from it is still the same.
PUBLISHED = [
    ("LoCoMo", "seed", 23.9, 0.5),
    ("LoCoMo", "seed-without-recency, stemmed", 45.7, 1.0),
    ("LoCoMo", "seed-exponential, stemmed", 31.9, 1.0),
    ("BEAM-100K", "seed-exponential, stemmed", 46.4, 1.0),
    ("LoCoMo", "window", 75.8, 0.3),
    ("BEAM-100K", "window", 63.4, 0.3),
]
LEAST = [("LoCoMo", "hybrid", 76.0), ("BEAM-100K", "hybrid", 64.0), ("skills", "hybrid", 78.0)]


@cache
def conversations(name: str) -> list[Embedded]:
    try:
        return LOADERS[name](DATA, EMBEDDERS["stored"])
    except FileNotFoundError as error:
        pytest.skip(f"{name} is not on this machine: no {error.filename}")


@pytest.mark.parametrize(("name", "label", "published", "margin"), PUBLISHED)
def test_a_published_figure_is_reproduced(name: str, label: str, published: float, margin: float) -> None:
    assert recall(conversations(name), label, SETS[name][1]) == pytest.approx(published, abs=margin)


@pytest.mark.parametrize(("name", "label", "least"), LEAST)
def test_one_preset_is_good_on_every_set(name: str, label: str, least: float) -> None:
    assert recall(conversations(name), label, SETS[name][1]) >= least


def test_questions_that_count_are_those_of_the_published_figures() -> None:
    counts = {name: counted(conversations(name)) for name in LOADERS}
    assert counts == {"LoCoMo": 1_121, "BEAM-100K": 215, "skills": 1_026}


def test_a_set_that_is_absent_is_left_out_with_its_reason(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(loaded(tmp_path_factory.mktemp("empty"), "stored")) == []
    shown = capsys.readouterr().out
    assert shown.count("left out, ") == len(SETS)
    assert "locomo7_dev.json is not on this machine" in shown
