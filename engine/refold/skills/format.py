"""Skills and the format of their files: frontmatter, lenient reading, strict validation, and writing."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from msgspec import Struct

from refold import checks
from refold.agent.tools import is_storable
from refold.errors import InvalidInput, LimitExceeded
from refold.event import pack_json, unpack_json
from refold.limits import (
    SKILL_COMPATIBILITY_CHARS_MAX,
    SKILL_DESCRIPTION_CHARS_MAX,
    SKILL_FILE_BYTES_MAX,
    SKILL_FRONT_BYTES_MAX,
    SKILL_FRONT_VALUES_COUNT_MAX,
    SKILL_NAME_CHARS_MAX,
    SKILL_NESTING_COUNT_MAX,
)
from refold.text import sha256

SKILL_FILE: Final = "SKILL.md"
# The sources of skills, in the order of their priorities; generated skills live in the log.
SOURCES: Final = ("builtin", "external", "user", "project", "generated")
PHASES: Final = ("planning", "implementation", "retry")  # The moments at which a skill can be shown to a model.
ALWAYS: Final = "always"  # All phases.
ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"


class Diagnostic(Struct, frozen=True, order=True):
    """A problem of a skill file: the file, the line (0: the whole file), its severity, and the reason.

    An `error` prevents the file from being loaded, a `warning` is a deviation that was tolerated, and a `note` is only
    information.
    """

    path: str
    line: int
    severity: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.reason}"


class HookAction(Struct, frozen=True):
    """A command in a hook of a skill file. It is only data: refold never runs it."""

    type: str
    command: str


class HookRule(Struct, frozen=True):
    """The hooks for the tools whose names a pattern matches."""

    matcher: str
    hooks: tuple[HookAction, ...]


class SkillHooks(Struct, frozen=True):
    """The hooks of a skill file, by moment."""

    pre_tool_use: tuple[HookRule, ...] = ()
    post_tool_use: tuple[HookRule, ...] = ()
    stop: tuple[HookAction, ...] = ()


class Detection(Struct, frozen=True):
    """The condition for a skill to apply: one of its files exists, and contains one of its patterns if it has any."""

    files: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class Skill(Struct, frozen=True, kw_only=True):
    """A skill: the content of its file, its source, and its priority.

    `id` is the normalized name with the first 12 hexadecimal digits of the SHA-256 of its content. If `allowed_tools`
    is not empty, only those tools may be used along with the skill. `front` is the whole frontmatter, packed.
    """

    id: str
    name: str
    description: str
    body: str
    path: str
    hash: str
    version: str | None = None
    tags: tuple[str, ...] = ()
    user_invocable: bool = False
    model_invocable: bool = True
    allowed_tools: tuple[str, ...] = ()
    license: str | None = None
    compatibility: str | None = None
    hooks: SkillHooks | None = None
    front: bytes = b"\x80"
    is_convention: bool = False
    modified_ns: int | None = None
    source: str = "project"
    source_name: str = ""
    priority: int = 0
    detect: Detection | None = None
    inject_into: tuple[str, ...] = (ALWAYS,)
    enabled: bool = True
    note: str = ""  # The user's note, which is in the log, not in the file.

    @property
    def text(self) -> str:
        """The body as a model sees it, after the user's note if there is one."""
        return f"Note of the user: {self.note}\n\n{self.body}" if self.note else self.body

    @property
    def metadata(self) -> dict[str, Any]:
        """The `metadata` and all unknown keys of the frontmatter, in a new dict at each access."""
        front: dict[str, Any] = unpack_json(self.front)
        declared = front.pop("metadata", None)
        unknown = {key: value for key, value in front.items() if key not in KNOWN_KEYS}
        return unknown | declared if isinstance(declared, dict) else unknown

    @property
    def source_label(self) -> str:
        """The name of the source with its kind, or only the kind."""
        return f"{self.source_name} ({self.source})" if self.source_name else self.source


# The keys of a frontmatter that have a meaning here; all others are part of `Skill.metadata`.
KNOWN_KEYS: Final = frozenset(
    (
        *("name", "description", "version", "tags", "license", "compatibility", "metadata", "hooks"),
        *("allowed-tools", "user-invocable", "disable-model-invocation"),
    )
)


