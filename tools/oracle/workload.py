"""The script that both sides run: how a line of it is read, what it writes and reads, what of results is compared."""

import asyncio
import importlib
import inspect
import json
import re
import runpy
import shlex
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Hashable, ItemsView, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from hashlib import shake_256
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import numpy
from oracle import names

_SECTIONS: Final = re.split(r"(?m)^\[([a-z ]+)\]\n", Path(__file__).with_name("script.txt").read_text(encoding="utf-8"))
SCRIPT: Final = dict(zip(_SECTIONS[1::2], _SECTIONS[2::2], strict=True))
COPIES: Final = ("backup", "cli-backup", "cli-recovered", "loaded", "recovered")
"""The stores that hold what another one does, of which less is asked."""

SHAPES: Final = [tuple(shape.split()) for shape in SCRIPT["shapes"].splitlines() if shape]
"""The results that have more than they promise, or paths and sizes: the attributes that are compared."""

WORDS: Final = ("tea", "milk", "port", "red")
EMBEDDER: Final = SimpleNamespace(
    id="words", dim=5, embed=lambda texts: [[*(float(text.count(word)) for word in WORDS), 0.125] for text in texts]
)
COUNTER: Final = SimpleNamespace(id="length", count=len)
"""What the state machine's stores are made with."""

_LINE: Final = re.compile(r"(?:(\d+) \* )?(?:(\w+) = )?(! |enter |leave|refold)?(.*?)(?: ?:: (.*))?", re.DOTALL)
_LAYOUT: Final = re.compile(r'"(data_bytes|sha256|searched_bytes|files)": ?("\w*"|\d+)')
_HERE: Final = str(Path.cwd())
_CONTEXT_SHOWN: Final = 46
_STREAMS_COUNT_MAX: Final = 24
_MACHINE_EVENTS_MIN: Final = 30


