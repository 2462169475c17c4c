"""The rig: each verb in each world, interrupted at some of its points or at all, in processes that may hang."""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from tests.rigs.interrupts.breaks import BROKEN
from tests.rigs.interrupts.checks import Course, Finding, Judge
from tests.rigs.interrupts.points import Interrupter, Outcome, Return, call_failing
from tests.support.verbs import VERBS
from tests.support.worlds import STATES, Kit, Verb, World

STARTED_SECONDS_MAX: Final = 120
ERRORS: Final[dict[str, type[BaseException]]] = {"interrupt": KeyboardInterrupt, "memory": MemoryError}


class Case(NamedTuple):
    """A verb in a world, and at which of its points it is interrupted."""

    verb: str
    store: str
    state: str
    drawn: int = 0
    """How many points are drawn, 0 for all."""
    seed: int = 0
    errors: tuple[str, ...] = tuple(ERRORS)
    depth: int = 1
    """The store is verified and opened anew behind every so many injections."""
    patience: int = 20
    """How many seconds what takes milliseconds may take before it counts as hanging."""
    after: int = 0
    """The place of the last injection that was made before."""

    def __str__(self) -> str:
        return f"{self.verb} ({self.store}, {self.state})"


class Points(NamedTuple):
    """How many points a case has, and what was wrong without any exception."""

    case: Case
    total: int
    findings: Sequence[Finding]


class Injection(NamedTuple):
    """One exception at one point, and what was wrong afterwards."""

    case: Case
    place: int
    point: int
    error: str
    where: str | None
    """Where it was raised, empty if the verb was over; ``None`` if that is still to come."""
    findings: Sequence[Finding]


class _Runner:
    """What runs the cases, in a process of its own."""

    def __init__(self, kit: Kit, interrupter: Interrupter) -> None:
        self._kit, self._interrupter = kit, interrupter
        self._direct: set[Return] = set()
        """Returns from functions that the interpreter called itself: it does not look for signals there."""
        self._loaded: set[str] = set()
        """The verbs that were called before, and have loaded what they need."""

    def run(self, case: Case) -> Iterator[Points | Injection]:
        """Yield the points, and each injection, before it is made and afterwards."""
        outcome, judge = self._uninterrupted(case)
        if judge.findings or not case.after:
            yield Points(case, len(outcome.points), judge.findings)
        if judge.findings:
            return
        for place, (point, error) in enumerate(_drawn(case, len(outcome.points)), 1):
            key = outcome.points[point - 1]
            if place <= case.after or key in self._direct:
                continue
            yield Injection(case, place, point, error, None, ())
            is_deep = not place % case.depth
            interrupted, judge_after = self._call(case, point, ERRORS[error], judge.course, is_deep=is_deep)
            if key is not None and interrupted.code != key[1:]:
                self._direct.add(key)
            yield Injection(case, place, point, error, interrupted.where or "", judge_after.findings)
            if not judge_after.is_closed:
                os._exit(3)  # What is open still would not leave the next store alone.

    def _uninterrupted(self, case: Case) -> tuple[Outcome, Judge]:
        if case.verb not in self._loaded:
            self._loaded.add(case.verb)
            self._call(case, 0, KeyboardInterrupt, None, is_deep=False)
        outcome, judge = self._call(case, 0, KeyboardInterrupt, None, is_deep=case.depth == 1)
        if outcome.raised is not None:
            judge.findings.insert(0, Finding("dry run", repr(outcome.raised)))
        return outcome, judge

    def _call(
        self, case: Case, point: int, error: type[BaseException], course: Course | None, *, is_deep: bool
    ) -> tuple[Outcome, Judge]:
        verb = _verb(case)
        world = World(self._kit, case.store, case.state, verb)
        if verb.thread:
            outcome = call_failing(lambda: verb.act(world), verb.thread, point, error)
        else:
            outcome = self._interrupter.call(lambda: verb.act(world), point, error)
        judge = Judge(world, course, case.patience)
        if outcome.where is not None:
            judge.judge_outcome(outcome, error)
        was_interrupted = outcome.raised is not None or (outcome.where is not None and error is MemoryError)
        if outcome.raised is not None and point % 2:  # Every other one is forgotten, as programs do.
            outcome = outcome._replace(raised=type(outcome.raised)())
        if not (verb.opens and outcome.is_outside):  # Where the caller loses the handle, nobody can close it.
            judge.judge(was_interrupted=was_interrupted, is_deep=is_deep)
        if judge.is_closed:
            world.end()
        return outcome, judge


def _verb(case: Case) -> Verb:
    return BROKEN.get(case.verb) or VERBS[case.verb]


def _drawn(case: Case, count: int) -> list[tuple[int, str]]:
    """Return points and errors: all, or so many as the case wants; Ctrl-C reaches no thread of our own."""
    errors = ("memory",) if _verb(case).thread else case.errors
    every = [(point, error) for point in range(1, count + 1) for error in errors]
    if 0 < case.drawn < len(every):
        return sorted(Random(f"{case.seed} {case}").sample(every, case.drawn))
    return every


