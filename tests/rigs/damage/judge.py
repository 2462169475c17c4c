"""What came of a damaged store: opened, asked everything, verified, written to."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from refold import Memory, RefoldError, Report
from tests.rigs.damage.fill import graphs_of_few
from tests.rigs.damage.questions import Refused, answers
from tests.support.bounds import seeded_bytes
from tests.support.memories import Clock

SECONDS_MAX: Final = 10
"""A store whose look takes more of the processor's time has caught its reader in a loop."""

WAIT_SECONDS_MAX: Final = 120
"""And one that takes longer by the clock has it wait for ever; much more, for machines that do other things too."""

HARMLESS: Final = "harmless"
"""Every answer is right, and verify finds nothing."""

FOUND: Final = "found"
"""Every answer is right, and verify finds something."""

REPORTED: Final = "reported"
"""Some answers are wrong, and verify finds something."""

REFUSED: Final = "refused"
"""Some answers are typed errors, and no other one is wrong."""

CLOSED: Final = "not opened"
"""Opening is a typed error."""

ALLOWED: Final = (HARMLESS, FOUND, REFUSED, REPORTED, CLOSED)

SILENT: Final = "SILENT"
"""An answer is wrong, and verify finds nothing."""

UNTYPED: Final = "UNTYPED"
"""An error that is none of refold's."""

HUNG: Final = "HUNG"
DIED: Final = "DIED"


def judge(path: Path, expected: Mapping[str, Any], head: int, note: Callable[[str], None]) -> tuple[str, str]:
    """Return what came of a store, and a word on it; ``note`` is told which stage begins."""
    note("opening")
    try:
        memory = Memory(path, clock_ns=Clock(), random_bytes=seeded_bytes(head))
    except RefoldError as error:
        return CLOSED, type(error).__name__
    try:
        with graphs_of_few():
            return _judge(memory, path, expected, head, note)
    finally:
        note("closing")
        with suppress(RefoldError):
            memory.close()


def _judge(
    memory: Memory, path: Path, expected: Mapping[str, Any], head: int, note: Callable[[str], None]
) -> tuple[str, str]:
    note("asking")
    given = answers(memory, head, path.parent)
    wrong = [name for name, answer in given.items() if answer != expected[name]]
    refused = [name for name in wrong if isinstance(given[name], Refused)]
    note("verifying")
    try:
        report = memory.verify()
    except RefoldError as error:
        report = Report(ok=False, findings=(), events=0, streams=0, state_hash=type(error).__name__)
    said = f"{len(refused)} refused, {len(wrong) - len(refused)} wrong ({', '.join(wrong[:3])})"
    if len(wrong) > len(refused):
        told = ", ".join(sorted({finding.check for finding in report.findings})) or report.state_hash
        return (SILENT if report.ok else REPORTED), f"{said}; {told}"
    note("writing")
    _write(memory, sound=report.ok and not wrong)
    if wrong:
        return REFUSED, said
    return (HARMLESS, "") if report.ok else (FOUND, report.findings[0].check if report.findings else report.state_hash)


def _write(memory: Memory, *, sound: bool) -> None:
    """Append to the store; one that is sound has to take it, and stay sound."""
    chat = memory.conversation("tools")
    try:
        text = f"written at {time.monotonic_ns()}"
        chat.append("user", text, tokens=1)
        last = chat.window()[-1].content
    except RefoldError:
        if sound:
            raise AssertionError("a sound store takes no event") from None
        return
    if sound:
        assert last == text, "what was appended is not in the window"
        findings = memory.verify().findings
        assert not findings, findings
