"""A memory moved to a server and back, while others write, cut off, and with something erased meanwhile."""

import importlib
import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, Memory, ReadOnly, StoreBusy, StoreUnreachable, move
from refold.engine import move as moves
from refold.engine.erasure import Target, erase
from refold.log import replica
from tests.conftest import Servers
from tests.support.commits import RamCommits
from tests.support.memories import assert_sound
from tests.support.paths import ROOT
from tests.support.worlds import Known

SHARED = "postgresql://shared"


WRITER = """
import sys
from refold import Memory, ReadOnly
with Memory(sys.argv[1]) as memory:
    print("writing", flush=True)
    seq = 0
    try:
        while True:
            seq = memory.conversation("c").append("user", "meanwhile").seq
    except ReadOnly as error:
        print(seq, error)
"""
"""A program that writes until it may not."""


@pytest.fixture
def servers_commits(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bytes]]:
    """Commits of logs on servers, by the address, in this process."""
    logs: dict[str, list[bytes]] = {}

    def connected(address: str, *, readonly: bool) -> RamCommits:
        assert type(readonly) is bool
        return RamCommits(logs.setdefault(address, []), address)

    for module in (replica, moves):
        monkeypatch.setattr(module, "connect", connected)
    return logs


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with Memory(tmp_path / "source") as memory:
        Known(memory)
        memory.conversation("secret").append("user", "a secret text that nobody may find")
    return tmp_path / "source"


def opened(address: str, tmp_path: Path, **options: Any) -> Memory:
    return Memory(address, cache=tmp_path / "caches", **options)


def test_both_sides_have_the_same_state_and_the_old_one_says_where_the_new_one_is(
    source: Path, tmp_path: Path, servers_commits: dict[str, list[bytes]]
) -> None:
    with Memory(source) as memory:
        hashed, forks = memory.state_hash(), [memory.fork(name).state_hash() for name in memory.forks()]
    moved = move(source, SHARED, cache=tmp_path / "caches")
    assert (moved.state_hash, list(moved.forks)) == (hashed, forks)
    assert servers_commits[SHARED]
    with opened(SHARED, tmp_path) as there:
        assert assert_sound(there) == hashed
        there.conversation("c").append("user", "on the server")
        there.conversation("new").append("user", "on the server")
        after = assert_sound(there)
    with Memory(source) as here:
        assert assert_sound(here) == hashed
        with pytest.raises(ReadOnly, match="was moved to postgresql://shared"):
            here.conversation("c").append("user", "here")
    back = move(SHARED, tmp_path / "back", cache=tmp_path / "caches")
    assert back.state_hash == after
    with Memory(tmp_path / "back") as again:
        assert assert_sound(again) == after
        again.conversation("c").append("user", "back again")
        assert_sound(again)
    with opened(SHARED, tmp_path) as there, pytest.raises(ReadOnly, match="was moved to"):
        there.conversation("c").append("user", "there")
    further = move(tmp_path / "back", "postgresql://further", cache=tmp_path / "caches")
    assert move("postgresql://further", "postgresql://third", cache=tmp_path / "caches") == further


