"""Servers of remote tools that mean harm, and moments at which a server leaves: a typed result within its time."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("mcp", reason="remote tools need the extra refold[mcp]")

from refold import Closed, Memory
from refold.agent.tools import FunctionTool
from refold.limits import MCP_NOTE_CHARS_MAX
from refold.mcp import McpFailed, McpServer, McpToolset, client, connection
from refold.mcp import connection as connections
from refold.mcp.connection import mask_secrets
from refold.mcp.schemas import checker_of
from tests.mcp.test_client import _impatient, called, has_gone, remote, server, threads
from tests.support.memories import remembering

__all__ = ["_impatient", "remote"]
SECRET = "hunter2-hunter2"  # noqa: S105 - it opens nothing


def memory_of(remote: McpToolset) -> Memory:
    memory: Memory = remote.memory  # type: ignore[attr-defined]
    return memory


# What a server says of its results.


def test_a_pattern_that_backtracks_for_ever_stops_nobody(remote: McpToolset) -> None:
    remote.connect(server("trap"))
    assert called(remote, "trap").value == {"x": "a" * 40 + "b"}
    assert called(remote, "echo", text="goes on").value == "goes on"


def doubling(levels: int) -> dict[str, Any]:
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**twice, f"d{levels}": {"type": "object"}}}


ITEMS = {"type": "object", "properties": {"x": {"items": {"anyOf": [{"const": n} for n in range(200)]}}}}


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        ({"properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": 5.0}, ""),
        ({"properties": {"n": {"type": "integer"}}}, {"n": "five"}, "'five' is not of type 'integer'"),
        ({"properties": {"n": {"type": "integer"}}, "required": ["n"]}, {}, "'n' is a required property"),
        ({"properties": {"n": {"enum": [1, None]}}}, {"n": True}, "True is not one of [1, None]"),
        ({"properties": {"n": {"maxLength": 1}}}, {"n": "x" * 10**6}, "x" * (MCP_NOTE_CHARS_MAX - 1)),
        ({"properties": {"n": {"multipleOf": 0}}}, {"n": 5}, ""),
        ({"properties": {"n": {"uniqueItems": True}}}, {"n": [{"a": n} for n in range(100_000)]}, ""),
        ({"type": "object", "$ref": "#"}, {"n": 5}, ""),
        ({"$ref": "http://127.0.0.1:1/schema"}, {"n": 5}, ""),
        (doubling(40), {"n": 5}, ""),
        (ITEMS, {"x": [300, *range(100)]}, "300 is not valid under any of the given schemas"),
        (ITEMS, {"x": [*[199] * 20_000, 300]}, ""),
        ({"type": "string"}, {"n": 5}, "its schema of results is none"),
    ],
)
def test_a_result_is_held_against_its_schema_in_so_many_steps(schema: Any, value: Any, fault: str) -> None:
    found = checker_of(schema)(value)
    assert fault in found
    assert bool(fault) == bool(found)


def test_a_picture_beside_structured_content_is_kept(remote: McpToolset) -> None:
    remote.connect(server())
    value = remote.call("s", "seen")
    assert (value["content"][0]["type"], value["structuredContent"]) == ("image", {"n": 1})


# What a server says of itself.


def test_an_error_in_the_words_of_a_lost_connection_is_no_lost_connection(remote: McpToolset) -> None:
    remote.connect(server())
    pid = remote.call("s", "pid")
    for tool, words in (("quota", "the quota is used up"), ("bank", "Session terminated by the bank")):
        with pytest.raises(McpFailed, match=words) as raised:
            remote.call("s", tool)
        assert raised.value.reason == "remote"
        assert remote.call("s", "pid") == pid


def test_a_server_that_hears_no_more_is_started_again(remote: McpToolset) -> None:
    remote.connect(server())
    assert remote.call("s", "deaf") == "I hear no more"
    with pytest.raises(McpFailed, match=r"closed its standard input|ended the connection"):
        remote.call("s", "echo", {"text": "x" * 200_000})
    assert remote.call("s", "echo", {"text": "anew"}) == "anew"


def test_a_call_is_given_up_in_its_time_though_its_end_takes_longer(
    remote: McpToolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    async def slow_to_end(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(released.wait, 20)

    remote.connect(server(call_seconds=0.2))
    monkeypatch.setattr(connections.Connection, "call", slow_to_end)
    with pytest.raises(McpFailed) as raised:
        remote.call("s", "echo")
    assert raised.value.reason == "timeout"
    assert len(connection._ABANDONED) == 1
    released.set()


def test_a_server_that_only_asks_is_ended(remote: McpToolset) -> None:
    remote.connect(server())
    with pytest.raises(McpFailed, match="MCP_ASKED_COUNT_MAX = 1,024 times and reads no answer") as raised:
        remote.call("s", "asking")
    assert raised.value.reason == "broken"
    assert remote.call("s", "echo", {"text": "anew"}) == "anew"


def test_secrets_are_left_out_of_messages(remote: McpToolset) -> None:
    remote.connect(server(env={"KEY": SECRET}))
    for tool, words in (("own_words", "bad key ***"), ("indiscreet", "no such key: ***")):
        with pytest.raises(McpFailed) as raised:
            remote.call("s", tool)
        assert words in str(raised.value)
    assert SECRET not in str(remote.servers())


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA", ["MIIEpAIBAAKCAQEA"]),
        ('pa"ss\\word12345', ["word12345"]),
        ("s3cret/with space12345", ["space12345"]),
        ("a" * 5_000, ["a" * 6]),
    ],
)
def test_no_form_of_a_secret_is_shown(remote: McpToolset, secret: str, shown: list[str]) -> None:
    remote.connect(server(env={"KEY": secret}))
    for tool in ("own_words", "in_blocks", "at_length", "indiscreet_at_length"):
        with pytest.raises(McpFailed) as raised:
            remote.call("s", tool)
        for part in (secret, *shown, secret[: len(secret) - 2]):
            assert part not in str(raised.value), tool


@pytest.mark.parametrize(
    "url",
    [
        f"https://user:{SECRET}@example.org:8000/mcp",
        f"https://{SECRET}@example.org:8000/mcp",
        f"https://example.org:8000/mcp?key={SECRET}",
        f"https://example.org:8000/mcp#{SECRET}",
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str) -> None:
    one = McpServer(name="s", url=url, headers={"Authorization": "Bearer abcdefgh"})
    assert repr(one) == "McpServer('s', url='https://example.org:8000/mcp', headers=['Authorization'])"
    assert mask_secrets(f"no {SECRET}, no abcdefgh at example.org", one) == "no ***, no *** at example.org"


# Tools in the registry.


def test_tools_that_are_as_they_were_stay_where_they_are(remote: McpToolset) -> None:
    memory = memory_of(remote)
    remote.connect(server("fewer"))
    remote.connect(server("fewer", name="t"))
    names, tools = memory.tools.names(), [memory.tools.get(name) for name in memory.tools.names()]
    for again in (remote.refresh, remote.reconnect):
        again("s")
        assert memory.tools.names() == names
        assert all(memory.tools.get(name) is tool for name, tool in zip(names, tools, strict=True))


def test_what_a_server_says_of_its_tools_is_bounded(remote: McpToolset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MCP_LIST_BYTES_MAX", 100)
    with pytest.raises(McpFailed, match="describes its tools in more than MCP_LIST_BYTES_MAX = 100 bytes"):
        remote.connect(server("fewer"))


def test_tools_that_change_after_the_first_look_are_told(remote: McpToolset, caplog: pytest.LogCaptureFixture) -> None:
    remote.connect(server("fewer"))
    remote.refresh("s")
    assert "changed its tools" not in caplog.text
    held = remote._remotes["s"]
    name, (tool, offered) = next(iter(held._offered.items()))
    held._offered[name] = tool.model_copy(update={"description": "As it was before."}), offered
    remote.refresh("s")
    assert f"server 's' changed its tools: {name}" in caplog.text


def test_a_tool_of_ours_in_the_place_of_a_remote_one_is_left_alone(remote: McpToolset) -> None:
    memory = memory_of(remote)
    remote.connect(server("fewer"))
    own = FunctionTool("mcp__s__echo", "Ours.", {"type": "object"}, lambda _given, _context: "ours")
    memory.tools.unregister("mcp__s__echo")
    memory.tools.register(own)
    remote.disconnect("s")
    assert called(remote, "echo").value == "ours"
    memory.tools.unregister("mcp__s__echo")


# Moments at which a server leaves.


class Gate:
    """Waits of a back-off that last until they are let go."""

    def __init__(self) -> None:
        self.waiting, self.open = threading.Event(), threading.Event()

    async def sleep(self, _: float) -> None:
        self.waiting.set()
        await asyncio.to_thread(self.open.wait, 20)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that is open at the end, whatever happened."""
    gate = Gate()
    yield gate
    gate.open.set()


