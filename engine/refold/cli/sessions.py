"""Verbs for recorded sessions: list, show, log, replay, diff, snapshot, fork, restore, import, export."""

import datetime as dates
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from refold.cli import EXIT_ERROR, output
from refold.cli.output import Line
from refold.cli.root import (
    Moment,
    Output,
    cli,
    db_option,
    embedder_option,
    find_conversation,
    json_option,
    moment_of,
    moment_option,
    open_for_reading,
    open_memory,
    past_options,
    seq_of,
    suggest_name,
    verb,
)
from refold.errors import InvalidInput, NotFound, RefoldError, StoreBusy
from refold.text import pluralize

if TYPE_CHECKING:
    from refold import Conversation, Memory, Recorded, Step


@verb("list")
def list_(memory: "Memory") -> Output:
    """List conversations, projects, snapshots, forks and boards.

    Shows the tokens and messages in the window of each conversation. Forks are those of the whole memory.
    """
    contents: dict[str, Any] = {
        "conversations": [
            {
                "conversation": chat.id,
                "project": chat.project,
                "messages": len(chat.window()),
                "tokens": chat.token_count(),
                "window_tokens": chat.window_tokens,
                "version": chat.version,
            }
            for chat in map(memory.conversation, memory.conversations())
        ],
        "projects": memory.projects(),
        "snapshots": [
            {"name": snapshot.name, "conversation": snapshot.stream.partition("/")[2] or None, "seq": snapshot.seq}
            for snapshot in memory.snapshots()
        ],
        "forks": memory.forks(),
        "boards": [
            {"session": board.session, "project": board.project, "node": board.node} for board in memory.boards()
        ],
    }
    return Output(contents, _contents_lines(contents))


def _contents_lines(contents: dict[str, Any]) -> Iterator[Line]:
    for row in contents["conversations"]:
        bar = output.token_bar(row["tokens"], row["window_tokens"])
        yield (
            (f"{row['conversation']}", "bold"),
            f"  {bar} tokens  {pluralize(row['messages'], 'message')} in the window",
        )
    for project in contents["projects"]:
        yield (f"project {project}",)
    for row in contents["snapshots"]:
        yield (f"snapshot {row['name']} of {row['conversation'] or 'the memory'} at seq {row['seq']}",)
    for fork in contents["forks"]:
        yield (f"fork of the memory {fork}",)
    for row in contents["boards"]:
        node = f"the node {row['node']} of {row['project']}"
        yield (f"board of {node if row['session'] is None else row['session']}",)


@verb(
    "show",
    click.argument("conversation", required=False),
    past_options("Show the state as of this seq or time instead of now."),
    click.option("--full", is_flag=True, help="Show messages and values in full instead of on one line."),
    click.option("--seq", type=click.IntRange(min=1), metavar="SEQ", help="Show this message or event in full."),
    click.option(
        "--context",
        type=click.IntRange(min=1),
        metavar="SEQ",
        help="Rebuild the context at this seq, or the one that the model's answer at this seq was made from.",
    ),
)
def show(
    memory: "Memory", conversation: str | None, at: Moment, seq: int | None, context: int | None, *, full: bool
) -> Output:
    """Show a conversation, an event, or what a model was shown.

    Shows the window, scratchpad and state of CONVERSATION; with --seq, one message or event instead. With --context,
    rebuilds the context that was recorded at a seq, or given for the answer at a seq, from the log and compares it with
    its recorded hashes; exits with 1 if they differ.
    """
    selectors = {"CONVERSATION": conversation, "--seq": seq, "--context": context}
    names = [name for name, value in selectors.items() if value is not None]
    if len(names) != 1:
        excess = f"{' and '.join(names)} were given together; " if names else ""
        raise click.UsageError(
            f"{excess}give a CONVERSATION, --seq with the seq of an event, or --context with the seq of a context or "
            f"an answer"
        )
    if at is not None and conversation is None:
        raise click.UsageError(f"--at is for a CONVERSATION, and {names[0]} says which event to show; drop one of them")
    if seq is not None:
        return _event(memory, seq)
    if context is not None:
        return _context(memory, context, full=full)
    assert conversation is not None, "one of the three was given"
    known = find_conversation(memory, conversation)
    first, place = next(known.events()).stamp.seq, seq_of(memory, at)
    chat = memory.at(place).conversation(known.id)
    if not chat.version:
        raise NotFound(f"{known.id} began at seq {first}, after seq {place}; give --at a seq from there on")
    return Output(
        output.conversation_json(chat, place), _conversation_lines(chat, place, full=full, is_now=place == memory.head)
    )


