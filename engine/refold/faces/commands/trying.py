"""The verb that shows refold at work on sessions that come with it: demo."""

import click

from refold.faces.commands.root import cli, json_option
from refold.faces.console import Console, print_json
from refold.faces.exits import EXIT_ERROR


@cli.command("demo")
@click.option("--db", metavar="PATH", help="Keep the store there; it must be new. REFOLD_DB is not read here.")
@json_option
@click.pass_context
def demo_command(context: click.Context, *, db: str | None, as_json: bool) -> None:
    """See it at work on recorded sessions.

    Imports them into a new store and travels through one: fork, diff, restore, a crash, a replay.
    """
    import tempfile
    from pathlib import Path

    from refold.faces.demo import demonstrate

    console = Console(quiet=as_json)
    if db is None:
        with tempfile.TemporaryDirectory(prefix="refold-demo-") as directory:
            facts = demonstrate(str(Path(directory) / "store"), console)
    else:
        facts = demonstrate(db, console)
    if as_json:
        print_json(facts)
    if not facts["ok"]:
        context.exit(EXIT_ERROR)
