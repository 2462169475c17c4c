"""The repository, the data beside it that some machines have, and the made-up sources of the importers."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DATA: Final = ROOT.parent / "shared" / "data"
SOURCES: Final = ROOT / "tests" / "importers" / "sources"
SAMPLE: Final = ROOT / "tests" / "samples" / "airline.jsonl"
