"""The verbs of skills on the command line, on a small project."""

import os
from pathlib import Path

import pytest

from refold import Memory
from refold.cli import skills
from refold.skills import SkillRoots, library_of, skills_of
from refold.skills.format import PHASES, SOURCES
from refold.views.skills import STATUSES
from tests.support.command import Run, running

pytest.importorskip("yaml", reason="PyYAML is not installed")


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""
    return running(monkeypatch, capfd)


@pytest.fixture
def project(tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that is the current directory, a home, and a store, which the environment names."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("REFOLD_DB", str(tmp_path / "store"))
    root = tmp_path / "project"
    files = {
        "home/.claude/skills/mine/SKILL.md": "---\nname: mine\ndescription: Of the user.\n---\nBody\n",
        "project/.skills/deploy/SKILL.md": (
            "---\nname: deploy\ndescription: Deploy to production.\nversion: 1.10\nhooks:\n  Stop:\n"
            "    - hooks:\n        - type: command\n          command: rm -rf /\n---\nAsk \x1b[31mfirst.\n"
        ),
        "project/.skills/broken/SKILL.md": "---\nname: [\n---\n",
        "project/.skills/deploy/checks.md": "Twice.\n",
        "project/rules/SKILL.md": "---\nname: rules\ndescription: Rules.\n---\nRule.\n",
        "project/go.mod": "module x\n",
        "project/external-skills.json": '{"skills": {"rules": {"path": "rules", "detect": {"files": ["go.mod"]}}}}',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(root)
    with Memory(tmp_path / "store") as memory:
        library_of(memory).learn("release", "Make a release.", "Tag it.\n", tags=["git"])
        library_of(memory).use("deploy", succeeded=True)
    assert refold("skills", "overview").code == 0
    return root


VERBS = [
    ("list",),
    ("show", "deploy"),
    ("validate", ".skills/deploy"),
    ("select", "deploy"),
    ("search", "deploy"),
    ("detect",),
    ("new", "greet", "--description", "Say hello."),
    ("edit", "deploy", "--description", "Deploy it."),
    ("note", "deploy", "Ask Bob."),
    ("toggle", "deploy"),
    ("review", "release", "active"),
    ("delete", "deploy"),
    ("overview",),
    ("export", "release"),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb[0]))
def test_every_verb_speaks_json_and_has_help(project: Path, refold: Run, verb: tuple[str, ...]) -> None:
    assert project.is_dir()
    ended = refold("skills", *verb, "--json")
    assert ended.code == (1 if verb[0] == "validate" else 0)
    assert isinstance(ended.json, dict)
    shown = refold("skills", verb[0], "--help")
    assert shown.code == 0
    assert "--json" in shown.out
    assert refold("skills", *verb, "--nonsense").code == 2


def test_the_choices_of_the_help_are_those_of_the_skills() -> None:
    assert skills._SOURCES == SOURCES
    assert skills._PHASES == PHASES
    assert skills._STATUSES == STATUSES


@pytest.mark.usefixtures("project")
def test_the_list_is_of_every_source(refold: Run) -> None:
    listed = refold("skills", "list")
    assert listed.out.splitlines() == [
        "  deploy  project 222  Deploy to production.",
        "  mine  user 150  Of the user.",
        "* rules  external 100  Rules.",
    ]
    assert "broken/SKILL.md:3: error: Invalid YAML in frontmatter" in listed.err
    assert refold("skills", "list", "--no-home", "--source", "user").out == ""
    refold("skills", "review", "release", "active")
    assert [skill["name"] for skill in refold("skills", "list", "--json").json["skills"]][1:2] == ["release"]
    assert "release" not in refold("skills", "list", "--db", "").out, "without a store nothing was learned"


@pytest.mark.usefixtures("project")
def test_a_skill_is_shown_without_what_steers_a_terminal_and_its_hooks_are_not_run(refold: Run) -> None:
    shown = refold("skills", "show", "deploy")
    assert "Ask \\x1b[31mfirst." in shown.out
    assert "hooks (never run): at the end: rm -rf /" in shown.out
    assert "file: checks.md" in shown.out
    assert "used: 1 time, last at 2" in shown.out
    assert "success rate 1.00" in shown.out
    document = refold("skills", "show", "deploy", "--json").json
    assert (document["version"], document["resources"], document["success_rate"]) == ("1.10", ["checks.md"], 1.0)
    missing = refold("skills", "show", "none")
    assert (missing.code, missing.out) == (1, "")
    assert missing.err.startswith("refold: there is no skill 'none'")


@pytest.mark.usefixtures("project")
def test_files_are_validated(refold: Run) -> None:
    ended = refold("skills", "validate")
    assert ended.code == 1
    assert "Unexpected fields in frontmatter: hooks, version." in ended.out
    assert "Invalid YAML in frontmatter" in ended.out
    assert refold("skills", "validate", "rules", "--json").json == {
        "valid": True,
        "files": [{"path": "rules/SKILL.md", "valid": True, "errors": [], "remarks": []}],
    }
    assert refold("skills", "validate", "nowhere").code == 2


@pytest.mark.usefixtures("project")
def test_skills_are_selected(refold: Run) -> None:
    assert refold("skills", "select", "deploy it").out.splitlines() == [
        " 100.000  auto_detected rules",
        "   1.565  lexical       deploy",
    ]
    matches = refold("skills", "select", "x", "--force", "mine", "--top-k", "0", "--json").json["matches"]
    assert [(match["skill"]["name"], match["match_reason"]) for match in matches] == [("mine", "user_forced")]
    assert "### rules\n*Source: external | Priority: 100*" in refold("skills", "select", "x", "--inject").out
    assert refold("skills", "select", "x", "--ranking", "none").code == 1


def test_a_skill_is_made_switched_and_deleted(project: Path, refold: Run) -> None:
    made = refold("skills", "new", "greet", "--description", "Say hello.", "--tag", "manners")
    assert made.out == "wrote .skills/greet/SKILL.md\n"
    assert refold("skills", "validate", ".skills/greet").code == 0
    assert refold("skills", "new", "greet", "--description", "x").code == 1
    assert refold("skills", "toggle", "greet").out == "greet is off\n"
    assert refold("skills", "toggle", "greet", "--off", "--json").json == {
        "name": "greet",
        "enabled": False,
        "changed": False,
    }
    assert "- greet" in refold("skills", "list").out
    assert "greet" not in refold("skills", "list", "--enabled").out
    assert refold("skills", "delete", "greet").code == 0
    assert not (project / ".skills/greet").exists()
    assert refold("skills", "delete", "mine").code == 1
    assert refold("skills", "toggle", "greet", "--db", "").code == 2


def test_a_skill_is_edited_and_noted(project: Path, refold: Run) -> None:
    (project / "body.md").write_text("Ask twice.\n", encoding="utf-8")
    edited = refold("skills", "edit", "deploy", "--description", "Deploy it.", "--tag", "ops", "--body", "body.md")
    assert edited.out == "edited .skills/deploy/SKILL.md\n"
    text = (project / ".skills/deploy/SKILL.md").read_text(encoding="utf-8")
    assert '\ndescription: "Deploy it."\nversion: 1.10\nhooks:\n' in text
    assert text.endswith("---\nAsk twice.\n")
    assert refold("skills", "note", "deploy", "Ask\x1b[31m Bob.").out == "noted on deploy\n"
    assert "note: Ask\\x1b[31m Bob.\n" in refold("skills", "show", "deploy").out
    assert "Note of the user: Ask" in refold("skills", "select", "deploy it", "--inject").out
    log = refold("log", "--json").out
    assert "Ask twice." not in log
    assert log.count("skill_edited") == 1
    assert refold("skills", "note", "deploy", "").out == "deploy has no note\n"
    assert "note:" not in refold("skills", "show", "deploy").out
    assert refold("skills", "edit", "release", "--body", "body.md").out.startswith("edited library/")
    assert refold("skills", "show", "release", "--json").json["status"] == "pending_review"
    assert refold("skills", "edit", "mine", "--description", "x").code == 1
    assert refold("skills", "note", "none", "x").code == 1
    assert refold("skills", "note", "deploy", "x", "--db", "").code == 2


@pytest.mark.usefixtures("project")
def test_each_project_may_have_a_library_of_its_own(refold: Run) -> None:
    of_api = ("--library", "acme/api")
    assert refold("skills", "toggle", "deploy", *of_api).out == "deploy is off\n"
    assert "- deploy" in refold("skills", "list", *of_api).out
    assert "  deploy" in refold("skills", "list").out
    assert refold("skills", "list", "--learned", "any", *of_api).out == ""


def test_what_was_learned_is_reviewed_exported_and_deleted(project: Path, refold: Run) -> None:
    assert refold("skills", "overview", "--json").json["learned"] == {"pending_review": 1}
    assert refold("skills", "export", "release").code == 0
    assert (project / ".skills/release/SKILL.md").read_text(encoding="utf-8").endswith("---\nTag it.\n")
    assert refold("skills", "export", "release", "--to", "elsewhere").code == 0
    assert refold("skills", "validate", "elsewhere").code == 0
    (project / ".skills/release/SKILL.md").unlink()
    assert refold("skills", "delete", "release").out.startswith("deleted library/")
    assert refold("skills", "delete", "release").code == 1
    assert refold("skills", "overview").out.splitlines()[0] == "total: 3"


def test_the_overview_names_each_problem_that_it_counts(project: Path, refold: Run) -> None:
    (project / "CLAUDE.md").write_bytes(b"Say \xff.\n")
    with Memory() as memory:
        found = skills_of(memory, SkillRoots(project=str(project))).diagnostics()
    assert {problem.severity for problem in found} >= {"error", "warning"}
    lines = refold("skills", "overview").out.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("diagnostics: "))
    assert lines[place + 1 : place + 1 + len(found)] == [f"    {problem}" for problem in found]
    document = refold("skills", "overview", "--json").json
    assert [problem["reason"] for problem in document["problems"]] == [problem.reason for problem in found]
    assert sum(document["diagnostics"].values()) == len(found)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("verb", [("list",), ("overview",), ("toggle", "deploy")])
