"""The stream of notices: every event once, to any number of watchers, and none of it kept from those who write."""

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from refold import LimitExceeded, Memory, Recorded
from refold.views.session import MemoriesExtracted
from refold.web import app_of, site, views
from refold.web.server import web_server
from refold.web.site import Hub
from tests.web.site import client_of, served

SECONDS = 30


def hub_of(memory: Memory) -> Hub:
    return Hub(memory, views.notice_line)


def seqs_of(pieces: list[bytes]) -> list[int]:
    return [int(line[4:]) for line in b"".join(pieces).splitlines() if line.startswith(b"id: ")]


async def watched(hub: Hub, count: int, after: int | None = None) -> list[bytes]:
    """Return the pieces that a watcher gets until it has heard of so many events."""
    pieces: list[bytes] = []
    async for piece in hub.pieces(after):
        pieces.append(piece)
        if b"".join(pieces).count(b"id: ") >= count:
            break
    return [piece for piece in pieces if piece != site._BEAT]


def running(use: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(SECONDS):
            await use()

    asyncio.run(run())


def test_every_watcher_hears_every_event_in_order(memory: Memory) -> None:
    hub = hub_of(memory)

    def write() -> None:
        for number in range(400):
            memory.profile().set("key", str(number))

    async def use() -> None:
        watchers = [asyncio.ensure_future(watched(hub, 400)) for _ in range(100)]
        while len(hub._watchers) < 100:  # noqa: ASYNC110 - the streams are open once they are counted
            await asyncio.sleep(0)
        await asyncio.to_thread(write)
        heard = await asyncio.gather(*watchers)
        assert all(pieces == heard[0] for pieces in heard)
        assert seqs_of(heard[0]) == list(range(1, 401))
        assert len(heard[0]) < 200, "many events are one piece"
        await asyncio.sleep(0)
        assert hub._subscription is None

    running(use)


def test_a_watcher_goes_on_after_a_seq_while_others_write(memory: Memory) -> None:
    hub, count = hub_of(memory), 1_500
    for number in range(300):
        memory.profile().set("key", str(number))

    def write() -> None:
        for number in range(300, count):
            memory.profile().set("key", str(number))

    async def use() -> None:
        writing = asyncio.ensure_future(asyncio.to_thread(write))
        places = [0, 7, 299, 300]
        heard = await asyncio.gather(*(watched(hub, count - after, after) for after in places))
        await writing
        assert [seqs_of(pieces) for pieces in heard] == [list(range(after + 1, count + 1)) for after in places]

    running(use)


async def behind(hub: Hub, memory: Memory) -> AsyncGenerator[bytes]:
    """A stream that has not taken the last five events, which came one by one."""
    pieces = hub.pieces()
    assert await anext(pieces) == site._BEAT
    for number in range(5):
        memory.profile().set("key", str(number))
        await asyncio.sleep(2 * site._FLUSH_SECONDS)
    return pieces


def test_a_watcher_that_is_too_slow_reads_the_log(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_QUEUED_COUNT_MAX", 2)
    hub = hub_of(memory)
    memory.profile().set("key", "before")

    async def use() -> None:
        pieces = await behind(hub, memory)
        heard: list[bytes] = []
        while len(seqs_of(heard)) < 5:
            heard.append(await anext(pieces))
        memory.profile().set("key", "last")
        while len(seqs_of(heard)) < 6:
            heard.append(await anext(pieces))
        assert seqs_of(heard) == [2, 3, 4, 5, 6, 7]
        await pieces.aclose()

    running(use)


def test_a_client_that_was_cut_off_goes_on_where_it_was(memory: Memory) -> None:
    for number in range(6):
        memory.profile().set("key", str(number))
    with served(memory) as port:
        for query, headers, first in (
            ("?after=2", {}, 3),
            ("?after=2", {"last-event-id": "4"}, 5),
            ("", {"last-event-id": " 5 "}, 6),
            ("?after=0", {"last-event-id": ""}, 1),
        ):
            asked = urllib.request.Request(f"http://localhost:{port}/api/notices{query}", headers=headers)
            with urllib.request.urlopen(asked, timeout=SECONDS) as answer:  # noqa: S310 - of this server
                seqs: list[int] = []
                while not seqs or seqs[-1] < 6:
                    seqs += seqs_of([answer.readline()])
            assert seqs == list(range(first, 7))
    client = client_of(memory)
    for query, header in (("?after=x", ""), ("?before=2", ""), ("", "x"), ("", "-1")):
        refused = client.get(f"/api/notices{query}", headers={"last-event-id": header})
        assert refused.status_code == 400, refused.text


def test_a_seq_of_a_log_that_was_longer_is_the_head(memory: Memory) -> None:
    memory.profile().set("key", "1")
    with (
        served(memory) as port,
        urllib.request.urlopen(f"http://localhost:{port}/api/notices?after=99", timeout=SECONDS) as answer,
    ):
        assert answer.readline() == site._BEAT[:-1]
        memory.profile().set("key", "2")
        while not (seqs := seqs_of([answer.readline()])):
            pass
        assert seqs == [2]


def test_a_stream_that_is_behind_ends_with_the_server(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_QUEUED_COUNT_MAX", 2)
    hub = hub_of(memory)

    async def use() -> None:
        pieces = await behind(hub, memory)
        hub.end()
        assert len([piece async for piece in pieces if piece != site._BEAT]) <= 2

    running(use)


def test_a_writer_does_no_more_for_a_hundred_watchers_than_for_none(memory: Memory) -> None:
    """What an append does is counted in calls, and not in time, which others on the machine would make longer."""
    hub, profile = hub_of(memory), memory.profile()

    def calls() -> int:
        counted = [0]

        def count(_: object, event: str, __: object) -> None:
            counted[0] += event in {"call", "c_call"}

        for number in range(10):
            profile.set("warm", str(number))
        sys.setprofile(count)
        try:
            for number in range(200):
                profile.set("key", str(number))
        finally:
            sys.setprofile(None)
        return counted[0]

    alone = calls()

    async def use() -> None:
        watchers = [asyncio.ensure_future(watched(hub, 200)) for _ in range(100)]
        while len(hub._watchers) < 100:  # noqa: ASYNC110 - the streams are open once they are counted
            await asyncio.sleep(0)
        beside = await asyncio.to_thread(calls)
        assert beside <= 1.1 * alone, (beside, alone)
        await asyncio.gather(*watchers)

    running(use)


def test_streams_are_bounded_and_end_with_the_server(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = hub_of(memory)
    monkeypatch.setattr(site, "WATCHERS_COUNT_MAX", 2)

    async def use() -> None:
        watchers = [asyncio.ensure_future(watched(hub, 1)) for _ in range(2)]
        while len(hub._watchers) < 2:  # noqa: ASYNC110 - the streams are open once they are counted
            await asyncio.sleep(0)
        with pytest.raises(LimitExceeded, match="streams are open"):
            hub.check_room()
        hub.end()
        assert await asyncio.gather(*watchers) == [[], []]

    running(use)


def test_what_is_worth_a_notice(memory: Memory) -> None:
    memory.skills.library.learn("add-endpoint", "Adds an endpoint.", "Body.")
    memory.profile().set("key", "value")
    found = [views.notice_of(recorded) for recorded in memory.events()]
    assert [each for each in found if each] == [("generated", {"name": "add-endpoint"})]
    stamp = memory.event(1).stamp
    extracted = Recorded(MemoriesExtracted((), 1, ("a", "b", "c")), stamp)
    assert views.notice_of(extracted) == ("learned", {"count": 3})


@pytest.mark.slow
def test_a_real_server_streams_what_another_writes(memory: Memory) -> None:
    app = app_of(memory)

    async def use() -> None:
        server = web_server(app)
        server.config.port, server.config.host = 0, "127.0.0.1"
        serving = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /api/notices HTTP/1.1\r\nhost: localhost\r\n\r\n")
        while b"still here" not in await reader.readline():
            pass
        await asyncio.to_thread(memory.profile().set, "key", "value")
        line: Any = b""
        while not line.startswith(b"data:"):
            line = await reader.readline()
        assert json.loads(line[5:]) == {"seq": 1, "stream": "profile/default", "kind": "profile_set"}
        writer.close()
        server.should_exit = True
        await serving

    running(use)
