"""Sources of skills: the places that are searched, the files that configure them, and the index of all skills."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from refold import checks
from refold.errors import InvalidInput
from refold.limits import SKILL_SETTING_COUNT_MAX
from refold.memory.options import check_path
from refold.skills import files as skill_files
from refold.skills.files import FileStat
from refold.skills.format import (
    ALWAYS,
    ERROR,
    NOTE,
    PHASES,
    SKILL_FILE,
    WARNING,
    Detection,
    Diagnostic,
    ParsedSkill,
    Skill,
    SkillSummary,
    parse_skill,
    summary_of,
)

T = TypeVar("T")

# `external-skills.json` and `skills.json`: skills in addition to a project's own, and when they apply.
#
# Malformed entries are skipped with a diagnostic; addresses of other machines are listed and never loaded.

# The range of priorities for the skills of each source.
_PRIORITIES: Final[Mapping[str, tuple[int, int]]] = {
    "builtin": (1, 50),
    "external": (51, 100),
    "user": (101, 200),
    "project": (201, 1_000),
}

_PRIORITY_MAX: Final = 1_000
_DEFAULT_PRIORITIES: Final[Mapping[str, int]] = {"builtin": 50, "external": 100, "user": 150, "project": 220}
# The settings of a file that have a meaning here, and the fields that they set.
_SETTINGS: Final = {"max_skills_per_story": "max_skills", "max_content_lines": "max_content_lines"}
_KINDS: Final = {"builtin": "builtin", "submodule": "external", "external": "external", "user": "user"}


class ConfiguredSource(Struct, frozen=True):
    """A directory of skills: its name, its kind, and its path, relative to the file that names it.

    `priority` applies to its skills that the file does not name.
    """

    name: str
    kind: str
    path: str
    priority: int


class ConfiguredSkill(Struct, frozen=True):
    """A skill that a configuration names: its path, its conditions, and its priority."""

    name: str
    source: str  # The name of its source; empty if the skill has its own path.
    kind: str
    path: str
    priority: int
    detect: Detection | None
    inject_into: tuple[str, ...]


class SkillSettings(Struct, frozen=True):
    """The maximum number of skills to select, and of lines of each to inject."""

    max_skills: int = 3
    max_content_lines: int = 200


class Configuration(Struct, frozen=True):
    """The content of a configuration file, and diagnostics for the entries that it skipped."""

    sources: tuple[ConfiguredSource, ...] = ()
    skills: tuple[ConfiguredSkill, ...] = ()
    settings: SkillSettings | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


def read_configuration(path: str, content: bytes, *, kind: str = "external") -> Configuration:
    """Parse a configuration file; never raises, whatever the content.

    `kind` is the kind of skills without a source; those of `skills.json` are the user's.

    >>> read_configuration("skills.json", b'{"skills": [{"name": "a", "path": "a"}]}', kind="user").skills[0].priority
    150
    """
    return _ConfigurationParser(path, kind).parse(content)


class _ConfigurationParser:
    """Parses one file and collects its diagnostics."""

    def __init__(self, path: str, kind: str) -> None:
        self._path = path
        self._kind = kind
        self._diagnostics: list[Diagnostic] = []
        self._ranges: dict[str, tuple[int, int]] = dict(_PRIORITIES)

    def _warn(self, reason: str, severity: str = WARNING) -> None:
        self._diagnostics.append(Diagnostic(self._path, 0, severity, reason))

    def parse(self, content: bytes) -> Configuration:
        try:
            document = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
        except checks.UNDECODABLE as error:
            self._warn(f"the file is no JSON ({error}); nothing of it is used", ERROR)
            document = {}
        fields = self._object(document, "the file")
        self._read_ranges(fields.get("priority_ranges"))
        sources = {name: self._source(name, entry) for name, entry in self._named_entries(fields, "sources")}
        skills = [self._skill(name, entry, sources) for name, entry in self._named_entries(fields, "skills")]
        settings = self._settings(fields.get("settings"))
        return Configuration(tuple(sources.values()), tuple(filter(None, skills)), settings, tuple(self._diagnostics))

    def _object(self, value: Any, what: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self._warn(f"{what} is no object; it is passed over")
        return {}

    def _named_entries(self, fields: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
        """List the entries of an object by their keys, or the entries of a list by their names."""
        value = fields.get(key, {})
        if isinstance(value, list):
            entries = [self._object(entry, f"an entry of {key}") for entry in cast("list[object]", value)]
            named = [(self._text(entry, "name", key), entry) for entry in entries]
        else:
            named = [(name, self._object(entry, f"{key}.{name}")) for name, entry in self._object(value, key).items()]
        return [(name, entry) for name, entry in named if name and entry]

    def _text(self, entry: dict[str, Any], key: str, what: str) -> str:
        value = entry.get(key, "")
        if isinstance(value, str):
            return value
        self._warn(f"{key} of {what} is no text; it is passed over")
        return ""

    def _texts(self, value: Any, what: str) -> tuple[str, ...]:
        if value is None:
            return ()
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        texts = [item for item in items if isinstance(item, str) and item]
        if len(texts) < len(items):
            self._warn(f"{what} holds what is no text; it is passed over")
        return tuple(texts)

    def _source(self, name: str, entry: dict[str, Any]) -> ConfiguredSource:
        kind = self._text(entry, "type", name)
        if kind not in _KINDS:
            self._warn(f"the source {name!r} is of the unknown type {kind!r}; it counts as a submodule")
        path, url = self._text(entry, "path", name), self._text(entry, "url", name)
        if not path:
            url = url or self._text(entry, "repository", name)
            self._warn(f"the source {name!r} has no path, only {url!r}; nothing is loaded from another machine")
        known = _KINDS.get(kind, "external")
        return ConfiguredSource(name, known, path, self._clamp(_DEFAULT_PRIORITIES[known], known))

    def _read_ranges(self, value: Any) -> None:
        """Read the ranges of priorities that the file itself defines."""
        for kind, entry in self._object({} if value is None else value, "priority_ranges").items():
            bounds = self._object(entry, f"priority_ranges.{kind}")
            least, most = bounds.get("min"), bounds.get("max")
            if kind in _KINDS and type(least) is int and type(most) is int and 0 < least <= most <= _PRIORITY_MAX:
                self._ranges[_KINDS[kind]] = (least, most)
            else:
                kinds = ", ".join(_KINDS)
                self._warn(f"priority_ranges.{kind} is no min and max from 1 to {_PRIORITY_MAX} of one of {kinds}")

    def _clamp(self, priority: int, kind: str) -> int:
        least, most = self._ranges[kind]
        return min(max(priority, least), most)

    def _skill(
        self, name: str, entry: dict[str, Any], sources: Mapping[str, ConfiguredSource]
    ) -> ConfiguredSkill | None:
        source = self._text(entry, "source", name)
        if source and source not in sources:
            self._warn(f"the skill {name!r} names the unknown source {source!r}; it is passed over")
            return None
        path = self._text(entry, "skill_path", name) or self._text(entry, "path", name)
        url = self._text(entry, "url", name)
        if not path:
            self._warn(f"the skill {name!r} has no path, only {url!r}; nothing is loaded from another machine")
        kind = sources[source].kind if source else self._kind
        priority = self._priority(name, entry.get("priority", 0), kind)
        rules = None if entry.get("detect") is None else self._object(entry["detect"], f"detect of {name}")
        detect = None
        if rules is not None:
            files = self._texts(rules.get("files"), f"detect.files of {name}")
            detect = (
                Detection(files, self._texts(rules.get("patterns"), f"detect.patterns of {name}")) if files else None
            )
        return ConfiguredSkill(name, source, kind, path, priority, detect, self._phases(name, entry.get("inject_into")))

    def _priority(self, name: str, value: Any, kind: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            self._warn(f"the priority of {name!r} is no whole number; it is passed over")
            value = 0
        priority = self._clamp(value or _DEFAULT_PRIORITIES[kind], kind)
        if value and priority != value:
            least, most = self._ranges[kind]
            self._warn(f"the priority of {name!r} is {value}; that of a skill of this source is from {least} to {most}")
        return priority

    def _phases(self, name: str, value: Any) -> tuple[str, ...]:
        phases = self._texts(value, f"inject_into of {name}")
        known = tuple(phase for phase in phases if phase in {*PHASES, ALWAYS})
        if len(known) < len(phases):
            self._warn(f"inject_into of {name!r} names an unknown phase; there are {', '.join(PHASES)} and {ALWAYS}")
        return known or (ALWAYS,)

    def _settings(self, value: Any) -> SkillSettings | None:
        if value is None:
            return None
        fields, counts = self._object(value, "settings"), dict[str, int]()
        for key, field in _SETTINGS.items():
            count = fields.get(key)
            if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= SKILL_SETTING_COUNT_MAX:
                counts[field] = count
            elif count is not None:
                bound = f"{SKILL_SETTING_COUNT_MAX = :,}"
                self._warn(f"{key} of settings is no number from 1 to {bound}; it is passed over")
        return SkillSettings(**counts)


# The index.

_TOKEN: Final = re.compile(r"[a-z0-9]+|[^\W_]")
_SPACED: Final = bytes(byte if chr(byte).isascii() and chr(byte).isalnum() else 32 for byte in range(256))


def tokens(text: str) -> list[str]:
    """Split a text into words for the seed formula: runs of ASCII letters and digits, and every other letter by itself.

    >>> tokens("Use React-18, bitte: \u00fc")
    ['use', 'react', '18', 'bitte', '\u00fc']
    """
    return _TOKEN.findall(text.lower())


def token_set(text: str) -> frozenset[bytes]:
    r"""Collect the distinct words of a text, split as by `tokens`, in UTF-8; this is an order of magnitude faster.

    >>> sorted(token_set("Use React, use \u00fc"))
    [b'react', b'use', b'\xc3\xbc']
    """
    lowered = text.lower()
    words = frozenset(lowered.encode("ascii", "replace").translate(_SPACED).split())
    if lowered.isascii():
        return words
    return words | {character.encode() for character in set(lowered) if character > "\x7f" and _TOKEN.match(character)}


class RefreshStats(Struct, frozen=True):
    """The file counts of a load, by their change since the previous load."""

    files: int = 0
    unchanged: int = 0  # Same size and times as before; not read.
    touched: int = 0  # Read, and the same content as before.
    changed: int = 0
    added: int = 0
    removed: int = 0


class SkillIndex:
    """Immutable skills by name; `shadowed` are the skills whose name another skill of higher priority has.

    >>> len(SkillIndex(()))
    0
    """

    __slots__ = ("_by_name", "diagnostics", "settings", "shadowed", "skills", "stats")

    def __init__(
        self,
        skills: Iterable[Skill],
        diagnostics: Sequence[Diagnostic] = (),
        stats: RefreshStats | None = None,
        settings: SkillSettings | None = None,
    ) -> None:
        self._by_name: dict[str, Skill] = {}
        shadowed: list[Skill] = []
        notes: list[Diagnostic] = []
        for skill in sorted(skills, key=lambda skill: (-skill.priority, skill.name, skill.path)):
            winner = self._by_name.setdefault(skill.name, skill)
            if winner.path != skill.path:
                shadowed.append(skill)
                priorities = f"priority {winner.priority} over {skill.priority}"
                reason = f"the skill {skill.name!r} is shadowed by {winner.path} ({priorities})"
                notes.append(Diagnostic(skill.path, 0, NOTE, reason))
        self.skills: tuple[Skill, ...] = tuple(self._by_name.values())
        """Every skill, the highest priority first, then by name."""
        self.shadowed: tuple[Skill, ...] = tuple(shadowed)
        self.diagnostics: tuple[Diagnostic, ...] = (*diagnostics, *notes)
        self.stats = stats or RefreshStats()  # The files of the load that made this index.
        self.settings = settings or SkillSettings()

    def __len__(self) -> int:
        return len(self.skills)

    def get(self, name: str) -> Skill | None:
        """Return the skill with a name or an id, or `None` if there is none."""
        skill = self._by_name.get(name)
        return skill or next((skill for skill in self.skills if skill.id == name), None)

    def summaries(self, *, detected: frozenset[str] = frozenset()) -> tuple[SkillSummary, ...]:
        """List every skill without its body; `detected` are the names of skills that apply to the project."""
        return tuple(summary_of(skill, detected=skill.name in detected) for skill in self.skills)

    def with_skills(self, skills: Iterable[Skill]) -> "SkillIndex":
        """Make an index of these skills, including the shadowed ones, and more."""
        added = tuple(skills)
        return self._copy((*self.skills, *self.shadowed, *added)) if added else self

    def with_marks(self, disabled: frozenset[str], notes: Mapping[str, str]) -> "SkillIndex":
        """Make an index in which skills with some names are switched off, and others have users' notes."""
        if self._by_name.keys().isdisjoint({*disabled, *notes}):
            return self
        return self._copy(
            replace(skill, enabled=skill.name not in disabled, note=notes.get(skill.name, ""))
            for skill in (*self.skills, *self.shadowed)
        )

    def _copy(self, skills: Iterable[Skill]) -> "SkillIndex":
        diagnostics = self.diagnostics[: len(self.diagnostics) - len(self.shadowed)]
        return SkillIndex(skills, diagnostics, self.stats, self.settings)


