"""What was erased leaves the copies that were kept beside files, and a hand's own words stay in them. Pure.

A copy holds what a hand saved, and with it lines and values that were the log's. Nobody has those texts any more once
they were erased, so they are known by the digests of what the file held when it was last written.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import msgspec

from refold.store.mirror_files import PROFILE_FILE
from refold.tools.mirror.merging import told
from refold.tools.mirror.pages import BLANK, LINE_CHARS, Part, day_of, heading, part_of, part_of_lines
from refold.tools.mirror.sides import Notes, Side
from refold.tools.mirror.state import Base

_BOM: Final = "\ufeff".encode()


class Gone(NamedTuple):
    """What a file held and the log has no more, as digests: lines of notes, and values by their keys."""

    lines: AbstractSet[str]
    facts: Mapping[str, AbstractSet[str]]


def gone_from(name: str, side: Side, bases: Sequence[Base], said: Mapping[str, str]) -> Gone:
    """Return what is to leave a copy of a file; ``said`` is what the copy has of what the log said before."""
    if name != PROFILE_FILE:
        return Gone(_lines(side.days.get(name, ()), [part for base in bases for part in base.notes]), {})
    current = {told(key): told(value) for key, value in side.facts.items()}
    facts: dict[str, set[str]] = {}
    for known in (*(base.facts for base in bases), said):
        for key, value in known.items():
            if current.get(key) != value:
                facts.setdefault(key, set()).add(value)
    return Gone(frozenset(), facts)


def _lines(notes: Notes, held: Iterable[Part]) -> set[str]:
    parts = {part_of(text) for _, text in notes}
    return _split(set(held) - parts) - _split(parts) - {BLANK}


def _split(parts: Iterable[Part]) -> set[str]:
    return {part[begin : begin + LINE_CHARS] for part in parts for begin in range(0, len(part), LINE_CHARS)}


def without(name: str, content: bytes, gone: Gone) -> bytes:
    """Return a copy of a file without what is gone, empty where it says nothing else."""
    if name == PROFILE_FILE:
        return _without_facts(content, gone.facts)
    return _without_lines(content, gone.lines, heading(day_of(name)).encode())


def _without_lines(content: bytes, gone: AbstractSet[str], head: bytes) -> bytes:
    lines = content.split(b"\n")
    # A line that is no text is nobody's but the hand's; it comes out as it went in.
    left = [line for line in lines if part_of_lines([line.decode(errors="replace").rstrip()]) not in gone]
    says = any(line.strip() and not line.startswith(head) for line in left)
    return content if left == lines else b"\n".join(left) if says else b""


def _without_facts(content: bytes, gone: Mapping[str, AbstractSet[str]]) -> bytes:
    try:
        facts = msgspec.json.decode(content.removeprefix(_BOM), type=dict[str, Any])
    except (ValueError, RecursionError):
        return content  # Saved in parts, perhaps: nobody can tell what it says.
    left = {key: value for key, value in facts.items() if not _is_gone(key, value, gone)}
    if left == facts:
        return content
    return msgspec.json.format(msgspec.json.encode(left, order="sorted"), indent=2) + b"\n" if left else b""


def _is_gone(key: str, value: object, gone: Mapping[str, AbstractSet[str]]) -> bool:
    """Return whether the log said so once; with a value its key goes, for it may be what was erased."""
    values = gone.get(told(key) or "", frozenset())
    return bool(values) and (value is None or (isinstance(value, str) and told(value) in values))
