"""The rig: builds the states that a power cut could leave of a recording, and judges each in a forked child."""

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from pathlib import Path
from random import Random
from typing import Final

from tests.rigs.power.disk import Disk
from tests.rigs.power.judge import judged
from tests.rigs.power.recording import Recording, Run, record, scratch
from tests.rigs.power.trace import Kind

STATES_PER_RECORDING: Final = 500
"""A workload is recorded anew, under the next seed, after so many states."""

STATE_SECONDS: Final = 10
"""A state that takes longer to judge has caught its judge in a loop; a signal ends it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A state in which something was wrong: enough to build it again."""

    run: Run
    state: int
    point: int
    findings: Sequence[str]

    def __str__(self) -> str:
        run = f"--workload {self.run.workload} --build {self.run.build} --seed {self.run.seed}"
        again = f"python -m tests.rigs.power {run} --first {self.state} --states 1"
        return f"{again} (cut after call {self.point}): {'; '.join(self.findings)}"


@dataclass(slots=True)
class Outcome:
    """How many states were tried, and what was found."""

    states: int = 0
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        """Count what another run found."""
        self.states += other.states
        self.violations += other.violations


def try_states(library: Path, run: Run, states: range, jobs: int) -> Outcome:
    """Judge the states with these numbers; each block of ``STATES_PER_RECORDING`` has a recording and seed of its own.

    State ``n`` of seed ``s`` is state ``n - STATES_PER_RECORDING`` of seed ``s + 1``, so that a long run can go on
    where it was cut off.
    """
    outcome = Outcome()
    while states:
        block, begin = divmod(states[0], STATES_PER_RECORDING)
        count = min(STATES_PER_RECORDING - begin, len(states))
        recording = record(library, Run(run.workload, run.build, run.seed + block))
        outcome.add(examine(recording, range(begin, begin + count), jobs))
        states = states[count:]
    return outcome


def examine(recording: Recording, states: range, jobs: int) -> Outcome:
    """Judge states of a recording in ``jobs`` children at a time; one that dies of a state is replaced."""
    outcome = Outcome()
    queues = [_by_point(recording, states[job::jobs]) for job in range(jobs)]
    with scratch() as place:
        while any(queues):
            children = [_Child(recording, queue, place / str(job)) for job, queue in enumerate(queues)]
            queues = [child.finish(outcome) for child in children]
    return outcome


def _by_point(recording: Recording, states: Sequence[int]) -> list[tuple[int, int]]:
    """Return where the power is cut in each state, in that order: the disk is walked once."""
    return sorted((_chance(recording, state).randint(0, len(recording.records)), state) for state in states)


def _chance(recording: Recording, state: int) -> Random:
    return Random(f"{recording.run.workload}/{recording.run.seed}/{state}")


class _Child:
    """A forked process that judges a queue of states and says in a file what it began and what it found."""

    def __init__(self, recording: Recording, queue: list[tuple[int, int]], place: Path) -> None:
        place.mkdir(exist_ok=True)
        self._run, self._queue, self._results = recording.run, queue, place / "results"
        self._results.unlink(missing_ok=True)
        self._process: ForkProcess = multiprocessing.get_context("fork").Process(
            target=_judge_all, args=(recording, queue, place, self._results)
        )
        self._process.start()

    def finish(self, outcome: Outcome) -> list[tuple[int, int]]:
        """Wait for the process, count what it did, and return the rest of its queue if it died of a state."""
        self._process.join()
        lines = [json.loads(line) for line in self._results.read_text().splitlines()]
        outcome.states += len(lines)
        code = self._process.exitcode
        if code:
            assert code < 0, f"a child of the rig failed with {code}; its output says why"
            assert lines[-1] is None, f"a child of the rig died of {signal.Signals(-code).name} between states"
            lines[-1] = [f"reading it killed the process with {signal.Signals(-code).name}"]
        for (point, state), findings in zip(self._queue, lines, strict=False):
            if findings:
                outcome.violations.append(Violation(self._run, state, point, findings))
        return self._queue[len(lines) :]


def _judge_all(recording: Recording, queue: list[tuple[int, int]], place: Path, results: Path) -> None:
    disk = recording.start()
    done = 0
    with results.open("wb", buffering=0) as file:
        for point, state in queue:
            for call in recording.records[done:point]:
                disk.apply(call)
            done = point
            begin = file.tell()
            file.write(b"null\n")  # Stands if this state kills the process.
            signal.alarm(STATE_SECONDS)
            findings = _judge_one(recording, disk, point, _chance(recording, state), place)
            signal.alarm(0)
            os.ftruncate(file.fileno(), begin)
            file.seek(begin)
            file.write(json.dumps(findings).encode() + b"\n")


def _judge_one(recording: Recording, disk: Disk, point: int, chance: Random, place: Path) -> list[str]:
    """Build one state, judge it, and take it away."""
    chance.randint(0, len(recording.records))  # Drew the point.
    following = recording.records[point] if point < len(recording.records) else None
    into = place / "state"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    is_under_way = following and following.kind is Kind.WRITE and following.durable and chance.getrandbits(1)
    with disk.interrupted(following) if following and is_under_way else nullcontext():
        disk.build(chance, into)
    findings = judged(into / "store", recording.expected, recording.acknowledged[point])
    return [finding.replace(f"{into}/", "") for finding in findings]