def _event(memory: "Memory", seq: int) -> Output:
    from refold.importers.values import event_json

    recorded = next(memory.events(after=seq - 1, until=min(seq, memory.head)), None) if seq <= memory.head else None
    if recorded is None:
        raise NotFound(f"there is no event {seq} here; the last one is {memory.head}")
    lines = [_log_line(memory, recorded, ""), *output.event_lines(memory, recorded)]
    return Output(event_json(memory, recorded, full=True), lines)


def _context(memory: "Memory", seq: int, *, full: bool) -> Output:
    from refold.importers.values import message_json

    rebuilt = memory.rebuild(seq)
    parts = rebuilt.context.parts
    rows = [{"name": part.name, "tokens": part.tokens, "sha256": part.digest, "text": part.text} for part in parts]
    messages = [message_json(message) for message in rebuilt.context.window]
    compared = {"seq": rebuilt.seq, "matches": rebuilt.matches, "differing": rebuilt.differing}
    document = {**compared, "parts": rows, "messages": messages}
    lines: list[Line] = []
    for part in parts:
        mark = "differs" if part.name in rebuilt.differing else "as shown" if rebuilt.matches is not None else ""
        lines += [
            ((f"{part.name}", "bold"), f"  {part.tier}  {part.tokens} tokens  {mark}"),
            *output.indent_lines(part.text),
        ]
    lines.append((f"window  {pluralize(len(rebuilt.context.window), 'message')}",))
    lines += [line for each in rebuilt.context.window for line in output.message_lines(each, full=full)]
    if rebuilt.matches is None:
        verdict = "cannot be compared: its hashes were erased, along with content that it may have shown"
    else:
        verdict = "identical to what was shown" if rebuilt.matches else f"differs in {', '.join(rebuilt.differing)}"
    lines.append((f"context at seq {rebuilt.seq}: {verdict}",))
    return Output(document, lines, EXIT_ERROR if rebuilt.differing else 0)


def _conversation_lines(chat: "Conversation", seq: int, *, full: bool, is_now: bool) -> Iterator[Line]:
    from refold.agent.loop import unanswered_message

    project = "" if chat.project is None else f"  project {chat.project}"
    yield (chat.id, "bold"), f"  at seq {seq}{project}"
    yield (f"window {output.token_bar(chat.token_count(), chat.window_tokens)} tokens",)
    for message in chat.window():
        yield from output.message_lines(message, full=full)
    if is_now and (open_message := unanswered_message(chat)) is not None:
        hint = (
            f"message {open_message.seq} has no answer; continue with AgentLoop.resume() or the framework that wrote it"
        )
        yield ((hint, "yellow"),)
    for key, value in chat.scratchpad.items():
        yield from output.block(f"scratchpad {output.shorten(key)} = ", value, full=full)
    for note in chat.scratchpad.notes():
        yield from output.block("note ", note, full=full)
    for key, value in chat.state.items():
        yield from output.block(f"state {output.shorten(key)} = ", output.json_text(value), full=full)


