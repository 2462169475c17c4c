"""What was measured, group by group, as JSON: stored when a group is done, so that a run goes on where it was cut off.

Nothing in it says whose machine it was: no path, no name of a host or a user.
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
QUICK, FULL = "quick", "full"

Document = dict[str, Any]
"""A group: its name and mode, what the figures depend on, how long it took, and rows, figures or evictions."""


class Results:
    """The stored groups of a mode."""

    def __init__(self, mode: str, directory: Path = RESULTS) -> None:
        self.mode = mode
        self._folder = directory / mode

    def has(self, group: str) -> bool:
        """Return whether a group is stored."""
        return self._path(group).is_file()

    def save(self, group: str, document: Document) -> None:
        """Store a group, whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f".{group}.unfinished"
        unfinished.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self._path(group))

    def load(self) -> dict[str, Document]:
        """Return every stored group by its name."""
        paths = sorted(self._folder.glob("*.json")) if self._folder.is_dir() else []
        return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}

    def clear(self, group: str) -> None:
        """Forget a group."""
        self._path(group).unlink(missing_ok=True)

    def _path(self, group: str) -> Path:
        return self._folder / f"{group}.json"
