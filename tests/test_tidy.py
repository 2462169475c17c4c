"""The tree keeps the rules of tools/tidy.py, and each rule catches what it is for."""

import re
from pathlib import Path

import pytest
import tidy

from tests.support.paths import ROOT

# The smallest tree that keeps every rule; each test breaks it at one place.
CLEAN_TREE = {
    "pyproject.toml": '[project.scripts]\nrefold = "refold.cli:main"\n',
    "README.md": "# refold\n",
    "engine/refold/__init__.py": '"""The package."""\n\n_HOMES = {"Note": "refold.views.notes"}\n',
    "engine/refold/limits.py": '"""Bounds."""\n\nNOTE_BYTES_MAX = 4\n',
    "engine/refold/event.py": '"""Events."""\n\n\nclass Event:\n    """The base."""\n',
    "engine/refold/views/__init__.py": '"""Views."""\n',
    "engine/refold/views/notes.py": (
        '"""Notes."""\n\n'
        "from ..event import Event\n"
        "from ..limits import NOTE_BYTES_MAX\n\n\n"
        "class NoteAdded(Event, tag=1):\n"
        '    """A note was added."""\n\n'
        "    bytes_max = NOTE_BYTES_MAX\n"
    ),
    "engine/refold/cli/__init__.py": '"""The command line."""\n',
}

NOTES = "engine/refold/views/notes.py"
LIMITS = "engine/refold/limits.py"
SECOND_EVENT = '\n\nclass NoteRead(Event, tag=2):\n    """A note was read."""\n'

# What is broken: the rule, the file, the text that is replaced there, and its replacement. An empty text means the end.
VIOLATIONS = [
    ("module-length", NOTES, "", "\n" * tidy.MODULE_LINES_MAX),
    ("function-length", NOTES, "", "\n\ndef _long() -> None:\n" + "    pass\n" * tidy.FUNCTION_LINES_MAX),
    ("limit-unit", LIMITS, "NOTE_BYTES_MAX", "NOTE_SIZE_MAX"),
    ("limit-unit", LIMITS, "", "MAX = 4\n"),
    ("event-name", NOTES, "NoteAdded", "NoteAdd"),
    ("event-tag", NOTES, "tag=1", 'tag="note"'),
    ("event-tag", NOTES, "", SECOND_EVENT.replace("tag=2", "tag=1")),
    ("event-tag", NOTES, "", SECOND_EVENT.replace("tag=2", "tag=1").replace("Event", "NoteAdded")),
    ("class-name", LIMITS, "", '\n\nclass _NoteAdded:\n    """Another one."""\n'),
    ("function-name", NOTES, "", "\n\ndef _joined() -> None:\n    pass\n"),
    ("function-name", NOTES, "", "\n\nasync def told() -> None:\n    pass\n"),
    ("file-name", "engine/refold/joining.py", "", '"""Joins."""\n'),
    ("orphan", "engine/refold/__init__.py", "refold.views.notes", "refold.views"),
    ("orphan", "engine/refold/other.py", "", '"""Nobody imports it."""\n'),
    ("banned-text", "README.md", "", "See /" + "work/main.\n"),
    ("banned-text", "README.md", "", "From pypi" + ".org.\n"),
]


def findings(root: Path, **changed: str) -> set[str]:
    for name, text in {**CLEAN_TREE, **changed}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return {finding.rule for finding in tidy.findings(root)}


def test_this_tree_is_tidy() -> None:
    assert [str(finding) for finding in tidy.findings(ROOT)] == []


def test_the_clean_tree_is_tidy(tmp_path: Path) -> None:
    assert findings(tmp_path) == set()


@pytest.mark.parametrize(("rule", "name", "text", "replacement"), VIOLATIONS)
def test_a_violation_is_caught(tmp_path: Path, rule: str, name: str, text: str, replacement: str) -> None:
    before = CLEAN_TREE.get(name, "")
    assert text in before
    after = before.replace(text, replacement) if text else before + replacement
    assert rule in findings(tmp_path, **{name: after})


def test_every_rule_has_a_violation_above() -> None:
    rules = re.findall(r'"([a-z]+(?:-[a-z]+)?)", advice', Path(tidy.__file__).read_text(encoding="utf-8"))
    assert {rule for rule, *_ in VIOLATIONS} == {*rules, "banned-text"}


def test_the_docstring_of_a_function_is_not_counted(tmp_path: Path) -> None:
    words = "    words\n" * tidy.FUNCTION_LINES_MAX
    function = f'\n\ndef _explain() -> None:\n    """Explain.\n\n{words}    """\n'
    assert findings(tmp_path, **{NOTES: CLEAN_TREE[NOTES] + function}) == set()


@pytest.mark.parametrize("statement", ["from refold import event", "import refold.event", "from . import event"])
def test_every_form_of_import_reaches_a_module(tmp_path: Path, statement: str) -> None:
    notes = CLEAN_TREE[NOTES].replace("from ..event import Event", "from ..limits import Event")
    importer = f'"""The package."""\n\n{statement}\n\n_HOMES = {{"Note": ".views.notes"}}\n'
    assert findings(tmp_path, **{NOTES: notes, "engine/refold/__init__.py": importer}) == set()
