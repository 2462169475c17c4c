"""Small filled stores in which each public verb has something to do, and a process that writes to them as well."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from refold import Memory, WrongVersion
from refold.entry import EmbedderSwitched
from refold.limits import CHECKPOINT_EVENTS
from tests.support.bounds import START_NS, lowered, seeded_bytes
from tests.support.commits import Logs, everything, opened

BOUNDS: Final = {"PAGE_EVENTS": 4, "CHECKPOINT_EVENTS": 8, "REEMBEDDED_PAGE_COUNT": 3, "PACKED_COUNT_MIN": 2}
"""Small, so that a store of a few events has pages and rows."""

STATES: Final = {"durable": ("warm", "cold", "tail", "beside"), "delayed": ("warm", "cold", "tail"), "ram": ("warm",)}
"""What a handle on each kind of store knows: all that it wrote or read; nothing yet; nothing yet of a store whose
process died; all but what another process wrote since. Who delays writes is alone, and in RAM there is nobody else."""


class Clock:
    """A clock that moves on whenever it is read, so that each commit has a time of its own."""

    def __init__(self, hours: int) -> None:
        self._now_ns = START_NS + hours * 3_600 * 10**9

    def __call__(self) -> int:
        self._now_ns += 1_000_000
        return self._now_ns


class Letters:
    """Another embedder than the built-in one: how often some letters stand in a text."""

    id, dim = "letters", 7

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Count, and a little of something else, so that no vector is zero."""
        return [[*(float(text.count(letter)) for letter in "aeiort"), 0.5] for text in texts]


class Known:
    """What verbs need to know of a store that was filled."""

    def __init__(self, memory: Memory) -> None:
        chat = memory.conversation("c", project="p", window_tokens=60, eviction="summary")
        chat.append("user", "it leaves the window", tokens=60)
        self.messages = [
            chat.append("user", f"message {number} with some words", pinned=number == 4).seq for number in range(5)
        ]
        chat.scratchpad.set("key", "value")
        chat.scratchpad.note("note")
        chat.state["session:x"] = 1
        chat.state["temp:y"] = 2
        memory.profile().set("name", "value")
        memory.journal().append("a note", day="2026-11-21")
        project = memory.project("p")
        words = ("api", "web", "interface")
        self.entries = [project.add(f"the {word} listens on port {80 + len(word)}").id for word in words]
        self.merge = project.upsert("the api listens on port 83 and more", threshold=0.5)
        project.record_episode("success", task="open the port", approach="asked", outcome="open")
        memory.files().create("/memories/a.txt", "first\nsecond\n")
        board = memory.board(session="c")
        board.initialise(project_id="p", active_node_id="n")
        board.append_message({"role": "user", "content": "hello"})
        chat.append("assistant", "at the node")
        memory.snapshot("whole")
        chat.snapshot("part")
        memory.fork("fork").conversation("c").append("user", "in the fork")
        memory.skills.library.learn("notes", "Write the notes of a release.", "Read the log.\n", status="active")
        memory.skills.library.learn("waiting", "Wait for a review.", "Wait.\n")
        table = memory.table("t")
        table.put("one", {"text": "of the table", "bytes": b"\x00\xff"})
        table.put(("two", "a"), 1)
        table.put(("two", "b"), 2)
        table.put("ended", 3, expires=timedelta(hours=-1))
        self.rendered = memory.fork("fork").conversation("c").snapshot().to_bytes()
        self.head = memory.head


def add_tail(memory: Memory) -> None:
    """Write what no row covers when the process dies, to streams that are there and to a new one."""
    for number in range(6):
        memory.conversation("c").append("user", f"tail {number}")
    memory.conversation("new", window_tokens=50).append("user", "new")
    memory.profile().set("tail", "value")
    memory.journal().append("a tail", day="2026-11-22")
    memory.table("t").put("tail", "value")
    memory.project("p").add("the tail is long")


def add_beside(memory: Memory, number: int) -> None:
    """Write what another process writes: a commit of several events and lone ones, to old streams and to a new one."""
    chat = memory.conversation("c")
    with memory.batch():
        for part in range(3):
            chat.append("user", f"beside {number} {part}")
        memory.profile().set(f"beside {number}", "value")
        memory.table("t").put(("beside", str(number)), number)
        memory.project("p").add(f"somebody wrote {number} beside")
    chat.append("assistant", f"beside {number}")
    memory.conversation(f"beside {number}").append("user", "new")


