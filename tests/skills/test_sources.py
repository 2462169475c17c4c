"""Finding skill files: the four sources, what shadows what, what is left out, and what is not read again."""

import os
from pathlib import Path
from typing import Any

import pytest

from refold import limits
from refold.errors import InvalidInput, LimitExceeded, NotFound, StoreError
from refold.skills import files as skills_files
from refold.skills.format import Detection
from refold.skills.sources import RefreshStats, SkillIndex, SkillLoader, SkillRoots

pytest.importorskip("yaml", reason="PyYAML is not installed")


def write(path: Path, name: str = "", description: str = "Say hello.", body: str = "Body\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    name = name or path.parent.name
    path.write_text(f"---\nname: {name}\ndescription: {description}\n---\n{body}", encoding="utf-8")
    return path


def found(root: Path, **options: Any) -> SkillIndex:
    return SkillLoader(SkillRoots(project=str(root), **options)).load()


def placed(index: SkillIndex) -> list[tuple[str, str, int]]:
    return [(skill.name, skill.source, skill.priority) for skill in index.skills]


def told(index: SkillIndex) -> list[str]:
    return [str(said) for said in index.diagnostics]


def test_every_directory_of_a_project_and_a_home_is_searched(tmp_path: Path) -> None:
    for directory in (".skills", ".agents/skills", ".claude/skills"):
        write(tmp_path / "project" / directory / directory.replace("/", "-").strip(".") / "SKILL.md")
        write(tmp_path / "home" / directory / f"home-{directory.replace('/', '-').strip('.')}" / "SKILL.md")
    write(tmp_path / "project" / ".skills" / ".hidden" / "dotted" / "skill.md")
    index = found(tmp_path / "project", home=str(tmp_path / "home"))
    assert placed(index) == [
        ("dotted", "project", 222),
        ("skills", "project", 222),
        ("agents-skills", "project", 221),
        ("claude-skills", "project", 220),
        ("home-skills", "user", 152),
        ("home-agents-skills", "user", 151),
        ("home-claude-skills", "user", 150),
    ]
    assert index.diagnostics == ()


def test_light_files_count_where_they_are_no_part_of_another_skill(tmp_path: Path) -> None:
    skills = tmp_path / ".skills"
    write(skills / "light.md", "light")
    write(skills / "deep" / "lighter.md", "lighter")
    write(skills / "owner" / "SKILL.md")
    write(skills / "owner" / "part.md", "part")
    write(skills / "owner" / "deep" / "part.md", "part")
    write(skills / "owner" / "nested" / "SKILL.md")
    write(skills / "references" / "guide.md", "guide")
    (skills / "README.md").write_text("# No skill\n", encoding="utf-8")
    (skills / "notes.txt").write_text("---\nname: a\ndescription: b\n---\n", encoding="utf-8")
    index = found(tmp_path)
    assert sorted(skill.name for skill in index.skills) == ["light", "lighter", "nested", "owner"]
    assert told(index) == [".skills/README.md:1: error: SKILL.md must start with YAML frontmatter (---)"]


def test_convention_files_count_in_every_directory_by_themselves(tmp_path: Path) -> None:
    for path in ("CLAUDE.md", "agents.MD", "SOUL.md", "web/CLAUDE.md", "web/SOUL.md", ".skills/x/AGENTS.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"# Of {path}\n", encoding="utf-8")
    for ignored in ("node_modules", ".git", "target", "build", "__pycache__"):
        (tmp_path / ignored).mkdir()
        (tmp_path / ignored / "CLAUDE.md").write_text("# Ignored\n", encoding="utf-8")
    index = found(tmp_path)
    assert placed(index) == [
        ("web/CLAUDE", "project", 261),
        ("CLAUDE", "project", 260),
        ("SOUL", "project", 260),
        ("agents", "project", 260),
    ]
    assert all(skill.is_convention for skill in index.skills)


CONFIGURATION = """{
  "sources": {
    "vercel": {"type": "submodule", "path": "external-skills/vercel", "repository": "somewhere"},
    "whole": {"type": "builtin", "path": "bundled"},
    "far": {"type": "submodule", "repository": "elsewhere"},
    "gone": {"type": "submodule", "path": "external-skills/gone"}
  },
  "skills": {
    "react": {
      "source": "vercel", "skill_path": "skills/react", "priority": 90, "inject_into": ["planning", "lunch"],
      "detect": {"files": ["package.json"], "patterns": ["react"]}
    },
    "loud": {"source": "vercel", "skill_path": "skills/loud", "priority": 900},
    "lost": {"source": "nowhere", "skill_path": "x"},
    "remote": {"source": "far", "skill_path": "x"}
  },
  "settings": {"max_skills_per_story": 5, "max_content_lines": 50, "cache_enabled": true}
}"""


def test_external_skills_and_those_of_the_user_are_merged(tmp_path: Path) -> None:
    (tmp_path / "external-skills.json").write_text(CONFIGURATION, encoding="utf-8")
    write(tmp_path / "external-skills/vercel/skills/react/SKILL.md")
    write(tmp_path / "external-skills/vercel/skills/loud/SKILL.md")
    write(tmp_path / "external-skills/vercel/skills/unlisted/SKILL.md")
    write(tmp_path / "bundled/deep/plain/SKILL.md")
    own = '{"skills": [{"name": "mine", "path": "mine", "priority": 7}, {"name": "web", "url": "somewhere"}]}'
    (tmp_path / ".plan-cascade").mkdir()
    (tmp_path / ".plan-cascade/skills.json").write_text(own, encoding="utf-8")
    write(tmp_path / "mine/SKILL.md")
    index = found(tmp_path)
    assert placed(index) == [
        ("mine", "user", 101),
        ("loud", "external", 100),
        ("react", "external", 90),
        ("plain", "builtin", 50),
    ]
    react = index.get("react")
    assert react is not None
    assert (react.detect, react.inject_into) == (Detection(("package.json",), ("react",)), ("planning",))
    assert react.source_label == "vercel (external)"
    assert (index.settings.max_skills, index.settings.max_content_lines) == (5, 50)
    said = "\n".join(told(index))
    for words in (
        "the source 'far' has no path, only 'elsewhere'; nothing is loaded from another machine",
        "the skill 'web' has no path, only 'somewhere'; nothing is loaded from another machine",
        "the skill 'lost' names the unknown source 'nowhere'",
        "the priority of 'loud' is 900; that of a skill of this source is from 51 to 100",
        "the priority of 'mine' is 7; that of a skill of this source is from 101 to 200",
        "inject_into of 'react' names an unknown phase",
        "external-skills/gone, which is not there",
    ):
        assert words in said
    assert len(index.diagnostics) == 7


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "the file is no JSON"),
        ("[" * 100_000, "the file is no JSON"),
        ("[]", "the file is no object"),
        ('{"skills": 3}', "skills is no object"),
        ('{"skills": {"a": 3}}', "skills.a is no object"),
        ('{"skills": {"a": {"path": "a", "priority": "x"}}}', "the priority of 'a' is no whole number"),
        ('{"skills": {"a": {"path": "a", "detect": {"files": [3]}}}}', "detect.files of a holds what is no text"),
        ('{"sources": {"a": {"path": 3}}}', "path of a is no text"),
    ],
    ids=lambda value: value[:30],
)
def test_a_malformed_configuration_is_said_and_passed_over(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "external-skills.json").write_text(content, encoding="utf-8")
    write(tmp_path / ".skills/good/SKILL.md")
    index = found(tmp_path)
    assert [skill.name for skill in index.skills] == ["good"]
    assert any(words in said for said in told(index))