class SkillSummary(Struct, frozen=True, kw_only=True):
    """A skill without its body, for listings."""

    id: str
    name: str
    description: str
    version: str | None
    tags: tuple[str, ...]
    source: str
    source_name: str
    priority: int
    enabled: bool
    detected: bool
    user_invocable: bool
    model_invocable: bool
    has_hooks: bool
    inject_into: tuple[str, ...]
    path: str


def summary_of(skill: Skill, *, detected: bool = False) -> SkillSummary:
    """Summarize a skill without its body."""
    computed: dict[str, Any] = {"detected": detected, "has_hooks": skill.hooks is not None}
    fields = {field: getattr(skill, field) for field in SkillSummary.__struct_fields__ if field not in computed}
    return SkillSummary(**fields, **computed)


# Frontmatter: the YAML block between two `---` lines at the head of a skill file.
#
# YAML is read event by event, so that the line of every key is known, nesting and size are bounded, and every scalar
# stays the text that was written: a version `1.10` is not a number.

_FENCE: Final = "---"
_BOM: Final = "\ufeff"
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_ENTRY: Final = re.compile(r"([\w-]+):[ \t]+(\S.*)")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_MEANINGFUL: Final = frozenset(("true", "false", "yes", "no", "on", "off", "y", "n", "null"))
_NOT_PLAIN: Final = ("'", '"', "|", ">", "[", "{", "&", "*", "!", "#")
"""The first characters of values that are not plain scalars."""

_FLOW: Final = "flow style is not allowed"
_MISSING: Final = "Missing required field in frontmatter: "


class Split(NamedTuple):
    """A file split into head and body, which together are the whole file, and the frontmatter in the head."""

    head: str
    block: str | None  # The YAML between the fences, or `None` if there is no frontmatter.
    body: str
    block_line: int  # The line of the file, from 1, where the block begins.
    problem: str = ""  # The reason why there is no block, or an oddity of the block.


class Oddity(NamedTuple):
    """A construct that a strict reader refuses, and its line in the block, from 1."""

    line: int
    reason: str


class Block(NamedTuple):
    """A block's mapping, the line of each key, and the constructs that a strict reader would refuse."""

    values: dict[str, Any]  # Texts, lists, and dicts by text.
    lines: dict[str, int]
    oddities: tuple[Oddity, ...]


