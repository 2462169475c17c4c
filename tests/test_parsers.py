"""Every parser of foreign bytes: whatever it is given, it returns a value or raises a typed error, in bounded memory.

One table names the parsers with valid examples. Each is given random bytes and mutations of its examples, and each
part of an example grown to twice its size.
"""

import asyncio
import cProfile
import gc
import io
import json
import re
import shutil
import sqlite3
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from functools import cache, partial, reduce
from hashlib import sha256
from operator import getitem
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, cast
from unittest.mock import patch
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold import Memory, RefoldError, Snapshot, recover
from refold.agent.arguments import check_arguments, decode_arguments
from refold.agent.commands import detect_memory_command
from refold.agent.lessons import parse_lessons
from refold.agent.parts import disarm
from refold.agent.providers import parse_json
from refold.agent.secrets import secret_in
from refold.importers import import_file, import_memories
from refold.log.witness import WitnessSlot, pack_slot, read
from refold.skills.format import parse_skill, validate_skill
from refold.skills.sources import read_configuration
from tests.importers.test_memories import ENTRY, FROM_MEM0
from tests.importers.test_traces import CODE
from tests.support.bounds import seeded_bytes
from tests.support.paths import SOURCES
from tests.support.rows import Rows
from tests.support.sizes import sizes


class Parser(NamedTuple):
    """A parser, how its examples are written, and the examples: a document is changed value by value too."""

    parse: Callable[[bytes], object]
    form: str
    examples: Callable[[], list[Any]]

    def written(self, example: Any) -> bytes:
        if self.form == "bytes":
            return bytes(example)
        return b"".join(msgspec.msgpack.encode(each) if self.form == "msgpack" else line(each) for each in example)


def line(document: Any) -> bytes:
    return json.dumps(document).encode() + b"\n"


@cache
def store_bytes() -> Path:
    """A closed store with a conversation, a project, a journal and an erased message."""
    folder = Path(KEPT.name)
    with Memory(folder / "store") as memory:
        chat = memory.conversation("chat", project="acme")
        first = chat.append("user", "The port is 8080.", occurred=1, metadata={"a": [1, None]})
        chat.append("assistant", None, tool_calls=[CALL])
        chat.append("tool", [{"type": "text", "text": "found"}], tool_call_id="x", name="look")
        chat.scratchpad.set("k", "v")
        chat.state["plan"] = {"a": [1]}
        project = memory.project("acme")
        entry = project.add("The tests need Docker.")
        project.unmerge(project.upsert("The tests need Docker, always."))
        project.update(entry, category="convention")
        project.archive(entry)
        memory.journal().append("Chose LMDB.")
        memory.profile().set("theme", "dark")
        memory.files().create("/memories/a", "text")
        memory.erase([first.seq])
        memory.export(folder / "export.jsonl")
        (folder / "snapshot").write_bytes(chat.snapshot().to_bytes())
        memory.backup(folder / "backup")
    return folder