def outcome(remote: McpToolset, told: list[Any]) -> None:
    try:
        told.append(remote.call("s", "pid"))
    except Exception as error:  # noqa: BLE001 - what came of it is looked at
        told.append(error)


def broken(remote: McpToolset, told: list[Any]) -> threading.Thread:
    """A caller who waits for a connection that has to be made anew and cannot be."""
    remote.connect(server())
    remote._remotes["s"].server = server("dead")
    with pytest.raises(McpFailed):
        remote.call("s", "die")
    caller = threading.Thread(target=outcome, args=[remote, told])
    caller.start()
    return caller


def test_a_server_that_is_disconnected_while_it_is_reconnected_does_not_come_back(gate: Gate) -> None:
    told: list[Any] = []
    with remembering() as memory, McpToolset(memory, sleep=gate.sleep) as remote:
        built_in = memory.tools.names()
        caller = broken(remote, told)
        assert gate.waiting.wait(20)
        held = remote._remotes["s"]
        held.server = server()
        remote.disconnect("s")
        gate.open.set()
        caller.join()
        assert (memory.tools.names(), remote.servers()) == (built_in, [])
        assert [error.reason for error in told] == ["unreachable"]
        assert held.connection is None or not held.connection.is_live
    assert threads() == set()


def test_a_toolset_that_is_closed_while_somebody_waits_tells_them(gate: Gate) -> None:
    told: list[Any] = []
    with remembering() as memory:
        built_in = memory.tools.names()
        remote = McpToolset(memory, sleep=gate.sleep)
        caller = broken(remote, told)
        assert gate.waiting.wait(20)
        closer = threading.Thread(target=remote.close)
        closer.start()
        gate.open.set()
        closer.join()
        caller.join()
        assert isinstance(told[0], (Closed, McpFailed)), told
        assert memory.tools.names() == built_in
    assert threads() == set()


