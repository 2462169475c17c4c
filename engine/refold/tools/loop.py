"""A small agent loop: a model, tools, hooks and the memory; recorded so that it runs again without the first three.

Everything that comes from outside ends up in the log: what the user said, what the model replied, what each tool was
given and gave back, what the model was shown. ``rerun``, in the next file, feeds that to the same loop elsewhere.
"""

from collections.abc import Sequence
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.errors import InvalidInput
from refold.limits import NAME_BYTES_MAX
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.message import Message
from refold.results import SessionSummary
from refold.tools.arguments import decoded
from refold.tools.hooks import Hooks
from refold.tools.limits import LOOP_STEPS_COUNT_DEFAULT, TOOL_NAME_CHARS_MAX
from refold.tools.points import HookContext
from refold.tools.protocol import ToolResult
from refold.tools.storable import storable

_ID_CHARS_MAX: Final = NAME_BYTES_MAX // 4
"""Characters of a call's id, four bytes each at most."""

INTERRUPTED: Final = "Error: the session was interrupted before this call came back"
"""What a model is told of a call that never got its answer; providers refuse a call without one."""

SKIPPED: Final = "skipped"
"""The outcome of a call that a hook answered in the place of the tool."""


class Call(Struct, frozen=True):
    """A tool call of a model; ``arguments`` are JSON as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class Reply(Struct, frozen=True):
    """What a model said, and which tools it calls."""

    text: str | None = None
    calls: tuple[Call, ...] = ()


class Model(Protocol):
    """What the loop asks of a model."""

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:
        """Return the reply to messages, in OpenAI's form, with these tools at hand."""
        ...


class Turn(Struct, frozen=True):
    """What came of one message of the user: the last text, how often the model was asked, why it stopped if it did."""

    text: str
    steps: int
    stop_reason: str | None = None


class Executed(NamedTuple):
    """A call that was made, and what the model gets of it."""

    result: ToolResult
    output: str


