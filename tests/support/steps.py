"""Work counted in instructions, which the load of the machine does not change."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps_of(work: Callable[[], object]) -> int:
    """How many instructions of Python are executed while something is done."""
    steps = 0

    def note(frame: FrameType, what: str, _argument: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += what == "opcode"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps
