"""Verbs of project memories, boards and mirrors."""

import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from refold.cli import EXIT_ERROR, output
from refold.cli.output import Line
from refold.cli.root import (
    Moment,
    Output,
    cli,
    db_option,
    embedder_option,
    json_option,
    moment_option,
    reading,
    seq_of,
    verb,
    writing,
)
from refold.errors import NotFound

if TYPE_CHECKING:
    from refold import Entry, Hit, Memory, Outcome, Project
    from refold.embedders import Embedder
    from refold.mirror import Mirror, MirrorReport

# Written out, as are the statuses, so that the help loads nothing; a test compares.
_CATEGORIES = ("preference", "convention", "pattern", "correction", "fact")
_STATUSES = ("active", "pending_review", "rejected", "archived")
_CONTENT_CHARS = 90

_project = click.option("--project", default="default", metavar="NAME", help="Of which project.")
_dry_run = click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")


@verb(
    "add",
    click.argument("content"),
    click.option("--category", type=click.Choice(_CATEGORIES), default="fact"),
    click.option(
        "--keyword", "keywords", multiple=True, metavar="WORD", help="Instead of those of the content; repeat."
    ),
    click.option("--importance", type=float, default=0.5, metavar="0..1"),
    click.option("--source", metavar="SEQ|SESSION", help="What it comes from: a seq, or the name of a session."),
    embedder_option,
    _project,
    opens="writing",
)
def add(
    memory: "Memory", content: str, project: str, source: str | None, keywords: tuple[str, ...], **fields: Any
) -> Output:
    """Add a memory to a project.

    Where the project has a memory of exactly this CONTENT, that one is shown and nothing is added.
    """
    from refold.importers.values import entry_json

    origin = int(source) if source is not None and source.isdecimal() else source
    head = memory.head
    entry = memory.project(project).add(content, keywords=keywords or None, source=origin, **fields)
    is_new = memory.head > head
    document = {"project": project, "added": is_new, "memory": entry_json(entry)}
    return Output(document, [("" if is_new else "already there: ", *_entry_line(entry))])


@verb(
    "search",
    click.argument("query"),
    click.option("--top-k", type=int, default=10, metavar="N", help="At most so many."),
    click.option("--category", "categories", type=click.Choice(_CATEGORIES), multiple=True, help="Only these; repeat."),
    click.option("--min-importance", type=float, default=0.1, metavar="0..1"),
    click.option("--ranking", default="seed", metavar="NAME", help="How they are ranked."),
    click.option("--explain", is_flag=True, help="Show each signal of each hit."),
    moment_option("--at", help="Search what was known then, not what is."),
    embedder_option,
    _project,
)
def search(
    memory: "Memory", query: str, project: str, at: Moment, categories: tuple[str, ...], *, explain: bool, **fields: Any
) -> Output:
    """Find memories of a project, now or then.

    Shows those that answer QUERY best, with their scores; an empty one browses by importance and recency. Nothing is
    recorded.
    """
    hits = _project_at(memory, project, at).search(query, categories=categories or None, explain=explain, **fields)
    document = {
        "query": hits.query,
        "ranking": hits.ranking,
        "exact": hits.exact,
        "hits": [_hit_json(hit) for hit in hits],
    }
    return Output(document, (line for hit in hits for line in _hit_lines(hit, explain=explain)))


def _hit_json(hit: "Hit") -> dict[str, Any]:
    from refold.importers.values import entry_json

    return {"score": hit.score, "parts": hit.parts, "memory": entry_json(hit.entry)}


def _hit_lines(hit: "Hit", *, explain: bool) -> Iterator[Line]:
    yield (f"{hit.score:7.4f}", "cyan"), "  ", *_entry_line(hit.entry)
    if explain:
        parts = "  ".join(f"{name} {value:.4f}" for name, value in hit.parts.items())
        yield ((f"         {parts}", "dim"),)