def test_whoever_writes_meanwhile_is_moved_along_or_told(
    source: Path, tmp_path: Path, servers_commits: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "_REST_EVENTS", 3)
    command = [sys.executable, "-c", WRITER, str(source)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline().strip() == "writing"
    move(source, SHARED, cache=tmp_path / "caches")
    written, told = zip(*(writer.communicate(timeout=60)[0].split(" ", 1) for writer in writers), strict=True)
    assert all("was moved to postgresql://shared" in text for text in told)
    with opened(SHARED, tmp_path) as there, Memory(source, readonly=True) as here:
        assert assert_sound(there) == here.state_hash()
        assert max(map(int, written)) == there.head
    assert servers_commits


def test_one_that_was_cut_off_goes_on_and_is_not_opened_before(
    source: Path, tmp_path: Path, servers_commits: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "_COMMIT_BYTES", 500)
    append, room, tries = RamCommits.append, 0, 0

    def cut_off(self: RamCommits, expected: int, packed: bytes, before: bytes | None = None) -> int:
        nonlocal room
        room -= 1
        if room < 0:
            raise StoreUnreachable("it does not answer")
        return append(self, expected, packed, before)

    Memory(tmp_path / "other").close()
    monkeypatch.setattr(RamCommits, "append", cut_off)
    moved = None
    while moved is None:
        room, tries = 2, tries + 1
        with suppress(StoreUnreachable):
            moved = move(source, SHARED, cache=tmp_path / "caches")
        if moved is None:
            with pytest.raises(StoreBusy, match="is being moved"):
                opened(SHARED, tmp_path)
            with pytest.raises(InvalidInput, match="holds a log already"):
                move(tmp_path / "other", SHARED, cache=tmp_path / "caches")
    assert tries > 3
    assert len(servers_commits[SHARED]) > 2 * (tries - 1)
    assert move(source, SHARED, cache=tmp_path / "caches") == moved
    with opened(SHARED, tmp_path) as there:
        assert assert_sound(there) == moved.state_hash


def test_what_is_erased_meanwhile_is_not_there(
    source: Path, tmp_path: Path, servers_commits: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "_REST_EVENTS", 0)
    mark = moves._mark

    def erasing(engine: Any, target: str) -> None:
        assert any(b"secret text" in packed for packed in servers_commits[SHARED])
        erase(engine, Target(streams=[(0, "conversation/secret")]), derived=True)
        mark(engine, target)

    monkeypatch.setattr(moves, "_mark", erasing)
    move(source, SHARED, cache=tmp_path / "caches")
    assert not any(b"secret" in packed for packed in servers_commits[SHARED])
    with opened(SHARED, tmp_path) as there:
        assert_sound(there)


def test_what_cannot_be_moved_is_refused(source: Path, tmp_path: Path, servers_commits: dict[str, list[bytes]]) -> None:
    with pytest.raises(InvalidInput, match="are directories"):
        move(source, tmp_path / "other")
    with opened("postgresql://taken", tmp_path) as taken:
        taken.conversation("c").append("user", "hello")
    with pytest.raises(InvalidInput, match="holds a log already"):
        move(source, "postgresql://taken", cache=tmp_path / "caches")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with opened("postgresql://full", tmp_path) as full:
        with pytest.raises(InvalidInput, match="is there already"):
            move("postgresql://full", tmp_path / "full", cache=tmp_path / "caches")
        full.conversation("c").append("user", "still here")
    with Memory(source) as memory:
        memory.conversation("c").append("user", "still here")
    move(source, SHARED, cache=tmp_path / "caches")
    with pytest.raises(InvalidInput, match="was moved to postgresql://shared"):
        move(source, "postgresql://elsewhere", cache=tmp_path / "caches")
    assert "postgresql://elsewhere" not in servers_commits


@pytest.mark.parametrize("kind", ["postgres", "nats"])
def test_a_real_server_takes_it_and_gives_it_back(source: Path, tmp_path: Path, servers: Servers, kind: str) -> None:
    address = servers.logs(kind).address()
    there = move(source, address, cache=tmp_path / "caches")
    assert move(address, tmp_path / "back", cache=tmp_path / "caches") == there
    with Memory(tmp_path / "back") as again:
        assert assert_sound(again) == there.state_hash


def test_the_commands_of_the_guide_move_a_memory_there_and_back(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("click", reason="the command line needs the extra refold[cli]")
    guide, address = (ROOT / "engine/docs/guides.md").read_text(encoding="utf-8"), servers.logs("postgres").address()
    _, _, section = guide.partition("## Share it among machines\n")
    section = section.partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("MY_LOG", servers.logs("postgres").address())
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(block, {"Memory": Memory})  # noqa: S102 - it is ours
    assert printed.getvalue() == "True\n"
    with Memory("agent.refold") as memory:
        memory.conversation("c").append("user", "hello")
        hashed = memory.state_hash()
    commands = re.findall(r"^refold .*", section, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        line = command.replace("postgresql://refold@db.internal/agents", address)
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        assert importlib.import_module("refold.cli").main() == 0, line
    with Memory("back.refold") as memory:
        assert assert_sound(memory) == hashed
