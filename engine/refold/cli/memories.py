"""Verbs for project memories, boards and mirrors."""

import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from refold.cli import EXIT_ERROR, output
from refold.cli.output import Line
from refold.cli.root import (
    Moment,
    Output,
    cli,
    confirm,
    db_option,
    embedder_option,
    find_conversation,
    find_project,
    json_option,
    memory_at,
    open_for_reading,
    open_for_writing,
    past_options,
    seq_of,
    suggest_name,
    verb,
)
from refold.errors import NotFound
from refold.text import pluralize

if TYPE_CHECKING:
    from refold import Entry, Hit, Hits, Memory, Outcome, Project
    from refold.embedders import Embedder
    from refold.index.ranking import Ranking
    from refold.mirror import Mirror, MirrorReport

# Spelled out, like the statuses, so that help loads nothing; a test compares them.
_CATEGORIES = ("preference", "convention", "pattern", "correction", "fact")
_STATUSES = ("active", "pending_review", "rejected", "archived")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")

# The options of `refold search` that apply only to memories, and those that apply only to messages.
_OF_MEMORIES = {
    "categories": "--category",
    "min_importance": "--min-importance",
    "ranking": "--ranking",
    "floor": "--floor",
    "project": "--project",
}
_OF_MESSAGES = {"conversation": "--conversation", "roles": "--role"}

_project = click.option("--project", default="default", metavar="NAME", help="The project to use.")
_full = click.option("--full", is_flag=True, help="Show texts in full instead of on one line.")
_dry_run = click.option("--dry-run", is_flag=True, help="Report what would change, without changing it.")


@verb(
    "add",
    click.argument("content"),
    click.option("--category", type=click.Choice(_CATEGORIES), default="fact", help="The category of the memory."),
    click.option(
        "--keyword",
        "keywords",
        multiple=True,
        metavar="WORD",
        help="A keyword to use instead of those found in CONTENT; repeatable.",
    ),
    click.option("--importance", type=float, default=0.5, metavar="0..1", help="The importance of the memory."),
    click.option(
        "--source", metavar="SEQ|SESSION", help="Where it comes from: the seq of an event, or the name of a session."
    ),
    embedder_option,
    _project,
    opens="writing",
)
def add(
    memory: "Memory", content: str, project: str, source: str | None, keywords: tuple[str, ...], **fields: Any
) -> Output:
    """Add a memory to a project.

    If the project already has a memory with exactly this CONTENT, shows that memory and adds nothing.
    """
    from refold.importers.values import entry_json

    origin = int(source) if source is not None and source.isdecimal() else source
    head = memory.head
    entry = memory.project(project).add(content, keywords=keywords or None, source=origin, **fields)
    is_new = memory.head > head
    document = {"project": project, "added": is_new, "memory": entry_json(entry)}
    (line,) = _entry_lines(entry)
    return Output(document, [("" if is_new else "already there: ", *line)])


