"""Servers that are told to end while something runs that never comes back."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from mcp import Client, MCPError

from refold import InvalidInput, Memory
from refold.mcp import serve
from refold.mcp.resources import Binding
from tests.mcp.servers import command
from tests.mcp.test_bytes import wired
from tests.support.memories import assert_sound, refused

SECONDS = 60
IMPATIENT_SECONDS = 0.2

STUCK = """
import sys, threading
from refold import InvalidInput, Memory
from refold.mcp import serve
from refold.mcp.resources import Binding
from refold.mcp import serve
from refold.mcp.resources import Binding
from refold.agent.tools import FunctionTool

def wait(given, context):
    print("stuck", file=sys.stderr, flush=True)
    threading.Event().wait()

with Memory(sys.argv[1]) as memory:
    memory.tools.register(FunctionTool("wait", "Waits.", {}, wait))
    serve(Binding(memory, conversation="chat"), http_port=0 if sys.argv[2:] else None)
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "store"
    yield path
    with Memory(path) as memory:
        assert_sound(memory)
        assert memory.profile().get("theme") == "dark"


CLOSING = """
import os, sys
os.close(int(sys.argv[1]))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


def ended(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """Tell a process to end, and again as long as it does not; how it ended."""
    for _ in range(int(SECONDS / IMPATIENT_SECONDS)):
        process.send_signal(number)
        try:
            return process.wait(IMPATIENT_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    pytest.fail("it did not end")


def test_who_insists_ends_a_server_over_stdio(store: Path) -> None:
    with wired(store, sys.executable, "-c", STUCK, str(store)) as wire:
        wire.shake_hands()
        wire.call("memory_set", {"key": "theme", "value": "dark"})
        wire.ask("tools/call", {"name": "wait", "arguments": {}})
        assert wire.process.stderr is not None
        assert wire.process.stderr.readline() == b"stuck\n"
        assert ended(wire.process, signal.SIGTERM) == 128 + signal.SIGTERM


def test_who_insists_ends_a_server_over_http(store: Path) -> None:
    async def use(url: str, process: subprocess.Popen[bytes]) -> int:
        async with Client(url) as client:
            await client.call_tool("memory_set", {"key": "theme", "value": "dark"})
            waiting = asyncio.create_task(client.call_tool("wait", {}))
            assert process.stderr is not None
            assert await asyncio.to_thread(process.stderr.readline) == b"stuck\n"
            code = await asyncio.to_thread(ended, process, signal.SIGINT)
            with suppress(MCPError):  # Nobody answers it.
                await waiting
        return code

    with wired(store, sys.executable, "-c", STUCK, str(store), "http") as wire:
        assert wire.process.stderr is not None
        found = re.search(r"http://\S+", wire.process.stderr.readline().decode())
        assert found is not None
        with suppress(MCPError, ExceptionGroup):
            assert asyncio.run(use(found.group(), wire.process)) == 130
        assert wire.process.wait(SECONDS) == 130


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows which file a number stands for")
def test_no_file_of_the_store_stands_where_stderr_was(tmp_path: Path) -> None:
    store = tmp_path / "store"
    served = command("--db", str(store))
    with wired(store, sys.executable, "-c", CLOSING, "2", *served[1:]) as wire:
        wire.shake_hands()
        places = [Path(f"/proc/{wire.process.pid}/fd/{number}").readlink() for number in range(3)]
        assert not [place for place in places if place.is_relative_to(store)]
        assert wire.end() == 0


def test_a_stream_that_came_closed_leads_to_nobody(tmp_path: Path) -> None:
    served = command("--db", str(tmp_path / "store"))
    run = subprocess.run(
        [sys.executable, "-c", CLOSING, "1", *served[1:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    with Memory(tmp_path / "store") as memory:
        assert_sound(memory)


@pytest.mark.parametrize("name", ["stdin", "stdout"])
def test_a_program_that_has_no_wire_serves_nobody(memory: Memory, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(sys, name, None)
    with refused(memory, InvalidInput, "stdin and stdout"):
        serve(Binding(memory))
