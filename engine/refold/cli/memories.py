"""Verbs on project memories: add, search, memories, history, decay, prune, compact, reembed."""

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from refold.cli import EXIT_ERROR
from refold.cli.output import (
    Console,
    event_text,
    print_json,
    progress_bar,
    shortened,
    tell,
    time_text,
    value_text,
)
from refold.cli.root import (
    FunctionType,
    cli,
    db_option,
    embedder_option,
    json_option,
    moment_option,
    reading,
    seq_of,
    writing,
)
from refold.errors import NotFound

if TYPE_CHECKING:
    import datetime

    from refold import Entry, Hit, Memory, Outcome, Project
    from refold.embedders import Embedder
    from refold.mirror import Mirror, MirrorEdit, MirrorReport


# The verbs of project memories: add, search, memories, history, decay, prune, compact, reembed.

_CATEGORIES = ("preference", "convention", "pattern", "correction", "fact")
"""Written out, as are the statuses, so that the help loads nothing; a test compares."""

_STATUSES = ("active", "pending_review", "rejected", "archived")
_CONTENT_CHARS = 90


def _project_option(function: FunctionType) -> FunctionType:
    option = click.option("--project", default="default", show_default=True, metavar="NAME", help="Of which project.")
    return option(function)


def _dry_run_option(function: FunctionType) -> FunctionType:
    return click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")(function)


@cli.command("add")
@click.argument("content")
@click.option("--category", type=click.Choice(_CATEGORIES), default="fact", show_default=True)
@click.option("--keyword", "keywords", multiple=True, metavar="WORD", help="Instead of those of the content; repeat.")
@click.option("--importance", type=float, default=0.5, show_default=True, metavar="0..1")
@click.option("--source", metavar="SEQ|SESSION", help="What it comes from: a seq, or the name of a session.")
@embedder_option
@_project_option
@db_option
@json_option
def add_command(
    *,
    content: str,
    category: str,
    keywords: tuple[str, ...],
    importance: float,
    source: str | None,
    embedder: "Embedder | None",
    project: str,
    db: str,
    as_json: bool,
) -> None:
    """Add a memory to a project.

    Where the project has a memory of exactly this CONTENT, that one is shown and nothing is added.
    """
    from refold.importers.values import entry_json

    origin = int(source) if source is not None and source.isdecimal() else source
    with writing(db, embedder=embedder) as memory:
        head = memory.head
        entry = memory.project(project).add(
            content, category=category, keywords=keywords or None, importance=importance, source=origin
        )
        is_new = memory.head > head
    if as_json:
        print_json({"project": project, "added": is_new, "memory": entry_json(entry)})
        return
    Console().line("" if is_new else "already there: ", *_pieces(entry))


@cli.command("search")
@click.argument("query")
@click.option("--top-k", type=int, default=10, show_default=True, metavar="N", help="At most so many.")
@click.option("--category", "categories", type=click.Choice(_CATEGORIES), multiple=True, help="Only these; repeat.")
@click.option("--min-importance", type=float, default=0.1, show_default=True, metavar="0..1")
@click.option("--ranking", default="seed", show_default=True, metavar="NAME", help="How they are ranked.")
@click.option("--explain", is_flag=True, help="Show each signal of each hit.")
@moment_option("--at", help="Search what was known then, not what is.")
@embedder_option
@_project_option
@db_option
@json_option
def search_command(
    *,
    query: str,
    top_k: int,
    categories: tuple[str, ...],
    min_importance: float,
    ranking: str,
    explain: bool,
    at: "int | datetime.datetime | None",
    embedder: "Embedder | None",
    project: str,
    db: str,
    as_json: bool,
) -> None:
    """Find memories of a project, now or then.

    Shows those that answer QUERY best, with their scores; an empty one browses by importance and recency. Nothing is
    recorded.
    """
    with reading(db, embedder=embedder) as memory:
        hits = _project_at(memory, project, at).search(
            query,
            top_k=top_k,
            categories=categories or None,
            min_importance=min_importance,
            ranking=ranking,
            explain=explain,
        )
    if as_json:
        found = [hit_json(hit) for hit in hits]
        print_json({"query": hits.query, "ranking": hits.ranking, "exact": hits.exact, "hits": found})
        return
    console = Console()
    for hit in hits:
        console.line((f"{hit.score:7.4f}", "cyan"), "  ", *_pieces(hit.entry))
        if explain:
            console.line((f"         {_parts_text(hit)}", "dim"))


