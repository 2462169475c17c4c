"""Logs on servers, measured on one machine: against the bare client, how far a follower is behind, and as they grow.

    python -m benchmarks.servers rates postgres     # against the bare client: 64 writers, and batches of 100
    python -m benchmarks.servers lag nats           # from before a write to a subscriber in another process
    python -m benchmarks.servers scale postgres     # 1 to 8 workers with 1 to 16 logs, and the model beside it
    python -m benchmarks.servers machines postgres  # the model alone, for 10 to 1,000 machines
    python -m benchmarks.servers move postgres      # 100,000 events there and back, while another process writes
    python -m benchmarks.servers cold postgres      # a new machine's first read of a log of 1,000,000 events

A worker is a process with its own copies, 16 writers and, of the logs, those that are its own: log ``l`` is written to
by worker ``l % workers``, and where there are fewer logs than workers, by several. Servers are those of the tests; a
cluster of NATS (``nats-cluster``) has its three servers on this machine as well. What the model is, `machines.py` says.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import nats
import psycopg
from benchmarks.machines import GROWN, Demands, Layout, Load, Outcome, simulated
from msgspec import Struct
from nats.js import api
from tests.support.commits import Logs, opened, running
from tests.support.postgres_server import PostgresServer

from refold import Conversation, Memory, move
from refold.cli import cluster
from refold.event import Recorded
from refold.message import MessageAppended

TEXT: Final = "x" * 200
PACKED: Final = b"r" * 420
"""As many bytes as a commit of one such message has."""
WRITERS: Final = 16
"""Of one worker."""
WARM_SECONDS: Final = 1.0
READ_SECONDS: Final = 0.01
READY_SECONDS: Final = 120.0
WORKERS: Final = (1, 2, 4, 8)
LOGS: Final = (1, 2, 4, 8, 16)


# A worker: a process of its own.


class Job(Struct, frozen=True):
    """What a worker does: each of its writers appends to one of its logs; without writers, it reads now and then."""

    addresses: list[str]
    writers: int
    seconds: float
    calls: bool = False
    """Whether it asks for news all the time in place of writing."""


class Done(Struct, frozen=True):
    """What a worker did within the measured seconds."""

    events: int
    seconds: float
    processor_seconds: float


def work(job: Job) -> Done:
    """Open the logs, say so, and write from the next line of standard input to the one behind it."""
    with ExitStack() as memories:
        opened_logs = [memories.enter_context(Memory(address, cache=":memory:")) for address in job.addresses]
        is_over = threading.Event()
        counts = [0] * job.writers

        def write(place: int) -> None:
            memory = opened_logs[place % len(opened_logs)]
            chat = memory.conversation(f"{job.addresses[0]}-{threading.get_ident()}")
            while not is_over.is_set():
                if job.calls:
                    memory.refresh()
                else:
                    chat.append("user", TEXT)
                counts[place] += 1

        def read() -> None:
            while not is_over.wait(READ_SECONDS):
                for memory in opened_logs:
                    memory.conversation("read").window()

        threads = [threading.Thread(target=write, args=(place,)) for place in range(job.writers)]
        threads = threads or [threading.Thread(target=read)]
        print("ready", flush=True)
        sys.stdin.readline()
        for thread in threads:
            thread.start()
        time.sleep(WARM_SECONDS)
        events, begin, processor = sum(counts), time.perf_counter(), time.process_time()
        time.sleep(job.seconds)
        found = Done(sum(counts) - events, time.perf_counter() - begin, time.process_time() - processor)
        sys.stdin.readline()
        is_over.set()
        for thread in threads:
            thread.join()
        return found


def _tell(child: "subprocess.Popen[str]", line: str = "") -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


@contextmanager
def worker(job: Job) -> Iterator["subprocess.Popen[str]"]:
    """Run a worker until the end of the block; it stands ready when the block begins."""
    command = [sys.executable, "-m", "benchmarks.servers", "--worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            _tell(child, msgspec.json.encode(job).decode())
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n", "a worker ended; see what it printed"
            yield child
        finally:
            child.kill()


def processor_seconds(servers: Any) -> float:
    """Return what the servers' processes have used of the processors so far."""
    stats = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(") ")[2].split()
            command = (place / "cmdline").read_bytes()
            stats[int(place.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]), command)
        except OSError:
            continue  # It has just ended.
    own = {pid for pid, (_, _, command) in stats.items() if str(servers.directory).encode() in command}
    ticks = sum(ticks for pid, (parent, ticks, _) in stats.items() if pid in own or parent in own)
    return ticks / os.sysconf("SC_CLK_TCK")


