"""What the protocol's conformance suite wants to find at a server, put beside what our server serves.

The suite calls tools, resources and prompts by fixed names. They are added to a ``MemoryServer`` by the means of the
SDK, so that sessions, transports, and every handler that is not about these names are those that users get.
"""

import asyncio
import json
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from mcp import MCPDeprecationWarning, types
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

from refold.mcp.server import Context, MemoryServer

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
"""One red pixel."""

WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
"""No sound."""

_PAUSE_SECONDS = 0.05
"""What the suite asks for between two notifications of one call."""

Call: TypeAlias = Callable[[Context, dict[str, Any]], Awaitable[types.CallToolResult]]


class Fixture(NamedTuple):
    """A tool of the suite."""

    description: str
    call: Call
    schema: dict[str, Any] = {"type": "object"}  # noqa: RUF012 - never changed


def text(said: str) -> types.TextContent:
    return types.TextContent(type="text", text=said)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, mime_type: str, said: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=said)
    return types.EmbeddedResource(type="resource", resource=contents)


def returning(*content: types.ContentBlock, is_error: bool = False) -> Call:
    async def call(_context: Context, _arguments: dict[str, Any]) -> types.CallToolResult:
        return types.CallToolResult(content=list(content), is_error=is_error)

    return call


async def log(context: Context, _: dict[str, Any]) -> types.CallToolResult:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await context.session.send_log_message("info", said, related_request_id=context.request_id)
        await asyncio.sleep(_PAUSE_SECONDS)
    return types.CallToolResult(content=[text("logged")])


async def progress(context: Context, _: dict[str, Any]) -> types.CallToolResult:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await asyncio.sleep(_PAUSE_SECONDS)
    return types.CallToolResult(content=[text("done")])


async def sample(context: Context, arguments: dict[str, Any]) -> types.CallToolResult:
    asked = types.SamplingMessage(role="user", content=text(arguments["prompt"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        answer = await context.session.create_message([asked], max_tokens=100, related_request_id=context.request_id)
    assert isinstance(answer.content, types.TextContent)
    return types.CallToolResult(content=[text(f"LLM response: {answer.content.text}")])


def eliciting(schema: dict[str, Any], required: list[str], said: str) -> Call:
    async def call(context: Context, arguments: dict[str, Any]) -> types.CallToolResult:
        answer = await context.session.elicit_form(
            arguments.get("message", "Please fill in the form"),
            {"type": "object", "properties": schema, "required": required},
            related_request_id=context.request_id,
        )
        told = said.format(action=answer.action, content=json.dumps(answer.content))
        return types.CallToolResult(content=[text(told)])

    return call


async def reconnect(context: Context, _: dict[str, Any]) -> types.CallToolResult:
    """Close the stream of the call; the client comes back for the answer."""
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await asyncio.sleep(2 * _PAUSE_SECONDS)
    return types.CallToolResult(content=[text("Reconnected")])


_TITLED = [{"const": f"value{number}", "title": f"{word} Option"} for number, word in enumerate(("First", "Second"), 1)]
_OPTIONS = ["option1", "option2", "option3"]
_DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_ENUMS = {
    "untitledSingle": {"type": "string", "enum": _OPTIONS},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}
_USER = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}
_COMPLETED = "Elicitation completed: action={action}, content={content}"


def _needing(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


TOOLS = {
    "test_simple_text": Fixture("Says a text.", returning(text("This is a simple text response for testing."))),
    "test_image_content": Fixture("Shows an image.", returning(image())),
    "test_audio_content": Fixture(
        "Plays a sound.", returning(types.AudioContent(type="audio", data=WAV, mime_type="audio/wav"))
    ),
    "test_embedded_resource": Fixture(
        "Embeds a resource.",
        returning(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
    ),
    "test_multiple_content_types": Fixture(
        "Says, shows and embeds.",
        returning(
            text("Multiple content types test:"),
            image(),
            embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ),
    ),
    "test_error_handling": Fixture(
        "Fails.", returning(text("This tool intentionally returns an error for testing"), is_error=True)
    ),
    "test_tool_with_logging": Fixture("Logs.", log),
    "test_tool_with_progress": Fixture("Reports progress.", progress),
    "test_sampling": Fixture("Asks the client's model.", sample, _needing("prompt")),
    "test_elicitation": Fixture(
        "Asks the user.",
        eliciting(_USER, ["username", "email"], "User response: action={action}, content={content}"),
        _needing("message"),
    ),
    "test_elicitation_sep1034_defaults": Fixture("Asks with defaults.", eliciting(_DEFAULTS, [], _COMPLETED)),
    "test_elicitation_sep1330_enums": Fixture("Asks with options.", eliciting(_ENUMS, [], _COMPLETED)),
    "test_reconnection": Fixture("Closes the stream before it answers.", reconnect),
    "json_schema_2020_12_tool": Fixture(
        "Tool with JSON Schema 2020-12 features",
        returning(text("fine")),
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
            "additionalProperties": False,
        },
    ),
}

RESOURCES: dict[str, types.TextResourceContents | types.BlobResourceContents] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text",
        mime_type="text/plain",
        text="This is the content of the static text resource.",
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PNG),
    "test://watched-resource": types.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="watched"
    ),
}
_TEMPLATE = "test://template/{id}/data"


def _prompt(name: str, *arguments: str) -> types.Prompt:
    described = [types.PromptArgument(name=each, description=f"The {each}.", required=True) for each in arguments]
    return types.Prompt(name=name, description=f"The prompt {name}.", arguments=described)