# Where skills are searched.

# The directories in which a project or a home keeps its skills; earlier ones take precedence.
SKILL_DIRECTORIES: Final = (".skills", ".agents/skills", ".claude/skills")
# Files with the conventions of a project, in upper or lower case; `SOUL.md` counts only in the root.
CONVENTION_FILES: Final = ("CLAUDE.md", "AGENTS.md", "AGENT.md", "SKILLS.md", "COPILOT.md", "GEMINI.md", "SOUL.md")
EXTERNAL_FILE: Final = "external-skills.json"
USER_FILE: Final = ".plan-cascade/skills.json"
_CONVENTION_PRIORITY: Final = 260
_CONVENTIONS: Final = frozenset(name.lower() for name in CONVENTION_FILES)
_RESOURCE_DIRECTORIES: Final = frozenset(("references", "agents", "scripts", "assets", "templates"))


class SkillRoots(Struct, frozen=True, kw_only=True):
    """The places where skills are searched; a root that does not exist has none.

    `project`: its `.skills`, `.agents/skills`, `.claude/skills`, its convention files, its `external-skills.json` and
    `.plan-cascade/skills.json`. `home`: the same directories and the last file, for the user. `builtin` and `user`:
    directories of skills. `external`: an `external-skills.json` elsewhere.
    """

    project: str | None = None
    home: str | None = None
    builtin: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    external: str | None = None

    def __post_init__(self) -> None:
        for name in ("project", "home", "external"):
            path = getattr(self, name)
            if path is not None:
                force_setattr(self, name, check_path(path, name))
        for name in ("builtin", "user"):
            paths = getattr(self, name)
            if not isinstance(paths, list | tuple):
                raise InvalidInput(f"{name} is {checks.brief(paths)}; give a tuple of directories")
            directories = cast("Sequence[object]", paths)
            force_setattr(self, name, tuple(check_path(path, name) for path in directories))


