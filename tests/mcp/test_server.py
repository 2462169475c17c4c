"""The server in this process: what it is bound to, what it lists, what it refuses, and what it tells."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, types
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from refold import InvalidInput, Memory
from refold.agent.builtin import BUILT_IN_NAMES
from refold.agent.tools import FunctionTool, ToolRegistry
from refold.limits import LISTED_COUNT_MAX
from refold.mcp import memory_server, resources
from refold.mcp.resources import CONVERSATION_META, Address, Binding
from refold.mcp.server import MemoryServer
from tests.mcp.tour import call, error, listed, prompt, read, tour
from tests.support.memories import assert_sound, refused

SECONDS = 60


@asynccontextmanager
async def client_of(memory: Memory, mode: str = "auto", **bound: Any) -> AsyncIterator[Client]:
    server = MemoryServer(Binding(memory, **bound))
    async with asyncio.timeout(SECONDS), Client(server.low_level, mode=mode) as client:
        yield client


Use = Callable[[Client], Coroutine[Any, Any, None]]


def using(memory: Memory, use: Use, mode: str = "auto", **bound: Any) -> None:
    async def run() -> None:
        async with client_of(memory, mode, **bound) as client:
            await use(client)

    asyncio.run(run())


async def refuses(code: int, *words: str, asked: Coroutine[Any, Any, Any]) -> None:
    """What is asked is an error of the protocol, whose message holds the words."""
    with pytest.raises(MCPError) as raised:
        await asked
    assert raised.value.code == code
    for word in words:
        assert word in raised.value.message


# Which conversation, project and profile are meant.


def test_the_model_does_not_choose_the_conversation(memory: Memory) -> None:
    memory.conversation("mine").scratchpad.set("secret", "of another")

    async def use(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert not any("conversation" in tool.input_schema["properties"] for tool in tools)
        found = await call(client, "memory_read", {"key": "secret", "conversation": "mine"})
        assert found["value"] is None

    using(memory, use, conversation="yours")


def test_the_model_chooses_where_it_may(memory: Memory) -> None:
    memory.conversation("mine").scratchpad.set("secret", "of another")

    async def use(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert all("conversation" in tool.input_schema["properties"] for tool in tools)
        found = await call(client, "memory_read", {"key": "secret", "conversation": "mine"})
        assert found["value"] == "of another"
        assert (await call(client, "memory_read", {"key": "secret"}))["value"] is None
        assert "conversation" in await error(client, "memory_read", {"conversation": 7})
        assert "conversation" in await error(client, "memory_read", {"conversation": ""})

    using(memory, use, asks_model=True)


def test_the_host_names_the_conversation_of_a_request(memory: Memory) -> None:
    async def use(client: Client) -> None:
        said = {"action": "set", "key": "a", "value": "b"}
        meta: Any = {CONVERSATION_META: "named"}
        assert not (await client.call_tool("memory_write", said, meta=meta)).is_error

    async def name_none(client: Client) -> None:
        meta: Any = {CONVERSATION_META: 7}
        assert (await client.call_tool("memory_read", {}, meta=meta)).is_error

    using(memory, use)
    using(memory, name_none)
    assert memory.conversations() == ["named"]
    using(memory, use, conversation="configured")
    assert memory.conversations() == ["configured", "named"], "what is configured is not up for discussion"


def test_a_new_conversation_is_opened_in_the_project(memory: Memory) -> None:
    memory.conversation("old", project="elsewhere").scratchpad.set("a", "b")

    async def use(client: Client) -> None:
        await call(client, "memory_write", {"action": "note", "value": "hello"})
        await call(client, "memory_add", {"content": "We deploy on Fridays"})

    using(memory, use, conversation="new", project="acme")
    using(memory, use, conversation="old", project="acme")
    using(memory, use, conversation="old")
    assert memory.conversation("new").project == "acme"
    assert (memory.project("acme").count(), memory.project("elsewhere").count()) == (1, 1)


def test_a_server_that_is_bound_shows_nothing_else(memory: Memory) -> None:
    for name in ("one", "two"):
        memory.conversation(name).scratchpad.set("a", "b")
        memory.project(name).add(f"Something of {name}")

    async def use(client: Client) -> None:
        uris = {resource.uri for resource in await listed(client)}
        assert uris == {
            "memory://profile",
            "memory://projects/one/memories",
            *(f"memory://conversations/one/{kind}" for kind in resources.CONVERSATION_KINDS),
        }
        for uri in ("memory://conversations/two/window", "memory://projects/two/memories"):
            await refuses(types.INVALID_PARAMS, "bound to", "'one'", asked=client.read_resource(uri))
        reference = types.ResourceTemplateReference(uri=resources.TEMPLATES["window"])
        found = await client.complete(reference, {"name": "id", "value": ""})
        assert found.completion.values == ["one"]

    using(memory, use, conversation="one", project="one")


def test_a_server_that_is_bound_to_a_conversation_shows_that_and_its_project_alone(memory: Memory) -> None:
    two_projects(memory)

    async def use(client: Client) -> None:
        uris = {resource.uri for resource in await listed(client)}
        assert uris == {
            "memory://profile",
            "memory://projects/one/memories",
            *(f"memory://conversations/of one/{kind}".replace(" ", "%20") for kind in resources.CONVERSATION_KINDS),
        }
        elsewhere = client.read_resource("memory://projects/two/memories")
        await refuses(types.INVALID_PARAMS, "bound to", "'one'", asked=elsewhere)
        reference = types.ResourceTemplateReference(uri=resources.TEMPLATES["memories"])
        assert (await client.complete(reference, {"name": "id", "value": ""})).completion.values == ["one"]

    using(memory, use, conversation="of one")


def test_a_server_that_is_bound_to_a_project_shows_its_conversations_alone(memory: Memory) -> None:
    two_projects(memory)
    memory.board(session="alone").set_working_history("of no conversation")

    async def use(client: Client) -> None:
        uris = {resource.uri for resource in await listed(client)}
        assert "memory://conversations/of%20one/window" in uris
        assert not any("two" in uri or "none" in uri for uri in uris)
        for uri in (
            *("memory://conversations/of%20two/window", "memory://conversations/of%20none/events"),
            *("memory://conversations/of%20two/board/messages", "memory://conversations/alone/board/working_history"),
            "memory://projects/two/memories",
        ):
            await refuses(types.INVALID_PARAMS, "no resource", asked=client.read_resource(uri))
        reference = types.ResourceTemplateReference(uri=resources.TEMPLATES["window"])
        assert (await client.complete(reference, {"name": "id", "value": "of"})).completion.values == ["of one"]
        meta: Any
        for name in ("of two", "of none"):
            meta = {CONVERSATION_META: name}
            found = await client.call_tool("conversation_search", {"query": "salary"}, meta=meta)
            assert found.is_error
            assert "bound to" in str(found.content)
        head = memory.head
        meta = {CONVERSATION_META: "new"}
        written = await client.call_tool("memory_write", {"action": "set", "key": "a", "value": "b"}, meta=meta)
        assert not written.is_error
        assert (memory.conversation("new").project, memory.head > head) == ("one", True)

    using(memory, use, project="one")


def test_conversations_of_other_projects_take_no_room_on_a_page(memory: Memory) -> None:
    with memory.batch():
        for number in range(LISTED_COUNT_MAX + 30):
            memory.conversation(f"a{number:03}", project="two").append("user", "hello")
        memory.conversation("of one", project="one").append("user", "hello")

    async def use(client: Client) -> None:
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        assert "memory://conversations/of%20one/window" in uris
        reference = types.ResourceTemplateReference(uri=resources.TEMPLATES["window"])
        assert (await client.complete(reference, {"name": "id", "value": ""})).completion.values == ["of one"]

    using(memory, use, project="one")


def two_projects(memory: Memory) -> None:
    for name in ("one", "two"):
        memory.conversation(f"of {name}", project=name).append("user", f"the salary of {name}")
        memory.project(name).add(f"Something of {name}")
    memory.conversation("of none").append("user", "the salary of none")
    memory.board(session="of two").set_working_history("the salary of two")


# A server that only reads.


def test_what_only_reads_leaves_no_trace(memory: Memory) -> None:
    memory.conversation("chat").scratchpad.set("a", "b")
    memory.project().add("We use pnpm", keywords=["pnpm"])
    head = memory.head

    async def use(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [
            *("memory_read", "memory_search", "conversation_search", "working_memory_read", "journal_read"),
        ]
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        found = await call(client, "memory_search", {"query": "pnpm", "category": "fact"})
        assert [each["content"] for each in found["memories"]] == ["We use pnpm"]
        assert (await call(client, "memory_read", {"key": "a"}))["value"] == "b"
        await refuses(types.INVALID_PARAMS, "unknown tool", asked=client.call_tool("memory_set", {}))
        for each in (await client.list_prompts()).prompts:
            assert await prompt(client, each.name, {"query": "pnpm"} if each.arguments else None)
        for resource in await listed(client):
            await read(client, resource.uri)

    using(memory, use, conversation="chat", readonly=True)
    assert memory.head == head


def test_a_search_is_recorded_where_it_may_be(memory: Memory) -> None:
    memory.project().add("We use pnpm", keywords=["pnpm"])

    async def use(client: Client) -> None:
        await call(client, "memory_search", {"query": "pnpm"})
        await prompt(client, "recall", {"query": "pnpm"})

    using(memory, use, conversation="chat")
    assert [entry.access_count for entry in memory.project().list()] == [2]


def test_a_long_memory_does_not_flood_a_client(memory: Memory) -> None:
    memory.project().add("Deploys happen on Tuesdays.")
    memory.project().add("The build log says: " + "ERROR in module foo; " * 20_000)

    async def use(client: Client) -> None:
        found = await call(client, "memory_search", {"query": "When do we deploy?"})
        assert len(str(found)) < 4_000
        recalled = await prompt(client, "recall", {"query": "When do we deploy?"})
        assert "Tuesdays" in recalled
        assert len(recalled) < 4_000
        assert "unknown field: project" in await error(client, "memory_add", {"content": "x", "project": "other"})

    using(memory, use, conversation="chat")


# Tools that were registered beside the built-in ones.


def test_a_registered_tool_is_served_with_all_hints(memory: Memory) -> None:
    async def later(given: dict[str, Any], _: object) -> list[int]:
        await asyncio.sleep(0)
        return [given["number"], given["number"] + 1]

    def fail(_given: dict[str, Any], _: object) -> None:
        raise RuntimeError("it is raining")

    memory.tools.register(FunctionTool("later", "Counts.", {"required": ["number"]}, later))
    memory.tools.register(FunctionTool("say", "Says.", {}, lambda _given, _context: "a text"))
    memory.tools.register(FunctionTool("fail", "Fails.", {}, fail))

    async def use(client: Client) -> None:
        by_name = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert by_name["later"].input_schema["type"] == "object"
        assert by_name["say"].annotations == types.ToolAnnotations(
            read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
        )
        result = await client.call_tool("later", {"number": 1})
        assert result.structured_content == {"result": [1, 2]}
        said = await client.call_tool("say", {})
        assert (said.structured_content, said.content[0]) == (None, types.TextContent(type="text", text="a text"))
        assert await error(client, "fail", {}) == "Error: execution failed: it is raining"

    using(memory, use)


def test_a_call_that_is_cancelled_before_it_began_does_nothing(memory: Memory) -> None:
    entered, leave = asyncio.Event(), threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    def block(_given: dict[str, Any], _: object) -> str:
        loops[0].call_soon_threadsafe(entered.set)
        assert leave.wait(SECONDS)
        return "done"

    memory.tools.register(FunctionTool("block", "Blocks.", {}, block))

    async def use(client: Client) -> None:
        loops.append(asyncio.get_running_loop())
        workers = 64  # More than the threads that a loop has.
        blocked = [asyncio.ensure_future(client.call_tool("block", {})) for _ in range(workers)]
        await entered.wait()
        late = asyncio.ensure_future(client.call_tool("memory_set", {"key": "late", "value": "call"}))
        for _ in range(10):
            await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        leave.set()
        await asyncio.gather(*blocked)
        assert (await read(client, "memory://profile")) == {}

    using(memory, use)
    assert memory.profile().get("late") is None


def test_the_loop_waits_for_no_commit(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, threading.Thread] = {}
    begin = ToolRegistry._begin

    def note(registry: ToolRegistry, name: str, *given: Any) -> Any:
        threads[name] = threading.current_thread()
        return begin(registry, name, *given)

    monkeypatch.setattr(ToolRegistry, "_begin", note)
    using(memory, lambda client: tour(client, "chat", "here"), conversation="chat")
    assert set(threads) == BUILT_IN_NAMES
    on_the_loop = {name for name, thread in threads.items() if thread is threading.current_thread()}
    assert on_the_loop == {"memory_read"}


def test_what_goes_wrong_here_is_not_the_client_s_fault(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.profile().set("theme", "dark")

    async def use(client: Client) -> None:
        await refuses(types.INTERNAL_ERROR, "closed", asked=client.read_resource("memory://profile"))
        await refuses(types.INTERNAL_ERROR, "closed", asked=client.get_prompt("session_context", {}))
        assert "closed" in await error(client, "memory_set", {"key": "theme", "value": "light"})
        assert "closed" in await error(client, "memory_read", {})

    using(memory, use)
    with Memory(tmp_path / "store") as again:
        assert assert_sound(again)
        assert again.profile().items() == [("theme", "dark")]


# Resources, page by page.


def test_lists_and_events_come_in_pages(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from refold.mcp import resources, server

    monkeypatch.setattr(resources, "LISTED_COUNT_MAX", 3)
    monkeypatch.setattr(server, "LISTED_COUNT_MAX", 3)
    monkeypatch.setattr(resources, "PAGE_EVENTS_MAX", 4)
    names = [f"chat-{number}" for number in range(7)]
    for name in names:
        memory.conversation(name).scratchpad.set("a", "b")
        memory.project(name).add("Something")
    for number in range(10):
        memory.conversation("chat-0").scratchpad.note(str(number))

    async def use(client: Client) -> None:
        uris = [resource.uri for resource in await listed(client)]
        assert len(uris) == len(set(uris)) == 1 + 7 + 3 * 7
        events: list[dict[str, Any]] = []
        following: int | None = 1
        while following is not None:
            page = await read(client, f"memory://conversations/chat-0/events?from={following}")
            assert len(page["events"]) <= 4
            events += page["events"]
            following = page["next"]
        assert [event["seq"] for event in events] == [stamp.seq for _, stamp in memory.conversation("chat-0").events()]
        assert (await read(client, "memory://projects/chat-3/memories?offset=1&limit=5"))["memories"] == []
        for cursor in ("nonsense", '["x"]', "[]", "5"):
            await refuses(types.INVALID_PARAMS, "cursor", asked=client.list_resources(cursor=cursor))
        window = types.ResourceTemplateReference(uri=resources.TEMPLATES["window"])
        found = (await client.complete(window, {"name": "id", "value": "chat"})).completion
        assert (found.values, found.has_more) == (names[:3], True)
        found = (await client.complete(window, {"name": "id", "value": "chat-"})).completion
        assert found.values == names[:3]
        assert (await client.complete(window, {"name": "id", "value": "no"})).completion.values == []
        recall = types.PromptReference(name="recall")
        assert (await client.complete(recall, {"name": "query", "value": "x"})).completion.values == []

    using(memory, use)


def test_days_and_projects_are_completed(memory: Memory) -> None:
    day = memory.journal().append("hello").day
    memory.project("acme/api").add("Something")

    async def use(client: Client) -> None:
        notes = types.ResourceTemplateReference(uri=resources.TEMPLATES["notes"])
        assert (await client.complete(notes, {"name": "date", "value": day[:4]})).completion.values == [day]
        memories = types.ResourceTemplateReference(uri=resources.TEMPLATES["memories"])
        assert (await client.complete(memories, {"name": "id", "value": "acme"})).completion.values == ["acme/api"]
        assert (await read(client, f"memory://notes/{day}"))["notes"][0]["text"] == "hello"

    using(memory, use)


WRONG_ADDRESSES = (
    "memory://profile/x",
    "memory://conversations//window",
    "memory://conversations/chat/nothing",
    "memory://conversations/chat",
    "memory://conversations/chat/window?from=1",
    "memory://conversations/chat/events?from=-1",
    "memory://conversations/chat/events?from=x",
    "memory://conversations/chat/events?until=3",
    "memory://conversations/%ff/window",
    "memory://notes/yesterday",
    "memory://notes/2026-02-30",
    "memory://projects/none/memories",
    "memory://conversations/none/scratchpad",
    "https://conversations/chat/window",
    "memory://[/window",
    "",
)


def test_addresses_of_nothing_are_refused(memory: Memory) -> None:
    memory.conversation("chat").scratchpad.set("a", "b")

    async def use(client: Client) -> None:
        for uri in WRONG_ADDRESSES:
            await refuses(types.INVALID_PARAMS, asked=client.read_resource(uri))

    with refused(memory, InvalidInput, "memory://nothing", "resources/list"):
        resources.parse_address("memory://nothing")
    using(memory, use)
    assert memory.conversations() == ["chat"]


@pytest.mark.parametrize("name", ["chat", "a/b", "?#%", "\N{SNOWMAN} \n", "%2F", ".", "..", "memory://"])
def test_an_address_is_read_as_it_was_written(name: str) -> None:
    for kind in (*resources.CONVERSATION_KINDS, resources.MEMORIES):
        address = Address(kind, name)
        assert resources.parse_address(address.uri) == address
    paged = Address(resources.EVENTS, name, (("from", 3), ("to", 7)))
    assert resources.parse_address(paged.uri) == paged


def test_prompts_say_what_they_need(memory: Memory) -> None:
    async def use(client: Client) -> None:
        await refuses(types.INVALID_PARAMS, "recall", "session_context", asked=client.get_prompt("none", {}))
        await refuses(types.INVALID_PARAMS, "'query'", asked=client.get_prompt("recall", {"query": "  "}))
        await refuses(types.INVALID_PARAMS, "'x'", asked=client.get_prompt("session_context", {"x": "y"}))

    using(memory, use)
    assert memory.head == 0


# What is told to those who watch.


def test_each_kind_of_resource_is_told_of_its_changes(memory: Memory) -> None:
    memory.conversation("chat").scratchpad.set("a", "b")
    day = memory.journal().append("hello").day
    changes: dict[str, Callable[[], object]] = {
        "memory://conversations/chat/scratchpad": lambda: memory.conversation("chat").scratchpad.note("x"),
        "memory://conversations/chat/window": lambda: memory.conversation("chat").append("user", "x", tokens=1),
        "memory://conversations/chat/events": lambda: memory.conversation("chat").state.set("x", 1),
        "memory://profile": lambda: memory.profile().set("x", "y"),
        f"memory://notes/{day}": lambda: memory.journal().append("x"),
        "memory://projects/new/memories": lambda: memory.project("new").add("x"),
    }

    async def use(client: Client) -> None:
        for uri, change in changes.items():
            async with client.listen(resource_subscriptions=[uri]) as told:
                await asyncio.to_thread(change)
                assert await anext(aiter(told)) == ResourceUpdated(uri)
        async with client.listen(resources_list_changed=True) as told:
            await asyncio.to_thread(lambda: memory.conversation("newer").scratchpad.note("x"))
            assert await anext(aiter(told)) == ResourcesListChanged()

    using(memory, use)


def test_what_did_not_change_is_not_told(memory: Memory) -> None:
    chat = memory.conversation("chat")
    chat.scratchpad.set("a", "b")
    window, profile = "memory://conversations/chat/window", "memory://profile"

    async def use(client: Client) -> None:
        async with client.listen(resource_subscriptions=[window, profile]) as told:
            await asyncio.to_thread(lambda: chat.scratchpad.set("a", "c"))
            await asyncio.to_thread(lambda: memory.profile("other").set("a", "c"))
            await asyncio.to_thread(lambda: memory.profile().set("a", "c"))
            assert await anext(aiter(told)) == ResourceUpdated(profile)

    using(memory, use)


@pytest.mark.parametrize("count", [1, 300])
def test_the_last_change_is_told_however_many_came_before(memory: Memory, count: int) -> None:
    uri = "memory://conversations/chat/scratchpad"

    def write() -> None:
        for number in range(count):
            memory.conversation("chat").scratchpad.note(str(number))

    async def use(client: Client) -> None:
        async with client.listen(resource_subscriptions=[uri]) as told:
            writing = asyncio.create_task(asyncio.to_thread(write))
            async for change in told:
                assert change == ResourceUpdated(uri)
                notes = (await read(client, uri))["notes"]
                assert notes, "who hears of a change finds it"
                if len(notes) == count:
                    break
            await writing

    using(memory, use, conversation="chat")


def test_erasing_a_conversation_is_told_to_everybody(memory: Memory) -> None:
    memory.profile().set("theme", "dark")
    (seq,) = [stamp.seq for _, stamp in memory.events()]

    async def use(client: Client) -> None:
        async with client.listen(resource_subscriptions=["memory://profile"]) as told:
            await asyncio.to_thread(lambda: memory.erase([seq]))
            assert await anext(aiter(told)) == ResourceUpdated("memory://profile")

    using(memory, use)


def test_watching_has_its_bounds(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "WATCHED_COUNT_MAX", 2)
    uris = [f"memory://conversations/chat-{number}/window" for number in range(3)]

    async def listen_to(client: Client, chosen: list[str]) -> None:
        async with client.listen(resource_subscriptions=chosen):
            pass

    async def use(client: Client) -> None:
        await listen_to(client, uris[:2])
        await refuses(types.INVALID_PARAMS, "WATCHED_COUNT_MAX = 2", asked=listen_to(client, uris))
        await refuses(types.INVALID_PARAMS, "no resource", asked=listen_to(client, ["memory://nothing"]))

    using(memory, use)


def test_nobody_watches_once_the_clients_have_left(memory: Memory) -> None:
    async def use(client: Client) -> None:
        async with client.listen(resource_subscriptions=["memory://profile"]):
            pass

    using(memory, use)
    for thread in threading.enumerate():
        if thread.name == "refold-subscriptions":
            thread.join(SECONDS)
            assert not thread.is_alive()


# Installing.


def test_without_the_sdk_it_says_what_to_install(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.mcp.find_spec", lambda _: None)
    with refused(memory, InvalidInput, "pip install 'refold[mcp]'"):
        memory_server(Binding(memory))


def test_the_answer_to_a_resource_is_json_that_others_read(memory: Memory) -> None:
    memory.conversation("chat").append("assistant", [{"type": "text", "text": "\N{SNOWMAN}"}], tokens=1)

    async def use(client: Client) -> None:
        value = await read(client, "memory://conversations/chat/window")
        assert value["messages"][0]["content"] == [{"type": "text", "text": "\N{SNOWMAN}"}]
        assert json.loads(json.dumps(value)) == value

    using(memory, use)
