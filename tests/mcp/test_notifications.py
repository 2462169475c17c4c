"""What is told of an event is what it changed: nothing is left out, and nothing is told for nothing."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from mcp import Client
from mcp.shared.subscriptions import ResourcesListChanged

from refold import Memory
from refold.mcp import resources
from refold.mcp.resources import ALL, Binding, ListTracker, event_addresses
from tests.mcp.test_server import using
from tests.support.memories import assert_sound

LIST = ""


@pytest.fixture
def memory() -> Iterator[Memory]:
    """One in RAM: what an event changes is the same wherever the log is."""
    with Memory() as made:
        yield made
        assert_sound(made)


def shown(binding: Binding) -> dict[str, object]:
    """Every resource with what it holds, and the list of them."""
    found, following = resources.list_resources(binding, None)
    assert following is None
    uris = sorted(resource.uri for resource in found)
    return {LIST: uris} | {uri: resources.read_resource(binding, resources.parse_address(uri)) for uri in uris}


def told_and_changed(binding: Binding, change: Callable[[], object]) -> tuple[set[str], set[str], bool]:
    """What is told of a change, what it changed, and whether everything is told of it."""
    memory, lists = binding.memory, ListTracker(binding)
    before, head = shown(binding), memory.head
    change()
    after = shown(binding)
    assert memory.head > head, "it has changed something"
    marked, is_listed = set[resources.Address](), False
    for recorded in memory.events(after=head):
        marked.update(event_addresses(binding, recorded))
        is_listed = lists.is_changed(recorded) or is_listed
    uris = {*before, *after} - {LIST}
    told = {uri for uri in uris if resources.is_among(resources.parse_address(uri), marked)}
    changed = {uri for uri in {*before, *after} if before.get(uri) != after.get(uri)}
    return told | ({LIST} if is_listed else set()), changed, ALL in marked


def filled(memory: Memory) -> None:
    chat = memory.conversation("chat", project="acme")
    chat.scratchpad.set("a", "b")
    chat.append("user", "hello", tokens=1)
    chat.snapshot("early")
    chat.scratchpad.set("a", "c")
    chat.append("user", "hello again", tokens=1)
    memory.project("acme").add("We use pnpm", keywords=["pnpm"])
    memory.profile().set("theme", "dark")
    memory.journal().append("an old line", day="2020-01-01")
    board = memory.board(session="chat")
    board.initialise(project_id="acme", active_node_id="N")
    board.set_project_structure({name: {"nodes": [{"id": "N"}]} for name in ("project_graph", "elements_graph")})
    board.set_node_context({"id": "N"})
    board.set_working_history("so far")
    board.append_message({"id": "1", "content": "hello", "created_at": "2020-01-01"})
    memory.snapshot("then")


def much(memory: Memory) -> None:
    memory.conversation("late").scratchpad.set("a", "b")
    memory.profile().set("theme", "light")
    memory.journal().append("a line")
    memory.journal().append("another line")
    memory.project("acme").add("Another thing")


CHANGES: dict[str, Callable[[Memory], object]] = {
    "a key": lambda memory: memory.conversation("chat").scratchpad.set("a", "d"),
    "a note": lambda memory: memory.conversation("chat").scratchpad.note("x"),
    "a deleted key": lambda memory: memory.conversation("chat").scratchpad.delete("a"),
    "a cleared scratchpad": lambda memory: memory.conversation("chat").scratchpad.clear(),
    "a message": lambda memory: memory.conversation("chat").append("user", "x", tokens=1),
    "another budget": lambda memory: memory.conversation("chat").set_window_tokens(1),
    "a cleared window": lambda memory: memory.conversation("chat").clear_window(),
    "state": lambda memory: memory.conversation("chat").state.set("x", 1),
    "state of a round": lambda memory: memory.conversation("chat").state.set("temp:x", 1),
    "state of a project": lambda memory: memory.conversation("chat").state.set("project:x", 1),
    "an end": lambda memory: memory.conversation("chat").end(),
    "a task": lambda memory: memory.conversation("chat").session.describe_task("x"),
    "a recorded call": lambda memory: memory.tools.execute(
        "memory_read", {}, memory.tools.context(memory.conversation("chat")), record=True
    ),
    "a shown context": lambda memory: memory.show(memory.context(memory.conversation("chat"))),
    "a new conversation": lambda memory: memory.conversation("new").scratchpad.note("x"),
    "a fork": lambda memory: memory.conversation("chat").fork("forked"),
    "a memory": lambda memory: memory.project("acme").add("Another thing"),
    "a recall": lambda memory: memory.project("acme").recall("pnpm"),
    "a new project": lambda memory: memory.project("new").add("x"),
    "state of a new project": lambda memory: memory.conversation("other", project="new").state.set("project:x", 1),
    "an episode": lambda memory: memory.project("acme").record_episode(
        "success", session="chat", task="t", approach="a", outcome="o", tools=[], keywords=["k"]
    ),
    "a fact": lambda memory: memory.profile().set("theme", "light"),
    "a fact of another profile": lambda memory: memory.profile("other").set("theme", "light"),
    "a new day": lambda memory: memory.journal().append("x"),
    "two notes of a new day": lambda memory: [memory.journal().append(text) for text in ("x", "y")],
    "a note of an old day": lambda memory: memory.journal().append("x", day="2020-01-01"),
    "a first note of an old day": lambda memory: memory.journal().append("x", day="2020-01-02"),
    "a day of another journal": lambda memory: memory.journal("other").append("x"),
    "a setting": lambda memory: memory.settings.set("memory_max_injected", 7),
    "a name": lambda memory: memory.snapshot("now"),
    "a part of a board": lambda memory: memory.board(session="chat").set_working_history("and on"),
    "a graph of a board": lambda memory: memory.board(session="chat").set_elements_graph({"nodes": [{"id": "E"}]}),
    "a message of a board": lambda memory: memory.board(session="chat").append_message({"content": "x"}),
    "a hidden structure": lambda memory: memory.board(session="chat").update_settings(
        {"include_project_structure": False}
    ),
    "a refresh interval": lambda memory: memory.board(session="chat").update_settings({"auto_refresh_interval": 5}),
    "a board of a new session": lambda memory: memory.board(session="new").set_working_history("x"),
    "much": much,
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_told_is_what_changed(memory: Memory, name: str) -> None:
    filled(memory)
    told, changed, _ = told_and_changed(Binding(memory), lambda: CHANGES[name](memory))
    assert told == changed


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_told_is_what_changed_of_what_a_server_is_bound_to(memory: Memory, name: str) -> None:
    filled(memory)
    binding = Binding(memory, conversation="new", project="new", journal="other")
    told, changed, _ = told_and_changed(binding, lambda: CHANGES[name](memory))
    assert changed <= told
    # It is shown before it is there, with the budget that it would have; who opens it may give it another.
    assert told == changed or name in {"a new conversation", "state of a new project"}


REWRITES: dict[str, Callable[[Memory], object]] = {
    "a restored conversation": lambda memory: memory.conversation("chat").restore("early"),
    "a restored memory": lambda memory: memory.restore("then"),
    "an erased conversation": lambda memory: memory.conversation("chat").erase(),
    "an erased project": lambda memory: memory.project("acme").erase(),
}


@pytest.mark.parametrize("name", REWRITES)
def test_nothing_is_left_out_where_much_may_have_changed(memory: Memory, name: str) -> None:
    filled(memory)
    much(memory)
    told, changed, is_all = told_and_changed(Binding(memory), lambda: REWRITES[name](memory))
    assert changed <= told
    assert is_all == ("erased" in name)


def test_a_new_day_is_told_as_a_new_list(memory: Memory) -> None:
    async def use(client: Client) -> None:
        async with client.listen(resources_list_changed=True) as changes:
            await asyncio.to_thread(memory.journal().append, "x")
            assert await anext(aiter(changes)) == ResourcesListChanged()

    using(memory, use)