class Neighbour:
    """Another process, which opens stores and writes to them when it is told to."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", f"from tests.support.worlds import serve; serve({theirs.fileno()})"]
        with theirs:
            # Not our output: who reads that waits until everybody who has it is gone.
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL)
        self._pipe = Connection(ours.detach())

    def ask(self, verb: str, *given: Any) -> Any:
        """Do what is asked there, and return what came of it."""
        self._pipe.send((verb, given))
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()


class _Writer:
    """What writes in the other process: when it is told to, or all the time."""

    def __init__(self) -> None:
        self._memory = Memory()
        self._is_over = threading.Event()
        self._thread = threading.Thread()
        self._count = 0

    def open(self, path: str) -> None:
        """Open a store."""
        self._memory = Memory(path, clock_ns=Clock(0), random_bytes=seeded_bytes(2))

    def write(self, number: int) -> int:
        """Write once; return the head."""
        add_beside(self._memory, number)
        return self._memory.head

    def start(self) -> None:
        """Write from here on."""
        self._count = 0
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.005):
            with suppress(WrongVersion):  # A batch that met what the first process wrote.
                add_beside(self._memory, self._count + 1)
                self._count += 1

    def stop(self) -> int:
        """Write no more; return how often it wrote."""
        self._is_over.set()
        self._thread.join()
        return self._count

    def close(self) -> None:
        """Close the store."""
        self._memory.close()


def serve(file: int) -> None:
    """Do what the other side asks, until it is gone."""
    writer = _Writer()
    with Connection(file) as pipe, lowered(**BOUNDS):
        while True:
            try:
                verb, given = pipe.recv()
            except EOFError:
                return
            try:
                pipe.send(getattr(writer, verb)(*given))
            except Exception as error:  # noqa: BLE001 - it is raised on the other side
                pipe.send(error)


def crash(path: str, durability: str) -> None:
    """Write a tail to a store, and die before any row covers it."""
    with lowered(**BOUNDS | {"CHECKPOINT_EVENTS": CHECKPOINT_EVENTS}):
        memory = Memory(path, durability=durability, clock_ns=Clock(1), random_bytes=seeded_bytes(3))
        add_tail(memory)
        time.sleep(0.5 if durability == "delayed" else 0)  # Its thread makes the tail durable within 50 ms.
        os._exit(0)


class Kit:
    """What the worlds of one process share: a directory, filled stores to copy, and the other process."""

    def __init__(self, directory: Path, logs: Logs | None = None) -> None:
        self._directory = directory
        self.logs = logs
        """Where the stores are, if they are logs on a server."""
        self._open_things = ExitStack()
        self._templates: dict[tuple[str, bool], tuple[Path | str, Known, int]] = {}
        self._neighbour: Neighbour | None = None
        self._count = 0

    def __enter__(self) -> Self:
        self._open_things.enter_context(lowered(**BOUNDS))
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon_neighbour()
        self._open_things.close()

    def new_path(self) -> Path:
        """Return a path where nothing is."""
        self._count += 1
        return self._directory / f"{self._count}"

    def open(self, path: "Path | str | None", store: str, **options: Any) -> Memory:
        """Return a memory over a store."""
        if self.logs is not None and path is not None:
            options["cache"] = self._copies(str(path))
        elif path is not None:
            options["durability"] = store
        return Memory(path, **options)

    def _copies(self, address: str) -> Path:
        return self._directory / f"caches-{re.sub(r'.*log', '', address)}"

    def left(self, address: str) -> bytes:
        """Return every byte of a log on a server, and of its copies."""
        with closing(opened(address)) as commits:
            found = [packed for _, packed in everything(commits)]
        copies = self._copies(address).rglob("*")
        return b"".join([*found, *(path.read_bytes() for path in copies if path.is_file())])

    @property
    def neighbour(self) -> Neighbour:
        """The other process, started when it is first needed."""
        self._neighbour = self._neighbour or Neighbour()
        return self._neighbour

    def abandon_neighbour(self) -> None:
        """End the other process; the next one who needs it gets a new one."""
        if self._neighbour is not None:
            self._neighbour.end()
        self._neighbour = None

    def copy(self, store: str, *, crashed: bool) -> "tuple[Path | str, Known, int]":
        """Return a new store with known contents, and its head."""
        if (store, crashed) not in self._templates:
            self._templates[store, crashed] = self._template(store, crashed=crashed)
        template, known, head = self._templates[store, crashed]
        if self.logs is not None:
            return self.logs.copied(str(template)), known, head
        path = self.new_path()
        shutil.copytree(template, path)
        return path, known, head

    def _template(self, store: str, *, crashed: bool) -> "tuple[Path | str, Known, int]":
        if not crashed:
            path = self.new_path() if self.logs is None else self.logs.address()
            with self.open(path, store, clock_ns=Clock(0), random_bytes=seeded_bytes(1)) as memory:
                return path, Known(memory), memory.head
        path, known, _ = self.copy(store, crashed=False)
        program = f"from tests.support.worlds import crash; crash({str(path)!r}, {store!r})"
        subprocess.run([sys.executable, "-c", program], check=True)
        copy = self.new_path()
        shutil.copytree(path, copy)
        with Memory(copy) as memory:
            return path, known, memory.head


class Verb(NamedTuple):
    """A call of a public verb, and what it needs."""

    call: "Callable[[Any, World], Any]"
    """What is done, of the handle and the world."""
    handle: "Callable[[World], Any]" = lambda world: world.memory
    kind: "type[Any] | None" = None
    """The class whose verb it is."""
    prepare: "Callable[[World], Any]" = lambda _: None
    is_alone: bool = False
    """Whether no other process may have the store open meanwhile."""
    opens: str = ""
    """Whether it is what opens the store: "open" or "create"."""
    closes: bool = False
    embedder: "type[Letters] | None" = None
    """The embedder to which it switches the store."""
    thread: str = ""
    """The name of the threads in which it is interrupted, if that is not the caller's."""
    stores: Collection[str] = tuple(STATES)
    states: Collection[str] = STATES["durable"]

    def act(self, world: "World") -> Any:
        """Make the call; the handle is made as a part of it."""
        return self.call(self.handle(world), world)