WIRES: Final = ("openai", "openai-responses", "anthropic", "gemini", "ollama")
KEPT = TemporaryDirectory(prefix="refold-parsers-")
CALL = {"id": "x", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def kept(name: str) -> bytes:
    return (store_bytes() / name).read_bytes()


def use(memory: Memory) -> None:
    """Read what was taken: nothing that a parser lets in may fail later."""
    for name in memory.conversations():
        memory.context(memory.conversation(name))
        for wire in WIRES:
            with suppress(RefoldError):  # A message may hold what a wire has no place for.
                memory.conversation(name).messages(wire)
    assert memory.verify().findings == ()


def in_file(take: Callable[[Memory, Path], object], content: bytes) -> None:
    with TemporaryDirectory() as folder, Memory() as memory:
        path = Path(folder, "file")
        path.write_bytes(content)
        try:
            take(memory, path)
        finally:
            use(memory)


def imported(form: str | None) -> Callable[[bytes], None]:
    return partial(in_file, lambda memory, path: import_file(memory, path, format=form))


def remembered(form: str | None) -> Callable[[bytes], None]:
    return partial(in_file, lambda memory, path: import_memories(memory, path, format=form))


def loaded(content: bytes) -> None:
    in_file(lambda memory, path: memory.load(path), content)


def handed_over(content: bytes) -> None:
    with Memory() as memory:
        memory.conversation("chat").restore(Snapshot.from_bytes(content))
        use(memory)


def sealed(content: bytes) -> None:
    """Snapshot bytes whose checksum fits."""
    handed_over(b"REFOLDSN\1" + sha256(content).digest() + content)


def mirrored(name: str, content: bytes) -> None:
    """A file of a mirror is another one when the mirror is opened again."""
    with TemporaryDirectory() as folder, notes() as memory:
        place = Path(shutil.copytree(mirror(), Path(folder, "mirror")))
        (place / name).write_bytes(content)
        with memory.mirror(place) as opened:
            opened.sync()
        use(memory)


def notes() -> Memory:
    memory = Memory(random_bytes=seeded_bytes(1))
    memory.profile().set("theme", "dark")
    memory.journal().append("Chose LMDB.", day="2026-11-21")
    return memory


@cache
def mirror() -> Path:
    path = Path(KEPT.name, "mirror")
    with notes() as memory, memory.mirror(path) as opened:
        opened.sync()
    return path


def mirror_file(name: str) -> bytes:
    return (mirror() / name).read_bytes()


def skill(content: bytes) -> None:
    parse_skill("a/SKILL.md", content)
    parse_skill("CLAUDE.md", content, is_convention=True)
    validate_skill(content, "a")


SKILL = b"""---
name: a
description: >-
  How to deploy.
allowed-tools: Read, Bash(git:*)
metadata: {tags: [x, "y"], version: 1.10}
hooks:
  Stop:
    - hooks: [{type: command, command: ls}]
---
# A

Push the tag.
"""


def manifest(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        place = Path(shutil.copytree(store_bytes() / "backup", Path(folder, "backup")))
        (place / "backup.json").write_bytes(content)
        recover(place, Path(folder, "new"))


def witness(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "witness")
        path.write_bytes(content)
        read(str(path))


def row(content: bytes) -> None:
    """A record of a store is another one."""
    with TemporaryDirectory() as folder:
        place = Path(shutil.copytree(store_bytes() / "backup", Path(folder, "store")))
        rows = Rows(place)
        rows.put("log", rows.all("log")[0][0], content)
        rows.close()
        with Memory(place, readonly=True) as memory:
            memory.verify()
            for name in memory.conversations():
                memory.conversation(name).window()
            list(memory.events())


def rows_of_log() -> list[bytes]:
    rows = Rows(store_bytes() / "backup")
    found = [packed for _, packed in rows.all("log")]
    rows.close()
    return found


def mem0() -> bytes:
    path = store_bytes() / "mem0.db"
    with sqlite3.connect(path) as database:
        columns = "id, memory_id, old_memory, new_memory, event, created_at, updated_at, is_deleted, actor_id"
        database.execute(f"CREATE TABLE history ({columns}, PRIMARY KEY (id))")
        database.execute("INSERT INTO history VALUES ('z', 'm', NULL, 'Likes tea', 'ADD', '2024-01-01', NULL, 0, 'a')")
    database.close()
    return path.read_bytes()


def text(take: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda content: take(content.decode(errors="replace"))


def source(name: str) -> list[Any]:
    """The documents of a made-up source."""
    content = (SOURCES / name).read_text(encoding="utf-8")
    return [json.loads(each) for each in content.splitlines()] if name.endswith("jsonl") else [json.loads(content)]


TRACE: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]},
            "scopeSpans": [
                {
                    "scope": {"name": "s"},
                    "spans": [
                        {
                            "traceId": "trace",
                            "spanId": "span1",
                            "startTimeUnixNano": "1700000000000000000",
                            "attributes": [
                                {"key": "gen_ai.conversation.id", "value": {"stringValue": "c"}},
                                {"key": "gen_ai.prompt.0.role", "value": {"stringValue": "user"}},
                                {"key": "gen_ai.prompt.0.content", "value": {"stringValue": "Hello!"}},
                                {
                                    "key": "gen_ai.input.messages",
                                    "value": {"stringValue": '[{"role": "user", "parts": [{"type": "text"}]}]'},
                                },
                            ],
                            "events": [
                                {
                                    "name": "gen_ai.user.message",
                                    "attributes": [{"key": "content", "value": {"stringValue": "Hello!"}}],
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    ]
}
CHAT: dict[str, Any] = {
    "id": "c",
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Hello!"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "found", "tool_call_id": "x"},
    ],
}
CONFIGURATION: dict[str, Any] = {
    "sources": {"a": {"type": "submodule", "path": "x"}},
    "skills": [
        {
            "name": "one",
            "source": "a",
            "path": "x",
            "priority": 3,
            "detect": {"files": ["*.py"], "patterns": ["x"]},
            "inject_into": ["planning"],
        }
    ],
    "settings": {"max_skills": 3},
}
LESSONS: list[Any] = [{"content": "The port is 8080.", "category": "fact", "keywords": ["port"], "importance": 0.5}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"enum": [1, None]}, "c": {"pattern": "a+$"}},
    "required": ["a"],
    "anyOf": [{"minProperties": 1}, {"not": {}}],
    "$defs": {"a": {"type": ["string", "null"], "maxLength": 3}},
}


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def ask(number: int, method: str, **parameters: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}


def answer(number: int, **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


ASKED = [
    ask(1, "initialize", **HELLO),
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ask(2, "tools/call", name="memory_set", arguments={"key": "a", "value": "b"}),
    ask(3, "resources/read", uri="memory://conversations/chat/window"),
    ask(4, "tools/list", cursor=None),
]
TOLD = [
    {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "unknown"}},
    answer(2, protocolVersion="2025-11-25", capabilities={"tools": {}}, serverInfo={"name": "s", "version": "1"}),
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}},
    answer(3, tools=[{"name": "echo", "description": "Says it.", "inputSchema": SCHEMA, "outputSchema": SCHEMA}]),
    answer(4, content=[{"type": "text", "text": "x"}], structuredContent={"a": "x"}, isError=False),
    {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
]


def served(content: bytes) -> None:
    """A server of a memory gets lines, and answers each one that asks."""
    from refold.mcp.resources import Binding
    from refold.mcp.server import MemoryServer
    from refold.mcp.stdio import Lines, LineWriter, messages

    async def session(memory: Memory) -> None:
        server, loop, out = MemoryServer(Binding(memory)), asyncio.get_running_loop(), io.BytesIO()
        writer = LineWriter(out, loop, lambda: None)
        try:
            async with messages(Lines(io.BytesIO(content), loop), writer) as (into, out_of):
                await server.low_level.run(into, out_of, server.low_level.create_initialization_options())
        finally:
            writer.close()

    with Memory() as memory, patch("refold.mcp.stdio.DRAIN_SECONDS", 0.1):
        asyncio.run(session(memory))
        use(memory)


PARROT = """
import select, sys
for line in open(sys.argv[1], "rb"):
    if not select.select([0], [], [], float(sys.argv[2]))[0] or not sys.stdin.buffer.raw.readline():
        break
    sys.stdout.buffer.write(line)
    sys.stdout.flush()
"""
"""A server that says a line of a file for each that it hears, and leaves when it hears none for so many seconds."""


def connected(content: bytes) -> None:
    """A client gets lines of a server that says them whatever it is asked."""
    from refold.mcp import McpServer, McpToolset

    async def no_wait(_: float) -> None:
        """Wait not at all."""

    with TemporaryDirectory() as folder, Memory() as memory, McpToolset(memory, sleep=no_wait) as remote:
        path, patience = (
            Path(folder, "lines"),
            "20" if content == PARSERS["answers of a server"].written(TOLD) else "0.1",
        )
        path.write_bytes(content)
        remote.connect(McpServer(name="s", command=sys.executable, args=("-IS", "-c", PARROT, str(path), patience)))
        remote.call("s", "echo", {"a": "x"})


def schema(content: bytes) -> None:
    from refold.mcp.schemas import checker_of, plain_schema

    with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        document = msgspec.json.decode(content, type=dict[str, Any])
        plain_schema(document)
        checker_of(document)({"a": "x"})


def called(content: bytes) -> None:
    check_arguments(decode_arguments(content.decode(errors="surrogateescape")), SCHEMA)


def configured(content: bytes) -> None:
    from refold.mcp.connection import servers_of

    servers_of(content)


def asked(content: bytes) -> None:
    """A web server of a memory gets a body and parameters; it never answers that it failed."""
    from refold.web.openapi import OPERATIONS
    from tests.web.site import client_of

    text = content.decode(errors="replace")[:500]
    names = {"session": "trip", "project": "acme", "part": "working_history"}
    with Memory() as memory:
        memory.conversation("trip", project="acme").append("user", "Hello!")
        client = client_of(memory)
        for each in OPERATIONS:
            if each.body is None and each.name not in {"search", "list_events", "get_diff", "get_memory"}:
                continue
            path = re.sub(
                r"\{(\w+)\}", lambda found: names.get(found[1]) or quote(text[:50] or "x", safe=""), each.path
            )
            query = dict.fromkeys(("a", "b", "q", "kind", "limit", "after", "category"), text) if not each.body else {}
            sent: dict[str, Any] = {}
            if each.body:
                sent = {"content": content, "headers": {"content-type": "application/json"}}
            answer = client.request(each.method, path, params=query, **sent)
            assert answer.status_code < 500, (each.name, answer.text)
        use(memory)


BODIES: list[Any] = [
    {"role": "user", "content": [{"type": "text", "text": "Hello!"}]},
    {"session_id": "trip", "value": {"a": 1}},
    {"content": "The port is 8080.", "importance": 0.9, "category": "fact", "keywords": ["port"]},
    {"id": "trip-3", "at": 1},
    {"min_importance": 0.6, "dry_run": True},
    {"enabled": False},
]


PARSERS = {
    "requests over REST": Parser(asked, "json", lambda: [[each] for each in BODIES]),
    "tau-bench": Parser(
        imported("openai"), "json", lambda: [[dict(CHAT, traj=CHAT["messages"], task_id=1, reward=1.0)]]
    ),
    "openai": Parser(imported("openai"), "json", lambda: [[CHAT], [CHAT["messages"]]]),
    "claude-code": Parser(imported("claude-code"), "json", lambda: [CODE]),
    "otel": Parser(imported("otel"), "json", lambda: [[TRACE]]),
    "swe-agent": Parser(
        imported("swe-agent"), "json", lambda: [source("calls.traj"), source("thoughts.traj"), source("steps.traj")]
    ),
    "locomo": Parser(imported("locomo"), "json", lambda: [source("locomo.json")]),
    "beam": Parser(imported("beam"), "json", lambda: [source("beam.jsonl")]),
    "any format of sessions": Parser(imported(None), "json", lambda: [[CHAT], CODE, [TRACE], source("beam.jsonl")]),
    "memories": Parser(remembered("memories"), "json", lambda: [[ENTRY], [{"results": [FROM_MEM0]}], ["a", "b"]]),
    "observations": Parser(remembered("locomo"), "json", lambda: [source("locomo.json")]),
    "mem0": Parser(remembered("mem0"), "bytes", lambda: [mem0()]),
    "any format of memories": Parser(remembered(None), "json", lambda: [[ENTRY], source("locomo.json")]),
    "export": Parser(loaded, "bytes", lambda: [kept("export.jsonl")]),
    "export without its digest": Parser(
        loaded, "json", lambda: [[json.loads(each) for each in kept("export.jsonl").splitlines()[:-1]]]
    ),
    "snapshot": Parser(handed_over, "bytes", lambda: [kept("snapshot")]),
    "sealed snapshot": Parser(sealed, "msgpack", lambda: [[msgspec.msgpack.decode(kept("snapshot")[41:])]]),
    "skill": Parser(skill, "bytes", lambda: [SKILL]),
    "skill configuration": Parser(partial(read_configuration, "a.json"), "json", lambda: [[CONFIGURATION]]),
    "mirrored profile": Parser(partial(mirrored, "profile.json"), "json", lambda: [[{"theme": "dark", "b": "c"}]]),
    "mirrored day": Parser(
        partial(mirrored, "202611/20261121.md"), "bytes", lambda: [mirror_file("202611/20261121.md")]
    ),
    "state of a mirror": Parser(partial(mirrored, ".refold-mirror"), "bytes", lambda: [mirror_file(".refold-mirror")]),
    "backup manifest": Parser(manifest, "json", lambda: [[json.loads(kept("backup/backup.json"))]]),
    "witness": Parser(
        witness, "bytes", lambda: [pack_slot(WitnessSlot(bytes(16), 7, bytes(32))).ljust(4_096, b"\0") * 2]
    ),
    "record": Parser(row, "bytes", lambda: rows_of_log()[:1]),
    "command": Parser(
        text(detect_memory_command),
        "bytes",
        lambda: [b"Remember that the port is 8080.", "\u8bf7\u8bb0\u4f4f".encode()],
    ),
    "secret": Parser(text(secret_in), "bytes", lambda: [b"password is 'hunter2-hunter2'", b"sk-abcdefghijklmnop"]),
    "skill text": Parser(text(disarm), "bytes", lambda: [b"[skill:a]\n# Heading\n[/skill]"]),
    "arguments of a tool": Parser(
        called,
        "json",
        lambda: [[{"a": "x", "b": 1}]],
    ),
    "reply of a model": Parser(
        text(lambda answer: parse_lessons(parse_json(answer)[0])), "json", lambda: [[LESSONS], [{"memories": LESSONS}]]
    ),
    "requests to a server": Parser(served, "json", lambda: [ASKED]),
    "answers of a server": Parser(connected, "json", lambda: [TOLD]),
    "schema of a tool": Parser(schema, "json", lambda: [[SCHEMA]]),
    "servers of a host": Parser(
        configured,
        "json",
        lambda: [
            [
                {
                    "mcpServers": {
                        "s": {"command": "x", "args": ["y"], "env": {"K": "v"}},
                        "t": {"type": "http", "url": "http://x/"},
                    }
                }
            ]
        ],
    ),
}

# Mutations: of bytes, and of the values of a document.

TOKENS = (
    b"",
    b"\0",
    b"\n",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\\ud800",
    b'"',
    b"{",
    b"]",
    b"-1",
    b"1e999",
    b"NaN",
    b"null",
    b"---\n",
    b"&a *a",
    b"!!python/object:os.system",
    b"[" * 3_000,
    b'{"a":' * 3_000,
    b"\x91" * 3_000,
    b"9" * 5_000,
    (2**63).to_bytes(8, "big"),
    b"\xff" * 8,
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
)


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


STRANGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**53,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    0.5,
    1e308,
    "",
    "x",
    "\0",
    "\ud800",
    "\x1b[2J",
    "x" * 5_000,
    "9" * 5_000,
    "1970-01-01",
    b"\xc1",
    [],
    [[]],
    [None],
    {},
    {"": None},
    {"role": "user"},
    {"x": {"x": []}},
    nested(300),
    "[" * 3_000,
    ...,
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside a document, and to the document."""
    yield place
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*place, key))


def changed(document: Any, place: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy with one value that is another; ``...`` leaves it out."""
    if not place:
        return change(document)
    copied: Any = copy(document)
    value = changed(copied[place[0]], place[1:], change)
    if value is ...:
        del copied[place[0]]
    else:
        copied[place[0]] = value
    return copied


def other(strange: Any, _: Any) -> Any:
    return strange


@cache
def examples_of(name: str) -> list[Any]:
    return PARSERS[name].examples()


@st.composite
def mutations(draw: st.DrawFn, name: str) -> bytes:
    parser = PARSERS[name]
    example = draw(st.sampled_from(examples_of(name)))
    if parser.form != "bytes" and draw(st.integers(0, 3)):
        for _ in range(draw(st.integers(1, 3))):
            place = draw(st.sampled_from([each for each in places(example) if each]))
            strange = draw(st.sampled_from(STRANGE))
            example = changed(example, place, partial(other, strange)) or [None]
        with suppress(TypeError, ValueError, OverflowError):  # Not every value has a place in each form.
            return parser.written(example)
        example = examples_of(name)[0]
    content = parser.written(example)
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(content)))
        end = min(len(content), begin + draw(st.sampled_from((0, 1, 2, 8, 100, len(content)))))
        put = draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=8), st.just(content[begin:end] * 3)))
        content = content[:begin] + put + content[end:]
    return content