class BlockError(Exception):
    """A block that cannot be read, with the line in the block, from 1, and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        self.line, self.reason = line, reason


def split_frontmatter(text: str) -> Split:
    r"""Split a file after its frontmatter; only a line equal to `---` opens or closes it.

    A byte order mark and empty lines before it are skipped. `head + body` is the text, to the last character.

    >>> split_frontmatter("---\nname: a\n---\nBody\n").body
    'Body\n'
    """
    begin, line = 0, 0
    block: tuple[int, int] | None = None
    while begin < len(text):
        match = _LINE.match(text, begin)
        assert match is not None, "a line may be empty, so there always is one"
        line, end = line + 1, match.end()
        content = match.group() if block else match.group().lstrip(_BOM)
        if content.rstrip() == _FENCE:
            if block:
                problem = "" if text.startswith(_FENCE) else "there is text before the opening ---"
                return Split(text[:end], text[block[0] : begin], text[end:], block[1], problem)
            block = end, line + 1
        elif not block and content.strip():
            break
        begin = end
    unclosed, unopened = "frontmatter not properly closed with ---", "must start with YAML frontmatter (---)"
    return Split("", None, text, 1, f"SKILL.md {unclosed if block else unopened}")


def read_frontmatter(block: str) -> Block:
    """Read a block; raises `BlockError` unless it is a YAML mapping of bounded size."""
    if len(block.encode(errors="replace")) > SKILL_FRONT_BYTES_MAX:
        raise BlockError(1, f"the frontmatter is over {SKILL_FRONT_BYTES_MAX = :,}")
    composer = _Composer()
    for event in _events(block):
        composer.take(event)
    return composer.block()


def _events(block: str) -> Iterator[Any]:
    try:
        import yaml  # noqa: PLC0415 - loaded only when skills are read
    except ImportError as error:
        raise InvalidInput(
            f"skill files need the package 'PyYAML' ({error}); run: pip install 'refold[skills]'"
        ) from error
    try:
        yield from yaml.parse(block, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BlockError(mark.line + 1 if mark else 1, f"Invalid YAML in frontmatter: {error.problem}") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise BlockError(1, f"Invalid YAML in frontmatter: {str(error).partition(chr(10))[0]}") from error


class _Composer:
    """Builds values from YAML events, without recursion."""

    def __init__(self) -> None:
        self._stack: list[tuple[list[Any] | dict[str, Any], list[str]]] = []
        """The open lists and mappings, each mapping with the key that waits for its value."""
        self._oddities: list[Oddity] = []
        self._lines: dict[str, int] = {}
        self._documents: list[Any] = []
        self._count = 0

    def take(self, event: Any) -> None:
        kind, line = type(event).__name__, event.start_mark.line + 1
        if kind in {"MappingEndEvent", "SequenceEndEvent"}:
            self._put(self._stack.pop()[0], line)
        elif kind in {"ScalarEvent", "AliasEvent", "MappingStartEvent", "SequenceStartEvent"}:
            self._check(event, line)
            if kind == "ScalarEvent":
                self._put(event.value, line)
            elif kind == "AliasEvent":
                self._put("*" + event.anchor, line)
            else:
                self._stack.append(({} if kind == "MappingStartEvent" else [], []))

    def _check(self, event: Any, line: int) -> None:
        self._count += 1
        if self._count > SKILL_FRONT_VALUES_COUNT_MAX:
            raise BlockError(line, f"more values than {SKILL_FRONT_VALUES_COUNT_MAX = }")
        if len(self._stack) >= SKILL_NESTING_COUNT_MAX:
            raise BlockError(line, f"nested deeper than {SKILL_NESTING_COUNT_MAX = }")
        if not is_storable(getattr(event, "value", "")):
            raise BlockError(line, "a value holds a lone surrogate")
        for field, reason in (
            ("anchor", "anchors and aliases are not allowed"),
            ("tag", "explicit tags are not allowed"),
            ("flow_style", _FLOW),
        ):
            if getattr(event, field, None):
                self._oddities.append(Oddity(line, reason))

    def _put(self, value: Any, line: int) -> None:
        if not self._stack:
            self._documents.append(value)
            return
        container, keys = self._stack[-1]
        if isinstance(container, list):
            container.append(value)
        elif keys:
            container[keys.pop()] = value
        else:
            if not isinstance(value, str):
                raise BlockError(line, "a key is no text")
            if value in container:
                self._oddities.append(Oddity(line, f"the key {value!r} is there twice; the last one counts"))
            if len(self._stack) == 1:
                self._lines[value] = line
            keys.append(value)

    def block(self) -> Block:
        if len(self._documents) != 1 or not isinstance(self._documents[0], dict):
            raise BlockError(1, "SKILL.md frontmatter must be a YAML mapping")
        return Block(self._documents[0], self._lines, tuple(self._oddities))


def mend(block: str) -> tuple[str, tuple[Oddity, ...]]:
    """Quote the plain values of a block that contain a colon, a common mistake; return the block and the changes.

    >>> mend("description: Use when: asked")
    ('description: "Use when: asked"', (Oddity(line=1, reason="the value of 'description' needs quotes"),))
    """
    # `str.splitlines` would also split at characters that are text in YAML.
    lines = [match.group() for match in _LINE.finditer(block) if match.group()]
    oddities: list[Oddity] = []
    for index, line in enumerate(lines):
        content = line.rstrip("\r\n")
        entry = _ENTRY.fullmatch(content)
        if entry is not None and not entry[2].startswith(_NOT_PLAIN) and (": " in entry[2] or entry[2].endswith(":")):
            lines[index] = f"{entry[1]}: {quote(entry[2].rstrip())}{line[len(content) :]}"
            oddities.append(Oddity(index + 1, f"the value of {entry[1]!r} needs quotes"))
    return "".join(lines), tuple(oddities)


def quote(text: str) -> str:
    """Format a text as a double-quoted YAML scalar on one line, without a run of three hyphens in it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace(_FENCE, "-\\x2d-")
    points = {ord(character) for character in escaped if not character.isprintable()}
    escapes = {point: f"\\u{point:04x}" if point < 1 << 16 else f"\\U{point:08x}" for point in points}
    return '"' + escaped.translate(escapes | {10: "\\n", 9: "\\t", 13: "\\r"}) + '"'


