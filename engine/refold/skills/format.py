"""The format of skill files: frontmatter, lenient reading, strict validation, and writing."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from refold import checks
from refold.errors import InvalidInput, LimitExceeded
from refold.event import pack_json
from refold.limits import (
    SKILL_COMPATIBILITY_CHARS_MAX,
    SKILL_DESCRIPTION_CHARS_MAX,
    SKILL_FILE_BYTES_MAX,
    SKILL_FRONT_BYTES_MAX,
    SKILL_FRONT_VALUES_COUNT_MAX,
    SKILL_NAME_CHARS_MAX,
    SKILL_NESTING_COUNT_MAX,
)
from refold.skills.skill import ERROR, NOTE, WARNING, Diagnostic, HookAction, HookRule, Skill, SkillHooks
from refold.text import sha256

# Frontmatter: the YAML block between two lines ``---`` at the head of a skill file. Pure.
#
# YAML is read event by event, so that every key has its line, nothing nests or grows without bound, and every scalar
# stays the text that was written: a version ``1.10`` is no number.

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


def split_frontmatter(text: str) -> Split:
    r"""Return a file cut in three; only a line equal to ``---`` opens or closes the frontmatter.

    A byte order mark and empty lines before it are passed over. ``head + body`` is the text, to the last character.

    >>> split_frontmatter("---\nname: a\n---\nBody\n").body
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


def read_frontmatter(block: str) -> Block:
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
        raise InvalidInput(
            f"skill files need the package 'PyYAML' ({error}); run: pip install 'refold[skills]'"
        ) from error
    return yaml