@verb(
    "search",
    click.argument("query"),
    click.option("--top-k", type=int, default=10, metavar="N", help="Show at most N results."),
    click.option(
        "--category",
        "categories",
        type=click.Choice(_CATEGORIES),
        multiple=True,
        help="Search only this category; repeatable.",
    ),
    click.option(
        "--min-importance",
        type=float,
        default=0.1,
        metavar="0..1",
        help="Search only memories with at least this importance.",
    ),
    click.option("--ranking", default="hybrid", metavar="NAME", help="The ranking of memories."),
    click.option(
        "--floor", type=float, metavar="SCORE", help="Find nothing if the best score is below this; 0 means no floor."
    ),
    click.option("--explain", is_flag=True, help="Show the weight and value of each signal of each result."),
    click.option("--messages", "is_of_messages", is_flag=True, help="Search messages by their words, not memories."),
    click.option("--conversation", metavar="ID", help="With --messages: search only this conversation."),
    click.option(
        "--role",
        "roles",
        type=click.Choice(_ROLES),
        multiple=True,
        help="With --messages: search only messages of this role; repeatable.",
    ),
    _full,
    past_options("Search the state as of this seq or time instead of now."),
    embedder_option,
    _project,
)
def search(
    memory: "Memory",
    query: str,
    project: str,
    at: Moment,
    categories: tuple[str, ...],
    conversation: str | None,
    roles: tuple[str, ...],
    *,
    is_of_messages: bool,
    explain: bool,
    full: bool,
    **fields: Any,
) -> Output:
    """Search the memories of a project, or the messages.

    Shows the best matches for QUERY with their scores; an empty QUERY browses by importance and recency. --messages
    searches everything that conversations ever held, including what has left their windows. Nothing is recorded.
    """
    if is_of_messages:
        _refuse_options("applies to memories; leave it out with --messages", _OF_MEMORIES)
        whole = memory_at(memory, at)
        options: dict[str, Any] = {"top_k": fields["top_k"], "roles": roles or None, "explain": explain}
        if conversation is None:
            return _message_hits(whole.search_messages(query, **options), explain=explain, full=full)
        chat = whole.conversation(find_conversation(memory, conversation).id)
        return _message_hits(chat.search(query, **options), explain=explain, full=full)
    from refold.importers.values import entry_json
    from refold.index.ranking import ranking_of

    _refuse_options("applies to messages; give --messages too", _OF_MESSAGES)
    searched = _project_at(memory, project, at)
    hits = searched.search(query, categories=categories or None, explain=explain, **fields)
    _warn_no_words(query)
    if not hits and not memory.projects():
        output.tell("to search conversations, give --messages")
    elif not hits and searched.count():
        at_least = f" with a score of {hits.floor:g} or more; --floor 0 shows the nearest" if hits.floor else ""
        output.tell(f"none of the {searched.count()} memories of project {project} matched{at_least}")
    document = {
        "query": hits.query,
        "ranking": hits.ranking,
        "exact": hits.exact,
        "floor": hits.floor,
        "hits": [{"score": hit.score, "parts": hit.parts, "memory": entry_json(hit.entry)} for hit in hits],
    }
    weights = _weights(ranking_of(hits.ranking)) if explain else None
    return Output(document, (line for hit in hits for line in _hit_lines(hit, weights, full=full)))


def _warn_no_words(query: str) -> None:
    """Report that a text without letters or digits, such as an emoji, matches no words."""
    from refold.text import words

    if query.strip() and not words(query):
        output.tell(f"{query!r} has no letters or digits to search for; `refold why TEXT` finds any text")


def _weights(ranking: "Ranking") -> dict[str, float]:
    """Return the weight of every signal, including those with weight 0."""
    from refold.index.ranking import SIGNALS

    return dict.fromkeys(SIGNALS, 0.0) | ranking.weights()


def _refuse_options(why: str, options: dict[str, str]) -> None:
    """Reject options that were given but would have no effect."""
    context = click.get_current_context()
    for name, shown in options.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{shown} {why}")


def _message_hits(hits: "Hits", *, explain: bool, full: bool) -> Output:
    from refold.importers.values import message_json
    from refold.index.messages import RANKING

    _warn_no_words(hits.query)
    if not hits:
        output.tell("no message contains any of these words")
    rows = [
        {
            "score": hit.score,
            "parts": hit.parts,
            "conversation": hit.entry.stamp.stream.partition("/")[2],
            "message": message_json(hit.entry),
        }
        for hit in hits
    ]
    document = {
        "query": hits.query,
        "ranking": hits.ranking,
        "exact": hits.exact,
        "pending": hits.pending,
        "hits": rows,
    }
    if hits.pending:
        output.tell(f"{pluralize(hits.pending, 'message')} without a vector yet, matched by words only")
    weights = _weights(RANKING) if explain else None
    return Output(document, (line for hit in hits for line in _message_lines(hit, weights, full=full)))