def test_a_store_that_is_not_there_is_no_reason_to_import_one(refold: Run, verb: tuple[str, ...]) -> None:
    ended = refold("skills", *verb, "--db", "new")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("refold: there is no store at new; ")
    assert "import" not in ended.err
    assert "create one with Memory('new') in Python" in ended.err
    assert ("to use the skill files alone" in ended.err) is (verb[0] != "toggle")
    assert not Path("new").exists()


@pytest.mark.usefixtures("project")
def test_what_waits_for_its_review_can_be_found_and_read(refold: Run) -> None:
    assert "release" not in refold("skills", "list").out
    assert refold("skills", "list", "--learned", "pending_review").out == (
        "  release  pending_review  Make a release.\n"
    )
    learned = refold("skills", "list", "--learned", "any", "--json").json["learned"]
    assert [(skill["name"], skill["status"]) for skill in learned] == [("release", "pending_review")]
    assert refold("skills", "list", "--learned", "rejected").out == ""
    shown = refold("skills", "show", "release")
    assert "Tag it." in shown.out
    assert "generated, priority 201, pending_review" in shown.out
    assert refold("skills", "show", "release", "--json").json["status"] == "pending_review"
    assert refold("skills", "show", "deploy", "--json").json["status"] is None


def test_what_is_no_text_is_an_error_and_not_a_crash(project: Path, refold: Run) -> None:
    (project / "body.md").write_bytes(b"a\xff")
    ended = refold("skills", "new", "greet", "--description", "Say hello.", "--body", project / "body.md")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("refold: ")
    assert "UTF-8" in ended.err
    assert not (project / ".skills/greet").exists()
    odd = project / os.fsdecode(b"bad\xff/SKILL.md")
    odd.parent.mkdir()
    odd.write_text("---\nname: odd\ndescription: d\n---\n", encoding="utf-8")
    checked = refold("skills", "validate", odd, "--json")
    assert checked.code == 1
    assert checked.json["files"][0]["path"].endswith("bad\ufffd/SKILL.md")


def test_a_check_of_nothing_is_no_success(project: Path, refold: Run) -> None:
    (project / "empty").mkdir()
    os.mkfifo(project / "pipe.md")
    for path in ("empty", "pipe.md"):
        ended = refold("skills", "validate", path)
        assert ended.code == 1
        assert "no skill file" in ended.err
    assert refold("skills", "validate", "empty", "--json").code == 1


@pytest.mark.usefixtures("project")
def test_a_project_that_is_not_there_is_wrong_usage(refold: Run) -> None:
    for verb in (("list",), ("new", "greet", "--description", "d")):
        ended = refold("skills", *verb, "--project", "nowhere")
        assert ended.code == 2
        assert "nowhere" in ended.err
