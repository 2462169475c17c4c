"""Everything that a client can do at a server: every tool, every resource, every prompt, each with what has to come."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from mcp import Client, types

from refold.agent.builtin import BUILT_IN_NAMES

HINTS = ("read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint")


class Asked(NamedTuple):
    """A call of a tool, and the fields that have to be in its answer."""

    name: str
    arguments: dict[str, Any]
    fields: dict[str, Any]


async def call(client: Client, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The value of a call that has to go well; its text is the same value as JSON."""
    result = await client.call_tool(name, arguments)
    assert isinstance(result, types.CallToolResult)
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    assert not result.is_error, content.text
    assert json.loads(content.text) == result.structured_content
    value: dict[str, Any] = result.structured_content
    return value


async def error(client: Client, name: str, arguments: dict[str, Any]) -> str:
    """The text of a call that has to be refused by the tool, not by the protocol."""
    result = await client.call_tool(name, arguments)
    assert isinstance(result, types.CallToolResult)
    assert result.is_error
    assert result.structured_content is None
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def read(client: Client, uri: str) -> Any:
    """The value of a resource."""
    result = await client.read_resource(uri)
    assert isinstance(result, types.ReadResourceResult)
    (content,) = result.contents
    assert isinstance(content, types.TextResourceContents)
    assert (content.uri, content.mime_type) == (uri, "application/json")
    return json.loads(content.text)


async def prompt(client: Client, name: str, arguments: dict[str, str] | None = None) -> str:
    """The text of a prompt."""
    result = await client.get_prompt(name, arguments)
    assert isinstance(result, types.GetPromptResult)
    (message,) = result.messages
    assert message.role == "user"
    assert isinstance(message.content, types.TextContent)
    return message.content.text


async def listed(client: Client) -> list[types.Resource]:
    """Every resource, page by page."""
    page = await client.list_resources()
    found = list(page.resources)
    while page.next_cursor is not None:
        page = await client.list_resources(cursor=page.next_cursor)
        found += page.resources
    return found


async def tour(client: Client, chat: str, mark: str) -> None:
    """Does everything once, in a conversation that is the session's; ``mark`` sets its texts apart from others'."""
    await _describe(client)
    await _use_tools(client, mark)
    await _read_resources(client, chat, mark)
    await _ask_prompts(client, mark)


async def _describe(client: Client) -> None:
    tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == BUILT_IN_NAMES
    for tool in tools:
        assert tool.description
        assert tool.annotations is not None
        assert all(isinstance(getattr(tool.annotations, hint), bool) for hint in HINTS), tool.name
    for each in (await client.list_prompts()).prompts:
        assert each.description
        assert all(argument.description for argument in each.arguments or ())
    templates = (await client.list_resource_templates()).resource_templates
    assert len(templates) == 6
    assert all(template.description for template in templates)


async def _use_tools(client: Client, mark: str) -> None:
    called = [
        Asked("memory_write", {"action": "set", "key": mark, "value": "one"}, {"status": "ok", "action": "set"}),
        Asked("memory_write", {"action": "note", "value": f"note of {mark}"}, {"action": "note"}),
        Asked("memory_read", {"key": mark}, {"key": mark, "value": "one"}),
        Asked("working_memory_read", {"part": "messages"}, {"messages": []}),
        Asked("memory_set", {"key": mark, "value": "dark"}, {"status": "ok", "key": mark, "value": "dark"}),
        Asked("memory_delete", {"key": f"no {mark}"}, {"existed": False}),
        Asked("conversation_search", {"query": mark}, {"messages": []}),
        Asked("journal_append", {"text": f"began {mark}"}, {"status": "ok"}),
        Asked("journal_read", {"first": "2020-01-01", "last": "2020-01-02"}, {"last": "2020-01-02"}),
    ]
    for name, arguments, fields in called:
        value = await call(client, name, arguments)
        assert fields.items() <= value.items(), (name, value)
    added = await call(client, "memory_add", {"content": f"The port of {mark} is 8080", "keywords": [mark]})
    found = await call(client, "memory_search", {"query": f"port of {mark}", "top_k": 50})
    assert added["id"] in [each["id"] for each in found["memories"]]
    await call(client, "memory_update", {"id": added["id"], "content": f"The port of {mark} is 9090"})
    other = await call(client, "memory_add", {"content": f"The colour of {mark} is red", "keywords": [mark]})
    await call(client, "memory_forget", {"id": other["id"]})
    assert "Memory not found" in await error(client, "memory_forget", {"id": other["id"]})
    assert await error(client, "memory_set", {"key": mark}) == "Error: invalid input: missing required field: value"
    names = {name for name, _, _ in called} | {"memory_add", "memory_search", "memory_update", "memory_forget"}
    assert names == BUILT_IN_NAMES, "each tool was called"


async def _read_resources(client: Client, chat: str, mark: str) -> None:
    name = quote(chat, safe="")
    uris = [resource.uri for resource in await listed(client)]
    assert len(set(uris)) == len(uris)
    day = next(uri for uri in uris if uri.startswith("memory://notes/"))
    checks: dict[str, Callable[[Any], bool]] = {
        f"memory://conversations/{name}/scratchpad": lambda value: value["entries"][mark] == "one",
        f"memory://conversations/{name}/window": lambda value: value["conversation"] == chat,
        f"memory://conversations/{name}/events": lambda value: value["events"][0]["kind"] == "conversation_opened",
        "memory://profile": lambda value: value[mark] == "dark",
        day: lambda value: f"began {mark}" in [note["text"] for note in value["notes"]],
        "memory://projects/default/memories": lambda value: (
            f"The port of {mark} is 9090" in [each["content"] for each in value["memories"]]
        ),
    }
    for uri, is_right in checks.items():
        assert uri in uris
        assert is_right(await read(client, uri)), uri
    first = (await read(client, f"memory://conversations/{name}/events"))["events"][1]["seq"]
    part = await read(client, f"memory://conversations/{name}/events?from={first}&to={first}")
    assert [event["seq"] for event in part["events"]] == [first]


async def _ask_prompts(client: Client, mark: str) -> None:
    assert f"The port of {mark} is 9090" in await prompt(client, "recall", {"query": f"port of {mark}"})
    assert "memory_add" in await prompt(client, "extract_memories")
    context = await prompt(client, "session_context")
    assert f"- **{mark}**: dark" in context
    assert f"note of {mark}" in context
