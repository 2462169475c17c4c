"""Skill files that were written to do harm: to stall the reader, to leave their project, to be put before a model."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold.agent.parts import disarm
from refold.errors import InvalidInput
from refold.limits import SKILL_FILE_BYTES_MAX
from refold.skills import SelectionPolicy, Skill, SkillLoader, SkillRoots, files, inject_skills, parse_skill
from refold.skills.selection import activation, match_of, truncate
from refold.skills.skills import skills_of
from tests.support.memories import remembering

pytest.importorskip("yaml", reason="PyYAML is not installed")


def write(path: Path, name: str, front: str = "", body: str = "Body\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: About {name}.\n{front}---\n{body}", encoding="utf-8")
    return path


def skill_of(body: str) -> Skill:
    return Skill(id="a-0", name="a", description="d", body=body, path="a/SKILL.md", hash="0")


# Texts that take long to read, if they are read carelessly.

HALF = SKILL_FILE_BYTES_MAX // 2

SLOW: dict[str, Callable[[int], object]] = {
    "heading": lambda count: parse_skill("CLAUDE.md", f"# x{' ' * count}x".encode(), is_convention=True),
    "hashes": lambda count: parse_skill("CLAUDE.md", f"# {'# ' * count}x".encode(), is_convention=True),
    "bracket": lambda count: disarm(f"[{' ' * count}x"),
    "closing bracket": lambda count: disarm(f"[{' ' * count}/{' ' * count}x"),
    "tag": lambda count: activation(skill_of(f"<{' ' * count}x")),
    "lines": lambda count: truncate("a\n" * count, count, 10),
    "section": lambda count: inject_skills(
        [match_of(skill_of("a\n" * count), 1.0, "lexical")], SelectionPolicy(max_content_lines=count)
    ),
    "tools": lambda count: parse_skill(
        "a/SKILL.md", f"---\nname: a\ndescription: d\nallowed-tools: {'a(' * min(count, 30_000)}\n---\n".encode()
    ),
}


@pytest.mark.parametrize("shape", SLOW)
def test_time_grows_with_the_text_and_not_with_its_square(shape: str) -> None:
    """A text of half a megabyte is read in the time of a few walks over it; the square of it would take minutes."""
    begin = time.thread_time()  # Not the clock's time, in which other processes of the machine have a share.
    SLOW[shape](HALF)
    assert time.thread_time() - begin < 5


@pytest.mark.parametrize(
    ("line", "description"),
    [
        ("# Title #", "Title"),
        ("## Two # words ##  ", "Two # words"),
        ("   ### C#", "C"),
        ("# #", "first"),
        ("#", "first"),
        ("#no", "first"),
        ("####### seven", "first"),
        ("    # code", "first"),
        ("#\tTab\t#", "Tab"),
    ],
)
def test_a_heading_is_what_it_was(line: str, description: str) -> None:
    skill = parse_skill("CLAUDE.md", f"first\n{line}\n".encode(), is_convention=True).skill
    assert skill is not None
    assert skill.description == description


# Leaving the project.


@pytest.mark.parametrize("kind", ["user", "builtin", "submodule", "external", ""])
def test_no_configuration_of_a_project_leads_out_of_it(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "outside/x/SKILL.md", "secret")
    project = tmp_path / "project"
    (project / ".plan-cascade").mkdir(parents=True)
    document = {
        "sources": {"a": {"type": kind, "path": "../outside"}, "b": {"type": kind, "path": "."}},
        "skills": [
            {"name": "one", "path": "../outside/x"},
            {"name": "two", "path": str(tmp_path / "outside/x/SKILL.md")},
            {"name": "three", "source": "b", "path": "../outside/x"},
            {"name": "four", "path": "~/x"},
        ],
    }
    for name in ("external-skills.json", ".plan-cascade/skills.json"):
        (project / name).write_text(json.dumps(document), encoding="utf-8")
    index = SkillLoader(SkillRoots(project=str(project))).load()
    assert index.skills == ()
    assert sum("is not loaded" in str(said) for said in index.diagnostics) >= 8


def test_a_pipe_in_the_place_of_a_file_does_not_stop_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "SKILL.md")
    with pytest.raises(OSError, match="no file"):
        files.read(str(tmp_path / "SKILL.md"))


def test_a_file_that_goes_during_the_look_takes_no_other_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c", "d"):
        write(tmp_path / f".skills/{name}.md", name)
    seen = files._Walker._add_file

    def going(walker: Any, found: os.stat_result, below: str) -> None:
        if below == "b.md":
            raise FileNotFoundError
        seen(walker, found, below)

    monkeypatch.setattr(files._Walker, "_add_file", going)
    index = SkillLoader(SkillRoots(project=str(tmp_path))).load()
    assert [skill.name for skill in index.skills] == ["a", "c", "d"]


def test_a_link_does_not_take_the_name_of_what_it_leads_to(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path / f".skills/m{number}/SKILL.md", f"m{number}")
        (tmp_path / f".skills/a{number}").symlink_to(tmp_path / f".skills/m{number}")
        (tmp_path / f".skills/z{number}").symlink_to(tmp_path / f".skills/m{number}")
    index = SkillLoader(SkillRoots(project=str(tmp_path))).load()
    assert sorted(skill.path for skill in index.skills) == sorted(f".skills/m{n}/SKILL.md" for n in range(12))
    assert index.diagnostics == ()


def test_conventions_are_found_among_many_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SKILL_FILES_COUNT_MAX", 5)
    monkeypatch.setattr(files, "SKILL_DIRECTORIES_COUNT_MAX", 20)
    for number in range(30):
        (tmp_path / f"docs/deep{number}/deeper").mkdir(parents=True)
        (tmp_path / f"docs/page{number}.md").touch()
    for name in ("CLAUDE.md", "src/AGENTS.md", "docs/CLAUDE.md", "zebra/CLAUDE.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# Title\n", encoding="utf-8")
    index = SkillLoader(SkillRoots(project=str(tmp_path))).load()
    names = {skill.name for skill in index.skills}
    assert names == {"CLAUDE", "src/AGENTS", "docs/CLAUDE", "zebra/CLAUDE"}
    assert [said.reason for said in index.diagnostics] == [
        "more directories than SKILL_DIRECTORIES_COUNT_MAX = 20; the rest is left out"
    ]


def test_a_directory_of_very_many_files_is_looked_at_up_to_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SKILL_FILES_COUNT_MAX", 3)
    for number in range(50):
        (tmp_path / f"f{number:02}.md").touch()
    looks: list[str] = []
    seen = files._Walker._add_file

    def counting(walker: Any, found: os.stat_result, below: str) -> None:
        looks.append(below)
        seen(walker, found, below)

    monkeypatch.setattr(files._Walker, "_add_file", counting)
    found = files.walk(str(tmp_path))
    assert [seen.path for seen in found.files] == ["f00.md", "f01.md", "f02.md"]
    assert len(looks) == 4


@pytest.mark.parametrize("name", ["build", "dist", "target", "coverage"])
def test_a_skill_may_be_called_like_a_directory_of_builds(tmp_path: Path, name: str) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build/CLAUDE.md").write_text("# Of a build\n", encoding="utf-8")
    with remembering() as memory:
        skills = skills_of(memory, SkillRoots(project=str(tmp_path)))
        assert skills.create(name, "What it does.", "Body\n").name == name
        assert [found.name for found in skills.list()] == [name]
        skills.remove(name)
        assert skills.list() == ()


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    path = write(tmp_path / ".skills/a/SKILL.md", "a", body="old\n")
    place = tmp_path / "external-skills.json"
    place.write_text('{"settings": {"max_skills_per_story": 5}}', encoding="utf-8")
    loader = SkillLoader(SkillRoots(project=str(tmp_path)))
    assert loader.load().skills[0].body == "old\n"
    for changed, text in ((path, path.read_text(encoding="utf-8").replace("old", "new")), (place, None)):
        before = changed.stat()
        changed.write_text(text or '{"settings": {"max_skills_per_story": 7}}', encoding="utf-8")
        os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    index = loader.load()
    assert (index.skills[0].body, index.settings.max_skills) == ("new\n", 7)


def test_what_a_configuration_names_and_is_no_skill_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").touch()
    document = {"skills": [{"name": name, "path": name} for name in ("empty", "file.txt")]}
    (tmp_path / "external-skills.json").write_text(json.dumps(document), encoding="utf-8")
    said = [str(said) for said in SkillLoader(SkillRoots(project=str(tmp_path))).load().diagnostics]
    assert said == [
        f"external-skills.json:0: warning: {name!r} names {name}, which holds no SKILL.md; nothing is loaded from it"
        for name in ("empty", "file.txt")
    ]


def test_files_beside_a_skill_are_found_from_wherever_its_root_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "bundled/a/SKILL.md", "a")
    (tmp_path / "bundled/a/run.sh").touch()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    with remembering() as memory:
        for roots in (
            SkillRoots(project="project", builtin=("bundled",)),
            SkillRoots(project=".", builtin=("bundled",)),
            SkillRoots(project=str(tmp_path / "project"), user=("bundled",)),
            SkillRoots(builtin=("bundled",)),
        ):
            skills = skills_of(memory, roots)
            assert skills.resources("a") == ("run.sh",)
        assert skills_of(memory, SkillRoots(project=".", builtin=("bundled",))).get("a").path == "bundled/a/SKILL.md"


def test_files_beside_a_skill_whose_names_are_no_text_are_left_out(tmp_path: Path) -> None:
    skill = write(tmp_path / ".skills/a/SKILL.md", "a").parent
    (skill / os.fsdecode(b"bad\xff")).mkdir()
    for name in (b"bad\xff/x.txt", b"worse\xfe.txt", b"good.txt"):
        (skill / os.fsdecode(name)).touch()
    with remembering() as memory:
        skills = skills_of(memory, SkillRoots(project=str(tmp_path)))
        assert skills.resources("a") == ("good.txt",)
        assert skills.activate("a").encode()


# Configurations.


@pytest.mark.parametrize("has_skill", [True, False])
def test_what_is_odd_is_said_also_where_nothing_is_loaded(tmp_path: Path, has_skill: bool) -> None:
    (tmp_path / ".skills").mkdir()
    (tmp_path / ".skills/broken.md").write_text("---\nname: [\n---\n", encoding="utf-8")
    (tmp_path / "external-skills.json").write_text("{", encoding="utf-8")
    if has_skill:
        write(tmp_path / ".skills/good/SKILL.md", "good")
    with remembering() as memory:
        skills = skills_of(memory, SkillRoots(project=str(tmp_path)))
        assert [said.severity for said in skills.diagnostics()] == ["error", "error"]
        assert skills.overview().diagnostics == {"error": 2}
        assert skills.index() is skills.index()


@pytest.mark.parametrize("value", ["true", "0", "-1", '"3"', "99999999999999999999", "1.5", "null"])
def test_a_count_of_the_settings_that_is_none_is_said_and_passed_over(tmp_path: Path, value: str) -> None:
    write(tmp_path / ".skills/good/SKILL.md", "good")
    text = f'{{"settings": {{"max_skills_per_story": {value}, "max_content_lines": 7}}}}'
    (tmp_path / "external-skills.json").write_text(text, encoding="utf-8")
    with remembering() as memory:
        skills = skills_of(memory, SkillRoots(project=str(tmp_path)))
        assert [match.skill.name for match in skills.select("good")] == ["good"]
        settings = skills.index().settings
        assert (settings.max_skills, settings.max_content_lines) == (3, 7)
        said = [str(said) for said in skills.diagnostics()]
        assert len(said) == (value != "null")
        assert all("max_skills_per_story" in one for one in said)


@pytest.mark.parametrize("place", ["a\0b", "a/\0"])
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, place: str) -> None:
    write(tmp_path / ".skills/good/SKILL.md", "good")
    with remembering() as memory:
        skills = skills_of(memory, SkillRoots(project=str(tmp_path)))
        with pytest.raises(InvalidInput, match="NUL"):
            skills.export("good", place)
