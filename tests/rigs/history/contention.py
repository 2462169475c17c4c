"""The history rig: threads and processes write and read the same streams, and what they saw could have happened.

Nobody is killed. Now and then the parent tells another process, through a pipe, of a write that was acknowledged; what
that process sees from then on must hold it. Each loop has a store of its own.
"""

import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from tests.rigs.history.checker import Violation
from tests.rigs.history.processes import Crew
from tests.rigs.history.record import Answer, Call, Line, Write
from tests.rigs.history.store import Store
from tests.rigs.history.tally import Tally
from tests.rigs.history.worker import Setup
from tests.support.commits import Logs

ROUNDS: Final = 10
TELL_PROBABILITY: Final = 0.2


class Messenger:
    """Tells of acknowledged writes: to any process but the one that wrote, or to that one if it is alone."""

    def __init__(self, crew: Crew, random: Random) -> None:
        self._crew = crew
        self._random = random
        self._asked: dict[str, tuple[Write, ...]] = {}

    def hear(self, process: int, line: Line) -> None:
        """Take note of a call, and maybe tell of its answer."""
        if isinstance(line, Call):
            self._asked[line.name] = line.writes
        elif isinstance(line, Answer) and not line.error:
            writes = self._asked[line.name]
            if writes and self._random.random() < TELL_PROBABILITY:
                others = [other for other in self._crew.running if other != process] or [process]
                self._crew.tell(f"look {self._random.choice(writes).stream}", [self._random.choice(others)])


def run(
    directory: Path,
    tally: Tally,
    *,
    loops: int,
    broken: str = "",
    logs: Logs | None = None,
    on_loop: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Run the loops; stop after the first one with a violation, and leave its store and its journal."""
    for loop in range(loops):
        on_loop(tally)
        store = Store(directory / f"loop-{loop}", logs.address() if logs else "")
        tally.violations += _guarded(store, tally, loop, broken)
        tally.loops += 1
        store.count(tally)
        if tally.violations:
            store.keep_journal()
            break
        shutil.rmtree(store.directory)
    return tally


def _guarded(store: Store, tally: Tally, loop: int, broken: str) -> list[Violation]:
    """Run one loop; an error, of whatever kind, is a violation too."""
    try:
        return _loop(store, tally, loop, broken)
    except Exception:  # noqa: BLE001 - what a broken store raises is not known
        return [Violation("everybody_gets_through", f"loop {loop}: {traceback.format_exc()}")]


def _loop(store: Store, tally: Tally, loop: int, broken: str) -> list[Violation]:
    seed = f"{tally.seed}/{loop}"
    setups = [
        Setup(
            store.path,
            f"L{loop}",
            process,
            tally.threads,
            seed,
            rounds=ROUNDS,
            broken=broken,
            copies=store.copies,
        )
        for process in range(tally.processes)
    ]
    with Crew(setups, store.directory, store.lines) as crew:
        messenger = Messenger(crew, Random(seed))
        crew.listen(lambda: len(crew.done) == tally.processes, messenger.hear)
        crew.stop()
    return store.check()
