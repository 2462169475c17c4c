"""What is written about refold holds: pages and docstrings run, and the tables of FORMAT.md are those of the code."""

import doctest
import importlib
import pkgutil
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import msgspec
import pytest
import run_blocks

import refold
from refold import Memory, Snapshot, event, fold, limits
from refold.log import protocol, record, witness
from tests.rigs.test_tamper import TABLE
from tests.support.paths import ROOT

ENGINE = ROOT / "engine"
SOURCE = ENGINE / "refold"
PAGES = ("README.md", "engine/TUTORIAL.md", "engine/FORMAT.md")
FORMAT = (ENGINE / "FORMAT.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks.run_file(ROOT / name) > 0


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_says_its_language(name: str) -> None:
    fences = re.findall(r"^```(.*)$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    # In turn an opening and a closing fence; a drawing has no language and no prompt.
    assert set(fences[::2]) <= {"python", "pycon", "sh", ""}
    assert set(fences[1::2]) <= {""}
    assert len(fences) % 2 == 0


@pytest.mark.parametrize(
    "page",
    sorted([ROOT / "README.md", *ENGINE.glob("*.md"), *(ENGINE / "docs").glob("*.md")]),
    ids=lambda path: path.name,
)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).is_file()] == []


# Docstrings.


def module_names() -> list[str]:
    """Every module of the package in whose source an example stands."""
    paths = (path for path in sorted((ENGINE / "refold").rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8"))
    return [".".join(path.relative_to(ENGINE).with_suffix("").parts).removesuffix(".__init__") for path in paths]


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    """The docstrings with examples; those of a conversation's verbs go on from a `chat` with one message."""
    chat = Memory().conversation("chat-42")
    chat.append("user", "Hello!", tokens=2)
    found = doctest.DocTestFinder().find(module, extraglobs={"chat": chat, "project": Memory().project("acme")})
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", module_names())
def test_the_examples_of_a_module_hold(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runner = doctest.DocTestRunner()
    for test in examples_of(importlib.import_module(name)):
        runner.run(test)
    results = runner.summarize(verbose=False)
    assert results.attempted > 0
    assert results.failed == 0, capsys.readouterr().out


def test_the_public_handles_have_examples() -> None:
    documented = {test.name for name in module_names() for test in examples_of(importlib.import_module(name))}
    handles = ("memory.memory.Memory", "memory.conversation.Conversation", "memory.project.Project")
    assert {
        f"refold.{handle}"
        for handle in (*handles, "memory.handles.Profile", "memory.handles.Journal", "memory.snapshot.Snapshot")
    } <= (documented)


# FORMAT.md against the code.


def table_after(text: str, first_cell: str, second_cell: str) -> list[list[str]]:
    """The rows of the table whose head begins with these two cells, without its code marks."""
    lines = iter(text.splitlines())
    for line in lines:
        if cells_of(line)[:2] == [first_cell, second_cell]:
            next(lines)
            return list(rows_of(lines))
    raise AssertionError(f"there is no table with the columns {first_cell} and {second_cell}")


def rows_of(lines: Iterator[str]) -> Iterator[list[str]]:
    """The rows up to the end of the table."""
    for line in lines:
        if not line.startswith("|"):
            return
        yield cells_of(line)


def cells_of(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")] if line[:1] == "|" else []


def section(title: str) -> str:
    """The text under a heading of FORMAT.md."""
    return FORMAT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def layout(packed: str) -> list[tuple[int, int]]:
    """The offset and size of each field of a struct format."""
    codes = re.findall(r"\d*[a-zA-Z]", packed)
    places: list[tuple[int, int]] = []
    for code in codes:
        size = struct.calcsize(f">{code}")
        places.append((sum(size for _, size in places), size))
    return places


def test_the_header_is_the_documented_one() -> None:
    rows = table_after(section("The record"), "offset", "bytes")
    places = layout(record.HEADER.format)
    assert [(int(offset), int(size), name) for offset, size, name, _ in rows] == [
        (*place, name) for place, name in zip(places, record.Header._fields, strict=True)
    ]
    assert (record.HEADER_BYTES, record.ARRAY_BEGIN) == (106, 122)
    assert [int(offset) for offset, _, name, _ in rows if name == "flags"] == [record.FLAGS_BEGIN]
    assert "The first 40 bytes of the header, up to and including the tag," in FORMAT
    assert record.STAMP.size == 40


def test_the_commit_row_is_the_documented_one() -> None:
    rows = table_after(section("The commit row and the chain"), "offset", "bytes")
    assert [(int(offset), int(size), name) for offset, size, name, _ in rows] == [
        (*place, name) for place, name in zip(layout(record.COMMIT.format), record.CommitRow._fields, strict=True)
    ]


def test_the_witness_is_the_documented_one() -> None:
    rows = table_after(section("The witness"), "offset", "bytes")
    assert [(int(offset), int(size)) for offset, size, *_ in rows] == layout(witness.SLOT.format)
    assert [name for *_, name, _ in rows] == ["magic", "format", "", *witness.Witnessed._fields, "checksum"]
    assert f"{2 * witness.SLOT_BYTES:,} bytes: a slot at byte 0 and one at byte {witness.SLOT_BYTES:,}" in FORMAT


def test_the_tampering_that_is_seen_is_the_documented_one() -> None:
    words = {"r": "reading", "v": "verify", "-": "not seen"}
    alone = [TABLE[name] for name in ("CarelessAlone", "TidyAlone", "RelinkingAlone")]
    expected = [[words[letters[place]] for letters in alone] for place in range(9)]
    rows = table_after(section("What tampering shows"), "edit", "rows changed, nothing else")
    assert [row[1:4] for row in rows] == expected
    witnessed = [TABLE[name] for name in ("Careless", "Tidy", "Relinking")]
    assert [row[4] == "seen" for row in rows] == [all(row[place] != "-" for row in witnessed) for place in range(9)]


def test_the_flags_are_the_documented_ones() -> None:
    documented = {name: int(bit) for bit, name, _ in table_after(FORMAT, "flag", "name")}
    assert documented == {name: value for name, value in vars(event).items() if name.startswith("FLAG_")}


def test_the_tables_are_the_documented_ones() -> None:
    documented = [row[0] for row in table_after(FORMAT, "table", "key")]
    assert sorted(documented) == sorted([*protocol.TABLES, "commits", "log"])


def test_the_kinds_of_stream_are_the_documented_ones() -> None:
    documented = {kind: views.split(", ") for kind, _, views in table_after(FORMAT, "kind", "name")}
    assert documented == {name: [view.name for view in kind.views] for name, kind in fold.KINDS.items()}


def test_the_views_are_the_documented_ones() -> None:
    names = {view.name for kind in fold.KINDS.values() for view in kind.views}
    packed = {name for row in table_after(FORMAT, "view", "packed") for name in row[0].split(", ")}
    hashed = {row[0] for row in table_after(FORMAT, "view", "logical content")}
    assert packed == names
    assert hashed == names - {"actors", "settings", "switches"}


def documented_fields(cell: str) -> list[tuple[str, str]]:
    """The names and types of a cell of the table of events."""
    pairs = (item.partition(": ") for item in cell.split("; ") if item)
    return [(name, kind) for name, _, kind in pairs]


def type_name(kind: Any) -> str:
    """A type as FORMAT.md writes it."""
    shown = kind.__name__ if isinstance(kind, type) else str(kind).replace(" | ", " or ").replace("refold.event.", "")
    return "Role" if shown.startswith("typing.Literal") else shown


def test_the_events_are_the_documented_ones() -> None:
    rows = table_after(section("Events"), "tag", "class")
    assert [(int(tag), name) for tag, name, *_ in rows] == [
        (tag, kind.__name__) for tag, kind in sorted(fold.EVENT_TYPES.items())
    ]


@pytest.mark.parametrize("tag", sorted(fold.EVENT_TYPES))
def test_the_fields_of_an_event_are_the_documented_ones(tag: int) -> None:
    kind = fold.EVENT_TYPES[tag]
    row = next(row for row in table_after(section("Events"), "tag", "class") if row[0] == str(tag))
    _, _, public_name, structural, body = row
    fields = [(field.name, type_name(field.type)) for field in msgspec.structs.fields(kind)]
    kept = len(fold.STRUCTURAL[kind])
    assert public_name == fold.NAMES[kind]
    assert fields[0] == ("sources", "tuple[int, ...]")
    assert documented_fields(structural) == fields[1:kept]
    assert documented_fields(body) == fields[kept:]


def test_the_imported_parts_are_the_documented_ones() -> None:
    for part in (event.ImportedMessage, event.ImportedBody):
        shown = f"`[{', '.join(part.__struct_fields__)}]`"
        assert f"`{part.__name__}` is\n{shown}" in FORMAT or f"`{part.__name__}` is {shown}" in FORMAT


def test_the_keys_of_meta_are_the_documented_ones(tmp_path: Path) -> None:
    import lmdb

    with Memory(tmp_path / "source") as source:
        source.conversation("a").append("user", "Hello.")
        source.export(tmp_path / "export.jsonl")
    with Memory(tmp_path / "target") as target:
        target.load(tmp_path / "export.jsonl")
        target.profile().set("theme", "dark")
        target.load(tmp_path / "export.jsonl", rename={"conversation/a": "conversation/b"})
    with lmdb.open(str(tmp_path / "target"), max_dbs=16, readonly=True) as env:
        meta = env.open_db(b"meta", create=False)
        with env.begin() as transaction:
            keys = {bytes(key).decode() for key, _ in transaction.cursor(meta)}
    assert keys == {row[0] for row in table_after(FORMAT, "key in `meta`".replace("`", ""), "value")}


def test_snapshot_bytes_are_the_documented_ones() -> None:
    rows = table_after(section("Snapshot bytes"), "offset", "bytes")
    chat = Memory().conversation("a")
    chat.scratchpad.set("name", "Alice")
    rendered = chat.snapshot().to_bytes()
    assert [(int(offset), size) for offset, size, _ in rows] == [(0, "8"), (8, "1"), (9, "32"), (41, "rest")]
    assert rendered[:8].decode() == rows[0][2]
    assert rendered[8] == 1
    _, stream, seq, tokens, state = msgspec.msgpack.decode(rendered[41:])
    assert (stream, seq, tokens, state[0]) == ("conversation/a", 2, 0, fold.TAGS[event.StateImported])
    assert Snapshot.from_bytes(rendered).seq == 2


# README.md and ARCHITECTURE.md against the tree.


def test_the_verbs_of_the_command_line_are_the_documented_ones() -> None:
    pytest.importorskip("click", reason="the command line needs the extra refold[cli]")
    commands = importlib.import_module("refold.cli.root").cli.commands
    importlib.import_module("refold.cli.commands")
    rows = table_after((ROOT / "README.md").read_text(encoding="utf-8"), "verb", "does")
    assert sorted(row[0].split()[0] for row in rows) == sorted(commands)


@pytest.mark.parametrize(
    ("page", "phrase", "value"),
    [
        ("docs/internals.md", "at every {}th event", limits.CHECKPOINT_EVENTS),
        ("docs/internals.md", "the tail exceeds {:,} events", limits.TAIL_EVENTS_MAX),
        ("docs/internals.md", "the last {} states are kept", limits.FROZEN_STATES_MAX),
        ("docs/internals.md", "forks are at most {} deep", limits.BASE_DEPTH_MAX),
        ("docs/internals.md", "the log: every {} ms it reads the file", limits.WITNESS_MS),
        ("FORMAT.md", "an id of 1 to {} bytes", limits.NAME_BYTES_MAX),
        ("FORMAT.md", "at most {} MiB", limits.VALUE_BYTES_MAX // 2**20),
        ("FORMAT.md", "Values of up to {} characters", limits.INLINE_BYTES_MAX),
        ("FORMAT.md", "at every {}th event", limits.CHECKPOINT_EVENTS),
        ("TUTORIAL.md", "at most {} of the stream", limits.CHECKPOINT_EVENTS),
        ("TUTORIAL.md", "The last {} such states", limits.FROZEN_STATES_MAX),
        ("TUTORIAL.md", "may be {} deep", limits.BASE_DEPTH_MAX),
        ("TUTORIAL.md", "of other processes every {} ms", limits.POLL_MS),
        ("TUTORIAL.md", "pages of at most {} events are read", limits.PAGE_EVENTS),
        ("docs/internals.md", "number every {} ms", limits.POLL_MS),
    ],
)
def test_a_bound_that_a_page_names_is_the_one_of_the_code(page: str, phrase: str, value: int) -> None:
    words = " ".join((ENGINE / page).read_text(encoding="utf-8").split())
    assert phrase.format(value) in words


def test_the_version_has_an_entry_in_the_changelog() -> None:
    assert f"\n## {refold.__version__}\n" in (ENGINE / "CHANGELOG.md").read_text(encoding="utf-8")


# ARCHITECTURE.md and the pages of docs/ against the code.


DESIGN_PAGES = ("ARCHITECTURE.md", "docs/internals.md")


@pytest.mark.parametrize("page", DESIGN_PAGES)
def test_every_name_and_path_on_a_page_of_the_design_exists(page: str) -> None:
    text = (ENGINE / page).read_text(encoding="utf-8")
    names = set(re.findall(r"`(refold(?:\.\w+)+)`", text))
    paths = set(re.findall(r"`((?:\w+/)+\w+\.\w+)`", text))
    assert names or paths
    assert [name for name in sorted(names) if not is_name(name)] == []
    assert [path for path in sorted(paths) if not any((top / path).exists() for top in (ROOT, ENGINE, SOURCE))] == []


def is_name(dotted: str) -> bool:
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


def calls_of(use: Callable[[], object]) -> list[str]:
    """Return the dotted names of the functions of refold that a call passes through, in their order."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            module = ".".join(path.relative_to(ENGINE).with_suffix("").parts)
            calls.append(f"{module}.{frame.f_code.co_qualname}")

    sys.setprofile(note)
    try:
        use()
    finally:
        sys.setprofile(None)
    return calls


def test_the_lives_of_a_write_and_a_read_are_those_of_the_code(tmp_path: Path) -> None:
    text = (ENGINE / "ARCHITECTURE.md").read_text(encoding="utf-8")
    write, read = (
        [row[1].partition(",")[0] for row in table_after(part, "step", "function")]
        for part in (text, text[text.index("## The life of a read") :])
    )
    path = tmp_path / "store"
    with Memory(path) as memory:
        memory.project("p").add("The port is 8080.")
        calls = iter(calls_of(lambda: memory.conversation("b").append("user", "Hello!")))
        assert [step for step in write if step not in calls] == []
    with Memory(path) as memory:
        calls = iter(calls_of(lambda: memory.project("p").search("which port?")))
        assert [step for step in read if step not in calls] == []
