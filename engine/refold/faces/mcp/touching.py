"""Which resources an event may have changed, and whether the list of them is another one since."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from refold.errors import RefoldError
from refold.event import ConversationEnded, Erased, Event, Restored
from refold.faces.mcp import addresses, contents
from refold.faces.mcp.addresses import Address
from refold.faces.mcp.binding import Binding
from refold.message import MessageAppended
from refold.renewal import EmbedderSwitched, VectorRenewed
from refold.views.board import BoardChanged, BoardMessageAppended
from refold.views.contexts import ContextShown
from refold.views.episodes import EpisodeRecorded
from refold.views.journal import JournalAppended
from refold.views.scratch import NoteAdded, ScratchpadCleared, ScratchpadDeleted, ScratchpadSet
from refold.views.skills import SkillsSelected, SkillUsed
from refold.views.state import RoundEnded, StateDeleted, StateSet
from refold.views.window import WindowCleared, WindowResized
from refold.views.work import FileRead, FindingNoted, MemoriesExtracted, TaskDescribed, ToolExecuted

if TYPE_CHECKING:
    from refold import Recorded

_ELSEWHERE: Final[tuple[type[Event], ...]] = (
    *(StateSet, StateDeleted, RoundEnded),
    *(ToolExecuted, TaskDescribed, FileRead, FindingNoted, MemoriesExtracted, ContextShown),
    *(SkillUsed, SkillsSelected, BoardChanged, BoardMessageAppended),
    *(EpisodeRecorded, VectorRenewed, EmbedderSwitched),
)
"""What is kept in states that no resource shows."""

_REACHES: Final[dict[type[Event], tuple[str, ...]]] = {
    **dict.fromkeys(_ELSEWHERE, ()),
    **dict.fromkeys(
        (ScratchpadSet, ScratchpadDeleted, NoteAdded, ScratchpadCleared, ConversationEnded), (addresses.SCRATCHPAD,)
    ),
    **dict.fromkeys((MessageAppended, WindowCleared, WindowResized), (addresses.WINDOW,)),
}
"""What an event of a conversation changes beside its events; one that is not named here may change all of it."""

ALL: Final = Address("")
"""What an erasure reaches may have been part of anything."""


def touched(binding: Binding, recorded: "Recorded") -> Iterable[Address]:
    """Return the resources that an event may have changed; one without an id stands for all of its kind."""
    event, stamp = recorded
    root, _, name = stamp.stream.partition("/")
    if root == "conversation":
        kinds = _REACHES.get(type(event), (addresses.SCRATCHPAD, addresses.WINDOW))
        # With its first event everything of it is there.
        every = (addresses.SCRATCHPAD, addresses.WINDOW) if stamp.version == 1 else kinds
        return [Address(kind, name) for kind in (addresses.EVENTS, *every)]
    if root == "project":
        return [] if isinstance(event, _ELSEWHERE) and stamp.version > 1 else [Address(addresses.MEMORIES, name)]
    if stamp.stream == f"profile/{binding.profile}":
        return [Address(addresses.PROFILE)]
    if stamp.stream == f"journal/{binding.journal}":
        return [Address(addresses.NOTES, getattr(event, "day", ""))]
    return [ALL] if isinstance(event, Erased) else []


class Lists:
    """Tells which events make the list of resources another one; it knows the days whose notes it has seen."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._days: set[str] = set()

    def is_changed(self, recorded: "Recorded") -> bool:
        """Return whether a resource is listed, or not listed any more, since an event."""
        event, stamp = recorded
        root, _, _ = stamp.stream.partition("/")
        if root in _BOUND_BY:
            # What a server is bound to is listed before it is there, and nothing else ever.
            return stamp.version == 1 and getattr(self._binding, root) is None
        if stamp.stream == f"journal/{self._binding.journal}":
            return self._has_new_day(event, stamp.time_ns)
        # A stream that was erased as a whole goes on under another name.
        return isinstance(event, Erased)

    def _has_new_day(self, event: Event, time_ns: int) -> bool:
        """Return whether the days that have notes are others since an event of the journal."""
        if not isinstance(event, JournalAppended):
            self._days.clear()
            return isinstance(event, Restored)
        if event.day in self._days:
            return False
        self._days.add(event.day)
        try:
            notes = self._binding.memory.journal(self._binding.journal).day(event.day)
            return not notes or (notes[0].time_ns == time_ns and event.day in contents.days(self._binding))
        except RefoldError:  # It is being closed; who looks will see.
            return True


_BOUND_BY: Final = ("conversation", "project")
"""The kinds of stream that are listed, as a binding calls them, too."""
