"""The verbs that carry a whole store away and bring it back: backup and recover."""

from typing import TYPE_CHECKING

import click

from refold.faces.commands.root import cli, db_option, json_option, moment_option
from refold.faces.console import Console, print_json, progress_bar
from refold.faces.reproducible import reading, recovered

if TYPE_CHECKING:
    import datetime


@cli.command("backup")
@click.argument("path", type=click.Path())
@db_option
@json_option
def backup_command(*, path: str, db: str, as_json: bool) -> None:
    """Copy a store while others write.

    Writes a verified copy with a manifest to PATH, where nothing may be. The copy is a store: every verb takes it.
    """
    with reading(db) as memory, progress_bar("verifying the copy") as progress:
        backup = memory.backup(path, progress)
    if as_json:
        print_json(backup)
        return
    console = Console()
    console.line((path, "bold"), f"  {backup.head} events in {backup.streams} streams, {backup.data_bytes:,} bytes")
    console.line(f"state hash {backup.state_hash}")


@cli.command("recover")
@click.argument("backup", type=click.Path())
@click.argument("new", type=click.Path())
@moment_option("--to", help="Recover it as it was then, not whole.")
@json_option
def recover_command(*, backup: str, new: str, to: "int | datetime.datetime | None", as_json: bool) -> None:
    """Make a store of a backup or a store, as of now or then.

    Makes the store NEW, where nothing may be, of BACKUP; with --to, of what its log held at a seq, or at the last event
    by a time. A seq inside a commit is refused, and the ones before and after it are named. Whatever the log gives is
    made anew from it; what a faulty writer counted or linked wrongly is put in order, and it says what that was.
    """
    with progress_bar("verifying the new store") as progress:
        made = recovered(backup, new, to=to, progress=progress)
    if as_json:
        print_json(made)
        return
    console = Console()
    console.line((new, "bold"), f"  the log up to seq {made.seq}: {made.head} events in {made.streams} streams")
    console.line(f"state hash {made.state_hash}")
    for repair in made.repairs:
        console.line(f"repaired: {repair}")