def test_a_configuration_has_its_own_ranges_of_priorities(tmp_path: Path) -> None:
    ranges = '"priority_ranges": {"submodule": {"min": 300, "max": 400}, "user": {"min": 9}, "other": {}}'
    sources = '"sources": {"v": {"type": "submodule", "path": "v"}, "w": {"type": "submodule", "path": "w"}}'
    skills = '"skills": {"high": {"source": "v", "skill_path": "high", "priority": 350}}'
    (tmp_path / "external-skills.json").write_text(f"{{{ranges}, {sources}, {skills}}}", encoding="utf-8")
    write(tmp_path / "v/high/SKILL.md")
    write(tmp_path / "w/low/SKILL.md")
    index = found(tmp_path)
    assert [(skill.name, skill.priority) for skill in index.skills] == [("high", 350), ("low", 300)]
    assert sum("is no min and max from 1 to 1000" in said for said in told(index)) == 2


def test_the_higher_priority_has_the_name_and_says_whom_it_shadows(tmp_path: Path) -> None:
    write(tmp_path / "builtin/greet/SKILL.md", description="Built in.")
    write(tmp_path / ".claude/skills/greet/SKILL.md", description="Of Claude.")
    write(tmp_path / ".skills/greet/SKILL.md", description="Of the project.")
    index = found(tmp_path, builtin=(str(tmp_path / "builtin"),), user=(str(tmp_path / "builtin"),))
    assert [(skill.name, skill.description) for skill in index.skills] == [("greet", "Of the project.")]
    assert [skill.source for skill in index.shadowed] == ["project", "user", "builtin"]
    assert told(index) == [
        (
            ".claude/skills/greet/SKILL.md:0: note: the skill 'greet' is shadowed by .skills/greet/SKILL.md "
            "(priority 222 over 220)"
        ),
        (
            "builtin/greet/SKILL.md:0: note: the skill 'greet' is shadowed by .skills/greet/SKILL.md "
            "(priority 222 over 150)"
        ),
        (
            "builtin/greet/SKILL.md:0: note: the skill 'greet' is shadowed by .skills/greet/SKILL.md "
            "(priority 222 over 50)"
        ),
    ]


