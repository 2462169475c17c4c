"""Tools: their definitions for each provider, the registry that calls them, and the check of their arguments."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast, get_type_hints, runtime_checkable

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from refold import checks
from refold.agent.arguments import check_arguments, check_schema, decode_arguments, with_integers
from refold.engine import batch as batches
from refold.errors import InvalidInput, LimitExceeded, NotFound, ReadOnly, RefoldError, logger
from refold.limits import (
    ACTOR_BYTES_MAX,
    NAME_BYTES_MAX,
    SOURCES_COUNT_MAX,
    TOOL_MESSAGE_CHARS_MAX,
    TOOL_NAME_CHARS_MAX,
    TOOL_RESULT_BYTES_MAX,
    TOOL_SCHEMA_BYTES_MAX,
    TOOLS_COUNT_MAX,
)
from refold.memory.conversation import Conversation, check_own
from refold.memory.core import core_of
from refold.memory.memory import Memory
from refold.memory.project import Project
from refold.message import Message

F = TypeVar("F", bound=Callable[..., Any])


# Text from models, tools and hooks, made safe to store and show.


def storable_text(value: object, chars_max: int = TOOL_MESSAGE_CHARS_MAX) -> str:
    r"""Render a value as valid Unicode of at most `chars_max` characters.

    >>> storable_text("caf\udce9"), storable_text(ValueError("no"))
    ('caf?', 'no')
    """
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - a foreign __str__ can fail in any way
        text = checks.brief(value)
    cut = text if len(text) <= chars_max else f"{text[: chars_max - 3]}..."
    return cut.encode("utf-8", "replace").decode()


def is_storable(text: str) -> bool:
    """Return whether a text is valid Unicode, without lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Tools and their results.

OK: Final = "ok"
UNKNOWN_TOOL: Final = "unknown_tool"
INVALID_INPUT: Final = "invalid_input"
FORBIDDEN: Final = "forbidden"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"


def actor_of(kind: str, name: object) -> str:
    r"""Name an actor of a kind, such as hook or mcp, after an untrusted name.

    >>> actor_of("mcp", "an\neditor"), actor_of("mcp", "")
    ('mcp:aneditor', 'mcp')
    """
    text = "".join(filter(str.isprintable, storable_text(name, ACTOR_BYTES_MAX)))
    cut = text.encode()[: ACTOR_BYTES_MAX - len(f"{kind}:")].decode(errors="ignore")
    return f"{kind}:{cut}" if cut else kind


class ToolFailed(RefoldError):
    """A tool could not do its job although the call was valid; the model gets the message."""


class ToolRefused(ToolFailed):
    """A tool refuses a call; the model gets the message verbatim."""


class ToolContext(Struct, frozen=True):
    """Where a call happens and whether it is cancelled; set by the host, never by the model."""

    memory: Memory
    conversation: Conversation | None = None
    project_name: str = "default"
    profile_name: str = "default"
    journal_name: str = "default"
    is_cancelled: Callable[[], bool] | None = None
    files_name: str = "default"
    actor: str = ""
    """The actor of the call's writes; empty for the tool itself."""
    shown: list[Any] | None = None
    """The sources that the current call cited; `None` outside a call."""
    user_name: str | None = None
    """The name of the user whose turn it is, with which memories are added."""

    @property
    def project(self) -> Project:
        """The project whose memories the tools see."""
        return self.memory.project(self.project_name)

    def sources(self, *, opens: bool = True) -> tuple[Any, ...]:
        """Return the conversation's events that led to the call, so that erasing them reaches what the tool writes.

        `opens` opens a conversation that has no events yet; a write that names the conversation itself does not need
        that.
        """
        return () if self.conversation is None else self.conversation.session.provenance(opens=opens)

    def cite(self, sources: Sequence[Any]) -> None:
        """Cite the seqs or results that this call shows, so that erasing one of them also reaches the call's result.

        Only the last `SOURCES_COUNT_MAX` count.
        """
        core, _ = core_of(self.memory)
        if not isinstance(cast("object", sources), Sequence) or isinstance(sources, (str, bytes)):
            checks.invalid(f"cite takes a list of seqs or results, not {type(sources).__name__}")
        batch = batches.active_batch(core.engine)
        written = 0 if batch is None else len(batch.transaction)
        # Events written in an open batch have no seq yet, so the event itself is cited.
        last = [
            core.event(each) if isinstance(each, int) and -written <= each < 0 else each
            for each in sources[-SOURCES_COUNT_MAX:]
        ]
        seqs = core.sources(last)
        if self.shown is not None:
            self.shown.extend(last if min(seqs, default=1) < 1 else dict.fromkeys(seqs))


