"""Servers of remote tools over HTTP, on loopback: the same promises as over standard streams."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("mcp", reason="remote tools need the extra refold[mcp]")

from refold import Memory, ToolResult
from refold.tools.mcp import McpFailed, McpServer, McpToolset
from refold.tools.mcp import connection as connections
from tests import mcp_server_for_tests as manners
from tests.support import remembering


class Manners:
    """What the server does with the next calls, and what it was asked."""

    def __init__(self) -> None:
        self.headers: list[str | None] = []
        self.released = threading.Event()
        self.body: Callable[[bytes], bytes] = lambda body: body
        self.status = 200


@contextmanager
def serving(held: Manners, port: int = 0) -> Iterator[str]:
    """The url of a server that answers by the same rules as the program."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            held.headers.append(self.headers["Authorization"])
            if "id" not in asked:
                self.told(202, b"")
                return
            result = self.result(asked)
            said = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
            body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}).encode()
            is_call = asked["method"] == "tools/call"
            self.told(held.status if is_call else 200, held.body(body) if is_call else body)

        def result(self, asked: dict[str, Any]) -> dict[str, Any] | None:
            if asked.get("params", {}).get("name") == "hang":
                held.released.wait(30)
                return manners.told("late")
            return manners.answer(asked["method"], asked.get("params") or {})

        def told(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except ConnectionError:
                held.body = lambda body: body  # The other side has heard enough.

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
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
    return memory.tools.execute(f"mcp__web__{tool}", arguments)


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
