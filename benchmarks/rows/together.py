"""Many writers at once: threads, asyncio tasks and processes, and one writer that does not wait for the disk."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import workloads
from crews import Crew
from floors import BareTicks
from rounds import Job, Target, alternate, median, quantile
from rows.table import Options, Row, compared, limited, processor, rate

from refold import Memory

THREADS_COUNT = 16
TASKS_COUNT = 512
CHILDREN = Path(__file__).resolve().parent.parent / "children.py"

ONE = "refold, one writer"
THREADS = f"{THREADS_COUNT} threads, durable append"
TASKS = f"{TASKS_COUNT} asyncio tasks, durable append"
PROCESSES = {f"{count} processes, durable append": count for count in (2, 4)}
DELAYED = "one writer, durability=delayed, acknowledged"
TICKS = "the same awaits on one bare group commit"
TASK_CPU_NS = 8_000.0


class Wanted(NamedTuple):
    """What the report says of a way to write: how much of its floor's rate it has to reach, if that is promised."""

    target: Target | None
    note: str


WANTED = {
    THREADS: Wanted(Target("at least", 4), "a conversation each"),
    TASKS: Wanted(Target("at least", 0.4), "a conversation each"),
    **{name: Wanted(None, "a conversation each") for name in PROCESSES},
    DELAYED: Wanted(None, "the disk follows outside the clock"),
}


def memory_in(directory: Path, name: str, durability: str = "durable") -> Memory:
    """Return a new memory in a directory of its own."""
    return Memory(directory / name, durability=durability, window_tokens=workloads.WINDOW_TOKENS)


class Tasks:
    """Tasks on one event loop, each of which appends to its own conversation and waits until that is durable."""

    def __init__(self, memory: Memory, events: int) -> None:
        self._chats = [memory.aio.conversation(f"chat-{place:04d}") for place in range(TASKS_COUNT)]
        self._said = [workloads.share(place, events) for place in range(TASKS_COUNT)]
        self._runner = asyncio.Runner()
        self._events = events

    async def _talk(self, place: int) -> None:
        append = self._chats[place].append
        for content, tokens in self._said[place]:
            await append("user", content, tokens=tokens)

    async def _all(self) -> None:
        await asyncio.gather(*map(self._talk, range(TASKS_COUNT)))

    def job(self) -> Job:
        """Return the job of all tasks."""
        return Job(lambda: self._runner.run(self._all()), TASKS_COUNT * self._events)

    def close(self) -> None:
        """End the loop."""
        self._runner.close()


class BareTasks:
    """As many tasks with the same awaits on a bare log, whose records are made beforehand."""

    def __init__(self, path: Path, events: int) -> None:
        self.log = BareTicks(path)
        self._records = [workloads.records(workloads.share(place, events)) for place in range(TASKS_COUNT)]
        self._runner = asyncio.Runner()
        self._events = events

    async def _talk(self, place: int) -> None:
        append = self.log.append
        for record in self._records[place]:
            await append(record)

    async def _all(self) -> None:
        await asyncio.gather(*map(self._talk, range(TASKS_COUNT)))

    def job(self) -> Job:
        """Return the job of all tasks."""
        return Job(lambda: self._runner.run(self._all()), TASKS_COUNT * self._events)

    def close(self) -> None:
        """End the loop and release the log."""
        self._runner.close()
        self.log.close()