def check_roots(roots: object) -> SkillRoots:
    """Return roots of skills, if they are some."""
    if isinstance(roots, SkillRoots):
        return roots
    raise InvalidInput(f'roots is {checks.brief(roots)}; give SkillRoots, such as SkillRoots(project=".")')


class _FileFilter(NamedTuple):
    """The files of a directory that hold skills, selected by name and by their places in the tree."""

    matches: Callable[[str], bool]
    select: Callable[[Sequence[FileStat]], Iterable[FileStat]]


class _Location(NamedTuple):
    root: str
    source: str
    priority: int
    source_name: str = ""
    filter: _FileFilter | None = None  # The files that count; `None` if the root is a file itself.
    configured: ConfiguredSkill | None = None
    is_convention: bool = False
    configuration: str = ""  # The file that names it.


def is_skill_name(name: str) -> bool:
    """Return whether a name is that of a skill file, in upper or lower case."""
    return name.lower() == SKILL_FILE.lower()


def _is_convention_name(name: str) -> bool:
    return name.lower() in _CONVENTIONS


def _loose_files(files: Sequence[FileStat]) -> Iterator[FileStat]:
    """Yield every `SKILL.md`, and other Markdown files that are not part of another skill."""
    owned = {os.path.dirname(file.path) for file in files if is_skill_name(os.path.basename(file.path))}
    for file in files:
        *above, name = file.path.split("/")
        directories = {"/".join(above[:count]) for count in range(len(above) + 1)}
        is_loose = not directories & owned and not _RESOURCE_DIRECTORIES & {part.lower() for part in above}
        if is_skill_name(name) or is_loose:
            yield file


