"""What a client may send that no client should, byte by byte, to the command in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from tests.mcp.servers import command
from tests.support.memories import assert_sound

SECONDS = 60
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bytes", "version": "1"},
}

NONSENSE = {
    b"{broken": -32700,
    b"\xff\xfe\x00": -32700,
    b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}': -32700,
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\\ud800"}}': -32700,
    b"[]": -32600,
    b"42": -32600,
    b"null": -32600,
    b'{"jsonrpc": "2.0"}': -32600,
    b'{"jsonrpc": "2.0", "id": 7, "method": 7}': -32600,
    b'{"jsonrpc": "2.0", "id": true, "method": 1}': -32600,
}

pytestmark = pytest.mark.slow


class Wire:
    """The command over stdio, spoken to in bytes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 0

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """The next message; whatever is no message fails here."""
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def ask(self, method: str, parameters: dict[str, Any]) -> int:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters}
        self.send(json.dumps(request).encode() + b"\n")
        return self._number

    def answer(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = self.ask(method, parameters)
        while (message := self.read()).get("id") != number:
            continue
        return message

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = self.answer("tools/call", {"name": name, "arguments": arguments})["result"]
        return result

    def tell(self, method: str, parameters: dict[str, Any]) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "method": method, "params": parameters}).encode() + b"\n")

    def shake_hands(self) -> None:
        assert self.answer("initialize", HELLO)["result"]["serverInfo"]["name"] == "refold"
        self.tell("notifications/initialized", {})

    def is_alive(self) -> bool:
        return bool(self.call("memory_read", {})["structuredContent"] is not None)

    def end(self) -> int:
        """Close stdin; return how the command ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(SECONDS)


NOISY = """
import os, sys
from refold import Memory
from refold.mcp import serve
from refold.mcp.resources import Binding
from refold.agent.tools import FunctionTool

def shout(given, context):
    print("from Python", flush=True)
    os.write(1, b"from below")
    return sys.stdin.read()

