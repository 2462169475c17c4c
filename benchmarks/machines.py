"""A model of workers that share logs on a server: a discrete-event simulation with service times that were measured.

Each writer makes an event, which its worker's interpreter is busy with, and waits until it is committed. A worker takes
all events that wait for a log into one commit, for which it lingers up to half of what the last one took: it appends
them in its turn at the log, the server works, and flushes.
Where several workers write to a log, they queue for the turn (or, where the server knows no turns, pause, and begin
again where another one was quicker) and first apply what others appended; every one of them follows, and applies it
too. Interpreters, processors, turns and the disk serve one after the other, in order of arrival.

What is not in it: memory, the size of commits, garbage collection, a network that loses or delays. So it says which of
these things is full first, and about where.
"""

import statistics
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import simpy

Process = Generator[simpy.Event, Any, None]

SECONDS: Final = 1.0
"""How much time is simulated, after as much again as a beginning that does not count."""
FULL: Final = 0.9
PAUSE_SECONDS: Final = 0.004
"""How long a machine pauses at most before it appends to a log of a server that knows no turns."""
DISK: Final = "disk of the server"
TURN: Final = "turn at a log"
TOGETHER: Final = (DISK, TURN)


@dataclass(frozen=True)
class Load:
    """What workers did in a second, and what it took of the processors."""

    events: float
    commits: float
    workers: Sequence[float]
    """Seconds of a processor that each worker used."""
    server: float


@dataclass(frozen=True)
class Layout:
    """Who writes to what, and on what machines."""

    workers: int
    logs: int
    writers: int
    machine_cores: int = 2
    server_cores: int = 0
    """0: the server and all workers share one machine."""
    network_seconds: float = 0.0
    """To the server or back."""

    def own(self, worker: int) -> list[int]:
        """Return the logs that a worker writes to."""
        if self.logs < self.workers:
            return [worker % self.logs]
        return list(range(worker, self.logs, self.workers))


@dataclass(frozen=True)
class Demands:
    """Seconds of service: ``event``, ``commit``, ``call`` and ``foreign`` of a worker, the others of the server."""

    event: float
    commit: float
    server_event: float
    server_commit: float
    flush: float
    """From when neither side works on a commit any more until it is acknowledged: the disk, and waking up."""
    call: float
    server_call: float
    call_wait: float
    foreign_event: float
    foreign_commit: float
    """For each time that a follower applies what came, of one or of several commits."""
    has_turns: bool
    """Whether the server knows of turns, and one flush of its log of changes makes the commits of all logs durable."""

    @classmethod
    def of(
        cls, alone: Load, apart: Load, many: Load, calls: Load, follower: Load, followers: Load, *, has_turns: bool
    ) -> "Demands":
        """Solve for the demands of an event and of a commit, from commits of one event and of many.

        Commits of one event are those of writers ``apart``, each to a log of its own: beside others a commit takes more
        of the processors than ``alone``, which tells what it waits for besides.
        """
        share = many.commits / many.events
        commit, event = _parted(apart.workers[0] / apart.events, many.workers[0] / many.events, share)
        server_commit, server_event = _parted(apart.server / apart.events, many.server / many.events, share)
        share = followers.commits / followers.events
        foreign_commit, foreign_event = _parted(
            follower.workers[1] / follower.events, followers.workers[1] / followers.events, share
        )
        call, server_call = calls.workers[0] / calls.events, calls.server / calls.events
        return cls(
            event,
            commit,
            server_event,
            server_commit,
            max(0.0, (1 - alone.workers[0] - alone.server) / alone.events),
            call,
            server_call,
            max(0.0, 1 / calls.events - call - server_call),
            foreign_event,
            foreign_commit,
            has_turns,
        )

    def __str__(self) -> str:
        """Show them in microseconds."""
        parts = [f"{name} {value * 1e6:.0f}" for name, value in vars(self).items() if name != "has_turns"]
        return f"microseconds: {', '.join(parts)}"


def _parted(alone: float, each: float, share: float) -> tuple[float, float]:
    """Return what a commit and what an event takes: ``alone`` is both, ``each`` an event with its share of a commit."""
    alone = max(0.0, alone)
    commit = min(alone, max(0.0, (alone - each) / (1 - share)))
    return commit, alone - commit


