"""The kill rig: what was acknowledged survives ``kill -9``, and what nobody answered is done once when asked again.

In one loop, processes with threads write. After a drawn number of acknowledgements, or at a drawn moment of a write,
some or all of them are killed. A reader that only watches must know of everything that is durable. Then the store is
opened, and every write without an answer is asked for again under its request id; survivors must go on. In the end the
log is compared with everything that was said since the store was made, and with what the reader saw.
"""

import shutil
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import monotonic_ns, sleep
from typing import Final, Self

from refold import Memory, StoreCorrupt
from tests.rigs.history.calls import answered, facts, perform
from tests.rigs.history.checker import Violation
from tests.rigs.history.moments import MOMENTS, Doom
from tests.rigs.history.plan import SHARED
from tests.rigs.history.processes import Crew
from tests.rigs.history.record import PARENT, Answer, Call, Delivery, Write
from tests.rigs.history.store import Store, dead_readers
from tests.rigs.history.tally import Tally
from tests.rigs.history.worker import Setup
from tests.support.commits import Logs

ACKNOWLEDGED_MAX: Final = 60
"""The most acknowledgements per process before a kill; the least is none at all."""
WRITES_MAX: Final = 12
"""The most writes of the log per thread before a process kills itself in the next one."""
SURVIVOR_ACKNOWLEDGED: Final = 5
"""How many more acknowledgements each survivor has to get."""
HEARD_NS_MAX: Final = 60_000_000_000
"""How long a subscriber may take to be told of what is there."""
KILL_ALL_PROBABILITY: Final = 0.5
LOOPS_PER_STORE: Final = 10
"""A store is killed again and again, so that what one kill leaves behind meets the next one."""


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
    for first in range(0, loops, LOOPS_PER_STORE):
        store = Store(directory / f"loops-from-{first}", logs.address() if logs else "")
        for loop in range(first, min(first + LOOPS_PER_STORE, loops)):
            on_loop(tally)
            tally.violations += _guarded(store, tally, loop, broken)
            tally.loops += 1
            if tally.violations:
                break
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
    except StoreCorrupt as error:
        return [Violation("the_log_can_be_read", f"loop {loop}: {error}")]
    except Exception:  # noqa: BLE001 - a store that cannot be opened any more may fail in any way
        return [Violation("a_kill_stops_nobody_else", f"loop {loop}: {traceback.format_exc()}")]


def _loop(store: Store, tally: Tally, loop: int, broken: str) -> list[Violation]:
    random = Random(f"{tally.seed}/{loop}")
    victims, doom = _fate(random, tally)
    setups = [
        Setup(
            store.path,
            f"L{loop}",
            process,
            tally.threads,
            f"{tally.seed}/{loop}",
            broken=broken,
            doom=doom if process == victims[0] else None,
            copies=store.copies,
        )
        for process in range(tally.processes)
    ]
    with Crew(setups, store.directory, store.lines) as crew, Onlooker(store, f"L{loop}.onlooker") as onlooker:
        if doom is None:
            wanted = random.randint(0, ACKNOWLEDGED_MAX * tally.processes)
            crew.listen(lambda: crew.acknowledged.total() >= wanted)
        else:
            crew.wait(victims[0])
        crew.kill(victims)
        tally.kills += len(victims)
        onlooker.look()
        with store.open() as memory:
            unseen = [] if crew.running else onlooker.compared(memory)
            stuck = dead_readers(store.path)
            resolve(memory, store, victims, tally)
            refused = _write(memory, store, loop)
            _survive(crew)
            changed = [] if crew.running else onlooker.compared(memory)
        crew.stop()
    return [
        *store.check(),
        *(Violation("a_reader_sees_what_is_durable", f"loop {loop}: {said}") for said in unseen),
        *(Violation("a_past_moment_stays_as_it_was", f"loop {loop}: {said}") for said in changed),
        *(Violation("the_dead_hold_no_reader_slot", f"loop {loop}: process {pid}") for pid in stuck),
        *(Violation("the_next_to_open_writes", f"loop {loop}: {answer}") for answer in refused),
    ]


class Onlooker:
    """A read-only memory that subscribes, and looks at the moment after a kill, before anybody opens the store."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._memory = store.open(readonly=True)
        self._seqs: list[int] = []
        self._after = self._memory.head
        self._subscription = self._memory.subscribe(lambda got: self._seqs.append(got.stamp.seq), after=self._after)
        self._moment = datetime.now(UTC)
        self._seen = (0, "")

    def look(self) -> None:
        """Take note of what is there now, wait until the subscriber has heard of it, and close."""
        answered(self._memory.refresh)
        self._moment = datetime.now(UTC)
        self._seen = self._memory.head, self._memory.at(self._moment).state_hash()
        until = monotonic_ns() + HEARD_NS_MAX
        while self._subscription.position < self._seen[0] and monotonic_ns() < until:
            sleep(0.001)
        seqs = tuple(seq for seq in self._seqs if seq <= self._seen[0])
        self._store.deliveries.append(Delivery(self._name, seqs, self._after, self._seen[0]))
        self._memory.close()

    def compared(self, memory: Memory) -> list[str]:
        """Return what the moment looks like to this memory where it is not as it was.

        On a server a commit of somebody who was killed may still be under way, with the time at which it was made.
        """
        if self._store.copies:
            return []
        past = memory.at(self._moment)
        now = past.head, past.state_hash()
        return [] if now == self._seen else [f"{self._moment} was {self._seen}, and is now {now}"]

    def __enter__(self) -> Self:
        """Return itself, to close it after the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop looking."""
        self._memory.close()


def _fate(random: Random, tally: Tally) -> tuple[list[int], Doom | None]:
    """Return which processes are killed, and the moment of a write at which the first one kills itself, if it does."""
    everybody = list(range(tally.processes))
    random.shuffle(everybody)
    dying = len(everybody) if random.random() < KILL_ALL_PROBABILITY else random.randint(1, len(everybody))
    moment = random.choice((None, *MOMENTS))
    doom = None if moment is None else Doom(moment, random.randint(1, WRITES_MAX * tally.threads))
    return everybody[:dying], doom


def resolve(memory: Memory, store: Store, killed: list[int], tally: Tally) -> None:
    """Ask again for every write that a killed process was not answered, under the same request id."""
    held = {fact.mark for fact in facts(memory)}
    for operation in store.operations:
        if operation.is_unknown and operation.writes and operation.process in killed:
            is_held = operation.writes[0].mark in held
            tally.unknown_written += is_held
            tally.unknown_lost += not is_held
            _make(memory, store, Call(operation.name, PARENT, monotonic_ns(), operation.writes))


def _write(memory: Memory, store: Store, loop: int) -> list[Answer]:
    """Write something new, and return the answer if it is a refusal."""
    name = f"L{loop}.parent"
    answer = _make(memory, store, Call(name, PARENT, monotonic_ns(), (Write(SHARED, name),)))
    return [answer] if answer.error else []


def _make(memory: Memory, store: Store, call: Call) -> Answer:
    answer = perform(memory, call)
    store.lines += [call, answer]
    return answer


def _survive(crew: Crew) -> None:
    """Wait until each survivor has got further."""
    before = Counter(crew.acknowledged)
    crew.listen(
        lambda: all(crew.acknowledged[process] >= before[process] + SURVIVOR_ACKNOWLEDGED for process in crew.running)
    )
