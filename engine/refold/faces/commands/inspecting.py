"""The verbs that look at a store as a whole: stats, verify, doctor."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from refold.errors import StoreCorrupt, StoreVersion
from refold.faces.commands.root import cli, db_option, json_option
from refold.faces.console import Console, print_json, progress_bar
from refold.faces.exits import EXIT_INTEGRITY
from refold.faces.reproducible import reading

if TYPE_CHECKING:
    from refold import Report

_STYLES = {"ok": "green", "warn": "yellow", "bad": "red"}


@cli.command("stats")
@db_option
@json_option
def stats_command(*, db: str, as_json: bool) -> None:
    """Count events, streams and bytes."""
    with reading(db) as memory:
        stats = memory.stats()
    if as_json:
        print_json(stats)
        return
    console = Console()
    for field in stats.__struct_fields__:
        value = getattr(stats, field)
        console.line(f"{field:<14}", (f"{value:,}" if isinstance(value, int) else str(value), "bold"))


@cli.command("verify")
@click.option(
    "--witness",
    envvar="REFOLD_WITNESS",
    show_envvar=True,
    metavar="PATH",
    help="Hold the store against this witness, which shows what was cut off or rolled back.",
)
@db_option
@json_option
@click.pass_context
def verify_command(context: click.Context, *, witness: str | None, db: str, as_json: bool) -> None:
    """Check that a store is sound.

    Checks its chain, gaps, commitments and indexes, checkpoints against their events, and replay against live. Says
    whether it is a cache that is wrong, what a faulty writer left, or bytes that were changed, and what to do next.
    Exits with 3 if anything is not as it should be.
    """
    report = _report(db, witness)
    if as_json:
        print_json(report)
    else:
        console = Console()
        for finding in report.findings:
            console.line((f"{finding.check} at seq {finding.seq}: {finding.message} ({finding.fault})", "red"))
        sound = f"sound, state hash {report.state_hash}" if report.ok else f"{len(report.findings)} findings"
        place = f", the first bad seq is {report.first_bad_seq}" if report.first_bad_seq else ""
        console.line(f"{report.events} events in {report.streams} streams: ", (sound + place, "bold"))
        if not report.ok:
            console.line(report.summary)
    if not report.ok:
        context.exit(EXIT_INTEGRITY)


def _report(db: str, witness: str | None) -> "Report":
    """Return what verification finds, of a store that cannot be opened, too: it is what its error says to run."""
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar("verifying"))
        try:
            memory = stack.enter_context(reading(db))
        except (StoreCorrupt, StoreVersion) as error:
            from refold.engine.unopened import report_of

            return report_of(db, error, progress)
        return memory.verify(progress, witness=witness)


@cli.command("doctor")
@db_option
@json_option
@click.pass_context
def doctor_command(context: click.Context, *, db: str, as_json: bool) -> None:
    """Say what ails a store, and what to do.

    Looks at its place, its files, its readers and writers, and changes nothing; `refold verify` looks into the events.
    Exits with 1 if something is bad, and with 3 if that is damage.
    """
    from refold.faces.doctor import examine

    examination = examine(db)
    if as_json:
        print_json(examination)
    else:
        console = Console()
        for check in examination.checks:
            console.line((f"{check.state:<5}", _STYLES[check.state]), f" {check.name:<12} {check.message}")
            if check.next_step:
                console.line(f"{'':<18} {check.next_step}")
    if examination.exit_code:
        context.exit(examination.exit_code)
