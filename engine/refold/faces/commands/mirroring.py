"""The verb that keeps profile and journal in files: mirror."""

import signal
from typing import TYPE_CHECKING, Any

import click

from refold.faces.commands.root import cli, db_option, json_option
from refold.faces.console import Console, print_json, shortened, tell
from refold.faces.exits import EXIT_ERROR
from refold.faces.reproducible import reading, writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from refold import Memory, Mirror, MirrorEdit, MirrorReport

_WAIT_SECONDS = 3_600.0


@cli.command("mirror")
@click.argument("directory", type=click.Path())
@click.option("--watch", is_flag=True, help="Go on until interrupted.")
@click.option("--check", is_flag=True, help="Only say what would be done.")
@click.option("--profile", default="default", show_default=True, metavar="NAME")
@click.option("--journal", default="default", show_default=True, metavar="NAME")
@db_option
@json_option
def mirror_command(
    *, directory: str, watch: bool, check: bool, profile: str, journal: str, db: str, as_json: bool
) -> None:
    """Keep profile and notes in files, both ways.

    DIRECTORY holds profile.json and YYYYMM/YYYYMMDD.md. What was written into them by hand becomes events, and what the
    log has is written. Both sides of a conflict are kept, and the exit code is 1 then, as for a file that cannot be
    read or written.
    """
    if watch and check:
        message = "--watch goes on writing, and --check writes nothing; give one of them"
        raise click.UsageError(message)
    show = _shown_as(as_json=as_json)
    names: dict[str, Any] = {"profile": profile, "journal": journal}
    if check:
        report = _checked(db, directory, names)
    else:
        with writing(db) as memory:
            report = _watched(memory, directory, names, show) if watch else _once(memory, directory, names)
    if not watch:
        show(report)
    if not report.ok:
        click.get_current_context().exit(EXIT_ERROR)


def _checked(db: str, directory: str, names: dict[str, Any]) -> "MirrorReport":
    """Return what a round would do; nothing is written, not even a first time."""
    with reading(db) as memory, memory.mirror(directory, writes=False, **names) as mirror:
        return mirror.report


def _once(memory: "Memory", directory: str, names: dict[str, Any]) -> "MirrorReport":
    with memory.mirror(directory, **names) as mirror:
        return mirror.report


def _watched(
    memory: "Memory", directory: str, names: dict[str, Any], show: "Callable[[MirrorReport], None]"
) -> "MirrorReport":
    """Show each report until somebody interrupts; return the last one."""
    with memory.mirror(directory, on_report=show, **names) as mirror:
        tell(f"mirroring in {mirror.path}; ctrl-C ends it")
        _wait(mirror)
    return mirror.report


def _wait(mirror: "Mirror") -> None:
    """Wait for an interruption, or for the mirror to fail."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while mirror.is_alive:
            mirror.join(_WAIT_SECONDS)
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
    if mirror.error is not None:
        raise mirror.error


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _shown_as(*, as_json: bool) -> "Callable[[MirrorReport], None]":
    return print_json if as_json else _show


def _show(report: "MirrorReport") -> None:
    console = Console()
    for edit in report.edits:
        console.line((f"{edit.file}: ", "bold"), _edit_text(edit))
    for name in report.written:
        console.line((f"{name}: ", "bold"), "written")
    for conflict in report.conflicts:
        where = f"{conflict.file} {conflict.name}".rstrip()
        kept = f"; the hand's side is in {conflict.kept}" if conflict.kept else ""
        console.line((f"{where}: ", "bold"), (f"conflict: {conflict.reason}{kept}", "yellow"))
    for problem in report.problems:
        console.line((f"{problem.file or 'mirror'}: ", "bold"), (problem.reason, "red"))
    if not report:
        console.line(f"in step at seq {report.seq}")


def _edit_text(edit: "MirrorEdit") -> str:
    if edit.text is None:
        return f"{edit.name} deleted"
    what = "note" if edit.kind == "append" else f"{edit.name} ="
    return f"{what} {shortened(edit.text)}"