@pytest.mark.parametrize("place", ["../outside", "/etc", "a/../../outside", "link", "..\\\\outside"])
def test_a_project_names_no_place_outside_of_itself(tmp_path: Path, place: str) -> None:
    write(tmp_path / "outside/SKILL.md")
    project = tmp_path / "project"
    project.mkdir()
    (project / "link").symlink_to(tmp_path / "outside")
    sources = f'"sources": {{"a": {{"type": "builtin", "path": "{place}"}}, "b": {{"type": "builtin", "path": "."}}}}'
    skills = f'"skills": {{"one": {{"path": "{place}"}}, "two": {{"source": "b", "skill_path": "{place}"}}}}'
    (project / "external-skills.json").write_text(f"{{{sources}, {skills}}}", encoding="utf-8")
    index = found(project)
    assert index.skills == ()
    assert sum("is not loaded" in said for said in told(index)) == 3


def test_a_user_names_any_place(tmp_path: Path) -> None:
    write(tmp_path / "outside/SKILL.md")
    (tmp_path / "home/.plan-cascade").mkdir(parents=True)
    own = '{"skills": [{"name": "outside", "path": "../outside"}]}'
    (tmp_path / "home/.plan-cascade/skills.json").write_text(own, encoding="utf-8")
    assert placed(found(tmp_path / "project", home=str(tmp_path / "home"))) == [("outside", "user", 150)]


# Loading again.


def test_an_unchanged_tree_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write(tmp_path / f".skills/{name}/SKILL.md") for name in ("one", "two", "three")]
    loader = SkillLoader(SkillRoots(project=str(tmp_path)))
    first = loader.load()
    assert loader.stats == RefreshStats(files=3, added=3)
    read: list[str] = []

    def reading(path: str) -> bytes:
        read.append(path)
        return Path(path).read_bytes()

    monkeypatch.setattr(skills_files, "read", reading)
    assert loader.load() is first
    assert (read, loader.stats) == ([], RefreshStats(files=3, unchanged=3))

    os.utime(files[0], ns=(1, 1))
    assert loader.load() is first
    assert (read, loader.stats) == ([str(files[0])], RefreshStats(files=3, unchanged=2, touched=1))

    write(files[1], body="Longer than before\n")
    files[2].unlink()
    write(tmp_path / ".skills/four/SKILL.md")
    second = loader.load()
    assert second is not first
    assert loader.stats == RefreshStats(files=3, unchanged=1, changed=1, added=1, removed=1)
    assert sorted(skill.name for skill in second.skills) == ["four", "one", "two"]
    assert second.get("two") != first.get("two")