def load(logs: Logs, jobs: Sequence[Job]) -> Load:
    """Let workers work at the same time, and return what they did together."""
    with ExitStack() as stack:
        children = [stack.enter_context(worker(job)) for job in jobs]
        addresses = sorted({address for job in jobs for address in job.addresses})
        heads = [stack.enter_context(closing(opened(address))) for address in addresses]
        for child in children:
            _tell(child)
        time.sleep(WARM_SECONDS)
        commits, spent = sum(each.head() for each in heads), processor_seconds(logs.servers)
        begin = time.perf_counter()
        time.sleep(jobs[0].seconds)
        seconds = time.perf_counter() - begin
        commits, spent = sum(each.head() for each in heads) - commits, processor_seconds(logs.servers) - spent
        for child in children:
            _tell(child)
        done = [msgspec.json.decode(child.communicate(timeout=READY_SECONDS)[0], type=Done) for child in children]
    return Load(
        sum(each.events / each.seconds for each in done),
        commits / seconds,
        [each.processor_seconds / each.seconds for each in done],
        spent / seconds,
    )


# As it grows.


def spread(logs: Logs, layout: Layout, seconds: float) -> list[Job]:
    """Return the jobs of a layout, over new logs."""
    addresses = [logs.address() for _ in range(layout.logs)]
    return [
        Job([addresses[log] for log in layout.own(place)], layout.writers, seconds) for place in range(layout.workers)
    ]


def demands(logs: Logs, seconds: float) -> Demands:
    """Measure what one event, one commit and one call cost on either side, by layouts that have little else."""
    alone = load(logs, [Job([logs.address()], 1, seconds)])
    many = load(logs, [Job([logs.address()], WRITERS, seconds)])
    apart = load(logs, [Job([logs.address() for _ in range(WRITERS)], WRITERS, seconds)])
    calls = load(logs, [Job([logs.address()], 1, seconds, calls=True)])
    watched, group = logs.address(), logs.address()
    follower = load(logs, [Job([watched], 1, seconds), Job([watched], 0, seconds)])
    followers = load(logs, [Job([group], WRITERS, seconds), Job([group], 0, seconds)])
    has_turns = isinstance(logs.servers, PostgresServer)
    return Demands.of(alone, apart, many, calls, follower, followers, has_turns=has_turns)


def scale(logs: Logs, seconds: float, rounds: int) -> None:
    """Print measured and simulated rates of every layout."""
    costs = demands(logs, seconds)
    print(costs)
    print(f"{'workers':>7} {'logs':>4} {'events/s':>9} {'model':>9} {'ratio':>6} {'events a commit':>15} {'model':>6}")
    ratios = []
    for layout in (Layout(workers, count, WRITERS) for workers in WORKERS for count in LOGS):
        found = [load(logs, spread(logs, layout, seconds)) for _ in range(rounds)]
        rate = statistics.median(each.events for each in found)
        group = statistics.median(each.events / each.commits for each in found)
        outcome = simulated(costs, layout)
        ratios.append(outcome.events / rate)
        print(
            f"{layout.workers:>7} {layout.logs:>4} {rate:>9,.0f} {outcome.events:>9,.0f} {ratios[-1]:>6.2f} "
            f"{group:>15.1f} {outcome.group:>6.1f}",
            flush=True,
        )
    print(f"model / measured: median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")
    machines(costs)


def machines(costs: Demands) -> None:
    """Print what the model says of machines that are not here."""
    print(f"{'machines':>8} {'logs':>6} {'events/s':>10} {'p50 ms':>7} {'busiest':<24}")
    for layout in GROWN:
        outcome: Outcome = simulated(costs, layout)
        print(
            f"{layout.workers:>8,} {layout.logs:>6,} {outcome.events:>10,.0f} {outcome.median_seconds * 1e3:>7.1f} "
            f"{outcome.busiest:<24}",
            flush=True,
        )


# Against the bare client.


def ours(memory: Memory, writers: int, each: int) -> float:
    """Return the rate of so many threads, each with a conversation of its own."""
    chats = [memory.conversation(f"chat {place}") for place in range(writers)]
    for chat in chats:
        chat.append("user", "warm")

    def write(chat: Conversation) -> None:
        for _ in range(each):
            chat.append("user", TEXT)

    return _rate(writers * each, [threading.Thread(target=write, args=(chat,)) for chat in chats])


def ours_batched(memory: Memory, batches: int, each: int) -> float:
    """Return the rate of batches, one after the other."""
    begin = time.perf_counter()
    for _ in range(batches):
        with memory.batch():
            for _ in range(each):
                memory.conversation("batched").append("user", TEXT)
    return batches * each / (time.perf_counter() - begin)


def _rate(events: int, threads: Sequence[threading.Thread]) -> float:
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return events / (time.perf_counter() - begin)


