"""The verbs that travel through time: replay, diff, snapshot, fork, restore."""

from typing import TYPE_CHECKING, Any

import click

from refold.errors import NotFound
from refold.faces.commands.root import (
    cli,
    db_option,
    json_option,
    known_conversation,
    moment_of,
    moment_option,
    seq_of,
)
from refold.faces.console import Console, print_json, token_bar
from refold.faces.reproducible import reading, writing

if TYPE_CHECKING:
    import datetime

    from refold import Memory, Step


@cli.command("replay")
@click.argument("conversation")
@moment_option("--from", "first", default=1, help="The first seq to show.  [default: 1]")
@moment_option("--to", "last", help="The last seq to show.  [default: the head]")
@db_option
@json_option
def replay_command(
    *,
    conversation: str,
    first: "int | datetime.datetime",
    last: "int | datetime.datetime | None",
    db: str,
    as_json: bool,
) -> None:
    """Step through a conversation.

    Shows each event of CONVERSATION, what it changed, and what left the window. With --json, one JSON object a line.
    """
    from refold.faces.rendering import step_json

    console = Console()
    with reading(db) as memory:
        chat = known_conversation(memory, conversation)
        after = max(first - 1, 0) if isinstance(first, int) else seq_of(memory, first)
        for step in chat.replay(after=after, until=seq_of(memory, last)):
            if as_json:
                print_json(step_json(memory, step))
            else:
                show_step(console, memory, step)


def show_step(console: Console, memory: "Memory", step: "Step") -> None:
    """Print a step of a replay."""
    from refold import Recorded
    from refold.faces.rendering import changes_text, event_text, message_text
    from refold.recorders.log import kind_of

    recorded = Recorded(step.event, step.stamp)
    bar = token_bar(step.after.token_count(), step.after.window_tokens)
    happened = event_text(memory, recorded)
    kind = kind_of(recorded)
    console.line((f"{step.stamp.seq:>8}", "cyan"), f"  {bar}  ", (kind, "bold"), f"  {happened}")
    for message in step.evicted:
        console.line((f"{'evicted':>18} {message.seq}  {message_text(message)}", "yellow"))
    for change, text in changes_text(step.changes):
        # What a message adds is said above, and so is what it pushes out.
        if change.view != "window" or change.path[0] not in {"messages", "tokens"}:
            console.line((f"{'':>10}{text}", "green"))


@cli.command("diff")
@click.argument("a")
@click.argument("b")
@db_option
@json_option
def diff_command(*, a: str, b: str, db: str, as_json: bool) -> None:
    """Compare two states.

    A and B are each a seq, a time with its zone, or a conversation. Between a seq and a conversation, it is the
    conversation that is compared.
    """
    from refold.faces.rendering import change_json, changes_text

    with reading(db) as memory:
        changes = memory.diff(_side(memory, a), _side(memory, b))
    if as_json:
        print_json({"a": a, "b": b, "changes": [change_json(change) for change in changes]})
        return
    console = Console()
    stream = ""
    for change, text in changes_text(changes):
        if change.stream != stream:
            stream = change.stream
            console.line((stream, "bold"))
        console.line((f"  {text}", {"+": "green", "-": "red"}.get(text[0], "")))


def _side(memory: "Memory", side: str) -> Any:
    """Return what one side means: a seq, a conversation that exists, or a time, in this order."""
    moment = moment_of(side)
    if isinstance(moment, int):
        return moment
    chat = memory.conversation(side.removeprefix("conversation/"))
    if chat.version:
        return chat
    if moment is None:
        message = f"{side!r} is no seq, no time, and no conversation here; `refold list` shows the conversations"
        raise NotFound(message)
    return moment


@cli.command("snapshot")
@click.argument("conversation")
@click.argument("name")
@db_option
@json_option
def snapshot_command(*, conversation: str, name: str, db: str, as_json: bool) -> None:
    """Give a conversation's state a name.

    Keeps the present state of CONVERSATION under NAME, for `refold restore`.
    """
    with writing(db) as memory:
        snapshot = known_conversation(memory, conversation).snapshot(name)
    if as_json:
        print_json({"conversation": conversation, "name": name, "seq": snapshot.seq})
    else:
        Console().line(f"snapshot {name} of {conversation} at seq {snapshot.seq}")


@cli.command("fork")
@click.argument("conversation")
@click.argument("new")
@moment_option("--at", help="Fork the state of then, not of now.")
@db_option
@json_option
def fork_command(*, conversation: str, new: str, at: "int | datetime.datetime | None", db: str, as_json: bool) -> None:
    """Branch off a conversation.

    Begins the conversation NEW from the state of CONVERSATION, now or at a seq; nothing is copied.
    """
    with writing(db) as memory:
        seq = seq_of(memory, at)
        fork = known_conversation(memory, conversation).fork(new, at=seq)
        _report(memory, new, as_json=as_json, text=f"{new} begins as {conversation} was at seq {seq}: {fork!r}")


@cli.command("restore")
@click.argument("conversation")
@click.argument("name")
@db_option
@json_option
def restore_command(*, conversation: str, name: str, db: str, as_json: bool) -> None:
    """Go back to a snapshot.

    CONVERSATION goes on from its snapshot NAME; what happened since stays in the log.
    """
    with writing(db) as memory:
        chat = known_conversation(memory, conversation)
        chat.restore(name)
        _report(memory, conversation, as_json=as_json, text=f"{conversation} goes on from {name}: {chat!r}")


def _report(memory: "Memory", conversation: str, *, as_json: bool, text: str) -> None:
    from refold.faces.rendering import conversation_json

    if as_json:
        print_json(conversation_json(memory.conversation(conversation), memory.head))
    else:
        Console().line(text)