def test_a_changed_configuration_makes_another_index(tmp_path: Path) -> None:
    write(tmp_path / "mine/SKILL.md")
    place = tmp_path / "external-skills.json"
    place.write_text('{"skills": {"mine": {"path": "mine", "priority": 60}}}', encoding="utf-8")
    loader = SkillLoader(SkillRoots(project=str(tmp_path)))
    assert placed(loader.load()) == [("mine", "external", 60)]
    place.write_text('{"skills": {"mine": {"path": "mine", "priority": 70 }}}', encoding="utf-8")
    assert placed(loader.load()) == [("mine", "external", 70)]
    place.unlink()
    assert placed(loader.load()) == []


# What is left out.


def test_links_that_lead_out_and_loops_are_left_out(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside/secret/SKILL.md")
    project = tmp_path / "project"
    inner = write(project / ".skills/inner/SKILL.md")
    (project / ".skills/out").symlink_to(outside.parent)
    (project / ".skills/out.md").symlink_to(outside)
    (project / ".skills/loop").symlink_to(project / ".skills")
    (project / ".skills/inner/up").symlink_to(project / ".skills")
    (project / ".skills/dangling.md").symlink_to(project / "nothing")
    (project / ".skills/circle").symlink_to(project / ".skills/circle")
    (project / ".skills/alias.md").symlink_to(inner)
    index = found(project)
    assert [skill.name for skill in index.skills] == ["inner"]
    assert [said for said in told(index) if "outside" in said] == [
        ".skills/out:0: warning: the link leads outside of the directory that is searched; it is not followed",
        ".skills/out.md:0: warning: the link leads outside of the directory that is searched; it is not followed",
    ]


def test_a_directory_of_skills_that_is_a_link_out_of_the_project_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "outside/secret/SKILL.md")
    project = tmp_path / "project"
    project.mkdir()
    (project / ".skills").symlink_to(tmp_path / "outside")
    index = found(project)
    assert index.skills == ()
    assert told(index) == [f".skills:0: warning: {skills_files.OUTSIDE}"]
    home = found(project / "none", home=str(project))
    assert [skill.name for skill in home.skills] == ["secret"], "a user's own links are the user's"


def test_depth_and_counts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ".skills"
    for level in range(limits.SKILL_DEPTH_COUNT_MAX + 2):
        deep /= f"d{level}"
        write(deep / "SKILL.md", f"level-{level}")
    index = found(tmp_path)
    assert len(index) == limits.SKILL_DEPTH_COUNT_MAX
    assert sum("SKILL_DEPTH_COUNT_MAX = 8" in said for said in told(index)) >= 1

    monkeypatch.setattr(skills_files, "SKILL_DIRECTORIES_COUNT_MAX", 3)
    assert any("SKILL_DIRECTORIES_COUNT_MAX = 3" in said for said in told(found(tmp_path)))
    monkeypatch.setattr(skills_files, "SKILL_DIRECTORIES_COUNT_MAX", 100)
    monkeypatch.setattr(skills_files, "SKILL_FILES_COUNT_MAX", 2)
    bounded = found(tmp_path)
    assert len(bounded) == 2
    assert any("SKILL_FILES_COUNT_MAX = 2" in said for said in told(bounded))


def test_what_is_no_file_or_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    skills = tmp_path / ".skills"
    write(skills / "good/SKILL.md")
    os.mkfifo(skills / "pipe.md")
    (skills / "directory.md").mkdir()
    (skills / "big.md").write_bytes(b"x" * (limits.SKILL_FILE_BYTES_MAX + 5))
    (skills / os.fsdecode(b"bad\xff.md")).write_bytes(b"x")
    index = found(tmp_path)
    assert [skill.name for skill in index.skills] == ["good"]
    advice = "move parts of it into other files"
    assert told(index) == [
        ".skills/bad\ufffd.md:0: warning: the path is not UTF-8; rename it",
        f".skills/big.md:0: error: the file is over SKILL_FILE_BYTES_MAX = 1,048,576; {advice}",
    ]


