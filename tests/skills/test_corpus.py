"""Real skill files: all 224 are loaded, what is said of them is what was reviewed, and the validator is right."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refold.skills import SelectionPolicy, Selector, SkillLoader, SkillRoots, parse_skill, validate_skill
from refold.skills.selection import text_of
from refold.skills.sources import RefreshStats, SkillIndex
from tests.support.paths import DATA

CORPUS = DATA / "skills"
REVIEWED = Path(__file__).with_name("skill_diagnostics.txt")

if not CORPUS.is_dir():
    pytest.skip("the corpus of skills is not on this machine", allow_module_level=True)
pytest.importorskip("yaml", reason="PyYAML is not installed")

FILES = {str(path.relative_to(CORPUS)): path.read_bytes() for path in sorted(CORPUS.rglob("SKILL.md"))}


def test_every_file_is_loaded_whole() -> None:
    assert len(FILES) == 224
    for path, content in FILES.items():
        skill = parse_skill(path, content).skill
        assert skill is not None, path
        assert content.endswith(b"---\n" + skill.body.encode())
        assert skill.description


def test_what_is_said_of_them_was_reviewed() -> None:
    said = [str(found) for path, content in FILES.items() for found in parse_skill(path, content).diagnostics]
    assert said == REVIEWED.read_text(encoding="utf-8").splitlines()


def test_convention_files_are_loaded_whole() -> None:
    for path in sorted((DATA / "conventions").rglob("*.md")):
        skill, said = parse_skill(path.name, path.read_bytes(), is_convention=True)
        assert said == ()
        assert skill is not None
        assert (skill.name, skill.body.encode()) == (path.stem, path.read_bytes())


@pytest.mark.slow
def test_the_validator_agrees_with_the_reference_on_every_file() -> None:
    validator = pytest.importorskip("skills_ref.validator", reason="skills-ref is not installed")
    invalid = 0
    for path, content in FILES.items():
        directory = (CORPUS / path).parent
        theirs = validator.validate(directory)
        assert list(validate_skill(content, directory.name)) == theirs, path
        invalid += bool(theirs)
    assert invalid == 24


# Finding and selecting.


@pytest.fixture(scope="module")
def loader() -> SkillLoader:
    return SkillLoader(SkillRoots(builtin=(str(CORPUS),)))


@pytest.fixture(scope="module")
def index(loader: SkillLoader) -> SkillIndex:
    return loader.load()


def test_the_corpus_is_found_and_not_read_twice(loader: SkillLoader, index: SkillIndex) -> None:
    assert (len(index), len(index.shadowed)) == (224, 0)
    assert loader.load() is index
    assert loader.stats == RefreshStats(files=224, unchanged=224)


def vectors_of(index: SkillIndex) -> Any:
    """The vectors that were computed for the corpus; of ten skills there are none."""
    directory = DATA / "skills-emb"
    lines = [json.loads(line) for line in (directory / "skills.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = np.load(directory / "skills_minilm_l6_f16.npy").astype(np.float32)
    named = {line["name"]: row for line, row in zip(lines, rows, strict=True)}
    known = {text_of(skill): named.get(skill.name, np.zeros(384, dtype=np.float32)) for skill in index.skills}
    asked = np.load(directory / "selection_queries_minilm_l6_f16.npy").astype(np.float32)
    known |= {query["query"]: row for query, row in zip(queries(), asked, strict=True)}

    def vectors(texts: Sequence[str]) -> Any:
        return np.stack([known[text] for text in texts])

    return vectors


def queries() -> list[dict[str, str]]:
    lines = (CORPUS / "selection_queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(("ranking", "least"), [("seed", 78.0), ("words", 84.0), ("hybrid", 79.0)])
def test_of_five_selected_skills_one_is_the_right_one(index: SkillIndex, ranking: str, least: float) -> None:
    """The labels come from the bodies, which `hybrid` does not read: benchmarks/selection.py leaves them out."""
    selector = Selector(index, vectors=vectors_of(index))
    policy = SelectionPolicy(ranking=ranking, top_k=5, min_score=0.0)
    right = [
        query["skill"] in {match.skill.name for match in selector.select(query["query"], policy=policy)}
        for query in queries()
    ]
    recall = 100 * sum(right) / len(right)
    assert len(right) == 1_026
    assert recall >= least
