"""Frontmatter: the YAML block between two lines ``---`` at the head of a skill file. Pure.

YAML is read event by event, so that every key has its line, nothing nests or grows without bound, and every scalar
stays the text that was written: a version ``1.10`` is no number.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from refold.errors import InvalidInput
from refold.tools.skills.limits import SKILL_FRONT_BYTES_MAX, SKILL_FRONT_VALUES_COUNT_MAX, SKILL_NESTING_COUNT_MAX

Value: TypeAlias = Any
"""A text, a list of values, or a dict of values by text."""

_FENCE: Final = "---"
_BOM: Final = "\ufeff"
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_ENTRY: Final = re.compile(r"([\w-]+):[ \t]+(\S.*)")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_MEANINGFUL: Final = frozenset(("true", "false", "yes", "no", "on", "off", "y", "n", "null"))
_QUOTED: Final = ("'", '"', "|", ">", "[", "{", "&", "*", "!", "#")
"""How a value begins that is not plain."""

_UNOPENED: Final = "SKILL.md must start with YAML frontmatter (---)"
_UNCLOSED: Final = "SKILL.md frontmatter not properly closed with ---"
_BEFORE: Final = "something stands before the opening ---"

FLOW: Final = "flow style is not allowed"
ALIAS: Final = "anchors and aliases are not allowed"
TAGGED: Final = "explicit tags are not allowed"


class Split(NamedTuple):
    """A file cut in three, which joined give the file: what stands before the body, of which the block is a part."""

    head: str
    block: str | None
    """The YAML between the fences, ``None`` where there is no frontmatter."""
    body: str
    block_line: int
    """The line of the file, from 1, at which the block begins."""
    problem: str = ""
    """Why there is none, or what is odd about it."""


class Oddity(NamedTuple):
    """Something in a block that a strict reader refuses, and its line in the block, from 1."""

    line: int
    reason: str


class Block(NamedTuple):
    """What a block says: its mapping, the line of each key, and what a strict reader would refuse."""

    values: dict[str, Value]
    lines: dict[str, int]
    oddities: tuple[Oddity, ...]


class BlockError(Exception):
    """A block that cannot be read: the line in the block, from 1, and why."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def split(text: str) -> Split:
    r"""Return a file cut in three; only a line equal to ``---`` opens or closes the frontmatter.

    A byte order mark and empty lines before it are passed over. ``head + body`` is the text, to the last character.

    >>> split("---\nname: a\n---\nBody\n").body
    'Body\n'
    """
    begin, line = 0, 0
    opened: tuple[int, int] | None = None
    while begin < len(text):
        found = _LINE.match(text, begin)
        assert found is not None, "a line may be empty, so there always is one"
        line, end = line + 1, found.end()
        content = found.group() if opened else found.group().lstrip(_BOM)
        if content.rstrip() == _FENCE:
            if opened:
                block, problem = text[opened[0] : begin], "" if text.startswith(_FENCE) else _BEFORE
                return Split(text[:end], block, text[end:], opened[1], problem)
            opened = end, line + 1
        elif not opened and content.strip():
            break
        begin = end
    return Split("", None, text, 1, _UNCLOSED if opened else _UNOPENED)


def _lines(text: str) -> list[str]:
    """Return the lines with their ends; ``str.splitlines`` would also cut at characters that YAML takes for text."""
    return [found.group() for found in _LINE.finditer(text) if found.group()]


def read(block: str) -> Block:
    """Return what a block says; raises ``BlockError`` where it is no YAML mapping of bounded size."""
    if len(block.encode(errors="replace")) > SKILL_FRONT_BYTES_MAX:
        raise BlockError(1, f"the frontmatter is over SKILL_FRONT_BYTES_MAX = {SKILL_FRONT_BYTES_MAX:,}")
    composer = _Composer()
    for event in _events(block):
        composer.take(event)
    return composer.block()


