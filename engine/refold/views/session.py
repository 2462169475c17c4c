"""The identity of a conversation: whether it is open, its project, the depth of its forks."""

from typing import Any

import msgspec

from refold.event import ConversationOpened, ForkDropped, Forked, Located, Restored, Stamp, StateImported, View


class Session:
    """The identity of a conversation."""

    __slots__ = ("depth", "opened", "project")

    def __init__(self) -> None:
        self.opened = False
        self.project: str | None = None
        self.depth = 0
        """The number of forks between this conversation and its origin."""

    def pack(self) -> tuple[Any, list[int]]:
        return [self.opened, self.project, self.depth], []

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> "Session":
        session = cls()
        session.opened, session.project, session.depth = msgspec.convert(inline, tuple[bool, str | None, int])
        return session

    def logical(self) -> Any:
        return [self.project] if self.opened else None

    def plain(self) -> dict[str, Any]:
        return {"project": self.project} if self.opened and self.project is not None else {}


SESSION = View("session", kinds=("conversation",), state=Session)


@SESSION.on(ConversationOpened)
def _conversation_opened(session: Session, stamp: Stamp, event: ConversationOpened) -> None:
    session.opened = True
    session.project = event.project or session.project


@SESSION.on(Forked)
def _forked(session: Session, stamp: Stamp, event: Forked) -> None:
    session.project = event.project
    session.depth = event.depth


@SESSION.on(Restored)
def _restored(session: Session, stamp: Stamp, event: Restored) -> None:
    session.project = event.project
    session.depth = event.depth


@SESSION.on(StateImported)
def _state_imported(session: Session, stamp: Stamp, event: StateImported) -> None:
    """Go on as the imported state was, but in the conversation's own project."""
    session.opened = event.policy != 0
    session.project = event.project


@SESSION.on(ForkDropped)
def _fork_dropped(session: Session, stamp: Stamp, event: ForkDropped) -> None:
    session.opened = False
    session.project = None
    session.depth = 0
