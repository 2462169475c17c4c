"""What a caller claims of a conversation when asking for its handle: a project, a budget."""

from typing import NamedTuple

from refold import checks
from refold.errors import InvalidInput
from refold.event import ConversationOpened
from refold.memory.door import Door
from refold.views.session import SESSION
from refold.views.window import WINDOW


class Claims(NamedTuple):
    """The values that were given explicitly; ``None`` claims nothing."""

    project: str | None
    window_tokens: int | None

    def check(self, door: Door, stream: str, at: int | None) -> None:
        """Raise ``InvalidInput`` if the conversation was opened with other values.

        Opening a handle, and an append through it, count as no read of the state by an open batch.
        """
        known, budget = door.read_lightly(
            stream, lambda state: (state.part(SESSION), state.part(WINDOW).window_tokens), at
        )
        if not known.opened:
            return
        if self.project is not None and self.project != known.project:
            message = f"{stream} belongs to project {known.project!r}, not {self.project!r}; leave project= out"
            raise InvalidInput(message)
        if self.window_tokens is not None and self.window_tokens != budget:
            asked = f"not {self.window_tokens}; use set_window_tokens to change it"
            message = f"{stream} has a budget of {budget} tokens, {asked}"
            raise InvalidInput(message)


def claiming(
    door: Door, conversation_id: object, project: str | None, window_tokens: int | None
) -> tuple[ConversationOpened, Claims | None]:
    """Return the event that would open a conversation, and what a caller claims of it; ``None`` for nothing."""
    checks.name(conversation_id, "conversation_id")
    if project is not None:
        checks.name(project, "project")
    if window_tokens is not None:
        checks.window_tokens(window_tokens)
    claims = None if project is None and window_tokens is None else Claims(project, window_tokens)
    return door.opening(project, window_tokens), claims
