"""What is recorded: seeded workloads through the public verbs, which note outside of the store what was acknowledged.

Runs as a child process under the recorder. A row of ``WORKLOADS`` is one workload; what each of its steps returns is
the seq up to which the log is acknowledged, and the messages that are.
"""

import faulthandler
import json
import os
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import refold.engine.witness  # noqa: F401 - loaded, so that its bounds can be lowered
from refold import Conversation, Memory, Message, Recorded, fold, recover
from refold.engine.reader import end_of_command
from refold.event import Erased
from tests.rigs.breaks import BUILDS
from tests.support.bounds import Clock, lowered, seeded_bytes
from tests.support.seams import log_of

TEXT_CHARS: Final = (5, 80, 900, 5_000, 20_000)
LETTERS: Final = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")
"""Digits as letters that no id has."""
ERASE_SEQS_PROBABILITY: Final = 0.7
SEEDS_APART: Final = 1_000
RUN_SECONDS_MAX: Final = 60
"""A workload takes about one; one that stands still ends here, and says where each thread stood."""


class Notes:
    """The acknowledgements, one JSON line each; a workload that is not durable at once holds them until a flush."""

    def __init__(self, path: str, *, held: bool) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._held: list[bytes] | None = [] if held else None
        self._originals: set[int] = set()
        self._lock = threading.Lock()

    def said(self, seq: int, *messages: Message, beside: str = "", erased: Sequence[int] = ()) -> None:
        """Note that everything up to a seq was acknowledged, and messages, a directory beside, what was erased."""
        texts = [[message.seq, message.content] for message in messages]
        note = {"seq": seq, "messages": texts, "beside": [beside] if beside else [], "erased": list(erased)}
        line = json.dumps(note).encode() + b"\n"
        with self._lock:
            if self._held is None:
                os.write(self._file, line)
            else:
                self._held.append(line)

    def before(self, events: Iterable[Recorded]) -> None:
        """Note what events said before something is erased: nobody can be asked for it afterwards."""
        said = {stamp.seq: event for event, stamp in events if not stamp.erased and stamp.seq not in self._originals}
        self._originals |= said.keys()
        originals = {seq: b64encode(fold.encode(event)).decode() for seq, event in said.items()}
        note = {"seq": -1, "messages": [], "beside": [], "erased": [], "originals": originals}
        os.write(self._file, json.dumps(note).encode() + b"\n")

    def flushed(self) -> None:
        """Note everything that was held."""
        with self._lock:
            lines, self._held = self._held, self._held if self._held is None else []
            if lines:
                os.write(self._file, b"".join(lines))


class Store:
    """The memory that all workers of one workload share, and how it is opened again."""

    def __init__(self, path: str, seed: int, options: Mapping[str, Any]) -> None:
        self.path, self._seed, self._options = path, seed, options
        self._opened = 0
        self.clock = Clock()
        self.memory = self._open()

    def _open(self) -> Memory:
        self._opened += 1
        random_bytes = seeded_bytes(self._seed * SEEDS_APART + self._opened)
        return Memory(self.path, clock_ns=self.clock, random_bytes=random_bytes, **self._options)

    def reopen(self) -> None:
        """Close the memory and open it again."""
        self.memory.close()
        self.memory = self._open()


