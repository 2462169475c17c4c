"""The order in which the groups of a window leave under policies that do not go by age alone."""

from collections.abc import Sequence
from heapq import heapify, heappush
from operator import itemgetter
from typing import Any, Final

import msgspec

from refold.limits import PAGE_EVENTS
from refold.message import Message
from refold.views.base import copy_slots

IMPORTANCE_UNIT: Final = 1_000
"""Importance is recorded in thousandths, so that evictions are ordered by integers, the same on every machine."""

STALE_PARTS: Final = 2
"""A heap, a queue or ratings are rebuilt once more than ``1 / STALE_PARTS`` of them is stale."""

_ROWS: Final[Any] = tuple[int, list[int], list[int]]


class Ranks:
    """The order in which groups leave: the group with the lowest key first.

    A key is ``base`` in thousandths plus the importance times the budget, in integers; ties go to the older group. If
    no group has an importance, the order of the keys is that of ``bases``, and no heap is needed.
    """

    __slots__ = ("arrived", "bases", "heap", "weights", "window_tokens")

    def __init__(self, window_tokens: int) -> None:
        self.window_tokens = window_tokens
        self.arrived = 0  # The tokens of all messages that have entered.
        self.bases: dict[str, tuple[int, Message]] = {}
        """Id of a group's first member -> the seq of its last use, or the tokens that had arrived with it; and the
        member.

        The lowest comes first.
        """
        self.weights: dict[str, int] = {}  # Id -> the importance that was set, in thousandths, if it is not 0.
        self.heap: list[tuple[int, int, str]] = []
        """Key, seq and id of each group once any group has an importance, mixed with entries whose key is outdated."""

    copy = copy_slots

    def key(self, leader_id: str) -> int:
        """Return the key of a group."""
        return self.bases[leader_id][0] * IMPORTANCE_UNIT + self.weights.get(leader_id, 0) * self.window_tokens

    def push(self, leader_id: str) -> None:
        """Add a group to the heap, or its new key."""
        if len(self.heap) > STALE_PARTS * len(self.bases) + PAGE_EVENTS:
            self.sort()
        else:
            heappush(self.heap, (self.key(leader_id), self.bases[leader_id][1].stamp.seq, leader_id))

    def sort(self) -> None:
        """Build the heap anew, if it is needed."""
        groups = self.bases.items() if self.weights else ()
        self.heap = [(self.key(leader_id), leader.stamp.seq, leader_id) for leader_id, (_, leader) in groups]
        heapify(self.heap)

    def scale(self, window_tokens: int) -> None:
        """Set the budget, in units of which keys count importance."""
        self.window_tokens = window_tokens
        self.sort()

    def forget(self, leader_id: str) -> None:
        """Drop a group that has left."""
        self.bases.pop(leader_id, None)
        if self.weights.pop(leader_id, None) is not None and not self.weights:
            self.heap = []

    def rows(self, leaders: Sequence[str]) -> list[Any]:
        """Return the ranks of the groups, given oldest first, as plain values."""
        weights = [self.weights.get(leader_id, 0) for leader_id in leaders] if self.weights else []
        return [self.arrived, [self.bases[leader_id][0] for leader_id in leaders], weights]

    def restore(self, rows: Any, leaders: Sequence[str]) -> None:
        """Restore the ranks of the groups that have entered, given oldest first, from such rows."""
        self.arrived, bases, weights = msgspec.convert(rows, _ROWS)
        pairs = sorted(zip(bases, leaders, strict=True), key=itemgetter(0))  # With equal bases, the older group first.
        self.bases = {leader_id: (base, self.bases[leader_id][1]) for base, leader_id in pairs}
        self.weights = dict(zip(leaders, weights, strict=True)) if weights else {}
        self.weights = {leader_id: weight for leader_id, weight in self.weights.items() if weight}
        self.sort()
