"""Reading a skill file of any of the three formats, leniently: what can be read is loaded, what is odd is said.

Pure. The full format and the light one have a frontmatter with a name and a description. A convention file
(``CLAUDE.md``, ``AGENTS.md`` and their like) needs none: the name of the file is its name, its first heading the
description.
"""

import re
from typing import Any, Final, NamedTuple, cast

from refold.event import pack_json
from refold.hashing import sha256
from refold.store.limits import SKILL_FILE_BYTES_MAX
from refold.tools.skills import frontmatter
from refold.tools.skills.frontmatter import FLOW, Block, BlockError, Oddity, Split
from refold.tools.skills.limits import SKILL_DESCRIPTION_CHARS_MAX, SKILL_NAME_CHARS_MAX
from refold.tools.skills.skill import (
    ERROR,
    NOTE,
    WARNING,
    Diagnostic,
    HookAction,
    HookRule,
    Skill,
    SkillHooks,
)

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
        cut = frontmatter.split(text)
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
            self._block = frontmatter.read(block)
        except BlockError as error:
            return self._read_mended(block, error)
        self._say_oddities(self._block.oddities)
        return True

    def _read_mended(self, block: str, error: BlockError) -> bool:
        mended, changes = frontmatter.mended(block)
        try:
            self._block = frontmatter.read(mended) if changes else self._block
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
