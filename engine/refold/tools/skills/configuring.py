"""``external-skills.json`` and ``skills.json``: which skills there are beside a project's own, and when they apply.

Pure. What is malformed is passed over with a diagnostic; addresses of other machines are listed and never loaded.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from refold.tools.skills.limits import SKILL_SETTING_COUNT_MAX
from refold.tools.skills.skill import ALWAYS, ERROR, PHASES, WARNING, Detection, Diagnostic

RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "builtin": (1, 50),
    "external": (51, 100),
    "user": (101, 200),
    "project": (201, 1_000),
}
"""The priorities that the skills of a source may have."""

DEFAULTS: Final[Mapping[str, int]] = {"builtin": 50, "external": 100, "user": 150, "project": 220}
"""The priority of a skill for which none is given."""

_FIELDS: Final = {"max_skills_per_story": "max_skills", "max_content_lines": "max_content_lines"}
"""The settings that mean something here, and what they are called."""

_KINDS: Final = {"builtin": "builtin", "submodule": "external", "external": "external", "user": "user"}


class ConfiguredSource(Struct, frozen=True):
    """A directory of skills: its name, what kind of source it is, and where it lies, from the file that names it."""

    name: str
    kind: str
    path: str
    url: str = ""


class ConfiguredSkill(Struct, frozen=True):
    """A skill that a configuration names: where it lies, when it applies, and how it ranks."""

    name: str
    source: str
    """The name of its source, empty for a path of its own."""
    kind: str
    path: str
    url: str = ""
    priority: int = 0
    detect: Detection | None = None
    inject_into: tuple[str, ...] = (ALWAYS,)


class Settings(Struct, frozen=True):
    """How many skills are taken at most, and how many lines of each."""

    max_skills: int = 3
    max_content_lines: int = 200


class Configuration(Struct, frozen=True):
    """What a file of configuration says, and what of it was passed over."""

    path: str
    sources: tuple[ConfiguredSource, ...] = ()
    skills: tuple[ConfiguredSkill, ...] = ()
    settings: Settings | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


def read_configuration(path: str, content: bytes, *, kind: str = "external") -> Configuration:
    """Return what a file says; never raises for what stands in it.

    ``kind`` is that of skills without a source: those of ``skills.json`` are the user's.

    >>> read_configuration("skills.json", b'{"skills": [{"name": "a", "path": "a"}]}', kind="user").skills[0].priority
    150
    """
    return _Reader(path, kind).read(content)


def clamped(priority: int, kind: str) -> int:
    """Return a priority within the range of its source, the default one for 0."""
    least, most = RANGES[kind]
    return min(max(priority, least), most) if priority else DEFAULTS[kind]


class _Reader:
    """Reads one file and collects what it passes over."""

    def __init__(self, path: str, kind: str) -> None:
        self._path = path
        self._kind = kind
        self._found: list[Diagnostic] = []

    def _say(self, reason: str, severity: str = WARNING) -> None:
        self._found.append(Diagnostic(self._path, 0, severity, reason))

    def read(self, content: bytes) -> Configuration:
        """Return what the file says."""
        try:
            document = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._say(f"the file is no JSON ({error}); nothing of it is used", ERROR)
            document = {}
        held = self._object(document, "the file")
        sources = {name: self._source(name, entry) for name, entry in self._named(held, "sources")}
        skills = tuple(self._skill(name, entry, sources) for name, entry in self._named(held, "skills"))
        settings = self._settings(held.get("settings"))
        return Configuration(self._path, tuple(sources.values()), _known(skills), settings, tuple(self._found))

    def _object(self, value: Any, what: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self._say(f"{what} is no object; it is passed over")
        return {}

    def _named(self, held: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
        """Return entries with their names, whether they stand in an object or, each with its name, in a list."""
        value = held.get(key, {})
        if isinstance(value, list):
            entries = [self._object(entry, f"an entry of {key}") for entry in cast("list[object]", value)]
            named = [(self._text(entry, "name", key), entry) for entry in entries]
        else:
            given = self._object(value, key)
            named = [(name, self._object(entry, f"{key}.{name}")) for name, entry in given.items()]
        return [(name, entry) for name, entry in named if name and entry]

    def _text(self, entry: dict[str, Any], key: str, what: str) -> str:
        value = entry.get(key, "")
        if isinstance(value, str):
            return value
        self._say(f"{key} of {what} is no text; it is passed over")
        return ""

    def _texts(self, value: Any, what: str) -> tuple[str, ...]:
        if value is None:
            return ()
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        texts = [item for item in items if isinstance(item, str) and item]
        if len(texts) < len(items):
            self._say(f"{what} holds what is no text; it is passed over")
        return tuple(texts)

    def _source(self, name: str, entry: dict[str, Any]) -> ConfiguredSource:
        given = self._text(entry, "type", name)
        if given not in _KINDS:
            self._say(f"the source {name!r} is of the unknown type {given!r}; it counts as a submodule")
        path, url = self._text(entry, "path", name), self._text(entry, "url", name)
        if not path:
            url = url or self._text(entry, "repository", name)
            self._say(f"the source {name!r} has no path, only {url!r}; nothing is loaded from another machine")
        return ConfiguredSource(name, _KINDS.get(given, "external"), path, url)

    def _skill(self, name: str, entry: dict[str, Any], sources: Mapping[str, ConfiguredSource]) -> ConfiguredSkill:
        source = self._text(entry, "source", name)
        if source and source not in sources:
            self._say(f"the skill {name!r} names the unknown source {source!r}; it is passed over")
            return ConfiguredSkill("", source, self._kind, "")
        path = self._text(entry, "skill_path", name) or self._text(entry, "path", name)
        url = self._text(entry, "url", name)
        if not path:
            self._say(f"the skill {name!r} has no path, only {url!r}; nothing is loaded from another machine")
        kind = sources[source].kind if source else self._kind
        return ConfiguredSkill(
            name,
            source,
            kind,
            path,
            url,
            self._priority(name, entry.get("priority", 0), kind),
            self._detection(name, entry.get("detect")),
            self._phases(name, entry.get("inject_into")),
        )

    def _priority(self, name: str, value: Any, kind: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            self._say(f"the priority of {name!r} is no whole number; it is passed over")
            value = 0
        priority = clamped(value, kind)
        if value and priority != value:
            least, most = RANGES[kind]
            self._say(f"the priority of {name!r} is {value}; that of a skill of this source is from {least} to {most}")
        return priority

    def _detection(self, name: str, value: Any) -> Detection | None:
        if value is None:
            return None
        held = self._object(value, f"detect of {name}")
        files = self._texts(held.get("files"), f"detect.files of {name}")
        return Detection(files, self._texts(held.get("patterns"), f"detect.patterns of {name}")) if files else None

    def _phases(self, name: str, value: Any) -> tuple[str, ...]:
        given = self._texts(value, f"inject_into of {name}")
        known = tuple(phase for phase in given if phase in {*PHASES, ALWAYS})
        if len(known) < len(given):
            self._say(f"inject_into of {name!r} names an unknown phase; there are {', '.join(PHASES)} and {ALWAYS}")
        return known or (ALWAYS,)

    def _settings(self, value: Any) -> Settings | None:
        if value is None:
            return None
        held = self._object(value, "settings")
        return Settings(**{_FIELDS[key]: value for key in _FIELDS if (value := self._count(key, held.get(key)))})

    def _count(self, key: str, value: Any) -> int:
        if value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= SKILL_SETTING_COUNT_MAX:
            return value
        bound = f"SKILL_SETTING_COUNT_MAX = {SKILL_SETTING_COUNT_MAX:,}"
        self._say(f"{key} of settings is no number from 1 to {bound}; it is passed over")
        return 0


def _known(skills: tuple[ConfiguredSkill, ...]) -> tuple[ConfiguredSkill, ...]:
    return tuple(skill for skill in skills if skill.name)