def mend(block: str) -> tuple[str, tuple[Oddity, ...]]:
    """Return a block with plain values quoted that hold a colon or a hash, as people write them, and what was quoted.

    >>> mend("description: Use when: asked")
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


# The specification of Agent Skills, strictly: what a validator says of a skill file, word for word where one exists.
#
# The checks and their texts are those of ``skills-ref``, the reference of the specification; where that is wrong
# (three hyphens inside a value, a byte order mark, an empty first line) the specification is followed. Pure.

ALLOWED_KEYS: Final = ("allowed-tools", "compatibility", "description", "license", "metadata", "name")


def validate_skill(content: bytes, directory: str | None = None) -> tuple[str, ...]:
    r"""Return what keeps a skill file from being valid, nothing if it is; ``directory`` is the name of its directory.

    >>> validate_skill(b"---\nname: greet\ndescription: Say hello.\n---\n", "greet")
    ()
    >>> validate_skill(b"---\nname: greet\ndescription: Say hello.\n---\n", "other")
    ("Directory name 'other' must match skill name 'greet'",)
    """
    if len(content) > SKILL_FILE_BYTES_MAX:
        return (f"The file has {len(content):,} bytes, over SKILL_FILE_BYTES_MAX = {SKILL_FILE_BYTES_MAX:,}",)
    try:
        cut = split_frontmatter(content.decode())
    except UnicodeDecodeError as error:
        return (f"The file is not UTF-8 (byte {error.start})",)
    if cut.block is None:
        return (cut.problem,)
    try:
        block = read_frontmatter(cut.block)
    except BlockError as error:
        return (error.reason,)
    if block.oddities:
        return tuple(f"Invalid YAML in frontmatter: {reason}" for _, reason in block.oddities)
    return validate_front(block.values, directory)


def validate_front(front: dict[str, Any], directory: str | None = None) -> tuple[str, ...]:
    """Return what keeps a frontmatter from being valid, given as values by key."""
    errors: list[str] = []
    surplus = sorted(front.keys() - set(ALLOWED_KEYS))
    if surplus:
        named = ", ".join(surplus)
        errors.append(f"Unexpected fields in frontmatter: {named}. Only {list(ALLOWED_KEYS)} are allowed.")
    if "name" in front:
        errors += name_errors(front["name"], directory)
    else:
        errors.append("Missing required field in frontmatter: name")
    if "description" in front:
        errors += _description_errors(front["description"])
    else:
        errors.append("Missing required field in frontmatter: description")
    if "compatibility" in front:
        errors += _compatibility_errors(front["compatibility"])
    return tuple(errors)


def name_errors(given: object, directory: str | None = None) -> list[str]:
    """Return what is wrong with a name: letters and digits of any script in lower case, and single hyphens between."""
    if not isinstance(given, str) or not given.strip():
        return ["Field 'name' must be a non-empty string"]
    name = unicodedata.normalize("NFKC", given.strip())
    limit = f"{SKILL_NAME_CHARS_MAX} character limit ({len(name)} chars)"
    is_plain = all(character.isalnum() or character == "-" for character in name)
    plainly = "Only letters, digits, and hyphens are allowed."
    found = {
        f"Skill name '{name}' exceeds {limit}": len(name) > SKILL_NAME_CHARS_MAX,
        f"Skill name '{name}' must be lowercase": name != name.lower(),
        "Skill name cannot start or end with a hyphen": name.startswith("-") or name.endswith("-"),
        "Skill name cannot contain consecutive hyphens": "--" in name,
        f"Skill name '{name}' contains invalid characters. {plainly}": not is_plain,
        f"Directory name '{directory}' must match skill name '{name}'": (
            directory is not None and unicodedata.normalize("NFKC", directory) != name
        ),
    }
    return [error for error, is_wrong in found.items() if is_wrong]


def _description_errors(given: object) -> list[str]:
    if not isinstance(given, str) or not given.strip():
        return ["Field 'description' must be a non-empty string"]
    if len(given) > SKILL_DESCRIPTION_CHARS_MAX:
        return [f"Description exceeds {SKILL_DESCRIPTION_CHARS_MAX} character limit ({len(given)} chars)"]
    return []


def _compatibility_errors(given: object) -> list[str]:
    if not isinstance(given, str):
        return ["Field 'compatibility' must be a string"]
    if len(given) > SKILL_COMPATIBILITY_CHARS_MAX:
        return [f"Compatibility exceeds {SKILL_COMPATIBILITY_CHARS_MAX} character limit ({len(given)} chars)"]
    return []


# Reading a skill file of any of the three formats, leniently: what can be read is loaded, what is odd is said.
#
# Pure. The full format and the light one have a frontmatter with a name and a description. A convention file
# (``CLAUDE.md``, ``AGENTS.md`` and their like) needs none: the name of the file is its name, its first heading the
# description.

SKILL_FILE: Final = "SKILL.md"
_CONVENTION_DESCRIPTION_CHARS: Final = 120
_ID_DIGITS: Final = 12
_HEADING: Final = re.compile(r"[ \t]{0,3}#{1,6}[ \t](.*)")
_TRUE: Final = frozenset(("true", "yes", "on", "y", "1"))
_FALSE: Final = frozenset(("false", "no", "off", "n", "0", "", "null", "~"))
_TOOL: Final = re.compile(r"[^\s,(]+(?:\([^)]{0,500}\))?")
_HOOK_KEYS: Final = {"PreToolUse": "pre_tool_use", "PostToolUse": "post_tool_use"}


class Parsed(NamedTuple):
    """A skill, ``None`` where the file holds none that can be loaded, and everything that is odd about the file."""

    skill: Skill | None
    diagnostics: tuple[Diagnostic, ...]


def parse_skill(path: str, content: bytes, *, is_convention: bool = False) -> Parsed:
    r"""Return the skill of a file's bytes; never raises for what stands in them.

    >>> parsed = parse_skill("greet/SKILL.md", b"---\nname: greet\ndescription: Say hello.\n---\nWave.\n")
    >>> parsed.skill.name, parsed.skill.body, parsed.diagnostics
    ('greet', 'Wave.\n', ())
    """
    return _Reader(path, is_convention=is_convention).read(content)


def normalized(name: str) -> str:
    """Return a name as ids hold it: lower case, hyphens for spaces and underscores, letters and digits of any script.

    >>> normalized("my skill @ v2!")
    'my-skill--v2'
    """
    kept = ("-" if character in " -_" else character for character in name.lower())
    return "".join(character for character in kept if character == "-" or character.isalnum()) or "skill"


def skill_id(name: str, digest: str) -> str:
    """Return the id of a skill of that name whose content has that SHA-256."""
    return f"{normalized(name)}-{digest[:_ID_DIGITS]}"


class _Reader:
    """Reads one file and collects what is odd about it."""

    def __init__(self, path: str, *, is_convention: bool) -> None:
        self._path = path
        self._is_convention = is_convention
        self._found: list[Diagnostic] = []
        self._block = Block({}, {}, ())
        self._first_line = 0

    def _say(self, line: int, severity: str, reason: str) -> None:
        self._found.append(Diagnostic(self._path, line, severity, reason))

    def _line(self, key: str) -> int:
        """Return the line of the file at which a key stands."""
        return self._first_line + self._block.lines.get(key, 1) - 1

    def read(self, content: bytes) -> Parsed:
        """Return what the file holds."""
        skill = self._skill(content)
        return Parsed(skill, tuple(self._found))

    def _skill(self, content: bytes) -> Skill | None:
        if len(content) > SKILL_FILE_BYTES_MAX:
            limit = f"{SKILL_FILE_BYTES_MAX:,}"
            self._say(
                0, ERROR, f"the file is over SKILL_FILE_BYTES_MAX = {limit}; move parts of it into files beside it"
            )
            return None
        text = self._text(content)
        cut = split_frontmatter(text)
        self._first_line = cut.block_line
        is_read = cut.block is not None and self._read_block(cut)
        if not is_read and not self._is_convention:
            if cut.block is None:
                self._say(1, ERROR, cut.problem)
            return None
        if cut.problem and is_read:
            self._say(1, NOTE, cut.problem)
        body = cut.body if is_read else text
        name, description = self._name(), self._description(body)
        if not name or not description:
            return None
        digest = sha256(content).hex()
        return self._made(name, description, body, digest)

    def _text(self, content: bytes) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self._say(line, WARNING, f"byte {error.start} is not UTF-8; such bytes are read as U+FFFD")
            return content.decode(errors="replace")

    def _read_block(self, cut: Split) -> bool:
        """Read the frontmatter, mended if that helps; return whether it says something."""
        block = cut.block or ""
        try:
            self._block = read_frontmatter(block)
        except BlockError as error:
            return self._read_mended(block, error)
        self._say_oddities(self._block.oddities)
        return True

    def _read_mended(self, block: str, error: BlockError) -> bool:
        mended, changes = mend(block)
        try:
            self._block = read_frontmatter(mended) if changes else self._block
        except BlockError:
            changes = ()
        if not changes:
            severity = WARNING if self._is_convention else ERROR
            self._say(self._first_line + error.line - 1, severity, error.reason)
        self._say_oddities((*changes, *self._block.oddities))
        return bool(changes)

    def _say_oddities(self, oddities: tuple[Oddity, ...]) -> None:
        """Say what is odd; lists and mappings in brackets are not: skill files have always had them."""
        for line, reason in oddities:
            if reason != FLOW:
                self._say(self._first_line + line - 1, WARNING, reason)

    # What every skill has.

    def _name(self) -> str:
        file = self._path.rpartition("/")[2]
        name = self._text_of("name")
        if self._is_convention:
            return name or file.rpartition(".")[0] or file
        if not name:
            self._say(self._first_line - 1, ERROR, "Missing required field in frontmatter: name")
        elif len(name) > SKILL_NAME_CHARS_MAX:
            reason = f"the name has {len(name)} characters, over SKILL_NAME_CHARS_MAX = {SKILL_NAME_CHARS_MAX}"
            self._say(self._line("name"), WARNING, reason)
        elif file.lower() == SKILL_FILE.lower():
            self._compare_with_directory(name)
        return name

    def _compare_with_directory(self, name: str) -> None:
        directory = self._path.rpartition("/")[0].rpartition("/")[2]
        if directory and directory != name:
            reason = f"Directory name '{directory}' must match skill name '{name}'"
            self._say(self._line("name"), WARNING, reason)

    def _description(self, body: str) -> str:
        description = self._text_of("description")
        if self._is_convention:
            return description or _first_words(body) or f"Instructions loaded from {self._path.rpartition('/')[2]}"
        if not description:
            self._say(self._first_line - 1, ERROR, "Missing required field in frontmatter: description")
        elif len(description) > SKILL_DESCRIPTION_CHARS_MAX:
            limit = f"{SKILL_DESCRIPTION_CHARS_MAX} character limit ({len(description)} chars)"
            self._say(self._line("description"), WARNING, f"Description exceeds {limit}")
        return description

    def _made(self, name: str, description: str, body: str, digest: str) -> Skill:
        version = self._text_of("version") or self._text_of("version", self._declared())
        return Skill(
            id=skill_id(name, digest),
            name=name,
            description=description,
            body=body,
            path=self._path,
            hash=digest,
            version=version or None,
            tags=self._tags(),
            user_invocable=self._flag("user-invocable"),
            model_invocable=not self._flag("disable-model-invocation"),
            allowed_tools=self._tools(),
            license=self._text_of("license") or None,
            compatibility=self._text_of("compatibility") or None,
            hooks=self._hooks(),
            front=pack_json(self._block.values),
            is_convention=self._is_convention,
        )

    # Single fields.

    def _declared(self) -> dict[str, Any]:
        declared = self._block.values.get("metadata")
        return cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}

    def _text_of(self, key: str, values: dict[str, Any] | None = None) -> str:
        value = (self._block.values if values is None else values).get(key, "")
        if isinstance(value, str):
            return value.strip()
        self._say(self._line(key), WARNING, f"{key} is no text; it is passed over")
        return ""

    def _flag(self, key: str) -> bool:
        text = self._text_of(key).lower()
        if text not in _TRUE | _FALSE:
            self._say(self._line(key), WARNING, f"{key} is {text[:20]!r}; give true or false")
        return text in _TRUE

    def _tags(self) -> tuple[str, ...]:
        held = self._block.values.get("tags", self._declared().get("tags", ""))
        return tuple(dict.fromkeys(tag for text in self._texts("tags", held) for tag in _split_commas(text)))

    def _tools(self) -> tuple[str, ...]:
        held = self._block.values.get("allowed-tools", "")
        found = (tool for text in self._texts("allowed-tools", held) for tool in _TOOL.findall(text))
        return tuple(dict.fromkeys(found))

    def _texts(self, key: str, held: Any) -> list[str]:
        """Return one text or a list of them as a list."""
        given = _listed(held)
        texts = [text.strip() for text in given if isinstance(text, str)]
        if len(texts) < len(given):
            self._say(self._line(key), WARNING, f"{key} holds what is no text; it is passed over")
        return [text for text in texts if text]

    # Hooks: read, kept, shown, and never run.

    def _hooks(self) -> SkillHooks | None:
        held = self._block.values.get("hooks")
        if not held:
            return None
        if not isinstance(held, dict):
            self._say(self._line("hooks"), WARNING, "hooks is no mapping; it is passed over")
            return None
        by_moment = cast("dict[str, Any]", held)
        self._say(self._line("hooks"), NOTE, "hooks are read and shown, and never run")
        for moment in (moment for moment in by_moment if moment not in {*_HOOK_KEYS, "Stop"}):
            self._say(self._line("hooks"), WARNING, f"hooks of the unknown moment {moment!r} are passed over")
        rules = {field: self._rules(by_moment.get(moment)) for moment, field in _HOOK_KEYS.items()}
        stop = [action for rule in self._rules(by_moment.get("Stop")) for action in rule.hooks]
        return SkillHooks(**rules, stop=tuple(stop))

    def _rules(self, held: Any) -> tuple[HookRule, ...]:
        rules: list[HookRule] = []
        for rule in _dicts(held):
            nested = rule.get("hooks")
            actions = tuple(_action(action) for action in _dicts(nested)) if nested else (_action(rule),)
            rules.append(HookRule(str(rule.get("matcher", "")), actions))
        return tuple(rules)


def _dicts(held: Any) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", item) for item in _listed(held) if isinstance(item, dict)]


def _listed(held: object) -> list[object]:
    """Return a list as it is, and anything else as a list of one."""
    return cast("list[object]", held) if isinstance(held, list) else [held]


def _action(held: dict[str, Any]) -> HookAction:
    return HookAction(str(held.get("type", "command")), str(held.get("command", "")))


def _split_commas(text: str) -> list[str]:
    return [part for piece in text.split(",") if (part := piece.strip())]


def _first_words(body: str) -> str:
    """Return the first heading of a text, else its first line that is not empty, cut to a length."""
    first = ""
    for line in body.splitlines():
        heading = _HEADING.fullmatch(line)
        title = heading[1].rstrip().rstrip("#").strip() if heading is not None else ""
        if title:
            return title[:_CONVENTION_DESCRIPTION_CHARS]
        first = first or line.strip("\ufeff \t")
    return first[:_CONVENTION_DESCRIPTION_CHARS]


T = TypeVar("T")


def render_skill(
    name: str,
    description: str,
    body: str,
    *,
    tags: Sequence[str] = (),
    version: str | None = None,
    license: str | None = None,  # noqa: A002 - the word of the file
    compatibility: str | None = None,
    allowed_tools: Sequence[str] = (),
    metadata: Mapping[str, str] | None = None,
) -> str:
    r"""Return the text of a valid SKILL.md; version and tags, of which the specification knows nothing, go to metadata.

    The body stands there as it is. Raises ``InvalidInput`` naming what the specification refuses.

    >>> print(render_skill("greet", "Say hello.", "Wave.\n", tags=["manners"]), end="")
    ---
    name: greet
    description: "Say hello."
    metadata:
      tags: "manners"
    ---
    Wave.
    """
    check_name(name)
    lines = [f"name: {scalar(name)}", f"description: {quoted(checks.text(description, 'description').strip())}"]
    for key, value in (("license", license), ("compatibility", compatibility)):
        if value:
            lines.append(f"{key}: {quoted(checks.text(value, key))}")
    if allowed_tools:
        lines.append(f"allowed-tools: {quoted(' '.join(_texts(allowed_tools, 'allowed_tools')))}")
    extra = _mapping(metadata) | ({"version": checks.text(version, "version")} if version else {})
    if tags:
        extra["tags"] = ", ".join(_texts(tags, "tags"))
    if extra:
        lines.append("metadata:")
        lines += [f"  {scalar(key)}: {quoted(extra[key])}" for key in extra]
    text = "\n".join(["---", *lines, "---", checks.text(body, "body")])
    _check(text, name)
    return text


def check_name(name: object) -> str:
    """Return a name that a skill may be written under; it is a directory's too, so nothing else can stand in it."""
    errors = name_errors(checks.text(name, "name"))
    if errors:
        raise InvalidInput(f"{errors[0]}; give a name such as 'release-notes'")
    return str(name)