memory = Memory(sys.argv[1])
memory.tools.register(FunctionTool("shout", "Shouts.", {}, shout))
serve(Binding(memory))
print("served")
"""


@contextmanager
def wired(store: Path, *started: str) -> Iterator[Wire]:
    process = subprocess.Popen(
        started or command("--db", str(store), "--conversation", "chat-42"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield Wire(process)
    finally:
        process.kill()
        process.wait(SECONDS)
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "store"
    yield path
    with Memory(path) as memory:
        assert_sound(memory)


def test_nonsense_is_answered_or_ignored_and_the_server_goes_on(store: Path) -> None:
    with wired(store) as wire:
        wire.shake_hands()
        for nonsense, code in NONSENSE.items():
            wire.send(nonsense + b"\n")
            told = wire.read()
            assert (told["id"], told["error"]["code"]) == (7 if b"7" in nonsense else None, code), nonsense
        wire.send(b"\n  \n")
        assert wire.answer("no/such/method", {})["error"]["code"] == -32601
        assert wire.answer("tools/call", {"arguments": {}})["error"]["code"] == -32602
        assert wire.answer("tools/call", {"name": "no_such_tool"})["error"]["code"] == -32602
        assert wire.answer("tools/call", {"name": "memory_read", "arguments": []})["error"]["code"] == -32602
        assert wire.answer("resources/read", {"uri": "memory://conversations/none/window"})["error"]["code"] == -32602
        assert wire.answer("prompts/get", {"name": "recall"})["error"]["code"] == -32602
        assert wire.is_alive()
        assert wire.end() == 0
        assert wire.process.stderr is not None
        assert b"Traceback (most" not in wire.process.stderr.read()


def test_what_is_too_large_or_too_deep_is_an_error(store: Path) -> None:
    with wired(store) as wire:
        wire.shake_hands()
        result = wire.call("memory_set", {"key": "big", "value": "x" * 10_000_000})
        assert result["isError"]
        assert "TOOL_ARGUMENTS_BYTES_MAX" in result["content"][0]["text"]
        wire.send(b'{"jsonrpc": "2.0", "id": "long", "method": "' + b"x" * 20_000_000 + b'"}\n')
        wire.send(b"y" * 40_000_000 + b"\n")
        assert [wire.read()["error"]["code"] for _ in range(2)] == [-32700, -32700]
        nested = b"[" * 50_000 + b"]" * 50_000
        wire.send(b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"memory_set","arguments":{"key":')
        wire.send(nested + b',"value":""}}}\n')
        assert wire.read()["error"]["code"] == -32700
        deep = {"key": json.loads("[" * 500 + "]" * 500), "value": "deep"}
        assert wire.answer("tools/call", {"name": "memory_set", "arguments": deep})["error"]["code"] == -32600
        assert wire.call("memory_set", {"key": json.loads("[" * 100 + "]" * 100), "value": "deep"})["isError"]
        assert wire.is_alive()
        assert wire.end() == 0
    with Memory(store, readonly=True) as memory:
        assert memory.profile().items() == []


def test_a_cancelled_call_is_done_whole_or_not_at_all(store: Path) -> None:
    with wired(store) as wire:
        wire.shake_hands()
        for number in range(50):
            asked = wire.ask(
                "tools/call", {"name": "memory_write", "arguments": {"action": "note", "value": str(number)}}
            )
            wire.tell("notifications/cancelled", {"requestId": asked, "reason": "changed my mind"})
        notes = wire.call("memory_read", {})["structuredContent"]["notes"]
        assert wire.end() == 0
    with Memory(store, readonly=True) as memory:
        kept = memory.conversation("chat-42").scratchpad.notes()
    assert set(notes) <= set(kept) <= {str(number) for number in range(50)}
    assert len(set(kept)) == len(kept)


def test_a_client_that_dies_in_the_middle_of_calls_ends_the_server(store: Path) -> None:
    with wired(store) as wire:
        wire.shake_hands()
        for number in range(100):
            wire.ask("tools/call", {"name": "memory_write", "arguments": {"action": "note", "value": str(number)}})
        assert wire.process.stdout is not None
        wire.process.stdout.close()
        assert wire.end() == 0
        assert wire.process.stderr is not None
        assert b"Traceback (most" not in wire.process.stderr.read()


def test_a_client_that_reads_nothing_does_not_keep_the_server_from_ending(store: Path) -> None:
    with wired(store) as wire:
        wire.shake_hands()
        wire.call("memory_set", {"key": "long", "value": "x" * 500_000})
        for _ in range(4):
            wire.ask("resources/read", {"uri": "memory://profile"})
        wire.process.send_signal(signal.SIGTERM)
        assert wire.process.wait(SECONDS) == -signal.SIGTERM


def test_ctrl_c_ends_a_server_whose_client_is_silent(store: Path) -> None:
    with wired(store) as wire:
        wire.shake_hands()
        assert wire.is_alive()
        wire.process.send_signal(signal.SIGINT)
        assert wire.process.wait(SECONDS) == 130
        assert wire.process.stderr is not None
        assert wire.process.stderr.read().strip() == b""
        assert wire.process.stdout is not None
        assert wire.process.stdout.read() == b""


def test_nothing_but_messages_is_on_the_wire(store: Path) -> None:
    with wired(store, sys.executable, "-c", NOISY, str(store)) as wire:
        wire.shake_hands()
        assert wire.call("shout", {})["content"] == [{"type": "text", "text": ""}], "nor is the wire a tool's stdin"
        assert wire.is_alive()
        assert wire.end() == 0
        assert wire.process.stdout is not None
        assert wire.process.stdout.read() == b"served\n", "stdout is back once nobody is served"
        assert wire.process.stderr is not None
        assert wire.process.stderr.read() == b"from Python\nfrom below"


def test_a_client_that_says_nothing_at_all_ends_it(store: Path) -> None:
    with wired(store) as wire:
        assert wire.end() == 0


def test_a_kill_in_the_middle_of_calls_keeps_what_was_answered(store: Path) -> None:
    with wired(store) as wire:
        wire.shake_hands()
        for number in range(20):
            wire.ask("tools/call", {"name": "memory_write", "arguments": {"action": "note", "value": str(number)}})
        answered = wire.read()["id"]
        os.kill(wire.process.pid, signal.SIGKILL)
        wire.process.wait(SECONDS)
    with Memory(store) as memory:
        assert str(answered - 2) in memory.conversation("chat-42").scratchpad.notes()
