"""The conformance suite of the protocol against our server and our client.

A scenario passes, or stands in a list with its reason.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.mcp.resources import Binding
from refold.mcp.server import MemoryServer
from tests.mcp.fixtures import Kept, add_fixtures
from tests.mcp.servers import http
from tests.support import node as nodejs
from tests.support.memories import remembering
from tests.support.node import node, package_file
from tests.support.paths import ROOT

SUITE = "@modelcontextprotocol/conformance/dist/index.js"
LISTED: dict[str, Any] = json.loads((Path(__file__).parent / "conformance.json").read_text())
TIMEOUT_SECONDS = 100
RETRY_MS = 50


def suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [node(), package_file(SUITE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, cwd=ROOT)


def fixed(memory: Memory) -> MemoryServer:
    """Our server with what the suite asks for."""
    server = MemoryServer(Binding(memory))
    add_fixtures(server)
    return server


def verdicts(folder: Path) -> dict[str, str]:
    """What became of each scenario; one without a check that succeeded has not passed."""
    found: dict[str, str] = {}
    for path in folder.glob("server-*/checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", path.parent.name.removeprefix("server-"))
        states = {check["status"] for check in json.loads(path.read_text())}
        worst = next((state for state in ("FAILURE", "WARNING", "SUCCESS") if state in states), "NOTHING")
        found[name] = worst
    return found


@pytest.mark.slow
def test_every_scenario_passes_or_stands_in_the_list(tmp_path: Path) -> None:
    with (
        remembering(tmp_path / "store") as memory,
        http(fixed(memory), event_store=Kept(), retry_interval=RETRY_MS) as url,
    ):
        run = suite("server", "--url", url, "--suite", "all", "--output-dir", str(tmp_path / "out"))
    found = verdicts(tmp_path / "out")
    passed = {name for name, verdict in found.items() if verdict == "SUCCESS"}
    assert passed == set(LISTED["server"]["pass"]), run.stdout + run.stderr
    assert set(found) - passed == set(LISTED["server"]["others"]), found
    assert "FAILURE" not in found.values()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
@pytest.mark.parametrize("scenario", LISTED["client"]["pass"])
def test_remote_tools_pass_what_is_asked_of_a_client(tmp_path: Path, scenario: str, protocol: str) -> None:
    command = f"{sys.executable} -m tests.mcp.conformance_client {protocol}"
    run = suite("client", "--command", command, "--scenario", scenario, "--output-dir", str(tmp_path))
    (checks,) = [json.loads(path.read_text()) for path in tmp_path.glob("*/checks.json")]
    states = {check["status"] for check in checks} - {"INFO"}
    assert (states, run.returncode) == ({"SUCCESS"}, 0), run.stdout + run.stderr


@pytest.mark.slow
def test_the_list_knows_every_scenario_of_the_suite() -> None:
    servers, clients = suite("list").stdout.split("Client scenarios")
    named = re.compile(r"^  - (\S+)", re.MULTILINE)
    assert set(named.findall(servers)) == {*LISTED["server"]["pass"], *LISTED["server"]["others"]}
    assert set(named.findall(clients)) == {*LISTED["client"]["pass"], *LISTED["client"]["others"]}
    reasons = [*LISTED["server"]["others"].values(), *LISTED["client"]["others"].values()]
    assert all(reasons), "each of the others has its reason"


@pytest.mark.slow
def test_a_server_without_what_a_scenario_asks_for_fails_it(tmp_path: Path) -> None:
    with remembering(tmp_path / "store") as memory, http(MemoryServer(Binding(memory))) as url:
        for name in ("tools-call-simple-text", "resources-subscribe"):
            suite("server", "--url", url, "--scenario", name, "--output-dir", str(tmp_path / "out"))
    assert set(verdicts(tmp_path / "out").values()) == {"FAILURE"}


def test_what_needs_the_suite_fails_in_ci_and_is_skipped_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodejs, "PACKAGES", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="tools/test installs it"):
        package_file(SUITE)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="tools/test installs it"):
        package_file(SUITE)
