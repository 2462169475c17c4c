"""The verb for the web pages: web."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from refold.cli.root import cli, db_option, embedder_option, name_damage, open_for_reading, open_memory

if TYPE_CHECKING:
    from refold.embedders import Embedder

_PORT_MAX = 65_535
_PORT_DEFAULT = 8_717


@cli.command("web")
@click.option(
    "--port",
    type=click.IntRange(0, _PORT_MAX),
    default=_PORT_DEFAULT,
    metavar="PORT",
    help="The port to listen on; 0 picks a free one.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="HOST",
    help="The address to listen on; one that other machines can reach needs --token.",
)
@click.option(
    "--token",
    envvar="REFOLD_WEB_TOKEN",
    show_envvar=True,
    metavar="TOKEN",
    help="Require this token of at least 16 characters; better set in the environment than given here.",
)
@click.option("--write", "writes", is_flag=True, help="Let the pages and the REST API change the memory.")
@click.option(
    "--skills",
    "directory",
    type=click.Path(exists=True, file_okay=False),
    help="Also show the skill files of this project directory and of the user.",
)
@click.option(
    "--reports",
    type=click.Path(exists=True, file_okay=False),
    help="Show the reports of `refold bench --json` in this directory.",
)
@embedder_option
@db_option
def web_command(
    *,
    port: int,
    host: str,
    token: str | None,
    writes: bool,
    directory: str | None,
    reports: str | None,
    embedder: "Embedder | None",
    db: str,
) -> None:
    """Serve web pages and a REST API to inspect a store.

    Listens on this machine only unless --host is given, and changes nothing unless --write is given, which also creates
    the store if it does not exist. The pages show sessions through time, searches with the signals of their scores,
    memories, skills, boards, and the store itself. The REST API is under /api/.
    """
    from refold.cli.doctor import examine
    from refold.skills import SkillRoots
    from refold.web import app_of, check_installed, serve

    check_installed()
    roots = SkillRoots() if directory is None else SkillRoots(project=directory, home=str(Path.home()))
    with ExitStack() as stack:
        if writes:
            with name_damage(db):
                memory = stack.enter_context(open_memory(db, embedder=embedder))
        else:
            advice = f"`refold web --write --db {db}` creates one"
            memory = stack.enter_context(open_for_reading(db, advice=advice, embedder=embedder))
        app = app_of(
            memory,
            writes=writes,
            roots=roots,
            examine=lambda: examine(db),
            reports=reports,
            access_token=token,
        )
        serve(app, port, host)