def inputs(name: str) -> st.SearchStrategy[bytes]:
    return st.one_of(mutations(name), mutations(name), mutations(name), st.binary(max_size=200))


def is_taken(name: str, content: bytes) -> bool:
    """Return whether a parser takes some bytes; anything but a typed error ends the test."""
    try:
        PARSERS[name].parse(content)
    except RefoldError as error:
        assert str(error)  # noqa: PT017 - either way is right
        return False
    return True


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@sizes("seconds", quick=0, soak=600)
@pytest.mark.parametrize("name", PARSERS)
def test_foreign_bytes_are_a_value_or_a_typed_error(name: str, seconds: float) -> None:
    for example in examples_of(name):
        assert is_taken(name, PARSERS[name].written(example)), example
    for token in TOKENS:
        is_taken(name, token)

    @settings(
        max_examples=1_000 if seconds else 50,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(name))
    def fuzz(content: bytes) -> None:
        is_taken(name, content)

    until = time.monotonic() + seconds
    fuzz()
    while time.monotonic() < until:
        fuzz()


# Growth: each part of an example, some hundreds of times and twice as many.

TIMES = 150
"""How often a part comes in the smaller of two inputs."""


def repeated(value: Any, times: int) -> Any:
    """A text, a list or an object that is many times as large."""
    if isinstance(value, (str, bytes)):
        return value * times
    if isinstance(value, list):
        return value * times
    return value | {f"{key}{number}": each for key, each in value.items() for number in range(times)}


