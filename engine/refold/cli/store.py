"""Verbs for a whole store: stats, verify, doctor, erase, backup, recover, move, mcp, demo."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from refold.cli import EXIT_ERROR, EXIT_INTEGRITY
from refold.cli.output import Console, Line, print_json, progress_bar, tell
from refold.cli.root import (
    Moment,
    Output,
    cli,
    confirm,
    db_option,
    draw_bytes,
    embedder_option,
    find_conversation,
    fixed_options,
    json_option,
    moment_option,
    name_damage,
    open_for_reading,
    open_for_writing,
    open_memory,
    verb,
)
from refold.errors import NotFound, StoreCorrupt, StoreVersion
from refold.text import pluralize

if TYPE_CHECKING:
    from refold import Memory, Receipt, Recorded, Report
    from refold.cli.doctor import Examination
    from refold.embedders import Embedder
    from refold.memory.store import Extent

_LISTED_COUNT = 12  # Events of each kind that are listed before an erasure.
_STYLES = {"ok": "green", "warn": "yellow", "bad": "red"}


@verb("stats")
def stats(memory: "Memory") -> Output:
    """Count events, streams and bytes."""
    counts = memory.stats()
    values = {field: getattr(counts, field) for field in counts.__struct_fields__}
    texts = {field: f"{value:,}" if isinstance(value, int) else str(value) for field, value in values.items()}
    if forks := len(memory.forks()):
        texts["events"] += f"  including {pluralize(forks, 'fork')}; the other counts exclude forks"
    return Output(counts, [(f"{field:<16}", (text, "bold")) for field, text in texts.items()])


@verb(
    "verify",
    click.option(
        "--witness",
        envvar="REFOLD_WITNESS",
        show_envvar=True,
        metavar="PATH",
        help="Also check the store against this witness, which reveals truncation and rollback.",
    ),
    click.option(
        "--jobs", type=int, default=1, show_default=True, metavar="N", help="Split the work among N processes."
    ),
    db_option,
    opens=None,
)
def verify(db: str, witness: str | None, jobs: int) -> Output:
    """Verify the integrity of a store.

    Checks the hash chain, gaps, commitments and indexes, compares checkpoints with their events, and compares a replay
    of the log with the live state. Distinguishes a wrong cache, errors of a faulty writer and changed bytes, and says
    what to do next. Exits with 3 if anything is wrong.
    """
    report = _verify(db, witness, jobs)
    return Output(report, _report_lines(report), 0 if report.ok else EXIT_INTEGRITY)


def _verify(db: str, witness: str | None, jobs: int) -> "Report":
    """Verify a store, even one that does not open: its error tells the user to run this."""
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar("verifying"))
        try:
            memory = stack.enter_context(open_for_reading(db))
        except (StoreCorrupt, StoreVersion) as error:
            from refold.engine.verify import report_of

            return report_of(db, error, progress)
        return memory.verify(progress, witness=witness, jobs=jobs)


def _report_lines(report: "Report") -> Iterator[Line]:
    for finding in report.findings:
        yield ((f"{finding.check} at seq {finding.seq}: {finding.message} ({finding.fault})", "red"),)
    result = f"sound, state hash {report.state_hash}" if report.ok else pluralize(len(report.findings), "finding")
    place = f", the first bad seq is {report.first_bad_seq}" if report.first_bad_seq else ""
    yield f"{pluralize(report.events, 'event')} in {pluralize(report.streams, 'stream')}: ", (result + place, "bold")
    if not report.ok:
        yield (report.summary,)


@verb(
    "doctor",
    db_option,
    click.option(
        "--monitor",
        "monitors",
        multiple=True,
        metavar="URL",
        help="Compare the replicas of a log on NATS; give the monitoring URL (http://host:8222) of each server.",
    ),
    opens=None,
)
def doctor(db: str, monitors: tuple[str, ...]) -> Output:
    """Diagnose a store and suggest the next step.

    Examines its location, files, readers and writers, without changing anything; `refold verify` checks the events.
    Exits with 1 if a check fails, or with 3 if the store is damaged.
    """
    from refold.cli.doctor import examine

    examination = examine(db, monitors)
    return Output(examination, _examination_lines(examination), examination.exit_code)


def _examination_lines(examination: "Examination") -> Iterator[Line]:
    for check in examination.checks:
        yield (f"{check.state:<5}", _STYLES[check.state]), f" {check.name:<12} {check.message}"
        if check.next_step:
            yield (f"{'':<18} {check.next_step}",)


@verb(
    "erase",
    click.argument("conversation", required=False),
    click.option("--seq", "seqs", type=int, multiple=True, metavar="N", help="Erase this event; repeatable."),
    click.option(
        "--text",
        metavar="TEXT",
        help="Erase every event that contains TEXT, in its case and Unicode normal form, as is or escaped in JSON.",
    ),
    click.option("--keep-derived", is_flag=True, help="Keep what was derived from the erased events."),
    click.option(
        "--forks",
        type=click.Choice(["refuse", "erase"]),
        default="refuse",
        help="If CONVERSATION has forks, refuse to erase it, or erase them too.",
    ),
    click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
    db_option,
    opens=None,
)
def erase(
    db: str,
    conversation: str | None,
    seqs: tuple[int, ...],
    text: str | None,
    forks: str,
    *,
    keep_derived: bool,
    yes: bool,
) -> Output:
    """Erase a conversation, events, or a text, irreversibly.

    Removes their bytes from every file of the store, with what was derived from them, such as memories and facts. Lists
    the events that contain TEXT and what was derived, and asks before erasing. The receipt says what was reached, and
    where copies may be that no store can reach.
    """
    if (conversation is None) is not (bool(seqs) or text is not None):
        raise click.UsageError("erase takes a CONVERSATION, or --seq and --text")
    derived = "keep" if keep_derived else "erase"
    with open_for_writing(db) as memory:
        has_board = bool(conversation and memory.board(session=conversation).version)
        # Events that only name a conversation are erased too; but "0 events erased" is no answer to a typo.
        if conversation and not has_board and not _extent(memory, conversation, (), None, forks).derived:
            conversation = find_conversation(memory, conversation).id
        if not yes:
            extent = _extent(memory, conversation, seqs, text, forks)
            if extent.seqs or text is None:  # Otherwise no event contains the text.
                confirm(_question(memory, conversation, seqs, text, extent, derived))
        if conversation:
            receipt = memory.conversation(conversation).erase(derived=derived, forks=forks)
        else:
            receipt = memory.erase(seqs, text=text, derived=derived)
        if not (receipt.seqs or seqs or receipt.named) and text is not None:
            raise NotFound(f"no event contains {text!r}, as is or escaped in JSON; `refold search` finds words")
        lines = [*_receipt_lines(receipt, text)]
        if conversation and conversation in memory.tables(prefix=conversation, limit=1):
            hint = f"the table {conversation} stays; memory.table({conversation!r}).erase() in Python erases it"
            lines.append(((hint, "yellow"),))
    return Output(receipt, lines)


def _question(
    memory: "Memory", conversation: str | None, seqs: tuple[int, ...], text: str | None, extent: "Extent", derived: str
) -> str:
    """Print to stderr the first events that contain a text, and those derived; return the question to ask."""
    from refold.memory.core import core_of

    what = f"conversation {conversation}" if conversation else pluralize(len(seqs), "event")
    if text is not None:
        count = len(extent.seqs)
        _list_events([core_of(memory)[0].event(seq) for seq in extent.seqs[:_LISTED_COUNT]], count, text=text)
        relation = "given or found to contain" if seqs else f"that contain{'s' if count == 1 else ''}"
        what = f"the {pluralize(count, 'event')} {relation} {text!r}"
    if derived == "erase":
        also = pluralize(len(extent.derived), "event") if extent.derived else "nothing"
        what += f", and what was derived from them ({also}),"
        if text is not None and extent.derived:
            tell("and derived from them:")
        _list_events(extent.derived, len(extent.derived), "; --keep-derived leaves them all")
    return f"Erase {what} for ever?"


def _list_events(events: "Sequence[Recorded]", count: int, advice: str = "", *, text: str | None = None) -> None:
    """Print the first of so many events to stderr, and whether only the metadata of a message holds the text."""
    from refold.memory.reasons import sentence_of
    from refold.memory.subjects import is_in_metadata

    for recorded in events[:_LISTED_COUNT]:
        place = " (in its metadata)" if text and is_in_metadata(recorded, text) else ""
        tell(f"  seq {recorded.stamp.seq} in {recorded.stamp.stream}: {sentence_of(recorded)}{place}")
    if count > _LISTED_COUNT:
        tell(f"  and {count - _LISTED_COUNT} more{advice}")


def _extent(
    memory: "Memory", conversation: str | None, seqs: tuple[int, ...], text: str | None, forks: str
) -> "Extent":
    from refold.memory.core import core_of
    from refold.memory.store import extent_of

    return extent_of(core_of(memory)[0], conversation, seqs, text, forks=forks == "erase")


def _receipt_lines(receipt: "Receipt", text: str | None) -> Iterator[Line]:
    erased = f"{pluralize(len(receipt.seqs), 'event')} erased, {len(receipt.derived)} derived from them"
    yield (erased, "bold"), *(f", renamed to {stream}" for stream in receipt.streams)
    chats = pluralize(receipt.conversations, "conversation")
    yield (f"shown to a model in {pluralize(receipt.turns, 'turn')} of {chats}",)
    files = pluralize(receipt.files, "file")
    searched = f"searched {receipt.searched_bytes:,} bytes of {files} for {receipt.markers} of their texts and values: "
    times = pluralize(receipt.occurrences, "time")
    if not receipt.occurrences:
        yield searched, ("none found", "green")
    elif text is not None:  # What other events hold too was not searched for.
        names = "in the names below, or " if receipt.named else ""
        place = f"in no event; look {names}for other files in the store's directory"
        yield ((f"{searched}still found {times}, {place}", "yellow"),)
    else:
        yield ((f"{searched}still found {times}, as events that were not erased say or name the same", "yellow"),)
        yield ("  `refold why WORDS`, with words of what was erased, shows where they still are",)
        yield ("  `refold erase --text TEXT` erases every event that contains TEXT",)
        if receipt.unexplained:
            place = "in no event; look for other files in the store's directory"
            yield ((f"  {receipt.unexplained} of these {place}", "yellow"),)
    for name in receipt.named:
        kind, _, own = name.partition("/")
        advice = f"; memory.{kind}({own!r}).erase() in Python erases it" if kind in {"project", "table"} else ""
        if kind == "conversation":
            advice = f"; `refold erase {shlex.quote(own)}` erases it"
        yield ((f"still in the name of {name}{advice}", "yellow"),)
    for stream, path in receipt.rewritten:
        yield (f"written once more without it: {path} in {stream}",)
    if receipt.naming:
        first = f"the first is seq {receipt.naming[0]}; --json lists them"
        yield ((f"kept {pluralize(len(receipt.naming), 'event')} naming the conversation; {first}", "yellow"),)
    for place in receipt.beyond_reach:
        yield (f"beyond reach: {place}",)


@verb("backup", click.argument("path", type=click.Path()))
def backup(memory: "Memory", path: str) -> Output:
    """Copy a store while it is in use.

    Writes a verified copy with a manifest to PATH, which must not exist. The copy is a store that every command can
    open.
    """
    with progress_bar("verifying the copy") as progress:
        copy = memory.backup(path, progress)
    text = f"  {pluralize(copy.head, 'event')} in {pluralize(copy.streams, 'stream')}, {copy.data_bytes:,} bytes"
    return Output(copy, [((path, "bold"), text), (f"state hash {copy.state_hash}",)])


@verb(
    "recover",
    click.argument("backup", type=click.Path()),
    click.argument("new", type=click.Path()),
    moment_option("--to", help="Recover the state as of this seq or time instead of all of it."),
    opens=None,
)
def recover_command(backup: str, new: str, to: Moment) -> Output:
    """Make a new store from a backup or another store.

    Creates NEW, which must not exist, from BACKUP; with --to, from its log up to a seq, or up to the last event by a
    time. Refuses a seq inside a commit, and names the seqs around it. Rebuilds everything that is derived from the log.
    Repairs what a faulty writer counted or linked wrongly, and lists the repairs.
    """
    from refold import recover

    with progress_bar("verifying the new store") as progress, name_damage(backup):
        recovered = recover(backup, new, to=to, progress=progress, **fixed_options())
    counts = f"{pluralize(recovered.head, 'event')} in {pluralize(recovered.streams, 'stream')}"
    text = f"  the log up to seq {recovered.seq}: {counts}"
    repairs: list[Line] = [(f"repaired: {repair}",) for repair in recovered.repairs]
    return Output(recovered, [((new, "bold"), text), (f"state hash {recovered.state_hash}",), *repairs])


@verb("move", click.argument("source", type=click.Path()), click.argument("target", type=click.Path()), opens=None)
def move_command(source: str, target: str) -> Output:
    """Move a memory between a directory and a server.

    SOURCE and TARGET are the path of a store and the address of a log (postgresql://… or nats://…), in either order, or
    two addresses. Others can write meanwhile; once everything has moved, writes to SOURCE fail with an error that names
    TARGET. To continue an interrupted move, run it again.
    """
    from refold import move
    from refold.log.commits import hide_password

    with progress_bar("moving the events") as progress:
        moved = move(source, target, progress=progress, **fixed_options())
    counts = f"{pluralize(moved.events, 'event')} in {pluralize(moved.streams, 'stream')}"
    text = f"  {counts}; {hide_password(source)} can still be read"
    return Output(moved, [((hide_password(target), "bold"), text), (f"state hash {moved.state_hash}",)])


_PORT_MAX = 65_535


@cli.command("mcp")
@click.option(
    "--http",
    "http_port",
    type=click.IntRange(0, _PORT_MAX),
    metavar="PORT",
    help="Serve HTTP on this port of 127.0.0.1 instead of stdio; 0 picks a free port.",
)
@click.option("--conversation", metavar="ID", help="Serve only this conversation.  [default: one per session]")
@click.option("--project", metavar="NAME", help="Serve only this project.  [default: the conversation's]")
@click.option("--profile", default="default", metavar="NAME", help="The profile to serve.")
@click.option("--journal", default="default", metavar="NAME", help="The journal to serve.")
@click.option("--skills", is_flag=True, help="Also offer the skills of this directory and of the user as a tool.")
@click.option("--library", metavar="NAME", help="With --skills, the library of learned skills.  [default: default]")
@click.option("--readonly", is_flag=True, help="Offer only what records nothing.")
@click.option(
    "--conversation-by-model", "asks_model", is_flag=True, help="Let the model name the conversation of a call."
)
@embedder_option
@db_option
def mcp_command(
    *,
    http_port: int | None,
    skills: bool,
    library: str | None,
    embedder: "Embedder | None",
    db: str,
    readonly: bool,
    **bound: Any,
) -> None:
    """Serve a store over the Model Context Protocol.

    Serves tools, resources and prompts to one client over stdin and stdout, or with --http to any number of clients on
    this machine. Creates the store if it does not exist, unless --readonly is given.

    The conversation is the one given here or that of the client's session; the model cannot choose it, unless
    --conversation-by-model is given. HTTP clients that speak the 2026 version of the protocol have no sessions and
    share one conversation, unless their hosts name others in _meta.
    """
    from refold.mcp import check_installed, serve
    from refold.mcp.resources import Binding

    if library is not None and not skills:
        raise click.UsageError("--library is for learned skills; give --skills too")
    check_installed()  # Before a store is created in vain.
    with (open_for_reading if readonly else open_memory)(db, embedder=embedder) as memory:
        if skills:
            from refold.skills import SkillRoots, skills_of
            from refold.skills.skills import skill_tool

            roots = SkillRoots(project=".", home=str(Path.home()))
            tool = skill_tool(skills_of(memory, roots, library=library or "default"))
            if tool is not None:  # At least one skill can be called by a model.
                memory.tools.register(tool)
        serve(Binding(memory, readonly=readonly, own=f"mcp-{draw_bytes(8).hex()}", **bound), http_port=http_port)


@cli.command("demo")
@click.option("--db", metavar="PATH", help="Keep the demo's store at PATH, which must be new. REFOLD_DB is ignored.")
@click.option("--plain", is_flag=True, help="Print without colour, even on a terminal.")
@click.option("--cluster", is_flag=True, help="Keep the log on three servers and kill one of them; needs nats-server.")
@json_option
@click.pass_context
def demo_command(context: click.Context, *, db: str | None, plain: bool, cluster: bool, as_json: bool) -> None:
    """Show in a minute what refold is for.

    An agent forgets what it was told and fails. The log shows when and why; in a fork from before that point, the agent
    remembers and answers. Finally a writer is killed, and a replay proves that nothing was lost.
    """
    import tempfile

    console = Console(quiet=as_json, plain=plain)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="refold-demo-")))
        if cluster:
            if db is not None:
                raise click.UsageError("--cluster keeps its log on its own servers; leave --db out")
            from refold.cli import cluster_demo

            facts = cluster_demo.demonstrate(place, console)
        else:
            from refold.cli.demo import demonstrate

            facts = demonstrate(db or str(place / "store"), console)
    if as_json:
        print_json(facts)
    if not facts["ok"]:
        context.exit(EXIT_ERROR)