class Writers:
    """Processes that write to one store, each to its own conversation, whenever they are told to."""

    def __init__(self, path: Path, count: int, events: int) -> None:
        Memory(path).close()
        self._events = events
        self._children = [self._child(path, place) for place in range(count)]
        self._hear("ready")

    def _child(self, path: Path, place: int) -> subprocess.Popen[str]:
        command = [sys.executable, str(CHILDREN), "write", str(path), str(place), str(self._events)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _hear(self, expected: str) -> None:
        for child in self._children:
            assert child.stdout is not None, "its output was asked for"
            said = child.stdout.readline().strip()
            assert said == expected, f"a writing process said {said!r}, not {expected!r}"

    def write(self) -> None:
        """Let every process write, and return when all are done."""
        for child in self._children:
            assert child.stdin is not None, "its input was asked for"
            child.stdin.write("write\n")
            child.stdin.flush()
        self._hear("written")

    def job(self) -> Job:
        """Return the job of all processes."""
        return Job(self.write, len(self._children) * self._events)

    def close(self) -> None:
        """Let the processes end, and wait for them."""
        for child in self._children:
            child.communicate()
            assert child.returncode == 0, f"a writing process ended with {child.returncode}"


class Together:
    """The jobs of all ways to write, each on a store of its own."""

    def __init__(self, stack: ExitStack, directory: Path, sizes: workloads.Sizes) -> None:
        self._stack = stack
        self._directory = directory
        self._sizes = sizes

    def _memory(self, name: str, durability: str = "durable") -> Memory:
        return self._stack.enter_context(memory_in(self._directory, name, durability))

    def one(self) -> Job:
        """Return the job of one writer: what the others are compared with."""
        chat = self._memory("one").conversation("chat-0000")
        said = workloads.share(0, self._sizes.writer_events)
        return Job(lambda: workloads.say(chat, said), len(said))

    def threads(self) -> Job:
        """Return the job of threads with a conversation each."""
        chats = workloads.handles(self._memory("threads"), THREADS_COUNT)
        said = [workloads.share(place, self._sizes.thread_events) for place in range(THREADS_COUNT)]
        crew = self._stack.enter_context(Crew(THREADS_COUNT))
        return crew.job(lambda place: workloads.say(chats[place], said[place]), self._sizes.thread_events)

    def tasks(self) -> Job:
        """Return the job of asyncio tasks with a conversation each."""
        tasks = Tasks(self._memory("tasks"), self._sizes.task_events)
        self._stack.callback(tasks.close)
        return tasks.job()

    def ticks(self) -> Job:
        """Return the job of the tasks' floor."""
        tasks = BareTasks(self._directory / "ticks", self._sizes.task_events)
        self._stack.callback(tasks.close)
        return tasks.job()

    def processes(self, count: int) -> Job:
        """Return the job of so many processes with a conversation each."""
        writers = Writers(self._directory / f"processes-{count}", count, self._sizes.thread_events)
        self._stack.callback(writers.close)
        return writers.job()

    def delayed(self) -> Job:
        """Return the job of one writer who is answered before the disk is asked; the flush is outside the clock."""
        memory = self._memory("delayed", "delayed")
        chat = memory.conversation("chat-0000")
        said = workloads.share(0, self._sizes.batch_events)
        return Job(lambda: workloads.say(chat, said), len(said), settle=memory.flush)

    def makers(self) -> dict[str, Callable[[], Job]]:
        """Return how to make each job."""
        makers = {ONE: self.one, THREADS: self.threads, TASKS: self.tasks, TICKS: self.ticks, DELAYED: self.delayed}
        several = {name: lambda count=count: self.processes(count) for name, count in PROCESSES.items()}
        return {**makers, **several}


NAMES = (ONE, TICKS, *WANTED)


@contextmanager
def writers(directory: Path, sizes: workloads.Sizes, names: tuple[str, ...] = NAMES) -> Generator[dict[str, Job], None]:
    """Open the jobs of some ways to write."""
    with ExitStack() as stack:
        makers = Together(stack, directory, sizes).makers()
        yield {name: makers[name]() for name in names}


def rows(options: Options) -> Iterator[Row]:
    """Measure every way to write against one writer of the same rounds, tasks against the same awaits."""
    with writers(options.directory, options.sizes) as jobs:
        samples = alternate(jobs, options.rounds, warm_up=2)
    for name, wanted in WANTED.items():
        ours = samples[name]
        floor = TICKS if name == TASKS else ONE
        worked = "" if name in PROCESSES else f"{processor(samples, name, floor)}; "
        note = f"({rate(median(ours))}; {worked}{wanted.note})"
        yield compared(f"{name}, per event", ours, floor, samples[floor], wanted.target, note=note)
    worked_ns = quantile(samples.processor[TASKS], 1)
    yield limited(f"{TASKS}, of the processor", worked_ns, TASK_CPU_NS, "(fastest tenth of the rounds)")