@verb(
    "memories",
    click.option("--category", type=click.Choice(_CATEGORIES), help="Only these."),
    click.option("--status", type=click.Choice(_STATUSES), help="Only these."),
    click.option(
        "--offset", type=click.IntRange(0), default=0, show_default=False, metavar="N", help="Leave out the first N."
    ),
    click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N."),
    moment_option("--at", help="Those of then, not those of now."),
    _project,
)
def memories(memory: "Memory", project: str, at: Moment, offset: int, limit: int | None, **filters: Any) -> Output:
    """List the memories of a project.

    They come in the order in which they were added, each with its id, category, importance and content.
    """
    from refold.importers.values import entry_json

    handle = _project_at(memory, project, at)
    entries = handle.list(offset=offset, limit=limit, **filters)
    document = {
        "project": project,
        "count": handle.count(**filters),
        "memories": [entry_json(each) for each in entries],
    }
    return Output(document, map(_entry_line, entries))


@verb("history", click.argument("id"), _project)
def history(memory: "Memory", id: str, project: str) -> Iterator[Output]:  # noqa: A002 - the word of the shape
    """List what happened to a memory.

    Shows every event that touched the memory ID, the oldest first. With --json, one JSON object a line.
    """
    from refold.importers.values import event_json, event_name

    for recorded in memory.project(project).history(id):
        line = (
            (f"{recorded.stamp.seq:>8}", "cyan"),
            (f"  {output.time_text(recorded.stamp.time_ns)}  ", "dim"),
            (event_name(recorded), "bold"),
            f"  {output.event_text(memory, recorded)}",
        )
        yield Output(event_json(memory, recorded), [line])


@verb("decay", _dry_run, _project, db_option, opens=None)
def decay(db: str, project: str, *, dry_run: bool) -> Output:
    """Let importance fall with the days.

    To 0.95 of itself a week, counted in whole days since last access; a second run on the same day changes nothing.
    """
    return _maintain(db, project, lambda handle: handle.decay(dry_run=dry_run), is_dry=dry_run)


@verb("prune", click.argument("min_importance", type=float), _dry_run, _project, db_option, opens=None)
def prune(db: str, project: str, min_importance: float, *, dry_run: bool) -> Output:
    """Remove what matters little.

    Removes the memories whose importance is under MIN_IMPORTANCE; the log keeps them.
    """
    return _maintain(db, project, lambda handle: handle.prune(min_importance, dry_run=dry_run), is_dry=dry_run)


@verb(
    "compact",
    click.option("--threshold", type=float, metavar="COSINE", help="How alike they have to be.  [default: 0.9]"),
    _dry_run,
    embedder_option,
    _project,
    db_option,
    opens=None,
)
def compact(db: str, project: str, threshold: float | None, embedder: "Embedder | None", *, dry_run: bool) -> Output:
    """Merge memories that say the same.

    Merges those that are more alike than a threshold, until there are none; each merge can be taken apart.
    """

    def merge(handle: "Project") -> "Outcome":
        return handle.compact(threshold, dry_run=dry_run)

    return _maintain(db, project, merge, is_dry=dry_run, embedder=embedder)


def _maintain(
    db: str, project: str, change: "Callable[[Project], Outcome]", *, is_dry: bool, embedder: "Embedder | None" = None
) -> Output:
    with (reading if is_dry else writing)(db, embedder=embedder) as memory:
        outcome = change(memory.project(project))
    counts = {name: getattr(outcome, name) for name in ("changed", "removed", "merged")}
    text = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing to do"
    would = "would be: " if is_dry and any(counts.values()) else ""
    return Output({"project": project, "dry_run": is_dry, **counts}, [(f"{project}: {would}{text}",)])


@verb("reembed", embedder_option, db_option, opens=None)
def reembed(db: str, embedder: "Embedder | None") -> Output:
    """Embed everything anew.

    Gives every memory and episode a vector of another embedder; searches see the old ones until all new ones are there.
    Vectors that were made before a stop are used by the next run. From then on every command needs the same --embedder.
    """
    from refold.embedders import HashedEmbedder

    with writing(db) as memory, output.progress_bar("embedding") as progress:
        done = memory.reembed(HashedEmbedder() if embedder is None else embedder, progress=progress)
    document = {"model": done.model, "dim": done.dim, "projects": done.projects, "vectors": done.vectors}
    text = f"{done.vectors} vectors, {done.projects} projects switched" if done.projects else "nothing to do"
    return Output(document, [((done.model, "bold"), f" ({done.dim} numbers): {text}")])


