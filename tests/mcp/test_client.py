"""Servers of remote tools: connected, called, broken in every way, and nothing of them left behind."""

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="remote tools need the extra refold[mcp]")

from refold import Closed, InvalidInput, Memory, NotFound
from refold.agent import AgentLoop, Call, Reply, ToolResult, rerun
from refold.mcp import McpFailed, McpServer, McpToolset, connection, servers_of
from refold.mcp import connection as connections
from refold.mcp.client import qualified_name, wire_name
from tests.support.memories import assert_sound, remembering

PROGRAM = Path(__file__).with_name("fake_server.py")


def server(*manners: str, name: str = "s", **fields: Any) -> McpServer:
    given = {"connect_seconds": 20.0, "call_seconds": 20.0} | fields
    return McpServer(name=name, command=sys.executable, args=("-u", str(PROGRAM), *manners), protocol="legacy", **given)


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie; one that ends while it is looked at is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(("refold-mcp", "waitpid"))}


def has_gone(pid: int) -> bool:
    """Whether a process that was killed is gone; the system may take a moment to say so."""
    deadline = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < deadline:
        os.sched_yield()
    return not is_running(pid)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not end by itself is not waited for at length."""
    monkeypatch.setattr(connection, "MCP_END_SECONDS", 0.1)


@pytest.fixture
def remote() -> Iterator[McpToolset]:
    """A toolset of a memory; at its end no thread and no open file of it is left."""
    files = set(Path("/proc/self/fd").iterdir())
    with remembering() as memory:
        built_in = memory.tools.names()
        with McpToolset(memory) as remote:
            remote.memory = memory  # type: ignore[attr-defined]  # For the test alone.
            yield remote
        assert memory.tools.names() == built_in
    assert threads() == set()
    gc.collect()
    assert len(set(Path("/proc/self/fd").iterdir()) - files) == 0


def called(remote: McpToolset, tool: str, **arguments: Any) -> ToolResult:
    memory: Memory = remote.memory  # type: ignore[attr-defined]
    result: ToolResult = memory.tools.execute(wire_name("s", tool), arguments)
    return result


# What works.


def test_tools_are_registered_called_and_unregistered(remote: McpToolset) -> None:
    memory: Memory = remote.memory  # type: ignore[attr-defined]
    before = memory.tools.names()
    status = remote.connect(server())
    assert (status.about, status.is_live, status.skipped) == ("manners 1", True, ())
    assert memory.tools.names() == [*before, *status.tools]
    assert called(remote, "echo", text="hello").value == "hello"
    assert called(remote, "structured").value == {"n": 5}
    assert called(remote, "nothing").value == ""
    assert called(remote, "picture").value["content"][0]["type"] == "image"
    assert remote.call("s", "echo", {"text": "past the registry"}) == "past the registry"
    definition = next(found for found in memory.tools.definitions() if found.name == "mcp__s__echo")
    assert (definition.description, definition.parameters["properties"]) == ("Do echo.", {"text": {"type": "string"}})
    assert definition.annotations == {"readOnlyHint": True, "openWorldHint": False}
    assert definition.long_running
    pid = int(called(remote, "pid").value)
    assert is_running(pid)
    remote.disconnect("s")
    assert memory.tools.names() == before
    assert not is_running(pid)
    assert called(remote, "echo").outcome == "unknown_tool"
    assert remote.servers() == []


@pytest.mark.slow
def test_several_servers_have_the_same_tools(remote: McpToolset) -> None:
    for name in ("s", "t", "my server"):
        remote.connect(server("fewer", name=name))
    assert [status.name for status in remote.servers()] == ["s", "t", "my server"]
    pids = {remote.call(name, "pid") for name in ("s", "t", "my server")}
    assert len(pids) == 3
    for name in ("s", "my server"):
        wire = remote.wire_name(qualified_name(name, "echo"))
        assert remote.qualified_name(wire) == qualified_name(name, "echo")
    with pytest.raises(NotFound, match="no tool 'mcp:s:other'"):
        remote.wire_name("mcp:s:other")
    with pytest.raises(NotFound, match="no connected server"):
        remote.qualified_name("memory_add")


def test_what_cannot_be_offered_is_said(remote: McpToolset) -> None:
    status = remote.connect(server("odd"))
    assert [name for name, _ in status.skipped] == ["echo"]
    assert "is registered" in status.skipped[0][1]
    strange = wire_name("s", "a:strange/name " + "x" * 80)
    assert strange in status.tools
    assert remote.qualified_name(strange) == "mcp:s:a:strange/name " + "x" * 80
    memory: Memory = remote.memory  # type: ignore[attr-defined]
    found = next(found for found in memory.tools.definitions() if found.name == "mcp__s__recursive")
    assert found.parameters["properties"]["tree"]["properties"]["left"]["description"] == "(recursive tree)"


@pytest.mark.slow
def test_pages_are_listed_to_their_end(remote: McpToolset) -> None:
    assert len(remote.connect(server("paged")).tools) == 16


@pytest.mark.slow
def test_tools_are_listed_again_when_asked(remote: McpToolset) -> None:
    memory: Memory = remote.memory  # type: ignore[attr-defined]
    assert len(remote.connect(server("changing")).tools) == 16
    assert remote.refresh("s").tools == ("mcp__s__pid", "mcp__s__environment")
    assert "mcp__s__echo" not in memory.tools.names()


@pytest.mark.slow
def test_event_loops_have_the_same_verbs() -> None:
    async def use(memory: Memory) -> list[Any]:
        async with McpToolset(memory) as remote:
            await remote.connect_async(server())
            context = memory.tools.context()
            calls = [memory.tools.execute_async("mcp__s__echo", {"text": str(n)}, context) for n in range(20)]
            told = [result.value for result in await asyncio.gather(*calls)]
            told += [memory.tools.execute("mcp__s__echo", {"text": "beside a loop"}).value]
            told += [await remote.call_async("s", "echo", {"text": "past"})]
            told += [(await remote.refresh_async("s")).is_live, (await remote.reconnect_async("s")).is_live]
            await remote.disconnect_async("s")
            return told

    with remembering() as memory:
        told = asyncio.run(use(memory))
        assert told == [*map(str, range(20)), "beside a loop", "past", True, True]
        assert threads() == set()


def test_a_server_sees_nothing_of_our_environment_but_what_it_is_given(
    remote: McpToolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    remote.connect(server(env={"GIVEN": "x"}))
    seen = called(remote, "environment").value.split()
    assert "GIVEN" in seen
    assert "PATH" in seen
    assert "OPENAI_API_KEY" not in seen


# What goes wrong.


def test_a_call_that_goes_wrong_is_a_result_and_the_connection_goes_on(remote: McpToolset) -> None:
    remote.connect(server())
    pid = called(remote, "pid").value
    for tool, words in (
        ("failing", "the disk is full"),
        ("lying", "what its own output schema does not allow"),
        ("silent_liar", "did not return structured content"),
        ("shapeless", "failed:"),
        ("big", "over result_bytes_max = 1,048,576; ask it for less"),
    ):
        result = called(remote, tool)
        assert (result.outcome, words in result.message) == ("failed", True), result.message
        assert called(remote, "pid").value == pid


def test_noise_on_standard_output_is_passed_over(remote: McpToolset) -> None:
    remote.connect(server())
    assert called(remote, "noisy", text="still heard").value == "still heard"
    assert "it wrote 5 lines that are no messages; it said: I am dying" in called(remote, "die").message


def test_a_server_that_hangs_is_given_up_in_its_time(remote: McpToolset) -> None:
    remote.connect(server(call_seconds=0.5))
    result = called(remote, "hang")
    assert result.outcome == "failed"
    assert "mcp:s:hang did not answer within call_seconds = 0.5" in result.message
    with pytest.raises(McpFailed) as raised:
        remote.call("s", "hang")
    assert raised.value.reason == "timeout"


def test_a_server_that_dies_in_a_call_is_started_again_for_the_next(remote: McpToolset) -> None:
    remote.connect(server())
    first = int(called(remote, "pid").value)
    result = called(remote, "die")
    assert "server 's' ended the connection" in result.message
    assert "it said: I am dying of this" in result.message
    second = int(called(remote, "pid").value)
    assert first != second
    assert not is_running(first)
    assert remote.servers()[0].is_live


@pytest.mark.slow
def test_a_server_that_was_killed_is_started_again(remote: McpToolset) -> None:
    remote.connect(server())
    first = int(called(remote, "pid").value)
    os.kill(first, 9)
    assert has_gone(first)
    # Whether the call meets the old connection or already a new one is a race; the next one has a new one for sure.
    called(remote, "pid")
    assert int(called(remote, "pid").value) != first


@pytest.mark.slow
def test_a_message_without_end_ends_the_connection(remote: McpToolset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MCP_MESSAGE_BYTES_MAX", 2_000_000)
    remote.connect(server())
    result = called(remote, "flood")
    assert "it sent a message over MCP_MESSAGE_BYTES_MAX = 2,000,000 bytes" in result.message
    assert called(remote, "echo", text="anew").value == "anew"


def test_a_message_of_very_many_objects_ends_the_connection(
    remote: McpToolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MCP_NESTED_COUNT_MAX", 20_000)
    remote.connect(server())
    result = called(remote, "echo", text="[" * 15_000 + "{" * 15_000)
    assert "more than MCP_NESTED_COUNT_MAX = 20,000 objects and arrays" in result.message
    assert called(remote, "echo", text="anew").value == "anew"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("manner", "reason", "words"),
    [
        ("dead", "unreachable", "it said: no licence found"),
        ("mute", "timeout", "did not answer within connect_seconds = 0.5"),
        ("many", "broken", "more than MCP_TOOLS_COUNT_MAX = 128 tools"),
        ("untyped", "broken", "Input should be 'object'"),
        ("endless", "broken", "more than MCP_PAGES_COUNT_MAX = 64 pages"),
    ],
)
def test_a_server_that_cannot_be_connected_says_why(remote: McpToolset, manner: str, reason: str, words: str) -> None:
    seconds = 0.5 if manner == "mute" else 20
    with pytest.raises(McpFailed, match=words) as raised:
        remote.connect(server(manner, connect_seconds=seconds))
    assert raised.value.reason == reason
    assert "pydantic" not in str(raised.value)
    assert remote.servers() == []


def test_a_program_that_is_not_there_says_so(remote: McpToolset) -> None:
    with pytest.raises(McpFailed, match="cannot be started") as raised:
        remote.connect(McpServer(name="s", command="/no/such/program"))
    assert raised.value.reason == "unreachable"


@pytest.mark.slow
def test_a_stubborn_server_and_what_it_started_are_killed(remote: McpToolset) -> None:
    remote.connect(server("stubborn"))
    pids = [int(called(remote, tool).value) for tool in ("pid", "inner")]
    assert all(map(is_running, pids))
    remote.disconnect("s")
    assert all(map(has_gone, pids))


def test_a_toolset_that_nobody_holds_leaves_nothing_behind() -> None:
    with remembering() as memory:
        remote = McpToolset(memory)
        remote.connect(server())
        pid = int(remote.call("s", "pid"))
        del remote
        gc.collect()
        assert not is_running(pid)
        assert "is gone" in memory.tools.execute("mcp__s__echo").message


def test_a_closed_toolset_says_so(remote: McpToolset) -> None:
    remote.connect(server("fewer"))
    remote.close()
    remote.close()
    with pytest.raises(Closed):
        remote.connect(server())


# Reconnecting.


class Waits:
    """A clock that only its own waits move."""

    def __init__(self) -> None:
        self.now, self.waited = 0.0, list[float]()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds


@pytest.mark.slow
def test_each_wait_is_twice_as_long_and_there_are_few() -> None:
    waits = Waits()
    with remembering() as memory, McpToolset(memory, clock=waits.clock, sleep=waits.sleep) as remote:
        remote.connect(server())
        remote._remotes["s"].server = server("dead")
        with pytest.raises(McpFailed, match="no licence found"):
            remote.reconnect("s")
        assert waits.waited == [0.5, 1.0, 2.0, 4.0]
        status = remote.servers()[0]
        assert (status.is_live, "no licence found" in status.error) == (False, True)
        result = memory.tools.execute("mcp__s__echo", {"text": "x"})
        assert "no licence found" in result.message
        assert waits.waited == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
        remote._remotes["s"].server = server()
        assert memory.tools.execute("mcp__s__echo", {"text": "back"}).value == "back"
        assert remote._remotes["s"].failures == 0
        assert remote.servers()[0].error == ""


@pytest.mark.slow
def test_many_callers_make_one_connection(remote: McpToolset) -> None:
    remote.connect(server())
    called(remote, "die")
    told: list[str] = []
    callers = [threading.Thread(target=lambda: told.append(called(remote, "pid").value)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(told) == 8
    assert len(set(told)) == 1


@pytest.mark.slow
def test_a_call_waits_no_longer_than_it_may_for_a_connection(remote: McpToolset) -> None:
    remote.connect(server(call_seconds=0.5))
    remote._remotes["s"].server = server("dead", call_seconds=0.5)
    with pytest.raises(McpFailed):
        remote.call("s", "die")
    with pytest.raises(McpFailed) as raised:
        remote.call("s", "echo")
    assert raised.value.reason in {"timeout", "unreachable", "broken"}


@pytest.mark.slow
def test_a_task_that_is_cancelled_leaves_no_call_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), threading.Event()
    call = connections.Connection.call

    async def watched(self: connections.Connection, tool: str, arguments: dict[str, Any]) -> Any:
        began.set()
        try:
            return await call(self, tool, arguments)
        finally:
            ended.set()

    async def cancel(memory: Memory) -> None:
        async with McpToolset(memory) as remote:
            await remote.connect_async(server())
            at_once = asyncio.create_task(memory.tools.execute_async("mcp__s__hang"))
            await asyncio.sleep(0)
            at_once.cancel()
            task = asyncio.create_task(memory.tools.execute_async("mcp__s__hang"))
            await asyncio.to_thread(began.wait)
            task.cancel()
            told = await asyncio.gather(at_once, task, return_exceptions=True)
            assert [type(error) for error in told] == [asyncio.CancelledError] * 2
            assert await asyncio.to_thread(ended.wait, 10)

    monkeypatch.setattr(connections.Connection, "call", watched)
    with remembering() as memory:
        asyncio.run(cancel(memory))
        assert threads() == set()


# A session that is run again.


class Asker:
    """A model that calls a remote tool."""

    def __init__(self) -> None:
        self.left = ["echo", "failing", "pid"]

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        assert messages
        assert tools
        if not self.left:
            return Reply("Done.")
        return Reply(None, (Call(f"c{len(self.left)}", f"mcp__s__{self.left.pop(0)}", '{"text": "hello"}'),))


def test_a_recorded_session_runs_again_without_the_server(remote: McpToolset) -> None:
    memory: Memory = remote.memory  # type: ignore[attr-defined]
    remote.connect(server())
    chat = memory.conversation("c")
    AgentLoop(memory, chat, Asker()).run("Ask it.")
    remote.disconnect("s")
    executed = [found.event for found in chat.events() if type(found.event).__name__ == "ToolExecuted"]
    assert [event.outcome for event in executed] == ["ok", "failed", "ok"]  # type: ignore[attr-defined]
    with remembering() as other:
        again = rerun(chat, other)
        assert [message.content for message in again.window()] == [message.content for message in chat.window()]
        assert assert_sound(other)
        assert [type(found.event) for found in again.events()] == [type(found.event) for found in chat.events()]


# How servers are described.


def test_servers_are_read_from_the_json_that_hosts_share() -> None:
    found = servers_of(
        """{"other": 1, "mcpServers": {
        "memory": {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "secret"}, "autoApprove": ["x"]},
        "web": {"type": "http", "url": "https://example.org/mcp?key=secret", "headers": {"Authorization": "secret"}},
        "off": {"command": "x", "disabled": true}}}"""
    )
    assert [(one.name, one.command, one.args, one.url) for one in found] == [
        ("memory", "npx", ("-y", "server"), ""),
        ("web", "", (), "https://example.org/mcp?key=secret"),
    ]
    assert "secret" not in repr(found)
    assert "TOKEN" in repr(found)


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ("{", "no mcpServers configuration"),
        ("[]", "no mcpServers configuration"),
        ("{}", "no mcpServers configuration"),
        ('{"mcpServers": {"a": 5}}', "no mcpServers configuration"),
        ('{"mcpServers": {"a": {}}}', "either a command or a url"),
        ('{"mcpServers": {"a": {"command": "x", "url": "http://y"}}}', "either a command or a url"),
        ('{"mcpServers": {"a": {"url": "file:///etc/passwd"}}}', "one of http or https"),
        ('{"mcpServers": {"a": {"url": "http://y", "type": "carrier pigeon"}}}', "give stdio or http"),
        ('{"mcpServers": {"a:b": {"command": "x"}}}', "without a colon"),
        ('{"mcpServers": {"": {"command": "x"}}}', "without a colon"),
        ('{"mcpServers": {"a": {"command": "x", "args": ["\\u0000"]}}}', "zero character"),
    ],
)
def test_what_could_never_be_reached_is_refused(configuration: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        servers_of(configuration)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"call_seconds": 0}, "call_seconds"),
        ({"connect_seconds": float("nan")}, "connect_seconds"),
        ({"result_bytes_max": 0}, "result_bytes_max"),
        ({"protocol": "new"}, "auto or legacy"),
    ],
)
def test_a_bound_that_is_none_is_refused(remote: McpToolset, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        remote.connect(McpServer(name="s", command="x", **fields))
    with pytest.raises(InvalidInput, match="described by an McpServer"):
        remote.connect("x")  # type: ignore[arg-type]


def test_a_name_is_connected_once(remote: McpToolset) -> None:
    remote.connect(server("fewer"))
    with pytest.raises(InvalidInput, match="disconnect it first"):
        remote.connect(server("fewer"))
    for verb in (remote.disconnect, remote.reconnect, remote.refresh, lambda name: remote.call(name, "echo")):
        with pytest.raises(NotFound, match="'other'"):
            verb("other")


def test_names_for_models_are_clear_and_always_the_same() -> None:
    pairs = [
        ("a", "b"),
        ("a__b", "c"),
        ("a", "b__c"),
        ("a_", "b"),
        ("a", "_b"),
        ("\u00e9", "b"),
        ("e", "b"),
        ("a", "x" * 90),
    ]
    names = [wire_name(*pair) for pair in pairs]
    assert len(set(names)) == len(pairs)
    assert all(len(name) <= 64 and name.isascii() for name in names)
    assert names[0] == "mcp__a__b"
    assert names == [wire_name(*pair) for pair in pairs]


def test_there_is_no_waiting_for_oneself(remote: McpToolset) -> None:
    async def ask() -> None:
        remote.servers()
        remote.disconnect("s")

    with pytest.raises(InvalidInput, match="its own thread"):
        remote._runner.begin(ask()).result()


def test_a_server_over_sse_alone_is_left_out_and_the_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    entries = '{"a": {"url": "http://y", "type": "sse"}, "b": {"url": "http://z", "type": "http"}}'
    assert [server.name for server in servers_of(f'{{"mcpServers": {entries}}}')] == ["b"]
    assert "MCP server 'a' speaks SSE alone and is left out" in caplog.text
