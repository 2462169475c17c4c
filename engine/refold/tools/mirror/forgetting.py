"""What was erased leaves the copies that were kept beside files, and a hand's own words stay in them. Pure.

A copy holds what a hand saved, and with it lines and values that were the log's. Nobody has those texts any more once
they were erased, so they are known by digests: of each line of a note, of each key, of each key with its value.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from refold.event import Event
from refold.store.mirror_files import PROFILE_FILE
from refold.tools.mirror.merging import Passed, facts_told
from refold.tools.mirror.pages import (
    BLANK,
    LINE_CHARS,
    Part,
    Unreadable,
    day_of,
    digest,
    file_of,
    heading,
    pairs_of,
    part_of,
    part_of_lines,
)
from refold.tools.mirror.sides import Side
from refold.tools.mirror.state import Base
from refold.views.journal import JournalAppended
from refold.views.profile import ProfileDeleted, ProfileSet

_BOM: Final = "\ufeff".encode()
# One that is not closed is taken to the end of the text: no quote inside of it begins another.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?')
_EMPTY: Final = b'""'


def said_by_bases(name: str, bases: Iterable[Base], recent: Sequence[Passed]) -> set[str]:
    """Return what of the log's a file is known to have held, of late and before, by digests."""
    if name != PROFILE_FILE:
        return set[str]().union(*(_lines_said(base.notes).difference(base.own) for base in bases))
    known = (*((base.facts, base.own) for base in bases), *((passed.before, passed.own) for passed in recent))
    return set[str]().union(*(_facts_said(facts).difference(own) for facts, own in known))


def said_by_log(name: str, side: Side) -> set[str]:
    """Return what the log says in a file now, by digests."""
    if name == PROFILE_FILE:
        return _facts_said(facts_told(side.facts))
    return _lines_said(part_of(text) for _, text in side.days.get(name, ()))


def said_by_event(event: Event) -> tuple[str, set[str]]:
    """Return the file that an event says something in, and what, by digests."""
    if isinstance(event, ProfileSet):
        return PROFILE_FILE, _facts_said(facts_told({event.key: event.value}))
    if isinstance(event, ProfileDeleted):
        return PROFILE_FILE, {digest(event.key.encode())}
    if isinstance(event, JournalAppended):
        return file_of(event.day) or "", _lines_said([part_of(event.text)])
    return "", set()


def _facts_said(facts: Mapping[str, str]) -> set[str]:
    """Return keys, and keys with their values; what has no value was not there."""
    return {*facts, *(key + value for key, value in facts.items() if value)}


def _lines_said(parts: Iterable[Part]) -> set[str]:
    return {part[begin : begin + LINE_CHARS] for part in parts for begin in range(0, len(part), LINE_CHARS)} - {BLANK}


def said_by_file(name: str, content: bytes) -> set[str]:
    """Return what a file says, by digests."""
    if name != PROFILE_FILE:
        return {_line_said(line) for line in _lines_of(content)} - {BLANK, part_of_lines([heading(day_of(name))])}
    facts = _flat(content) or {}
    return {said for key, value in facts.items() for said in (_told(key), _fact_said(key, value))}


def standing(name: str, content: bytes, said: Collection[str]) -> set[str]:
    """Return what of the said stands in a copy of a file."""
    if name != PROFILE_FILE:
        return {_line_said(line) for line in _lines_of(content)}.intersection(said)
    facts = _flat(content)
    if facts is not None:
        return {_fact_said(key, value) for key, value in facts.items()}.intersection(said)
    strings = {_string_said(found[0]) for found in _STRING.finditer(content)}
    return {told for told in said if told[-len(digest(b"")) :] in strings}


def without(name: str, content: bytes, gone: AbstractSet[str]) -> bytes:
    """Return a copy of a file without what is gone, empty where it says nothing else."""
    if not gone:
        return content
    if name == PROFILE_FILE:
        return _without_facts(content, gone)
    return _without_lines(content, gone, heading(day_of(name)).encode())


# Days.


def _lines_of(content: bytes) -> list[bytes]:
    return content.removeprefix(_BOM).split(b"\n")


def _line_said(line: bytes) -> str:
    # A line that is no text is nobody's but the hand's.
    return part_of_lines([line.decode(errors="replace").rstrip()])


def _without_lines(content: bytes, gone: AbstractSet[str], head: bytes) -> bytes:
    lines = _lines_of(content)
    left = [line for line in lines if _line_said(line) not in gone]
    begins_so = bool(left) and (left[0].rstrip() == head or left[0].startswith(head + b", in the place of seq "))
    says = any(line.strip() for line in left[begins_so:])
    return content if left == lines else b"\n".join(left) if says else b""


# The profile.


def _flat(content: bytes) -> dict[str, str | None] | None:
    """Return the facts of a copy, ``None`` for what is no object of different strings: saved in parts, perhaps."""
    try:
        pairs = pairs_of(content)
    except Unreadable:
        return None
    facts: dict[str, Any] = dict(pairs)
    is_flat = len(facts) == len(pairs) and all(value is None or isinstance(value, str) for value in facts.values())
    return facts if is_flat else None


def _fact_said(key: str, value: str | None) -> str:
    hashed = _told(key)
    return hashed if value is None else hashed + _told(value)


def _told(text: str) -> str:
    return digest(text.encode(errors="surrogatepass"))


def _without_facts(content: bytes, gone: AbstractSet[str]) -> bytes:
    facts = _flat(content)
    if facts is None:
        # Nobody can tell which value is whose; a string that was said with any key is taken out.
        strings = {told[-len(digest(b"")) :] for told in gone}
        return _STRING.sub(_emptied(strings), content)
    left = {key: value for key, value in facts.items() if _fact_said(key, value) not in gone}
    if left == facts:
        return content
    return msgspec.json.format(msgspec.json.encode(left, order="sorted"), indent=2) + b"\n" if left else b""


def _string_said(string: bytes) -> str:
    try:
        text = json.loads(string, strict=False)
    except ValueError:
        return ""
    return _told(text)


def _emptied(strings: AbstractSet[str]) -> Callable[[re.Match[bytes]], bytes]:
    return lambda found: _EMPTY if _string_said(found[0]) in strings else found[0]
