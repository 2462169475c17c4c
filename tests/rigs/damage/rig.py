"""The rig: damages copies of one store, and has each judged in a forked child that may die of it."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from refold import Memory
from tests.rigs.breaks import BUILDS
from tests.rigs.damage.damages import CLASSES
from tests.rigs.damage.fill import fill
from tests.rigs.damage.judge import ALLOWED, DIED, HUNG, SECONDS_MAX, SILENT, UNTYPED, WAIT_SECONDS_MAX, judge
from tests.rigs.damage.questions import answers
from tests.support.bounds import seeded_bytes
from tests.support.memories import Clock

DATA_BYTES_MAX: Final = 2 * 1024**3
"""What a child may allocate: a damaged length must not take the machine down."""


@dataclass(frozen=True, slots=True)
class Case:
    """One damage and what came of it."""

    kind: str
    number: int
    outcome: str
    said: str
    stage: str


@dataclass(slots=True)
class Outcome:
    """What came of many damages."""

    seed: int
    build: str
    cases: list[Case] = field(default_factory=list)

    @property
    def violations(self) -> list[Case]:
        """The cases that may not be."""
        return [case for case in self.cases if case.outcome not in ALLOWED]

    def table(self) -> str:
        """Return how often each class of damage led to what."""
        columns = (*ALLOWED, SILENT, UNTYPED, HUNG, DIED)
        counts = Counter((case.kind, case.outcome) for case in self.cases)
        whole = Counter(case.outcome for case in self.cases)
        rows = [["damage", "tried", *columns]]
        for kind in dict.fromkeys(case.kind for case in self.cases):
            numbers = [counts[kind, outcome] for outcome in columns]
            rows.append([kind, str(sum(numbers)), *map(str, numbers)])
        rows.append(["all", str(len(self.cases)), *(str(whole[outcome]) for outcome in columns)])
        return "\n".join("  ".join(cell.rjust(10) for cell in row) for row in rows)

    def lines(self) -> Iterator[str]:
        """Return a line for each violation that builds it again."""
        for case in self.violations:
            again = f"python -m tests.rigs.damage --seed {self.seed} --build {self.build} --kind '{case.kind}'"
            yield f"{again} --first {case.number} --count 1: {case.outcome} while {case.stage}: {case.said}"


@contextmanager
def _scratch() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="damage-"))
    try:
        yield place
    finally:
        shutil.rmtree(place)


class Plan(NamedTuple):
    """What all damages of a run share."""

    place: Path
    seed: int
    build: str
    head: int
    expected: dict[str, Any]


Queue: TypeAlias = list[tuple[str, int]]
"""Classes of damage, and for each the number of one."""


def run(kinds: Sequence[str], numbers: range, seed: int, build: str = "sound") -> Outcome:
    """Damage a store in so many ways of each class, and return what came of it."""
    outcome = Outcome(seed, build)
    with _scratch() as place:
        head = fill(place / "intact", seed)
        plan = Plan(place, seed, build, head, _expected(place, head))
        queue = [(kind, number) for kind in kinds for number in numbers]
        while queue:
            queue = _Child(plan, queue).finish(outcome)
    return outcome


def _expected(place: Path, head: int) -> dict[str, Any]:
    """Return the right answers; the store is asked after it was closed, as those that are damaged."""
    with Memory(_copied(place), clock_ns=Clock(), random_bytes=seeded_bytes(head)) as memory:
        return answers(memory, head, place)


def _copied(place: Path) -> Path:
    into = place / "store"
    shutil.rmtree(into, ignore_errors=True)
    return Path(shutil.copytree(place / "intact", into))


class _Child:
    """A forked process that judges a queue of damages, and says in a file what it begins and what came of it."""

    def __init__(self, plan: Plan, queue: Queue) -> None:
        self._queue, self._results = queue, plan.place / "results"
        self._results.write_bytes(b"")
        self._process: ForkProcess = multiprocessing.get_context("fork").Process(target=_judge_all, args=(plan, queue))
        self._process.start()

    def finish(self, outcome: Outcome) -> Queue:
        """Wait for the process, count what it did, and return the rest of its queue if it died of a damage."""
        self._process.join()
        lines = [json.loads(line) for line in self._results.read_text().splitlines()]
        outcomes = [line for line in lines if len(line) == 3]
        code = self._process.exitcode or 0
        if code:
            assert code < 0, f"a child of the rig failed with {code}; its output says why"
            stage, said = lines[-1]
            outcomes.append(
                [
                    HUNG if -code in (signal.SIGALRM, signal.SIGPROF) else DIED,
                    f"{signal.Signals(-code).name}: {said}",
                    stage,
                ]
            )
        for (kind, number), (came, said, stage) in zip(self._queue, outcomes, strict=False):
            outcome.cases.append(Case(kind, number, came, said, stage))
        return self._queue[len(outcomes) :]


def _judge_all(plan: Plan, queue: Queue) -> None:
    BUILDS[plan.build]()
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with (plan.place / "results").open("ab", buffering=0) as file:
        for kind, number in queue:
            signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
            signal.alarm(WAIT_SECONDS_MAX)
            line = _judge_one(plan, kind, number, file.fileno())
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            file.write(json.dumps(line).encode() + b"\n")


def _judge_one(plan: Plan, kind: str, number: int, file: int) -> tuple[str, str, str]:
    store = _copied(plan.place)
    done = CLASSES[kind](store, Random(f"{plan.seed}/{kind}/{number}"))
    stages: list[str] = []

    def note(began: str) -> None:
        stages.append(began)
        os.write(file, json.dumps([began, done]).encode() + b"\n")

    try:
        outcome, said = judge(store, plan.expected, plan.head, note)
    except Exception:  # noqa: BLE001 - what it is, the rig says
        outcome, said = UNTYPED, " | ".join(traceback.format_exc().splitlines()[-5:])
    return outcome, f"{done}: {said}", ", ".join(stages)