@dataclass(frozen=True)
class Outcome:
    """What came of a layout."""

    events: float
    """A second."""
    group: float
    """Events in a commit."""
    median_seconds: float
    """From the call of a verb to its return."""
    busy: dict[str, float]
    """The share of the time in which the busiest one of each kind was busy."""

    @property
    def busiest(self) -> str:
        """What was busy most; what takes all along that waits for it only where no processor was full."""
        name = max(sorted(self.busy), key=lambda each: (self.busy[each] > FULL, each not in TOGETHER, self.busy[each]))
        return f"{name}, {self.busy[name]:.0%}"


class _Station:
    """So many places at which service takes time; who comes waits."""

    def __init__(self, env: simpy.Environment, places: int = 1) -> None:
        self.env = env
        self.resource = simpy.Resource(env, places)
        self.busy = 0.0

    def serve(self, seconds: float) -> Process:
        with self.resource.request() as place:
            yield place
            yield self.env.timeout(seconds)
            self.busy += seconds

    def share(self, seconds: float) -> float:
        return self.busy / self.resource.capacity / seconds


class _Disk:
    """A flush takes with it whoever came before it began."""

    def __init__(self, env: simpy.Environment, seconds: float) -> None:
        self.station = _Station(env)
        self._seconds = seconds
        self._next: simpy.Process | None = None

    def flush(self) -> Process:
        if self._next is None:
            self._next = self.station.env.process(self._run())
        yield self._next

    def _run(self) -> Process:
        with self.station.resource.request() as place:
            yield place
            self._next = None
            yield self.station.env.timeout(self._seconds)
            self.station.busy += self._seconds


class _Log:
    def __init__(self, env: simpy.Environment, disk: _Disk) -> None:
        self.turn = simpy.Resource(env)
        self.held = 0.0
        self.disk = disk
        self.events = 0
        self.parts: list[_Part] = []


class _Part:
    """A log in a worker: the writers' events that wait, and how far the worker's copy is."""

    def __init__(self, env: simpy.Environment, log: _Log) -> None:
        self.log = log
        self.turns = simpy.Resource(env)
        self.waiting: list[simpy.Event] = []
        self.events = 0
        self.arrived = env.event()
        self.news = env.event()
        self.callers = 0
        """Who is about to write: who waits, and who was just answered."""
        self.commit_seconds = 0.0


