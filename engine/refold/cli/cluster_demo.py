"""The demonstration of a log on three servers, whose leader is killed while two machines write.

The machines are processes. It shows which writes were acknowledged, which are present in the end, and that all machines
see the same.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from refold.cli.cluster import PAUSE_SECONDS, SECONDS, NatsServers, open_cluster
from refold.cli.output import Console, yes_or_no
from refold.errors import RefoldError, StoreUnreachable

if TYPE_CHECKING:
    from refold import Conversation, Memory

_LOG: Final = "demo"
_CHAT: Final = "support"
_MACHINES: Final = ("east", "west")
_COUNT: Final = 150
"""Messages written by each machine."""
_KILLED_AFTER: Final = 50
"""Acknowledged messages of each machine before a server is killed."""
_WRITE_SECONDS: Final = 0.01
"""The pause between two messages of a machine, so that both machines still write when the server is killed."""


def demonstrate(directory: Path, console: Console) -> dict[str, Any]:
    """Run the demonstration with files in a directory and return its facts; `ok` is true if every promise was kept."""
    console.line(("refold: one memory, three servers, and one of them is killed", "bold"))
    with ExitStack() as stack:
        servers = NatsServers(directory, 3)
        stack.callback(servers.stop)
        memory = stack.enter_context(open_cluster(servers.address(_LOG)))
        console.heading("1. Three servers keep one log, each in its own files")
        leader = _leader(servers)
        console.line(f"   n0, n1 and n2 run on this machine; n{leader} leads, and a write is safe once two have it")
        machines = [stack.enter_context(_machine(servers, name)) for name in _MACHINES]
        facts = {"leader": leader} | _kill_leader(servers, leader, machines, console)
        facts["replicas"] = _catch_up(servers, leader, console)
        memory.refresh()
        facts |= _proof(servers, memory, machines, console)
    facts["ok"] = facts["found"] and facts["equal"] and facts["sound"] and facts["replicas"]
    return facts


def _leader(servers: NatsServers, but: int | None = None) -> int:
    """Return the place of the server that leads the log, as soon as there is one."""
    from refold.log.jetstream import stream_of
    from refold.log.monitors import look

    until, stream = time.monotonic() + SECONDS, stream_of(servers.address(_LOG))
    while time.monotonic() < until:
        for place, monitor in enumerate(servers.monitors):
            with suppress(OSError):
                if place != but and (replica := look(monitor, stream)) and replica.leads:
                    return place
        time.sleep(PAUSE_SECONDS)
    raise RefoldError(f"the servers in {servers.directory} have no leader after {SECONDS:.0f} s; see their logs")


class _Machine:
    """A process that writes to the memory, with the seqs acknowledged to it and the times of acknowledgement."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self.acknowledged = list[int]()
        self.times = list[float]()
        self.state_hash = ""
        self._process = process
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "the machine's stdout is a pipe"
        for line in self._process.stdout:
            if line.strip().isdecimal():
                self.times.append(time.monotonic())
                self.acknowledged.append(int(line))
            else:
                self.state_hash = line.strip()

    def await_count(self, count: int) -> None:
        """Wait until this many messages have been acknowledged."""
        until = time.monotonic() + SECONDS
        while len(self.acknowledged) < count:
            if self._process.poll() is not None or time.monotonic() > until:
                raise RefoldError(
                    f"the machine {self.name} has {len(self.acknowledged)} of {count} messages acknowledged and does "
                    f"not go on; see what it printed"
                )
            time.sleep(PAUSE_SECONDS)

    def end(self) -> str:
        """Let the process print the hash of the state it sees, and end."""
        assert self._process.stdin is not None, "the machine's stdin is a pipe"
        self._process.stdin.close()
        self._reader.join(SECONDS)
        return self.state_hash

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait(SECONDS)
        self._reader.join(SECONDS)