@cli.command("memories")
@click.option("--category", type=click.Choice(_CATEGORIES), help="Only these.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only these.")
@click.option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the first N.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N.")
@moment_option("--at", help="Those of then, not those of now.")
@_project_option
@db_option
@json_option
def memories_command(
    *,
    category: str | None,
    status: str | None,
    offset: int,
    limit: int | None,
    at: "int | datetime.datetime | None",
    project: str,
    db: str,
    as_json: bool,
) -> None:
    """List the memories of a project.

    They come in the order in which they were added, each with its id, category, importance and content.
    """
    from refold.importers.values import entry_json

    with reading(db) as memory:
        handle = _project_at(memory, project, at)
        entries = handle.list(category=category, status=status, offset=offset, limit=limit)
        count = handle.count(category=category, status=status)
    if as_json:
        print_json({"project": project, "count": count, "memories": [entry_json(entry) for entry in entries]})
        return
    console = Console()
    for entry in entries:
        console.line(*_pieces(entry))


@cli.command("history")
@click.argument("id")
@_project_option
@db_option
@json_option
def history_command(*, id: str, project: str, db: str, as_json: bool) -> None:  # noqa: A002 - the word of the shape
    """List what happened to a memory.

    Shows every event that touched the memory ID, the oldest first. With --json, one JSON object a line.
    """
    from refold.importers.values import event_json, event_name

    with reading(db) as memory:
        console = Console()
        for recorded in memory.project(project).history(id):
            if as_json:
                print_json(event_json(memory, recorded))
                continue
            console.line(
                (f"{recorded.stamp.seq:>8}", "cyan"),
                (f"  {time_text(recorded.stamp.time_ns)}  ", "dim"),
                (event_name(recorded), "bold"),
                f"  {event_text(memory, recorded)}",
            )


@cli.command("decay")
@_dry_run_option
@_project_option
@db_option
@json_option
def decay_command(*, dry_run: bool, project: str, db: str, as_json: bool) -> None:
    """Let importance fall with the days.

    To 0.95 of itself a week, counted in whole days since last access; a second run on the same day changes nothing.
    """
    _maintain(db, project, lambda handle: handle.decay(dry_run=dry_run), is_dry=dry_run, as_json=as_json)


@cli.command("prune")
@click.argument("min_importance", type=float)
@_dry_run_option
@_project_option
@db_option
@json_option
def prune_command(*, min_importance: float, dry_run: bool, project: str, db: str, as_json: bool) -> None:
    """Remove what matters little.

    Removes the memories whose importance is under MIN_IMPORTANCE; the log keeps them.
    """
    _maintain(
        db, project, lambda handle: handle.prune(min_importance, dry_run=dry_run), is_dry=dry_run, as_json=as_json
    )


@cli.command("compact")
@click.option("--threshold", type=float, metavar="COSINE", help="How alike they have to be.  [default: 0.9]")
@_dry_run_option
@embedder_option
@_project_option
@db_option
@json_option
def compact_command(
    *, threshold: float | None, dry_run: bool, embedder: "Embedder | None", project: str, db: str, as_json: bool
) -> None:
    """Merge memories that say the same.

    Merges those that are more alike than a threshold, until there are none; each merge can be taken apart.
    """

    def compact(handle: "Project") -> "Outcome":
        return handle.compact(threshold, dry_run=dry_run)

    _maintain(db, project, compact, is_dry=dry_run, as_json=as_json, embedder=embedder)


@cli.command("reembed")
@embedder_option
@db_option
@json_option
def reembed_command(*, embedder: "Embedder | None", db: str, as_json: bool) -> None:
    """Embed everything anew.

    Gives every memory and episode a vector of another embedder; searches see the old ones until all new ones are there.
    What was made before a stop is kept for the next run. From then on every command needs the same --embedder.
    """
    with writing(db) as memory, progress_bar("embedding") as progress:
        done = memory.reembed(_built_in() if embedder is None else embedder, progress=progress)
    if as_json:
        print_json({"model": done.model, "dim": done.dim, "projects": done.projects, "vectors": done.vectors})
        return
    said = f"{done.vectors} vectors, {done.projects} projects switched" if done.projects else "nothing to do"
    Console().line((done.model, "bold"), f" ({done.dim} numbers): {said}")


def _built_in() -> "Embedder":
    from refold.embedders import HashedEmbedder

    return HashedEmbedder()


def _maintain(
    db: str,
    project: str,
    verb: "Callable[[Project], Outcome]",
    *,
    is_dry: bool,
    as_json: bool,
    embedder: "Embedder | None" = None,
) -> None:
    with (reading if is_dry else writing)(db, embedder=embedder) as memory:
        outcome = verb(memory.project(project))
    counts = {name: getattr(outcome, name) for name in ("changed", "removed", "merged")}
    if as_json:
        print_json({"project": project, "dry_run": is_dry, **counts})
        return
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing to do"
    Console().line(f"{project}: {'would be: ' if is_dry and any(counts.values()) else ''}{said}")


def _project_at(memory: "Memory", name: str, at: "int | datetime.datetime | None") -> "Project":
    return memory.at(seq_of(memory, at)).project(name) if at is not None else memory.project(name)


def hit_json(hit: "Hit") -> dict[str, Any]:
    """Return a hit as plain values."""
    from refold.importers.values import entry_json

    return {"score": hit.score, "parts": hit.parts, "memory": entry_json(hit.entry)}


def _pieces(entry: "Entry") -> tuple[Any, ...]:
    status = "" if entry.status == "active" else f"  {entry.status}"
    about = f"  {entry.category} {entry.importance:.2f}{status}  "
    return (entry.id, "bold"), (about, "dim"), shortened(entry.content, _CONTENT_CHARS)


def _parts_text(hit: "Hit") -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in hit.parts.items())


# The verb that shows a board: board.


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
        raise NotFound(f"nothing is on the board of {' or '.join(named)} at seq {seq}; `refold log` shows what was set")
    if as_json:
        print_json({"seq": seq, "board": shown, "messages_meta": meta})
    else:
        _print_board(Console(), shown, meta, seq)


def _print_board(console: Console, shown: dict[str, Any], meta: dict[str, Any], seq: int) -> None:
    """Print a board, a line for each thing on it."""
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


_WAIT_SECONDS = 3_600.0


@cli.command("mirror")
@click.argument("directory", type=click.Path())
@click.option("--watch", is_flag=True, help="Go on until interrupted.")
@click.option("--check", is_flag=True, help="Only say what would be done.")
@click.option("--profile", default="default", show_default=True, metavar="NAME")
@click.option("--journal", default="default", show_default=True, metavar="NAME")
@db_option
@json_option
def mirror_command(
    *, directory: str, watch: bool, check: bool, profile: str, journal: str, db: str, as_json: bool
) -> None:
    """Keep profile and notes in files, both ways.

    DIRECTORY holds profile.json and YYYYMM/YYYYMMDD.md. What was written into them by hand becomes events, and what the
    log has is written. Both sides of a conflict are kept, and the exit code is 1 then, as for a file that cannot be
    read or written.
    """
    if watch and check:
        raise click.UsageError("--watch goes on writing, and --check writes nothing; give one of them")
    show = _shown_as(as_json=as_json)
    names: dict[str, Any] = {"profile": profile, "journal": journal}
    if check:
        report = _checked(db, directory, names)
    else:
        with writing(db) as memory:
            report = _watched(memory, directory, names, show) if watch else _once(memory, directory, names)
    if not watch:
        show(report)
    if not report.ok:
        click.get_current_context().exit(EXIT_ERROR)


def _checked(db: str, directory: str, names: dict[str, Any]) -> "MirrorReport":
    """Return what a round would do; nothing is written, not even a first time."""
    with reading(db) as memory, memory.mirror(directory, writes=False, **names) as mirror:
        return mirror.report


def _once(memory: "Memory", directory: str, names: dict[str, Any]) -> "MirrorReport":
    with memory.mirror(directory, **names) as mirror:
        return mirror.report


def _watched(
    memory: "Memory", directory: str, names: dict[str, Any], show: "Callable[[MirrorReport], None]"
) -> "MirrorReport":
    """Show each report until somebody interrupts; return the last one."""
    with memory.mirror(directory, on_report=show, **names) as mirror:
        tell(f"mirroring in {mirror.path}; ctrl-C ends it")
        _wait(mirror)
    return mirror.report


def _wait(mirror: "Mirror") -> None:
    """Wait for an interruption, or for the mirror to fail."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while mirror.is_alive:
            mirror.join(_WAIT_SECONDS)
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
    if mirror.error is not None:
        raise mirror.error


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _shown_as(*, as_json: bool) -> "Callable[[MirrorReport], None]":
    return print_json if as_json else _print_report


def _print_report(report: "MirrorReport") -> None:
    console = Console()
    for edit in report.edits:
        console.line((f"{edit.file}: ", "bold"), _edit_text(edit))
    for name in report.written:
        console.line((f"{name}: ", "bold"), "written")
    for conflict in report.conflicts:
        where = f"{conflict.file} {conflict.name}".rstrip()
        kept = f"; the hand's side is in {conflict.kept}" if conflict.kept else ""
        console.line((f"{where}: ", "bold"), (f"conflict: {conflict.reason}{kept}", "yellow"))
    for name in report.deleted:
        console.line((f"{name}: ", "bold"), "deleted, because an erasure reached its file")
    for problem in report.problems:
        console.line((f"{problem.file or 'mirror'}: ", "bold"), (problem.reason, "red"))
    if not report:
        console.line(f"in step at seq {report.seq}")


def _edit_text(edit: "MirrorEdit") -> str:
    if edit.text is None:
        return f"{edit.name} deleted"
    what = "note" if edit.kind == "append" else f"{edit.name} ="
    return f"{what} {shortened(edit.text)}"
