"""The base class of the handles on a conversation and its parts, and what a caller claims of the conversation."""

from refold.engine.transaction import Decide
from refold.errors import InvalidInput
from refold.event import ConversationOpened, Event, ForkDropped
from refold.memory.core import Core, Handle
from refold.views.session import SESSION
from refold.views.window import NAMES, WINDOW


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

    def check(self, core: Core, stream: str, at: int | None) -> None:
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

    def settle(self, core: Core, stream: str, at: int | None) -> None:
        """Check again at the first mutation, because another handle may have opened the conversation since."""
        self.check(core, stream, at)
        self.is_settled = True


class ConversationHandle(Handle):
    """A handle on a conversation or a part of it: before a write, it checks the claims, and calls the watches."""

    __slots__ = ("_claims", "_since")

    _opening: ConversationOpened  # type: ignore[mutable-override]

    def __init__(
        self,
        core: Core,
        stream: str,
        at: int | None,
        opening: ConversationOpened,
        claims: Claims | None = None,
        since: int | None = None,
    ) -> None:
        super().__init__(core, stream, at, opening)
        self._claims = claims
        self._is_settled = claims is None
        if since is None:
            since = core.engine.reader.stored_head() if at is None else 0
        self._since = since
        """The seq after which a drop of the conversation ends this handle."""

    def _guard(self, make: Event | Decide) -> Event | Decide:
        core = self._core
        if self._claims is not None and not self._claims.is_settled:
            self._claims.settle(core, self._stream, self._at)
        self._is_settled = True
        if self._at is None:
            if core.watches:
                from refold.memory.departures import warn  # noqa: PLC0415 - loaded only if there are watches

                warn(core, self._stream, make, self._opening)
            if ForkDropped in core.engine.reader.types_written:
                from refold.memory.drops import guard  # noqa: PLC0415 - loaded only if something was dropped

                make = guard(core, self._stream, self._since, make)
        return make