def trimmed(description: str) -> str:
    """Return a description cut to what the specification allows."""
    if len(description) <= SKILL_DESCRIPTION_CHARS_MAX:
        return description
    return description[: SKILL_DESCRIPTION_CHARS_MAX - 3].rstrip() + "..."


def listed(given: Iterable[T], what: str) -> list[T]:
    """Return what was given as a list; raises ``InvalidInput`` for one text, which would be a list of its letters."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"{what} must be a list, not {type(given).__name__} ({checks.shown(given)})")
    return list(given)


def _mapping(given: object) -> dict[str, str]:
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInput(f"metadata must be a dict of str, not {type(given).__name__} ({checks.shown(given)})")
    held = cast("Mapping[object, object]", given or {}).items()
    return {checks.text(key, "a key of metadata"): checks.text(value, "a value of metadata") for key, value in held}


def _texts(given: Iterable[str], what: str) -> list[str]:
    return [checks.text(text, f"an item of {what}").strip() for text in listed(given, what)]


def _check(text: str, name: str) -> None:
    content = text.encode()
    if len(content) > SKILL_FILE_BYTES_MAX:
        raise LimitExceeded(
            f"the skill is {len(content):,} bytes, over SKILL_FILE_BYTES_MAX = {SKILL_FILE_BYTES_MAX:,}; shorten it"
        )
    errors = validate_skill(content, name)
    if errors:
        raise InvalidInput(f"{errors[0]}; a skill that breaks the specification is not written")
