"""The toolset against a real server of others: the reference memory server of the protocol, from npm."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="remote tools need the extra refold[mcp]")

from refold import Memory
from refold.agent import AgentLoop, Call, Reply, rerun
from refold.mcp import McpServer, McpToolset, servers_of
from tests.support.memories import assert_sound, remembering
from tests.support.node import node, package_file

pytestmark = pytest.mark.slow
PROGRAM = "@modelcontextprotocol/server-memory/dist/index.js"
NAMES = (
    *("create_entities", "create_relations", "add_observations", "delete_entities", "delete_observations"),
    *("delete_relations", "read_graph", "search_nodes", "open_nodes"),
)
ALICE = {"name": "Alice", "entityType": "person", "observations": ["likes tea"]}


@pytest.fixture
def server(tmp_path: Path) -> McpServer:
    """The server, as hosts describe it."""
    environment = {"MEMORY_FILE_PATH": str(tmp_path / "graph.jsonl")}
    described = {"command": node(), "args": [package_file(PROGRAM)], "env": environment}
    return servers_of(json.dumps({"mcpServers": {"graph": described}}))[0]


@pytest.fixture
def memory() -> Iterator[Memory]:
    """A memory whose replay gives its state."""
    with remembering() as memory:
        yield memory


def test_its_tools_do_what_they_say(memory: Memory, server: McpServer, tmp_path: Path) -> None:
    with McpToolset(memory) as remote:
        status = remote.connect(server)
        assert (status.about.split()[0], status.skipped) == ("memory-server", ())
        assert status.tools == tuple(f"mcp__graph__{name}" for name in NAMES)
        made = memory.tools.execute("mcp__graph__create_entities", {"entities": [ALICE]})
        assert made.value == {"entities": [ALICE]}
        assert memory.tools.execute("mcp__graph__search_nodes", '{"query": "tea"}').value["entities"] == [ALICE]
        more = {"observations": [{"entityName": "Bob", "contents": ["x"]}]}
        refused = memory.tools.execute("mcp__graph__add_observations", more)
        assert (refused.outcome, "Entity with name Bob not found" in refused.message) == ("failed", True)
        wrong = memory.tools.execute("mcp__graph__create_entities", {"entities": [{"name": 5}]})
        assert (wrong.outcome, "nvalid" in wrong.message) == ("failed", True)
        reconnected = remote.reconnect("graph")
        assert reconnected.tools == status.tools
        assert memory.tools.execute("mcp__graph__read_graph").value["entities"] == [ALICE]
    assert "Alice" in (tmp_path / "graph.jsonl").read_text(encoding="utf-8")


def test_its_schemas_are_plain(memory: Memory, server: McpServer) -> None:
    with McpToolset(memory) as remote:
        remote.connect(server)
        found = {one.name: one for one in memory.tools.definitions()}["mcp__graph__create_entities"]
        assert found.parameters["required"] == ["entities"]
        assert found.parameters["properties"]["entities"]["items"]["required"] == ["name", "entityType", "observations"]
        assert "$schema" not in found.parameters
        assert found.description == "Create multiple new entities in the knowledge graph"


class Keeper:
    """A model that writes into the graph and reads it."""

    def __init__(self) -> None:
        self.left = [("create_entities", {"entities": [ALICE]}), ("read_graph", {})]

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        assert messages
        assert len(tools) == 21
        if not self.left:
            return Reply("Noted.")
        name, arguments = self.left.pop(0)
        return Reply(None, (Call(f"c{len(self.left)}", f"mcp__graph__{name}", json.dumps(arguments)),))


def test_a_session_with_it_runs_again_without_it(memory: Memory, server: McpServer, tmp_path: Path) -> None:
    with McpToolset(memory) as remote:
        remote.connect(server)
        AgentLoop(memory, memory.conversation("c"), Keeper()).run("Note it.")
    (tmp_path / "graph.jsonl").unlink()
    with remembering() as other:
        again = rerun(memory.conversation("c"), other)
        told = [message.content for message in again.window()]
        assert told == [message.content for message in memory.conversation("c").window()]
        assert "likes tea" in str(told[-2])
        assert assert_sound(other)
    assert not (tmp_path / "graph.jsonl").exists()
