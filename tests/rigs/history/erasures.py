"""The erasing rig: what was said to be erased is gone, whenever whoever erases, sweeps or backs up is killed.

In one loop, processes open the store in turn and at once, append, erase and take backups. One kills itself at a drawn
moment of an erasure, a sweep or a backup, or is killed after a drawn number of answers; others go on. Then the store is
opened, which has to finish what was cut off, and its log, its files and what lies beside it are compared with all that
was ever said.
"""

import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

from refold import Memory, Recorded
from refold.message import MessageAppended
from tests.rigs import judge
from tests.rigs.history.calls import answered, opened
from tests.rigs.history.checker import Violation
from tests.rigs.history.eraser import MOMENTS, SERVER_MOMENTS, Said, Setup, copies_in
from tests.rigs.history.tally import Tally
from tests.support.commits import Logs, everything
from tests.support.commits import opened as commits_at
from tests.support.paths import ROOT
from tests.support.seams import engine_of

ANSWERS_MAX: Final = 30
DOOMED_ANSWERS_MAX: Final = 100
"""One that does not come to its moment is killed after so many answers."""
TIMES_MAX: Final = 3
SURVIVOR_ANSWERS: Final = 3
LOOPS_PER_STORE: Final = 5
SILENCE_SECONDS: Final = 300
"""Between two lines a process may erase, close and open again. While servers fail, the erasure and the closing each ask
them several times, for up to 15 s each, and opening is tried for 120 s."""
STACKS_SECONDS: Final = 1.0
"""For writing the stacks of a process that is silent."""
LAG_SECONDS: Final = 60.0
"""A replica that was stopped answers before it hears what was erased, and then takes it in."""
LOOKS: Final = 60
MARK: Final = re.compile(r"<[^>]+>")


