"""The options that a caller expects a conversation to be opened with, or to have been opened with."""

from typing import TYPE_CHECKING

from refold.errors import InvalidInput
from refold.views.session import SESSION
from refold.views.window import NAMES, WINDOW

if TYPE_CHECKING:
    from refold.memory.options import Core


class Claims:
    """A caller's claims on a conversation when it takes a handle: project, budget, embedding, eviction policy."""

    __slots__ = ("embed", "is_settled", "policy", "project", "window_tokens")

    def __init__(
        self,
        project: str | None,
        window_tokens: int | None,
        embed: bool | None,  # noqa: FBT001 - as they are recorded
        policy: int | None,
    ) -> None:
        self.policy = policy
        self.project = project
        self.window_tokens = window_tokens
        self.embed = embed
        self.is_settled = False

    def check(self, core: "Core", stream: str, at: int | None) -> None:
        """Raise ``InvalidInput`` if the conversation was opened with other values.

        This does not count as a read of the state by an open batch, so neither opening a handle nor appending through
        it does.
        """
        known, window = core.read_lightly(stream, lambda state: (state.part(SESSION), state.part(WINDOW)), at)
        budget, policy = window.window_tokens, window.policy
        if not known.opened:
            return
        if self.project is not None and self.project != known.project and not known.unknown:
            raise InvalidInput(
                f"{stream} belongs to project {known.project!r}, not {self.project!r}; leave project= out"
            )
        if self.window_tokens is not None and self.window_tokens != budget:
            raise InvalidInput(
                f"{stream} has a budget of {budget} tokens, not {self.window_tokens}; "
                f"use set_window_tokens to change it"
            )
        if self.embed is not None and self.embed is not known.embed:
            raise InvalidInput(
                f"{stream} was opened with embed={known.embed}, not {self.embed}; use set_embed to change it"
            )
        if self.policy is not None and self.policy != policy:
            raise InvalidInput(
                f"{stream} was opened with eviction={NAMES.get(policy)!r}, not {NAMES[self.policy]!r}, which stays; "
                f"look at it under another policy with memory.what_if"
            )

    def settle(self, core: "Core", stream: str, at: int | None) -> None:
        """Check again at the first mutation, because another handle may have opened the conversation since."""
        self.check(core, stream, at)
        self.is_settled = True