def _scalar(text: str) -> str:
    """Format a text as a YAML scalar that every reader reads as text: plain if no other meaning is possible."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _MEANINGFUL else quote(text)


# Strict validation against the specification of Agent Skills.
#
# The checks and their messages are those of `skills-ref`, the reference for the specification. Where that is wrong
# (three hyphens inside a value, a byte order mark, an empty first line), the specification is followed.

_ALLOWED_KEYS: Final = ("allowed-tools", "compatibility", "description", "license", "metadata", "name")


def validate_skill(content: bytes, directory: str | None = None) -> tuple[str, ...]:
    r"""List the errors of a skill file, none if it is valid; `directory` is the name of its directory.

    >>> validate_skill(b"---\nname: greet\ndescription: Say hello.\n---\n", "greet")
    ()
    >>> validate_skill(b"---\nname: greet\ndescription: Say hello.\n---\n", "other")
    ("Directory name 'other' must match skill name 'greet'",)
    """
    if len(content) > SKILL_FILE_BYTES_MAX:
        return (f"The file has {len(content):,} bytes, over {SKILL_FILE_BYTES_MAX = :,}",)
    try:
        split = split_frontmatter(content.decode())
    except UnicodeDecodeError as error:
        return (f"The file is not UTF-8 (byte {error.start})",)
    if split.block is None:
        return (split.problem,)
    try:
        block = read_frontmatter(split.block)
    except BlockError as error:
        return (error.reason,)
    if block.oddities:
        return tuple(f"Invalid YAML in frontmatter: {reason}" for _, reason in block.oddities)
    front, errors = block.values, list[str]()
    unknown = ", ".join(sorted(front.keys() - set(_ALLOWED_KEYS)))
    if unknown:
        errors.append(f"Unexpected fields in frontmatter: {unknown}. Only {list(_ALLOWED_KEYS)} are allowed.")
    errors += _name_errors(front["name"], directory) if "name" in front else [f"{_MISSING}name"]
    description: object = front.get("description")
    if "description" not in front:
        errors.append(f"{_MISSING}description")
    elif not isinstance(description, str) or not description.strip():
        errors.append("Field 'description' must be a non-empty string")
    elif len(description) > SKILL_DESCRIPTION_CHARS_MAX:
        errors.append(_length_error("Description", SKILL_DESCRIPTION_CHARS_MAX, description))
    compatibility: object = front.get("compatibility", "")
    if not isinstance(compatibility, str):
        errors.append("Field 'compatibility' must be a string")
    elif len(compatibility) > SKILL_COMPATIBILITY_CHARS_MAX:
        errors.append(_length_error("Compatibility", SKILL_COMPATIBILITY_CHARS_MAX, compatibility))
    return tuple(errors)


def _length_error(what: str, chars_max: int, text: str) -> str:
    return f"{what} exceeds {chars_max} character limit ({len(text)} chars)"


def _name_errors(value: object, directory: str | None = None) -> list[str]:
    """List the errors of a name; valid are lower-case letters and digits of any script, with single hyphens between."""
    if not isinstance(value, str) or not value.strip():
        return ["Field 'name' must be a non-empty string"]
    name = unicodedata.normalize("NFKC", value.strip())
    is_plain = all(character.isalnum() or character == "-" for character in name)
    advice = "Only letters, digits, and hyphens are allowed."
    errors = {
        _length_error(f"Skill name '{name}'", SKILL_NAME_CHARS_MAX, name): len(name) > SKILL_NAME_CHARS_MAX,
        f"Skill name '{name}' must be lowercase": name != name.lower(),
        "Skill name cannot start or end with a hyphen": name.startswith("-") or name.endswith("-"),
        "Skill name cannot contain consecutive hyphens": "--" in name,
        f"Skill name '{name}' contains invalid characters. {advice}": not is_plain,
        f"Directory name '{directory}' must match skill name '{name}'": (
            directory is not None and unicodedata.normalize("NFKC", directory) != name
        ),
    }
    return [error for error, is_wrong in errors.items() if is_wrong]


# Lenient reading of any of the three formats: a file with oddities is loaded, and each oddity becomes a diagnostic.
#
# The full format and the light one have a frontmatter with a name and a description. A convention file (`CLAUDE.md`,
# `AGENTS.md` and the like) needs none: its file name is the name, and its first heading the description.

_CONVENTION_DESCRIPTION_CHARS: Final = 120
_ID_DIGITS: Final = 12
_HEADING: Final = re.compile(r"[ \t]{0,3}#{1,6}[ \t](.*)")
_TRUE: Final = frozenset(("true", "yes", "on", "y", "1"))
_FALSE: Final = frozenset(("false", "no", "off", "n", "0", "", "null", "~"))
_TOOL: Final = re.compile(r"[^\s,(]+(?:\([^)]{0,500}\))?")
_HOOK_KEYS: Final = {"PreToolUse": "pre_tool_use", "PostToolUse": "post_tool_use"}


class ParsedSkill(NamedTuple):
    """The skill of a file, or `None` if it cannot be loaded, and the file's oddities."""

    skill: Skill | None
    diagnostics: tuple[Diagnostic, ...]


