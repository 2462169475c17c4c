"""Messages over the standard streams: how many requests may be open, and what becomes of them at the end."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.types.jsonrpc import JSONRPCRequest, JSONRPCResponse

from refold import Memory
from refold.limits import REQUEST_BYTES_MIN
from refold.mcp import stdio
from tests.mcp.servers import command
from tests.mcp.test_bytes import HELLO
from tests.support.memories import assert_sound

SECONDS = 60


def line(number: int, method: str = "ping", **parameters: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}).encode() + b"\n"


class Written:
    """What was written, by nobody who would wait."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def write(self, text: str) -> None:
        self.texts.append(text)


async def lines_of(*lines: bytes) -> AsyncGenerator[bytes]:
    for each in lines:
        yield each


def given(*lines: bytes) -> Any:
    """The streams that the SDK gets of these lines."""
    return stdio.messages(cast("Any", lines_of(*lines)), cast("Any", Written()))


async def taken(read: stdio.Read) -> int:
    """The number of the next request."""
    item = await read.receive()
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, JSONRPCRequest)
    return int(item.message.id)


async def nothing_comes(read: stdio.Read) -> None:
    """Nothing comes, nor the end: all that could happen has happened, for nothing here waits for a thread."""
    for _ in range(100):
        await asyncio.sleep(0)
    with pytest.raises(anyio.WouldBlock):
        read.receive_nowait()


async def answer(write: stdio.Write, number: int) -> None:
    await write.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=number, result={})))


def test_a_request_waits_until_there_is_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "OPEN_BYTES_MAX", 3 * REQUEST_BYTES_MIN)

    async def run() -> None:
        lines = [line(number) for number in range(5)]
        async with asyncio.timeout(SECONDS), given(*lines) as (read, write), read, write:
            assert [await taken(read) for _ in range(3)] == [0, 1, 2]
            await nothing_comes(read)
            await answer(write, 1)
            assert await taken(read) == 3
            await nothing_comes(read)

    asyncio.run(run())


def test_one_that_its_client_cancelled_gives_its_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "OPEN_BYTES_MAX", REQUEST_BYTES_MIN)

    async def run() -> None:
        async with asyncio.timeout(SECONDS), given(line(1), line(1), line(2)) as (read, write), read, write:
            for number in (1, 1, 2):
                item = await read.receive()
                assert isinstance(item, SessionMessage)
                assert isinstance(item.message, JSONRPCRequest)
                assert item.message.id == number
                assert isinstance(item.metadata, ServerMessageMetadata)
                assert item.metadata.on_request_unanswered is not None
                await item.metadata.on_request_unanswered()

    asyncio.run(run())


def test_the_end_waits_for_answers_but_for_no_stream() -> None:
    async def run() -> None:
        asked = line(1), line(2, "subscriptions/listen")
        async with asyncio.timeout(SECONDS), given(*asked) as (read, write), read, write:
            assert [await taken(read) for _ in range(2)] == [1, 2]
            await nothing_comes(read)
            await answer(write, 1)
            with pytest.raises(anyio.EndOfStream):
                await read.receive()

    asyncio.run(run())


def test_the_end_waits_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "DRAIN_SECONDS", 0.01)

    async def run() -> None:
        async with asyncio.timeout(SECONDS), given(line(1)) as (read, write), read, write:
            assert await taken(read) == 1
            with pytest.raises(anyio.EndOfStream):
                await read.receive()

    asyncio.run(run())


@pytest.mark.slow
def test_what_was_asked_before_stdin_was_closed_is_answered(tmp_path: Path) -> None:
    store = tmp_path / "store"
    notes = [str(number) for number in range(20)]
    calls = [{"name": "memory_write", "arguments": {"action": "note", "value": note}} for note in notes]
    asked = [line(number, "tools/call", **each) for number, each in enumerate(calls, 2)]
    ready = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
    run = subprocess.run(
        command("--db", str(store), "--conversation", "chat"),
        input=b"".join([line(1, "initialize", **HELLO), ready, *asked]),
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )
    answers = {each["id"]: each for each in map(json.loads, run.stdout.splitlines())}
    assert sorted(answers) == list(range(1, 22))
    assert not [each for each in answers.values() if "result" not in each]
    with Memory(store) as memory:
        assert_sound(memory)
        assert sorted(memory.conversation("chat").scratchpad.notes(), key=int) == notes
