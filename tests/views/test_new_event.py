"""A new event or a new view is one file: everything else learns of it from there."""

import subprocess
import sys
from pathlib import Path


def test_a_new_view_goes_through_a_store_without_another_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.toy_view", str(tmp_path)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