@contextmanager
def _machine(servers: NatsServers, name: str) -> Generator[_Machine]:
    command = [sys.executable, "-P", "-m", "refold.cli.cluster_demo", servers.address(_LOG), name]
    with subprocess.Popen(  # noqa: S603 - this module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        machine = _Machine(name, process)
        try:
            yield machine
        finally:
            machine.kill()


def _kill_leader(servers: NatsServers, leader: int, machines: Sequence[_Machine], console: Console) -> dict[str, Any]:
    console.heading(f"2. Two machines, {' and '.join(_MACHINES)}, write to it, and n{leader} is killed meanwhile")
    for machine in machines:
        machine.await_count(_KILLED_AFTER)
    killed_at = time.monotonic()
    servers.signal(leader, signal.SIGKILL)
    before = sum(len(machine.acknowledged) for machine in machines)
    console.line((f"   n{leader} was killed after {before} messages were acknowledged", "bold yellow"))
    for machine in machines:
        machine.await_count(_COUNT)
    times = sorted(moment for machine in machines for moment in machine.times)
    gap = max(after - moment for moment, after in pairwise(times) if after > killed_at)
    following = _leader(servers, but=leader)
    console.line(f"   for {gap:.1f} s no write was acknowledged; then n{following} led, and both machines continued")
    return {"acknowledged_before": before, "gap_seconds": gap, "next_leader": following}


def _catch_up(servers: NatsServers, leader: int, console: Console) -> bool:
    from refold.log.jetstream import stream_of
    from refold.log.monitors import compare

    console.heading(f"3. n{leader} is restarted and catches up")
    servers.start(leader)
    until, stream = time.monotonic() + SECONDS, stream_of(servers.address(_LOG))
    checks = compare(servers.monitors, stream, copies=servers.count)
    while any(check.state != "ok" for check in checks) and time.monotonic() < until:
        checks = compare(servers.monitors, stream, copies=servers.count)
    for check in checks:
        console.line(f"   {check.message}")
    return all(check.state == "ok" for check in checks)


def _proof(servers: NatsServers, memory: "Memory", machines: Sequence[_Machine], console: Console) -> dict[str, Any]:
    console.heading("4. Proof: every acknowledged message is there exactly once, and all machines see the same")
    chat = memory.conversation(_CHAT)
    written = [stamp.seq for event, stamp in chat.events() if type(event).__name__ == "MessageAppended"]
    acknowledged = sorted(seq for machine in machines for seq in machine.acknowledged)
    is_complete = written == acknowledged
    console.line(
        f"   {len(acknowledged)} messages were acknowledged, and {len(written)} are in the log, exactly the same: "
        f"{yes_or_no(is_complete)}"
    )
    with open_cluster(servers.address(_LOG)) as newcomer:
        hashes = {machine.name: machine.end() for machine in machines}
        hashes |= {"this one": memory.state_hash(), "a newcomer": newcomer.state_hash()}
        hashes["a replay"] = newcomer.replay_hash()
        sound = newcomer.verify().ok
    for name, state_hash in hashes.items():
        console.line(f"   hash of {name:<11} {state_hash}")
    equal = len(set(hashes.values())) == 1
    console.line(
        ("   equal, to the last byte", "bold green") if equal else ("   NOT EQUAL: please report this", "bold red")
    )
    console.line(f"   every event is exactly as written: {yes_or_no(sound)}")
    return {
        "acknowledged": acknowledged,
        "written": written,
        "found": is_complete,
        "hashes": hashes,
        "equal": equal,
        "sound": sound,
    }


# A machine: it writes, prints the acknowledged seqs, and finally the hash of all it sees.


def main(address: str, name: str) -> None:
    """Append messages, retrying each until it is acknowledged; its `request_id` ensures that it is stored only once."""
    with open_cluster(address) as memory:
        chat = memory.conversation(_CHAT)
        for number in range(1, _COUNT + 1):
            print(_append_with_retry(chat, f"{name} {number}"), flush=True)
            time.sleep(_WRITE_SECONDS)
        sys.stdin.read()
        memory.refresh()
        print(memory.state_hash(), flush=True)


def _append_with_retry(chat: "Conversation", text: str) -> int:
    until = time.monotonic() + SECONDS
    while True:
        try:
            return chat.append("user", text, request_id=text).seq
        except StoreUnreachable:
            if time.monotonic() > until:
                raise


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
