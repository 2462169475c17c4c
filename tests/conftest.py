"""The fixtures that every test with an engine may use; each ends with the proof that a replay gives the live state."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refold import Memory
from tests.support.bounds import Clock, seeded_bytes

SLOW_SECONDS_MAX = 900
"""When a slow test counts as one that hangs: on a machine that is busy with other work it takes many times as long."""


def pytest_configure() -> None:
    """Lets children hear Ctrl-C: a shell that runs this in its background has it ignored, and they inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives slow tests more time than others, unless they say how much themselves."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS_MAX))


class Held:
    """The memory of one test, and how it is closed and opened again."""

    def __init__(self, path: Path, clock: Clock, *, in_ram: bool) -> None:
        self._path, self._clock, self._in_ram = path, clock, in_ram
        self._opened = 0
        self.memory = self._open()

    def _open(self) -> Memory:
        self._opened += 1
        place = None if self._in_ram else self._path / "store"
        return Memory(place, clock_ns=self._clock, random_bytes=seeded_bytes(self._opened))

    def reopen(self) -> Memory:
        """Closes the memory and opens it again; one in RAM, which keeps nothing, goes out as an export and back in."""
        export = self._path / f"export-{self._opened}.jsonl"
        if self._in_ram:
            self.memory.export(export)
        self.memory.close()
        self.memory = self._open()
        if self._in_ram:
            self.memory.load(export)
        return self.memory

    def prove(self) -> None:
        """Asserts that the live state, its replay and the reopened store have one hash, and that nothing is wrong."""
        live = self._hashes()
        report = self.memory.verify()
        assert report.ok, report.findings
        self.reopen()
        assert self._hashes() == live
        report = self.memory.verify()
        assert report.ok, report.findings
        self.memory.close()

    def _hashes(self) -> dict[str, str]:
        """The hashes of the memory and of its forks, each that of its replay."""
        handles = {"": self.memory, **{name: self.memory.fork(name) for name in self.memory.forks()}}
        hashes = {name: handle.state_hash() for name, handle in handles.items()}
        assert hashes == {name: handle.replay_hash() for name, handle in handles.items()}
        return hashes


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until the test moves it."""
    return Clock()


@pytest.fixture(params=["ram", "disk"])
def held(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Held]:
    """What ``memory`` and ``reopen`` share."""
    held = Held(tmp_path, clock, in_ram=request.param == "ram")
    yield held
    held.prove()


@pytest.fixture
def memory(held: Held) -> Memory:
    """An empty memory, in RAM and on disk."""
    return held.memory


@pytest.fixture
def reopen(held: Held) -> Callable[[], Memory]:
    """A function that closes the memory, opens it again and returns it; what was opened before is closed."""
    return held.reopen