@dataclass(slots=True)
class Worker:
    """One thread of a workload: its number, its chance, and what it may use."""

    number: int
    store: Store
    random: Random
    notes: Notes
    forks: list[str] = field(default_factory=list)

    @property
    def memory(self) -> Memory:
        """The memory as it is open now."""
        return self.store.memory

    def chat(self) -> Conversation:
        """Return one of the conversations that this worker alone writes to; their budget lets messages leave."""
        name = self.random.choice([f"{self.number}/first", f"{self.number}/second", *self.forks])
        return self.memory.conversation(name, window_tokens=None if name in self.forks else 2_000)

    def text(self) -> str:
        """Return a text that occurs once, and so does each part of it, short or longer than a page."""
        return self.random.randbytes(self.random.choice(TEXT_CHARS) // 2 + 4).hex().translate(LETTERS)


Done: TypeAlias = tuple[int, list[Message]]
Step: TypeAlias = Callable[[Worker], Done]


def seq_of(message: Message) -> int:
    """Return the seq that a message got, now that its batch is written."""
    assert isinstance(message.seq, int), message
    return message.seq


def append(worker: Worker) -> Done:
    """Append a message."""
    message = worker.chat().append("user", worker.text())
    return seq_of(message), [message]


def append_batch(worker: Worker) -> Done:
    """Append several messages, and journal notes, that stand or fall together."""
    with worker.memory.batch():
        messages = [worker.chat().append("assistant", worker.text()) for _ in range(worker.random.randint(2, 6))]
        worker.memory.journal().append(worker.text())
    return max(map(seq_of, messages)), messages


def mix_batch(worker: Worker) -> Done:
    """Write to several kinds of memory at once."""
    with worker.memory.batch():
        chat = worker.chat()
        message = chat.append("tool", worker.text())
        chat.scratchpad.set("step", worker.text())
        chat.state.set("project:goal" if chat.project else "goal", worker.text())
        worker.memory.profile().set(worker.random.choice("abc"), worker.text())
    return worker.memory.head, [message]


def scribble(worker: Worker) -> Done:
    """Set, note, delete."""
    chat = worker.chat()
    verb = worker.random.choice(("set", "note", "delete", "profile"))
    if verb == "set":
        chat.scratchpad.set(worker.random.choice("abc"), worker.text())
    elif verb == "note":
        chat.scratchpad.note(worker.text())
    elif verb == "delete":
        chat.scratchpad.delete(worker.random.choice("abc"))
    else:
        worker.memory.profile().set(worker.random.choice("abc"), worker.text())
    return worker.memory.head, []


def travel(worker: Worker) -> Done:
    """Name a snapshot, restore it after a further message, and fork."""
    chat = worker.chat()
    chat.append("user", worker.text())
    snapshot = chat.snapshot(f"after-{worker.memory.head}")
    worker.notes.said(worker.memory.head)
    message = chat.append("user", worker.text())
    worker.notes.said(worker.memory.head, message)
    chat.restore(snapshot)
    worker.notes.said(worker.memory.head)
    fork = f"{worker.number}/fork-{worker.memory.head}"
    chat.fork(fork)
    worker.forks.append(fork)
    return worker.memory.head, []


def flush(worker: Worker) -> Done:
    """Store what waits, checkpoints among it."""
    head = worker.memory.head
    worker.memory.flush()
    worker.notes.flushed()
    return head, []


def reopen(worker: Worker) -> Done:
    """Close and open; only a workload of one thread may."""
    worker.store.reopen()
    worker.notes.flushed()
    return worker.memory.head, []


def back_up(worker: Worker) -> Done:
    """Take a backup, and recover an earlier state from it, beside the store."""
    head = worker.memory.head
    backup, recovered = (Path(worker.store.path).with_name(f"{name}-{head}") for name in ("backup", "recovered"))
    if not backup.exists():
        worker.memory.backup(backup)
        worker.notes.said(head, beside=backup.name)
        end = end_of_command(log_of(worker.memory), head // 2) if head > 1 else 0
        recover(backup, recovered, to=end, clock_ns=worker.store.clock)
        worker.notes.said(head, beside=recovered.name)
    return head, []


def back_up_whole(worker: Worker) -> Done:
    """Take a backup beside the store."""
    head = worker.memory.head
    backup = Path(worker.store.path).with_name(f"backup-{head}")
    if not backup.exists():
        worker.memory.backup(backup)
        worker.notes.said(head, beside=backup.name)
    return head, []


def erase(worker: Worker) -> Done:
    """Erase some events, or a conversation with its forks; once that is told, it is acknowledged and durable."""
    events = [recorded for recorded in worker.memory.events() if not isinstance(recorded.event, Erased)]
    worker.notes.before(events)
    if worker.random.random() < ERASE_SEQS_PROBABILITY:
        receipt = worker.memory.erase(worker.random.sample(events, min(len(events), 3)))
    else:
        receipt = worker.chat().erase(forks="erase")
    worker.notes.said(worker.memory.head, erased=[*receipt.seqs, *receipt.derived])
    worker.notes.flushed()
    return worker.memory.head, []


@dataclass(frozen=True)
class Workload:
    """What each of ``threads`` does ``count`` times, drawn by weight; with which bounds and options of Memory.

    ``is_directory_there`` lets the store be created in an empty directory that is there before. ``has_witness`` gives
    it a witness beside it, which every state has to agree with.
    """

    steps: Mapping[Step, int]
    count: int
    threads: int = 1
    is_directory_there: bool = False
    has_witness: bool = False
    bounds: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_held(self) -> bool:
        """Whether a write is acknowledged by a flush only."""
        return "delayed" in self.options.values()


ALL_STEPS: Final[Mapping[Step, int]] = {
    append: 8,
    append_batch: 4,
    mix_batch: 4,
    scribble: 4,
    travel: 2,
    flush: 1,
    reopen: 1,
}
WORKLOADS: Final[Mapping[str, Workload]] = {
    "durable": Workload(ALL_STEPS, 30),
    "creation": Workload({append: 1}, 4),
    "creation_in_place": Workload({append: 1}, 4, is_directory_there=True),
    "checkpoints": Workload(
        {append: 6, append_batch: 3, mix_batch: 3, travel: 1, flush: 3, reopen: 2},
        40,
        bounds={"CHECKPOINT_EVENTS": 4, "CHECKPOINT_ROWS_MAX": 3, "PACKED_COUNT_MIN": 1, "TAIL_EVENTS_MAX": 15},
    ),
    "threads": Workload({append: 4, append_batch: 2, flush: 1}, 8, threads=4),
    "backup": Workload({append: 3, append_batch: 3, travel: 1, flush: 1, back_up: 3}, 15),
    "erasing": Workload(
        {append: 6, append_batch: 3, scribble: 3, travel: 2, erase: 6, back_up_whole: 1, flush: 1, reopen: 1},
        20,
        bounds={"CHECKPOINT_EVENTS": 4, "PACKED_COUNT_MIN": 1, "TAIL_EVENTS_MAX": 15},
    ),
    "erasing_delayed": Workload(
        {append: 6, mix_batch: 3, travel: 1, erase: 5, flush: 1, reopen: 1},
        20,
        bounds={"CHECKPOINT_EVENTS": 4, "PACKED_COUNT_MIN": 1, "TAIL_EVENTS_MAX": 15},
        options={"durability": "delayed"},
    ),
    "delayed": Workload(
        {append: 6, append_batch: 3, mix_batch: 3, travel: 1, flush: 3, reopen: 1},
        40,
        bounds={"CHECKPOINT_EVENTS": 4, "CHECKPOINT_ROWS_MAX": 3, "PACKED_COUNT_MIN": 1, "TAIL_EVENTS_MAX": 15},
        options={"durability": "delayed"},
    ),
    "witness": Workload(
        {append: 8, append_batch: 3, flush: 1, reopen: 1},
        15,
        has_witness=True,
        bounds={"WITNESS_MS": 1},
        options={"durability": "delayed"},
    ),
}


def witness_of(path: str | os.PathLike[str]) -> str:
    """Return where the witness of a store lies."""
    return f"{os.fspath(path)}-witness"


def work(worker: Worker, workload: Workload) -> None:
    """Do one thread's steps and note what was acknowledged."""
    steps, weights = zip(*workload.steps.items(), strict=True)
    for step in worker.random.choices(steps, weights, k=workload.count):
        seq, messages = step(worker)
        worker.notes.said(seq, *messages)
        if workload.threads == 1:
            worker.store.clock.advance(worker.random.randrange(1_000))


def work_together(store: Store, notes: Notes, workload: Workload, seed: int) -> None:
    """Let every thread do its steps, all from one barrier; what one of them raises is raised here."""
    barrier = threading.Barrier(workload.threads)
    failures: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            barrier.wait()
            work(Worker(number, store, Random(f"{seed}/{number}"), notes), workload)
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(workload.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def main(name: str, seed: int, path: str, notes_path: str, build: str) -> None:
    """Run one workload on the store at a path, with the named build of refold."""
    workload = WORKLOADS[name]
    BUILDS[build]()
    with lowered(**workload.bounds):
        notes = Notes(notes_path, held=workload.is_held)
        witness = {"witness": witness_of(path)} if workload.has_witness else {}
        store = Store(path, seed, {**workload.options, **witness})
        notes.said(store.memory.head)
        notes.flushed()
        work_together(store, notes, workload, seed)
        head = store.memory.head
        store.memory.close()
        notes.said(head)
        notes.flushed()


if __name__ == "__main__":
    faulthandler.dump_traceback_later(RUN_SECONDS_MAX, exit=True)
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:6])
