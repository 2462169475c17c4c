"""Servers of remote tools over HTTP, on loopback: the same promises as over standard streams."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("mcp", reason="remote tools need the extra refold[mcp]")

from refold import Memory
from refold.agent import ToolResult
from refold.limits import MCP_UNANSWERED_COUNT_MAX
from refold.mcp import McpFailed, McpServer, McpToolset
from refold.mcp import connection as connections
from tests.mcp import fake_server as manners
from tests.support.memories import remembering


class Manners:
    """What the server does with the next calls, and what it was asked."""

    def __init__(self) -> None:
        self.headers: list[str | None] = []
        self.asked: list[str] = []
        self.session = ""
        self.encoding = ""
        self.kind = "application/json"
        self.accepted: list[str | None] = []
        self.released, self.leaving, self.left = threading.Event(), threading.Event(), threading.Event()
        self.body: Callable[[bytes], bytes] = lambda body: body
        self.status = 200


class Handler(BaseHTTPRequestHandler):
    """What answers by the same rules as the program."""

    held: Manners

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.held.headers.append(self.headers["Authorization"])
        self.held.asked.append(asked["method"])
        self.held.accepted.append(self.headers["Accept-Encoding"])
        if "id" not in asked:
            self.told(202, b"")
            return
        body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **self.said(asked)}).encode()
        is_call = asked["method"] == "tools/call"
        if is_call:
            self.told(self.held.status, self.held.body(body), self.held.encoding, self.held.kind)
        else:
            self.told(200, body)

    def do_DELETE(self) -> None:
        self.held.leaving.set()
        self.held.released.wait(30)
        self.held.left.set()
        self.told(200, b"")

    def said(self, asked: dict[str, Any]) -> dict[str, Any]:
        result = self.result(asked)
        return {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}

    def result(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        if asked.get("params", {}).get("name") == "hang":
            self.held.released.wait(30)
            return manners.told("late")
        return manners.answer(asked["method"], asked.get("params") or {})

    def told(self, status: int, body: bytes, encoding: str = "", kind: str = "application/json") -> None:
        self.send_response(status)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.held.session:
            self.send_header("Mcp-Session-Id", self.held.session)
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            self.held.body = lambda body: body  # The other side has heard enough.

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(held: Manners, port: int = 0) -> Iterator[str]:
    """The url of a server that answers by the same rules as the program."""
    with ThreadingHTTPServer(("127.0.0.1", port), type("Held", (Handler,), {"held": held})) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            held.released.set()
            server.shutdown()
            thread.join()


def web(url: str, **fields: Any) -> McpServer:
    given = {"connect_seconds": 10.0, "call_seconds": 10.0} | fields
    return McpServer(name="web", url=url, headers={"Authorization": "Bearer secret"}, **given)


def called(memory: Memory, tool: str, **arguments: Any) -> ToolResult:
    result: ToolResult = memory.tools.execute(f"mcp__web__{tool}", arguments)
    return result


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
def test_tools_are_called_over_http(protocol: str) -> None:
    held = Manners()
    with serving(held) as url, remembering() as memory, McpToolset(memory) as remote:
        assert remote.connect(web(url, protocol=protocol)).about == "manners 1"
        assert called(memory, "echo", text="hello").value == "hello"
        assert called(memory, "structured").value == {"n": 5}
        assert "what its own output schema does not allow" in called(memory, "lying").message
        assert set(held.headers) == {"Bearer secret"}
        remote.disconnect("web")
        assert "mcp__web__echo" not in memory.tools.names()


def test_a_server_that_hangs_is_given_up_in_its_time() -> None:
    with serving(Manners()) as url, remembering() as memory, McpToolset(memory) as remote:
        remote.connect(web(url, call_seconds=0.5))
        assert "call_seconds = 0.5" in called(memory, "hang").message
        assert called(memory, "echo", text="goes on").value == "goes on"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"this is no JSON", "failed:"),
        (200, b'{"jsonrpc": "2.0", "id": 99999, "result": {}}', "call_seconds = 1"),
        (500, b"out of order", "failed:"),
    ],
)
def test_nonsense_is_a_failure_and_the_next_call_is_answered(status: int, body: bytes, words: str) -> None:
    held = Manners()
    with serving(held) as url, remembering() as memory, McpToolset(memory) as remote:
        remote.connect(web(url, call_seconds=1.0))
        held.body, held.status = lambda _: body, status
        result = called(memory, "echo")
        assert (result.outcome, words in result.message) == ("failed", True), result.message
        held.body, held.status = lambda body: body, 200
        assert called(memory, "echo", text="goes on").value == "goes on"


@pytest.mark.slow
def test_a_body_has_a_greatest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Manners()
    monkeypatch.setattr(connections, "MCP_MESSAGE_BYTES_MAX", 100_000)
    with serving(held) as url, remembering() as memory, McpToolset(memory) as remote:
        remote.connect(web(url, call_seconds=5.0))
        held.body = lambda body: body + b" " * 50_000_000
        assert called(memory, "echo").outcome == "failed"
        held.body = lambda body: body
        assert called(memory, "echo", text="goes on").value == "goes on"


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"\r"])
def test_each_message_has_so_many_objects_at_most(monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr(connections, "MCP_NESTED_COUNT_MAX", 20_000)
    held, text = Manners(), "{" * 15_000
    notice = json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": text}}
    )

    def events(body: bytes) -> bytes:
        messages = [notice.encode()] * 5 + [body]
        return b"".join(b"event: message" + line + b"data: " + each + 2 * line for each in messages)

    with serving(held) as url, remembering() as memory, McpToolset(memory) as remote:
        remote.connect(web(url, call_seconds=5.0))
        assert called(memory, "echo", text=text).value == text
        assert called(memory, "echo", text=text + "[" * 15_000).outcome == "failed"
        held.body, held.kind = events, "text/event-stream"
        assert called(memory, "echo", text=text).value == text, "the messages of a stream are counted one by one"
        assert called(memory, "echo", text=text + "[" * 15_000).outcome == "failed"
        assert called(memory, "echo", text="goes on").value == "goes on"


@pytest.mark.slow
def test_a_server_that_comes_back_is_asked_again() -> None:
    with remembering() as memory, McpToolset(memory) as remote:
        with serving(Manners()) as url:
            remote.connect(web(url, call_seconds=3.0))
            port = int(url.partition("127.0.0.1:")[2].partition("/")[0])
        gone = called(memory, "echo", text="x")
        assert gone.outcome == "failed"
        with serving(Manners(), port):
            assert remote.reconnect("web").is_live
            assert called(memory, "echo", text="back").value == "back"


def test_a_port_that_nobody_listens_on_says_so() -> None:
    with serving(Manners()) as url:
        pass
    with remembering() as memory, McpToolset(memory) as remote:
        with pytest.raises(McpFailed) as raised:
            remote.connect(web(url))
        assert raised.value.reason == "unreachable"
        assert "secret" not in str(raised.value)


def test_calls_that_nobody_answers_do_not_use_up_the_connection() -> None:
    held = Manners()
    with serving(held) as url, remembering() as memory, McpToolset(memory) as remote:
        remote.connect(web(url, call_seconds=0.5))
        calls = [threading.Thread(target=called, args=[memory, "hang"]) for _ in range(MCP_UNANSWERED_COUNT_MAX)]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        assert not remote.servers()[0].is_live
        held.released.set()
        assert remote.reconnect("web").is_live
        assert called(memory, "echo", text="anew").value == "anew"
        assert held.asked.count("initialize") == 2


def test_a_server_that_does_not_let_go_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MCP_CLOSE_SECONDS", 0.2)
    held = Manners()
    held.session = "one"
    with serving(held) as url, remembering() as memory, McpToolset(memory) as remote:
        remote.connect(web(url))
        remote.disconnect("web")
        assert held.leaving.is_set()
        assert not held.left.is_set()


def test_a_refusal_is_told_and_the_connection_goes_on() -> None:
    held = Manners()
    with serving(held) as url, remembering() as memory, McpToolset(memory) as remote:
        remote.connect(web(url))
        held.status, held.body = 401, lambda _: b""
        with pytest.raises(McpFailed, match="error response") as raised:
            remote.call("web", "echo")
        assert raised.value.reason == "remote"
        held.status, held.body = 200, lambda body: body
        assert called(memory, "echo", text="goes on").value == "goes on"
        assert held.asked.count("initialize") == 1


def test_a_compressed_answer_is_refused_whatever_it_grows_to() -> None:
    held = Manners()
    held.encoding = "gzip"
    held.body = lambda _: gzip.compress(b'{"jsonrpc":"2.0","id":1,"result":{"x":"' + b" " * 50_000_000 + b'"}}')
    with serving(held) as url, remembering() as memory, McpToolset(memory) as remote:
        remote.connect(web(url))
        assert called(memory, "echo", text="hello").is_error
        assert set(held.accepted) == {"identity"}