class World:
    """One store in a state: what a verb is called on, and what is left of it."""

    def __init__(self, kit: Kit, store: str, state: str, verb: Verb) -> None:
        self.kit, self.store, self.verb = kit, store, verb
        self.is_beside = state == "beside" and not verb.is_alone
        """Whether the other process has the store open while the verb runs, and afterwards."""
        self.path: Path | str | None = None
        self.head = 0
        """The seq of the last event before the verb."""
        self.things: dict[str, Any] = {}
        """What the preparation of a verb leaves for it."""
        self._clock, self._random_bytes = Clock(2), seeded_bytes(4)
        self._memory: Memory | None = None
        self._fill(state)
        if not verb.opens:
            if state in {"warm", "beside"}:
                look(self.memory)
            verb.prepare(self)
            self.head = self.memory.head
        if state == "beside":
            kit.neighbour.ask("open", str(self.path))
            self.head = kit.neighbour.ask("write", 0)
            if not self.is_beside:
                kit.neighbour.ask("close")

    def _fill(self, state: str) -> None:
        if self.verb.opens == "create":
            self.path = None if self.store == "ram" else self.kit.new_path()
        elif self.store == "ram":
            self.known = Known(self.memory)
        else:
            self.path, self.known, self.head = self.kit.copy(self.store, crashed=state == "tail")

    @property
    def memory(self) -> Memory:
        """The handle, opened if it is not."""
        self.open()
        assert self._memory is not None
        return self._memory

    def open(self) -> None:
        """Open the store, if it is not open."""
        if self._memory is None:
            self._memory = self.opened()

    def forget(self) -> None:
        """Let the next who needs a handle get another one: this one is closed."""
        self._memory = None

    def opened(self) -> Memory:
        """Return another handle on the store."""
        options: dict[str, Any] = {"clock_ns": self._clock, "random_bytes": self._random_bytes}
        memory = self.kit.open(self.path, self.store, **options)
        if self.verb.embedder is None or not any(isinstance(event, EmbedderSwitched) for event, _ in memory.events()):
            return memory
        memory.close()
        return self.kit.open(self.path, self.store, embedder=self.verb.embedder(), **options)

    def left(self) -> bytes:
        """Return every byte that the store keeps, once it is closed."""
        assert self.path is not None
        if self.kit.logs is None:
            return b"".join(path.read_bytes() for path in Path(self.path).iterdir() if path.is_file())
        return self.kit.left(str(self.path))

    def new_path(self) -> Path:
        """Return a path where nothing is, for what the verb writes beside the store."""
        return self.kit.new_path()

    def end(self) -> None:
        """Let go of everything."""
        if self.is_beside:
            self.kit.neighbour.ask("close")
        if isinstance(self.path, Path):
            shutil.rmtree(self.path, ignore_errors=True)


def look(memory: Memory) -> None:
    """Read everything of every stream that is written to."""
    for chat in map(memory.conversation, memory.conversations()):
        chat.token_count()
        chat.window()
        chat.scratchpad.to_dict()
        chat.state.items()
    memory.profile().items()
    memory.journal().day("2026-11-21")
    for name in {"p", *memory.projects()}:
        project = memory.project(name)
        project.list()
        project.search("which port does the api listen on")
        project.search_episodes("open the port")
    memory.files().list()
    memory.table("t").scan()
    memory.board(session="c").to_dict()
    memory.settings.items()
    memory.snapshots()
