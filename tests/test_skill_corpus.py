"""Real skill files: all 224 are loaded, what is said of them is what was reviewed, and the validator is right."""

from pathlib import Path

import pytest

from refold.tools.skills.parsing import parse_skill
from refold.tools.skills.validating import validate_skill

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
CORPUS = DATA / "skills"
REVIEWED = Path(__file__).parent / "sources" / "skill_diagnostics.txt"

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
