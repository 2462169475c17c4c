"""The turns that run in this process: one at a time in a conversation, so that no request is worked on twice."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from threading import Lock
from typing import Any, Final, Generic, TypeVar, cast

from refold import checks
from refold.errors import StoreBusy
from refold.memory.conversation import Conversation
from refold.memory.core import core_of
from refold.memory.reasons import shorten

T = TypeVar("T")

CANCELLED: Final = "the turn was cancelled; resume() goes on with it"
_POLL_SECONDS: Final = 0.05  # How often a call that waits for a turn asks whether it was itself cancelled.


class TurnOver(Exception):
    """A turn cannot go on: its question is gone or answered, or the turn was cancelled; the text says which."""


class RunningTurn(Generic[T]):
    """A turn that runs: the texts of its question, and its result once it has ended without an exception."""

    __slots__ = ("_running", "is_cancelled", "result", "texts")

    def __init__(self, texts: Sequence[str], is_cancelled: Callable[[], bool] | None) -> None:
        self.texts = frozenset(texts)
        self.is_cancelled = is_cancelled
        self.result: T | None = None
        self._running = Lock()
        self._running.acquire()

    def end(self) -> None:
        """Wake the callers that wait for the turn."""
        self._running.release()

    def wait(self, seconds: float) -> bool:
        """Wait until the turn has ended, up to some seconds or, with -1, for ever; return whether it has."""
        has_ended = self._running.acquire(timeout=seconds)
        if has_ended:
            self._running.release()  # For the next one that waits.
        return has_ended

    def was_cancelled(self) -> bool:
        """Return whether the turn is to end early."""
        return self.is_cancelled is not None and self.is_cancelled()


_lock: Final = Lock()
_running: Final[dict[tuple[int, str], RunningTurn[Any]]] = {}
# A tool or a hook that waited for the turn that called it would wait for ever.
_CALLERS: Final[ContextVar[tuple[RunningTurn[Any], ...]]] = ContextVar("refold_turns", default=())


def run_alone(
    chat: Conversation, texts: Sequence[str], is_cancelled: Callable[[], bool] | None, work: Callable[[], T]
) -> T:
    """Return the result of `work`, while no other turn of this process runs in the conversation.

    If a turn with one of the `texts` as its question runs already, wait for it and return its result; `work` is called
    after it only if it failed or was cancelled. A turn with another question raises `StoreBusy`, unless it was
    cancelled: then `work` is called once it has ended. Raises `TurnOver` if this call is cancelled while it waits.
    """
    core, _ = core_of(chat)
    place = id(core.engine), core.key(chat.place[0])  # The engine lives as long as a turn in it.
    own = RunningTurn[T](texts, is_cancelled)
    token = _CALLERS.set((*_CALLERS.get(), own))
    try:
        while (other := _claim(place, own)) is not own:
            _check_may_wait(chat, other, own)
            while not other.wait(-1 if is_cancelled is None else _POLL_SECONDS):
                if own.was_cancelled():
                    raise TurnOver(CANCELLED)
            if other.result is not None and other.texts & own.texts and not other.was_cancelled():
                return cast("T", other.result)
        own.result = work()
        return own.result
    finally:
        _CALLERS.reset(token)
        with _lock:
            if _running.get(place) is own:
                del _running[place]
        own.end()


def _claim(place: tuple[int, str], own: RunningTurn[Any]) -> RunningTurn[Any]:
    """Return the turn that runs at a place, which is the own one if none did."""
    with _lock:
        return _running.setdefault(place, own)


def _check_may_wait(chat: Conversation, other: RunningTurn[Any], own: RunningTurn[Any]) -> None:
    said = shorten(next(iter(other.texts), ""))
    if other in _CALLERS.get():
        checks.invalid(
            f"a tool or a hook of the turn that answers {said!r} asks for another turn in {chat.id!r}, which would "
            f"wait for itself; use another conversation, or a fork of this one"
        )
    if not other.texts & own.texts and not other.was_cancelled():
        raise StoreBusy(
            f"conversation {chat.id!r} is answering another message ({said!r}); call again when that turn has ended, "
            f"or end it: AgentLoop(..., is_cancelled=)"
        )