def _project_at(memory: "Memory", name: str, at: Moment) -> "Project":
    return memory.at(seq_of(memory, at)).project(name) if at is not None else memory.project(name)


def _entry_line(entry: "Entry") -> Line:
    status = "" if entry.status == "active" else f"  {entry.status}"
    about = f"  {entry.category} {entry.importance:.2f}{status}  "
    return (entry.id, "bold"), (about, "dim"), output.shortened(entry.content, _CONTENT_CHARS)


@verb(
    "board",
    click.argument("session", required=False),
    click.option("--project", metavar="NAME", help="The project of a node; beside SESSION, of the node beneath it."),
    click.option("--node", metavar="ID", help="The node of that project."),
    moment_option("--at", help="Show it as it was then, not as it is."),
)
def board(memory: "Memory", session: str | None, project: str | None, node: str | None, at: Moment) -> Output:
    """Show the board of a session, or of a node of a project, now or then.

    Shows what SESSION has on its board, and what it reads from the board of the node that it works on. With --json, the
    sections of the board and the metadata of its messages.
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
        f"{name.removesuffix('_id')} {output.shortened(value)}"
        for name, value in ids.items()
        if value and name != "timestamp"
    ]
    yield ("  ".join(names), "bold"), f"  at seq {seq}  changed {output.shortened(ids['timestamp'])}"
    for name, graph in sections["project_structure"].items():
        yield (f"{name}  {len(graph['nodes'])} nodes  {len(graph['edges'])} edges",)
    for name in ("node_context", "fetched_context"):
        for key, value in sections[name].items():
            yield (f"{name} {output.shortened(key)} = {output.value_text(value)}",)
    yield (f"working_history {output.value_text(sections['working_history'])}",)
    yield (f"messages  {len(sections['messages'])} of {meta['total_count']}",)
    for message in sections["messages"]:
        text = f"{output.shortened(message['role'])}: {output.value_text(message['content'])}"
        yield (f"{output.shortened(message['id']):>8}", "cyan"), f"  {text}"
    yield "config  ", "  ".join(f"{name} {value}" for name, value in sections["config"].items())


_WAIT_SECONDS = 3_600.0


@cli.command("mirror")
@click.argument("directory", type=click.Path())
@click.option("--watch", is_flag=True, help="Go on until interrupted.")
@click.option("--check", is_flag=True, help="Only say what would be done.")
@click.option("--profile", default="default", metavar="NAME")
@click.option("--journal", default="default", metavar="NAME")
@db_option
@json_option
def mirror_command(*, directory: str, watch: bool, check: bool, db: str, as_json: bool, **names: Any) -> None:
    """Keep profile and notes in files, both ways.

    DIRECTORY holds profile.json and YYYYMM/YYYYMMDD.md. What was written into them by hand becomes events, and what the
    log has is written. Both sides of a conflict are kept, and the exit code is 1 then, as for a file that cannot be
    read or written.
    """
    if watch and check:
        raise click.UsageError("--watch goes on writing, and --check writes nothing; give one of them")
    show: Callable[[MirrorReport], None] = output.print_json if as_json else _print_report
    # A check writes nothing, not even a first time.
    with (reading if check else writing)(db) as memory:
        options = {"on_report": show} if watch else {}
        with memory.mirror(directory, writes=not check, **options, **names) as mirror:
            if watch:
                output.tell(f"mirroring in {mirror.path}; ctrl-C ends it")
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
        text = f"{edit.name} deleted" if edit.text is None else f"{change} {output.shortened(edit.text)}"
        console.line((f"{edit.file}: ", "bold"), text)
    for name in report.written:
        console.line((f"{name}: ", "bold"), "written")
    for conflict in report.conflicts:
        where = f"{conflict.file} {conflict.name}".rstrip()
        copy = f"; the hand's side is in {conflict.kept}" if conflict.kept else ""
        console.line((f"{where}: ", "bold"), (f"conflict: {conflict.reason}{copy}", "yellow"))
    for name in report.deleted:
        console.line((f"{name}: ", "bold"), "deleted, because an erasure reached its file")
    for problem in report.problems:
        console.line((f"{problem.file or 'mirror'}: ", "bold"), (problem.reason, "red"))
    if not report:
        console.line(f"in step at seq {report.seq}")
