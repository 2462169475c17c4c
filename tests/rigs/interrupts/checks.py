"""What must hold of a store after one of its verbs was interrupted."""

import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby
from types import FrameType
from typing import NamedTuple

from refold import Memory, StoreCorrupt
from tests.rigs.interrupts.points import Outcome
from tests.support.worlds import World, look


class Hung(BaseException):
    """Something did not come to its end."""


class Finding(NamedTuple):
    """What was wrong."""

    kind: str
    text: str


class Line(NamedTuple):
    """An event, as far as it is compared."""

    seq: int
    time_ns: int
    what: str
    """The kind of the stream and of the event."""


class Course(NamedTuple):
    """What the log holds before a verb, what each of its commits adds, and what is added afterwards."""

    before: list[str]
    commits: list[list[str]]
    after: list[str]


@contextmanager
def watched(seconds: int) -> Iterator[None]:
    """Raise ``Hung`` in whatever waits inside of the block for too long."""

    def ring(_: int, frame: FrameType | None) -> None:
        raise Hung("".join(traceback.format_stack(frame, 8)))

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def lines(memory: Memory) -> list[Line]:
    """Return what the log holds, forks included, in the order of seqs."""
    found: dict[int, Line] = {}
    for handle in [memory, *map(memory.fork, memory.forks())]:
        for event, stamp in handle.events():
            what = f"{stamp.stream.partition('/')[0]} {type(event).__name__}"
            found.setdefault(stamp.seq, Line(stamp.seq, stamp.time_ns, what))
    return [found[seq] for seq in sorted(found)]


class Judge:
    """Looks at a world after its verb, finding by finding; ``course`` is what it saw where nothing was interrupted."""

    def __init__(self, world: World, course: Course | None, patience: int) -> None:
        self.findings: list[Finding] = []
        self.is_hung = False
        self.is_closed = False
        """Whether nothing of the store is left open in this process."""
        self._patience = patience
        self._world, self._expected = world, course
        self.course = course
        self._goes_on = False
        self._head = 0
        """The seq of the last event behind the verb."""
        self._hash = ""

    def _try(self, kind: str, check: Callable[[], str | None]) -> bool:
        """Make a check, which returns what is wrong; nothing is checked any more once something hung."""
        if self.is_hung:
            return False
        try:
            with watched(self._patience):
                wrong = check()
        except Hung as error:
            self.is_hung, wrong = True, f"hangs at {error}"
        except BaseException as error:  # noqa: BLE001 - whatever it raises is what is wrong
            wrong = f"{error!r} at {traceback.format_tb(error.__traceback__)[-1].strip()}"
        if wrong:
            self.findings.append(Finding(f"{kind} hangs" if self.is_hung else kind, wrong))
        return not wrong

    def judge_outcome(self, outcome: Outcome, error: type[BaseException]) -> None:
        """Look at what came out of an interrupted call: Ctrl-C comes out as such, and no shortage is a damage."""
        came = f"the call raised {outcome.raised!r}" if outcome.raised else "the call returned"
        if error is MemoryError and isinstance(outcome.raised, StoreCorrupt):
            self.findings.append(Finding("damage", came))
        elif error is KeyboardInterrupt and type(outcome.raised) is not error and not outcome.is_ignored:
            stack = "".join(traceback.format_exception(outcome.raised)) if outcome.raised else ""
            self.findings.append(Finding("replaced", f"{came}\n{stack}"))

    def judge(self, *, was_interrupted: bool, is_deep: bool) -> None:
        """Go on with the handle, from this thread and another one and beside the other process, and close it.

        A deep look verifies, too, and opens the store anew.
        """
        memory = self._opened()
        if memory is None:
            return
        self._goes_on = self._go_on(memory)
        self._try("state", lambda: is_replay(memory))
        self._try("log", lambda: self._compare(memory, was_interrupted=was_interrupted))
        in_ram = self._world.path is None
        if is_deep and in_ram:
            self._try("verify", lambda: verified(memory))
        self._try("state", lambda: self._keep_hash(memory))
        self.is_closed = self._try("close", memory.close)
        if is_deep and not in_ram and self.is_closed:
            self.is_closed = self._try("reopening", lambda: self._reopen(was_interrupted=was_interrupted))

    def _opened(self) -> Memory | None:
        """Return the handle, one that was opened anew behind what closes; ``None`` where there is none."""
        world = self._world
        if world.verb.closes:
            is_closed = self._try("close", world.memory.close)
            self.is_closed = is_closed and world.path is None
            if not is_closed or world.path is None:
                return None
            world.forget()
        return world.memory if self._try("opening", world.open) else None

    def _go_on(self, memory: Memory) -> bool:
        """Read and write as if nothing had been; return whether that can be done."""
        world = self._world
        checks: list[tuple[str, Callable[[], str | None]]] = [
            ("reads", lambda: look(memory)),
            ("stale", lambda: self._keep_head(memory)),
            ("writes", lambda: write(memory, "own")),
            ("threads", lambda: _in_thread(lambda: write(memory, "thread"))),
        ]
        if world.is_beside:
            checks.append(("neighbour", lambda: world.kit.neighbour.ask("write", 1) and None))
            checks.append(("reads", lambda: look(memory)))
        if world.verb.thread:
            checks.append(("subscribers", lambda: _deliver(memory)))
        return [self._try(kind, check) for kind, check in checks].count(False) == 0

    def _keep_head(self, memory: Memory) -> str | None:
        self._head, durable = memory.head, self._world.head
        return None if self._head >= durable else f"the head is {self._head}, and {durable} is durable"

    def _keep_hash(self, memory: Memory) -> None:
        self._hash = memory.state_hash()

    def _reopen(self, *, was_interrupted: bool) -> str | None:
        with self._world.opened() as memory:
            wrong = verified(memory) or is_replay(memory)
            if not wrong and self._hash and memory.state_hash() != self._hash:
                wrong = "the state is another one than before it was closed"
            return wrong or self._compare(memory, was_interrupted=was_interrupted)

    def _compare(self, memory: Memory, *, was_interrupted: bool) -> str | None:
        """Hold the log against what it should be: all that was there, of the verb whole commits, all that followed."""
        found = lines(memory)
        if [line.seq for line in found] != list(range(1, len(found) + 1)):
            return f"the log holds seqs {[line.seq for line in found]}"
        between = found[self._world.head : self._head]
        commits = [[line.what for line in group] for _, group in groupby(between, lambda line: line.time_ns)]
        after = [line.what for line in found[self._head :] if "Opened" not in line.what]
        course = Course([line.what for line in found[: self._world.head]], commits, after)
        expected = self.course = self._expected or course
        if course.before != expected.before:
            return f"before the verb: {_difference(course.before, expected.before)}"
        # What could not be written is found already.
        if course.after != expected.after and self._goes_on:
            return f"after the verb: {_difference(course.after, expected.after)}"
        prefixes = [[], *accumulate([commit] for commit in expected.commits)]
        if commits not in (prefixes if was_interrupted else prefixes[-1:]):
            return f"of the verb: {commits}, and whole it is {expected.commits}"
        return None


