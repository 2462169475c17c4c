"""Running the command line: what a command printed, here or in a process of its own, and how it ended."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from refold.cli import main

COMMAND = [sys.executable, "-c", "import sys; from refold.cli import main; sys.exit(main())"]


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ended]


def running(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """What runs the command in this process, without what the environment says of a store."""
    for variable in ("REFOLD_DB", "REFOLD_CLOCK_NS"):
        monkeypatch.delenv(variable, raising=False)

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["refold", *map(str, arguments)])
        code = main()
        return Ended(code, *capfd.readouterr())

    return run


def terminal_output(arguments: list[str], **variables: str) -> str:
    """What a command writes where stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "100", **variables}
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while block := os.read(ours, 65_536):
                shown += block
        except OSError:
            # Linux says so when the last writer of a terminal has gone.
            pass
        assert process.wait() == 0
    os.close(ours)
    return shown.decode()
