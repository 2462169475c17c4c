"""The tree keeps the rules of tools/tidy.py, and each rule catches what it is for."""

from pathlib import Path

import pytest
import tidy

from tests.support.paths import ROOT

# The smallest tree that keeps every rule; each test breaks it at one place.
CLEAN_TREE = {
    "pyproject.toml": '[project.scripts]\nrefold = "refold.cli:main"\n',
    "README.md": "# refold\n",
    "engine/FORMAT.md": "| tag | event |\n| 1 | `NoteAdded` |\n",
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
    "engine/refold/cli/__init__.py": (
        '"""The command line."""\n\n\ndef main() -> None:\n    """Print."""\n    print(1)\n'
    ),
    "tests/golden/note_added.json": '{"plain": "00", "erased": "01"}\n',
}

NOTES = "engine/refold/views/notes.py"
LIMITS = "engine/refold/limits.py"
SECOND_EVENT = '\n\nclass NoteRead(Event, tag=2):\n    """A note was read."""\n'

# What is broken: the rule, the file, the text that is replaced there, and its replacement. An empty text means the end.
VIOLATIONS = [
    ("module-length", NOTES, "", "\n" * tidy.MODULE_LINES_MAX),
    ("function-length", NOTES, "", "\n\ndef _long() -> None:\n" + "    pass\n" * tidy.FUNCTION_LINES_MAX),
    ("ascii-source", NOTES, "", "# caf\N{LATIN SMALL LETTER E WITH ACUTE}\n"),
    ("left-over", NOTES, "", "# TO" + "DO: later\n"),
    ("left-over", NOTES, "", "# FIX" + "ME: later\n"),
    ("debugging", NOTES, "", "print(1)\n"),
    ("debugging", "engine/refold/cli/__init__.py", "", "breakpoint()\n"),
    ("docstring", NOTES, '"""Notes."""\n', ""),
    ("docstring", NOTES, '"""Notes."""', '"""Notes"""'),
    ("docstring", NOTES, "", "\n\ndef public() -> None:\n    pass\n"),
    ("docstring", NOTES, "", '\n\nclass Public:\n    """A class."""\n\n    def method(self) -> None: ...\n'),
    ("limit-unit", LIMITS, "NOTE_BYTES_MAX", "NOTE_SIZE_MAX"),
    ("limit-unit", LIMITS, "", "MAX = 4\n"),
    ("limit-unused", LIMITS, "", "PAGE_BYTES_MAX = 4\n"),
    ("event-name", NOTES, "NoteAdded", "NoteAdd"),
    ("docstring", NOTES, '    """A note was added."""\n', ""),
    ("event-tag", NOTES, "tag=1", 'tag="note"'),
    ("event-tag", NOTES, "", SECOND_EVENT.replace("tag=2", "tag=1")),
    ("event-tag", NOTES, "", SECOND_EVENT.replace("tag=2", "tag=1").replace("Event", "NoteAdded")),
    ("event-format", "engine/FORMAT.md", "| 1 |", "| 2 |"),
    ("event-golden", NOTES, "", SECOND_EVENT),
    ("event-golden", "tests/golden/note_added.json", ', "erased": "01"', ""),
    ("orphan", "engine/refold/__init__.py", "refold.views.notes", "refold.views"),
    ("orphan", "pyproject.toml", "refold.cli", "refold.other"),
    ("banned-text", "README.md", "", "See /" + "work/main.\n"),
    ("banned-text", "README.md", "", "From pypi" + ".org.\n"),
]


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_this_tree_is_tidy() -> None:
    assert [str(finding) for finding in tidy.findings(ROOT)] == []


def test_the_clean_tree_is_tidy(tmp_path: Path) -> None:
    write_tree(tmp_path, CLEAN_TREE)
    assert tidy.findings(tmp_path) == []


@pytest.mark.parametrize(("rule", "name", "text", "replacement"), VIOLATIONS)
def test_a_violation_is_caught(tmp_path: Path, rule: str, name: str, text: str, replacement: str) -> None:
    before = CLEAN_TREE[name]
    assert text in before
    after = before.replace(text, replacement) if text else before + replacement
    write_tree(tmp_path, CLEAN_TREE | {name: after})
    found = {(finding.rule, finding.path.as_posix()) for finding in tidy.findings(tmp_path)}
    assert rule in {found_rule for found_rule, _ in found}


def test_every_rule_has_a_violation_above() -> None:
    source = Path(tidy.__file__).read_text(encoding="utf-8")
    names = {"module-length", "function-length", "ascii-source", "left-over", "debugging", "docstring", "orphan"}
    names |= {"limit-unit", "limit-unused", "banned-text"}
    names |= {"event-name", "event-tag", "event-format", "event-golden"}
    assert {rule for rule, *_ in VIOLATIONS} == names
    assert all(f'"{name}"' in source for name in names)


def test_the_docstring_of_a_function_is_not_counted(tmp_path: Path) -> None:
    words = "    words\n" * tidy.FUNCTION_LINES_MAX
    function = f'\n\ndef _explained() -> None:\n    """Explain.\n\n{words}    """\n'
    write_tree(tmp_path, CLEAN_TREE | {NOTES: CLEAN_TREE[NOTES] + function})
    assert tidy.findings(tmp_path) == []


@pytest.mark.parametrize("statement", ["from refold import event", "import refold.event", "from . import event"])
def test_every_form_of_import_reaches_a_module(tmp_path: Path, statement: str) -> None:
    notes = CLEAN_TREE[NOTES].replace("from ..event import Event", "from ..limits import Event")
    importer = f'"""The package."""\n\n{statement}\n\n_HOMES = {{"Note": ".views.notes"}}\n'
    write_tree(tmp_path, CLEAN_TREE | {NOTES: notes, "engine/refold/__init__.py": importer})
    assert tidy.findings(tmp_path) == []


def test_a_finding_says_where_and_what_to_do() -> None:
    finding = tidy.Finding(Path("engine/refold/text.py"), 3, "left-over", "finish it")
    assert str(finding) == "engine/refold/text.py:3: left-over: finish it"