def write(memory: Memory, who: str) -> str | None:
    """Write what only a sound handle can, to streams of several kinds, alone and in a batch."""
    chat = memory.conversation("c")
    stamp = chat.append("user", f"{who} goes on").stamp
    seq: int | None = stamp.seq
    if stamp.actor != "user":
        return f"a message of the user is stamped as one of {stamp.actor}"
    if seq is None or seq < 1 or chat.window()[-1].content != f"{who} goes on":
        return f"an append returned seq {seq}, and the window ends with {chat.window()[-1:]}"
    memory.profile().set(f"{who} goes on", "value")
    with memory.batch():
        chat.append("user", f"{who} in a batch")
        memory.project("p").add(f"{who} goes on and adds what nobody added")
    return None


def _in_thread(call: Callable[[], str | None]) -> str | None:
    results: list[str | None] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is what is wrong
            results.append(f"{error!r} at {traceback.format_tb(error.__traceback__)[-1].strip()}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()  # Watched: the alarm ends it.
    return results[0]


def _deliver(memory: Memory) -> str | None:
    """Wait until a subscriber hears of the last event, which is durable then."""
    head = memory.head
    with memory.subscribe(lambda _: None, after=head - 1) as subscription:
        while subscription.position < head:  # Watched: the alarm ends it.
            time.sleep(0.001)
            if not subscription.is_alive:
                return f"a new subscription ended with {subscription.error!r}"
    return None


def is_replay(memory: Memory) -> str | None:
    """Return what is wrong with the live state."""
    return None if memory.state_hash() == memory.replay_hash() else "the live state is not that of a replay"


def verified(memory: Memory) -> str | None:
    """Return what is wrong with the store."""
    report = memory.verify()
    return None if report.ok else f"verify found {report.findings[:3]}"


def _difference(found: Sequence[str], expected: Sequence[str]) -> str:
    places = [place for place, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]]
    return f"{len(found)} events for {len(expected)}, different from place {places[0] if places else None} on"