class AgentLoop:
    """One session of an agent; its state is the conversation's, so that another loop may go on with it.

    >>> from refold import Memory
    >>> class Parrot:
    ...     def reply(self, messages, tools):
    ...         return Reply(messages[-1]["content"])
    >>> memory = Memory()
    >>> AgentLoop(memory, memory.conversation("chat-42"), Parrot()).run("Hello!").text
    'Hello!'
    """

    def __init__(
        self,
        memory: Memory,
        chat: Conversation,
        model: Model,
        *,
        hooks: Hooks | None = None,
        steps_count_max: int = LOOP_STEPS_COUNT_DEFAULT,
    ) -> None:
        self.memory = memory
        self.chat = chat
        self._model = model
        self._hooks = memory.hooks if hooks is None else hooks
        self._steps_count_max = checks.count(steps_count_max, "steps_count_max")
        self._told: HookContext = replace(self._hooks.context(chat), deferred=[])
        self._tools = memory.tools.context(chat, project=self._told.project)

    def run(self, text: str) -> Turn:
        """Let the model answer a message of the user, with as many calls of tools as it makes; return what it said.

        It is asked at most ``steps_count_max`` times. What a tool or a hook does wrong is part of the session; what the
        model's provider raises, this raises, and everything up to there is recorded.
        """
        if self.chat.version == 0:
            self._hooks.fire_session_start(self._told)
        heard = self._hooks.fire_user_message(self._told, checks.text(text, "text"))
        if heard.stop_reason is not None:
            self._hooks.fire_deferred(self._told, ())
            return Turn("", 0, heard.stop_reason)
        changed = text if heard.modified_message is None else heard.modified_message
        self._answer_interrupted()
        message = self._append("user", changed, metadata=None if changed == text else {"original": text})
        self._hooks.fire_deferred(self._told, [message])
        said = ""
        for step in range(1, self._steps_count_max + 1):
            reply, block_reason = self._asked(changed)
            said = reply.text or ""
            if block_reason is not None or not reply.calls:
                return Turn(said, step, block_reason)
            stop_reason = self._call_all(reply.calls)
            self.chat.end_round()
            if stop_reason is not None:
                return Turn(said, step, stop_reason)
        return Turn(said, self._steps_count_max, f"the model called tools in each of {self._steps_count_max} steps")

    def end(self, *, success: bool = True) -> SessionSummary:
        """Say that the session is over; return what it was. The scratchpad is gone afterwards."""
        summary = self.chat.session.summary(success=success)
        self._hooks.fire_session_end(self._told, summary)
        self.chat.end()
        return summary

    def _asked(self, query: str) -> tuple[Reply, str | None]:
        """Return the model's reply, as it is recorded, and why it was blocked if it was."""
        context = self.memory.context(self.chat, query=query, project=self._told.project)
        self.memory.show(context)
        messages = self._hooks.fire_before_llm(self._told, context.messages())
        reply = _usable(self._model.reply(messages, self.memory.tools.to_openai()))
        after = self._hooks.fire_after_llm(self._told, reply.text or "")
        text = reply.text if after.replacement_text is None else after.replacement_text
        calls = () if after.block_reason is not None else reply.calls
        functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
        made = [
            {"id": call.id, "type": "function", "function": function}
            for call, function in zip(calls, functions, strict=True)
        ]
        self._append("assistant", text, tool_calls=made or None)
        return Reply(text, calls), after.block_reason

    def _call_all(self, calls: Sequence[Call]) -> str | None:
        """Make the calls one after the other; return why the session stops if a hook says so."""
        stop_reason = None
        for call in calls:
            executed = self._called(call)
            after = self._hooks.fire_after_tool(self._told, call.name, executed.result)
            output = executed.output if after.replacement_output is None else after.replacement_output
            if after.injected_context is not None:
                output = f"{output}\n{after.injected_context}"
            self._append("tool", output, tool_call_id=call.id, name=call.name)
            stop_reason = stop_reason or after.block_reason
        return stop_reason

    def _called(self, call: Call) -> Executed:
        """Make one call, unless a hook skips it, and record it in any case."""
        before = self._hooks.fire_before_tool(self._told, call.name, _readable(call.arguments))
        if before.skip:
            output = before.output if before.output is not None else f"Error: {before.skip_reason or 'skipped'}"
            result = ToolResult(call.name, SKIPPED, msgspec.json.encode(output), output)
            self.chat.session.record_call(
                call.name,
                _readable(call.arguments),
                output,
                outcome=SKIPPED,
                call_id=call.id,
                sources=self.chat.session.provenance(),
            )
            return Executed(result, output)
        arguments: object = call.arguments if before.modified_arguments is None else before.modified_arguments
        result = self._execute(call, arguments)
        return Executed(result, result.text)

    def _execute(self, call: Call, arguments: object) -> ToolResult:
        return self.memory.tools.execute(call.name, arguments, self._tools, record=True, call_id=call.id)

    def _answer_interrupted(self) -> None:
        """Answer the calls at the end of the window that a process that ended left open."""
        answered: set[str | None] = set()
        for message in reversed(self.chat.window()):
            if message.role == "tool":
                answered.add(message.tool_call_id)
            else:
                for call in calls_of(message.tool_calls):
                    if call.id not in answered:
                        self._append("tool", INTERRUPTED, tool_call_id=call.id, name=call.name)
                return

    def _append(self, role: str, content: str | None, **fields: Any) -> Message:
        """Append a message, and tell the hooks what it pushed out of the window."""
        message = self.chat.append(role, content, **fields)
        self._hooks.compacted(self._told, message.seq)
        return message


def calls_of(made: Sequence[dict[str, Any]] | None) -> tuple[Call, ...]:
    """Return the calls of a recorded message; one that another host wrote may lack any part of it."""
    found: list[Call] = []
    for call in made or ():
        said = call.get("function")
        function = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        found.append(
            _usable_call(Call(call.get("id") or "", function.get("name") or "", function.get("arguments") or ""))
        )
    return tuple(found)


def _usable(reply: object) -> Reply:
    """Return a reply whose ids, names and texts can be recorded; ``InvalidInput`` for what is none."""
    if not isinstance(reply, Reply) or not isinstance(cast("object", reply.text), (str, NoneType)):
        checks.invalid(f"a model's reply must be a Reply with a text or None, not {checks.shown(reply)}")
    calls = reply.calls if isinstance(cast("object", reply.calls), (tuple, list)) else (reply.calls,)
    text = None if reply.text is None else storable(reply.text, len(reply.text))
    return Reply(text, tuple(_usable_call(call) for call in calls))


def _usable_call(call: object) -> Call:
    if not isinstance(call, Call):
        checks.invalid(f"a reply's calls must be a tuple of Call, not {checks.shown(call)}")
    said = cast("object", call.arguments)
    try:
        arguments = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        arguments = ""
    return Call(
        storable(call.id or "", _ID_CHARS_MAX),
        storable(call.name or "", TOOL_NAME_CHARS_MAX),
        storable(arguments, len(arguments)),
    )


def _readable(arguments: str) -> dict[str, Any]:
    """Return arguments as hooks see them; what is no JSON object counts as none."""
    try:
        return decoded(arguments)
    except InvalidInput:
        return {}
