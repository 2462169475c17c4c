"""Running a recorded session again, in another memory, without its model and tools.

The loop writes its own events again from the record, so that the stream is the same event for event. Events that hosts,
tools and hooks wrote in between are written again at their places.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from math import inf
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold import checks
from refold.agent.builtin import BUILT_IN_NAMES, files_tool
from refold.agent.hooks import Hooks
from refold.agent.loop import AgentLoop, Execution, ModelReply, Turn, unanswered_message
from refold.agent.rebuild import recorded_budget, recorded_skills
from refold.agent.reply import Call, Reply, recorded_calls
from refold.agent.tools import OK, ToolResult
from refold.event import HOST, ConversationOpened, Event, Recorded, Stamp
from refold.limits import SOURCES_COUNT_MAX
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.message import Message, MessageAppended, MessageReplaced, messages_of
from refold.views.scratchpad import NoteAdded, ScratchpadCleared, ScratchpadDeleted, ScratchpadSet
from refold.views.session import ContextShown, MemoriesExtracted, ToolExecuted
from refold.views.store import ERASED_PREFIX

T = TypeVar("T")

# The events of `memory_write`: at most one, immediately before the record of its call.
_SCRATCHPAD: Final = (ScratchpadSet, ScratchpadDeleted, NoteAdded, ScratchpadCleared)


class _EndOfRecord(Exception):
    """The session went no further here: the model raised, or the process ended."""


class _StepRecord(Struct):
    """One call of the model: places in the record of the context, the reply, its tool calls and their outputs."""

    shown: int
    reply: int | None = None
    call_ids: list[str] = []
    calls: list[int] = []
    outputs: list[int] = []


class _TurnRecord(Struct):
    """The place of a user message, and the steps that follow it."""

    place: int
    steps: list[_StepRecord] = []


class _SessionRecord:
    def __init__(self, chat: Conversation) -> None:
        self.rows: list[Recorded] = list(chat.events())
        for _, stamp in self.rows:
            if stamp.erased:
                checks.invalid(f"the event at seq {stamp.seq} was erased; what is gone cannot run again")
        if not self.rows or not isinstance(self.rows[0].event, ConversationOpened):
            checks.invalid(f"conversation {chat.id!r} has no beginning of its own, as a fork; give one that has")
        self.opened: ConversationOpened = self.rows[0].event
        self.places = {stamp.seq: place for place, (_, stamp) in enumerate(self.rows)}
        self.turns: list[_TurnRecord] = []
        following: object = None
        # As in the loop, a user message starts a turn only if a context was shown right after it.
        begins: set[int] = set()
        for place in reversed(range(len(self.rows))):
            event = self.rows[place].event
            if isinstance(following, ContextShown):
                begins.add(place)
            following = event if isinstance(event, (MessageAppended, ContextShown)) else following
        for place, (event, _) in enumerate(self.rows):
            steps = self.turns[-1].steps if self.turns else []
            if isinstance(event, MessageAppended) and event.role == "user":
                if place in begins:
                    self.turns.append(_TurnRecord(place))
            elif isinstance(event, ContextShown) and self.turns:
                steps.append(_StepRecord(place))
            elif steps:
                self._follow(steps[-1], place, event)

    def _follow(self, step: _StepRecord, place: int, event: object) -> None:
        if isinstance(event, MessageAppended) and event.role == "assistant" and step.reply is None:
            step.reply = place
            step.call_ids = [call.id for call in recorded_calls(event.tool_calls)]
        elif len(step.outputs) < len(step.call_ids):
            call_id, is_executed = step.call_ids[len(step.outputs)], len(step.calls) > len(step.outputs)
            if isinstance(event, ToolExecuted) and not is_executed and event.call_id == call_id:
                step.calls.append(place)
            elif isinstance(event, MessageAppended) and is_executed and event.tool_call_id == call_id:
                step.outputs.append(place)

    def message(self, place: int) -> MessageAppended:
        return cast("MessageAppended", self.rows[place].event)


class _Rerun(AgentLoop):
    """The same loop over a record, which stands in for the model, the hooks and the external tools."""

    def __init__(self, memory: Memory, chat: Conversation, record: _SessionRecord, files: str) -> None:
        super().__init__(memory, chat, self, hooks=Hooks(memory), files=files)
        self._failures_count_max = inf  # The record determines where its turns end.
        self._record = record
        self._step = _StepRecord(0)
        self._steps = deque[_StepRecord]()
        self._executed_count = 0
        self._user_place = 0  # The place of the user's message.
        self._next = 0  # The place of the next message to append.

    def rerun(self) -> None:
        for turn in self._record.turns:
            event = self._record.message(turn.place)
            self._user_place = self._next = turn.place
            self._steps, self._steps_count_max = deque(turn.steps), len(turn.steps)
            self._catch_up(turn.place)
            with suppress(_EndOfRecord):  # As in the session, the next user message continues from here.
                self.run(event.text or "")
            while any(step.reply is not None for step in self._steps) and unanswered_message(self.chat) is not None:
                self._catch_up(self._steps[0].shown)
                with suppress(_EndOfRecord):
                    self.resume()
        self._catch_up(len(self._record.rows))

    def run(self, text: str, *, request_id: str | None = None) -> Turn:  # noqa: ARG002 - the log has no ids of requests
        event = self._record.message(self._user_place)
        message = self._append("user", text, name=event.name)
        return self._turn(message, 0)

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:  # noqa: ARG002 - protocol
        if self._step.reply is None:
            raise _EndOfRecord
        self._next = self._step.reply
        event = self._record.message(self._next)
        return Reply(event.text, recorded_calls(event.tool_calls))

    def _ask(self, question: Message) -> ModelReply:
        self._step, self._executed_count = self._steps.popleft(), 0
        self._catch_up(self._step.shown)
        shown = cast("ContextShown", self._record.rows[self._step.shown].event)
        self._tools = replace(self._tools, profile_name=shown.profile, journal_name=shown.journal)
        return super()._ask(question)

    def _execute(self, call: Call) -> Execution:
        step, index = self._step, self._executed_count
        if index == len(step.calls):
            raise _EndOfRecord
        place = step.calls[index]
        event = cast("ToolExecuted", self._record.rows[place].event)
        # Tools that change only the memory run again; so does the files tool if it is registered here.
        is_of_memory = event.name in BUILT_IN_NAMES or self.memory.tools.get(event.name) is files_tool()
        if event.outcome == OK and is_of_memory:  # A call that was refused then is not executed now.
            has_write = event.name == "memory_write" and isinstance(self._record.rows[place - 1].event, _SCRATCHPAD)
            self._catch_up(place - has_write)
            result = self.memory.tools.execute(call.name, msgspec.json.decode(event.arguments), self._tools)
            own = self.chat.session.provenance(opens=False)
            sources: Sequence[Any] = (*result.sources, *own)[-SOURCES_COUNT_MAX:]
        else:
            sources = self._sources(event)
        self._catch_up(place)
        with self._acting(place):
            stamp = self._record_call(event, sources)
        if index == len(step.outputs):
            raise _EndOfRecord
        self._next = step.outputs[index]
        self._executed_count += 1
        output = self._record.message(self._next).text or ""
        return Execution(ToolResult(event.name, event.outcome, event.result, sources=(stamp.seq,)), output)

    def _append(self, role: str, content: str | None, **fields: Any) -> Message:
        fields["metadata"] = self._record.message(self._next).metadata
        return super()._append(role, content, **fields)

    def _write(self, write: Callable[[], T]) -> T:
        self._catch_up(self._next)
        with self._acting(self._next):
            return super()._write(write)

    def _check_open(self, shown: int = 0) -> None:
        """Go on as far as the record goes."""

    def _check_fit(self, message: Message) -> None:
        """Accept what was recorded: whatever did not fit was recorded as an error."""

    def _acting(self, place: int) -> AbstractContextManager[None]:
        """Return a context manager that sets the actor recorded at a place, so that each seq names the same actor."""
        actor: str = self._record.rows[place].stamp.actor
        return self.memory.acting(HOST if actor.startswith(ERASED_PREFIX) else actor)

    def _catch_up(self, place: int) -> None:
        """Write again the events before a place of the record that this conversation does not have yet."""
        while (index := max(self.chat.version, 1)) < place:
            event, stamp = self._record.rows[index]
            with self._acting(index):
                self._write_again(event, stamp.seq)
            if self.chat.version != index + 1:
                kind = type(event).__name__
                checks.invalid(f"{kind} at seq {stamp.seq} changes nothing here; was this session recorded?")

    def _write_again(self, event: Event, seq: int) -> None:
        """Write again the event that was recorded at a seq."""
        match event:
            case ContextShown():
                skills, (budget, plan) = recorded_skills(event), recorded_budget(event)
                context = self.memory.context(
                    self.chat,
                    query=event.query,
                    project=event.project,
                    profile=event.profile,
                    journal=event.journal,
                    skills=skills,
                    budget=budget,
                    tools=plan.topics,
                )
                self.memory.show(context)
            case MemoriesExtracted():
                # Replaces the seq of the other conversation's event with the seq of this one's.
                until = sum(stamp.seq <= event.origin for _, stamp in self._record.rows)
                seqs = self._seqs()
                origin = seqs[min(until, len(seqs)) - 1] if until else 0
                sources = self._sources(event)
                self.chat.session.record_extraction(
                    event.provider, event.ids, event.dropped, seq=origin, sources=sources
                )
            case ToolExecuted():
                self._record_call(event, self._sources(event))
            case MessageReplaced():
                (message,) = messages_of(self._record.rows[self._record.places[seq]])
                origin = self._seqs()[self._record.places[event.origin]]
                fields = {name: getattr(message, name) for name in ("tokens", "name", "tool_calls", "metadata")}
                self.chat.replace(origin, message.content, **fields, sources=self._sources(event))
            case _ if type(event).repeat is Event.repeat:
                checks.invalid(f"{type(event).__name__} at seq {seq} cannot be made again; was the chat restored?")
            case _:
                event.repeat(self.chat)

    def _seqs(self) -> list[int]:
        return [stamp.seq for _, stamp in self.chat.events()]

    def _sources(self, event: Event) -> list[int]:
        """Map the sources of an event to seqs here; seqs from before the session are the same in both memories."""
        seqs, places = self._seqs(), self._record.places
        before = min(self._record.rows[0].stamp.seq - 1, self.memory.head)
        mapped = {source: source for source in event.sources if source <= before}
        mapped |= {source: seqs[places[source]] for source in event.sources if source in places}
        return [mapped[source] for source in event.sources if source in mapped]

    def _record_call(self, event: ToolExecuted, sources: Sequence[Any]) -> Stamp:
        return self.chat.session.record_call(
            event.name,
            msgspec.json.decode(event.arguments),
            msgspec.json.decode(event.result),
            outcome=event.outcome,
            call_id=event.call_id,
            sources=sources,
        )


def rerun(chat: Conversation, memory: Memory, *, ended: bool = False, files: str = "default") -> Conversation:
    """Run a recorded session again in another memory, without its model and tools, and return the new conversation.

    The other memory should be in the state that the first one had when the session began. The memory's own tools run
    again (including the files tool, if it is registered there, on the files named by `files`); all others answer from
    the record, and hooks are not called. Events that those other tools and the hooks wrote into the conversation are
    written again; events that they wrote elsewhere are not, so contexts can differ because of them. Raises
    `InvalidInput` if the other memory already has the conversation, for a fork, and for a record that was erased,
    restored or imported.
    """
    record = _SessionRecord(chat)
    opened = record.opened
    copy = memory.conversation(chat.id, project=opened.project, window_tokens=opened.window_tokens, embed=opened.embed)
    if copy.version:
        checks.invalid(f"the other memory has a conversation {chat.id!r} already; give one that lacks it")
    _Rerun(memory, copy, record, files).rerun()
    if ended:
        copy.end()
    return copy
