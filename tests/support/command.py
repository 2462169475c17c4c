"""Running the command line in this process: what a command printed, and how it ended."""

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from refold.cli import main


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
