"""The verbs that show what a memory holds: list, show, log."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from refold.faces.commands.root import cli, db_option, json_option, known_conversation, moment_option, seq_of
from refold.faces.console import Console, print_json, shortened, token_bar
from refold.faces.reproducible import reading

if TYPE_CHECKING:
    import datetime

    from refold import Conversation, Memory, Recorded


@cli.command("list")
@db_option
@json_option
def list_command(*, db: str, as_json: bool) -> None:
    """List what there is.

    Shows the conversations with their counts, the projects, the named snapshots, and the forks of the memory.
    """
    with reading(db) as memory:
        conversations = [_summary(memory.conversation(name)) for name in memory.conversations()]
        snapshots = [
            {"name": snapshot.name, "conversation": snapshot.stream.partition("/")[2] or None, "seq": snapshot.seq}
            for snapshot in memory.snapshots()
        ]
        projects = memory.projects()
        forks = memory.forks()
        contents = {"conversations": conversations, "projects": projects, "snapshots": snapshots, "forks": forks}
    if as_json:
        print_json(contents)
        return
    console = Console()
    for row in conversations:
        bar = token_bar(row["tokens"], row["window_tokens"])
        console.line((f"{row['conversation']}", "bold"), f"  {bar} tokens  {row['messages']} messages in the window")
    for project in projects:
        console.line(f"project {project}")
    for row in snapshots:
        console.line(f"snapshot {row['name']} of {row['conversation'] or 'the memory'} at seq {row['seq']}")
    for fork in forks:
        console.line(f"fork of the memory {fork}")


def _summary(chat: "Conversation") -> dict[str, Any]:
    return {
        "conversation": chat.id,
        "project": chat.project,
        "messages": len(chat.window()),
        "tokens": chat.token_count(),
        "window_tokens": chat.window_tokens,
        "version": chat.version,
    }


@cli.command("show")
@click.argument("conversation", required=False)
@moment_option("--at", help="Show it as it was then, not as it is.")
@click.option("--context", type=click.IntRange(min=1), metavar="SEQ", help="Build again what a model was shown there.")
@db_option
@json_option
def show_command(
    *, conversation: str | None, at: "int | datetime.datetime | None", context: int | None, db: str, as_json: bool
) -> None:
    """Show a conversation, now or then, or what a model was shown of one.

    Shows the window, the scratchpad and the state of CONVERSATION. With --context, the context that was recorded at a
    seq is built again from the log and held against its digests; the exit code is 1 where it is not what it was.
    """
    from refold.faces.rendering import conversation_json

    if (conversation is None) == (context is None):
        message = "give a CONVERSATION, or --context and the seq at which a context was shown"
        raise click.UsageError(message)
    with reading(db) as memory:
        if context is not None:
            _show_context(memory, context, as_json=as_json)
        if conversation is None:
            return
        known_conversation(memory, conversation)
        seq = seq_of(memory, at)
        chat = memory.at(seq).conversation(conversation)
        if as_json:
            print_json(conversation_json(chat, seq))
        else:
            show(Console(), chat, seq)


def _show_context(memory: "Memory", seq: int, *, as_json: bool) -> None:
    """Print a context that was shown, built again, and whether it is what it was."""
    rebuilt = memory.rebuild(seq)
    parts = rebuilt.context.parts
    if as_json:
        rows = [{"name": part.name, "tokens": part.tokens, "sha256": part.digest, "text": part.text} for part in parts]
        messages = rebuilt.context.messages("anthropic")
        print_json({"matches": rebuilt.matches, "differing": rebuilt.differing, "parts": rows, "messages": messages})
    else:
        console = Console()
        for part in parts:
            mark = "differs" if part.name in rebuilt.differing else "as shown"
            console.line((f"{part.name}", "bold"), f"  {part.tier}  {part.tokens} tokens  {mark}")
            console.line(part.text)
        console.line(f"window  {len(rebuilt.context.window)} messages")
        console.line("as it was shown" if rebuilt.matches else f"differs in {', '.join(rebuilt.differing)}")
    if not rebuilt.matches:
        sys.exit(1)


def show(console: Console, chat: "Conversation", seq: int) -> None:
    """Print a conversation as it is at a seq."""
    from refold.faces.rendering import message_text, value_text

    project = "" if chat.project is None else f"  project {chat.project}"
    console.line((chat.id, "bold"), f"  at seq {seq}{project}")
    console.line(f"window {token_bar(chat.token_count(), chat.window_tokens)} tokens")
    for message in chat.window():
        pin = "  pinned" if message.pinned else ""
        console.line((f"{message.seq:>8}", "cyan"), f"  {message_text(message)}", (f"  {message.tokens}{pin}", "dim"))
    scratchpad = chat.scratchpad()
    for key, value in scratchpad.entries.items():
        console.line(f"scratchpad {shortened(key)} = {value_text(value)}")
    for note in scratchpad.notes:
        console.line(f"note {shortened(note)}")
    for key, value in chat.state.items():
        console.line(f"state {shortened(key)} = {value_text(value)}")


@cli.command("log")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N of the events that match.")
@moment_option("--after", default=0, help="Only events after this one.")
@moment_option("--until", help="Only events up to this one; with --follow, a seq at which to end.")
@click.option("--stream", metavar="NAME", help="Only this stream, such as conversation/chat-42.")
@click.option("--kind", metavar="NAME", help="Only events of this kind, such as message_appended.")
@click.option("--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C or --until.")
@db_option
@json_option
def log_command(
    *,
    tail: int | None,
    after: "int | datetime.datetime",
    until: "int | datetime.datetime | None",
    stream: str | None,
    kind: str | None,
    follow: bool,
    db: str,
    as_json: bool,
) -> None:
    """List the events of the log.

    The oldest comes first. With --json, one JSON object a line.
    """
    end = until if isinstance(until, int) else None
    if follow and end != until:
        message = "--follow ends at a seq, not at a time; give --until a seq, or leave it out"
        raise click.UsageError(message)
    with reading(db) as memory:
        # A seq that is yet to come is a place to end at for those who wait for it.
        last = memory.head if follow and (end is None or end > memory.head) else seq_of(memory, until)
        first = seq_of(memory, after)
        if tail is not None and stream is None and kind is None and not memory.forks():
            # Without a filter the last N are where the seqs say; with one, or with forks, all have to be looked at.
            first = max(first, last - tail)
        matching = _matching(memory, first, last, stream, kind)
        _print_events(memory, matching if tail is None else deque(matching, maxlen=tail), as_json=as_json)
        if follow:
            live = _followed(memory, last, end)
            _print_events(memory, (found for found in live if _is_wanted(found, stream, kind)), as_json=as_json)


def _matching(memory: "Memory", after: int, until: int, stream: str | None, kind: str | None) -> "Iterator[Recorded]":
    from refold.recorders.log import stream_events

    found = (
        memory.events(after=after, until=until)
        if stream is None
        else stream_events(memory, stream, after=after, until=until)
    )
    return (recorded for recorded in found if _is_wanted(recorded, stream, kind))


def _is_wanted(recorded: "Recorded", stream: str | None, kind: str | None) -> bool:
    from refold.recorders.log import kind_of

    return stream in (None, recorded.stamp.stream) and kind in (None, kind_of(recorded))


def _followed(memory: "Memory", after: int, until: int | None) -> "Iterator[Recorded]":
    """Return the events behind a seq as they are written, to the end of time or up to another one.

    It reads on this thread, so that Ctrl-C and a reader that leaves end it like any other command.
    """
    import time

    from refold.limits import POLL_MS

    while until is None or after < until:
        head = memory.head if until is None else min(until, memory.head)
        yield from memory.events(after=after, until=head)
        after = head
        sys.stdout.flush()
        time.sleep(POLL_MS / 1_000)


def _print_events(memory: "Memory", found: "Iterable[Recorded]", *, as_json: bool) -> None:
    from refold.faces.rendering import event_text, time_text
    from refold.recorders.log import described, kind_of

    console = Console()
    for recorded in found:
        if as_json:
            print_json(described(memory, recorded))
            continue
        stamp = recorded.stamp
        console.line(
            (f"{stamp.seq:>8}", "cyan"),
            (f"  {time_text(stamp.time_ns)}", "dim"),
            f"  {shortened(stamp.stream)}  ",
            (kind_of(recorded), "bold"),
            f"  {event_text(memory, recorded)}",
        )