def _message_lines(hit: "Hit", weights: dict[str, float] | None, *, full: bool) -> Iterator[Line]:
    conversation = output.shorten(hit.entry.stamp.stream.partition("/")[2])
    head = f"{hit.score:7.4f}  {hit.entry.seq:>8}  {conversation}  "
    text = f"{output.speaker_of(hit.entry)}: {output.text_of(hit.entry)}"
    yield from output.block((head, "cyan"), text, full=full)
    if weights is not None:
        yield _parts_line(hit, weights)


def _parts_line(hit: "Hit", weights: dict[str, float]) -> Line:
    """Show each signal with its weight, whose products add up to the score; the words of a message have no weight."""
    factors = {name: f"{weights[name]:g} x " if name in weights else "" for name in hit.parts}
    parts = "  ".join(f"{name} {factors[name]}{value:.4f}" for name, value in hit.parts.items())
    return ((f"         {parts}", "dim"),)


def _hit_lines(hit: "Hit", weights: dict[str, float] | None, *, full: bool) -> Iterator[Line]:
    first, *rest = _entry_lines(hit.entry, full=full, taken=9)
    yield (f"{hit.score:7.4f}", "cyan"), "  ", *first
    yield from rest
    if weights is not None:
        yield _parts_line(hit, weights)


@verb(
    "memories",
    click.option("--category", type=click.Choice(_CATEGORIES), help="List only this category."),
    click.option("--status", type=click.Choice(_STATUSES), help="List only memories with this status."),
    click.option(
        "--offset", type=click.IntRange(0), default=0, show_default=False, metavar="N", help="Skip the first N."
    ),
    click.option("--limit", type=click.IntRange(min=0), metavar="N", help="List at most N."),
    _full,
    past_options("List the memories as of this seq or time instead of now."),
    _project,
)
def memories(
    memory: "Memory", project: str, at: Moment, offset: int, limit: int | None, *, full: bool, **filters: Any
) -> Output:
    """List the memories of a project.

    Lists them in the order they were added, each with its id, category, importance and content.
    """
    from refold.importers.values import entry_json

    handle = _project_at(memory, project, at)
    entries = handle.list(offset=offset, limit=limit, **filters)
    document = {
        "project": project,
        "count": handle.count(**filters),
        "memories": [entry_json(each) for each in entries],
    }
    return Output(document, (line for entry in entries for line in _entry_lines(entry, full=full)))


@verb("history", click.argument("id"), _full, _project)
def history(memory: "Memory", id: str, project: str, *, full: bool) -> Iterator[Output]:  # noqa: A002 - named after the argument ID
    """List the events of a memory, oldest first.

    Shows every event that touched the memory ID. --json prints one object per line.
    """
    from refold.importers.values import event_json, event_name

    for recorded in find_project(memory, project).history(id):
        name, time = event_name(recorded), output.time_text(recorded.stamp.time_ns)
        text = "" if full else f"  {output.event_text(memory, recorded, output.free_columns(40 + len(name)))}"
        line = (f"{recorded.stamp.seq:>8}", "cyan"), (f"  {time}  ", "dim"), (name, "bold"), text
        lines = output.event_lines(memory, recorded) if full else ()
        yield Output(event_json(memory, recorded, full=full), [line, *lines])


@verb(
    "update",
    click.argument("id"),
    click.option("--content", metavar="TEXT", help="The new content."),
    click.option("--category", type=click.Choice(_CATEGORIES), help="The new category."),
    click.option(
        "--keyword", "keywords", multiple=True, metavar="WORD", help="A keyword to replace the old ones; repeatable."
    ),
    click.option("--importance", type=float, metavar="0..1", help="The new importance."),
    embedder_option,
    _project,
    opens="writing",
)
def update(memory: "Memory", id: str, project: str, **fields: Any) -> Output:  # noqa: A002 - as above
    """Change the fields of a memory.

    Fields that are not given stay as they are. New content is embedded.
    """
    changed = {field: value for field, value in fields.items() if value not in (None, ())}
    if not changed:
        raise click.UsageError("nothing to change; give --content, --category, --keyword or --importance")
    handle = find_project(memory, project)
    return _entry_output(project, handle.update(_check_id(handle, id), **changed))