def serve(file: int, directory: str) -> None:
    """Run the cases that the other side sends, until it is gone."""
    logging.getLogger("refold").addHandler(logging.NullHandler())
    with Connection(file) as pipe, Kit(Path(directory)) as kit, Interrupter() as interrupter:
        runner = _Runner(kit, interrupter)
        pipe.send(None)
        while True:
            try:
                case = pipe.recv()
            except EOFError:
                return
            for report in runner.run(case):
                pipe.send(report)
            pipe.send(None)


class _Worker:
    """A process that runs cases, begun anew whenever it ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._begun: Injection | None = None
        """The injection that the process is at; it may end or hang there."""
        self._begin()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        place = tempfile.mkdtemp(dir=self._directory)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        program = f"from tests.rigs.interrupts.rig import serve; serve({theirs.fileno()}, {place!r})"
        command = [sys.executable, "-X", "faulthandler", "-c", program]
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=self._errors)
        self._pipe = Connection(ours.detach())
        # It says when it is there: to start takes as long as the machine has other work, and a case takes patience.
        if not self._pipe.poll(STARTED_SECONDS_MAX) or self._pipe.recv() is not None:
            raise AssertionError(f"the process that runs the cases did not start: {self.end()}")

    def end(self) -> str:
        """End the process; return the last of what it wrote to its standard error."""
        self._process.send_signal(signal.SIGABRT)  # For the stacks of its threads.
        self._process.wait()
        self._pipe.close()
        with self._errors as errors:
            errors.seek(0)
            return errors.read().decode(errors="replace")[-20_000:]

    def run(self, case: Case) -> Iterator[Points | Injection]:
        """Run a case to its end, whatever becomes of processes; what a process does not survive is a finding."""
        place = 0
        while True:
            before = place
            try:
                for report in self._reports(case._replace(after=place)):
                    if isinstance(report, Injection):
                        place = report.place
                    yield report
            except (EOFError, TimeoutError, OSError) as error:
                begun, said = self._begun, f"{error!r} {self.end()}"
                self._begin()
            else:
                return
            if begun is not None:
                place = begun.place
                yield begun._replace(where="", findings=[Finding("process", said)])
            elif place == before:
                yield Points(case, 0, [Finding("process", said)])
                return

    def _reports(self, case: Case) -> Iterator[Points | Injection]:
        """Run a case and yield what is said of it; ``EOFError`` if the process ends, ``TimeoutError`` if it hangs."""
        self._begun = None
        self._pipe.send(case)
        while True:
            if not self._pipe.poll(3 * case.patience):
                raise TimeoutError(f"nothing was said for {3 * case.patience} s, and no signal wakes it")
            report = self._pipe.recv()
            if report is None:
                return
            self._begun = report if isinstance(report, Injection) and report.where is None else None
            if self._begun is None:
                yield report


class Tally:
    """What was counted."""

    def __init__(self) -> None:
        self.cases: list[Points] = []
        self.injections = self.landed = 0
        self.violations: list[Points | Injection] = []

    def add(self, report: Points | Injection) -> None:
        """Count a report."""
        if isinstance(report, Points):
            self.cases.append(report)
        else:
            self.injections += 1
            self.landed += bool(report.where)
        if report.findings:
            self.violations.append(report)

    def __str__(self) -> str:
        verbs, points = {case.case.verb for case in self.cases}, sum(case.total for case in self.cases)
        kinds = Counter(finding.kind for report in self.violations for finding in report.findings)
        said = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        return (
            f"verbs {len(verbs)}, cases {len(self.cases)}, points {points}, injections {self.injections}, "
            f"landed {self.landed}, with violations {len(self.violations)} ({said or 'none'})"
        )


def run(cases: Sequence[Case], directory: Path) -> Iterator[Points | Injection]:
    """Run the cases one after the other; yield the points of each, and each injection with its findings."""
    worker = _Worker(directory)
    try:
        for case in cases:
            yield from worker.run(case)
    finally:
        worker.end()


def cases_of(verbs: Sequence[str], stores: Sequence[str], states: Sequence[str], **options: Any) -> list[Case]:
    """Return the cases of verbs in stores and states."""
    return [
        Case(name, store, state, **options)
        for name in verbs
        for store in stores
        for state in STATES[store]
        if store in VERBS[name].stores and state in states and state in VERBS[name].states
    ]


CORE: Final = (
    "Memory",
    "Memory.batch",
    "Memory.close",
    "Conversation.append",
    "Conversation.token_count",
    "Project.add",
    "Project.search",
)
"""What is called most, and what begins and ends everything: these are interrupted in every world."""


def drawn(seed: int, count: int) -> list[Case]:
    """Return a few points of each verb in a world that is drawn for it, and of some verbs in every world."""
    options: dict[str, Any] = {"drawn": count, "seed": seed, "depth": 3}
    cases = set(cases_of(CORE, list(STATES), STATES["durable"], **options))
    for name in VERBS:
        cases.add(Random(f"{seed} {name}").choice(cases_of([name], list(STATES), STATES["durable"], **options)))
    return sorted(cases)