@pytest.mark.parametrize("root", ["missing", "file"])
def test_a_root_that_is_no_directory_holds_nothing(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    assert len(found(tmp_path / root)) == 0
    (tmp_path / ".skills").write_text("a file", encoding="utf-8")
    assert len(found(tmp_path)) == 0


# Files beside a skill.

TRAVERSALS = [
    *("", "../etc/passwd", "..", "a/../../b", "/etc/passwd", "..\\..\\windows", "ok\0.md", "a/..", "a\\b"),
    *("./../SKILL.md", "/"),
]


@pytest.mark.parametrize("name", TRAVERSALS)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path / "skill/SKILL.md")
    for call in (
        lambda: skills_files.read_resource(str(tmp_path / "skill"), name),
        lambda: skills_files.write_new(str(tmp_path / "skill"), name, b"x"),
        lambda: skills_files.remove(str(tmp_path / "skill"), name),
    ):
        with pytest.raises(InvalidInput, match="no name below a skill's directory"):
            call()
    assert [path.name for path in tmp_path.rglob("*")] == ["skill", "SKILL.md"]


def test_resources_are_listed_and_read(tmp_path: Path) -> None:
    skill = write(tmp_path / "skill/SKILL.md").parent
    (skill / "references").mkdir()
    (skill / "references/guide.md").write_bytes(b"guide")
    (skill / "run.sh").write_bytes(b"#!/bin/sh\n")
    (skill / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "secret").write_bytes(b"secret")
    (skill / "out").symlink_to(tmp_path / "secret")
    assert skills_files.resources(str(skill), without="SKILL.md") == ("references/guide.md", "run.sh")
    assert skills_files.read_resource(str(skill), "references/guide.md") == b"guide"
    for name, error in (
        ("none", NotFound),
        ("%2e%2e%2fsecret", NotFound),
        ("out", InvalidInput),
        ("passwd", InvalidInput),
    ):
        with pytest.raises(error):
            skills_files.read_resource(str(skill), name)
    (skill / "big").write_bytes(b"x" * (limits.SKILL_FILE_BYTES_MAX + 1))
    with pytest.raises(LimitExceeded, match="SKILL_FILE_BYTES_MAX"):
        skills_files.read_resource(str(skill), "big")


def test_a_file_is_written_once_whole_and_removed_with_its_directory(tmp_path: Path) -> None:
    root = str(tmp_path / "skills")
    path = skills_files.write_new(root, "greet/SKILL.md", b"first")
    assert Path(path).read_bytes() == b"first"
    with pytest.raises(InvalidInput, match="is there already"):
        skills_files.write_new(root, "greet/SKILL.md", b"second")
    assert [entry.name for entry in Path(path).parent.iterdir()] == ["SKILL.md"]
    assert Path(path).read_bytes() == b"first"
    (tmp_path / "skills/greet/kept.txt").write_bytes(b"x")
    skills_files.remove(root, "greet/SKILL.md")
    assert (tmp_path / "skills/greet/kept.txt").exists()
    (tmp_path / "skills/greet/kept.txt").unlink()
    skills_files.write_new(root, "greet/SKILL.md", b"third")
    skills_files.remove(root, "greet/SKILL.md")
    assert not (tmp_path / "skills/greet").exists()
    with pytest.raises(NotFound):
        skills_files.remove(root, "greet/SKILL.md")


def test_nothing_is_written_through_a_link_or_onto_a_file(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/greet").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidInput, match="leads outside"):
        skills_files.write_new(str(tmp_path / "skills"), "greet/SKILL.md", b"x")
    (tmp_path / "skills/file").write_bytes(b"x")
    with pytest.raises((StoreError, InvalidInput)):
        skills_files.write_new(str(tmp_path / "skills"), "file/SKILL.md", b"x")
    assert list((tmp_path / "outside").iterdir()) == []