def _own_file(files: Sequence[FileStat]) -> Iterator[FileStat]:
    return (file for file in files if is_skill_name(file.path))


def _convention_files(files: Sequence[FileStat]) -> Iterator[FileStat]:
    """Yield the convention files of a project and its directories, except those among its skills."""
    for file in files:
        above, _, name = file.path.rpartition("/")
        is_one = _is_convention_name(name) and (not above or name.lower() != "soul.md")
        if is_one and not f"{above}/".startswith(tuple(f"{directory}/" for directory in SKILL_DIRECTORIES)):
            yield file


_EVERY_SKILL: Final = _FileFilter(is_skill_name, tuple)
_OWN_SKILL: Final = _FileFilter(is_skill_name, _own_file)
_LOOSE: Final = _FileFilter(skill_files.is_markdown, _loose_files)
_CONVENTION: Final = _FileFilter(_is_convention_name, _convention_files)


# Loading.


class _CachedFile(NamedTuple, Generic[T]):
    status: FileStat
    content: T


# By path, and by whether the file is read as conventions.
_Files: TypeAlias = dict[tuple[str, bool], _CachedFile[ParsedSkill]]


class SkillLoader:
    """Loads the skills of some roots, any number of times; unchanged files are not read again.

    Not thread-safe.

    >>> len(SkillLoader(SkillRoots()).load())
    0
    """

    def __init__(self, roots: SkillRoots) -> None:
        self.roots = roots
        self._files: _Files = {}
        self._configurations: dict[str, _CachedFile[Configuration]] = {}
        self._diagnostics: list[Diagnostic] = []
        self._index: SkillIndex | None = None
        self.stats = RefreshStats()  # The files of the last load.

    def load(self) -> SkillIndex:
        """Load the skills in their current state; the index is the same object as long as nothing has changed."""
        load = _Load(self.roots, self._files, self._configurations)
        skills = [skill for location in load.locations() for skill in load.skills(location)]
        removed = len(self._files.keys() - load.files.keys())
        self.stats = stats = RefreshStats(len(load.files), removed=removed, **load.counts)
        is_same = (load.diagnostics, load.configurations) == (self._diagnostics, self._configurations)
        self._files, self._configurations, self._diagnostics = load.files, load.configurations, load.diagnostics
        if self._index is None or not is_same or stats.changed or stats.added or stats.removed:
            # Two searches of one tree omit the same paths, which are reported once.
            diagnostics = tuple(dict.fromkeys(load.diagnostics))
            self._index = SkillIndex(skills, diagnostics, stats, load.settings)
        return self._index


