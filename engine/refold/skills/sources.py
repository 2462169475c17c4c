"""Sources of skills: where they are looked for, the files that configure them, and the index of all."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.errors import InvalidInput
from refold.limits import SKILL_SETTING_COUNT_MAX
from refold.skills import files as skill_files
from refold.skills.files import Seen
from refold.skills.format import SKILL_FILE, Parsed, parse_skill
from refold.skills.skill import (
    ALWAYS,
    ERROR,
    NOTE,
    PHASES,
    WARNING,
    Detection,
    Diagnostic,
    Skill,
    SkillSummary,
    summary_of,
    token_set,
)

# ``external-skills.json`` and ``skills.json``: which skills there are beside a project's own, and when they apply.
#
# Pure. What is malformed is passed over with a diagnostic; addresses of other machines are listed and never loaded.

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


# The index: every skill that was found, each name once, the highest priority first. Pure.


class RefreshStats(Struct, frozen=True):
    """What loading the skills took: files by what became of them since the load before."""

    files: int = 0
    unchanged: int = 0
    """Of the same size and time as before; not read."""
    touched: int = 0
    """Read, and their content is what it was."""
    changed: int = 0
    added: int = 0
    removed: int = 0


class SkillIndex:
    """Skills by name, none of which changes; ``shadowed`` are those whose name another one of a higher priority has.

    >>> len(SkillIndex(()))
    0
    """

    __slots__ = ("_by_name", "diagnostics", "settings", "shadowed", "skills", "stats", "words")

    def __init__(
        self,
        skills: Iterable[Skill],
        diagnostics: Sequence[Diagnostic] = (),
        stats: RefreshStats | None = None,
        settings: Settings | None = None,
        words: Mapping[str, frozenset[bytes]] | None = None,
    ) -> None:
        self._by_name: dict[str, Skill] = {}
        shadowed: list[Skill] = []
        said: list[Diagnostic] = []
        for skill in sorted(skills, key=_rank):
            winner = self._by_name.setdefault(skill.name, skill)
            if winner.path != skill.path:
                shadowed.append(skill)
                said.append(_shadow(winner, skill))
        self.skills: tuple[Skill, ...] = tuple(self._by_name.values())
        """Every skill, the highest priority first, then by name."""
        self.shadowed: tuple[Skill, ...] = tuple(shadowed)
        self.diagnostics: tuple[Diagnostic, ...] = (*diagnostics, *said)
        self.stats = stats or RefreshStats()
        """What the load took that made this index."""
        self.settings = settings or Settings()
        self.words: Mapping[str, frozenset[bytes]] = words or {}
        """The words of bodies, as ``token_set`` gives them, by the id of their skill; those that are known already."""

    def __len__(self) -> int:
        """How many skills there are."""
        return len(self.skills)

    def get(self, name: str) -> Skill | None:
        """Return the skill of a name, or of an id, ``None`` if there is none."""
        found = self._by_name.get(name)
        return found or next((skill for skill in self.skills if skill.id == name), None)

    def summaries(self, *, detected: frozenset[str] = frozenset()) -> tuple[SkillSummary, ...]:
        """Return every skill without its body; ``detected`` are the names of those that apply to the project."""
        return tuple(summary_of(skill, detected=skill.name in detected) for skill in self.skills)

    def with_skills(self, more: Iterable[Skill]) -> "SkillIndex":
        """Return an index of these skills and more, the shadowed ones included."""
        added = tuple(more)
        if not added:
            return self
        every = (*self.skills, *self.shadowed, *added)
        return SkillIndex(every, self._own_diagnostics(), self.stats, self.settings, self.words)

    def switched_off(self, names: frozenset[str]) -> "SkillIndex":
        """Return the index with the skills of some names switched off."""
        if not names & self._by_name.keys():
            return self
        every = (replace(skill, enabled=skill.name not in names) for skill in (*self.skills, *self.shadowed))
        return SkillIndex(every, self._own_diagnostics(), self.stats, self.settings, self.words)

    def _own_diagnostics(self) -> tuple[Diagnostic, ...]:
        return self.diagnostics[: len(self.diagnostics) - len(self.shadowed)]


def _rank(skill: Skill) -> tuple[int, str, str]:
    return -skill.priority, skill.name, skill.path


def _shadow(winner: Skill, loser: Skill) -> Diagnostic:
    reason = f"the skill {loser.name!r} is shadowed by {winner.path} (priority {winner.priority} over {loser.priority})"
    return Diagnostic(loser.path, 0, NOTE, reason)


SKILL_DIRECTORIES: Final = (".skills", ".agents/skills", ".claude/skills")
"""Where a project or a home keeps its skills, the first one before the others."""

CONVENTION_FILES: Final = ("CLAUDE.md", "AGENTS.md", "AGENT.md", "SKILLS.md", "COPILOT.md", "GEMINI.md", "SOUL.md")
"""Files that say how a project is worked on, in whatever case; ``SOUL.md`` counts in the root alone."""

EXTERNAL_FILE: Final = "external-skills.json"
USER_FILE: Final = ".plan-cascade/skills.json"
_CONVENTION_PRIORITY: Final = 260
_CONVENTIONS: Final = frozenset(name.lower() for name in CONVENTION_FILES)
_ROOT_ONLY: Final = "soul.md"
_RESOURCE_DIRECTORIES: Final = frozenset(("references", "agents", "scripts", "assets", "templates"))


class SkillRoots(Struct, frozen=True, kw_only=True):
    """Where skills are looked for. A root that is not there holds none.

    ``project``: its ``.skills``, ``.agents/skills``, ``.claude/skills``, its convention files, its
    ``external-skills.json`` and ``.plan-cascade/skills.json``. ``home``: the same directories and the last file, for
    the user. ``builtin`` and ``user``: directories of skills. ``external``: an ``external-skills.json`` elsewhere.
    """

    project: str | None = None
    home: str | None = None
    builtin: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    external: str | None = None


class _Place(NamedTuple):
    """One directory, or one file, that is looked into."""

    root: str
    source: str
    priority: int
    source_name: str = ""
    only: Callable[[Sequence[Seen]], Iterator[Seen]] | None = None
    """Which of the Markdown files count; ``None`` if the root is a file itself."""
    configured: ConfiguredSkill | None = None
    is_convention: bool = False
    named_in: str = ""
    """The configuration that names it."""


class _Kept(NamedTuple):
    """A file that was read: what it looked like then, and what it held."""

    seen: Seen
    parsed: Parsed


class SkillLoader:
    """Loads the skills of some roots, again and again; what did not change is not read again.

    Not for several threads at once.

    >>> len(SkillLoader(SkillRoots()).load())
    0
    """

    def __init__(self, roots: SkillRoots) -> None:
        self.roots = roots
        self._kept: dict[tuple[str, bool], _Kept] = {}
        self._configurations: dict[str, tuple[Seen, Configuration]] = {}
        self._said: list[Diagnostic] = []
        self._index: SkillIndex | None = None
        self._words: dict[str, frozenset[bytes]] = {}
        self.stats = RefreshStats()
        """What the last load took."""

    def load(self) -> SkillIndex:
        """Return the skills as they are now; the index is the same object for as long as nothing has changed."""
        load = _Load(self.roots, self._kept, self._configurations)
        found = list(load.skills())
        self.stats = stats = load.stats(self._kept)
        is_same = (load.said, load.configurations) == (self._said, self._configurations)
        self._kept, self._configurations, self._said = load.kept, load.configurations, load.said
        if self._index is None or not is_same or stats.changed or stats.added or stats.removed:
            # Two searches of one tree leave out the same; it is said once.
            self._words = {skill.id: self._words.get(skill.id) or token_set(skill.body) for skill in found}
            self._index = SkillIndex(found, tuple(dict.fromkeys(load.said)), stats, load.settings, self._words)
        return self._index


class _Load:
    """One load: what it read, kept and said."""

    def __init__(
        self,
        roots: SkillRoots,
        kept: Mapping[tuple[str, bool], _Kept],
        configurations: Mapping[str, tuple[Seen, Configuration]],
    ) -> None:
        self._roots = roots
        self._old = kept
        self._old_configurations = configurations
        self.kept: dict[tuple[str, bool], _Kept] = {}
        self.configurations: dict[str, tuple[Seen, Configuration]] = {}
        self.said: list[Diagnostic] = []
        self.settings = Settings()
        self._counts: dict[str, int] = dict.fromkeys(("unchanged", "touched", "changed", "added"), 0)

    def stats(self, before: Mapping[tuple[str, bool], _Kept]) -> RefreshStats:
        """Return what became of the files."""
        removed = len(before.keys() - self.kept.keys())
        return RefreshStats(len(self.kept), removed=removed, **self._counts)

    def skills(self) -> Iterator[Skill]:
        """Yield every skill that is found, those of one name too."""
        for place in self._places():
            yield from self._in_place(place)

    # Places.

    def _places(self) -> Iterator[_Place]:
        roots = self._roots
        for root in roots.builtin:
            yield _Place(root, "builtin", DEFAULTS["builtin"], only=_skill_files)
        for root in roots.user:
            yield _Place(root, "user", DEFAULTS["user"], only=_skill_files)
        for path in dict.fromkeys(filter(None, (roots.external, self._of_project(EXTERNAL_FILE)))):
            yield from self._configured(path, "external", skill_files.parent_of(path))
        if roots.home is not None:
            path = skill_files.joined(roots.home, USER_FILE)
            yield from self._configured(path, "user", roots.home, is_own=True)
            yield from _standing(roots.home, "user")
        if roots.project is not None:
            yield from self._configured(skill_files.joined(roots.project, USER_FILE), "user", roots.project)
            yield from _standing(roots.project, "project")
            only = _convention_files
            yield _Place(roots.project, "project", _CONVENTION_PRIORITY, only=only, is_convention=True)

    def _of_project(self, name: str) -> str | None:
        return None if self._roots.project is None else skill_files.joined(self._roots.project, name)

    def _configured(self, path: str, kind: str, root: str, *, is_own: bool = False) -> Iterator[_Place]:
        """Yield the places that a configuration names, from the directory that it speaks of.

        Only the user's own file may name places anywhere; what comes with a project stays below ``root``.
        """
        configuration = self._configuration(path, kind)
        if configuration is None:
            return
        self.said += configuration.diagnostics
        self.settings = configuration.settings or self.settings
        named = {skill.source for skill in configuration.skills}
        sources = {source.name: source for source in configuration.sources}
        for source in configuration.sources:
            place = self._named(path, root, source.path, source.name, is_own=is_own) if source.path else None
            if place and source.name not in named:
                yield _Place(place, source.kind, DEFAULTS[source.kind], source.name, _skill_files)
        for skill in configuration.skills:
            above = sources[skill.source].path if skill.source else "."
            if not skill.path or not above:
                continue
            given = skill.path if above == "." or skill.path.startswith("/") else f"{above}/{skill.path}"
            place = self._named(path, root, given, skill.name, is_own=is_own)
            if place:
                only = None if place.lower().endswith(".md") else _own_file
                priority = clamped(skill.priority, skill.kind)
                yield _Place(place, skill.kind, priority, skill.source, only, skill, named_in=path)

    def _named(self, path: str, root: str, given: str, name: str, *, is_own: bool) -> str | None:
        """Return the place that a configuration names, ``None`` with a diagnostic where it may not be looked into."""
        try:
            if not is_own:
                skill_files.inside(root, given)
            place = skill_files.from_home(root, given) if is_own else skill_files.joined(root, given)
        except InvalidInput as error:
            self.said.append(Diagnostic(self._shown(path), 0, WARNING, f"{name!r} is not loaded: {error}"))
            return None
        if skill_files.is_there(place):
            return place
        reason = f"{name!r} names {self._shown(place)}, which is not there; nothing is loaded from it"
        self.said.append(Diagnostic(self._shown(path), 0, WARNING, reason))
        return None

    def _configuration(self, path: str, kind: str) -> Configuration | None:
        seen = skill_files.looked_at(path)
        if seen is None:
            return None
        old = self._old_configurations.get(path)
        if old is not None and old[0] == seen:
            configuration = old[1]
        else:
            try:
                configuration = read_configuration(self._shown(path), skill_files.read(path), kind=kind)
            except OSError as error:
                said = Diagnostic(self._shown(path), 0, ERROR, f"the file cannot be read ({error.strerror})")
                configuration = Configuration(path, diagnostics=(said,))
        self.configurations[path] = (seen, configuration)
        return configuration

    # Files.

    def _is_within(self, place: _Place) -> bool:
        """Return whether a project's own directory lies in the project, and say so where a link leads out of it."""
        project = self._roots.project
        if place.source != "project" or place.is_convention or project is None:
            return True
        below = skill_files.below(place.root, project)
        try:
            skill_files.inside(project, below)
        except InvalidInput:
            self.said.append(Diagnostic(below, 0, WARNING, skill_files.OUTSIDE))
            return False
        return True

    def _in_place(self, place: _Place) -> Iterator[Skill]:
        if not self._is_within(place):
            return
        if place.only is None:
            seen = skill_files.looked_at(place.root)
            files = [] if seen is None else [(place.root, seen)]
        else:
            found = skill_files.walk(place.root, is_wanted=_WANTED.get(place.only, skill_files.is_markdown))
            for path, reason in found.problems:
                shown = self._shown(skill_files.joined(place.root, path))
                self.said.append(Diagnostic(shown, 0, WARNING, reason))
            files = [(skill_files.joined(place.root, seen.path), seen) for seen in place.only(found.files)]
        if place.configured is not None and not files:
            reason = f"names {self._shown(place.root)}, which holds no {SKILL_FILE}; nothing is loaded from it"
            said = Diagnostic(self._shown(place.named_in), 0, WARNING, f"{place.configured.name!r} {reason}")
            self.said.append(said)
        for path, seen in files:
            parsed = self._parsed(path, seen, is_convention=place.is_convention)
            if parsed is not None and parsed.skill is not None:
                yield _placed(parsed.skill, place, seen)

    def _parsed(self, path: str, seen: Seen, *, is_convention: bool) -> Parsed | None:
        key = (path, is_convention)
        if key in self.kept:
            # Two roots lead to the same file; it was read and spoken of already.
            return self.kept[key].parsed
        old = self._old.get(key)
        if old is not None and old.seen == seen:
            self._counts["unchanged"] += 1
            kept = old
        else:
            try:
                content = skill_files.read(path)
            except OSError as error:
                reason = f"the file cannot be read ({error.strerror})"
                self.said.append(Diagnostic(self._shown(path), 0, ERROR, reason))
                return None
            parsed = parse_skill(self._shown(path), content, is_convention=is_convention)
            kept = _Kept(seen, parsed)
            self._counts[_fate(old, parsed)] += 1
        self.kept[key] = kept
        self.said += kept.parsed.diagnostics
        return kept.parsed

    def _shown(self, path: str) -> str:
        """Return a path as diagnostics name it: below the project where it lies there."""
        return skill_files.below(path, self._roots.project)


def _fate(old: _Kept | None, parsed: Parsed) -> str:
    if old is None:
        return "added"
    was, now = old.parsed.skill, parsed.skill
    is_same = was is not None and now is not None and was.hash == now.hash
    return "touched" if is_same else "changed"


def _placed(skill: Skill, place: _Place, seen: Seen) -> Skill:
    """Return a skill with what its place says of it."""
    fields: dict[str, Any] = {
        "source": place.source,
        "source_name": place.source_name,
        "priority": place.priority,
        "modified_ns": seen.modified_ns,
    }
    if place.configured is not None:
        fields |= {"detect": place.configured.detect, "inject_into": place.configured.inject_into}
    if place.is_convention:
        above = seen.path.rpartition("/")[0]
        depth = seen.path.count("/")
        fields["priority"] = place.priority + depth
        if above:
            # Each directory has conventions of its own; none of them stands for another's.
            fields["name"] = f"{above}/{skill.name}"
    return replace(skill, **fields)


def _standing(root: str, source: str) -> Iterator[_Place]:
    """Yield the directories in which a project or a home keeps skills; where a name is twice, the first one counts."""
    for place, directory in enumerate(SKILL_DIRECTORIES):
        priority = DEFAULTS[source] + len(SKILL_DIRECTORIES) - 1 - place
        yield _Place(skill_files.joined(root, directory), source, priority, only=_loose_files)


