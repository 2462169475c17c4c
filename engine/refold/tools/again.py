"""A recorded session again, in another memory and without its model and its tools: event for event the same stream.

What the loop itself writes, the loop writes again, out of what was recorded. What hosts, tools and hooks wrote into the
conversation in between is written again at its place.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from refold import checks
from refold.engine.loader import Recorded
from refold.event import ConversationEnded, ConversationOpened, Event, unpack_json
from refold.memory.conversation import Conversation
from refold.memory.memory import Memory
from refold.message import Message, MessageAppended
from refold.tools import points
from refold.tools.budgets import ContextBudget
from refold.tools.builtin import BUILT_IN_NAMES
from refold.tools.filing import files_tool
from refold.tools.hooks import Hooks
from refold.tools.loop import SKIPPED, AgentLoop, Call, Executed, Reply, calls_of
from refold.tools.points import HookContext
from refold.tools.protocol import ToolResult
from refold.views.contexts import ContextShown
from refold.views.scratch import NoteAdded, ScratchpadCleared, ScratchpadDeleted, ScratchpadSet
from refold.views.state import RoundEnded, StateDeleted, StateSet
from refold.views.window import WindowCleared, WindowResized
from refold.views.work import FileRead, FindingNoted, MemoriesExtracted, TaskDescribed, ToolExecuted

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
        hook = hooks.register(points.USER_MESSAGE, partial(_heard, heard))
        catch_up(memory, again, record, turn.said)
        try:
            _Rerun(memory, again, record, hooks, turn).run((event.metadata or {}).get("original", heard))
        except _RecordEnded:
            pass  # As the session did, the next message of the user goes on from here.
        finally:
            hooks.unregister(points.USER_MESSAGE, hook)
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
        write = _WRITERS.get(type(event))
        if write is None:
            checks.invalid(f"{type(event).__name__} at seq {stamp.seq} cannot be made again; was the chat restored?")
        write(memory, again, record, event)
        if again.version != at + 1:
            checks.invalid(
                f"{type(event).__name__} at seq {stamp.seq} changes nothing here; was this session recorded?"
            )


def _message(_: Memory, again: Conversation, __: _Record, event: MessageAppended) -> None:
    again.append(
        event.role,
        event.content,
        tokens=event.tokens,
        name=event.name,
        tool_calls=event.tool_calls,
        tool_call_id=event.tool_call_id,
        pinned=event.pinned,
        metadata=event.metadata,
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


def _plainly(write: Callable[[Conversation, Any], object]) -> Callable[[Memory, Conversation, _Record, Any], object]:
    return lambda _, again, __, event: write(again, event)


_WRITERS: Final[dict[type, Callable[[Memory, Conversation, _Record, Any], object]]] = {
    MessageAppended: _message,
    ContextShown: _context,
    MemoriesExtracted: _extraction,
    ToolExecuted: _call,
    WindowCleared: _plainly(lambda again, _: again.clear_window()),
    WindowResized: _plainly(lambda again, event: again.set_window_tokens(event.window_tokens)),
    ScratchpadSet: _plainly(lambda again, event: again.set(event.key, event.value)),
    ScratchpadDeleted: _plainly(lambda again, event: again.delete(event.key)),
    NoteAdded: _plainly(lambda again, event: again.note(event.text)),
    ScratchpadCleared: _plainly(lambda again, _: again.clear()),
    StateSet: _plainly(lambda again, event: again.state.set(event.key, event.value)),
    StateDeleted: _plainly(lambda again, event: again.state.delete(event.key)),
    RoundEnded: _plainly(lambda again, _: again.end_round()),
    ConversationEnded: _plainly(lambda again, _: again.end()),
    TaskDescribed: _plainly(lambda again, event: again.session.describe_task(event.text)),
    FileRead: _plainly(
        lambda again, event: again.session.note_file(event.path, lines=event.lines, size_bytes=event.size_bytes)
    ),
    FindingNoted: _plainly(lambda again, event: again.session.note_finding(event.text)),
}
"""How each kind of event comes about; what is not here no verb of a live conversation makes alone."""