@pytest.mark.parametrize("verb", ["close", "disconnect"])
def test_a_call_that_runs_while_its_server_leaves_is_a_result(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()
    call = connections.Connection.call

    async def watched(self: connections.Connection, tool: str, arguments: dict[str, Any]) -> Any:
        began.set()
        return await call(self, tool, arguments)

    monkeypatch.setattr(connections.Connection, "call", watched)
    results: list[Any] = []
    with remembering() as memory:
        remote = McpToolset(memory)
        remote.connect(server())
        chat = memory.conversation("c")
        caller = threading.Thread(
            target=lambda: results.append(
                memory.tools.execute("mcp__s__hang", {}, memory.tools.context(chat), record=True)
            )
        )
        caller.start()
        assert began.wait(20)
        if verb == "disconnect":
            remote.disconnect("s")
        else:
            remote.close()
        caller.join()
        remote.close()
        assert [result.outcome for result in results] == ["failed"]
        recorded = [found.event for found in chat.events() if type(found.event).__name__ == "ToolExecuted"]
        assert [event.outcome for event in recorded] == ["failed"]  # type: ignore[attr-defined]
    assert threads() == set()


def test_a_connection_that_cannot_be_registered_is_ended(remote: McpToolset, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    seen: list[int] = []
    opened = connections.Connection.open

    async def watched(self: connections.Connection) -> None:
        await opened(self)
        seen.append(int(await self.call("pid", {})))

    monkeypatch.setattr(connections.Connection, "open", watched)
    with monkeypatch.context() as patched:
        patched.setattr(client.RemoteServer, "offer", fail)
        with pytest.raises(ZeroDivisionError):
            remote.connect(server())
    assert remote.servers() == []
    assert has_gone(seen[0])
    assert len(remote.connect(server("fewer")).tools) == 2


def test_calls_go_on_while_their_server_is_listed_again_and_again(remote: McpToolset) -> None:
    remote.connect(server("fewer"))
    done, outcomes = threading.Event(), set[str]()

    def call() -> None:
        while not done.is_set():
            outcomes.add(called(remote, "echo", text="x").outcome)

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    for _ in range(100):
        remote.refresh("s")
    done.set()
    for caller in callers:
        caller.join()
    assert outcomes == {"ok"}


def test_a_server_that_is_connected_while_its_toolset_is_closed_leaves_too(monkeypatch: pytest.MonkeyPatch) -> None:
    late, withdraw = [server("fewer")], client.RemoteServer.withdraw

    def withdrawing(*given: Any) -> None:
        if late:
            toolset.connect(late.pop())
        withdraw(*given)

    with remembering() as memory:
        built_in = memory.tools.names()
        toolset = McpToolset(memory)
        toolset.connect(server("fewer", name="t"))
        monkeypatch.setattr(client.RemoteServer, "withdraw", withdrawing)
        toolset.close()
        assert memory.tools.names() == built_in
    assert threads() == set()