def plain(value: Any) -> Any:
    """Return a result as a JSON value that says nothing of classes; a handle is only called one."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): plain(held) for key, held in value.items()}
    if isinstance(value, (list, tuple, ItemsView, Iterator)):
        return list(map(plain, value))
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value))
    if isinstance(value, msgspec.Struct) and isinstance(value.__struct_config__.tag, int):
        return msgspec.to_builtins(value)  # An event: its tag and the values of its fields in order.
    kind: Any = type(value)
    known = {name: plain(getattr(value, name)) for name in _fields(kind)}
    leaf = value.replace(_HERE, ".") if isinstance(value, str) else value
    return known or (leaf if isinstance(leaf, (int, float, str, type(None))) else "a handle")


@cache
def _fields(kind: Hashable) -> tuple[str, ...]:
    own = tuple(name for name in getattr(kind, "__struct_fields__", ()) if name != "modified_ns")  # That of a file.
    return next((shape for shape in SHAPES if all(hasattr(kind, name) for name in shape)), own)


@cache
def calls(text: str) -> list[tuple[str, list[tuple[str | None, str]]]]:
    """Return the calls that a text holds: a verb, and its values with their names."""
    split = [shlex.split(call) for call in re.split(r"[;\n]\s*", text)]
    pattern = re.compile(r"(?:([a-z_]+)=)?(.*)", re.DOTALL)
    found = [(verb, [pattern.fullmatch(word) for word in words]) for verb, *words in filter(None, split)]
    return [(verb, [(match[1], match[2]) for match in matches if match]) for verb, matches in found]


class Session:
    """A run of the script below this folder: what its expressions see, and every result.

    Clock and random source depend on the step alone, not on how often it asks them.
    """

    def __init__(self, name: str, data: Path, *, reads: bool = False) -> None:
        self.name, self.data, self.reads, self.time_ns, self.step = name, data, reads, 1_795_000_000_000_000_000, 0
        self.drawn, self.results, self.entered, self.about = Counter[int](), list[Any](), list[Any](), ""
        self.doors = {"clock_ns": lambda: self.time_ns, "random_bytes": self.random_bytes}
        self.env: dict[str, Any] = {name: getattr(self, name) for name in ("open", "wait", "cut", "doors", "settle")}
        self.env |= {"home": names.home, "value": names.value, "words": EMBEDDER, "WORDS": WORDS, "DAY": 86_400}
        self.env |= {"json": json, "numpy": numpy, "Path": Path, "Object": SimpleNamespace}

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that belong to the step, and to how often it drew so many."""
        self.drawn[count] += 1
        return shake_256(f"{self.name}/{self.step}/{count}/{self.drawn[count]}".encode()).digest(count)

    def wait(self, seconds: int = 1) -> None:
        """Let time pass."""
        self.step += 1
        self.time_ns += seconds * 1_000_000_000
        self.drawn.clear()

    @staticmethod
    def settle() -> None:
        """Wait until every thread that builds something has ended; one may be there that was not started yet."""
        while any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
            time.sleep(0.01)

    def open(self, path: str | None = None, **options: Any) -> Any:
        """Return the memory of a store, or of none."""
        return names.home("Memory")(path, **self.doors, **options)

    def cut(self, file: str, count: int) -> Path:
        """Return a copy of the first sessions of a file: items of a JSON list, or lines."""
        copy, text = Path(Path(file).name), (self.data / file).read_text(encoding="utf-8")
        is_list = text.startswith("[")
        cut = json.dumps(json.loads(text)[:count]) if is_list else "".join(text.splitlines(keepends=True)[:count])
        copy.write_text(cut, encoding="utf-8")
        return copy

    def run(self, script: str) -> None:
        """Run the lines of a script; one that begins with a space goes on with the line before."""
        for line in re.split(r"\n(?! )", script):
            match = None if line.startswith("#") else _LINE.fullmatch(line)
            if match and line:
                times, name, mode, expression, text = match.groups()
                for n in range(int(times or 1)):
                    self.env["n"] = n
                    self.env[name or "_"] = self.line((mode or "").strip(), expression.strip(), text)

    def line(self, mode: str, expression: str, text: str | None) -> Any:
        """Run a line once, a second after the one before, and return its last result."""
        self.wait()
        if mode == "refold":
            lines = re.split(r"[;\n]\s*", text or "")
            self.results += [[line, commanded(f"{line} --json {expression}")] for line in lines]
            return None
        if mode == "leave":
            error = self.value(expression or "None")
            return self.entered.pop().__exit__(type(error) if error else None, error, None)
        handle = self.value(expression)
        if mode == "enter":
            self.entered.append(handle)
            return handle.__enter__()
        if text is None:
            self.results.append([expression, plain(handle)])
            return handle
        self.env["_"], result = handle, None
        for verb, words in calls(text):
            self.wait()
            result = self.call(handle, verb, words, is_refused=mode == "!")
        return result

    def call(self, handle: Any, verb: str, words: list[tuple[str | None, str]], *, is_refused: bool) -> Any:
        """Call a verb of a handle, and take down what it returned, or with which error it refused."""
        args = [self.given(word) for name, word in words if not name]
        options = {name: self.given(word) for name, word in words if name}
        about = " ".join([self.about, verb, *(word for _, word in words)]).strip()
        try:
            found = names.value(handle, verb)
            result = found(*args, **options) if callable(found) else found
            result = asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result
        except names.home("RefoldError") as error:
            if not (is_refused or self.reads):
                raise
            self.results.append([about, f"refused: {type(error).__name__}"])
            return None
        assert not is_refused, f"{about} was not refused"
        self.results.append([about, plain(result)])
        return result

    def given(self, word: str) -> Any:
        """Return the value that a word of the script stands for."""
        if word.startswith("$"):
            return self.value(word[1:])
        try:
            return json.loads(word)
        except ValueError:
            return word

    def value(self, expression: str) -> Any:
        """Return what an expression gives."""
        return eval(expression, self.env)  # noqa: S307 - the script is this tool's own


async def _awaited(result: Any) -> Any:
    return await result


def commanded(line: str) -> list[Any]:
    """Return what a command prints, and with which code it exits."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()):
        sys.argv = ["refold", *shlex.split(line)]
        try:
            runpy.run_module("refold", run_name="__main__")
        except SystemExit as end:
            return [end.code, without_layout(out.getvalue())]
    raise AssertionError(f"{line} did not exit")


def without_layout(text: str) -> str:
    """Return a text without the figures that depend on which pages a store has."""
    return _LAYOUT.sub(r'"\1"', text)


def machine(session: Session) -> None:
    """Run examples of the state machine of this side's tests, without the checks that it makes after each step."""
    try:
        machines: Any = importlib.import_module("tests.machine.machine")
    except ModuleNotFoundError:  # The tree of the old side, whose tests are not in folders.
        machines = importlib.import_module("tests.machine")
    providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
    vars(providers)["_get_local_constants"] = lambda: providers._local_constants  # noqa: SLF001 - else sources are drawn

    def begin(made: Any) -> None:
        machines.MemoryMachine.mro()[1].__init__(made)
        made.open_things.callback(take, made)

    def take(made: Any) -> None:
        if len(made.model.log) >= _MACHINE_EVENTS_MIN:
            store = f"machine-{len(session.results)}"
            shutil.copytree(made.path, store)
            session.results.append([store, shake_256(repr(made.model.log).encode()).hexdigest(16)])

    unchecked = dict.fromkeys(("reads_equal_the_model", "every_way_to_the_state_agrees"))
    machines.MemoryMachine = type("Copied", (machines.MemoryMachine,), {"__init__": begin, **unchecked})
    machines.main(1, 12, 50, phases=(machines.Phase.generate,))


