"""The points at which the interpreter looks for signals, and a signal that arrives just before one of them.

A trace function does not raise: it marks the signal as pending, by C code that looks for no signal itself, and switches
tracing off. The interpreter then raises at its own next look, after a call of C, at the begin of a function or at a
jump backward, so an exception lands only where Ctrl-C lands, with any version's own rules on what is atomic.
"""

import _thread
import dis
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Self

import refold

ROOT: Final = Path(refold.__file__).parent.parent


class _Trip(int):
    """A number of a signal that becomes pending when ``now`` is read: no call, so no look for signals behind it."""

    now = property(_thread.interrupt_main)


_TRIP: Final = _Trip(signal.SIGINT)
_CALLS: Final = {code for name, code in dis.opmap.items() if name.startswith("CALL") and "INTRINSIC" not in name}
_LOOKING: Final = _CALLS | {code for name, code in dis.opmap.items() if "JUMP_BACKWARD" in name}


class _Offsets(dict[CodeType, frozenset[int]]):
    """The offsets of the instructions of a code that look for signals or begin to, besides its first one."""

    def __init__(self, codes: set[int]) -> None:
        super().__init__()
        self._codes = codes

    def __missing__(self, code: CodeType) -> frozenset[int]:
        raw = code.co_code
        found = self[code] = frozenset(place for place in range(0, len(raw), 2) if raw[place] in self._codes)
        return found


_looks = _Offsets(_LOOKING)
_calls = _Offsets(_CALLS)

Return = tuple[CodeType, CodeType, int]
"""What returned to which instruction of what."""


class Outcome(NamedTuple):
    """What became of a call."""

    points: list[Return | None]
    """The points that were passed; the end of a function with what it returns to."""
    where: str | None
    """Where the exception was raised, ``None`` if the call was over before."""
    code: tuple[CodeType, int] | None
    """The instruction at which it was raised."""
    is_outside: bool
    """Whether it was raised in the caller's own code."""
    is_ignored: bool
    """Whether the interpreter or another library had to ignore it: in a callback of C code, which cannot raise."""
    raised: BaseException | None
    """What came out of the call."""


class Interrupter:
    """Calls functions on the main thread and interrupts them once; a signal at any other time is not for it."""

    def __init__(self) -> None:
        self._error: type[BaseException] | None = None
        self._where: str | None = None
        self._code: tuple[CodeType, int] | None = None
        self._is_outside = self._is_ignored = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._land)
        sys.unraisablehook = self._ignore
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        sys.unraisablehook = sys.__unraisablehook__

    def _ignore(self, problem: "sys.UnraisableHookArgs") -> None:
        self._is_ignored |= problem.exc_type in {KeyboardInterrupt, MemoryError}

    def _land(self, _: int, frame: FrameType | None) -> None:
        if frame is None or frame.f_code is Interrupter.call.__code__:  # The call was over before.
            return
        error, self._error = self._error, None
        if error is not None:
            self._where, self._code = place_of(frame), (frame.f_code, frame.f_lasti)
            self._is_outside = _frame_of_refold(frame) is None
            self._is_ignored = not frame.f_code.co_filename.startswith(str(ROOT))
            raise error

    def call(self, function: Callable[[], Any], point: int, error: type[BaseException]) -> Outcome:
        """Call the function and interrupt it at the point of this number, from 1 on; at none for 0."""
        tracer = _Tracer(point)
        self._error, self._where, self._code, self._is_ignored = error, None, None, False
        raised: BaseException | None = None
        # Referred to until the end: CPython 3.11 goes on to call what it was given, without a reference of its own,
        # where a finalizer that runs while a frame is being made has just ended the tracing.
        trace = tracer.begin
        sys.settrace(trace)
        try:
            function()
        except BaseException as problem:  # noqa: BLE001 - it is what is looked for
            raised = problem
        finally:
            sys.settrace(None)
            self._error = None
        is_ignored = raised is None and self._is_ignored
        return Outcome(tracer.points, self._where, self._code, self._is_outside, is_ignored, raised)


class _Tracer:
    """A trace function that collects points, and at one of them makes a signal pending and ends."""

    __slots__ = ("_caller", "_point", "points")

    def __init__(self, point: int) -> None:
        self.points: list[Return | None] = []
        self._point = point
        self._caller: FrameType | None = None
        """The frame whose call is next: the function that it calls looks at once, which is the same point."""

    def begin(self, frame: FrameType, _event: str, _: Any) -> Any:
        """Trace a function, or a generator that goes on."""
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        caller, self._caller = self._caller, None
        if caller is None or caller is not frame.f_back:
            self._pass(None)
        return self._go_on

    def _go_on(self, frame: FrameType, event: str, _: Any) -> Any:
        self._caller = None
        if event == "opcode" and frame.f_lasti in _looks[frame.f_code]:
            self._caller = frame
            self._pass(None)
        elif event == "return":
            behind = frame.f_back
            if behind is not None and behind.f_lasti in _calls[behind.f_code]:
                self._pass((frame.f_code, behind.f_code, behind.f_lasti))
        return self._go_on

    def _pass(self, key: Return | None) -> None:
        self.points.append(key)
        if len(self.points) == self._point:
            sys.settrace(None)
            _TRIP.now  # noqa: B018 - reading it is what it is for


def _frame_of_refold(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not frame.f_code.co_filename.startswith(str(ROOT)):
        frame = frame.f_back
    return frame


def place_of(frame: FrameType) -> str:
    """Return file, line and function of the innermost frame of refold, and of what it called."""
    inner, found = frame, _frame_of_refold(frame) or frame
    path = Path(found.f_code.co_filename)
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
    inside = "" if found is inner else f" in {inner.f_code.co_qualname}"
    return f"{name}:{found.f_lineno or found.f_code.co_firstlineno} {found.f_code.co_qualname}{inside}"


def call_failing(function: Callable[[], Any], thread_name: str, point: int, error: type[BaseException]) -> Outcome:
    """Call a function while threads of a name run out of memory, once, as the n-th function of refold begins there."""
    points: list[Return | None] = []
    where: list[str] = []
    is_over = threading.Event()

    def trace(frame: FrameType, _event: str, _: Any) -> None:
        is_theirs = threading.current_thread().name == thread_name and not is_over.is_set()
        if is_theirs and frame.f_code.co_filename.startswith(str(ROOT)):
            points.append(None)
            if len(points) == point:
                where.append(place_of(frame))
                raise error

    raised: Exception | None = None
    threading.settrace(trace)
    try:
        function()
    except Exception as problem:  # noqa: BLE001 - it is judged
        raised = problem
    finally:
        is_over.set()
        threading.settrace(None)
    return Outcome(points, where[0] if where else None, None, is_outside=False, is_ignored=True, raised=raised)
