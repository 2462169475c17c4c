"""Threads of the engine, seen from outside."""

import threading

_SECONDS_MAX = 10


def alive(name: str) -> list[threading.Thread]:
    """Return the threads of a name that do not end; one whose work is done may still be on its last instructions."""
    threads = [thread for thread in threading.enumerate() if thread.name == name]
    for thread in threads:
        thread.join(_SECONDS_MAX)
    return [thread for thread in threads if thread.is_alive()]
