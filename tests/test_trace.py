"""How many functions and files one call passes: a bound, so that paths stay straight."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_an_append_passes_few_functions_and_files() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "trace", "append", "--counts"], capture_output=True, text=True, check=True
    )
    functions, files, depth = map(int, re.findall(r"\d+", done.stdout))
    assert functions <= 40, done.stdout
    assert files <= 14, done.stdout
    assert depth <= 14, done.stdout