@runtime_checkable
class Tool(Protocol):
    """A function that a model can call, with its description."""

    @property
    def name(self) -> str:
        """The name: at most 64 letters, digits, `_` and `-`, which every provider accepts."""
        ...

    @property
    def description(self) -> str:
        """The tool's purpose and when to use it, for the model."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments, which must be an object."""
        ...

    @property
    def long_running(self) -> bool:
        """Whether a call can take so long that a host should run it in the background."""
        ...

    @property
    def annotations(self) -> Mapping[str, bool]:
        """The MCP hints: readOnlyHint, destructiveHint, idempotentHint, openWorldHint."""
        ...

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Return a text or a JSON value, or an awaitable of one; raise `InvalidInput` for wrong arguments."""
        ...


class FunctionTool(Struct, frozen=True):
    """A tool made from a function of the arguments and the context.

    >>> add = FunctionTool("add", "Add two numbers.", {"type": "object"}, lambda given, _: given["a"] + given["b"])
    >>> add.execute({"a": 1, "b": 2}, None)
    3
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[[dict[str, Any], ToolContext], Any]
    long_running: bool = False
    annotations: Mapping[str, bool] = {}
    anthropic_type: str = ""  # The type of a tool that Anthropic models know without a schema.

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the function."""
        return self.function(arguments, context)


_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _tool_of(function: Callable[..., Any]) -> FunctionTool:
    """Make a tool from a typed function, as registered by `ToolRegistry.tool`."""
    if not inspect.isroutine(function) and not inspect.isclass(function):
        checks.invalid(f"a tool is made of a function, not {type(function).__name__}; define one, with def")
    name = function.__name__
    fields: list[Any] = []
    contexts: list[str] = []
    omitted: set[str] = set()  # The parameters for which null means that the default applies.
    try:
        hints = get_type_hints(function, include_extras=True)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in _NAMED or parameter.name not in hints:
                lacks, field = "a type" if parameter.kind in _NAMED else "a name for models", parameter.name
                checks.invalid(f"the parameter {parameter} of {name} lacks {lacks}; write it like {name}({field}: str)")
            if hints[parameter.name] is ToolContext:
                contexts.append(parameter.name)
            elif parameter.default is parameter.empty:
                fields.append((parameter.name, hints[parameter.name]))
            else:
                fields.append((parameter.name, hints[parameter.name], parameter.default))
                if not _takes_null(hints[parameter.name]):
                    omitted.add(parameter.name)
        kind = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
        (_,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    except InvalidInput:
        raise
    except (TypeError, NameError, ValueError) as error:
        reason = str(error).rpartition("\n")[2]  # The lines above are advice to authors of schemas.
        raise InvalidInput(f"no schema can be made for {name}: {reason}; give its parameters other types") from error
    schema = {key: value for key, value in parts.pop(kind.__name__).items() if key != "title"}
    text = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")

    def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        values = {field: value for field, value in arguments.items() if value is not None or field not in omitted}
        try:
            converted = msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            raise InvalidInput(str(error)) from None
        return function(**asdict(converted), **dict.fromkeys(contexts, context))

    return FunctionTool(name, text, schema | ({"$defs": parts} if parts else {}), call)


def _takes_null(hint: Any) -> bool:
    """Return whether a parameter of a type takes null as a value."""
    try:
        msgspec.convert(None, hint)
    except msgspec.ValidationError:
        return False
    return True


class ToolDefinition(Struct, frozen=True):
    """A registered tool as described to models; `schema` is its parameters as JSON, always the same bytes."""

    name: str
    description: str
    schema: bytes
    long_running: bool = False
    hints: tuple[tuple[str, bool], ...] = ()
    anthropic_type: str = ""

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments, decoded anew at each access."""
        decoded: dict[str, Any] = msgspec.json.decode(self.schema)
        return decoded

    @property
    def annotations(self) -> dict[str, bool]:
        """The MCP hints."""
        return dict(self.hints)


