"""What is written about refold holds: pages and docstrings run, and the tables of FORMAT.md are those of the code."""

import doctest
import hashlib
import importlib
import inspect
import json
import os
import pkgutil
import re
import shlex
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from types import FrameType, ModuleType
from typing import Any, ClassVar

import lmdb
import msgspec
import pytest
import reference
import run_blocks

import refold
from refold import Memory, Snapshot, event, fold, limits
from refold.log import protocol, record, witness
from tests.rigs.test_tamper import TABLE
from tests.support.mixed import fill
from tests.support.paths import NOT_HERE, ROOT
from tests.support.seams import engine_of

ENGINE = ROOT / "engine"
SOURCE = ENGINE / "refold"
QUICKSTART = "engine/docs/quickstart.md"
GUIDES = "engine/docs/guides.md"
PAGES = ("README.md", QUICKSTART, GUIDES, "engine/TUTORIAL.md", "engine/FORMAT.md")
ELSEWHERE = {
    "Keep the chats of LlamaIndex": "llama_index",
    "Keep the sessions of Google's ADK": "google_adk",
    "Keep the history of Microsoft's Agent Framework": "agent_framework",
}
"""Sections whose blocks need packages that are not here, and the adapter whose test runs them beside its framework."""

ON_SERVERS = {"Share it among machines", "Run the servers of a shared log"}
"""Sections whose commands need servers; tests/engine/test_move.py and tests/log/test_servers_guide.py see to them."""

FORMAT = (ENGINE / "FORMAT.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks.run_file(ROOT / name, sections=lambda title: title not in ELSEWHERE) > 0


@pytest.mark.parametrize("title", ELSEWHERE)
def test_a_section_that_is_not_run_here_is_run_elsewhere(title: str) -> None:
    assert f"\n## {title}\n" in (ROOT / GUIDES).read_text(encoding="utf-8")
    test = (ROOT / "tests" / "adapters" / f"test_{ELSEWHERE[title]}.py").read_text(encoding="utf-8")
    assert f'"{title}".__eq__' in test
    assert f'testmod(importlib.import_module("refold.adapters.{ELSEWHERE[title]}"))' in test


@pytest.mark.parametrize("shown", ["one\n# -> two", "one", "one\n# -> t...\n# -> three"])
def test_a_block_prints_the_lines_that_it_shows(shown: str) -> None:
    source = f"print('one')\n# -> {shown}\nprint('two')\n"
    if shown == "one\n# -> two":
        run_blocks.run_block(source, {}, Path("page.md"), 1)
        return
    with pytest.raises(run_blocks.BlockFailedError, match="the block at line 1 printed"):
        run_blocks.run_block(source, {}, Path("page.md"), 1)


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_says_its_language(name: str) -> None:
    fences = re.findall(r"^```(.*)$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    # In turn an opening and a closing fence; a drawing has no language and no prompt.
    assert set(fences[::2]) <= {"conf", "pycon", "python", "sh", "sql", "yaml", ""}
    assert set(fences[1::2]) <= {""}
    assert len(fences) % 2 == 0


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *(page for top in (ROOT / "benchmarks", ENGINE) for page in sorted(top.glob("**/*.md")))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https://)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8"))
    targets = [(page.parent / link if link else page, anchor) for link, anchor in links]
    assert [str(target) for target, _ in targets if not target.is_file()] == []
    assert [f"{target}#{anchor}" for target, anchor in targets if anchor and anchor not in anchors(target)] == []


def anchors(page: Path) -> list[str]:
    """The names under which the headings of a page can be reached."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


# The quickstart.


def test_the_quickstart_can_be_pasted_into_a_prompt(tmp_path: Path) -> None:
    """A prompt ends a block at an empty line, which a file does not, and nobody pastes one behind the last line."""
    blocks = run_blocks.FENCED_BLOCK.findall((ROOT / QUICKSTART).read_text(encoding="utf-8"))
    command = [sys.executable, "-i", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(ENGINE)}
    typed = subprocess.run(
        command, input="".join(blocks), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "Error" not in typed.stderr, typed.stderr
    assert "Anything without nuts.\n" in typed.stdout


class _Endpoint(BaseHTTPRequestHandler):
    """A model behind OpenAI's form of a request: it calls a tool, then says what the tool said."""

    requests: ClassVar[list[tuple[str, str | None, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append((self.path, self.headers["Authorization"], body))
        said = body["messages"][-1]
        function = {"name": "memory_set", "arguments": '{"key": "allergy", "value": "nuts"}'}
        call = {"id": "call-7", "type": "function", "function": function}
        message = {"content": said["content"]} if said["role"] == "tool" else {"content": None, "tool_calls": [call]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": {"role": "assistant"} | message}]}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing on stderr."""


def test_the_real_model_of_the_quickstart_talks_to_an_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    run_blocks.run_file(ROOT / QUICKSTART, names)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        model = names["chat_model"](f"http://127.0.0.1:{server.server_port}/v1", "some-model", "some-key")
        with Memory() as memory:
            turn = names["AgentLoop"](memory, memory.conversation("chat"), model).run("I am allergic to nuts.")
            assert memory.profile().get("allergy") == "nuts"
        server.shutdown()
    assert '"status":"ok"' in turn.text
    (path, key, first), (_, _, second) = _Endpoint.requests
    assert (path, key, first["model"]) == ("/v1/chat/completions", "Bearer some-key", "some-model")
    assert "memory_set" in [tool["function"]["name"] for tool in first["tools"]]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert second["messages"][-1]["tool_call_id"] == "call-7"


def test_the_program_of_the_readme_goes_on_where_it_ended(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    for _ in range(3):
        environment = {**os.environ, "PYTHONPATH": str(ENGINE)}
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    with Memory(tmp_path / "agent.refold") as memory:
        assert len(memory.conversation("trip").history()) == 9


# Docstrings.


def module_names() -> list[str]:
    """Every module of the package in whose source an example stands, and which can be imported here."""
    paths = (path for path in sorted((ENGINE / "refold").rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8"))
    names = (".".join(path.relative_to(ENGINE).with_suffix("").parts).removesuffix(".__init__") for path in paths)
    return [name for name in names if name not in NOT_HERE]


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


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_of_the_reference_is_what_the_docstrings_say(name: str) -> None:
    stored = (reference.DOCS / name).read_text(encoding="utf-8")
    assert stored == reference.page(name), "run `python tools/reference.py`"


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


def test_the_head_of_a_record_is_the_documented_one() -> None:
    rows = table_after(section("The record"), "offset", "bytes")
    places = layout(record.HEAD.format)
    assert [(int(offset), int(size)) for offset, size, *_ in rows] == places
    named = inspect.getsource(record).partition("HEAD: Final")[2].partition('"""')[2].partition(".")[0]
    assert [name for _, _, name, _ in rows] == named.split(", ")
    assert (record.HEAD_BEGIN, record.COLUMNS_BEGIN, record.STREAM.size) == (32, 96, 20)
    assert (
        f"marks | always | *n* | flags, below, and {record.MARK_COMMAND} for an event that begins a command" in FORMAT
    )
    assert f"up to {limits.RECORD_EVENTS} of its events" in FORMAT
    assert f"at most {limits.RECORD_EVENTS_MAX}," in FORMAT


def test_the_columns_of_a_record_are_the_documented_ones() -> None:
    bits = {name: condition for name, condition, *_ in table_after(section("The record"), "column", "if")}
    assert {name: int(condition.rpartition(" ")[2]) for name, condition in bits.items() if "&" in condition} == {
        "actors": record.COLUMN_ACTORS,
        "causes": record.COLUMN_CAUSES,
        "occurred": record.COLUMN_OCCURRED,
        "origin": record.COLUMN_ORIGIN,
    }
    assert list(bits) == ["streams", "owners", "marks", "actors", "causes", "occurred", "origin", "ends"]


def reader_of_the_page() -> Callable[[str], tuple[dict[int, tuple[Any, ...]], bytes]]:
    """The function of FORMAT.md that reads and checks a store without refold."""
    block = next(block for block in re.findall(r"```python\n(.*?)```", FORMAT, re.DOTALL) if "def read(path):" in block)
    code = block[block.index("def blake(") : block.index("\nevents, link = read")]
    assert len([line for line in code.splitlines() if line]) <= 32, "a page of code, not a program"
    names: dict[str, Any] = {"hashlib": hashlib, "struct": struct, "lmdb": lmdb, "msgspec": msgspec}
    exec(code, names)  # noqa: S102 - the page is ours
    found: Callable[[str], tuple[dict[int, tuple[Any, ...]], bytes]] = names["read"]
    return found


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_the_reader_of_the_page_reads_a_store_of_everything(tmp_path: Path, count: int) -> None:
    with Memory(tmp_path / "store") as memory:
        fill(memory, count, Random(count))
        expected = {
            stamp.seq: (stamp.time_ns, stamp.version, stamp.erased, event)
            for branch in (memory, memory.fork("other"))
            for event, stamp in branch.events()
        }
        streams = {stamp.seq: stamp.stream for _, stamp in memory.events()}
        head, link = memory.head, engine_of(memory).reader.link
    events, found = reader_of_the_page()(str(tmp_path / "store"))
    assert (len(events), found) == (head, link)
    homes = {kind.__module__ for kind in fold.TAGS}
    assert {type(event).__module__ for *_, event in expected.values()} == homes, "every view has events there"
    for seq, (time_ns, _, version, mark, array) in events.items():
        assert (time_ns, version, bool(mark & 1), fold.decode(array)) == expected[seq]
    # One number for each name.
    numbers = {(events[seq][1], stream) for seq, stream in streams.items()}
    assert len(numbers) == len({number for number, _ in numbers}) == len(set(streams.values()))
    with lmdb.open(str(tmp_path / "store"), max_dbs=16, map_size=2**30) as env, env.begin(write=True) as txn:
        log = env.open_db(b"log", txn=txn, create=False)
        key, packed = next(row for row in txn.cursor(log) if record.Record(row[1]).has_origin)
        txn.put(key, packed[:-1] + bytes([packed[-1] ^ 1]), db=log)
    with pytest.raises(AssertionError):
        reader_of_the_page()(str(tmp_path / "store"))


def test_the_witness_is_the_documented_one() -> None:
    rows = table_after(section("The witness"), "offset", "bytes")
    assert [(int(offset), int(size)) for offset, size, *_ in rows] == layout(witness.SLOT.format)
    assert [name for *_, name, _ in rows] == ["magic", "format", "", *witness.WitnessSlot._fields, "checksum"]
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
    assert sorted(documented) == sorted([*protocol.TABLES, "log"])


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
    _, stream, seq, tokens, state, cut = msgspec.msgpack.decode(rendered[41:])
    assert (stream, seq, tokens, state[0], cut) == ("conversation/a", 2, 0, fold.TAGS[event.StateImported], 2)
    assert Snapshot.from_bytes(rendered).seq == 2


# The other pages against the tree.


FENCE = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = {"quickstart.md": 6, "guides.md": 6, "command-line.md": 5}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_commands_of_a_page_run_between_its_blocks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("click", reason="the command line needs the extra refold[cli]")
    monkeypatch.chdir(tmp_path)
    page, names, count = ENGINE / "docs" / name, dict[str, object](__name__="__main__"), 0
    if name == "command-line.md":  # Which begins with a store that is there.
        with Memory("agent.refold") as memory, memory.batch():
            for number in range(60):
                memory.conversation("trip").append("user", f"Is bar {number} without nuts?")
    text = page.read_text(encoding="utf-8")
    for fence in FENCE.finditer(text):
        language, source = fence.groups()
        if run_blocks.section_at(text, fence.start()) in {*ELSEWHERE, *ON_SERVERS}:
            continue
        if language == "python":
            run_blocks.run_block(source, names, page, 0)
            continue
        for line in re.findall(r"^refold .*", source, re.MULTILINE):
            monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
            assert importlib.import_module("refold.cli").main() == 0, line
            count += 1
    assert count == COMMANDS[name]


def test_the_front_page_fits_a_screen_and_a_half() -> None:
    """A table of README counts too; what is long has a page of its own."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110


def test_the_verbs_of_the_command_line_are_the_documented_ones() -> None:
    pytest.importorskip("click", reason="the command line needs the extra refold[cli]")
    commands = importlib.import_module("refold.cli.root").cli.commands
    importlib.import_module("refold.cli.commands")
    rows = table_after((ENGINE / "docs" / "command-line.md").read_text(encoding="utf-8"), "command", "description")
    assert sorted(row[0].split()[0] for row in rows) == sorted(commands)


@pytest.mark.parametrize(
    ("page", "phrase", "value"),
    [
        ("docs/internals.md", "at every {}th event", limits.CHECKPOINT_EVENTS),
        ("docs/internals.md", "the tail exceeds {:,} events", limits.TAIL_EVENTS_MAX),
        ("docs/internals.md", "the last {} states are kept", limits.FROZEN_STATES_MAX),
        ("docs/internals.md", "forks of the whole memory are at most {} deep", limits.BASE_DEPTH_MAX),
        ("docs/internals.md", "the log: every {} ms it reads the file", limits.WITNESS_MS),
        ("FORMAT.md", "an id of 1 to {} bytes", limits.NAME_BYTES_MAX),
        ("FORMAT.md", "at most {} MiB", limits.VALUE_BYTES_MAX // 2**20),
        ("FORMAT.md", "Values of up to {} characters", limits.INLINE_BYTES_MAX),
        ("FORMAT.md", "at every {}th event", limits.CHECKPOINT_EVENTS),
        ("TUTORIAL.md", "at most {} of the stream", limits.CHECKPOINT_EVENTS),
        ("TUTORIAL.md", "The last {} such states", limits.FROZEN_STATES_MAX),
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