@verb("delete", click.argument("id"), _project, opens="writing")
def delete(memory: "Memory", id: str, project: str) -> Output:  # noqa: A002 - as above
    """Delete a memory.

    Searches no longer find it. The log keeps it until you run `refold erase --seq`.
    """
    handle = find_project(memory, project)
    handle.delete(_check_id(handle, id))
    return Output({"project": project, "deleted": id}, [(f"{id} deleted",)])


@verb("clear", click.option("--yes", is_flag=True, help="Do not ask for confirmation."), _project, opens="writing")
def clear(memory: "Memory", project: str, *, yes: bool) -> Output:
    """Delete all memories of a project.

    The log keeps them, and states before the deletion still show them (--at).
    """
    handle = find_project(memory, project)
    count = handle.count()
    if not yes:
        confirm(f"Delete all memories of project {project} ({count})?")
    handle.clear()
    return Output(
        {"project": project, "deleted": count}, [(f"{project}: {pluralize(count, 'memory', 'memories')} deleted",)]
    )


@verb(
    "review",
    click.argument("id", required=False),
    click.argument("status", required=False, type=click.Choice(_STATUSES)),
    _full,
    _project,
    opens="writing",
)
def review(memory: "Memory", id: str | None, status: str | None, project: str, *, full: bool) -> Output:  # noqa: A002 - as above
    """List the memories pending review, or set a memory's status.

    Without arguments, lists the memories that wait for a review. With an ID and a status, gives that memory the status;
    searches find only active memories.
    """
    from refold.importers.values import entry_json

    handle = find_project(memory, project)
    if id is None:
        entries = handle.list(status="pending_review")
        document = {"project": project, "memories": [entry_json(entry) for entry in entries]}
        return Output(document, (line for entry in entries for line in _entry_lines(entry, full=full)))
    if status is None:
        raise click.UsageError(f"give the status of {id} too: one of {', '.join(_STATUSES)}")
    return _entry_output(project, handle.review(_check_id(handle, id), status))


def _check_id(handle: "Project", entry_id: str) -> str:
    """Return the id if the project has it; raises `NotFound` otherwise."""
    if handle.get(entry_id) is None:
        close = suggest_name(entry_id, [entry.id for entry in handle.list()])
        raise NotFound(f"project {handle.name} has no memory {entry_id!r}{close}; `refold memories` shows their ids")
    return entry_id


def _entry_output(project: str, entry: "Entry") -> Output:
    from refold.importers.values import entry_json

    return Output({"project": project, "memory": entry_json(entry)}, _entry_lines(entry, full=True))


@verb("decay", _dry_run, _project, db_option, opens=None)
def decay(db: str, project: str, *, dry_run: bool) -> Output:
    """Lower the importance of memories over time.

    Multiplies importance by 0.95 per week since the last access, counted in whole days. A second run on the same day
    changes nothing.
    """
    return _maintain(db, project, lambda handle: handle.decay(dry_run=dry_run), is_dry=dry_run)


@verb("prune", click.argument("min_importance", type=float), _dry_run, _project, db_option, opens=None)
def prune(db: str, project: str, min_importance: float, *, dry_run: bool) -> Output:
    """Delete the memories below an importance.

    Deletes the memories whose importance is below MIN_IMPORTANCE. The log keeps them.
    """
    return _maintain(db, project, lambda handle: handle.prune(min_importance, dry_run=dry_run), is_dry=dry_run)