class Process:
    """A process of the rig, and all that it said."""

    def __init__(self, setup: Setup, heard: threading.Condition) -> None:
        self.setup = setup
        self.lines: list[Said] = []
        self.has_ended = False
        self._errors = ""
        self._heard = heard
        command = [sys.executable, "-m", "tests.rigs.history.eraser", msgspec.json.encode(setup).decode()]
        self._child = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    @property
    def answers(self) -> int:
        """How many calls came back."""
        return sum(line.is_answer for line in self.lines)

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            with self._heard:
                self.lines.append(msgspec.json.decode(line, type=Said))
                self._heard.notify_all()
        with self._heard:
            self.has_ended = True
            self._heard.notify_all()

    def kill(self) -> None:
        """Kill it with no warning, and read what it had written before."""
        self._child.kill()
        self._end()

    def stacks(self) -> str:
        """Kill it, and return what its threads were doing, from what it wrote to standard error."""
        self._child.send_signal(signal.SIGUSR1)
        time.sleep(STACKS_SECONDS)
        self._child.kill()
        assert self._child.stderr is not None
        return self._child.stderr.read().decode(errors="replace")

    def check_killed(self) -> None:
        """Raise if it did not die by the signal: an end of its own would pass for a kill."""
        status = self._child.returncode
        assert status == -signal.SIGKILL, f"{self.setup} ended by itself with {status}: {self._errors[-2_000:]}"

    def stop(self) -> None:
        """Let it finish what it is at; an error of its own is one of the rig."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        status = self._child.wait(SILENCE_SECONDS)
        self._end()
        assert not status, f"{self.setup} ended with {status}: {self._errors[-2_000:]}"

    def _end(self) -> None:
        self._child.wait()
        self._thread.join()
        assert self._child.stderr is not None
        if not self._child.stderr.closed:
            self._errors = self._child.stderr.read().decode(errors="replace")
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            assert pipe is not None
            pipe.close()


def run(
    directory: Path,
    tally: Tally,
    *,
    loops: int,
    broken: str = "",
    logs: Logs | None = None,
    on_loop: Callable[[Tally], None] = lambda _: None,
    moments: Sequence[str] = (),
) -> Tally:
    """Run the loops, the first process of each doomed to one of the moments; stop after the first with a violation."""
    for first in range(0, loops, LOOPS_PER_STORE):
        place = directory / f"loops-from-{first}"
        place.mkdir()
        path = logs.address() if logs else str(place / "store")
        choices = moments or ("", *MOMENTS, *(SERVER_MOMENTS if logs else ()))
        lines: list[Said] = []
        for number in range(first, min(first + LOOPS_PER_STORE, loops)):
            on_loop(tally)
            random = Random(f"{tally.seed}/{number}")
            loop = Loop(number, random, broken, random.choice(choices), path, place)
            tally.violations += _guarded(loop, lines, tally)
            tally.loops += 1
            if tally.violations:
                (place / "journal").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
                return tally
        shutil.rmtree(place)
    return tally


class Loop(NamedTuple):
    """One loop of a run; its first process is doomed to the moment."""

    number: int
    random: Random
    broken: str
    moment: str
    path: str
    place: Path


def _guarded(loop: Loop, lines: list[Said], tally: Tally) -> list[Violation]:
    """Run one loop; an error, of whatever kind, is a violation too."""
    try:
        _kill_one(loop, lines, tally)
        return [Violation("an_erasure_is_whole_and_final", finding) for finding in _findings(loop, lines, tally)]
    except Exception:  # noqa: BLE001 - a store that cannot be opened any more may fail in any way
        return [Violation("a_kill_stops_nobody_else", f"loop {loop.number}: {traceback.format_exc()}")]


def _kill_one(loop: Loop, lines: list[Said], tally: Tally) -> None:
    number, random, broken, moment, path, place = loop
    heard = threading.Condition()
    processes = [
        Process(
            Setup(
                path,
                str(place),
                f"L{number}-{process}",
                f"{tally.seed}/{number}/{process}",
                "" if process else moment,
                random.randint(1, TIMES_MAX),
                broken,
            ),
            heard,
        )
        for process in range(tally.processes)
    ]
    victim, *others = processes
    wanted = DOOMED_ANSWERS_MAX if moment else random.randint(1, ANSWERS_MAX)
    try:
        _wait(heard, processes, lambda: victim.has_ended or victim.answers >= wanted)
        victim.kill()
        victim.check_killed()
        tally.kills += 1
        reached = [other.answers + SURVIVOR_ANSWERS for other in others]
        _wait(
            heard,
            others,
            lambda: all(
                other.has_ended or other.answers >= least for other, least in zip(others, reached, strict=True)
            ),
        )
        for other in others:
            other.stop()
    finally:
        for process in processes:
            process.kill()
            lines += process.lines
            tally.acknowledged += process.answers


def _wait(heard: threading.Condition, processes: Sequence[Process], enough: Callable[[], bool]) -> None:
    is_heard = True
    with heard:
        while is_heard and not enough():
            is_heard = heard.wait(SILENCE_SECONDS)
    if is_heard:
        return
    stacks = "\n".join(process.stacks() for process in processes)
    raise AssertionError(f"not there, and no process wrote a line for {SILENCE_SECONDS} seconds:\n{stacks}")


# What must hold.


def _findings(loop: Loop, lines: list[Said], tally: Tally) -> Iterator[str]:
    """Open the store, which finishes what was cut off, and compare it with what was said."""
    path, place = loop.path, loop.place
    copies = copies_in(str(place), path)
    asked = {line.name: line for line in lines if not line.is_answer}
    answers = {line.name: line for line in lines if line.is_answer and not line.error}
    with ExitStack() as opened_copies:
        memories = [opened_copies.enter_context(_finished(path, copies))]
        memories += [
            opened_copies.enter_context(opened(path, copies))
            for _ in range(len(list(Path(copies).glob("*/*.lock"))) - 1)
        ]
        memory = memories[0]
        events = list(memory.events())
        yield from answered(lambda: judge.unsound(memory))
        yield from _log_findings(events, asked, answers)
        yield from _erasure_findings(events, lines)
        text_at = {answer.seqs[0]: asked[name].text for name, answer in answers.items() if answer.kind == "append"}
        erased = [stamp.seq for _, stamp in events if stamp.erased]
        texts = [(f"what seq {seq}", text_at[seq].encode()) for seq in erased if seq in text_at]
        for each in memories:
            answered(each.refresh)
        yield from judge.remains(Path(copies or path), texts)
        if copies:
            yield from _last_findings(lambda: answered(lambda: list(_server_findings(path, texts))))
        head = memory.head
        yield from answered(lambda: judge.unwritable(memory, head))
    tally.events = len(events)
    made = (answer.beside for answer in answers.values() if answer.kind == "backup")
    backups, findings = judge.beside(Path(copies or path), made)
    yield from findings
    for backup in backups:
        yield from (f"{backup.name}: {finding}" for finding in judge.mismatched(backup))


def _finished(path: str, copies: str) -> Memory:
    """Open the store; again, where a server did not answer what had to be finished."""
    until = time.monotonic() + SILENCE_SECONDS
    while True:
        memory = opened(path, copies)
        if not engine_of(memory).is_unswept or time.monotonic() > until:
            return memory
        memory.close()


def _last_findings(find: Callable[[], list[str]]) -> list[str]:
    """Return what is still found once every replica had time to take in what was erased."""
    findings = find()
    for _ in range(LOOKS if findings else 0):
        time.sleep(LAG_SECONDS / LOOKS)
        if not (findings := find()):
            break
    return findings


def _server_findings(path: str, texts: Sequence[tuple[str, bytes]]) -> Iterator[str]:
    with closing(commits_at(path)) as commits:
        for number, packed in everything(commits):
            yield from (
                f"{what} said before it was erased stands in commit {number}" for what, text in texts if text in packed
            )


def _mark_of(recorded: Recorded) -> str:
    event = recorded.event
    found = MARK.match(event.text or "") if isinstance(event, MessageAppended) else None
    return found[0] if found else ""


def _log_findings(events: list[Recorded], asked: dict[str, Said], answers: dict[str, Said]) -> Iterator[str]:
    marks = [mark for mark in map(_mark_of, events) if mark]
    if len(set(marks)) != len(marks):
        yield f"{max(set(marks), key=marks.count)} is in the log more than once"
    is_erased = {stamp.seq: stamp.erased for _, stamp in events}
    for name, answer in answers.items():
        if answer.kind == "append":
            (seq,) = answer.seqs
            if seq > len(events) or not (is_erased[seq] or _mark_of(events[seq - 1]) == asked[name].text):
                yield f"{asked[name].text} was acknowledged at seq {seq} and is not there"


def _erasure_findings(events: list[Recorded], lines: list[Said]) -> Iterator[str]:
    """Check that every erasure is done or not done, and done if it was answered."""
    is_erased = {stamp.seq: stamp.erased for _, stamp in events}
    refused = {line.name for line in lines if line.error}
    answered = {line.name for line in lines if line.is_answer and not line.error}
    asked = {line.name: line for line in lines if not line.is_answer and line.kind == "erase"}
    for seq in is_erased.keys() - {seq for call in asked.values() for seq in call.seqs}:
        if is_erased[seq]:
            yield f"seq {seq} is erased, and nobody asked for that"
    erasures = {name: call for name, call in asked.items() if name not in refused}
    for name, call in erasures.items():
        others = {seq for other, each in erasures.items() if other != name for seq in each.seqs}
        gone = {is_erased.get(seq, False) for seq in call.seqs if seq not in others}
        if len(gone) > 1:
            yield f"of the erasure {name} of {call.seqs} a part is done"
        if name in answered and not all(is_erased.get(seq) for seq in call.seqs):
            yield f"the erasure {name} of {call.seqs} was acknowledged, and not all of them are erased"
