"""SWE-agent trajectories: a ``.traj`` file is one run, its ``history`` of messages and its ``trajectory`` of steps.

Each entry of the history is a message. A step goes to the message that it made, as ``step`` in its metadata; one that
left none in the history is a message of its own, its observation another, both marked ``in_history: false``.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import BinaryIO, Final, cast

from refold.errors import InvalidInput
from refold.recorders.documents import ITEM, paths, whole
from refold.recorders.keeping import SOURCE_KEY, Fields, metadata, others, source_message
from refold.recorders.protocol import SourceConversation, SourceMessage

STEP_KEY: Final = "step"
"""In an assistant message's metadata: the step of the trajectory that it belongs to, as it was."""

IN_HISTORY_KEY: Final = "in_history"
"""In a message's metadata, ``False`` where the message was made of a step alone."""

_IDS_KEY: Final = "tool_call_ids"
_LISTS: Final = ("history", "trajectory")
_SAYINGS: Final = ("response", "thought", "action")
_MARKS: Final = frozenset({("history", ITEM, "role"), *(("trajectory", ITEM, field) for field in _SAYINGS)})


class SweAgentRecorder:
    """Reads a run of SWE-agent."""

    name = "swe-agent"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin an object with a history of messages or a trajectory of steps."""
        return not _MARKS.isdisjoint(paths(head))

    def conversations(self, file: BinaryIO) -> Iterator[SourceConversation]:
        """Return the one conversation of a file."""
        document = whole(file)
        run = cast("Fields", document) if isinstance(document, dict) else {}
        history, steps = (_entries(run, key) for key in _LISTS)
        if not history and not steps:
            message = "the file has neither a history nor a trajectory; give a .traj file that SWE-agent wrote"
            raise InvalidInput(message)
        source = {key: value for key, value in run.items() if key not in _LISTS or not value}
        yield SourceConversation(1, None, None, iter(_messages(history, steps, source)), "the run")


SWE_AGENT: Final = SweAgentRecorder()


def _entries(run: Fields, key: str) -> list[Fields]:
    """Return the objects of a list of the run; one that is absent or null has none."""
    entries = run.get(key)
    if entries is None:
        return []
    if not isinstance(entries, list):
        message = f"{key} is no list; give a .traj file that SWE-agent wrote"
        raise InvalidInput(message)
    for place, entry in enumerate(cast("list[object]", entries), 1):
        if not isinstance(entry, dict) or (key == "history" and "role" not in entry):
            message = f"{key} {place} is no {'message with a role' if key == 'history' else 'step'}; mend or remove it"
            raise InvalidInput(message)
    return cast("list[Fields]", entries)


def _messages(history: list[Fields], steps: list[Fields], source: Fields) -> list[SourceMessage]:
    messages: list[SourceMessage] = []
    lone, made = _matched(history, steps)
    for place, entry in enumerate(history):
        messages += [message for step in lone.get(place, ()) for message in _lone(step, len(messages), source)]
        messages.append(_message(entry, made.get(place), {} if messages else source))
    for step in lone.get(len(history), ()):
        messages += _lone(step, len(messages), source)
    return messages


def _matched(history: list[Fields], steps: list[Fields]) -> tuple[dict[int, list[Fields]], dict[int, Fields]]:
    """Return the steps that no message of the history says, by the place they come before, and the others by theirs.

    A step is matched to the next assistant's message of its words; both lists are in order.
    """
    lone: dict[int, list[Fields]] = {}
    made: dict[int, Fields] = {}
    waiting: list[Fields] = []
    begin = 0
    said = _places(history)
    for step in steps:
        places = said.get(step.get("response"), []) if isinstance(step.get("response"), str) else []
        found = bisect_left(places, begin)
        if found == len(places):
            waiting.append(step)
            continue
        place = places[found]
        if waiting:
            lone[place], waiting = waiting, []
        made[place] = step
        begin = place + 1
    if waiting:
        lone[len(history)] = waiting
    return lone, made


def _places(history: list[Fields]) -> dict[object, list[int]]:
    """Return where in the history an assistant says a text."""
    places: dict[object, list[int]] = {}
    for place, entry in enumerate(history):
        if entry["role"] == "assistant":
            places.setdefault(_text(entry.get("content")), []).append(place)
    return places


def _text(content: object) -> str:
    """Return the text of a content, which newer runs give in blocks."""
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    texts = (cast("Fields", block).get("text") for block in blocks if isinstance(block, dict))
    return content if isinstance(content, str) else "".join(text for text in texts if isinstance(text, str))


def _message(entry: Fields, step: Fields | None, source: Fields) -> SourceMessage:
    ids = cast("list[object]", entry[_IDS_KEY]) if isinstance(entry.get(_IDS_KEY), list) else []
    only = ids[0] if len(ids) == 1 else None
    added = {SOURCE_KEY: source or None, STEP_KEY: step, IN_HISTORY_KEY: None}
    return source_message(entry, others(entry), added, tool_call_id=only)


def _lone(step: Fields, before: int, source: Fields) -> Iterator[SourceMessage]:
    """Return what the agent said in a step, and what it saw then."""
    added = {SOURCE_KEY: None if before else source or None, STEP_KEY: step, IN_HISTORY_KEY: False}
    said = next((step[field] for field in _SAYINGS if isinstance(step.get(field), str) and step[field]), "")
    yield SourceMessage("assistant", said, metadata=metadata({}, added))
    seen = step.get("observation")
    if isinstance(seen, str) and seen:
        yield SourceMessage("user", seen, metadata={IN_HISTORY_KEY: False})
