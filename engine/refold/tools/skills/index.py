"""The index: every skill that was found, each name once, the highest priority first. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from refold.tools.skills.configuring import Settings
from refold.tools.skills.skill import NOTE, Diagnostic, Skill, SkillSummary, summary_of


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
