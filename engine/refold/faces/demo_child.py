"""The process that the demonstration kills: it appends, says what was acknowledged, and stands still in a commit.

The last thing that a commit asks for before it writes is random bytes, for the salts of its events. After the agreed
number of messages this process never gets them: its next event is checked and encoded, and then comes the kill.
"""

import os
import sys
from collections.abc import Callable

from refold.faces.reproducible import opened


class _Doors:
    """A random source that, once armed, says so and gives nothing any more."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self.armed = False

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes, or stand still until this process is killed."""
        if self.armed:
            print("committing", flush=True)
            sys.stdin.read()
            # The parent is gone, and with it whoever would have killed us.
            os._exit(1)
        return self._random_bytes(count)


def main(path: str, conversation_id: str, count: int) -> None:
    """Append ``count`` messages, each acknowledged by a line with its seq, and one more that never gets that far."""
    doors: list[_Doors] = []

    def guarded(random_bytes: Callable[[int], bytes]) -> Callable[[int], bytes]:
        doors.append(_Doors(random_bytes))
        return doors[0].random_bytes

    chat = opened(path, random_bytes=guarded).conversation(conversation_id)
    for number in range(1, count + 1):
        print(chat.append("user", f"message {number}").seq, flush=True)
    doors[0].armed = True
    chat.append("user", f"message {count + 1}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
