"""The SDK's client over every transport, while another process writes to the same store."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from mcp import Client, MCPDeprecationWarning, MCPError, types
from mcp.shared.subscriptions import ResourceUpdated

from refold import Memory, listener
from refold.mcp import resources, server
from refold.mcp.resources import Binding
from refold.mcp.server import MemoryServer
from tests.mcp.servers import http, http_child, stdio
from tests.mcp.tour import call, read, tour
from tests.support.memories import assert_sound

MODES = ("auto", "legacy")
SECONDS = 60
ODD = "chat/42 ?#\N{SNOWMAN}"
"""An id that no address holds as it is."""

WRITER = """
import sys, threading
from refold import Memory

told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
with Memory(sys.argv[1]) as memory:
    chat, number = memory.conversation("other"), 0
    print("ready", flush=True)
    while number == 0 or (not told.is_set() and number < 150):
        chat.append("user", f"message {number}", tokens=1)
        chat.scratchpad.set("number", str(number))
        memory.project("theirs").add(f"The other process wrote {number}")
        memory.journal().append(f"theirs {number}")
        number += 1
    told.wait()
print(number, flush=True)
"""


@contextmanager
def somebody_writing(path: Path) -> Iterator[None]:
    """Another process writes to the store until the block ends; then all that it wrote is there."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        told, _ = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.communicate()
    count = int(told)
    with Memory(path, readonly=True) as memory:
        theirs = memory.conversation("other")
        assert [message.content for message in theirs.window()] == [f"message {number}" for number in range(count)]
        assert theirs.scratchpad.get("number") == str(count - 1)
        assert memory.project("theirs").count() == count


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """Where a store is, or will be; at the end its replay is what it is."""
    path = tmp_path / "store"
    yield path
    with Memory(path) as memory:
        live = assert_sound(memory)
    with Memory(path) as memory:
        assert assert_sound(memory) == live


