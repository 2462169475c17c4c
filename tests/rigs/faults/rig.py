"""The rig inside the preloaded process: every case in a forked child, its store judged in another."""

import json
import multiprocessing
import os
import shutil
import signal
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.rigs.faults.cases import Case, Faults
from tests.rigs.faults.judge import count_calls, judged, suffer
from tests.rigs.faults.world import Told

CASE_SECONDS: Final = 20
"""A case that takes longer stands still; a signal ends it."""


def calls_of(workload: str, seed: int, place: Path) -> int:
    """Return how many calls a workload makes that could fail."""
    answer = _in_child(place / "answer", lambda: count_calls(workload, seed, place / "counted" / "disk" / "store"))
    assert isinstance(answer, int), answer
    return answer


def try_case(case: Case, place: Path) -> list[str]:
    """Return what is wrong in a case."""
    path = place / "case" / "disk" / "store"
    told = _in_child(place / "answer", lambda: asdict(suffer(case, path)))
    try:
        if isinstance(told, str):
            return [told]
        findings = _in_child(place / "answer", lambda: judged(case, path, Told.of(told)))
        return [*told["findings"], *([findings] if isinstance(findings, str) else findings)]
    finally:
        shutil.rmtree(path.parent.parent, ignore_errors=True)


def _in_child(into: Path, call: Callable[[], Any]) -> Any:
    """Return what a call returns in a forked child: JSON, or in words how it ended."""
    into.unlink(missing_ok=True)
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(into, call))
    process.start()
    process.join()
    if process.exitcode:
        return f"the process ended with {process.exitcode}"
    return json.loads(into.read_text())


def _answer(into: Path, call: Callable[[], Any]) -> None:
    signal.alarm(CASE_SECONDS)
    try:
        answer = call()
    except BaseException:  # noqa: BLE001 - whatever comes out of the engine is the verdict
        answer = traceback.format_exc()
    Faults().disarm()
    into.write_text(json.dumps(answer))
    os._exit(0)  # As a process that ends without closing anything.
