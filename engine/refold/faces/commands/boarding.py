"""The verb that shows a board: board."""

from typing import TYPE_CHECKING, Any

import click

from refold.errors import NotFound
from refold.faces.commands.root import cli, db_option, json_option, moment_option, seq_of
from refold.faces.console import Console, print_json, shortened
from refold.faces.reproducible import reading

if TYPE_CHECKING:
    import datetime


@cli.command("board")
@click.argument("session", required=False)
@click.option("--project", metavar="NAME", help="The project of a node; beside SESSION, of the node beneath it.")
@click.option("--node", metavar="ID", help="The node of that project.")
@moment_option("--at", help="Show it as it was then, not as it is.")
@db_option
@json_option
def board_command(
    *,
    session: str | None,
    project: str | None,
    node: str | None,
    at: "int | datetime.datetime | None",
    db: str,
    as_json: bool,
) -> None:
    """Show the board of a session, or of a node of a project, now or then.

    Shows what SESSION has on its board, and what it reads from the board of the node that it works on. With --json,
    the sections of the board and what is known of its messages.
    """
    with reading(db) as memory:
        seq = seq_of(memory, at)
        board = memory.at(seq).board(session=session, project=project, node=node)
        shown, meta = board.to_dict(), board.get("messages_meta")
    if not shown["session"]["timestamp"]:
        named = [f"session {session}"] * bool(session) + [f"node {node} of {project}"] * bool(project and node)
        message = f"nothing is on the board of {' or '.join(named)} at seq {seq}; `refold log` shows what was set"
        raise NotFound(message)
    if as_json:
        print_json({"seq": seq, "board": shown, "messages_meta": meta})
    else:
        _show(Console(), shown, meta, seq)


def _show(console: Console, shown: dict[str, Any], meta: dict[str, Any], seq: int) -> None:
    """Print a board, a line for each thing on it."""
    from refold.faces.rendering import value_text

    ids = shown["session"]
    named = [
        f"{name.removesuffix('_id')} {shortened(value)}" for name, value in ids.items() if value and name != "timestamp"
    ]
    console.line(("  ".join(named), "bold"), f"  at seq {seq}  changed {shortened(ids['timestamp'])}")
    for name, graph in shown["project_structure"].items():
        console.line(f"{name}  {len(graph['nodes'])} nodes  {len(graph['edges'])} edges")
    for name in ("node_context", "fetched_context"):
        for key, value in shown[name].items():
            console.line(f"{name} {shortened(key)} = {value_text(value)}")
    console.line(f"working_history {value_text(shown['working_history'])}")
    console.line(f"messages  {len(shown['messages'])} of {meta['total_count']}")
    for message in shown["messages"]:
        said = f"{shortened(message['role'])}: {value_text(message['content'])}"
        console.line((f"{shortened(message['id']):>8}", "cyan"), f"  {said}")
    console.line("config  ", "  ".join(f"{name} {value}" for name, value in shown["config"].items()))