def write(tree: Path, records: Path, data: Path, parts: list[str]) -> Any:
    """Write the stores of some parts below this folder; return all results, and the golden records of this side."""
    sessions = {part: Session(part, data) for part in parts}
    for part, session in sessions.items():
        if part == "machine":
            machine(session)
        else:
            session.run(SCRIPT[part])
    sys.path.insert(0, str(tree / "tools"))
    golden = importlib.import_module("golden")
    known = {name: kind for name, kind in golden.fold.TYPES_BY_NAME.items() if name not in names.NEW_EVENTS}
    found = {
        "written": {name: golden.golden_of(kind) for name, kind in known.items()},
        "problems": list(golden.problems(records, known)),
        "tags": sorted(kind.__struct_config__.tag for kind in known.values()),
    }
    return {"golden": found, "results": {part: session.results for part, session in sessions.items()}}


def read(paths: list[str]) -> Any:
    """Read stores, go on writing in each; return all answers."""
    found: dict[str, Any] = {}
    for path in map(Path, paths):
        witness, options = path.with_suffix(".witness"), dict[str, Any]()
        if path.name.startswith(("machine", "renewed")):
            options = {"embedder": EMBEDDER} | ({"token_counter": COUNTER} if path.name != "renewed" else {})
        options |= {"witness": witness} if witness.exists() else {}
        session = Session("after", path, reads=True)
        session.wait(10_000_000)
        with session.open(str(path), readonly=True, **options) as memory:
            for branch in ("", *memory.forks()):
                session.about = branch
                head = names.value(memory, "head")
                points = [head] if branch or path.name.startswith("machine") else [head // 2, head]
                ask(session, memory.fork(branch) if branch else memory, [] if path.name in COPIES else points)
            memory.export(path.with_suffix(".export"))
        session.reads, session.about = False, ""
        with session.open(str(path), **options) as memory:
            session.env["memory"] = memory
            session.run(SCRIPT["after"])
            session.run("memory :: state_hash; verify")
        found[str(path)] = session.results
    return found


def ask(session: Session, memory: Any, points: list[int]) -> None:
    """Ask a memory, as of some seqs, whatever the script asks of it and of each of its streams."""
    head, events, branch = names.value(memory, "head"), list(memory.events()), session.about
    session.env |= {"memory": memory, "head": head}
    session.run("6 * memory :: state_hash $head*n//5; replay_hash $head*n//5")
    shown = [stamp.seq for event, stamp in events if event.__struct_config__.tag == _CONTEXT_SHOWN]
    session.run("\n".join(f"memory :: rebuild {seq}" for seq in shown))
    streams = sorted({stamp.stream for _, stamp in events if not stamp.stream.startswith(("store/", "board/erased-"))})
    for at in points:
        then = memory.at(at) if at < head else memory
        session.env |= {"memory": then, "handle": then, "at": at, "back": max(at - 200, 0)}
        session.about = f"{branch} @{at}".strip()
        session.run(SCRIPT["read memory"])
        for stream in streams[:: 1 + len(streams) // _STREAMS_COUNT_MAX]:
            session.about = f"{branch} {stream}@{at}".strip()
            session.env["handle"] = _handle_of(then, stream)
            session.run(SCRIPT[f"read {stream.partition('/')[0]}"])


def _handle_of(memory: Any, stream: str) -> Any:
    kind, _, name = stream.partition("/")
    if kind == "board":
        scope, _, rest = name.partition("/")
        project, _, node = map(unquote, rest.partition("/"))
        return memory.board(session=rest) if scope == "session" else memory.board(project=project, node=node)
    return names.value(memory, "skills").library if kind == "skills" else getattr(memory, kind)(name)