class BarePostgres:
    """An insert for each row, each writer with a connection of its own; a batch is one transaction."""

    def __init__(self, logs: Logs) -> None:
        self._address = logs.servers.address
        with psycopg.connect(self._address, autocommit=True) as connection:
            connection.execute("CREATE TABLE bare (stream int, version int, body bytea, PRIMARY KEY (stream, version))")

    def written(self, writers: int, each: int) -> float:
        """Return the rate of rows of their own."""
        with ExitStack() as stack:
            connect = psycopg.connect
            connections = [stack.enter_context(connect(self._address, autocommit=True)) for _ in range(writers)]
            connections[0].execute("TRUNCATE bare")

            def write(place: int) -> None:
                for version in range(each):
                    connections[place].execute("INSERT INTO bare VALUES (%s, %s, %s)", (place, version, PACKED))

            return _rate(writers * each, [threading.Thread(target=write, args=(place,)) for place in range(writers)])

    def batched(self, batches: int, each: int) -> float:
        """Return the rate of batches, one after the other."""
        with psycopg.connect(self._address, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("TRUNCATE bare")
            begin = time.perf_counter()
            for place in range(batches):
                rows = [(place, version, PACKED) for version in range(each)]
                with connection.transaction():
                    cursor.executemany("INSERT INTO bare VALUES (%s, %s, %s)", rows)
            return batches * each / (time.perf_counter() - begin)


class BareJetStream:
    """A message for each row, each writer a task of one connection; a batch is an atomic batch of the server."""

    def __init__(self, logs: Logs) -> None:
        self._hosts = logs.address().rpartition("/")[0].removeprefix("nats://").split(",")

    def written(self, writers: int, each: int) -> float:
        """Return the rate of messages of their own."""

        async def write(_: nats.NATS, stream: nats.js.JetStreamContext) -> float:
            async def publish(place: int) -> None:
                for _ in range(each):
                    await stream.publish(f"bare.{place}", PACKED)

            begin = time.perf_counter()
            await asyncio.gather(*map(publish, range(writers)))
            return writers * each / (time.perf_counter() - begin)

        return asyncio.run(self._measured(write))

    def batched(self, batches: int, each: int) -> float:
        """Return the rate of batches, one after the other."""

        async def write(client: nats.NATS, stream: nats.js.JetStreamContext) -> float:
            begin = time.perf_counter()
            for place in range(batches):
                for number in range(1, each + 1):
                    headers = {"Nats-Batch-Id": f"batch {place}", "Nats-Batch-Sequence": str(number)}
                    if number < each:
                        await client.publish("bare.x", PACKED, headers=headers)
                await stream.publish("bare.x", PACKED, headers={**headers, "Nats-Batch-Commit": "1"})
            return batches * each / (time.perf_counter() - begin)

        return asyncio.run(self._measured(write))

    async def _measured(self, write: Callable[[nats.NATS, nats.js.JetStreamContext], Any]) -> float:
        client = await nats.connect([f"nats://{host}" for host in self._hosts])
        stream = client.jetstream()
        await stream.add_stream(
            api.StreamConfig("BARE", subjects=["bare.>"], num_replicas=len(self._hosts), allow_atomic=True)
        )
        try:
            while True:  # Until servers have chosen who leads the stream.
                with suppress(nats.js.errors.NoStreamResponseError):
                    await stream.publish("bare.first", PACKED)
                    break
            found: float = await write(client, stream)
            return found
        finally:
            await stream.delete_stream("BARE")
            await client.close()


def rates(logs: Logs, rounds: int) -> None:
    """Print the rates of rounds by turns, and our share of the bare client's."""
    bare = BarePostgres(logs) if isinstance(logs.servers, PostgresServer) else BareJetStream(logs)
    address = logs.address()
    with Memory(address, cache=":memory:") as memory:
        jobs: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
            "64 writers": (lambda: ours(memory, 64, 200), lambda: bare.written(64, 200)),
            "batches of 100": (lambda: ours_batched(memory, 50, 100), lambda: bare.batched(50, 100)),
        }
        for name, pair in jobs.items():
            found: list[tuple[float, float]] = []
            for place in range(rounds + 1):
                order = pair if place % 2 else pair[::-1]
                times = {job: job() for job in order}
                found.append((times[pair[0]], times[pair[1]]))
            mine, theirs = (statistics.median(column) for column in zip(*found[1:], strict=True))
            low, _, high = statistics.quantiles([mine / theirs for mine, theirs in found[1:]], n=4)
            share = f"{mine / theirs:.2f}x ({low:.2f}, {high:.2f})"
            print(f"{name:<15} refold {mine:>7,.0f}/s  bare {theirs:>7,.0f}/s  {share}")


# How far behind.