@verb(
    "log",
    click.option("--tail", type=click.IntRange(min=0), metavar="N", help="List only the last N matching events."),
    moment_option("--after", default=0, is_begin=True, help="List only events after this seq, or from this time on."),
    moment_option("--until", help="List only events up to this seq or time; with --follow, stop at this seq."),
    click.option("--stream", metavar="NAME", help="List only events of this stream, such as conversation/chat-42."),
    click.option("--kind", metavar="NAME", help="List only events of this kind, such as message_appended."),
    click.option("--full", is_flag=True, help="Show each event in full instead of on one line."),
    click.option("--follow", is_flag=True, help="Keep listing new events until Ctrl-C or --until."),
)
def log(
    memory: "Memory",
    tail: int | None,
    after: Moment,
    until: Moment,
    stream: str | None,
    kind: str | None,
    *,
    full: bool,
    follow: bool,
) -> Iterator[Output]:
    """List the events of the log, oldest first.

    --json prints one object per line.
    """
    from refold.importers.values import KIND_NAMES, event_json, event_name, stream_events, stream_names

    def matches(recorded: "Recorded") -> bool:
        return stream in (None, recorded.stamp.stream) and kind in (None, event_name(recorded))

    count = 0

    def event_outputs(events: "Iterable[Recorded]") -> Iterator[Output]:
        nonlocal count
        for recorded in events:
            count += 1
            whole = output.event_lines(memory, recorded) if full else ()
            line = _log_line(memory, recorded, "" if full else None)
            yield Output(event_json(memory, recorded, full=full), [line, *whole])

    _refuse_unknown("kind", kind, KIND_NAMES)
    if not follow:  # The stream might not exist yet.
        _refuse_unknown("stream", stream, stream_names(memory))
    end = until if isinstance(until, int) else None
    if follow and end != until:
        raise click.UsageError("--follow ends at a seq, not at a time; give --until a seq, or leave it out")
    # With --follow, a future seq is a valid place to end.
    last = memory.head if follow and (end is None or end > memory.head) else seq_of(memory, until)
    first = seq_of(memory, after)
    if tail is not None and stream is None and kind is None and not memory.forks():
        # Without a filter, the seqs tell which events are the last N; with a filter or forks, all must be read.
        first = max(first, last - tail)
    if stream is None:
        events = memory.events(after=first, until=last)
    else:
        events = stream_events(memory, stream, after=first, until=last)
    matching = filter(matches, events)
    yield from event_outputs(matching if tail is None else deque(matching, maxlen=tail))
    if follow:
        yield from event_outputs(filter(matches, _follow_events(memory, last, end)))
    elif not count and _has_time(after, until):
        output.tell(f"no event was recorded in this time; {_TIMES}")
    elif (stream, kind, tail) == (None,) * 3 and (others := last - first - count) and (forks := memory.forks()):
        output.tell(f"{others} of the {last - first} events belong to forks ({', '.join(forks)}) and are not listed")


def _refuse_unknown(what: str, name: str | None, known: "Iterable[str]") -> None:
    if name is not None and name not in (names := list(known)):
        raise NotFound(
            f"there is no {what} {name!r} here{suggest_name(name, names)}; `refold log` shows the {what} of each event"
        )


def _log_line(memory: "Memory", recorded: "Recorded", text: str | None) -> Line:
    """Return the line of an event, with the given text or else as much of its own as fits."""
    from refold.importers.values import event_name

    stamp, name = recorded.stamp, event_name(recorded)
    seq, time, stream = f"{stamp.seq:>8}", f"  {output.time_text(stamp.time_ns)}", f"  {output.shorten(stamp.stream)}  "
    origin = output.origin_text(stamp)
    if text is None:
        used_chars = len(f"{seq}{time}{stream}{name}{origin}  ")
        text = f"  {output.event_text(memory, recorded, output.free_columns(used_chars))}"
    return (seq, "cyan"), (time, "dim"), stream, (name, "bold"), text, (origin, "dim")


def _follow_events(memory: "Memory", after: int, until: int | None) -> "Iterator[Recorded]":
    """Yield the events after a seq as they are written, forever or up to another seq.

    It reads on the calling thread, so that Ctrl-C or a closed pipe ends it like any other command.
    """
    import time

    from refold.limits import POLL_MS

    while until is None or after < until:
        head = memory.head if until is None else min(until, memory.head)
        yield from memory.events(after=after, until=head)
        after = head
        sys.stdout.flush()
        time.sleep(POLL_MS / 1_000)


# Verbs that travel through time.


@verb(
    "replay",
    click.argument("conversation"),
    moment_option("--from", "first", default=1, is_begin=True, help="Begin with this seq or time.  [default: 1]"),
    moment_option("--to", "last", help="End with this seq or time.  [default: the head]"),
    click.option("--full", is_flag=True, help="Show each event in full instead of on one line."),
)
def replay(memory: "Memory", conversation: str, first: Moment, last: Moment, *, full: bool) -> Iterator[Output]:
    """Step through a conversation, event by event.

    Shows each event of CONVERSATION, what it changed, and what left the window. --json prints one object per line.
    """
    chat = find_conversation(memory, conversation)
    after = max(first - 1, 0) if isinstance(first, int) else seq_of(memory, first)
    begin = end = count = 0
    for step in chat.replay(after=after, until=seq_of(memory, last)):
        begin, end, count = begin or step.stamp.seq, step.stamp.seq, count + 1
        yield Output(output.step_json(memory, step), _step_lines(memory, step, full=full))
    if not count and _has_time(first, last):
        output.tell(f"no event was recorded in this time; {_TIMES}")
    others = end - begin + 1 - count
    if count and others and not click.get_current_context().params["as_json"]:
        output.tell(f"not shown: {pluralize(others, 'event')} of other streams or forks in between; see `refold log`")