@verb(
    "compact",
    click.option(
        "--threshold", type=float, metavar="COSINE", help="The cosine that a pair must exceed.  [default: 0.9]"
    ),
    _dry_run,
    embedder_option,
    _project,
    db_option,
    opens=None,
)
def compact(db: str, project: str, threshold: float | None, embedder: "Embedder | None", *, dry_run: bool) -> Output:
    """Merge memories that say the same thing.

    Merges active memories that are more similar than a threshold, until none are. Each merge can be undone, in Python
    with Project.unmerge.
    """

    def merge(handle: "Project") -> "Outcome":
        return handle.compact(threshold, dry_run=dry_run)

    return _maintain(db, project, merge, is_dry=dry_run, embedder=embedder)


def _maintain(
    db: str, project: str, change: "Callable[[Project], Outcome]", *, is_dry: bool, embedder: "Embedder | None" = None
) -> Output:
    with (open_for_reading if is_dry else open_for_writing)(db, embedder=embedder) as memory:
        outcome = change(find_project(memory, project))
    counts = {name: getattr(outcome, name) for name in ("changed", "removed", "merged")}
    text = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing to do"
    note = " (dry run)" if is_dry else ""
    return Output({"project": project, "dry_run": is_dry, **counts}, [(f"{project}: {text}{note}",)])


@verb("reembed", embedder_option, db_option, opens=None)
def reembed(db: str, embedder: "Embedder | None") -> Output:
    """Embed all memories and episodes again, with another embedder.

    Searches use the old vectors until all new ones are ready. If the command is stopped, the next run reuses the
    vectors that were already made. Afterwards every command needs the same --embedder.
    """
    from refold.embedders import HashedEmbedder

    with open_for_writing(db) as memory, output.progress_bar("embedding") as progress:
        done = memory.reembed(HashedEmbedder() if embedder is None else embedder, progress=progress)
    document = {"model": done.model, "dim": done.dim, "projects": done.projects, "vectors": done.vectors}
    text = f"{done.vectors} vectors, {done.projects} projects switched" if done.projects else "nothing to do"
    return Output(document, [((done.model, "bold"), f" ({done.dim} dimensions): {text}")])


def _project_at(memory: "Memory", name: str, at: Moment) -> "Project":
    known = find_project(memory, name).name
    return memory_at(memory, at).project(known)


def _entry_lines(entry: "Entry", *, full: bool = False, taken: int = 0) -> Iterator[Line]:
    status = "" if entry.status == "active" else f"  {entry.status}"
    about = f"  {entry.category} {entry.importance:.2f}{status}  "
    if full:
        yield (entry.id, "bold"), (about, "dim"), ""
        yield from output.indent_lines(entry.content)
        return
    left = output.free_columns(taken + len(entry.id) + len(about))
    yield (entry.id, "bold"), (about, "dim"), output.shorten(entry.content, left)


@verb(
    "board",
    click.argument("session", required=False),
    click.option("--project", metavar="NAME", help="The project of the node. With SESSION, defaults to its own."),
    click.option("--node", metavar="ID", help="The node. With SESSION, defaults to the one that it works on."),
    past_options("Show the board as of this seq or time instead of now."),
)
def board(memory: "Memory", session: str | None, project: str | None, node: str | None, at: Moment) -> Output:
    """Show the board of a session, or of a node of a project.

    For SESSION, also shows what it reads from the board of the node that it works on. --json prints the sections of the
    board and the metadata of its messages.
    """
    seq = seq_of(memory, at)
    handle = memory.at(seq).board(session=session, project=project, node=node)
    sections, meta = handle.to_dict(), handle.get("messages_meta")
    if not sections["session"]["timestamp"]:
        names = [f"session {session}"] * bool(session) + [f"node {node} of {project}"] * bool(project and node)
        raise NotFound(f"nothing is on the board of {' or '.join(names)} at seq {seq}; `refold log` shows what was set")
    document = {"seq": seq, "board": sections, "messages_meta": meta}
    return Output(document, _board_lines(sections, meta, seq))