def _events(block: str) -> Iterator[Any]:
    yaml = _yaml()
    try:
        yield from yaml.parse(block, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BlockError(mark.line + 1 if mark else 1, f"Invalid YAML in frontmatter: {error.problem}") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise BlockError(1, f"Invalid YAML in frontmatter: {str(error).partition(chr(10))[0]}") from error


@cache
def _yaml() -> Any:
    """Return PyYAML; raises ``InvalidInput`` with what to install if it is absent."""
    try:
        import yaml  # noqa: PLC0415 - loaded only by those who read skills
    except ImportError as error:
        message = f"skill files need the package 'PyYAML' ({error}); run: pip install 'refold[skills]'"
        raise InvalidInput(message) from error
    return yaml


def mended(block: str) -> tuple[str, tuple[Oddity, ...]]:
    """Return a block with plain values quoted that hold a colon or a hash, as people write them, and what was quoted.

    >>> mended("description: Use when: asked")
    ('description: "Use when: asked"', (Oddity(line=1, reason="the value of 'description' needs quotes"),))
    """
    lines = _lines(block)
    found: list[Oddity] = []
    for place, line in enumerate(lines):
        content = line.rstrip("\r\n")
        entry = _ENTRY.fullmatch(content)
        if entry is not None and not entry[2].startswith(_QUOTED) and (": " in entry[2] or entry[2].endswith(":")):
            lines[place] = f"{entry[1]}: {quoted(entry[2].rstrip())}{line[len(content) :]}"
            found.append(Oddity(place + 1, f"the value of {entry[1]!r} needs quotes"))
    return "".join(lines), tuple(found)


def quoted(text: str) -> str:
    """Return a text as a double-quoted YAML scalar on one line, without a run of three hyphens in it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace(_FENCE, "-\\x2d-")
    return '"' + "".join(_escaped(character) for character in escaped) + '"'


def scalar(text: str) -> str:
    """Return a text as a YAML scalar that every reader takes for a text: plain where no other meaning is possible.

    >>> scalar("greet"), scalar("true"), scalar("12")
    ('greet', '"true"', '"12"')
    """
    return text if _PLAIN.fullmatch(text) and text.lower() not in _MEANINGFUL else quoted(text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    point = ord(character)
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or (
        f"\\u{point:04x}" if point < 1 << 16 else f"\\U{point:08x}"
    )


def _is_text(value: str) -> bool:
    """Return whether a text can be stored as UTF-8; an escape may name half a character."""
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


class _Open(NamedTuple):
    """A list or a mapping that is being filled; a mapping also has the key that waits for its value."""

    value: list[Value] | dict[str, Value]
    keys: list[str]


class _Composer:
    """Builds values of events, without recursion."""

    def __init__(self) -> None:
        self._stack: list[_Open] = []
        self._oddities: list[Oddity] = []
        self._lines: dict[str, int] = {}
        self._documents: list[Value] = []
        self._count = 0

    def take(self, event: Any) -> None:
        """Take the next event."""
        kind, line = type(event).__name__, event.start_mark.line + 1
        if kind.endswith("EndEvent"):
            if kind in {"MappingEndEvent", "SequenceEndEvent"}:
                self._put(self._stack.pop().value, line)
            return
        if kind in {"StreamStartEvent", "DocumentStartEvent"}:
            return
        self._check(event, line)
        if kind == "ScalarEvent":
            self._put(event.value, line)
        elif kind == "AliasEvent":
            self._put("*" + event.anchor, line)
        else:
            self._stack.append(_Open({} if kind == "MappingStartEvent" else [], []))

    def _check(self, event: Any, line: int) -> None:
        self._count += 1
        if self._count > SKILL_FRONT_VALUES_COUNT_MAX:
            raise BlockError(line, f"more values than SKILL_FRONT_VALUES_COUNT_MAX = {SKILL_FRONT_VALUES_COUNT_MAX}")
        if len(self._stack) >= SKILL_NESTING_COUNT_MAX:
            raise BlockError(line, f"nested deeper than SKILL_NESTING_COUNT_MAX = {SKILL_NESTING_COUNT_MAX}")
        if not _is_text(getattr(event, "value", "")):
            raise BlockError(line, "a value holds a lone surrogate")
        if event.anchor:
            self._oddities.append(Oddity(line, ALIAS))
        if getattr(event, "tag", None):
            self._oddities.append(Oddity(line, TAGGED))
        if getattr(event, "flow_style", None):
            self._oddities.append(Oddity(line, FLOW))

    def _put(self, value: Value, line: int) -> None:
        if not self._stack:
            self._documents.append(value)
            return
        held, keys = self._stack[-1]
        if isinstance(held, list):
            held.append(value)
        elif keys:
            held[keys.pop()] = value
        else:
            keys.append(self._key(held, value, line))

    def _key(self, held: dict[str, Value], key: Value, line: int) -> str:
        if not isinstance(key, str):
            raise BlockError(line, "a key is no text")
        if key in held:
            self._oddities.append(Oddity(line, f"the key {key!r} stands there twice; the last one counts"))
        if len(self._stack) == 1:
            self._lines[key] = line
        return key

    def block(self) -> Block:
        """Return what was built; raises ``BlockError`` unless it is one mapping."""
        if len(self._documents) != 1 or not isinstance(self._documents[0], dict):
            raise BlockError(1, "SKILL.md frontmatter must be a YAML mapping")
        return Block(self._documents[0], self._lines, tuple(self._oddities))
