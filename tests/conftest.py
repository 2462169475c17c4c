"""The fixtures that every test with an engine may use; each ends with the proof that a replay gives the live state."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from tests.support.bounds import Clock, seeded_bytes

SLOW_SECONDS_MAX = 900
"""When a slow test counts as one that hangs: on a machine that is busy with other work it takes many times as long."""


def pytest_configure() -> None:
    """Lets children hear Ctrl-C: a shell that runs this in its background has it ignored, and they inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


PLACES = ("ram", "disk")
"""Where the memories of tests are, unless ``--logs`` names servers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that puts the memories of tests on servers."""
    parser.addoption("--logs", default="", help="run the tests of memories over logs on these servers: postgres,nats")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives tests of a memory each place that there is."""
    logs = [name for name in metafunc.config.getoption("--logs").split(",") if name]
    if "held" in metafunc.fixturenames:
        metafunc.parametrize("held", logs or PLACES, indirect=True)
    if "log_home" in metafunc.fixturenames:
        metafunc.parametrize("log_home", logs or PLACES[1:], indirect=True, scope="module")


@pytest.fixture(scope="module")
def log_home(request: pytest.FixtureRequest) -> str:
    """Where the filled stores of tests are."""
    return str(request.param)


class Servers:
    """Servers for logs, each started when it is first needed."""

    def __init__(self, running: ExitStack) -> None:
        self._running = running
        self._logs: dict[str, Any] = {}

    def logs(self, kind: str) -> Any:
        """Return the logs of a server."""
        from tests.support.commits import running

        if kind not in self._logs:
            self._logs[kind] = self._running.enter_context(running(kind))
        return self._logs[kind]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The servers that tests share."""
    with ExitStack() as running:
        yield Servers(running)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives slow tests more time than others, unless they say how much themselves."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS_MAX))


class Held:
    """The memory of one test, and how it is closed and opened again."""

    def __init__(self, path: Path, clock: Clock, *, in_ram: bool, address: str = "") -> None:
        self._path, self._clock, self._in_ram, self._address = path, clock, in_ram, address
        self._opened = 0
        self.memory = self._open()

    def _open(self) -> Memory:
        self._opened += 1
        if self._address:
            given: dict[str, Any] = {"clock_ns": self._clock, "random_bytes": seeded_bytes(self._opened)}
            return Memory(self._address, cache=self._path / "caches", **given)
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


@pytest.fixture
def held(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, servers: Servers) -> Iterator[Held]:
    """What ``memory`` and ``reopen`` share."""
    address = "" if request.param in PLACES else servers.logs(request.param).address()
    held = Held(tmp_path, clock, in_ram=request.param == "ram", address=address)
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


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring earlier messages into a context by their rank alone, however few there are."""
    monkeypatch.setattr("refold.memory.user_messages._WHOLE_WORDS_MAX", -1)
