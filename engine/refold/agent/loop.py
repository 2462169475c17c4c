"""A small agent loop: a model, tools, hooks and the memory; recorded, so that it runs again without the first three.

Everything that comes from outside ends up in the log: what the user said, what the model replied, what each tool was
given and gave back, what the model was shown. ``rerun``, in the next file, feeds that to the same loop elsewhere.
"""

from collections.abc import Callable, Sequence
from functools import partial
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.agent import hooks as agent_hooks
from refold.agent.builtin import BUILT_IN_NAMES, files_tool
from refold.agent.context import ContextBudget
from refold.agent.hooks import HookContext, Hooks
from refold.agent.tools import ToolResult, decode_arguments, storable
from refold.engine.states import Recorded
from refold.errors import InvalidInput
from refold.event import ConversationOpened, Event, unpack_json
from refold.limits import LOOP_STEPS_COUNT_DEFAULT, NAME_BYTES_MAX, TOOL_NAME_CHARS_MAX
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.message import Message, MessageAppended
from refold.results import SessionSummary
from refold.views.contexts import ContextShown
from refold.views.scratchpad import NoteAdded, ScratchpadCleared, ScratchpadDeleted, ScratchpadSet
from refold.views.work import MemoriesExtracted, ToolExecuted

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
        return decode_arguments(arguments)
    except InvalidInput:
        return {}


# A recorded session again, in another memory and without its model and its tools: event for event the same stream.
#
# What the loop itself writes, the loop writes again, out of what was recorded. What hosts, tools and hooks wrote into
# the conversation in between is written again at its place.

_SCRATCHPAD: Final = (ScratchpadSet, ScratchpadDeleted, NoteAdded, ScratchpadCleared)
"""What ``memory_write`` writes: one event at most, right before the record of its call."""


class _RecordEnded(Exception):
    """The session went no further: the model's provider raised here, or the process ended."""


class _Asked:
    """One time that the model was asked: the places of what was shown, of its reply, of its calls and their outputs."""

    def __init__(self, shown: int) -> None:
        self.shown = shown
        self.reply: int | None = None
        self.call_ids: list[str] = []
        self.calls: list[int] = []
        self.outputs: list[int] = []


class _Turn:
    """One message of the user, and every time that the model was asked for it."""

    def __init__(self, said: int) -> None:
        self.said = said
        self.asked: list[_Asked] = []


class _Record:
    """What a conversation's stream says of the turns of the loop."""

    def __init__(self, chat: Conversation) -> None:
        self.rows: list[Recorded] = list(chat.events())
        for _, stamp in self.rows:
            if stamp.erased:
                checks.invalid(f"the event at seq {stamp.seq} was erased; what is gone cannot run again")
        if not self.rows or not isinstance(self.rows[0].event, ConversationOpened):
            checks.invalid(f"conversation {chat.id!r} has no beginning of its own, as a fork; give one that has")
        self.opened: ConversationOpened = self.rows[0].event
        self.turns: list[_Turn] = []
        following: object = None
        begins: set[int] = set()
        for place in reversed(range(len(self.rows))):
            event = self.rows[place].event
            if isinstance(following, ContextShown):
                begins.add(place)
            following = event if isinstance(event, (MessageAppended, ContextShown)) else following
        for place, (event, _) in enumerate(self.rows):
            self._hear(place, event, is_shown=place in begins)

    def sources(self, again: Conversation, event: Event) -> list[int]:
        """Return the seqs that stand in the other conversation where the sources of an event stand in this one."""
        places = {stamp.seq: place for place, (_, stamp) in enumerate(self.rows)}
        seqs = [stamp.seq for _, stamp in again.events()]
        return [seqs[places[source]] for source in event.sources if source in places]

    def _hear(self, place: int, event: object, *, is_shown: bool) -> None:
        """Take an event for a part of the open turn, or for the beginning of one; anything else is no part of it.

        A message of the user begins one where a context was shown right after it, as in the loop.
        """
        asked = self.turns[-1].asked if self.turns else []
        if isinstance(event, MessageAppended) and event.role == "user":
            if is_shown:
                self.turns.append(_Turn(place))
        elif isinstance(event, ContextShown) and self.turns:
            asked.append(_Asked(place))
        elif asked:
            self._follow(asked[-1], place, event)

    def _follow(self, asked: _Asked, place: int, event: object) -> None:
        if isinstance(event, MessageAppended) and event.role == "assistant" and asked.reply is None:
            asked.reply = place
            asked.call_ids = [call.id for call in calls_of(event.tool_calls)]
        elif len(asked.outputs) < len(asked.call_ids):
            call_id, is_made = asked.call_ids[len(asked.outputs)], len(asked.calls) > len(asked.outputs)
            if isinstance(event, ToolExecuted) and not is_made and event.call_id == call_id:
                asked.calls.append(place)
            elif isinstance(event, MessageAppended) and is_made and event.tool_call_id == call_id:
                asked.outputs.append(place)


