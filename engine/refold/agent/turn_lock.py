"""The turns that run: one at a time in a conversation, so that no request is worked on twice.

The turns of a process exclude each other. Those that a ``request_id`` names also exclude the ones of other processes
that have the same store open.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from time import monotonic, sleep
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from refold import checks
from refold.errors import StoreBusy
from refold.limits import LOOP_WAIT_SECONDS_MAX
from refold.log.reservation import Reservation
from refold.memory.conversation import Conversation
from refold.memory.core import core_of
from refold.memory.reasons import shorten


class TurnResult(Protocol):
    """What a turn returns."""

    @property
    def stop_reason(self) -> str | None:
        """The reason if the turn was stopped."""
        ...


T = TypeVar("T", bound=TurnResult)


class Question(NamedTuple):
    """The name of the user who asks, if users have names, what the user says, and the id of the request, if any."""

    user_name: str | None
    text: str
    request_id: str | None = None


CANCELLED: Final = "the turn was cancelled; resume() goes on with it"
# The reasons to end a turn whose question changed while a model or a tool worked on it.
GONE: Final = (
    "the message was erased, or its conversation dropped, while it was being answered; nothing more was recorded"
)
ANSWERED: Final = "the message was answered or taken back elsewhere meanwhile; the reply of this turn was not recorded"
# The reasons why a request that is repeated has no answer and gets none.
ERASED: Final = "the message or its answer was erased, or its conversation dropped; ask again with another request_id"
PASSED: Final = (
    "the message has no answer, and was taken back, answered elsewhere, or followed by another message; ask again with "
    "another request_id"
)
_POLL_SECONDS: Final = 0.05  # How often a call that waits for a turn asks whether it was itself cancelled.


class TurnOver(Exception):
    """A turn cannot go on: its question is gone or answered, or the turn was cancelled; the text says which."""


class RunningTurn(Generic[T]):
    """A turn that runs: the forms of its question, and its result once it has ended with one that holds for a retry."""

    __slots__ = ("_running", "is_cancelled", "questions", "result")

    def __init__(self, questions: Sequence[Question], is_cancelled: Callable[[], bool] | None) -> None:
        self.questions = questions
        self.is_cancelled = is_cancelled
        self.result: T | None = None
        self._running = Lock()
        self._running.acquire()

    def end(self) -> None:
        """Wake the callers that wait for the turn."""
        self._running.release()

    def is_running(self) -> bool:
        """Return whether the turn has not ended yet."""
        return self._running.locked()

    def wait(self, seconds: float) -> bool:
        """Wait until the turn has ended, up to some seconds; return whether it has."""
        has_ended = self._running.acquire(timeout=seconds)
        if has_ended:
            self._running.release()  # For the next one that waits.
        return has_ended

    def was_cancelled(self) -> bool:
        """Return whether the turn is to end early."""
        return self.is_cancelled is not None and self.is_cancelled()

    def answers(self, questions: Sequence[Question]) -> bool:
        """Return whether the turn answers one of the questions; one without a request id is known by its text."""
        own = (*self.questions, *(question._replace(request_id=None) for question in self.questions))
        return any(question in own for question in questions)


_lock: Final = Lock()
_running: Final[dict[tuple[int, str], RunningTurn[Any]]] = {}
# The turns whose tools and hooks led to a call, and which wait for it. If it waited for another turn, that one could
# wait for them. On a thread of a pool, nothing says which turns these are; so every wait has a bound.
_CALLERS: Final[ContextVar[tuple[RunningTurn[Any], ...]]] = ContextVar("refold_turns", default=())


def run_alone(
    chat: Conversation, questions: Sequence[Question], is_cancelled: Callable[[], bool] | None, work: Callable[[], T]
) -> T:
    """Return the result of `work`, while no other turn of this process runs in the conversation.

    If a turn with one of the `questions` runs already, wait for it and return its result; `work` is called after it
    only if it failed or ended because it was cancelled. A turn with another question raises `StoreBusy`, unless it was
    cancelled: then `work` is called once it has ended. So does a wait of more than LOOP_WAIT_SECONDS_MAX, and each wait
    of a tool or a hook of a turn. Raises `TurnOver` if this call is cancelled while it waits. With a request id, `work`
    also waits until no turn with one runs in the conversation in another process.
    """
    core, _ = core_of(chat)
    place = id(core.engine), core.key(chat.place[0])  # The engine lives as long as a turn in it.
    own = RunningTurn[T](questions, is_cancelled)
    token = _CALLERS.set((*_CALLERS.get(), own))
    until = monotonic() + LOOP_WAIT_SECONDS_MAX
    try:
        while (other := _claim(place, own)) is not own:
            _check_may_wait(chat, other, own)
            _wait(chat, other, own, until)
            if other.result is not None and other.answers(questions):
                return cast("T", other.result)
        with _reservation(chat, own, until):
            result = work()
        own.result = None if result.stop_reason == CANCELLED else result
        return result
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


def _wait(chat: Conversation, other: RunningTurn[Any], own: RunningTurn[Any], until: float) -> None:
    while not other.wait(max(0.0, min(_POLL_SECONDS, until - monotonic()))):
        if own.was_cancelled():
            raise TurnOver(CANCELLED)
        if monotonic() >= until:
            raise StoreBusy(
                f"waited LOOP_WAIT_SECONDS_MAX = {LOOP_WAIT_SECONDS_MAX} seconds for the turn that answers "
                f"{_describe(other)} in {chat.id!r}; call again to wait longer, or end that turn: "
                f"AgentLoop(..., is_cancelled=)"
            )


@contextmanager
def _reservation(chat: Conversation, own: RunningTurn[Any], until: float) -> Generator[None]:
    """Keep the turns with a request id of other processes out of the conversation, if the own one has an id, too."""
    core, _ = core_of(chat)
    reader = core.engine.reader
    directory = reader.log.files.directory
    if directory is None or all(question.request_id is None for question in own.questions):
        yield
        return
    reservation = Reservation(directory, reader.keyed_hash(b"turn" + core.key(chat.place[0]).encode()).hex())
    try:
        while not reservation.take():
            _wait_for_process(chat, own, until)
        yield
    finally:
        reservation.release()


def _wait_for_process(chat: Conversation, own: RunningTurn[Any], until: float) -> None:
    """Wait a little, unless the wait must end."""
    problem = f"another process is answering a message in {chat.id!r}"
    if _callers_of(own):
        raise StoreBusy(f"{problem}, and a tool or a hook cannot wait for that; call again when that turn has ended")
    if own.was_cancelled():
        raise TurnOver(CANCELLED)
    if monotonic() >= until:
        raise StoreBusy(
            f"{problem}, for longer than LOOP_WAIT_SECONDS_MAX = {LOOP_WAIT_SECONDS_MAX} seconds; call again to wait "
            f"longer, or end that turn there: AgentLoop(..., is_cancelled=)"
        )
    sleep(_POLL_SECONDS)


def _callers_of(own: RunningTurn[Any]) -> list[RunningTurn[Any]]:
    """Return the turns whose tool or hook makes this call."""
    return [caller for caller in _CALLERS.get() if caller is not own and caller.is_running()]


def _check_may_wait(chat: Conversation, other: RunningTurn[Any], own: RunningTurn[Any]) -> None:
    callers = _callers_of(own)
    if other in callers:
        checks.invalid(
            f"a tool or a hook of the turn that answers {_describe(other)} asks for another turn in {chat.id!r}, which "
            f"would wait for itself; use another conversation, or a fork of this one"
        )
    if not other.answers(own.questions) and not other.was_cancelled():
        raise StoreBusy(
            f"conversation {chat.id!r} is answering another message ({_describe(other)}); call again when that turn "
            f"has ended, or end it: AgentLoop(..., is_cancelled=)"
        )
    if callers:
        raise StoreBusy(
            f"conversation {chat.id!r} is answering {_describe(other)}, and a tool or a hook of the turn that answers "
            f"{_describe(callers[-1])} cannot wait for that, because the one could wait for the other; call again "
            f"when that turn has ended, or use another conversation, or a fork of this one"
        )


def _describe(turn: RunningTurn[Any]) -> str:
    name, text, _ = turn.questions[0]
    return repr(shorten(text)) + (f" of {name!r}" if name else "")
