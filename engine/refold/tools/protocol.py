"""What a tool is, what it is told when it runs, and what comes of it."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from refold.errors import RefoldError
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.memory.project import Project

OK: Final = "ok"
UNKNOWN_TOOL: Final = "unknown_tool"
INVALID_INPUT: Final = "invalid_input"
FORBIDDEN: Final = "forbidden"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"


class ToolFailed(RefoldError):
    """A tool could not do what it was asked for, though it was asked well; the model is told why."""


class ToolRefused(ToolFailed):
    """A tool refuses what it was asked for, and the model is told so in these very words."""


class ToolContext(Struct, frozen=True):
    """What the host, and never the model, says about a call: where it happens, and whether it is still wanted."""

    memory: Memory
    conversation: Conversation | None = None
    project_name: str = "default"
    profile_name: str = "default"
    journal_name: str = "default"
    is_cancelled: Callable[[], bool] | None = None
    files_name: str = "default"

    @property
    def project(self) -> Project:
        """A handle on the project whose memories the tools see."""
        return self.memory.project(self.project_name)

    def sources(self, *, opens: bool = True) -> tuple[Any, ...]:
        """Return the sources of what a tool writes: the conversation's events that led to the call.

        So an erasure of the conversation reaches it. With ``opens``, one that has no event yet is opened; what names
        the conversation is reached without.
        """
        return () if self.conversation is None else self.conversation.session.provenance(opens=opens)


@runtime_checkable
class Tool(Protocol):
    """What a model may call: how it is described, and what it does."""

    @property
    def name(self) -> str:
        """Letters, digits, ``_`` and ``-``, at most 64: what every provider takes."""
        ...

    @property
    def description(self) -> str:
        """What the tool does and when to use it, for the model."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments, an object."""
        ...

    @property
    def long_running(self) -> bool:
        """Whether a call may take long, so that a host runs it aside."""
        ...

    @property
    def annotations(self) -> Mapping[str, bool]:
        """Hints in the words of MCP: readOnlyHint, destructiveHint, idempotentHint, openWorldHint."""
        ...

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Return a text or a JSON value, or an awaitable of one; raise ``InvalidInput`` for wrong arguments."""
        ...


class FunctionTool(Struct, frozen=True):
    """A tool made of a function of the arguments and of the context; arguments are checked against the schema first.

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
    anthropic_type: str = ""
    """The type by which models of Anthropic know the tool already, for those that need no schema there."""

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Return what the function returns."""
        return self.function(arguments, context)


class ToolDefinition(Struct, frozen=True):
    """A registered tool as it is described to a model; ``schema`` is its parameters as JSON, the same bytes always."""

    name: str
    description: str
    schema: bytes
    long_running: bool = False
    hints: tuple[tuple[str, bool], ...] = ()
    anthropic_type: str = ""

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments, fresh at each access."""
        decoded: dict[str, Any] = msgspec.json.decode(self.schema)
        return decoded

    @property
    def annotations(self) -> dict[str, bool]:
        """The hints in the words of MCP."""
        return dict(self.hints)


class ToolResult(Struct, frozen=True):
    """What came of a call: a value where ``outcome`` is ok, else a message that says what is wrong.

    An outcome is one of ok, unknown_tool, invalid_input, forbidden, failed, cancelled.
    """

    name: str
    outcome: str
    packed: bytes = b"null"
    message: str = ""

    @property
    def is_error(self) -> bool:
        """Whether the call did not do what it was asked for."""
        return self.outcome != OK

    @property
    def value(self) -> Any:
        """What the tool returned, fresh at each access; ``None`` for an error."""
        return msgspec.json.decode(self.packed)

    @property
    def text(self) -> str:
        """What the model is given: a text as it is, another value as JSON, an error behind ``Error:``."""
        if self.is_error:
            return f"Error: {self.message}"
        return msgspec.json.decode(self.packed) if self.packed.startswith(b'"') else self.packed.decode()