@asynccontextmanager
async def connected(target: Any, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
    async with asyncio.timeout(SECONDS), Client(target, mode=mode, **options) as client:
        yield client


async def tour_all(target: Any, chat: str, label: str) -> None:
    for mode in MODES:
        async with connected(target, mode) as client:
            await tour(client, chat, f"{label}-{mode}")


def test_everything_in_process(store: Path) -> None:
    with Memory(store) as memory, somebody_writing(store):
        asyncio.run(tour_all(MemoryServer(Binding(memory, conversation="chat-42")).low_level, "chat-42", "direct"))


@pytest.mark.slow
def test_everything_over_stdio(store: Path) -> None:
    with Memory(store):
        pass
    with somebody_writing(store):
        asyncio.run(tour_all(stdio("--db", str(store), "--conversation", ODD), ODD, "stdio"))


def test_everything_over_http(store: Path) -> None:
    with (
        Memory(store) as memory,
        somebody_writing(store),
        http(MemoryServer(Binding(memory, conversation="chat-42"))) as url,
    ):
        asyncio.run(tour_all(url, "chat-42", "http"))


@pytest.mark.slow
def test_clients_of_two_transports_and_python_write_one_conversation(store: Path) -> None:
    async def write(client: Client, label: str) -> None:
        for number in range(20):
            await call(client, "memory_write", {"action": "note", "value": f"{label} {number}"})

    async def all_at_once(memory: Memory, url: str) -> None:
        aio = memory.aio.conversation("chat-42")
        async with (
            connected(stdio("--db", str(store), "--conversation", "chat-42")) as beside,
            connected(url) as first,
            connected(url, "legacy") as second,
        ):
            writing = [write(client, label) for client, label in ((beside, "stdio"), (first, "one"), (second, "two"))]
            await asyncio.gather(*writing, *(aio.scratchpad.note(f"python {number}") for number in range(20)))

    with Memory(store) as memory, http(MemoryServer(Binding(memory, conversation="chat-42"))) as url:
        asyncio.run(all_at_once(memory, url))
        notes = memory.conversation("chat-42").scratchpad.notes()
    for label in ("stdio", "one", "two", "python"):
        mine = [note for note in notes if note.startswith(label)]
        assert mine == [f"{label} {number}" for number in range(20)], "nothing is lost, and each one's order is kept"


# What others write is told to who watches.


async def told_modern(target: Any, uri: str, write: Callable[[], object]) -> None:
    async with connected(target) as client, client.listen(resource_subscriptions=[uri]) as changes:
        await asyncio.to_thread(write)
        assert await anext(aiter(changes)) == ResourceUpdated(uri)


async def told_legacy(target: Any, uri: str, write: Callable[[], object]) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            told.put_nowait(message.params.uri)

    async with connected(target, "legacy", message_handler=hear) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await client.subscribe_resource(uri)
            await asyncio.to_thread(write)
            assert await told.get() == uri
            await client.unsubscribe_resource(uri)


@pytest.mark.parametrize("tell", [told_modern, told_legacy])
def test_what_another_process_writes_is_told_over_http(store: Path, tell: Callable[..., Any]) -> None:
    program = "import sys; from refold import Memory; "
    program += "Memory(sys.argv[1]).conversation('chat-42').scratchpad.set('from', 'elsewhere')"

    def write() -> None:
        subprocess.run([sys.executable, "-c", program, str(store)], check=True, timeout=SECONDS)

    with Memory(store) as memory, http(MemoryServer(Binding(memory))) as url:
        memory.conversation("chat-42").scratchpad.set("from", "here")
        asyncio.run(tell(url, "memory://conversations/chat-42/scratchpad", write))
        assert memory.conversation("chat-42").scratchpad.get("from") == "elsewhere"


@pytest.mark.slow
def test_what_another_process_writes_is_told_over_stdio(store: Path) -> None:
    with Memory(store) as memory:
        target = stdio("--db", str(store))
        asyncio.run(told_legacy(target, "memory://profile", lambda: memory.profile().set("theme", "dark")))


@pytest.mark.slow
def test_a_server_that_only_reads_follows_who_writes(store: Path) -> None:
    target = stdio("--db", str(store), "--readonly", "--conversation", "chat-42")
    uri = "memory://conversations/chat-42/scratchpad"

    async def follow(write: Callable[[], object]) -> None:
        async with connected(target) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == [
                "memory_read",
                "memory_search",
                "conversation_search",
                "working_memory_read",
                "journal_read",
            ]
            async with client.listen(resource_subscriptions=[uri]) as changes:
                await asyncio.to_thread(write)
                assert await anext(aiter(changes)) == ResourceUpdated(uri)
            assert (await call(client, "memory_read", {"key": "a"}))["value"] == "c"

    with Memory(store) as memory:
        chat = memory.conversation("chat-42")
        chat.scratchpad.set("a", "b")
        head = memory.head
        asyncio.run(follow(lambda: chat.scratchpad.set("a", "c")))
        assert memory.head == head + 1


# How a server ends.


@pytest.mark.slow
def test_a_signal_ends_the_web_server_cleanly(store: Path) -> None:
    async def use(url: str, process: subprocess.Popen[str]) -> None:
        async with connected(url, "legacy") as client:
            await call(client, "memory_set", {"key": "theme", "value": "dark"})
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, SECONDS) == -signal.SIGTERM

    with http_child("--db", str(store)) as (process, url):
        with suppress(MCPError):  # The client says goodbye to nobody.
            asyncio.run(use(url, process))
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    with Memory(store, readonly=True) as memory:
        assert memory.profile().get("theme") == "dark"


def test_requests_under_a_foreign_name_are_refused(memory: Memory) -> None:
    import httpx2

    with http(MemoryServer(Binding(memory))) as url:
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        with httpx2.Client(headers={"Accept": "application/json, text/event-stream"}) as client:
            assert client.post(url, json=body, headers={"Host": "evil.example.com"}).status_code == 421
            assert client.post(url, json=body, headers={"Origin": "http://evil.example.com"}).status_code == 403
            for host in ("localhost.evil.example.com:80", "localhost:1.evil.example.com"):
                assert client.post(url, json=body, headers={"Host": host}).status_code == 421
            for origin in ("http://localhost:3000", "http://127.0.0.1:1", "http://localhost:3000.evil.example.com"):
                assert client.post(url, json=body, headers={"Origin": origin}).status_code == 403
            assert client.options(url, headers={"Origin": "http://localhost:3000"}).status_code == 403
            assert client.post(url, content=b"x" * 5_000_000).status_code == 413
            assert client.post(url, content=b"{broken", headers={"Content-Type": "application/json"}).status_code == 400
            modern = {"MCP-Protocol-Version": "2026-07-28"}
            assert client.post(url, json=body, headers=modern | {"Host": "evil.example.com"}).status_code == 421
            assert client.post(url, json=body, headers=modern | {"Origin": "null"}).status_code == 403
            assert client.get(url, headers={"Origin": "http://evil.example.com"}).status_code == 403
            assert client.delete(url, headers={"Host": "evil.example.com"}).status_code == 421
    assert memory.head == 0


HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
FOUND = b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n"
PARTS = {"nothing": [], "half a head": [HEAD], "half a body": [HEAD + b"\r\n", b"{"], "half a second": [FOUND, HEAD]}


def sent(url: str, parts: list[bytes]) -> socket.socket:
    """Sends parts of requests over a connection of its own, each behind the answer to a whole one."""
    host, port = url.removeprefix("http://").partition("/")[0].split(":")
    connection = socket.create_connection((host, int(port)), SECONDS)
    for part in parts:
        connection.sendall(part)
        if part == FOUND:
            while not connection.recv(2**16).endswith(b"Not Found"):
                pass
    return connection


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_a_request_that_does_not_arrive_whole_is_given_up(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, parts: list[bytes]
) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.2)
    with http(MemoryServer(Binding(memory))) as url, sent(url, parts) as connection:
        assert connection.recv(2**16) == b""


@pytest.mark.parametrize("mode", MODES)
def test_a_session_stays_open_between_requests(memory: Memory, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    async def wait(url: str) -> None:
        async with connected(url, mode) as client:
            await asyncio.sleep(1)
            await call(client, "memory_set", {"key": "theme", "value": "dark"})

    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.1)
    with http(MemoryServer(Binding(memory))) as url:
        asyncio.run(wait(url))


def test_connections_beyond_the_bound_are_refused(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_COUNT_MAX", 2)
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 1)
    with http(MemoryServer(Binding(memory))) as url:
        silent = [sent(url, []), sent(url, [])]
        with sent(url, []) as third:
            assert third.recv(2**16).startswith(b"HTTP/1.1 503 ")
        for connection in silent:
            assert connection.recv(2**16) == b""
            connection.close()
        sent(url, [FOUND]).close()


def begun(url: str) -> int:
    """Begin a session that nobody ends; return the status."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    try:
        with urlopen(Request(url, body, headers), timeout=SECONDS) as answer:  # noqa: S310 - it is ours
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_sessions_that_nobody_ended_make_room_for_others(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SESSIONS_COUNT_MAX", 2)
    with http(MemoryServer(Binding(memory)), session_idle_timeout=1.0) as url:
        assert [begun(url) for _ in range(3)] == [200, 200, 503]
        until = time.monotonic() + SECONDS
        while begun(url) != 200:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_a_session_that_ended_is_told_nothing_more(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[resources.Watches] = []

    def make(binding: Binding) -> resources.Watches:
        made.append(resources.Watches(binding))
        return made[-1]

    async def watch(url: str) -> None:
        async with connected(url, "legacy") as client:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MCPDeprecationWarning)
                await client.subscribe_resource("memory://profile")
            assert made[0].connections_count == 1

    monkeypatch.setattr(server, "Watches", make)
    with http(MemoryServer(Binding(memory))) as url:
        asyncio.run(watch(url))
        while made[0].connections_count:
            threading.Event().wait(0.01)
        memory.profile().set("theme", "dark")
    assert made[0].connections_count == 0


def test_a_session_over_http_has_a_conversation_of_its_own(memory: Memory) -> None:
    async def write_in_two(url: str) -> None:
        async with connected(url, "legacy") as first, connected(url, "legacy") as second:
            await call(first, "memory_write", {"action": "set", "key": "who", "value": "first"})
            await call(second, "memory_write", {"action": "set", "key": "who", "value": "second"})
            assert (await call(first, "memory_read", {"key": "who"}))["value"] == "first"
            assert (await call(second, "memory_read", {"key": "who"}))["value"] == "second"
            own = memory.conversations()
            assert len(own) == 2
            assert await read(first, f"memory://conversations/{own[0]}/scratchpad")

    with http(MemoryServer(Binding(memory))) as url:
        asyncio.run(write_in_two(url))
    assert all(name.startswith("mcp-") for name in memory.conversations())
