"""What a call takes through the MCP server, beside the SDK's bare low-level server that answers the same.

The bare server is the least code that is right: the same tools are listed, a call looks into a dict or awaits the one
verb, and the answer has text and structure as ours has. Rounds alternate, and who begins changes with each; a figure is
the median of the rounds' medians, and the ratio that of the rounds' ratios, with their quartiles.

    python benchmarks/mcp_latency.py                  # in process, over stdio, over HTTP; about a minute
    python benchmarks/mcp_latency.py --rounds 60 --calls 200 --only direct
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

import uvicorn
from mcp import Client, StdioServerParameters, types
from mcp.server import Server
from mcp.server.stdio import stdio_server

from refold import Memory
from refold.listener import listening_on
from refold.mcp import server
from refold.mcp.resources import Binding
from refold.mcp.server import MemoryServer

CHAT = "chat-42"
ENTRIES = {f"key {number}": f"value {number}" for number in range(10)}
CALLS = {
    "read": ("memory_read", {"key": "key 7"}),
    "write": ("memory_write", {"action": "set", "key": "key 7", "value": "value {}"}),
}


def bare(memory: Memory) -> Server[Any]:
    """The SDK's low-level server with the same tools, and nothing beside what each call needs."""
    chat, entries = memory.aio.conversation(CHAT), dict(ENTRIES)
    tools = [
        types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)
        for tool in memory.tools.definitions()
    ]

    async def listed(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def called(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        if params.name == "memory_read":
            value = {"key": given["key"], "value": entries[given["key"]]}
        else:
            await chat.scratchpad.set(given["key"], given["value"])
            value = {"status": "ok", "action": "set", "key": given["key"], "value": given["value"]}
        text = types.TextContent(type="text", text=json.dumps(value))
        return types.CallToolResult(content=[text], structured_content=value)

    return Server("bare", on_list_tools=listed, on_call_tool=called)


def filled(path: Path | None) -> Memory:
    memory = Memory(path)
    for key, value in ENTRIES.items():
        memory.conversation(CHAT).scratchpad.set(key, value)
    return memory


async def measured(client: Client, kind: str, calls: int, number: int) -> float:
    """The median of so many calls, in microseconds."""
    name, given = CALLS[kind]
    times = []
    for place in range(calls):
        arguments = {key: value.format(number * calls + place) for key, value in given.items()}
        begin = perf_counter_ns()
        result = await client.call_tool(name, arguments)
        times.append((perf_counter_ns() - begin) / 1_000)
        assert not result.is_error
    return statistics.median(times)


class Figure(NamedTuple):
    """What came of one job."""

    job: str
    ours_microseconds: float
    floor_microseconds: float
    ratio: float
    quartiles: tuple[float, float]

    def __str__(self) -> str:
        low, high = self.quartiles
        return (
            f"{self.job:<34} {self.ours_microseconds:9.0f} us {self.floor_microseconds:9.0f} us"
            f"   {self.ratio:.2f} x  ({low:.2f} to {high:.2f})"
        )


async def compared(job: str, kind: str, ours: Client, floor: Client, options: argparse.Namespace) -> Figure:
    """Alternating rounds of both; the first is left out."""
    pairs = []
    for number in range(options.rounds + 1):
        clients = (ours, floor) if number % 2 else (floor, ours)
        times = {id(client): await measured(client, kind, options.calls, number) for client in clients}
        pairs.append((times[id(ours)], times[id(floor)]))
    pairs = pairs[1:]
    ratios = [mine / theirs for mine, theirs in pairs]
    low, _, high = statistics.quantiles(ratios, n=4)
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Figure(job, mine, theirs, statistics.median(ratios), (low, high))


Opened = tuple[Any, Any]
"""What a client connects to: ours, and the floor."""


@asynccontextmanager
async def direct(folder: Path) -> AsyncIterator[Opened]:
    with filled(folder / "ours") as mine, filled(folder / "floor") as theirs:
        yield MemoryServer(Binding(mine, conversation=CHAT)).low_level, bare(theirs)


@asynccontextmanager
async def over_stdio(folder: Path) -> AsyncIterator[Opened]:
    for name in ("ours", "floor"):
        filled(folder / name).close()
    ours = ["-m", "refold", "mcp", "--db", str(folder / "ours"), "--conversation", CHAT]
    floor = [__file__, "--serve", str(folder / "floor")]
    yield tuple(  # type: ignore[misc]
        StdioServerParameters(command=sys.executable, args=each, env=dict(os.environ)) for each in (ours, floor)
    )


@asynccontextmanager
async def over_http(folder: Path) -> AsyncIterator[Opened]:
    with filled(folder / "ours") as mine, filled(folder / "floor") as theirs:
        app = bare(theirs).streamable_http_app()
        floor = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
        webs = (server.web_server(MemoryServer(Binding(mine, conversation=CHAT))), floor)
        sockets = [listening_on(0) for _ in webs]
        threads = [
            asyncio.create_task(asyncio.to_thread(asyncio.run, web.serve([each])))
            for web, each in zip(webs, sockets, strict=True)
        ]
        try:
            yield tuple(f"http://127.0.0.1:{each.getsockname()[1]}/mcp" for each in sockets)  # type: ignore[misc]
        finally:
            for web in webs:
                web.should_exit = True
            await asyncio.gather(*threads)
            for each in sockets:
                each.close()


TRANSPORTS: dict[str, Callable[[Path], Any]] = {"direct": direct, "stdio": over_stdio, "http": over_http}


async def run(options: argparse.Namespace) -> None:
    print(f"{'job':<34} {'refold':>12} {'bare':>12}   ratio (quartiles of the rounds)")
    for transport in options.only or TRANSPORTS:
        for mode in ("auto", "legacy"):
            with tempfile.TemporaryDirectory(dir=options.directory) as folder:
                await _run(transport, mode, Path(folder), options)


async def _run(transport: str, mode: str, folder: Path, options: argparse.Namespace) -> None:
    async with (
        TRANSPORTS[transport](folder) as (ours, floor),
        Client(ours, mode=mode) as mine,
        Client(floor, mode=mode) as theirs,
    ):
        for kind in CALLS:
            print(await compared(f"{transport}, {mode}, {kind}", kind, mine, theirs, options), flush=True)


async def serve_bare(path: Path) -> None:
    """The floor's side of stdio, in a child."""
    server = bare(Memory(path))
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--only", action="append", choices=TRANSPORTS)
    parser.add_argument("--directory", help="where the stores lie, by default the temporary directory")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(run(options) if options.serve is None else serve_bare(options.serve))


if __name__ == "__main__":
    main()