class ToolResult(Struct, frozen=True):
    """The result of a call: a value if `outcome` is ok, else an error message.

    An outcome is one of ok, unknown_tool, invalid_input, forbidden, failed, cancelled. A message with the result cites
    its `sources`: the record of the call, or the tool's own citations if the call is not recorded.
    """

    name: str
    outcome: str
    packed: bytes = b"null"
    message: str = ""
    sources: tuple[Any, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether the call failed in any way."""
        return self.outcome != OK

    @property
    def value(self) -> Any:
        """The value that the tool returned, decoded anew at each access; `None` for an error."""
        return msgspec.json.decode(self.packed)

    @property
    def text(self) -> str:
        """The text for the model: a string as it is, another value as JSON, an error after `Error:`."""
        if self.is_error:
            return f"Error: {self.message}"
        return msgspec.json.decode(self.packed) if self.packed.startswith(b'"') else self.packed.decode()


# The registry.

_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{TOOL_NAME_CHARS_MAX}}}")
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class _UnknownTool(RefoldError):
    pass


class _CancelledError(RefoldError):
    pass


class _EventLoopError(RefoldError):
    """An asynchronous tool was called where it cannot run: a mistake of the host, which no model can correct."""


# The outcome of a call that raised, and the prefix of its message; any other exception is a failed execution.
_OUTCOMES: Final[tuple[tuple[type[Exception], str, str], ...]] = (
    (_UnknownTool, UNKNOWN_TOOL, ""),
    (_CancelledError, CANCELLED, ""),
    (ToolRefused, INVALID_INPUT, ""),
    (InvalidInput, INVALID_INPUT, "invalid input: "),
    (LimitExceeded, INVALID_INPUT, "invalid input: "),
    (NotFound, INVALID_INPUT, "invalid input: "),
    (ReadOnly, FORBIDDEN, "forbidden: "),
)


class _ToolEntry(NamedTuple):
    definition: ToolDefinition
    tool: Tool
    schema: dict[str, Any] | None  # The schema to check arguments against; `None` if the tool checks them itself.


class ToolRegistry:
    """The tools of one memory: registering them, describing them to models, and calling them.

    >>> from refold import Memory
    >>> memory = Memory()
    >>> memory.tools.execute("memory_set", {"key": "theme", "value": "dark"}).value["status"]
    'ok'
    >>> add = FunctionTool("add", "Add two numbers.", {"type": "object"}, lambda given, _: given["a"] + given["b"])
    >>> memory.tools.register(add).name, memory.tools.execute("add", {"a": 1, "b": 2}).text
    ('add', '3')
    """

    __slots__ = ("_memory", "_tools")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._tools: dict[str, _ToolEntry] = {}

    def __repr__(self) -> str:
        return f"ToolRegistry({', '.join(self._tools)})"

    def register(self, tool: Tool, *, checked: bool = True) -> ToolDefinition:
        """Register a tool and return its definition, which later changes to the tool do not affect.

        `checked=False` leaves checking the arguments to the tool. Raises `InvalidInput` for an object that is not a
        tool, and for a name that is already registered or that some provider rejects; `LimitExceeded` over
        `TOOLS_COUNT_MAX`.
        """
        if not isinstance(cast("object", tool), Tool):
            checks.invalid(
                f"a tool has a name, a description, parameters and execute, which {checks.brief(tool)} lacks"
            )
        definition = _definition(tool)
        if definition.name in self._tools:
            checks.invalid(f"a tool named {definition.name!r} is registered; unregister it first, or give another name")
        if len(self._tools) >= TOOLS_COUNT_MAX:
            raise LimitExceeded(f"{TOOLS_COUNT_MAX = } tools are registered; unregister one first")
        self._tools[definition.name] = _ToolEntry(definition, tool, definition.parameters if checked else None)
        return definition

    def tool(self, function: F) -> F:
        """Register a typed function as a tool, and return it: a decorator.

        The model gets its name, the first paragraph of its docstring, and a schema of its parameters. Argument values
        are checked and converted by the parameter types; `null` for a parameter with a default means the default,
        unless its type takes `None`. `Annotated` with a `msgspec.Meta` describes a parameter. A parameter of type
        `ToolContext` gets the context. Raises `InvalidInput` for parameters without a type, and for positional-only or
        variadic ones.

        >>> from refold import Memory
        >>> memory = Memory()
        >>> @memory.tools.tool
        ... def weather(city: str) -> str:
        ...     "Tell the weather of a city."
        ...     return f"{city}: rain"
        >>> memory.tools.execute("weather", {"city": "Oslo"}).text
        'Oslo: rain'
        """
        self.register(_tool_of(function))
        return function

    def unregister(self, name: str) -> Tool | None:
        """Remove a tool and return it, or `None` for an unknown name."""
        tool = self.get(name)
        if tool is not None:
            del self._tools[name]
        return tool

    def get(self, name: str) -> Tool | None:
        """Return a tool by its name, or `None` for an unknown name."""
        entry = self._tools.get(name) if isinstance(cast("object", name), str) else None
        return None if entry is None else entry.tool

    def names(self) -> list[str]:
        """List the names in the order of registration."""
        return list(self._tools)

    def definitions(self) -> list[ToolDefinition]:
        """List the definitions in the order of registration."""
        return [entry.definition for entry in tuple(self._tools.values())]

    def context(
        self,
        conversation: Conversation | None = None,
        *,
        project: str | None = None,
        profile: str = "default",
        journal: str = "default",
        files: str = "default",
        is_cancelled: Callable[[], bool] | None = None,
        actor: str = "",
        user_name: str | None = None,
    ) -> ToolContext:
        """Return the context of a call; the project defaults to the conversation's, else to `"default"`.

        The actor of the call's writes is `tool:NAME`, or the given `actor`. `user_name` is recorded with memories that
        the call adds, and memories that another user said cannot be changed.
        """
        if conversation is not None and not isinstance(cast("object", conversation), Conversation):
            checks.invalid(f"conversation must be a Conversation, not {checks.brief(conversation)}")
        name = project
        if conversation is not None:
            check_own(core_of(self._memory)[0], conversation)
            name = conversation.project if name is None else name
        for each in (profile, journal, files):
            checks.name(each, "name")
        if user_name is not None:
            checks.name(user_name, "user_name")
        name = name or "default"
        return ToolContext(
            self._memory, conversation, name, profile, journal, is_cancelled, files, actor, user_name=user_name
        )

    # Definitions in each provider's format: the same bytes whenever the tools are the same.

    def to_openai(self) -> list[dict[str, Any]]:
        """Describe the tools for OpenAI's chat completions and compatible providers."""
        return [{"type": "function", "function": _function(definition)} for definition in self.definitions()]

    def to_openai_responses(self) -> list[dict[str, Any]]:
        """Describe the tools for OpenAI's Responses API."""
        return [{"type": "function", **_function(definition)} for definition in self.definitions()]

    def to_anthropic(self, *, cache: bool = False) -> list[dict[str, Any]]:
        """Describe the tools for Anthropic's messages; `cache` marks the last one, so that the provider caches all."""
        tools: list[dict[str, Any]] = [
            {"type": definition.anthropic_type, "name": definition.name}
            if definition.anthropic_type
            else _function(definition, "input_schema")
            for definition in self.definitions()
        ]
        if cache and tools:
            tools[-1]["cache_control"] = {"type": "ephemeral"}
        return tools

    def to_ollama(self) -> list[dict[str, Any]]:
        """Describe the tools for Ollama's chat."""
        return self.to_openai()

    def to_gemini(self) -> list[dict[str, Any]]:
        """Describe the tools for Gemini's `generateContent`, as the value of its `tools` field."""
        functions = [_function(definition, "parametersJsonSchema") for definition in self.definitions()]
        return [{"functionDeclarations": functions}] if functions else []

    def to_mcp(self) -> list[dict[str, Any]]:
        """Describe the tools for a Model Context Protocol server, with their hints."""
        return [
            _function(definition, "inputSchema") | ({"annotations": definition.annotations} if definition.hints else {})
            for definition in self.definitions()
        ]

    def execute(
        self,
        name: str,
        arguments: object = None,
        context: ToolContext | None = None,
        *,
        record: bool = False,
        call_id: str = "",
    ) -> ToolResult:
        """Call a tool and return its result; failures of the model or the tool never raise.

        `arguments` is a dict, or JSON as the model wrote it. `context` comes from `context(...)`. `record` writes the
        call, its result and `call_id` as an event of the context's conversation, which is then required; nothing is
        recorded of a call whose message is erased while the tool runs. An asynchronous tool runs to completion; if an
        event loop is running on this thread, that raises `InvalidInput`.
        """
        call = _CallRecord(context, arguments, call_id) if record else None
        shown = list[Any]()
        try:
            with self.acting(name, context, call_id):
                value = self._begin(name, arguments, context, call, shown)
                result = _result(name, _run(name, value) if inspect.isawaitable(value) else value)
        except _EventLoopError as error:
            raise InvalidInput(str(error)) from None
        except Exception as error:  # noqa: BLE001 - a tool can fail in any way, and the model gets the reason
            result = _error_result(name, error)
        if call is None:
            return replace(result, sources=tuple(shown)[-SOURCES_COUNT_MAX:])
        with self.acting(name, context, call_id):
            return call.write(result, shown)

    async def execute_async(
        self,
        name: str,
        arguments: object = None,
        context: ToolContext | None = None,
        *,
        record: bool = False,
        call_id: str = "",
    ) -> ToolResult:
        """Call a tool as `execute` does, and await it; a synchronous tool runs on another thread."""
        from asyncio import to_thread  # noqa: PLC0415 - loaded only if used

        call = _CallRecord(context, arguments, call_id) if record else None
        shown = list[Any]()
        try:
            with self.acting(name, context, call_id):
                value = await to_thread(self._begin, name, arguments, context, call, shown)
                result = _result(name, await value if inspect.isawaitable(value) else value)
        except Exception as error:  # noqa: BLE001 - as above
            result = _error_result(name, error)
        if call is None:
            return replace(result, sources=tuple(shown)[-SOURCES_COUNT_MAX:])
        with self.acting(name, context, call_id):
            return await to_thread(call.write, result, shown)

    def acting(self, name: str, context: ToolContext | None = None, call_id: str = "") -> AbstractContextManager[None]:
        """Return a context manager that attributes writes to a call, with the message that requested it as their cause.

        An unregistered name is not used as an actor, because a model can make up any number of names.
        """
        is_known = isinstance(cast("object", name), str) and name in self._tools
        actor = f"tool:{name}" if is_known else "tool"
        if not isinstance(context, ToolContext):
            return self._memory.acting(actor)
        return context.memory.acting(context.actor or actor, cause=_cause(context, call_id))

    def _begin(
        self, name: str, arguments: object, context: ToolContext | None, call: "_CallRecord | None", shown: list[Any]
    ) -> Any:
        entry = self._tools.get(name) if isinstance(cast("object", name), str) else None
        if entry is None:
            raise _UnknownTool(f"unknown tool '{storable_text(name, TOOL_NAME_CHARS_MAX)}'")
        decoded = decode_arguments(arguments, entry.definition.schema)
        if call is not None and call.error is not None:
            raise call.error
        if context is None:
            context = ToolContext(self._memory)
        if context.is_cancelled is not None and context.is_cancelled():
            raise _CancelledError("cancelled")
        if entry.schema is not None:
            decoded = with_integers(decoded, entry.schema)
            check_arguments(decoded, entry.schema)
        return entry.tool.execute(decoded, replace(context, shown=shown))


def _cause(context: ToolContext, call_id: str) -> int | None:
    """Return the seq of the message that requested a call; `None` if no message did, or if its batch is still open."""
    for message in context.sources(opens=False):
        called = message.event.call_ids if isinstance(message, Message) else ()
        if call_id in called or (called and not call_id):
            seq: int | None = message.seq
            return seq
    return None


def _definition(tool: Tool) -> ToolDefinition:
    name = checks.text(tool.name, "a tool's name")
    if _NAME.fullmatch(name) is None:
        rule = f"letters, digits, _ and -, at most {TOOL_NAME_CHARS_MAX = }"
        checks.invalid(f"no provider takes {checks.brief(name)} as a tool's name; use {rule}")
    description = checks.text(tool.description, f"the description of {name}")
    for mapping, what in ((tool.parameters, "parameters"), (tool.annotations, "annotations")):
        if not isinstance(cast("object", mapping), Mapping):
            checks.invalid(f"the {what} of {name} must be a mapping, not {checks.brief(mapping)}")
    schema = dict(tool.parameters)
    checks.json_object(schema, f"the parameters of {name}")
    if schema.get("type", "object") != "object":
        checks.invalid(f"the parameters of {name} are of type {checks.brief(schema['type'])}; make them an object")
    check_schema(schema, f"the parameters of {name}")
    encoded = msgspec.json.encode({"type": "object", "properties": {}} | schema)
    if len(encoded) > TOOL_SCHEMA_BYTES_MAX:
        raise LimitExceeded(f"the parameters of {name} are {len(encoded)} bytes, over {TOOL_SCHEMA_BYTES_MAX = }")
    hints = tuple((hint, bool(tool.annotations[hint])) for hint in _HINTS if hint in tool.annotations)
    anthropic_type = checks.text(getattr(tool, "anthropic_type", ""), f"the type of {name}")
    return ToolDefinition(name, description, encoded, tool.long_running, hints, anthropic_type)


def _function(definition: ToolDefinition, key: str = "parameters") -> dict[str, Any]:
    return {"name": definition.name, "description": definition.description, key: definition.parameters}


class _CallRecord:
    """The record of one call: mistakes of the host raise before the tool runs, failures of the tool never raise."""

    __slots__ = ("_arguments", "_call_id", "_chat", "_sources", "error")

    def __init__(self, context: ToolContext | None, arguments: object, call_id: object) -> None:
        if not isinstance(context, ToolContext) or context.conversation is None:
            checks.invalid("record=True needs a conversation to record in; give context=memory.tools.context(chat)")
        self._chat = context.conversation
        self._chat.session.check_writable()
        self._sources = self._chat.session.provenance(opens=False)
        self._call_id = checks.text(call_id, "call_id", NAME_BYTES_MAX, "NAME_BYTES_MAX")
        self._arguments: Any = {}
        self.error: RefoldError | None = None  # Why the log cannot hold the arguments, then recorded as empty.
        try:
            # A copy, because the tool can change its arguments.
            copied = msgspec.json.decode(msgspec.json.encode(decode_arguments(arguments)))
            checks.packed_json(copied, "arguments")
            self._arguments = copied
        except RefoldError as error:
            self.error = error

    def write(self, result: ToolResult, shown: Sequence[Any]) -> ToolResult:
        if not result.is_error:
            try:
                checks.packed_json(result.value, "the result")
            except RefoldError as error:
                result = _failure(result.name, error)
        if self._is_erased():
            return result
        stamp = self._chat.session.record_call(
            result.name or "(none)",
            self._arguments,
            result.message if result.is_error else result.value,
            outcome=result.outcome,
            call_id=self._call_id,
            sources=(*shown, *self._sources)[-SOURCES_COUNT_MAX:],
        )
        return replace(result, sources=(stamp,) if stamp.seq < 0 else (stamp.seq,))

    def _is_erased(self) -> bool:
        """Return whether what led to the call was erased while the tool ran: a record would begin it anew."""
        core, _ = core_of(self._chat)
        return any(core.event(seq)[1].erased for seq in core.sources(self._sources) if seq > 0)


def _result(name: str, value: object) -> ToolResult:
    try:
        packed = checks.json_text(value, f"the result of {name}")
    except InvalidInput as error:
        return _failure(name, error)
    except UnicodeEncodeError as error:
        problem = f"execution failed: {name} returned a text with {error.object[error.start]!r}, which is no Unicode"
        return ToolResult(name, FAILED, message=f"{problem}; decode bytes with errors='replace'")
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        problem = f"execution failed: {name} returned a {type(value).__name__}, which is no JSON value"
        return ToolResult(name, FAILED, message=problem)
    if len(packed) > TOOL_RESULT_BYTES_MAX:
        bound = f"{TOOL_RESULT_BYTES_MAX = :,}"
        return ToolResult(name, FAILED, message=f"execution failed: the result is {len(packed):,} bytes, over {bound}")
    return ToolResult(name, OK, packed)


def _error_result(name: str, error: Exception) -> ToolResult:
    recorded_name = storable_text(name, TOOL_NAME_CHARS_MAX)
    for kind, outcome, prefix in _OUTCOMES:
        if isinstance(error, kind):
            return ToolResult(recorded_name, outcome, message=f"{prefix}{storable_text(error)}")
    if not isinstance(error, ToolFailed):
        logger().warning("tool %s raised", name, exc_info=error)
    return _failure(recorded_name, error)


def _failure(name: str, error: Exception) -> ToolResult:
    return ToolResult(name, FAILED, message=f"execution failed: {storable_text(error) or type(error).__name__}")


def _run(name: str, value: Any) -> Any:
    import asyncio  # noqa: PLC0415 - as above

    async def wait() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    if inspect.iscoroutine(value):
        value.close()
    raise _EventLoopError(
        f"the tool {name!r} is asynchronous, and an event loop runs on this thread; await tools.execute_async(...) "
        f"instead, or run an AgentLoop on another thread: await asyncio.to_thread(loop.run, text)"
    )
