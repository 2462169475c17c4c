"""Verbs on recorded sessions: list, show, log, replay, diff, snapshot, fork, restore, import, export."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from refold.cli.output import (
    Console,
    change_json,
    changes_text,
    conversation_json,
    event_text,
    message_text,
    print_json,
    progress_bar,
    shortened,
    step_json,
    tell,
    time_text,
    token_bar,
    value_text,
)
from refold.cli.root import (
    cli,
    db_option,
    embedder_option,
    json_option,
    known_conversation,
    moment_of,
    moment_option,
    opened,
    reading,
    seq_of,
    writing,
)
from refold.errors import NotFound

if TYPE_CHECKING:
    import datetime

    from refold import Conversation, Memory, Recorded, Step
    from refold.embedders import Embedder
    from refold.importers import Imported, ImportedMemories


# The verbs that show what a memory holds: list, show, log.


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
    if (conversation is None) == (context is None):
        raise click.UsageError("give a CONVERSATION, or --context and the seq at which a context was shown")
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
    project = "" if chat.project is None else f"  project {chat.project}"
    console.line((chat.id, "bold"), f"  at seq {seq}{project}")
    console.line(f"window {token_bar(chat.token_count(), chat.window_tokens)} tokens")
    for message in chat.window():
        pin = "  pinned" if message.pinned else ""
        console.line((f"{message.seq:>8}", "cyan"), f"  {message_text(message)}", (f"  {message.tokens}{pin}", "dim"))
    for key, value in chat.scratchpad.items():
        console.line(f"scratchpad {shortened(key)} = {value_text(value)}")
    for note in chat.scratchpad.notes():
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
        raise click.UsageError("--follow ends at a seq, not at a time; give --until a seq, or leave it out")
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
    from refold.importers.values import stream_events

    found = (
        memory.events(after=after, until=until)
        if stream is None
        else stream_events(memory, stream, after=after, until=until)
    )
    return (recorded for recorded in found if _is_wanted(recorded, stream, kind))


def _is_wanted(recorded: "Recorded", stream: str | None, kind: str | None) -> bool:
    from refold.importers.values import event_name

    return stream in (None, recorded.stamp.stream) and kind in (None, event_name(recorded))


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
    from refold.importers.values import event_json, event_name

    console = Console()
    for recorded in found:
        if as_json:
            print_json(event_json(memory, recorded))
            continue
        stamp = recorded.stamp
        console.line(
            (f"{stamp.seq:>8}", "cyan"),
            (f"  {time_text(stamp.time_ns)}", "dim"),
            f"  {shortened(stamp.stream)}  ",
            (event_name(recorded), "bold"),
            f"  {event_text(memory, recorded)}",
        )


# The verbs that travel through time: replay, diff, snapshot, fork, restore.


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
    from refold.importers.values import event_name

    recorded = Recorded(step.event, step.stamp)
    bar = token_bar(step.after.token_count(), step.after.window_tokens)
    happened = event_text(memory, recorded)
    kind = event_name(recorded)
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
        raise NotFound(f"{side!r} is no seq, no time, and no conversation here; `refold list` shows the conversations")
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
    if as_json:
        print_json(conversation_json(memory.conversation(conversation), memory.head))
    else:
        Console().line(text)


_FORMATS = ("swe-agent", "locomo", "beam", "openai", "refold")
"""Written out, so that the help does not load the recorders; a test compares."""

_MEMORY_FORMATS = ("locomo", "mem0", "memories")
"""The same for ``--facts``."""

_IMPORT_FORMATS = tuple(dict.fromkeys((*_FORMATS, *_MEMORY_FORMATS)))
_EXPORT_FORMATS = ("openai", "refold")


@cli.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format", "format_name", type=click.Choice(_IMPORT_FORMATS), help="The files' format, if not to be told."
)
@click.option("--window-tokens", type=int, metavar="N", help="The token budget of conversations that begin here.")
@click.option("--facts", is_flag=True, help="The files hold memories, not sessions.")
@click.option("--project", metavar="NAME", help="With --facts: where they go, instead of what the files say.")
@embedder_option
@db_option
@json_option
def import_command(
    *,
    files: tuple[Path, ...],
    format_name: str | None,
    window_tokens: int | None,
    facts: bool,
    project: str | None,
    embedder: "Embedder | None",
    db: str,
    as_json: bool,
) -> None:
    """Import recorded sessions, or memories.

    The format of each of FILES is told from its content. A store that does not exist is created; importing a file
    again changes nothing. With --facts, the files hold memories: LoCoMo's observations, which bring the sessions along
    that they cite, JSON or JSON Lines of memories, or mem0's history.db.
    """
    known = _MEMORY_FORMATS if facts else _FORMATS
    if format_name is not None and format_name not in known:
        message = f"the format {format_name} is for {'sessions' if facts else 'memories, with --facts'}; give one of"
        raise click.UsageError(f"{message} {', '.join(known)}")
    if project is not None and not facts:
        raise click.UsageError("--project says where memories go; give it with --facts")
    from refold.importers import format_of, memory_format_of

    told = memory_format_of if facts else format_of
    formats = [told(file) if format_name is None else format_name for file in files]
    options: dict[str, Any] = {"embedder": embedder}
    if window_tokens is not None:
        options["window_tokens"] = window_tokens
    imported: list[Imported | ImportedMemories] = []
    with opened(db, **options) as memory:
        for file, name in zip(files, formats, strict=True):
            imported.append(_import(memory, file, name, project, is_facts=facts))
            if not as_json:
                Console().line(_imported_text(imported[-1]))
    if as_json:
        print_json({"files": imported})


def _import(
    memory: "Memory", file: Path, name: str, project: str | None, *, is_facts: bool
) -> "Imported | ImportedMemories":
    from refold.importers import import_file, import_memories

    with progress_bar(file.name) as progress:
        if is_facts:
            return import_memories(memory, file, format=name, project=project, progress=progress)
        return import_file(memory, file, format=name, progress=progress)


def _imported_text(imported: "Imported | ImportedMemories") -> str:
    file = f"{imported.file} ({imported.format})"
    if imported.repeated:
        return f"{file}: already imported, nothing changed"
    what = "memories" if hasattr(imported, "memories") else "messages"
    known = f", {imported.known} {what} were there before" if imported.known else ""
    counts = [f"{count} {name}" for name, count in _counts(imported)]
    return f"{file}: {', '.join(counts)}{known}"


def _counts(imported: "Imported | ImportedMemories") -> "Iterator[tuple[str, int]]":
    for name in ("projects", "memories", "conversations", "messages", "events"):
        count = getattr(imported, name, None)
        if count is not None:
            yield name, count if isinstance(count, int) else len(count)


@cli.command("export")
@click.argument("file", default="-", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--format", "format_name", type=click.Choice(_EXPORT_FORMATS), default="refold", show_default=True)
@db_option
@json_option
def export_command(*, file: Path, format_name: str, db: str, as_json: bool) -> None:
    """Export the log, or its messages.

    Writes the whole log (refold) or every conversation's messages (openai) to FILE, or to stdout. What
    goes to stdout is JSON Lines in either format; the counts then go to stderr.
    """
    with reading(db) as memory:
        if str(file) == "-":
            written = _write(memory, sys.stdout.buffer, format_name)
        else:
            written = _write_file(memory, file, format_name)
    counts = {"file": str(file), "format": format_name, **written}
    if str(file) == "-":
        tell(_exported_text(written))
    elif as_json:
        print_json(counts)
    else:
        Console().line(f"{file} ({format_name}): {_exported_text(written)}")


def _exported_text(written: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in written.items())


def _write(memory: "Memory", file: IO[bytes], format_name: str) -> dict[str, int]:
    from refold.importers import export_openai
    from refold.importers.values import export_lines

    if format_name == "openai":
        written = {"conversations": export_openai(memory, file)}
    else:
        file.writelines(export_lines(memory))
        written = {"events": memory.head}
    file.flush()
    return written


def _write_file(memory: "Memory", path: Path, format_name: str) -> dict[str, int]:
    """Write a file that appears whole or not at all."""
    if format_name == "refold":
        return {"events": memory.export(path)}
    import tempfile

    if not path.parent.is_dir():
        raise NotFound(f"the directory {path.parent} of the export does not exist; create it first")
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=".refold-export-", delete=False) as file:
        partial = Path(file.name)
        try:
            written = _write(memory, file, format_name)
            partial.replace(path)
        except BaseException:
            partial.unlink()
            raise
    return written