def _board_lines(sections: dict[str, Any], meta: dict[str, Any], seq: int) -> Iterator[Line]:
    ids = sections["session"]
    names = [
        f"{name.removesuffix('_id')} {output.shorten(value)}"
        for name, value in ids.items()
        if value and name != "timestamp"
    ]
    yield ("  ".join(names), "bold"), f"  at seq {seq}  changed {output.shorten(ids['timestamp'])}"
    for name, graph in sections["project_structure"].items():
        yield (f"{name}  {len(graph['nodes'])} nodes  {len(graph['edges'])} edges",)
    for name in ("node_context", "fetched_context"):
        for key, value in sections[name].items():
            yield (f"{name} {output.shorten(key)} = {output.value_text(value)}",)
    yield (f"working_history {output.value_text(sections['working_history'])}",)
    yield (f"messages  {len(sections['messages'])} of {meta['total_count']}",)
    for message in sections["messages"]:
        text = f"{output.shorten(message['role'])}: {output.value_text(message['content'])}"
        yield (f"{output.shorten(message['id']):>8}", "cyan"), f"  {text}"
    yield "config  ", "  ".join(f"{name} {output.value_text(value)}" for name, value in sections["config"].items())


_WAIT_SECONDS = 3_600.0


@cli.command("mirror")
@click.argument("directory", type=click.Path())
@click.option("--watch", is_flag=True, help="Keep running until interrupted.")
@click.option("--check", is_flag=True, help="Only report what would be done.")
@click.option("--profile", default="default", metavar="NAME", help="The profile to mirror.")
@click.option("--journal", default="default", metavar="NAME", help="The journal to mirror.")
@db_option
@json_option
def mirror_command(*, directory: str, watch: bool, check: bool, db: str, as_json: bool, **names: Any) -> None:
    """Sync a profile and a journal with files, in both directions.

    DIRECTORY holds profile.json and YYYYMM/YYYYMMDD.md. Edits to these files become events, and changes in the log are
    written to the files. Both sides of a conflict are kept. Exits with 1 if there is a conflict, or if a file cannot be
    read or written.
    """
    if watch and check:
        raise click.UsageError("--watch keeps writing and --check writes nothing; give only one of them")
    show: Callable[[MirrorReport], None] = output.print_json if as_json else _print_report
    # A check writes nothing, not even on its first run.
    with (open_for_reading if check else open_for_writing)(db) as memory:
        with memory.mirror(directory, writes=not check, on_report=show if watch else None, **names) as mirror:
            if watch:
                output.tell(f"mirroring to {mirror.path}; press Ctrl-C to stop")
                _wait(mirror)
            report = mirror.report
        report = mirror.report if watch else report
    if not watch:
        show(report)
    if not report.ok:
        click.get_current_context().exit(EXIT_ERROR)


def _wait(mirror: "Mirror") -> None:
    """Wait for an interruption, or for the mirror to fail."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        while mirror.is_alive:
            mirror.join(_WAIT_SECONDS)
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
    if mirror.error is not None:
        raise mirror.error


def _print_report(report: "MirrorReport") -> None:
    console = output.Console()
    for edit in report.edits:
        change = "note" if edit.kind == "append" else f"{edit.name} ="
        text = f"{edit.name} deleted" if edit.text is None else f"{change} {output.shorten(edit.text)}"
        console.line((f"{edit.file}: ", "bold"), text)
    for name in report.written:
        console.line((f"{name}: ", "bold"), "written")
    for conflict in report.conflicts:
        where = f"{conflict.file} {conflict.name}".rstrip()
        copy = f"; the edited version is in {conflict.kept}" if conflict.kept else ""
        console.line((f"{where}: ", "bold"), (f"conflict: {conflict.reason}{copy}", "yellow"))
    for name in report.deleted:
        console.line((f"{name}: ", "bold"), "deleted, because an erasure reached the original file")
    for problem in report.problems:
        console.line((f"{problem.file or 'mirror'}: ", "bold"), (problem.reason, "red"))
    if not report:
        console.line(f"in sync at seq {report.seq}")