class _Load:
    """One load: the files that it read or had read before, and its diagnostics."""

    def __init__(self, roots: SkillRoots, files: _Files, configurations: dict[str, _CachedFile[Configuration]]) -> None:
        self._roots = roots
        self._old_files = files
        self._old_configurations = configurations
        self.files: _Files = {}
        self.configurations: dict[str, _CachedFile[Configuration]] = {}
        self.diagnostics: list[Diagnostic] = []
        self.settings = SkillSettings()
        self.counts: dict[str, int] = dict.fromkeys(("unchanged", "touched", "changed", "added"), 0)

    def _report(self, path: str, reason: str, severity: str = WARNING) -> None:
        self.diagnostics.append(Diagnostic(self._relative(path), 0, severity, reason))

    def _relative(self, path: str) -> str:
        return skill_files.relative_path(path, self._roots.project)

    def locations(self) -> Iterator[_Location]:
        roots = self._roots
        for source, directories in (("builtin", roots.builtin), ("user", roots.user)):
            for root in directories:
                yield _Location(root, source, _DEFAULT_PRIORITIES[source], filter=_EVERY_SKILL)
        own = None if roots.project is None else os.path.join(roots.project, EXTERNAL_FILE)
        for path in dict.fromkeys(filter(None, (roots.external, own))):
            yield from self._configured_locations(path, "external", os.path.dirname(path))
        if roots.home is not None:
            yield from self._configured_locations(os.path.join(roots.home, USER_FILE), "user", roots.home, is_own=True)
            yield from _skill_directories(roots.home, "user")
        if roots.project is not None:
            yield from self._configured_locations(os.path.join(roots.project, USER_FILE), "user", roots.project)
            yield from _skill_directories(roots.project, "project")
            yield _Location(roots.project, "project", _CONVENTION_PRIORITY, filter=_CONVENTION, is_convention=True)

    def _configured_locations(self, path: str, kind: str, root: str, *, is_own: bool = False) -> Iterator[_Location]:
        """Yield the locations that a configuration names, relative to a directory.

        Only the user's own file may name locations anywhere; the files of a project are confined to `root`.
        """
        configuration = self._configuration(path, kind)
        if configuration is None:
            return
        self.diagnostics += configuration.diagnostics
        self.settings = configuration.settings or self.settings
        named = {skill.source for skill in configuration.skills}
        sources = {source.name: source for source in configuration.sources}
        for source in configuration.sources:
            location = self._resolve(path, root, source.path, source.name, is_own=is_own) if source.path else None
            if location and source.name not in named:
                yield _Location(location, source.kind, source.priority, source.name, _EVERY_SKILL)
        for skill in configuration.skills:
            above = sources[skill.source].path if skill.source else "."
            if not skill.path or not above:
                continue
            path_ = skill.path if above == "." or skill.path.startswith("/") else f"{above}/{skill.path}"
            location = self._resolve(path, root, path_, skill.name, is_own=is_own)
            if location:
                filter_ = None if location.lower().endswith(".md") else _OWN_SKILL
                yield _Location(location, skill.kind, skill.priority, skill.source, filter_, skill, configuration=path)

    def _resolve(self, configuration: str, root: str, path: str, name: str, *, is_own: bool) -> str | None:
        """Resolve a path that a configuration names; `None`, with a diagnostic, if it is missing or not allowed."""
        try:
            if not is_own:
                skill_files.resolve_path(root, path)
            location = os.path.join(root, os.path.expanduser(path) if is_own else path)
        except InvalidInput as error:
            self._report(configuration, f"{name!r} is not loaded: {error}")
            return None
        if os.path.exists(location):
            return location
        missing = f"{self._relative(location)}, which is not there; nothing is loaded from it"
        self._report(configuration, f"{name!r} names {missing}")
        return None

    def _configuration(self, path: str, kind: str) -> Configuration | None:
        status = skill_files.stat_file(path)
        if status is None:
            return None
        cached = self._old_configurations.get(path)
        if cached is None or cached.status != status:
            shown = self._relative(path)
            try:
                configuration = read_configuration(shown, skill_files.read(path), kind=kind)
            except OSError as error:
                problem = Diagnostic(shown, 0, ERROR, f"the file cannot be read ({error.strerror})")
                configuration = Configuration(diagnostics=(problem,))
            cached = _CachedFile(status, configuration)
        self.configurations[path] = cached
        return cached.content

    def skills(self, location: _Location) -> Iterator[Skill]:
        project = self._roots.project
        if location.source == "project" and not location.is_convention and project is not None:
            # A project's own directory can be a link that leads out of it.
            below = skill_files.relative_path(location.root, project)
            try:
                skill_files.resolve_path(project, below)
            except InvalidInput:
                self.diagnostics.append(Diagnostic(below, 0, WARNING, skill_files.OUTSIDE))
                return
        if location.filter is None:
            status = skill_files.stat_file(location.root)
            files = [] if status is None else [(location.root, status)]
        else:
            walk = skill_files.walk(location.root, matches=location.filter.matches)
            for path, reason in walk.omissions:
                self._report(os.path.join(location.root, path), reason)
            files = [(os.path.join(location.root, file.path), file) for file in location.filter.select(walk.files)]
        if location.configured is not None and not files:
            missing = f"{self._relative(location.root)}, which holds no {SKILL_FILE}; nothing is loaded from it"
            self._report(location.configuration, f"{location.configured.name!r} names {missing}")
        for path, status in files:
            parsed = self._parse(path, status, is_convention=location.is_convention)
            if parsed is not None and parsed.skill is not None:
                yield _apply_location(parsed.skill, location, status)

    def _parse(self, path: str, status: FileStat, *, is_convention: bool) -> ParsedSkill | None:
        key = (path, is_convention)
        if key in self.files:
            # Two roots lead to the same file, which was read and reported already.
            return self.files[key].content
        cached = self._old_files.get(key)
        if cached is not None and cached.status == status:
            self.counts["unchanged"] += 1
        else:
            try:
                content = skill_files.read(path)
            except OSError as error:
                self._report(path, f"the file cannot be read ({error.strerror})", ERROR)
                return None
            parsed = parse_skill(self._relative(path), content, is_convention=is_convention)
            old, new = cached and cached.content.skill, parsed.skill
            is_same = old is not None and new is not None and old.hash == new.hash
            self.counts["added" if cached is None else "touched" if is_same else "changed"] += 1
            cached = _CachedFile(status, parsed)
        self.files[key] = cached
        self.diagnostics += cached.content.diagnostics
        return cached.content


def _apply_location(skill: Skill, location: _Location, status: FileStat) -> Skill:
    fields: dict[str, Any] = {
        "source": location.source,
        "source_name": location.source_name,
        "priority": location.priority,
        "modified_ns": status.modified_ns,
    }
    if location.configured is not None:
        fields |= {"detect": location.configured.detect, "inject_into": location.configured.inject_into}
    if location.is_convention:
        above = os.path.dirname(status.path)
        fields["priority"] = location.priority + status.path.count("/")
        if above:
            # Each directory has its own conventions, which do not replace those of another.
            fields["name"] = f"{above}/{skill.name}"
    return replace(skill, **fields)


def _skill_directories(root: str, source: str) -> Iterator[_Location]:
    """Yield the directories in which a project or a home has its skills, so that the first skill of a name counts."""
    for index, directory in enumerate(SKILL_DIRECTORIES):
        priority = _DEFAULT_PRIORITIES[source] + len(SKILL_DIRECTORIES) - 1 - index
        yield _Location(os.path.join(root, directory), source, priority, filter=_LOOSE)