class _Simulation:
    def __init__(self, demands: Demands, layout: Layout) -> None:
        self.env = env = simpy.Environment()
        self.demands, self.layout = demands, layout
        together = _Station(env, layout.machine_cores)
        self.server = _Station(env, layout.server_cores) if layout.server_cores else together
        disk = _Disk(env, demands.flush)
        self.logs = [_Log(env, disk if demands.has_turns else _Disk(env, demands.flush)) for _ in range(layout.logs)]
        self.machines = list[_Station]()
        self.interpreters = list[_Station]()
        self.times = list[float]()
        self.commits = 0
        self.is_counting = False
        self.random = Random(0)
        for number in range(layout.workers):
            self._add(number, _Station(env, layout.machine_cores) if layout.server_cores else together)

    def _add(self, number: int, machine: _Station) -> None:
        interpreter = _Station(self.env)
        self.machines.append(machine)
        self.interpreters.append(interpreter)
        parts = [_Part(self.env, self.logs[place]) for place in self.layout.own(number)]
        for part in parts:
            part.log.parts.append(part)
            self.env.process(self._lead(part, interpreter, machine))
            self.env.process(self._follow(part, interpreter, machine))
        for place in range(self.layout.writers):
            self.env.process(self._write(parts[place % len(parts)], interpreter, machine))

    def _compute(self, interpreter: _Station, machine: _Station, seconds: float) -> Process:
        with interpreter.resource.request() as place:
            yield place
            yield from machine.serve(seconds)
            interpreter.busy += seconds

    def _serve(self, seconds: float, wait: float = 0.0) -> Process:
        yield self.env.timeout(self.layout.network_seconds)
        yield from self.server.serve(seconds)
        yield self.env.timeout(wait + self.layout.network_seconds)

    def _call(self, interpreter: _Station, machine: _Station) -> Process:
        yield from self._compute(interpreter, machine, self.demands.call)
        yield from self._serve(self.demands.server_call, self.demands.call_wait)

    def _write(self, part: _Part, interpreter: _Station, machine: _Station) -> Process:
        while True:
            begin = self.env.now
            yield from self._compute(interpreter, machine, self.demands.event)
            committed = self.env.event()
            part.waiting.append(committed)
            if not part.arrived.triggered:
                part.arrived.succeed()
            yield committed
            if self.is_counting:
                self.times.append(self.env.now - begin)

    def _lead(self, part: _Part, interpreter: _Station, machine: _Station) -> Process:
        log = part.log
        while True:
            yield part.arrived
            until = self.env.now + part.commit_seconds / 2
            while len(part.waiting) < part.callers and self.env.now < until:
                yield self.env.timeout(part.commit_seconds / 32)
            begin = self.env.now
            with part.turns.request() as own:
                yield own
                group = yield from self._commit(part, interpreter, machine)
            part.commit_seconds, part.callers = self.env.now - begin, len(part.waiting) + len(group)
            for committed in group:
                committed.succeed()
            for other in log.parts:
                if other is not part and not other.news.triggered:
                    other.news.succeed()
            self.commits += self.is_counting

    def _commit(self, part: _Part, interpreter: _Station, machine: _Station) -> Process:
        """Append what waits; return whose it was."""
        log, group = part.log, list[simpy.Event]()
        is_contended = len(log.parts) > 1
        if is_contended and self.demands.has_turns:
            yield from self._call(interpreter, machine)
        with log.turn.request() as turn:
            if self.demands.has_turns:
                yield turn
            begin = self.env.now
            while True:
                if is_contended:
                    if not self.demands.has_turns:
                        yield self.env.timeout(self.random.random() * PAUSE_SECONDS)
                    yield from self._apply(part, interpreter, machine)
                group, part.waiting, part.arrived = [*group, *part.waiting], [], self.env.event()
                yield from self._compute(interpreter, machine, self.demands.commit)
                yield from self._serve(self.demands.server_commit + len(group) * self.demands.server_event)
                if part.events == log.events:
                    break
            log.events += len(group)
            part.events = log.events
            yield from log.disk.flush()
            log.held += self.env.now - begin
        if is_contended and self.demands.has_turns:
            yield from self._call(interpreter, machine)
        return group

    def _follow(self, part: _Part, interpreter: _Station, machine: _Station) -> Process:
        while True:
            yield part.news
            part.news = self.env.event()
            with part.turns.request() as own:
                yield own
                yield from self._apply(part, interpreter, machine)

    def _apply(self, part: _Part, interpreter: _Station, machine: _Station) -> Process:
        """Ask for what others appended, and apply it."""
        if part.events == part.log.events:
            yield from self._call(interpreter, machine)
            return
        yield from self._serve(self.demands.server_call, self.demands.call_wait)
        new, part.events = part.log.events - part.events, part.log.events
        yield from self._compute(interpreter, machine, self.demands.foreign_commit + new * self.demands.foreign_event)

    def run(self) -> Outcome:
        self.env.run(SECONDS)
        stations = [self.server, *self.machines, *self.interpreters, *(log.disk.station for log in self.logs)]
        for station in stations:
            station.busy = 0.0
        for log in self.logs:
            log.held = 0.0
        self.is_counting = True
        self.env.run(2 * SECONDS)
        busy = {
            "processors of the server": self.server.share(SECONDS),
            "processors of a machine": max(each.share(SECONDS) for each in self.machines),
            "interpreter of a worker": max(each.share(SECONDS) for each in self.interpreters),
            DISK: max(log.disk.station.share(SECONDS) for log in self.logs),
            TURN: max(log.held for log in self.logs) / SECONDS,
        }
        return Outcome(
            len(self.times) / SECONDS,
            len(self.times) / max(1, self.commits),
            statistics.median(self.times) if self.times else float("inf"),
            busy,
        )


def simulated(demands: Demands, layout: Layout) -> Outcome:
    """Let a layout run for a while and return what comes of it."""
    return _Simulation(demands, layout).run()


GROWN: Final = tuple(
    Layout(machines, logs, 16, machine_cores=4, server_cores=16, network_seconds=250e-6)
    for machines in (10, 100, 1_000)
    for logs in sorted({1, machines // 10, machines, 10 * machines})
)
"""A worker on each machine of four cores, half a millisecond from a server of sixteen and back."""