# Which files count.


def _skill_files(files: Sequence[Seen]) -> Iterator[Seen]:
    """Yield every ``SKILL.md``, however deep."""
    return (seen for seen in files if _is_skill_file(seen))


def _is_skill_file(seen: Seen) -> bool:
    return is_skill_name(seen.path.rpartition("/")[2])


def is_skill_name(name: str) -> bool:
    """Return whether a file of that name holds a skill, in whatever case."""
    return name.lower() == SKILL_FILE.lower()


def _is_convention_name(name: str) -> bool:
    return name.lower() in _CONVENTIONS


def _own_file(files: Sequence[Seen]) -> Iterator[Seen]:
    """Yield the ``SKILL.md`` of the directory itself."""
    return (seen for seen in files if seen.path.lower() == SKILL_FILE.lower())


def _loose_files(files: Sequence[Seen]) -> Iterator[Seen]:
    """Yield every ``SKILL.md``, and other Markdown files that are no part of another skill."""
    owned = {seen.path.rpartition("/")[0] for seen in files if _is_skill_file(seen)}
    for seen in files:
        *above, _ = seen.path.split("/")
        directories = {"/".join(above[:count]) for count in range(len(above) + 1)}
        is_loose = not directories & owned and not _RESOURCE_DIRECTORIES & {name.lower() for name in above}
        if _is_skill_file(seen) or is_loose:
            yield seen


def _convention_files(files: Sequence[Seen]) -> Iterator[Seen]:
    """Yield the convention files of a project, those of its directories too, but none from among its skills."""
    for seen in files:
        above, _, name = seen.path.rpartition("/")
        is_one = _is_convention_name(name) and (not above or name.lower() != _ROOT_ONLY)
        if is_one and not f"{above}/".startswith(tuple(f"{directory}/" for directory in SKILL_DIRECTORIES)):
            yield seen


_WANTED: Final[dict[Callable[[Sequence[Seen]], Iterator[Seen]], Callable[[str], bool]]] = {
    _skill_files: is_skill_name,
    _own_file: is_skill_name,
    _convention_files: _is_convention_name,
}
"""The names of files that a walk looks for, where they are not all Markdown."""
