"""The corruption rig finds nothing in refold, and finds the builds that are broken on purpose."""

import re
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

import pytest

from refold import Memory, StoreCorrupt
from refold.limits import STRUCTURE_BYTES_MAX
from refold.log import lmdb_file
from tests.rigs.damage.damages import CLASSES
from tests.support.paths import ROOT
from tests.support.sizes import sizes


def run_rig(count: int, *options: str, seed: int | None = None) -> tuple[int, str]:
    """Runs the rig in a process of its own, because it forks, and a process with threads must not."""
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    command = [sys.executable, "-m", "tests.rigs.damage", "--count", str(count), "--seed", str(seed), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    return done.returncode, done.stdout + done.stderr


@sizes("count", quick=3, slow=9, soak=700)
def test_damage_of_every_class_is_told_or_harmless(count: int) -> None:
    code, said = run_rig(count)
    assert code == 0, said
    assert re.search(rf"^ *all +{count * len(CLASSES)} ", said, re.MULTILINE), said


SEEN_AS = [
    ("skip_links", "bit", "SILENT"),
    ("skip_checkpoints", "row", "SILENT"),
    ("skip_structure", "zeroed sector", "DIED"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("build", "kind", "outcome"), SEEN_AS)
def test_a_broken_build_is_found(build: str, kind: str, outcome: str) -> None:
    code, said = run_rig(40, "--build", build, "--kind", kind, seed=1)
    assert code == 1, said
    assert f": {outcome} while " in said, said


def test_a_small_file_whose_structure_is_damaged_is_refused_before_lmdb_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Memory(path) as memory:
        for number in range(40):
            memory.conversation("chat").append("user", f"hello {number}", tokens=1)
    file = path / "data.mdb"
    content = bytearray(file.read_bytes())
    assert len(content) <= STRUCTURE_BYTES_MAX
    content[8_192 : len(content)] = bytes(len(content) - 8_192)
    file.write_bytes(content)
    assert lmdb_file.problems(str(path))
    with pytest.raises(StoreCorrupt, match=r"the data file of .* is damaged \(.*\); restore a backup"):
        Memory(path)
