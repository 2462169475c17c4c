"""What a server is bound to: the memory, and what its host says of conversation, project, profile and journal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from refold import checks
from refold.faces.reproducible import drawn

if TYPE_CHECKING:
    from refold import Conversation, Memory

CONVERSATION_META: Final = "refold/conversation"
"""The key of a request's ``_meta`` under which a host names the conversation; a model does not write it."""

_DRAWN_BYTES: Final = 8


class Binding(Struct, frozen=True):
    """What a server serves, decided by who starts it and never by a model, unless ``asks_model`` says so.

    Without a ``conversation`` each session has its own: one that the host names in ``_meta``, that of its HTTP session,
    or ``own``, drawn when the server starts. Since 2026 the protocol has no sessions over HTTP: such clients share
    ``own`` unless their hosts name others. Without a ``project`` it is the conversation's.
    """

    memory: "Memory"
    conversation: str | None = None
    project: str | None = None
    profile: str = "default"
    journal: str = "default"
    readonly: bool = False
    asks_model: bool = False
    """Whether tools take the id of a conversation among their arguments."""
    own: str = field(default_factory=lambda: f"mcp-{drawn(_DRAWN_BYTES).hex()}")

    def check(self) -> None:
        """Raise ``InvalidInput`` for what is no name, and for a conversation that is fixed and asked for at once."""
        for what in ("conversation", "project", "profile", "journal"):
            name = getattr(self, what)
            if name is not None:
                checks.name(name, what)
        if self.asks_model and self.conversation is not None:
            checks.invalid(
                f"the server is bound to the conversation {self.conversation!r}, so a model cannot name another; leave "
                "out one of conversation and asks_model"
            )

    def conversation_id(self, meta: Mapping[str, Any] | None, session: str | None) -> str:
        """Return the id of the conversation of a request, of its ``_meta`` and of its session's id."""
        if self.conversation is not None:
            return self.conversation
        named = None if meta is None else meta.get(CONVERSATION_META)
        if named is not None:
            return checks.text(named, CONVERSATION_META)
        return self.own if session is None else f"mcp-{session}"

    def chat(self, conversation_id: str) -> "Conversation":
        """Return a handle on a conversation; one that is not there yet will be opened in the project."""
        chat = self.memory.conversation(conversation_id)
        if self.project is None or chat.version:
            return chat
        return self.memory.conversation(conversation_id, project=self.project)

    def project_of(self, chat: "Conversation") -> str:
        """Return the name of the project whose memories are used in a conversation."""
        return self.project or chat.project or "default"