def parse_skill(path: str, content: bytes, *, is_convention: bool = False) -> ParsedSkill:
    r"""Parse a skill file; never raises, whatever the content.

    >>> parsed = parse_skill("greet/SKILL.md", b"---\nname: greet\ndescription: Say hello.\n---\nWave.\n")
    >>> parsed.skill.name, parsed.skill.body, parsed.diagnostics
    ('greet', 'Wave.\n', ())
    """
    parser = _SkillParser(path, is_convention=is_convention)
    skill = parser.parse(content)
    return ParsedSkill(skill, tuple(parser.diagnostics))


def normalize_name(name: str) -> str:
    """Normalize a name for an id: lower case, hyphens for spaces and underscores, letters and digits of any script.

    >>> normalize_name("my skill @ v2!")
    'my-skill--v2'
    """
    characters = ("-" if character in " -_" else character for character in name.lower())
    return "".join(character for character in characters if character == "-" or character.isalnum()) or "skill"


def skill_id(name: str, digest: str) -> str:
    """Make the id of a skill from its name and the SHA-256 of its content."""
    return f"{normalize_name(name)}-{digest[:_ID_DIGITS]}"


class _SkillParser:
    """Parses one file and collects its oddities."""

    def __init__(self, path: str, *, is_convention: bool) -> None:
        self._path = path
        self._file = path.rpartition("/")[2]
        self._is_convention = is_convention
        self._block = Block({}, {}, ())
        self._first_line = 0
        self.diagnostics: list[Diagnostic] = []

    def _report(self, line: int, severity: str, reason: str) -> None:
        self.diagnostics.append(Diagnostic(self._path, line, severity, reason))

    def _warn(self, key: str, reason: str, severity: str = WARNING) -> None:
        self._report(self._first_line + self._block.lines.get(key, 1) - 1, severity, reason)

    def parse(self, content: bytes) -> Skill | None:
        if len(content) > SKILL_FILE_BYTES_MAX:
            reason = f"the file is over {SKILL_FILE_BYTES_MAX = :,}; move parts of it into other files"
            self._report(0, ERROR, reason)
            return None
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self._report(line, WARNING, f"byte {error.start} is not UTF-8; such bytes are read as U+FFFD")
            text = content.decode(errors="replace")
        split = split_frontmatter(text)
        self._first_line = split.block_line
        has_front = split.block is not None and self._read_block(split.block)
        if not has_front and not self._is_convention:
            if split.block is None:
                self._report(1, ERROR, split.problem)
            return None
        if split.problem and has_front:
            self._report(1, NOTE, split.problem)
        body = split.body if has_front else text
        name, description = self._name(), self._description(body)
        if not name or not description:
            return None
        digest = sha256(content).hex()
        return Skill(
            id=skill_id(name, digest),
            name=name,
            description=description,
            body=body,
            path=self._path,
            hash=digest,
            version=self._text("version") or self._text("version", self._metadata()) or None,
            tags=self._tags(),
            user_invocable=self._flag("user-invocable"),
            model_invocable=not self._flag("disable-model-invocation"),
            allowed_tools=self._tools(),
            license=self._text("license") or None,
            compatibility=self._text("compatibility") or None,
            hooks=self._hooks(),
            front=pack_json(self._block.values),
            is_convention=self._is_convention,
        )

    def _read_block(self, block: str) -> bool:
        """Read the frontmatter, and mend it if that helps; return whether that succeeded."""
        changes: tuple[Oddity, ...] = ()
        try:
            self._block = read_frontmatter(block)
        except BlockError as error:
            mended, changes = mend(block)
            try:
                self._block = read_frontmatter(mended) if changes else self._block
            except BlockError:
                changes = ()
            if not changes:
                severity = WARNING if self._is_convention else ERROR
                self._report(self._first_line + error.line - 1, severity, error.reason)
                return False
        # Flow-style lists and mappings are not reported, because skill files have always had them.
        for line, reason in (*changes, *self._block.oddities):
            if reason != _FLOW:
                self._report(self._first_line + line - 1, WARNING, reason)
        return True

    def _name(self) -> str:
        name = self._text("name")
        if self._is_convention:
            return name or self._file.rpartition(".")[0] or self._file
        directory = self._path.rpartition("/")[0].rpartition("/")[2]
        if not name:
            self._report(self._first_line - 1, ERROR, f"{_MISSING}name")
        elif len(name) > SKILL_NAME_CHARS_MAX:
            self._warn("name", f"the name has {len(name)} characters, over {SKILL_NAME_CHARS_MAX = }")
        elif self._file.lower() == SKILL_FILE.lower() and directory and directory != name:
            self._warn("name", f"Directory name '{directory}' must match skill name '{name}'")
        return name

    def _description(self, body: str) -> str:
        description = self._text("description")
        if self._is_convention:
            return description or _first_words(body) or f"Instructions loaded from {self._file}"
        if not description:
            self._report(self._first_line - 1, ERROR, f"{_MISSING}description")
        elif len(description) > SKILL_DESCRIPTION_CHARS_MAX:
            self._warn("description", _length_error("Description", SKILL_DESCRIPTION_CHARS_MAX, description))
        return description

    def _metadata(self) -> dict[str, Any]:
        metadata = self._block.values.get("metadata")
        return cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}

    def _text(self, key: str, values: dict[str, Any] | None = None) -> str:
        value = (self._block.values if values is None else values).get(key, "")
        if isinstance(value, str):
            return value.strip()
        self._warn(key, f"{key} is no text; it is passed over")
        return ""

    def _flag(self, key: str) -> bool:
        text = self._text(key).lower()
        if text not in _TRUE | _FALSE:
            self._warn(key, f"{key} is {text[:20]!r}; give true or false")
        return text in _TRUE

    def _tags(self) -> tuple[str, ...]:
        value = self._block.values.get("tags", self._metadata().get("tags", ""))
        pieces = (piece.strip() for text in self._texts("tags", value) for piece in text.split(","))
        return tuple(dict.fromkeys(filter(None, pieces)))

    def _tools(self) -> tuple[str, ...]:
        value = self._block.values.get("allowed-tools", "")
        return tuple(
            dict.fromkeys(tool for text in self._texts("allowed-tools", value) for tool in _TOOL.findall(text))
        )

    def _texts(self, key: str, value: object) -> list[str]:
        items = _as_list(value)
        texts = [text.strip() for text in items if isinstance(text, str)]
        if len(texts) < len(items):
            self._warn(key, f"{key} holds what is no text; it is passed over")
        return [text for text in texts if text]

    def _hooks(self) -> SkillHooks | None:
        value = self._block.values.get("hooks")
        if not value:
            return None
        if not isinstance(value, dict):
            self._warn("hooks", "hooks is no mapping; it is passed over")
            return None
        moments = cast("dict[str, Any]", value)
        self._warn("hooks", "hooks are read and shown, and never run", NOTE)
        for moment in moments:
            if moment not in {*_HOOK_KEYS, "Stop"}:
                self._warn("hooks", f"hooks of the unknown moment {moment!r} are passed over")
        rules = {field: _rules(moments.get(moment)) for moment, field in _HOOK_KEYS.items()}
        stop = tuple(action for rule in _rules(moments.get("Stop")) for action in rule.hooks)
        return SkillHooks(**rules, stop=stop)


