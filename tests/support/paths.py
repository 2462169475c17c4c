"""The repository, the data beside it that some machines have, made-up sources of importers, and what is not here."""

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
DATA: Final = ROOT.parent / "shared" / "data"
SOURCES: Final = ROOT / "tests" / "importers" / "sources"
SAMPLE: Final = ROOT / "tests" / "samples" / "airline.jsonl"


def json_lines(path: Path, *documents: Any) -> Path:
    """Write a file with one JSON document a line, and return its path."""
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


NOT_HERE = {"refold.adapters.agent_framework", "refold.adapters.google_adk", "refold.adapters.llama_index"}
"""The modules whose packages the development environment is without; tools/test --adapters tests them."""
