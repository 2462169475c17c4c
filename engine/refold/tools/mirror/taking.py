"""Whether the log got the edits that a round was about to take when it was cut off. Pure.

A note of them that was erased since, or that a restore took away, is not in the log's state: taken again it would come
back. Its event is still there, among those of the same commit.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from refold.event import Event
from refold.tools.mirror.merging import told
from refold.tools.mirror.reports import MirrorEdit
from refold.views.journal import JournalAppended
from refold.views.profile import ProfileDeleted, ProfileSet

if TYPE_CHECKING:
    from refold.engine.loader import Recorded


def told_by_edit(edit: MirrorEdit) -> str:
    """Return what tells the event of an edit from others."""
    return f"{edit.kind}{told(edit.name)}{told(edit.text) or ''}"


def _told_by_event(event: Event) -> str:
    if isinstance(event, ProfileSet):
        return f"set{told(event.key)}{told(event.value)}"
    if isinstance(event, ProfileDeleted):
        return f"delete{told(event.key)}"
    if isinstance(event, JournalAppended):
        return f"append{told(event.day)}{told(event.text)}"
    return ""


def were_taken(edits: Sequence[str], recorded: Iterable["Recorded"], journal: str) -> bool:
    """Return whether edits stand among events as one commit; of an erased event nobody knows more than its stream."""
    events = [
        (stamp.stream == journal, None if stamp.erased else _told_by_event(event), stamp.time_ns)
        for event, stamp in recorded
    ]
    begins = range(len(events) - len(edits) + 1)
    return bool(edits) and any(_is_commit(edits, events[begin : begin + len(edits)]) for begin in begins)


def _is_commit(edits: Sequence[str], events: Sequence[tuple[bool, str | None, int]]) -> bool:
    return len({time_ns for _, _, time_ns in events}) == 1 and all(
        is_note == edit.startswith("append") and told_event in {None, edit}
        for edit, (is_note, told_event, _) in zip(edits, events, strict=True)
    )
