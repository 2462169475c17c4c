"""What the conformance suite starts as a client: our toolset connects to its server and calls every tool of it.

python -m tests.mcp.conformance_client PROTOCOL URL
"""

import sys

from refold import Memory
from refold.mcp import McpServer, McpToolset

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}


def main(protocol: str, url: str) -> None:
    """Connect, call, close."""
    with Memory() as memory, McpToolset(memory) as remote:
        status = remote.connect(McpServer(name="suite", protocol=protocol, url=url))
        for name in status.tools:
            result = memory.tools.execute(name, ARGUMENTS.get(name.rpartition("__")[2], {}))
            assert result.outcome == "ok", result


if __name__ == "__main__":
    main(*sys.argv[1:])
