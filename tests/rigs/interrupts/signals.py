"""Real signals to a process that works on a store, and a process whose memory runs out in its first read."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Final, NamedTuple

import msgspec

from refold import Memory, StoreCorrupt, WrongVersion
from tests.rigs.interrupts.checks import Hung, is_replay, verified, watched, write
from tests.support.worlds import Kit, look

ROUND_LANDED: Final = 20
"""A store is checked once so many signals landed in its verbs."""

PATIENCE_SECONDS: Final = 30


class Report(NamedTuple):
    """What one store came to: how many verbs were called, how many signals landed in them, what was wrong."""

    verbs: int
    landed: int
    findings: list[str]


class _Round:
    """A store, and what was written to it between signals."""

    def __init__(self, kit: Kit, durability: str, random: Random, *, is_beside: bool) -> None:
        self._kit, self._durability, self._random, self._is_beside = kit, durability, random, is_beside
        self._path, _, _ = kit.copy(durability, crashed=random.random() < 0.5)
        self._memory = Memory(self._path, durability=durability)
        self._is_inside = False
        self._written: list[tuple[int, bool]] = []
        """How many events each verb writes with a text of its own, and whether it returned."""
        self._others = 0
        self._landed = 0
        self._findings: list[str] = []
        signal.signal(signal.SIGINT, self._land)

    def _land(self, _: int, _frame: FrameType | None) -> None:
        if self._is_inside:
            self._is_inside = False
            self._landed += 1
            raise KeyboardInterrupt

    def run(self) -> Report:
        """Call verbs until enough signals landed, then look at what is left."""
        if self._is_beside:
            self._kit.neighbour.ask("open", str(self._path))
            self._kit.neighbour.ask("start")
        is_well = True
        while is_well and self._landed < ROUND_LANDED:
            is_well = self._try("verb", self._step)
        checks: list[tuple[str, Callable[[], str | None]]] = [
            ("reads", lambda: look(self._memory)),
            ("writes", lambda: write(self._memory, "own")),
            ("state", lambda: is_replay(self._memory)),
            ("close", self._memory.close),
            ("reopening", self._reopen),
        ]
        if self._is_beside:
            checks.insert(0, ("neighbour", self._stop_others))
        is_well = is_well and all(self._try(kind, check) for kind, check in checks)
        if is_well:
            shutil.rmtree(self._path)
        return Report(len(self._written), self._landed, self._findings)

    def _try(self, kind: str, check: Callable[[], str | None]) -> bool:
        try:
            with watched(PATIENCE_SECONDS):
                wrong = check()
        except (Exception, Hung) as error:  # noqa: BLE001 - whatever it is
            wrong = repr(error)
        if wrong:
            self._findings.append(f"{kind}: {wrong}")
        return not wrong

    def _step(self) -> None:
        verb, count = self._verb(f"#{len(self._written)}.")
        self._written.append((count, False))
        try:
            self._is_inside = True
            verb()
            self._is_inside = False
            self._written[-1] = (count, True)
        except (KeyboardInterrupt, WrongVersion):  # The latter where a batch met what the other process wrote.
            self._is_inside = False
        except BaseException:
            self._is_inside = False
            raise

    def _verb(self, text: str) -> tuple[Callable[[], Any], int]:
        """Draw a verb; return how many events it writes with the text, too."""
        memory = self._memory
        chat, project = memory.conversation("c"), memory.project("p")

        def in_batch() -> None:
            with memory.batch():
                chat.append("user", text)
                memory.profile().set("key", text)

        every: list[tuple[Callable[[], Any], int]] = [
            (lambda: chat.append("user", text), 1),
            (lambda: chat.append("user", text, request_id=text), 1),
            (in_batch, 2),
            (lambda: memory.journal().append(text), 1),
            (lambda: memory.profile().set("key", text), 1),
            (lambda: memory.conversation(text).append("user", text), 1),
            (lambda: project.add(f"{text} is remembered"), 1),
            (lambda: project.search("which port"), 0),
            (chat.token_count, 0),
            (chat.window, 0),
            (memory.flush, 0),
            (memory.state_hash, 0),
        ]
        return self._random.choices(every, [8, 2, 4, 2, 2, 2, 2, 2, 3, 2, 1, 1])[0]

    def _stop_others(self) -> None:
        self._others = self._kit.neighbour.ask("stop")

    def _reopen(self) -> str | None:
        with Memory(self._path, durability=self._durability) as memory:
            wrong = verified(memory) or is_replay(memory) or self._compare(_texts(memory))
        if self._is_beside:
            self._kit.neighbour.ask("close")
        return wrong

    def _compare(self, found: Counter[str]) -> str | None:
        """Hold what is found of each verb against what it was to write: all of it, or nothing where it was cut off."""
        for number, (count, is_acknowledged) in enumerate(self._written):
            times = found[f"#{number}."]
            if times != count and (is_acknowledged or times):
                return f"verb {number} is there {times} times for {count}, acknowledged: {is_acknowledged}"
        for number in range(self._others):
            if found[f"beside {number + 1}"] != 4:
                return f"what the other process wrote as {number + 1} is there {found[f'beside {number + 1}']} times"
        return None


def _texts(memory: Memory) -> Counter[str]:
    """Return how often each text that names a verb stands in the log."""
    fields = [msgspec.structs.asdict(event) for event, _ in memory.events()]
    values = [value for named in fields for name in ("text", "content", "value") if (value := named.get(name))]
    return Counter(
        text for value in values if isinstance(value, str) for text in re.findall(r"#\d+\.|beside \d+", value)
    )


def work(directory: str, durability: str, seed: str, beside: str) -> None:
    """Work on one store after the other, and say what became of each; somebody else sends the signals."""
    signal.signal(signal.SIGINT, lambda *_: None)
    random = Random(seed)
    with Kit(Path(directory)) as kit:
        kit.copy(durability, crashed=True)
        print("ready", flush=True)  # noqa: T201 - said to the process that sends
        while True:
            report = _Round(kit, durability, random, is_beside=bool(beside)).run()
            print(msgspec.json.encode(report).decode(), flush=True)  # noqa: T201 - as above
            if report.findings:
                os._exit(1)


def send(directory: Path, durability: str, seed: int, landed: int, *, is_beside: bool) -> Iterator[Report]:
    """Send signals to processes that work, until so many have landed; yield what becomes of each store."""
    count = 0
    while count < landed:
        place = tempfile.mkdtemp(dir=directory)
        with _program(work, place, durability, f"{seed} {count}", "beside" if is_beside else "") as process:
            for report in _sent(process, Random(seed + count)):
                yield report
                count += max(report.landed, 1)
                if count >= landed:
                    break
            process.kill()


def _sent(process: "subprocess.Popen[str]", random: Random) -> Iterator[Report]:
    """Send signals to a process and yield what it says; one that ends or says nothing does so for a reason."""
    assert process.stdout is not None
    is_over = threading.Event()
    sender = threading.Thread(target=_send, args=(process, random, is_over))
    try:
        if process.stdout.readline() == "ready\n":
            sender.start()
        while line := _line(process):
            yield msgspec.json.decode(line, type=Report)
    finally:
        is_over.set()
        if sender.ident is not None:
            sender.join()
    if process.wait() != 1:
        yield Report(0, 0, [f"the process ended with status {process.returncode}: nothing said, or nothing woke it"])


def _line(process: "subprocess.Popen[str]") -> str:
    """Return the next line of a process, which is ended where that takes too long; empty at its end."""
    assert process.stdout is not None
    alarm = threading.Timer(3 * PATIENCE_SECONDS, process.send_signal, [signal.SIGABRT])
    alarm.start()
    try:
        return process.stdout.readline()
    finally:
        alarm.cancel()


def _send(process: "subprocess.Popen[str]", random: Random, is_over: threading.Event) -> None:
    while not is_over.is_set() and process.poll() is None:
        time.sleep(random.expovariate(1_000))
        process.send_signal(signal.SIGINT)


def _program(function: Callable[..., None], *arguments: str) -> "subprocess.Popen[str]":
    name = function.__name__
    program = f"import sys; from tests.rigs.interrupts.signals import {name}; {name}(*sys.argv[1:])"
    command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# Memory that runs out.


def fill(path: str, count: str) -> None:
    """Make a store whose conversation no row covers, and die."""
    memory = Memory(path)
    chat = memory.conversation("c", window_tokens=1_000_000)
    with memory.batch():
        for number in range(int(count)):
            chat.append("user", f"message {number}")
    print("filled", flush=True)  # noqa: T201 - as above
    os._exit(0)


_SPIN_SECONDS: Final = 60
"""CPU time for a first read, which takes one. Without the 32 bytes for the number of an instruction, CPython looks
for the handler of an exception again and again (``exception_unwind`` in its ceval.c); nothing of ours ends that."""


def starve(path: str, count: str, spare_bytes: str) -> None:
    """Read a conversation for the first time with so many bytes to spare, then with all there are."""
    memory = Memory(path)
    chat = memory.conversation("c")
    ballast = bytearray(4 << 20)  # Let go where memory ran out: without any, no error can be told, and no limit lifted.
    before = _address_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (before + int(spare_bytes) if int(spare_bytes) else soft, hard))
    cpu_soft, cpu_hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + _SPIN_SECONDS, cpu_hard))
    failed, wrong = "", None
    try:
        chat.token_count()
    except StoreCorrupt as error:
        ballast.clear()
        failed, wrong = repr(error), f"a shortage of memory is called a damage: {error}"
    except BaseException as error:  # noqa: BLE001 - whatever comes of it
        ballast.clear()
        failed = repr(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_soft, cpu_hard))
    grown = _address_bytes() - before
    if len(chat.window()) != int(count):
        wrong = f"the window holds {len(chat.window())} of {count} messages"
    chat.append("user", "behind it")
    wrong = wrong or is_replay(memory)
    memory.close()
    with Memory(path) as again:
        wrong = wrong or verified(again)
        if len(again.conversation("c").window()) != int(count) + 1:
            wrong = wrong or "the window is another one once it is opened anew"
    print(msgspec.json.encode((failed, grown, wrong)).decode(), flush=True)  # noqa: T201 - as above


def _address_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()


def run_out(directory: Path, count: int, times: int) -> Iterator[tuple[str, str | None]]:
    """Let first reads of a conversation of so many messages run out of memory; yield the error, and what was wrong."""
    filled = str(directory / "filled")
    assert _said(fill, filled, str(count)) == "filled\n"

    def attempt(number: int, spare_bytes: int) -> tuple[str, int, str | None]:
        path, said, status = str(directory / f"attempt-{number}"), "", 0
        # Where the interpreter spins, a little more lets it raise; twice would be ours.
        for more_bytes in (0, 1 << 16):
            shutil.copytree(filled, path)
            with _program(starve, path, str(count), str(spare_bytes + more_bytes)) as process:
                assert process.stdout is not None
                said = process.stdout.read()
            shutil.rmtree(path)
            status = process.returncode
            if status != -signal.SIGXCPU:
                break
        if not said:
            return "", 0, f"the process ended with {status}"
        return msgspec.json.decode(said, type=tuple[str, int, str | None])

    _, grown, wrong = attempt(0, 0)
    yield "", wrong
    for number in range(1, times + 1):
        # Closer together where there is little: what fails first are small things.
        failed, _, wrong = attempt(number, round(grown * (number / (times + 1)) ** 3))
        yield failed, wrong


def _said(function: Callable[..., None], *arguments: str) -> str:
    with _program(function, *arguments) as process:
        assert process.stdout is not None
        return process.stdout.read()
