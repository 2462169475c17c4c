"""Keys: what the engine knows a stream by, which is its name and, in a fork of the memory, the number of the branch.

In the main line the key is the name itself. Names begin with the letters of their kind, so the digits in front of
another branch's keys tell them apart.
"""

from collections.abc import Callable
from typing import NamedTuple


def key_of(branch: int, name: str) -> str:
    """Return the key of a stream in a branch."""
    return f"{branch}:{name}" if branch else name


def parted(key: str) -> tuple[int, str]:
    """Return the branch and the name that a key stands for."""
    if key[0] > "9":
        return 0, key
    branch, _, name = key.partition(":")
    return int(branch), name


def name_of(key: str) -> str:
    """Return the name that a key stands for, as stamps, hashes and messages show it."""
    return key if key[0] > "9" else key.partition(":")[2]


def kind_of(key: str) -> str:
    """Return the kind of the stream that a key or a name stands for."""
    return name_of(key).partition("/")[0]


def session_board(session: str) -> str:
    """Return the name of the stream of a session's board."""
    return f"board/session/{session}"


class Names(NamedTuple):
    """What the numbers in events stand for."""

    stream: Callable[[int], str]
    branch: Callable[[int], str]
    branch_of: Callable[[int], int]
    """The branch of a stream."""