def lag(logs: Logs, writes: int, pause: float) -> None:
    """Print how long it takes from before a write in another process until a subscriber here has heard of it."""
    address = logs.address()
    program = (
        "import sys, time; from refold import Memory\n"
        "with Memory(sys.argv[1], cache=':memory:') as memory:\n"
        f"    for _ in range({writes}):\n"
        f"        memory.conversation('chat').append('user', str(time.time_ns())); time.sleep({pause})\n"
    )
    found = list[float]()

    def hear(recorded: Recorded) -> None:
        if isinstance(recorded.event, MessageAppended):
            found.append(time.time_ns() - int(str(recorded.event.content)))

    with Memory(address, cache=":memory:") as memory:
        memory.subscribe(hear)
        subprocess.run([sys.executable, "-c", program, address], check=True)
        time.sleep(1)
    shown = [statistics.quantiles(found, n=100)[place - 1] / 1e6 for place in (50, 99)]
    print(f"{len(found)} of {writes} writes, every {pause * 1e3:.0f} ms: p50 {shown[0]:.1f} ms, p99 {shown[1]:.1f} ms")


# There and back, and from cold.

_APPEND_UNTIL_READONLY: Final = """
import sys
from refold import Memory, ReadOnly
with Memory(sys.argv[1], cache=sys.argv[2] or None) as memory:
    chat = memory.conversation("meanwhile")
    try:
        while True:
            print(chat.append("user", "x" * 200).seq, flush=True)
    except ReadOnly:
        pass
"""
_OPEN_AND_READ: Final = """
import sys, time
from refold import Memory
began = time.perf_counter()
with Memory(sys.argv[1], cache=sys.argv[2]) as memory:
    opened = time.perf_counter()
    assert memory.head == int(sys.argv[3]) and memory.conversation("chat 7").window()
    print(f"open {opened - began:.2f} s, first window {time.perf_counter() - opened:.2f} s")
"""


def fill(place: str, events: int) -> None:
    """Append so many messages to 100 conversations, 1,000 in a commit."""
    with Memory(place, cache=_cache(place)) as memory:
        for begin in range(0, events, 1_000):
            with memory.batch():
                for number in range(begin, min(begin + 1_000, events)):
                    memory.conversation(f"chat {number % 100}").append("user", f"{number} {TEXT}")


def _cache(place: str) -> str | None:
    return ":memory:" if "://" in place else None


def moved(logs: Logs, events: int) -> None:
    """Print how long a move to the server takes, and one back, while a process writes to the side that is left."""
    with tempfile.TemporaryDirectory() as directory:
        places = [f"{directory}/old", logs.address(), f"{directory}/new"]
        fill(places[0], events)
        for source, target in itertools.pairwise(places):
            program = [sys.executable, "-c", _APPEND_UNTIL_READONLY, source, _cache(source) or ""]
            writer = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
            assert writer.stdout is not None
            writer.stdout.readline()
            began = time.perf_counter()
            done = move(source, target, cache=f"{directory}/caches")
            seconds = time.perf_counter() - began
            written = writer.stdout.read().split()
            assert writer.wait() == 0
            with Memory(target, cache=_cache(target)) as memory:
                assert isinstance(memory.event(int(written[-1])).event, MessageAppended)
                assert memory.state_hash() == done.state_hash
            print(
                f"{done.events:,} events in {seconds:.1f} s, {len(written):,} of them written meanwhile; the last of "
                f"these is there, and state_hash is equal"
            )


def cold(logs: Logs, events: int) -> None:
    """Print how long a machine without a copy takes to open a log, and then to read a conversation."""
    address = logs.address()
    with tempfile.TemporaryDirectory() as directory:
        fill(address, events)
        with Memory(address, cache=":memory:") as memory:
            head = memory.head
        print(f"{head:,} events: ", end="", flush=True)
        subprocess.run([sys.executable, "-c", _OPEN_AND_READ, address, f"{directory}/cache", str(head)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rates", "lag", "scale", "machines", "move", "cold"))
    parser.add_argument("kind", choices=("postgres", "nats", "nats-cluster"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement of a layout")
    options = parser.parse_args()
    with running(options.kind) as logs:
        cluster.open_cluster(logs.address()).close()  # Once servers have chosen who leads.
        if options.what == "rates":
            rates(logs, options.rounds)
        elif options.what == "lag":
            lag(logs, 1_500, 0.004)
        elif options.what == "scale":
            scale(logs, options.seconds, options.rounds)
        elif options.what == "move":
            moved(logs, 100_000)
        elif options.what == "cold":
            cold(logs, 1_000_000)
        else:
            machines(demands(logs, options.seconds))


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        print(msgspec.json.encode(work(msgspec.json.decode(sys.stdin.readline(), type=Job))).decode())
    else:
        main()