class _Rerun(AgentLoop):
    """The same loop over a record, which stands in the place of hooks and tools; those of the memory itself run."""

    def __init__(self, memory: Memory, chat: Conversation, record: _Record, hooks: Hooks, turn: _Turn) -> None:
        super().__init__(memory, chat, self, hooks=hooks, steps_count_max=len(turn.asked))
        self._record = record
        self._turn = turn
        self._step = -1
        self._made = 0
        self._next: int = turn.said

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:  # noqa: ARG002 - a model's
        """Return what the model said."""
        place = self._turn.asked[self._step].reply
        if place is None:
            raise _RecordEnded
        self._next = place
        event = cast("MessageAppended", self._record.rows[place].event)
        return Reply(event.text, calls_of(event.tool_calls))

    def _asked(self, query: str) -> tuple[Reply, str | None]:
        self._step, self._made = self._step + 1, 0
        self._catch_up(self._turn.asked[self._step].shown)
        return super()._asked(query)

    def _called(self, call: Call) -> Executed:
        asked = self._turn.asked[self._step]
        if self._made == len(asked.calls):
            raise _RecordEnded
        place = asked.calls[self._made]
        made = cast("ToolExecuted", self._record.rows[place].event)
        if made.outcome != SKIPPED and self._is_of_memory(made.name):
            is_writing = made.name == "memory_write" and isinstance(self._record.rows[place - 1].event, _SCRATCHPAD)
            self._catch_up(place - is_writing)
            self.memory.tools.execute(call.name, msgspec.json.decode(made.arguments), self._tools)
        self._catch_up(place)
        _record_call(self.chat, made, self.chat.session.provenance(opens=False))
        if self._made == len(asked.outputs):
            raise _RecordEnded
        self._next = asked.outputs[self._made]
        self._made += 1
        output = cast("MessageAppended", self._record.rows[self._next].event).text or ""
        return Executed(ToolResult(made.name, made.outcome, made.result), output)

    def _is_of_memory(self, name: str) -> bool:
        """Return whether a tool changes nothing but the memory; that of files does where it is registered."""
        return name in BUILT_IN_NAMES or self.memory.tools.get(name) is files_tool()

    def _append(self, role: str, content: str | None, **fields: Any) -> Message:
        self._catch_up(self._next)
        return super()._append(role, content, **fields)

    def _catch_up(self, place: int) -> None:
        catch_up(self.memory, self.chat, self._record, place)


def rerun(chat: Conversation, memory: Memory, *, ended: bool = False) -> Conversation:
    """Run a recorded session again in another memory, without its model and its tools; return the conversation there.

    The other memory should be as the first one was when the session began. The tools of the memory itself run (that of
    files, if it is registered there too), all others answer what they answered; hooks are not called. What either of
    them wrote into the conversation is written again, what they wrote elsewhere is not, so that contexts may differ
    where they did. Raises ``InvalidInput`` where the other memory has the conversation already, for a fork, and for a
    record that was erased, restored or imported.
    """
    record, hooks = _Record(chat), Hooks(memory)
    opened = record.opened
    again = memory.conversation(chat.id, project=opened.project, window_tokens=opened.window_tokens)
    if again.version:
        checks.invalid(f"the other memory has a conversation {chat.id!r} already; give one that lacks it")
    for turn in record.turns:
        event = cast("MessageAppended", record.rows[turn.said].event)
        heard = event.text or ""
        hook = hooks.register(agent_hooks.USER_MESSAGE, partial(_heard, heard))
        catch_up(memory, again, record, turn.said)
        try:
            _Rerun(memory, again, record, hooks, turn).run((event.metadata or {}).get("original", heard))
        except _RecordEnded:
            pass  # As the session did, the next message of the user goes on from here.
        finally:
            hooks.unregister(agent_hooks.USER_MESSAGE, hook)
    catch_up(memory, again, record, len(record.rows))
    if ended:
        again.end()
    return again


def _heard(text: str, _: HookContext, __: str) -> str:
    """Return what the user was heard to say: a hook in the place of those that changed it."""
    return text


# What was written beside the loop.


def catch_up(memory: Memory, again: Conversation, record: _Record, place: int) -> None:
    """Write again what stands in the record before a place and is not in the other conversation yet."""
    while max(again.version, 1) < place:
        at = max(again.version, 1)
        event, stamp = record.rows[at]
        if type(event) in _WRITERS:
            _WRITERS[type(event)](memory, again, record, event)
        elif type(event).repeat is Event.repeat:
            checks.invalid(f"{type(event).__name__} at seq {stamp.seq} cannot be made again; was the chat restored?")
        else:
            event.repeat(again)
        if again.version != at + 1:
            checks.invalid(
                f"{type(event).__name__} at seq {stamp.seq} changes nothing here; was this session recorded?"
            )


def _context(memory: Memory, again: Conversation, _: _Record, event: ContextShown) -> None:
    skills = [tuple(skill) for skill in unpack_json(event.skills)]
    budget = ContextBudget(**unpack_json(event.budget))
    options = {"project": event.project, "profile": event.profile, "journal": event.journal}
    memory.show(memory.context(again, query=event.query, skills=skills, budget=budget, **options))


def _extraction(_: Memory, again: Conversation, record: _Record, event: MemoriesExtracted) -> None:
    """Write it with the seq that stands here where the other one stood there."""
    until = sum(stamp.seq <= event.origin for _, stamp in record.rows)
    seqs = [stamp.seq for _, stamp in again.events()]
    seq = seqs[min(until, len(seqs)) - 1] if until else 0
    sources = record.sources(again, event)
    again.session.record_extraction(event.provider, event.ids, event.dropped, seq=seq, sources=sources)


def _call(_: Memory, again: Conversation, record: _Record, event: ToolExecuted) -> None:
    _record_call(again, event, record.sources(again, event))


def _record_call(again: Conversation, event: ToolExecuted, sources: Sequence[Any]) -> None:
    said, told = msgspec.json.decode(event.arguments), msgspec.json.decode(event.result)
    again.session.record_call(event.name, said, told, outcome=event.outcome, call_id=event.call_id, sources=sources)


_WRITERS: Final[dict[type, Callable[[Memory, Conversation, _Record, Any], object]]] = {
    ContextShown: _context,
    MemoriesExtracted: _extraction,
    ToolExecuted: _call,
}
"""How the events come about that name others; every other one knows its verb."""
