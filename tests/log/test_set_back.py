"""Servers that are set back to an older state, as from a backup, while processes that saw more of the log run on."""

import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from refold import Memory, StoreCorrupt, StoreUnreachable
from tests.support.commits import Logs, running
from tests.support.memories import assert_sound
from tests.support.postgres_server import PostgresServer


@pytest.fixture(params=["postgres", "nats"])
def logs(request: pytest.FixtureRequest) -> Iterator[Logs]:
    with running(request.param) as found:
        yield found


class Backup:
    """A copy of the files of a server."""

    def __init__(self, logs: Logs, directory: Path) -> None:
        self._servers = logs.servers
        name = "data" if isinstance(logs.servers, PostgresServer) else "n0.data"
        self._data, self._copy = logs.servers.directory / name, directory / "backup"
        self._replace(self._data, self._copy)

    def restore(self) -> None:
        """Set the server back."""
        self._replace(self._copy, self._data)

    def _replace(self, source: Path, target: Path) -> None:
        self._servers.stop()
        subprocess.run(["rm", "-rf", target], check=True)
        subprocess.run(["cp", "-a", source, target], check=True)
        self._servers.start(*([] if isinstance(self._servers, PostgresServer) else [0]))


def append(memory: Memory, text: str) -> int:
    """Append a message as soon as the server answers."""
    until = time.monotonic() + 60
    while True:
        try:
            return memory.conversation("c").append("user", text).seq
        except StoreUnreachable:
            if time.monotonic() > until:
                raise


def texts(memory: Memory) -> list[Any]:
    return [message.content for message in memory.conversation("c").history()]


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("ask", ["append", "refresh", "nothing"])
def test_a_process_that_saw_more_than_the_server_has_takes_up_nothing(
    logs: Logs, tmp_path: Path, ask: str, count: int
) -> None:
    """Whether others have written as much since, less or more."""
    address = logs.address()
    with Memory(address, cache=tmp_path / "one") as one:
        append(one, "kept")
        backup = Backup(logs, tmp_path)
        append(one, "lost")
        backup.restore()
        with Memory(address, cache=tmp_path / "other") as other:
            for number in range(count):
                append(other, f"new {number}")
            if ask != "nothing":
                with pytest.raises(StoreCorrupt, match=f"has lost commits.* remove {tmp_path}/one/"):
                    append(one, "on") if ask == "append" else one.refresh()
            until = time.monotonic() + 60
            while (health := one.health()).ok and time.monotonic() < until:
                time.sleep(0.05)
            assert health.problem == "unreadable"
            assert texts(one) == ["kept", "lost"]
            append(other, "after")
            assert texts(other) == ["kept", *(f"new {number}" for number in range(count)), "after"]
            assert other.verify().ok
            assert_sound(other)
    with pytest.raises(StoreCorrupt, match="has lost commits"):
        Memory(address, cache=tmp_path / "one")


@pytest.mark.slow
def test_a_process_goes_on_with_a_server_that_was_restarted(logs: Logs, tmp_path: Path) -> None:
    address, long = logs.address(), random.Random(1).randbytes(1_000_000).hex()  # Several messages of JetStream.
    with Memory(address, cache=tmp_path / "one") as one:
        for text in ("kept", long):
            append(one, text)
            Backup(logs, tmp_path)
            until = time.monotonic() + 60
            while time.monotonic() < until:
                with suppress(StoreUnreachable):
                    assert one.refresh() == one.head
                    break
        append(one, "more")
        append(one, long)
        assert texts(one) == ["kept", long, "more", long]
        assert one.health().ok
    with Memory(address, cache=tmp_path / "one") as one:
        assert_sound(one)