def _step_lines(memory: "Memory", step: "Step", *, full: bool) -> Iterator[Line]:
    from refold import Recorded
    from refold.importers.values import event_name

    recorded = Recorded(step.event, step.stamp)
    bar = output.token_bar(step.tokens, step.window_tokens)
    name, origin = event_name(recorded), output.origin_text(step.stamp)
    used_chars = 14 + len(bar) + len(name) + len(origin)
    text = "" if full else f"  {output.event_text(memory, recorded, output.free_columns(used_chars))}"
    yield (f"{step.stamp.seq:>8}", "cyan"), f"  {bar}  ", (name, "bold"), text, (origin, "dim")
    if full:
        yield from output.event_lines(memory, recorded)
    for message in step.evicted:
        head = f"{'evicted':>18} {message.seq}  "
        yield ((f"{head}{output.message_text(message, output.free_columns(len(head)))}", "yellow"),)
    for change, text in output.changes_text(step.changes):
        # The lines above already show the added message and those that it evicted.
        if change.view != "window" or change.path[0] not in {"messages", "tokens"}:
            yield ((f"{'':>10}{text}", "green"),)


@verb("diff", click.argument("a"), click.argument("b"))
def diff(memory: "Memory", a: str, b: str) -> Output:
    """Compare two states of a memory or a conversation.

    A and B are each a seq, a time with its zone, or a conversation. If only one of them is a conversation, its present
    state is compared with its state at the other. For a number that is also the name of a conversation, give
    conversation/101 or seq/101.
    """
    sides = [_side(memory, side) for side in (a, b)]
    changes = memory.diff(*sides)
    if not changes:
        texts = [
            f"{given} (seq {seq_of(memory, side)})" if _has_time(side) else given
            for given, side in zip((a, b), sides, strict=True)
        ]
        output.tell(f"no changes from {' to '.join(texts)}{f'; {_TIMES}' if _has_time(*sides) else ''}")
    lines: list[Line] = []
    stream = ""
    for change, text in output.changes_text(changes):
        if change.stream != stream:
            stream = change.stream
            lines.append(((stream, "bold"),))
        lines.append(((f"  {text}", {"+": "green", "-": "red"}.get(text[0], "")),))
    return Output({"a": a, "b": b, "changes": [output.change_json(change) for change in changes]}, lines)


def _has_time(*moments: object) -> bool:
    return any(isinstance(moment, dates.datetime) for moment in moments)


_TIMES = "a time is when something was recorded: `refold show CONVERSATION --at-occurred TIME` is for when it happened"
"""Said where nothing is listed for a time, because imported sessions happened long before."""


def _side(memory: "Memory", side: str) -> Any:
    chat, moment = memory.conversation(side.removeprefix("conversation/")), moment_of(side.removeprefix("seq/"))
    if chat.version and isinstance(moment, int) and side == chat.id:
        raise click.UsageError(
            f"{side} is a seq and the name of a conversation; give seq/{side} or conversation/{side}"
        )
    if chat.version:
        return chat
    if moment is None:
        close = suggest_name(side, memory.conversations())
        raise NotFound(
            f"{side!r} is not a seq, a time or a conversation here{close}; `refold list` shows the conversations"
        )
    return moment


@verb("snapshot", click.argument("conversation"), click.argument("name"), opens="writing")
def snapshot(memory: "Memory", conversation: str, name: str) -> Output:
    """Name the current state of a conversation.

    `refold restore` returns CONVERSATION to the state called NAME.
    """
    seq = find_conversation(memory, conversation).snapshot(name).seq
    document = {"conversation": conversation, "name": name, "seq": seq}
    return Output(document, [(f"snapshot {name} of {conversation} at seq {seq}",)])


@verb(
    "fork",
    click.argument("conversation"),
    click.argument("new"),
    moment_option("--at", help="Fork the state as of this seq or time instead of now."),
    opens="writing",
)
def fork(memory: "Memory", conversation: str, new: str, at: Moment) -> Output:
    """Start a new conversation from the state of another.

    NEW begins with the state of CONVERSATION, now or at a seq. Nothing is copied.
    """
    seq = seq_of(memory, at)
    chat = find_conversation(memory, conversation).fork(new, at=seq)
    text = f"forked {new} from {conversation} at seq {seq}: {chat!r}"
    return Output(output.conversation_json(chat, memory.head), [(text,)])


