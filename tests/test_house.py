"""The repository around the package: its top level, its locks, its scripts."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import run_blocks
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

LOCKS = ROOT / "tools" / "lock"
SCRIPTS = (".ci/run", "tools/bench", "tools/demo", "tools/test", "tools/lock/update")
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "LICENSE",
    "README.md",
    "benchmarks",
    "engine",
    "pyproject.toml",
    "tests",
    "tools",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RANGES = {
    "base": PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["cli"],
    "cluster": PROJECT["project"]["optional-dependencies"]["cluster"],
    "hnsw": PROJECT["project"]["optional-dependencies"]["hnsw"],
    "dev": PROJECT["dependency-groups"]["dev"] + PROJECT["project"]["dependencies"],
    "peers": PROJECT["dependency-groups"]["peers"] + PROJECT["dependency-groups"]["bench"],
}
for name in ("agent-framework", "google-adk", "llama-index"):
    extra, group = PROJECT["project"]["optional-dependencies"][name], PROJECT["dependency-groups"]["adapters"]
    RANGES[f"adapters-{name}"] = extra + group + PROJECT["project"]["dependencies"]
LOCK_NAMES = (*RANGES, "hnsw-build")


def lock_entries(name: str) -> list[str]:
    """The requirements of a lock, each with its hashes on one line."""
    text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]


def lock_pins(name: str) -> dict[str, set[str]]:
    """The versions that a lock pins, by package; a package may have one for each marker."""
    pins: dict[str, set[str]] = {}
    for entry in lock_entries(name):
        requirement = Requirement(entry.partition("--hash")[0])
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        pins.setdefault(canonicalize_name(requirement.name), set()).add(specifier.version)
    return pins


def test_the_locks_are_the_ones_tested_here() -> None:
    assert {path.stem for path in LOCKS.glob("*.txt")} == set(LOCK_NAMES)


@pytest.mark.parametrize("name", LOCK_NAMES)
def test_a_lock_names_no_host(name: str) -> None:
    text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8")
    assert re.findall(r"\S*(?:://|\bhttps?:|--\S*(?:index|find-links|host)|\.(?:org|com|net|io|dev)\b)\S*", text) == []


@pytest.mark.parametrize("name", LOCK_NAMES)
def test_every_requirement_of_a_lock_has_a_hash(name: str) -> None:
    entries = lock_entries(name)
    assert entries
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []


@pytest.mark.parametrize("name", RANGES)
def test_the_pins_of_a_lock_lie_in_the_ranges_of_pyproject(name: str) -> None:
    pins = lock_pins(name)
    for requirement in map(Requirement, RANGES[name]):
        versions = pins[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(version) for version in versions), (requirement, versions)


def test_a_package_has_the_same_version_in_every_lock() -> None:
    versions: dict[str, set[frozenset[str]]] = {}
    for name in LOCK_NAMES:
        for package, pins in lock_pins(name).items():
            versions.setdefault(package, set()).add(frozenset(pins))
    assert {package: pins for package, pins in versions.items() if len(pins) > 1} == {}


def test_the_dev_lock_holds_the_base_lock() -> None:
    assert lock_pins("base").items() <= lock_pins("dev").items()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_executable_and_stops_at_an_error(name: str) -> None:
    path = ROOT / name
    assert os.access(path, os.X_OK)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text


@pytest.mark.parametrize("name", [*SCRIPTS, "tools/setup"])
def test_a_script_is_valid_shell(name: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)


def test_ci_runs_what_developers_run() -> None:
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert '/../tools/test" --all' in run
    assert '/../tools/test" --adapters' in run


def test_help_needs_no_set_up() -> None:
    shown = subprocess.run(["bash", str(ROOT / "tools" / "test"), "--help"], capture_output=True, text=True, check=True)
    assert "tools/test --all" in shown.stdout
    assert shown.stderr == ""


def test_an_unknown_flag_is_refused() -> None:
    shown = subprocess.run(
        ["bash", str(ROOT / "tools" / "test"), "--fast"], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 2
    assert "tools/test --all" in shown.stderr


def test_the_top_level_holds_only_what_belongs_there() -> None:
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    if listing.returncode != 0 or not listing.stdout:
        pytest.skip("not a git checkout, so there is no list of what is committed")
    assert {name.partition("/")[0] for name in listing.stdout.split("\0") if name} <= TOP_LEVEL


def test_the_blocks_of_a_document_run_in_order_and_share_their_names(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "```python\nn = 2\n```\n\n```sh\nexit 1\n```\n\n```pycon\n>>> n + 1\n3\n```\n", encoding="utf-8"
    )
    assert run_blocks.run_file(document) == 2


@pytest.mark.parametrize("block", ["assert 1 == 2", ">>> 1 + 1\n3", ">>> absent"])
def test_a_block_that_does_not_hold_fails(tmp_path: Path, block: str) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"# A page\n\n```python\n{block}\n```\n", encoding="utf-8")
    with pytest.raises((AssertionError, run_blocks.BlockFailedError)):
        run_blocks.run_file(document)


def test_the_environment_of_the_benchmarks_says_how_long_it_takes_before_it_is_made(tmp_path: Path) -> None:
    stubs = "pip_install() { echo pip >&2; }; ensure_venv() { :; }; ensure_hnsw() { :; }; ensure_project() { :; }"
    script = f"source tools/setup; {stubs}; venv={tmp_path}; setup_bench; echo again >&2; setup_bench"
    told = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stderr
    first, again = told.split("again\n")
    assert first.index("about four minutes, this once") < first.index("tools/lock/peers.txt")
    assert again == ""