def growths(name: str) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """What of the examples can grow: each value that has a size, each line of what is no document, and the whole."""
    written = PARSERS[name].written
    for number, example in enumerate(examples_of(name)):
        if PARSERS[name].form == "bytes":
            lines = example.splitlines(keepends=True)
            for number_of_line, each in enumerate(lines if len(lines) < SHAPES_MAX else ()):
                yield f"line {number_of_line} of {number}", partial(grown_line, lines, number_of_line, each)
            yield f"all of {number}", partial(repeated, example)
        else:
            for place in places(example):
                value: Any = reduce(getitem, place, cast("Any", example))
                if value and isinstance(value, (str, bytes, list, dict)):
                    yield f"{place} of {number}", partial(grown_value, written, example, place)


def grown_line(lines: list[bytes], place: int, each: bytes, times: int) -> bytes:
    return b"".join([*lines[:place], each * times, *lines[place + 1 :]])


def grown_value(written: Callable[[Any], bytes], example: Any, place: tuple[Any, ...], times: int) -> bytes:
    return written(changed(example, place, lambda value: repeated(value, times)))


SHAPES_MAX = 200


def cost(name: str, content: bytes) -> tuple[int, int]:
    """How many functions are called for some bytes, those of C included, and the most bytes of RAM meanwhile."""
    profile = cProfile.Profile()
    gc.collect()
    tracemalloc.start()
    profile.enable()
    try:
        is_taken(name, content)
    finally:
        profile.disable()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return sum(entry.callcount for entry in profile.getstats()), peak


CALLS_SLACK, BYTES_SLACK = 2_000, 200_000
"""What one input may take beyond its share: caches that fill, tables that double."""


@sizes("shapes", quick=1, soak=SHAPES_MAX)
@pytest.mark.parametrize("name", PARSERS)
def test_twice_the_input_takes_twice_the_memory(name: str, shapes: int) -> None:
    found = list(growths(name))
    for where, grown in Random(name).sample(found, min(shapes, len(found))):
        cost(name, grown(1))
        small, half, whole = (cost(name, grown(times)) for times in (1, TIMES, 2 * TIMES))
        calls, peaks = zip(small, half, whole, strict=True)
        assert calls[2] - calls[1] <= 1.7 * max(calls[1] - calls[0], 0) + CALLS_SLACK, (where, calls)
        assert peaks[2] <= 2.2 * peaks[1] + BYTES_SLACK, (where, peaks)