PROMPTS: dict[str, tuple[types.Prompt, Callable[[dict[str, str]], list[types.ContentBlock]]]] = {
    "test_simple_prompt": (
        _prompt("test_simple_prompt"),
        lambda _: [text("This is a simple prompt for testing.")],
    ),
    "test_prompt_with_arguments": (
        _prompt("test_prompt_with_arguments", "arg1", "arg2"),
        lambda given: [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")],
    ),
    "test_prompt_with_embedded_resource": (
        _prompt("test_prompt_with_embedded_resource", "resourceUri"),
        lambda given: [
            embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
    ),
    "test_prompt_with_image": (
        _prompt("test_prompt_with_image"),
        lambda _: [image(), text("Please analyze the image above.")],
    ),
}


def _handler(server: MemoryServer, method: str) -> Callable[[Context, Any], Awaitable[Any]]:
    entry = server.low_level.get_request_handler(method)
    assert entry is not None, method
    return entry.handler


def _put(server: MemoryServer, method: str, handler: Callable[[Context, Any], Awaitable[Any]]) -> None:
    entry = server.low_level.get_request_handler(method)
    assert entry is not None, method
    server.low_level.add_request_handler(method, entry.params_type, handler)


def add_fixtures(server: MemoryServer) -> None:
    """Put what the suite asks for beside what the server serves."""
    _add_tools(server)
    _add_resources(server)
    _add_prompts(server)

    async def set_level(_context: Context, _params: types.SetLevelRequestParams) -> types.EmptyResult:
        return types.EmptyResult()

    server.low_level.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)


def _add_tools(server: MemoryServer) -> None:
    list_ours, call_ours = _handler(server, "tools/list"), _handler(server, "tools/call")

    async def listed(context: Context, params: Any) -> types.ListToolsResult:
        ours: types.ListToolsResult = await list_ours(context, params)
        theirs = [
            types.Tool(name=name, description=fixture.description, input_schema=fixture.schema)
            for name, fixture in TOOLS.items()
        ]
        return types.ListToolsResult(tools=[*ours.tools, *theirs])

    async def called(context: Context, params: types.CallToolRequestParams) -> Any:
        fixture = TOOLS.get(params.name)
        if fixture is None:
            return await call_ours(context, params)
        return await fixture.call(context, params.arguments or {})

    _put(server, "tools/list", listed)
    _put(server, "tools/call", called)


def _add_resources(server: MemoryServer) -> None:
    list_ours, read_ours = _handler(server, "resources/list"), _handler(server, "resources/read")
    templates_ours = _handler(server, "resources/templates/list")

    async def listed(context: Context, params: Any) -> types.ListResourcesResult:
        ours: types.ListResourcesResult = await list_ours(context, params)
        theirs = [
            types.Resource(uri=uri, name=uri, description="A resource of the suite.", mime_type=each.mime_type)
            for uri, each in RESOURCES.items()
        ]
        return types.ListResourcesResult(resources=[*ours.resources, *theirs], next_cursor=ours.next_cursor)

    async def templated(context: Context, params: Any) -> types.ListResourceTemplatesResult:
        ours: types.ListResourceTemplatesResult = await templates_ours(context, params)
        theirs = types.ResourceTemplate(name="template", uri_template=_TEMPLATE, description="A template of the suite.")
        return types.ListResourceTemplatesResult(resource_templates=[*ours.resource_templates, theirs])

    async def read(context: Context, params: types.ReadResourceRequestParams) -> Any:
        if params.uri in RESOURCES:
            return types.ReadResourceResult(contents=[RESOURCES[params.uri]])
        before, _, after = _TEMPLATE.partition("{id}")
        if not (params.uri.startswith(before) and params.uri.endswith(after)):
            return await read_ours(context, params)
        name = params.uri.removeprefix(before).removesuffix(after)
        said = json.dumps({"id": name, "templateTest": True, "data": f"Data for ID: {name}"})
        contents = types.TextResourceContents(uri=params.uri, mime_type="application/json", text=said)
        return types.ReadResourceResult(contents=[contents])

    _put(server, "resources/list", listed)
    _put(server, "resources/templates/list", templated)
    _put(server, "resources/read", read)
    for method in ("resources/subscribe", "resources/unsubscribe"):
        _put(server, method, _passing(_handler(server, method)))


def _passing(handle: Callable[[Context, Any], Awaitable[Any]]) -> Callable[[Context, Any], Awaitable[Any]]:
    """Return a handler that watches a profile where the suite watches a resource of its own."""

    async def handled(context: Context, params: Any) -> Any:
        known = params.uri in RESOURCES
        return await handle(context, params.model_copy(update={"uri": "memory://profile"}) if known else params)

    return handled


def _add_prompts(server: MemoryServer) -> None:
    list_ours, get_ours = _handler(server, "prompts/list"), _handler(server, "prompts/get")

    async def listed(context: Context, params: Any) -> types.ListPromptsResult:
        ours: types.ListPromptsResult = await list_ours(context, params)
        return types.ListPromptsResult(prompts=[*ours.prompts, *(prompt for prompt, _ in PROMPTS.values())])

    async def got(context: Context, params: types.GetPromptRequestParams) -> Any:
        if params.name not in PROMPTS:
            return await get_ours(context, params)
        prompt, make = PROMPTS[params.name]
        messages = [types.PromptMessage(role="user", content=content) for content in make(params.arguments or {})]
        return types.GetPromptResult(description=prompt.description, messages=messages)

    _put(server, "prompts/list", listed)
    _put(server, "prompts/get", got)


class Kept(EventStore):
    """What was sent on every stream, so that a client that comes back gets what it missed."""

    def __init__(self) -> None:
        self._sent: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._sent.append((stream_id, message))
        return str(len(self._sent))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        place = int(last_event_id)
        stream, _ = self._sent[place - 1]
        for number, (each, message) in enumerate(self._sent[place:], place + 1):
            if each == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream
