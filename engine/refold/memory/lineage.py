"""Which messages of other conversations, and which of its own, are the past of each conversation. Pure.

A conversation continues from another one, or from an earlier state of its own, by a fork or a restore; by a drop, it
ends, and what was forked from it goes on.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from typing import NamedTuple

from refold.engine.reader import Reader
from refold.event import ForkDropped, Forked, Recorded, Restored, StateImported


class Span(NamedTuple):
    """The events of a stream with ``after < seq <= until``."""

    stream: str
    after: int
    until: int


class Link(NamedTuple):
    """An event by which a stream continues from a state, or from an empty or imported one if ``stream`` is empty."""

    seq: int
    after: int
    """The seq after which the stream's messages are its own again; an import brings some itself."""
    stream: str
    base_seq: int
    is_drop: bool


class Lineage:
    """The forks, restores and drops of a branch's conversations."""

    def __init__(self, reader: Reader, branch: int) -> None:
        self._reader = reader
        self._branch = branch
        self._links: dict[str, list[Link]] = {}

    @property
    def streams(self) -> Collection[str]:
        """The streams that were ever forked from another one, restored, imported or dropped."""
        return self._links.keys()

    def take(self, recorded: Recorded) -> None:
        """Take an event; one of another kind of stream, or that was taken before, changes nothing."""
        event, stamp = recorded
        is_link = isinstance(event, (Forked, Restored, StateImported, ForkDropped))
        if not is_link or not stamp.stream.startswith("conversation/"):
            return
        links = self._links.setdefault(stamp.stream, [])
        place = bisect_right(links, stamp.seq, key=_seq_of)
        if not place or links[place - 1].seq != stamp.seq:
            base, base_seq = self._base_of(event) if isinstance(event, (Forked, Restored)) else ("", 0)
            after = stamp.seq - isinstance(event, StateImported)
            links.insert(place, Link(stamp.seq, after, base, base_seq, isinstance(event, ForkDropped)))

    def _base_of(self, event: Forked | Restored) -> tuple[str, int]:
        """Return the stream that an event continues from, and the seq up to which its events are of this branch."""
        if not event.base_stream:
            return "", 0
        names = self._reader.names()
        branch, base_seq = names.branch_of(event.base_stream), event.base_seq
        if branch != self._branch:
            here = self._reader.bounds(self._branch, self._reader.current_head()) or {}
            there = self._reader.bounds(branch, base_seq) or {}
            base_seq = max((min(here[each], there[each]) for each in here.keys() & there.keys()), default=0)
        return names.stream(event.base_stream), base_seq

    def past(self, streams: Iterable[str], end: int) -> list[Span]:
        """Return what led to the states of streams at a seq, without what a restore took back; each part once."""
        reached: dict[tuple[str, int], int] = {}
        for each in streams:
            stream, until = each, end
            while stream:
                links = self._links.get(stream, ())
                place = bisect_right(links, until, key=_seq_of)
                link = links[place - 1] if place else Link(0, 0, "", 0, is_drop=False)
                if reached.get((stream, link.after), -1) >= until:
                    break  # And so is all that it continued from.
                reached[stream, link.after] = until
                stream, until = link.stream, link.base_seq
        return [Span(stream, after, until) for (stream, after), until in reached.items()]

    def history(self, streams: Iterable[str], end: int, heirs: Iterable[Forked | Restored] = ()) -> list[Span]:
        """Return all that streams ever held by a seq: also what a restore took back, but nothing from before a drop.

        So is what led to ``heirs``, events of an open batch by which others continue.
        """
        reached: dict[tuple[str, int], int] = {}
        waiting = [*((stream, end) for stream in streams), *map(self._base_of, heirs)]
        while waiting:
            stream, until = waiting.pop()
            links = self._links.get(stream, ())
            after = self.last_drop(stream, until)
            if until > reached.get((stream, after), after):
                reached[stream, after] = until
                waiting += [(each.stream, each.base_seq) for each in links if each.stream and after < each.seq <= until]
        return [Span(stream, after, until) for (stream, after), until in reached.items()]

    def last_drop(self, stream: str, end: int) -> int:
        """Return the seq of the last drop of a stream by a seq, or 0."""
        return max((each.seq for each in self._links.get(stream, ()) if each.is_drop and each.seq <= end), default=0)

    def restoration(self, stream: str, seq: int, end: int) -> int:
        """Return the seq of the first restore by ``end`` that took back an event of a stream, or 0."""
        later = (each for each in self._links.get(stream, ()) if seq < each.seq <= end and not each.is_drop)
        return next((each.seq for each in later if each.stream != stream or each.base_seq < seq), 0)


def _seq_of(link: Link) -> int:
    return link.seq


def by_stream(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Group spans by their streams."""
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.stream, []).append(span)
    return found