@verb(
    "restore",
    click.argument("conversation"),
    click.argument("name"),
    click.option(
        "--view",
        "views",
        multiple=True,
        type=click.Choice(["window", "scratchpad", "state"]),
        help="Restore only this part; repeatable.  [default: everything, with the board]",
    ),
    opens="writing",
)
def restore(memory: "Memory", conversation: str, name: str, views: tuple[str, ...]) -> Output:
    """Return a conversation to a snapshot.

    CONVERSATION continues from its snapshot NAME. What has happened since stays in the log.
    """
    chat = find_conversation(memory, conversation)
    known = [each.name or "" for each in memory.snapshots() if each.stream == f"conversation/{conversation}"]
    if name not in known and any(each.name == name and not each.stream for each in memory.snapshots()):
        raise NotFound(f"{name!r} is a snapshot of the whole memory; memory.restore({name!r}) in Python restores it")
    if name not in known:
        close = suggest_name(name, known)
        raise NotFound(f"{conversation} has no snapshot named {name!r}{close}; `refold list` shows the existing ones")
    chat.restore(name, views=views or None)
    return Output(output.conversation_json(chat, memory.head), [(f"restored {conversation} to {name}: {chat!r}",)])


# Import and export.

# Spelled out so that help does not load the importers; a test compares them.
_FORMATS = ("claude-code", "otel", "swe-agent", "locomo", "beam", "openai", "refold")
_MEMORY_FORMATS = ("locomo", "mem0", "memories")  # The same for `--facts`.
_LANGGRAPH = "langgraph-sqlite"  # LangGraph's SQLite files, which are read by its adapter.
_IMPORT_FORMATS = tuple(dict.fromkeys((*_FORMATS, *_MEMORY_FORMATS, _LANGGRAPH)))
_EXPORT_FORMATS = ("openai", "refold")


