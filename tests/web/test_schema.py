"""REST under schema-driven fuzzing: a judge of others reads the OpenAPI document, and sends what fits it or not."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from refold import Memory
from refold.listener import listening_on
from refold.web import app_of
from refold.web.server import web_server
from tests.web.site import TOKEN, filled

JUDGE = (sys.executable, "-m", "schemathesis.cli")
SECONDS = 300

# What a request that fits the document may be answered with: 409 where a name or a key of a request is taken, 412 where
# another version was expected, 422 over a bound in bytes. A document cannot say what five operations ask for: one of
# two sets of parameters, a value of the type of the part that the path names, a content that goes with the role, a seq
# at which the session had begun. test_working_memory.py, test_pages.py and test_rest.py have those.
SETTINGS = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "412", "422", "503"]

[[operations]]
include-operation-id = ["get_working_memory", "get_blame", "patch_part", "append_message", "fork_session"]
checks.positive_data_acceptance.enabled = false
"""


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_a_judge_of_schemas_finds_nothing(tmp_path: Path) -> None:
    memory = Memory()
    (tmp_path / "schemathesis.toml").write_text(SETTINGS, encoding="utf-8")
    listening = listening_on(0)
    server = web_server(app_of(filled(memory), writes=True, token=TOKEN))
    thread = threading.Thread(target=asyncio.run, args=(server.serve([listening]),), daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/api/openapi.json"
        options = ["--max-examples=20", "--seed=1", "--generation-database=none", "--no-color", "--warnings=off"]
        # How many of the judge's own drafts fit a schema says nothing about the answers.
        options += ["--suppress-health-check=filter_too_much"]
        # Streams never end, and a verification takes as long as it takes.
        left_out = ["--exclude-path-regex=notices|verify"]
        ended = subprocess.run(
            [*JUDGE, "run", address, *options, *left_out],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
    assert ended.returncode == 0, ended.stdout
