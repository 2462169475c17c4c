"""The process that the demonstration kills: it appends, says what was acknowledged, and stands still in a commit.

The last thing that a commit asks for before its turn to write is the time. After the agreed number of messages this
process never gets it: its next event is made and checked, and then comes the kill.
"""

import os
import sys
from collections.abc import Callable

from refold.faces.reproducible import opened


class _Clock:
    """A clock that, once armed, says so and never tells the time any more."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.armed = False

    def now_ns(self) -> int:
        """Return the time, or stand still until this process is killed."""
        if self.armed:
            print("committing", flush=True)
            sys.stdin.read()
            # The parent is gone, and with it whoever would have killed us.
            os._exit(1)
        return self._clock_ns()


def main(path: str, conversation_id: str, count: int) -> None:
    """Append ``count`` messages, each acknowledged by a line with its seq, and one more that never gets that far."""
    clocks: list[_Clock] = []

    def guarded(clock_ns: Callable[[], int]) -> Callable[[], int]:
        clocks.append(_Clock(clock_ns))
        return clocks[0].now_ns

    chat = opened(path, clock_ns=guarded).conversation(conversation_id)
    for number in range(1, count + 1):
        print(chat.append("user", f"message {number}").seq, flush=True)
    clocks[0].armed = True
    chat.append("user", f"message {count + 1}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
