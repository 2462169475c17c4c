"""What a run of a rig comes to."""

from msgspec import Struct, field

from tests.rigs.history.checker import Violation


class Tally(Struct):
    """Counts of a run, for a summary; a run is good when there are no violations."""

    rig: str
    seed: int
    processes: int
    threads: int
    loops: int = 0
    kills: int = 0
    events: int = 0
    acknowledged: int = 0
    refused: int = 0
    looks: int = 0
    unknown_written: int = 0
    """Unknown outcomes that the log held before they were retried."""
    unknown_lost: int = 0
    """Unknown outcomes that the log did not hold: the retry has written them, or was refused."""
    violations: list[Violation] = field(default_factory=list)

    @property
    def rules(self) -> set[str]:
        """The rules that were broken."""
        return {violation.rule for violation in self.violations}

    def __str__(self) -> str:
        counts = {name: getattr(self, name) for name in self.__struct_fields__ if name not in {"rig", "violations"}}
        summary = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())
        lines = [f"{self.rig}: {summary}, violations {len(self.violations)}"]
        return "\n".join([*lines, *(f"  {violation}" for violation in self.violations)])
