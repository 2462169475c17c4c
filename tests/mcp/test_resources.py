"""Asking for what is nearly there: addresses, cursors, and what a person has written so far."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from mcp import Client, types

from refold import Conversation, InvalidInput, Memory, Recorded
from refold.agent.tools import FunctionTool
from refold.mcp import memory_server, resources
from refold.mcp.resources import Binding
from tests.mcp.test_server import refuses, using
from tests.mcp.tour import call, listed, read
from tests.support.memories import refused

NEARLY = (
    "memory://conversations/ch\nat/scratchpad",
    "memory://conversations/ch\tat/scratchpad",
    "memory://conversations/chat/scratch\rpad",
    "memory://prof\nile",
    " memory://profile",
    "\0memory://profile",
    "memory://profile\n",
    "memory://profile#part",
    "memory://conversations/chat/events?from=1&from=2",
)
"""``urlsplit`` takes each of them for the address of something."""


@pytest.mark.parametrize("uri", NEARLY)
def test_an_address_with_anything_in_it_that_is_left_out_is_none(memory: Memory, uri: str) -> None:
    memory.conversation("chat").scratchpad.set("a", "b")

    async def use(client: Client) -> None:
        await refuses(types.INVALID_PARAMS, "no resource has the address", asked=client.read_resource(uri))

    using(memory, use)


def test_an_id_is_completed_although_it_is_written_out(memory: Memory) -> None:
    for name in ("chat", "chat-1", "cha", "chest"):
        memory.conversation(name).scratchpad.set("a", "b")
        memory.project(name).add("Something")

    async def use(client: Client) -> None:
        for kind in (resources.WINDOW, resources.MEMORIES):
            reference = types.ResourceTemplateReference(uri=resources.TEMPLATES[kind])
            for written, found in (
                ("chat", ["chat", "chat-1"]),
                ("cha", ["cha", "chat", "chat-1"]),
                ("chat-", ["chat-1"]),
                ("ch", ["cha", "chat", "chat-1", "chest"]),
                ("", ["cha", "chat", "chat-1", "chest"]),
                ("x" * 10_000, []),
            ):
                told = await client.complete(reference, {"name": "id", "value": written})
                assert told.completion.values == found
        reference = types.ResourceTemplateReference(uri=resources.TEMPLATES[resources.BOARD])
        told = await client.complete(reference, {"name": "part", "value": "me"})
        assert told.completion.values == ["messages", "messages_meta"]

    using(memory, use)


def test_a_server_is_bound_to_a_conversation_or_asks_for_it(memory: Memory) -> None:
    with refused(memory, InvalidInput, "'chat'", "asks_model"):
        memory_server(Binding(memory, conversation="chat", asks_model=True))


def test_a_cursor_of_no_list_is_refused(memory: Memory) -> None:
    async def use(client: Client) -> None:
        await refuses(types.INVALID_PARAMS, "cursor", asked=client.list_resources(cursor='["nothing","a"]'))

    using(memory, use)


def test_a_page_of_events_ends_where_it_was_told_to(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from refold.mcp import resources

    chat = memory.conversation("chat")
    for number in range(300):
        chat.scratchpad.note(str(number))
    memory.profile().set("a", "b")
    seen: list[int] = []
    events = type(chat).events

    def counting(of: Conversation, *arguments: int) -> Iterator[Recorded]:
        for recorded in events(of, *arguments):
            seen.append(recorded.stamp.seq)
            yield recorded

    monkeypatch.setattr(type(chat), "events", counting)
    monkeypatch.setattr(resources, "PAGE_EVENTS_MAX", 4)

    async def use(client: Client) -> None:
        for asked, found, following in (
            ("from=2&to=3", [2, 3], None),
            ("from=2&to=9", [2, 3, 4, 5], 6),
            ("from=3&to=2", [], None),
            ("from=9999", [], None),
            ("to=0", [], None),
        ):
            seen.clear()
            page = await read(client, f"memory://conversations/chat/events?{asked}")
            assert ([event["seq"] for event in page["events"]], page["next"]) == (found, following), asked
            assert len(seen) <= len(found) + 1, "no more is read than what is shown, and the one behind it"

    using(memory, use)


def test_memories_come_in_pages_that_end_by_count_and_by_size(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from refold.mcp import resources

    wanted = [f"{number} {'x' * (400 if number < 3 else 4)}" for number in range(9)]
    for content in wanted:
        memory.project("acme").add(content)
    monkeypatch.setattr(resources, "PAGE_ENTRIES_MAX", 4)
    monkeypatch.setattr(resources, "PAGE_BYTES_MAX", 1_500)

    async def use(client: Client) -> None:
        found: list[str] = []
        counts: list[int] = []
        following: int | None = 0
        while following is not None:
            page = await read(client, f"memory://projects/acme/memories?offset={following}")
            assert page["offset"] == len(found)
            found += [each["content"] for each in page["memories"]]
            counts.append(len(page["memories"]))
            following = page["next"]
        assert found == wanted
        assert counts[0] < 3, "large ones are fewer"
        assert max(counts) == 4
        none = await read(client, "memory://projects/acme/memories?limit=0")
        assert (len(none["memories"]), none["next"]) == (1, 1), "a page that leads on"
        monkeypatch.setattr(resources, "PAGE_BYTES_MAX", 1)
        page = await read(client, "memory://projects/acme/memories")
        assert (len(page["memories"]), page["next"]) == (1, 1), "the first is shown whatever its size"

    using(memory, use)


def test_reading_goes_on_while_every_thread_of_the_calls_waits(memory: Memory) -> None:
    leave = threading.Event()
    memory.tools.register(FunctionTool("block", "Blocks.", {}, lambda _given, _context: leave.wait(60)))
    memory.profile().set("theme", "dark")

    async def use(client: Client) -> None:
        workers = 64  # More than the threads that a loop has.
        blocked = [asyncio.ensure_future(client.call_tool("block", {})) for _ in range(workers)]
        try:
            assert await read(client, "memory://profile") == {"theme": "dark"}
            assert await listed(client)
            assert await call(client, "memory_read", {}) == {"entries": {}, "notes": []}
            assert not any(each.done() for each in blocked)
        finally:
            leave.set()
        assert len(await asyncio.gather(*blocked)) == workers

    using(memory, use)
    for thread in threading.enumerate():
        if thread.name.startswith("refold-mcp-reader"):
            thread.join(60)
            assert not thread.is_alive(), "the readers end with the server"
