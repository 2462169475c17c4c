"""What a skill says of itself is obeyed: who may call for it, which tools it may use, what its name is."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold.agent.hooks import Hooks
from refold.errors import InvalidInput
from refold.skills import SelectionPolicy, SkillRoots, parse_skill, render_skill, skills_of, validate_skill
from refold.skills.skills import Skills
from tests.support.memories import refused, remembering

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")


def write(path: Path, name: str, front: str = "", body: str = "Body\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: About {name}.\n{front}---\n{body}", encoding="utf-8")
    return path


def skills_in(memory: Any, project: Path) -> Skills:
    return skills_of(memory, SkillRoots(project=str(project)))


def names_of(skills: Skills, query: str, **options: Any) -> list[tuple[str, str]]:
    return [(match.skill.name, match.match_reason) for match in skills.select(query, **options)]


def test_a_skill_that_is_not_for_models_is_put_before_one_only_by_a_person(tmp_path: Path) -> None:
    write(tmp_path / ".skills/deploy/SKILL.md", "deploy", "disable-model-invocation: true\ntags: [ops]\n")
    write(tmp_path / ".skills/rules/SKILL.md", "rules", "disable-model-invocation: true\n")
    (tmp_path / "go.mod").touch()
    (tmp_path / "external-skills.json").write_text(
        '{"skills": {"rules": {"path": "extra/rules", "detect": {"files": ["go.mod"]}}}}', encoding="utf-8"
    )
    write(tmp_path / "extra/rules/SKILL.md", "extra", "disable-model-invocation: true\n")
    with remembering() as memory:
        skills = skills_in(memory, tmp_path)
        assert [found.name for found in skills.detect()] == ["extra"]
        assert names_of(skills, "deploy the rules") == []
        assert names_of(skills, "", policy=SelectionPolicy(include_tags=("ops",))) == []
        assert names_of(skills, "deploy", forced=["deploy"]) == [("deploy", "user_forced")]


def test_a_skill_that_is_forced_by_its_id_is_selected_once(tmp_path: Path) -> None:
    write(tmp_path / ".skills/deploy/SKILL.md", "deploy")
    with remembering() as memory:
        skills = skills_in(memory, tmp_path)
        found = skills.get("deploy").id
        assert names_of(skills, "deploy", forced=[found, "deploy", found]) == [("deploy", "user_forced")]


@pytest.mark.parametrize("field", ["include_tags", "exclude_tags"])
def test_one_tag_is_no_list_of_letters(field: str) -> None:
    with pytest.raises(InvalidInput, match=f"{field} must be a list"):
        SelectionPolicy(**{field: "web"})  # type: ignore[arg-type]


@pytest.mark.parametrize("score", ["1", True, float("nan")])
def test_a_least_score_is_a_number(score: Any) -> None:
    with pytest.raises(InvalidInput, match="min_score"):
        SelectionPolicy(min_score=score)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"open_to": []}, "open_to is"),
        ({"open_to": "all"}, "open_to is"),
        ({"source": []}, "source is"),
    ],
)
def test_a_listing_is_asked_for_in_words_that_there_are(options: dict[str, Any], words: str) -> None:
    with remembering() as memory, refused(memory, InvalidInput, words):
        memory.skills.list(**options)


# Names as other readers of YAML understand them.


@pytest.mark.parametrize("name", ["true", "no", "on", "null", "y", "123", "12e3", "2024-01-01", "0x1f", "plain"])
def test_a_name_stays_a_text_for_every_reader_of_yaml(name: str) -> None:
    text = render_skill(name, "d", "b", metadata={name: "x", "on": "off", "1": "y"}, license="no")
    front = yaml.safe_load(text.split("---\n")[1])
    assert (front["name"], front["license"]) == (name, "no")
    assert front["metadata"] == {name: "x", "on": "off", "1": "y"}
    assert validate_skill(text.encode(), name) == ()
    skill = parse_skill(f"{name}/SKILL.md", text.encode()).skill
    assert skill is not None
    assert skill.name == name


@pytest.mark.parametrize(
    "options",
    [
        {"license": 3},
        {"version": 3},
        {"compatibility": b"x"},
        {"metadata": {1: "x"}},
        {"metadata": {"x": 1}},
        {"metadata": 3},
        {"metadata": {"\ud800": "x"}},
        {"tags": 3},
        {"allowed_tools": "Read"},
        {"license": "\ud800"},
    ],
    ids=str,
)
def test_what_is_no_text_is_not_written(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        render_skill("a", "d", "b", **options)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("escape", ["\\UFFFFFFFF", "\\U00110000", "\\xZZ", "\\u12"])
def test_a_character_that_there_is_not_is_a_diagnostic(
    monkeypatch: pytest.MonkeyPatch, escape: str, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    parsed = parse_skill("a/SKILL.md", f'---\nname: a\ndescription: "{escape}"\n---\n'.encode())
    assert parsed.skill is None
    assert parsed.diagnostics[0].severity == "error"


def test_what_is_said_of_a_file_does_not_depend_on_the_seed_of_hashes() -> None:
    program = (
        "from refold.skills import parse_skill\n"
        "hooks = ''.join(f'  Moment{n}: []\\n' for n in range(9))\n"
        "found = parse_skill('a/SKILL.md', f'---\\nname: a\\ndescription: d\\nhooks:\\n{hooks}---\\n'.encode())\n"
        "print([said.reason for said in found.diagnostics])\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


# Sessions.


def test_the_bound_of_the_settings_is_that_of_skills_before_a_message(tmp_path: Path) -> None:
    from refold.agent.defaults import default_hooks

    for name in ("alpha", "beta"):
        write(tmp_path / f".skills/{name}/SKILL.md", name, body="x" * 500)
    with remembering() as memory:
        hooks: Hooks = default_hooks(memory, skills_in(memory, tmp_path))
        memory.settings.set("skills_max_injected_chars", 600)
        context = hooks.context(memory.conversation("s"))
        heard = hooks.fire_user_message(context, "alpha beta")
        assert heard.modified_message is None
        assert 580 < sum(len(text) for _, text, _ in heard.skills) <= 600
