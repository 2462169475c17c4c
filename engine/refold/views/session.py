"""What a conversation is, beside what is in it: its project, its origin, how deep it is forked."""

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
        """How many forks lie between this conversation and its origin."""


def _pack(session: Session) -> tuple[Any, list[int]]:
    return [session.opened, session.project, session.depth], []


def _unpack(inline: Any, events: Located) -> Session:
    session = Session()
    session.opened, session.project, session.depth = msgspec.convert(inline, tuple[bool, str | None, int])
    return session


def _logical(session: Session) -> Any:
    return [session.project] if session.opened else None


def _plain(session: Session) -> dict[str, Any]:
    return {"project": session.project} if session.opened and session.project is not None else {}


SESSION = View(
    "session",
    kinds=("conversation",),
    empty=Session,
    pack=_pack,
    unpack=_unpack,
    logical=_logical,
    plain=_plain,
)


@SESSION.on(ConversationOpened)
def conversation_opened(session: Session, stamp: Stamp, event: ConversationOpened) -> None:
    """Belong to the project."""
    session.opened = True
    session.project = event.project or session.project


@SESSION.on(Forked)
def forked(session: Session, stamp: Stamp, event: Forked) -> None:
    """Start as the base was, in the base's project, one fork further from the origin."""
    session.project = event.project
    session.depth = event.depth


@SESSION.on(Restored)
def restored(session: Session, stamp: Stamp, event: Restored) -> None:
    """Go on as the base was, but as what the conversation itself is: its project and its depth do not travel."""
    session.project = event.project
    session.depth = event.depth


@SESSION.on(StateImported)
def state_imported(session: Session, stamp: Stamp, event: StateImported) -> None:
    """Go on as the imported state was, but in the conversation's own project."""
    session.opened = event.policy != 0
    session.project = event.project


@SESSION.on(ForkDropped)
def fork_dropped(session: Session, stamp: Stamp, event: ForkDropped) -> None:
    """Be as if it had never been opened."""
    session.opened = False
    session.project = None
    session.depth = 0