@cli.command("import")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
)
@click.option(
    "--format",
    "--from",
    "format_name",
    type=click.Choice(_IMPORT_FORMATS),
    help="The format of the files, instead of the detected one.",
)
@click.option("--name", metavar="NAME", help="With -, the name to use in place of a file name.  [default: stdin]")
@click.option("--window-tokens", type=int, metavar="N", help="The token budget of the conversations that it creates.")
@click.option("--facts", is_flag=True, help="Import memories instead of sessions.")
@click.option("--project", metavar="NAME", help="With --facts, the project to add to, whatever the files say.")
@click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="OLD=NEW",
    help="Load a stream of refold's own export under another name, such as project/default=project/laptop; repeatable.",
)
@embedder_option
@db_option
@json_option
def import_command(
    *,
    files: tuple[Path, ...],
    format_name: str | None,
    name: str | None,
    window_tokens: int | None,
    facts: bool,
    project: str | None,
    renames: tuple[str, ...],
    db: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Import recorded sessions or memories.

    Detects the format of each of FILES from its content; - reads stdin. Creates the store if it does not exist.
    Importing a file again changes nothing. A malformed file is imported up to the error, and the command reports what
    was imported; a new store that would be empty is not kept.

    With --facts, the files hold memories: LoCoMo's observations (imported with the sessions that they cite), JSON or
    JSON Lines of memories, or mem0's history.db. With --from langgraph-sqlite, they are the files of LangGraph's
    SqliteSaver and SqliteStore.
    """
    _check_usage(files, format_name, name, project, facts=facts)
    if renames and (len(files) > 1 or facts or format_name == _LANGGRAPH):
        raise click.UsageError("--rename is for one export of refold; give its file alone")
    rename = _parse_renames(renames)
    from msgspec.structs import replace

    from refold.importers import format_of, import_file, import_memories, memory_format_of

    detect = memory_format_of if facts else format_of
    if window_tokens is not None:
        options["window_tokens"] = window_tokens
    imported: list[Any] = []
    if not facts and format_name != _LANGGRAPH:
        _check_names(files)
    with ExitStack() as stack:
        paths = [stack.enter_context(_stdin_file(name)) if str(file) == "-" else file for file in files]
        formats = [detect(file) if format_name is None else format_name for file in paths]
        memory = stack.enter_context(_store_to_fill(db, options))
        for place, (file, form) in enumerate(zip(paths, formats, strict=True), 1):
            head = memory.head
            try:
                with output.progress_bar(file.name) as progress:
                    if form == _LANGGRAPH:
                        imported.append(_migrate_file(memory, file, progress))
                    elif facts:
                        imported.append(import_memories(memory, file, format=form, project=project, progress=progress))
                    else:
                        imported.append(import_file(memory, file, format=form, progress=progress, rename=rename))
            except Exception:
                _report_partial_import(memory, files[place - 1], head)
                if paths[place:]:
                    output.tell(f"not imported: {', '.join(map(str, files[place:]))}")
                raise
            if file is not files[place - 1]:
                imported[-1] = replace(imported[-1], file=name or "-")
            if not as_json:
                output.Console().line(_import_text(imported[-1]))
                for item in getattr(imported[-1], "conflicts", ()):
                    output.tell(f"{item} was changed in the file and in the store; it stays as it is in the store")
    if as_json:
        output.print_json({"files": imported})


def _check_usage(
    files: Sequence[Path], format_name: str | None, name: str | None, project: str | None, *, facts: bool
) -> None:
    known = _MEMORY_FORMATS if facts else (*_FORMATS, _LANGGRAPH)
    if format_name is not None and format_name not in known:
        message = f"the format {format_name} is for {'sessions' if facts else 'memories, with --facts'}; give one of"
        raise click.UsageError(f"{message} {', '.join(known)}")
    if project is not None and not facts:
        raise click.UsageError("--project is for memories; give it with --facts")
    if name is not None and Path("-") not in files:
        raise click.UsageError("--name is for stdin; give - as a file too")


def _parse_renames(renames: Sequence[str]) -> dict[str, str]:
    """Return the new names of streams by their old ones; a name can hold an equals sign, but no kind of stream."""
    parsed: dict[str, str] = {}
    for given in renames:
        kind = given.partition("/")[0]
        old, _, name = given.partition(f"={kind}/")
        if not name or old in parsed:
            raise click.UsageError(
                f"--rename is {given!r}; give OLD=NEW, both of one kind, such as project/default=project/laptop, and "
                f"each OLD once"
            )
        parsed[old] = f"{kind}/{name}"
    return parsed


def _check_names(files: Sequence[Path]) -> None:
    """Reject different files with the same name, which identifies conversations without an id."""
    known: dict[str, Path] = {}
    for file in files:
        other = known.setdefault(file.stem, file)
        if other.absolute() != file.absolute():
            raise click.UsageError(
                f"{other} and {file} have the same name, which identifies conversations without an id; rename one of "
                f"them, or import them one after the other if their conversations have ids"
            )


def _migrate_file(memory: "Memory", file: Path, progress: Any) -> Any:
    try:
        from refold.adapters.langgraph_sqlite import migrate
    except ImportError as error:
        raise NotFound(str(error)) from error
    return migrate(memory, file, progress=progress)


@contextmanager
def _stdin_file(name: str | None) -> Generator[Path]:
    """Write stdin to a file that exists during the block; errors call it by its name, or ``-``."""
    import shutil
    import tempfile

    if name is not None and (not name or Path(name).name != name):
        raise click.UsageError(f"--name is {name!r}; give a name without slashes")
    with tempfile.TemporaryDirectory(prefix="refold-import-") as directory:
        path = Path(directory, name or "stdin")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield path
        except RefoldError as error:
            error.args = (str(error).replace(str(path), name or "-"),)
            raise


class _EmptyStoreError(Exception):
    """Nothing was written to a new store."""


@contextmanager
def _store_to_fill(db: str, options: dict[str, Any]) -> "Generator[Memory]":
    """Open a store; a new directory is moved into place once it is filled, or removed if it stays empty."""
    failure: BaseException | None = None
    with suppress(_EmptyStoreError), _new_directory(db) as filled:
        if filled is None:
            with open_memory(db, **options) as memory:
                yield memory
            return
        with open_memory(filled, **options) as memory:
            try:
                yield memory
            except BaseException as error:  # noqa: BLE001 - raised again once the imported events are in place
                failure = error
            head = memory.head
        if not head:
            raise _EmptyStoreError from failure
    if failure is not None:
        raise failure


@contextmanager
def _new_directory(db: str) -> Generator[str | None]:
    """Yield a directory for a new store, or `None` if there is one, after waiting for another process that makes it."""
    import time

    from refold.limits import POLL_MS
    from refold.log.commits import is_address
    from refold.log.directory import holds_store
    from refold.log.disk import build_directory

    path, waits = Path(db), False
    with ExitStack() as stack:
        while not (is_address(db) or (path.exists() and (path.is_file() or any(path.iterdir())))):
            try:
                made = stack.enter_context(build_directory(db, "a store", may_be_empty=True))
            except StoreBusy:
                if not waits:
                    output.tell(f"waiting for another process, which makes a store at {db}")
                waits = True
                time.sleep(POLL_MS / 1_000)
            except InvalidInput:
                if not holds_store(db):  # Otherwise it was put in place just now.
                    raise
            else:
                yield made
                return
        yield None


def _report_partial_import(memory: "Memory", file: Path, head: int) -> None:
    """Report which part of a file was imported before the import failed."""
    from refold.message import MessageAppended

    imported = list(memory.events(after=head))
    messages = sum(isinstance(recorded.event, MessageAppended) for recorded in imported)
    streams = len({recorded.stamp.stream for recorded in imported})
    if imported:
        output.tell(
            f"{file}: everything before the error was imported: {pluralize(len(imported), 'event')} with "
            f"{pluralize(messages, 'message')}, in {pluralize(streams, 'stream')}; fix the file and import it again to "
            "add the rest"
        )
    else:
        output.tell(f"{file}: nothing was imported")


def _count_text(count: int, nouns: str) -> str:
    return pluralize(count, "memory" if nouns == "memories" else nouns.removesuffix("s"), nouns)


def _import_text(imported: Any) -> str:
    file = f"{imported.file} ({imported.format})"
    if imported.repeated:
        return f"{file}: already imported, nothing changed"
    noun = "memories" if hasattr(imported, "memories") else "messages"
    # A migration knows checkpoints and items.
    known = str(imported.known) if hasattr(imported, "checkpoints") else _count_text(imported.known, noun)
    known = f", {known} already known" if imported.known else ""
    fields = ("projects", "memories", "conversations", "messages", "events", "threads", "checkpoints", "items")
    counts = [(getattr(imported, name), name) for name in fields if hasattr(imported, name)]
    texts = [_count_text(count if isinstance(count, int) else len(count), name) for count, name in counts]
    return f"{file}: {', '.join(texts)}{known}"


@cli.command("export")
@click.argument("file", default="-", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_EXPORT_FORMATS),
    default="refold",
    help="Export the whole log (refold), or the messages of every conversation in OpenAI's form (openai).",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@db_option
@json_option
def export_command(*, file: Path, format_name: str, overwrite: bool, db: str, as_json: bool) -> None:
    """Export the log, or the messages of its conversations.

    Writes to FILE, or to stdout. On stdout either format is JSON Lines, and the counts go to stderr. In OpenAI's form,
    a short text stands for content that it has no place for.
    """
    is_stdout = str(file) == "-"
    with open_for_reading(db) as memory:
        if is_stdout:
            counts = _write(memory, output.stdout_file(), format_name)
        elif format_name == "refold":
            counts = {"events": memory.export(file, overwrite=overwrite)}
        else:
            counts = _write_file(memory, file, format_name, outside=db, overwrite=overwrite)
    text = ", ".join(_count_text(count, noun) for noun, count in counts.items())
    if is_stdout:
        output.tell(text)
    elif as_json:
        output.print_json({"file": str(file), "format": format_name, **counts})
    else:
        output.Console().line(f"{file} ({format_name}): {text}")


def _write(memory: "Memory", file: IO[bytes], format_name: str) -> dict[str, int]:
    from refold.importers import export_openai
    from refold.importers.values import export_lines

    if format_name == "openai":
        counts = {"conversations": export_openai(memory, file)}
    else:
        file.writelines(export_lines(memory))
        counts = {"events": memory.head}
    file.flush()
    return counts


def _write_file(memory: "Memory", path: Path, format_name: str, *, outside: str, overwrite: bool) -> dict[str, int]:
    """Write a file completely or not at all."""
    from refold.log.disk import build_file, disk_error

    try:
        with build_file(str(path), "an export", outside=outside, overwrite=overwrite) as file:
            return _write(memory, file, format_name)
    except OSError as error:
        raise disk_error(error, f"exporting to {path}", "give a path in a directory that is writable") from error