def _rules(value: object) -> tuple[HookRule, ...]:
    def dicts(items: object) -> list[dict[str, Any]]:
        return [cast("dict[str, Any]", item) for item in _as_list(items) if isinstance(item, dict)]

    rules: list[HookRule] = []
    for rule in dicts(value):
        actions = dicts(rule["hooks"]) if rule.get("hooks") else [rule]
        hooks = (HookAction(str(action.get("type", "command")), str(action.get("command", ""))) for action in actions)
        rules.append(HookRule(str(rule.get("matcher", "")), tuple(hooks)))
    return tuple(rules)


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _first_words(body: str) -> str:
    first = ""
    for line in body.splitlines():
        heading = _HEADING.fullmatch(line)
        title = heading[1].rstrip().rstrip("#").strip() if heading is not None else ""
        if title:
            return title[:_CONVENTION_DESCRIPTION_CHARS]
        first = first or line.strip("\ufeff \t")
    return first[:_CONVENTION_DESCRIPTION_CHARS]


# Writing.

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
    r"""Render a valid SKILL.md; version and tags, which the specification does not define, go to metadata.

    The body is not changed. Raises `InvalidInput`, which names the problem, for anything that the specification
    refuses.

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
    lines = [f"name: {_scalar(name)}", f"description: {quote(checks.text(description, 'description').strip())}"]
    for key, value in (("license", license), ("compatibility", compatibility)):
        if value:
            lines.append(f"{key}: {quote(checks.text(value, key))}")
    if allowed_tools:
        lines.append(f"allowed-tools: {quote(' '.join(strip_texts(allowed_tools, 'allowed_tools')))}")
    if metadata is not None and not isinstance(cast("object", metadata), Mapping):
        raise InvalidInput(f"metadata must be a dict of str, not {type(metadata).__name__} ({checks.brief(metadata)})")
    extra = {
        checks.text(key, "a key of metadata"): checks.text(value, "a value of metadata")
        for key, value in (metadata or {}).items()
    }
    if version:
        extra["version"] = checks.text(version, "version")
    if tags:
        extra["tags"] = ", ".join(strip_texts(tags, "tags"))
    if extra:
        lines += ["metadata:", *(f"  {_scalar(key)}: {quote(extra[key])}" for key in extra)]
    text = "\n".join(["---", *lines, "---", checks.text(body, "body")])
    errors = validate_skill(check_size(text.encode()), name)
    if errors:
        raise InvalidInput(f"{errors[0]}; a skill that breaks the specification is not written")
    return text


def check_size(content: bytes) -> bytes:
    """Check the size of a skill file before it is written, and return its content."""
    if len(content) > SKILL_FILE_BYTES_MAX:
        raise LimitExceeded(f"the skill is {len(content):,} bytes, over {SKILL_FILE_BYTES_MAX = :,}; shorten it")
    return content


def check_name(name: object) -> str:
    """Check the name of a skill before it is written, strictly, because its directory gets the same name."""
    errors = _name_errors(checks.text(name, "name"))
    if errors:
        raise InvalidInput(f"{errors[0]}; give a name such as 'release-notes'")
    return str(name)


def as_list(items: Iterable[T], what: str) -> list[T]:
    """Make a list of items; raises `InvalidInput` for a single text, which would become a list of its letters."""
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"{what} must be a list, not {type(items).__name__} ({checks.brief(items)})")
    return list(items)


def strip_texts(texts: Iterable[str], what: str) -> list[str]:
    """Make a list of texts without the whitespace around them."""
    return [checks.text(text, f"an item of {what}").strip() for text in as_list(texts, what)]
