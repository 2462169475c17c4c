"""A small agent loop: a model, tools, hooks and the memory; recorded so that it runs again without the first three.

Everything that comes from outside ends up in the log: what the user said, what the model replied, what each tool was
given and gave back, what the model was shown. ``rerun`` feeds that to the same loop in another memory.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import msgspec
from msgspec import Struct

from refold import checks
from refold.errors import InvalidInput
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.message import Message, MessageAppended
from refold.results import SessionSummary
from refold.tools import points
from refold.tools.arguments import decoded
from refold.tools.builtin import BUILT_IN_NAMES
from refold.tools.filing import files_tool
from refold.tools.hooks import Hooks
from refold.tools.limits import LOOP_STEPS_COUNT_DEFAULT
from refold.tools.points import HookContext
from refold.tools.protocol import ToolResult
from refold.views.work import ToolExecuted

SKIPPED = "skipped"
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


class _Executed(NamedTuple):
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
        self._told: HookContext = self._hooks.context(chat)
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
            return Turn("", 0, heard.stop_reason)
        changed = text if heard.modified_message is None else heard.modified_message
        self._append("user", changed, metadata=None if changed == text else {"original": text})
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
        reply = self._model.reply(messages, self.memory.tools.to_openai())
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

    def _called(self, call: Call) -> _Executed:
        """Make one call, unless a hook skips it, and record it in any case."""
        before = self._hooks.fire_before_tool(self._told, call.name, _readable(call.arguments))
        if before.skip:
            output = before.output if before.output is not None else f"Error: {before.skip_reason or 'skipped'}"
            result = ToolResult(call.name, SKIPPED, msgspec.json.encode(output), output)
            self.chat.session.record_call(
                call.name, _readable(call.arguments), output, outcome=SKIPPED, call_id=call.id
            )
            return _Executed(result, output)
        arguments: object = call.arguments if before.modified_arguments is None else before.modified_arguments
        result = self._execute(call, arguments)
        return _Executed(result, result.text)

    def _execute(self, call: Call, arguments: object) -> ToolResult:
        return self.memory.tools.execute(call.name, arguments, self._tools, record=True, call_id=call.id)

    def _append(self, role: str, content: str | None, **fields: Any) -> Message:
        """Append a message, and tell the hooks what it pushed out of the window."""
        message = self.chat.append(role, content, **fields)
        self._hooks.compacted(self._told, message.seq)
        return message


def _readable(arguments: str) -> dict[str, Any]:
    """Return arguments as hooks see them; what is no JSON object counts as none."""
    try:
        return decoded(arguments)
    except InvalidInput:
        return {}


# A session again, without its model and its tools.


class _Recording:
    """What came from outside in a recorded session, each thing handed out once, in its order."""

    def __init__(self, chat: Conversation) -> None:
        self.turns: list[tuple[str, str, int]] = []
        """What the user was heard to say, what they said, and how often the model was asked then."""
        self.replies: deque[MessageAppended] = deque()
        self.outputs: deque[MessageAppended] = deque()
        self.calls: deque[ToolExecuted] = deque()
        for event, _ in chat.events():
            if isinstance(event, ToolExecuted):
                self.calls.append(event)
            elif isinstance(event, MessageAppended):
                self._hear(event)

    def _hear(self, event: MessageAppended) -> None:
        if event.role == "user":
            heard = event.text or ""
            self.turns.append((heard, (event.metadata or {}).get("original", heard), 0))
        elif event.role == "assistant" and self.turns:
            self.replies.append(event)
            heard, said, steps = self.turns[-1]
            self.turns[-1] = (heard, said, steps + 1)
        elif event.role == "tool":
            self.outputs.append(event)

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:  # noqa: ARG002 - a model's
        """Return what the model said."""
        event = _next(self.replies, "reply")
        made = cast("list[dict[str, Any]]", event.tool_calls or [])
        calls = (Call(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in made)
        return Reply(event.text, tuple(calls))


class _Rerun(AgentLoop):
    """The same loop with what was recorded in the place of hooks and of tools; those of the memory itself run."""

    recording: _Recording

    def _called(self, call: Call) -> _Executed:
        made = _next(self.recording.calls, "call")
        output = _next(self.recording.outputs, "output").text or ""
        arguments, told = msgspec.json.decode(made.arguments), msgspec.json.decode(made.result)
        if made.outcome != SKIPPED and self._is_of_memory(made.name):
            return _Executed(self._execute(call, arguments), output)
        self.chat.session.record_call(made.name, arguments, told, outcome=made.outcome, call_id=made.call_id)
        return _Executed(ToolResult(made.name, made.outcome, made.result), output)

    def _is_of_memory(self, name: str) -> bool:
        """Return whether a tool changes nothing but the memory; that of files does where it is registered."""
        return name in BUILT_IN_NAMES or self.memory.tools.get(name) is files_tool()


def rerun(chat: Conversation, memory: Memory, *, ended: bool = False) -> Conversation:
    """Run a recorded session again in another memory, without its model and its tools; return the conversation there.

    The other memory should be as the first one was when the session began. The tools of the memory itself run, that of
    files if it is registered there too; all others answer what they answered. Hooks are not called: what they changed
    is in the record. Raises ``InvalidInput`` where the other memory has the conversation already, or where the record
    is not one of this loop.
    """
    again = memory.conversation(chat.id, project=chat.project, window_tokens=chat.window_tokens)
    if again.version:
        checks.invalid(f"the other memory has a conversation {chat.id!r} already; give one that lacks it")
    recording, hooks = _Recording(chat), Hooks(memory)
    for text, original, steps in recording.turns:
        heard = hooks.register(points.USER_MESSAGE, partial(_heard, text))
        loop = _Rerun(memory, again, recording, hooks=hooks, steps_count_max=steps)
        loop.recording = recording
        loop.run(original)
        hooks.unregister(points.USER_MESSAGE, heard)
    if ended:
        AgentLoop(memory, again, recording, hooks=hooks).end()
    return again


def _heard(text: str, _: HookContext, __: str) -> str:
    """Return what the user was heard to say: a hook in the place of those that changed it."""
    return text


def _next(queue: "deque[Any]", what: str) -> Any:
    if not queue:
        checks.invalid(
            f"the record of the session lacks a {what}; was it written by this loop, and not evicted by hand?"
        )
    return queue.popleft()
