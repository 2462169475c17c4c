"""Verbs for a whole store: stats, verify, doctor, erase, backup, recover, move, mcp, demo."""

import shlex
from collections.abc import Iterator
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
    drawn,
    embedder_option,
    json_option,
    known_conversation,
    moment_option,
    moved,
    opened,
    reading,
    recovered,
    verb,
    writing,
)
from refold.errors import NotFound, StoreCorrupt, StoreVersion
from refold.text import counted

if TYPE_CHECKING:
    from refold import Memory, Receipt, Recorded, Report
    from refold.cli.doctor import Examination
    from refold.embedders import Embedder

_TAKEN_COUNT = 12  # Events that are listed before an erasure takes them too.
_STYLES = {"ok": "green", "warn": "yellow", "bad": "red"}


@verb("stats")
def stats(memory: "Memory") -> Output:
    """Count events, streams and bytes."""
    counts = memory.stats()
    values = {field: getattr(counts, field) for field in counts.__struct_fields__}
    texts = {field: f"{value:,}" if isinstance(value, int) else str(value) for field, value in values.items()}
    if forks := len(memory.forks()):
        texts["events"] += f"  with those of {counted(forks, 'fork')}; all else is without"
    return Output(counts, [(f"{field:<16}", (text, "bold")) for field, text in texts.items()])


@verb(
    "verify",
    click.option(
        "--witness",
        envvar="REFOLD_WITNESS",
        show_envvar=True,
        metavar="PATH",
        help="Hold the store against this witness, which shows what was cut off or rolled back.",
    ),
    click.option("--jobs", type=int, default=1, show_default=True, help="Share the work among so many processes."),
    db_option,
    opens=None,
)
def verify(db: str, witness: str | None, jobs: int) -> Output:
    """Check that a store is sound.

    Checks its chain, gaps, commitments and indexes, checkpoints against their events, and replay against live. Says
    whether it is a cache that is wrong, what a faulty writer left, or bytes that were changed, and what to do next.
    Exits with 3 if anything is not as it should be.
    """
    report = _verify(db, witness, jobs)
    return Output(report, _report_lines(report), 0 if report.ok else EXIT_INTEGRITY)


def _verify(db: str, witness: str | None, jobs: int) -> "Report":
    """Verify a store, even one that does not open: its error tells the user to run this."""
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar("verifying"))
        try:
            memory = stack.enter_context(reading(db))
        except (StoreCorrupt, StoreVersion) as error:
            from refold.engine.verify import report_of

            return report_of(db, error, progress)
        return memory.verify(progress, witness=witness, jobs=jobs)


def _report_lines(report: "Report") -> Iterator[Line]:
    for finding in report.findings:
        yield ((f"{finding.check} at seq {finding.seq}: {finding.message} ({finding.fault})", "red"),)
    result = f"sound, state hash {report.state_hash}" if report.ok else counted(len(report.findings), "finding")
    place = f", the first bad seq is {report.first_bad_seq}" if report.first_bad_seq else ""
    yield f"{counted(report.events, 'event')} in {counted(report.streams, 'stream')}: ", (result + place, "bold")
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
        help="Compare the replicas of a log on NATS: each server's monitoring port, http://host:8222.",
    ),
    opens=None,
)
def doctor(db: str, monitors: tuple[str, ...]) -> Output:
    """Say what ails a store, and what to do.

    Looks at its place, its files, its readers and writers, and changes nothing; `refold verify` looks into the events.
    Exits with 1 if something is bad, and with 3 if that is damage.
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
    click.option("--seq", "seqs", type=int, multiple=True, metavar="N", help="Erase this event; may be repeated."),
    click.option(
        "--text", metavar="TEXT", help="Erase every event that holds this, as it is written or escaped in JSON."
    ),
    click.option("--keep-derived", is_flag=True, help="Leave what was derived from it."),
    click.option("--forks", type=click.Choice(["refuse", "erase"]), default="refuse"),
    click.option("--yes", is_flag=True, help="Do not ask."),
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
    """Erase a conversation, single events, or all events that hold a text, for ever.

    Their bytes go from every file of the store, with what was derived from them, such as memories and facts, which the
    question lists; the receipt says what was reached, and where copies may be that no store can reach.
    """
    if (conversation is None) is not (bool(seqs) or text is not None):
        raise click.UsageError("erase takes a CONVERSATION, or --seq and --text")
    derived = "keep" if keep_derived else "erase"
    with writing(db) as memory:
        has_board = bool(conversation and memory.board(session=conversation).version)
        # Events that only name a conversation are erased too; but "0 events erased" is no answer to a typo.
        if conversation and not has_board and not _reached(memory, conversation, (), None, forks):
            conversation = known_conversation(memory, conversation).id
        if not yes:
            what = f"conversation {conversation}" if conversation else counted(len(seqs), "event")
            if text is not None:
                what = f"{what} and all that hold {text!r}" if seqs else f"all events that hold {text!r}"
            if not keep_derived:
                what += f", and what was derived from them ({_taken_along(memory, conversation, seqs, text, forks)}),"
            confirm(f"Erase {what} for ever?")
        if conversation:
            receipt = memory.conversation(conversation).erase(derived=derived, forks=forks)
        else:
            receipt = memory.erase(seqs, text=text, derived=derived)
        if not (receipt.seqs or seqs or receipt.named) and text is not None:
            raise NotFound(f"no event holds {text!r}, as it is written or in JSON; `refold search` finds words")
        lines = [*_receipt_lines(receipt, text)]
        if conversation and conversation in memory.tables(prefix=conversation, limit=1):
            told = f"the table {conversation} stays; memory.table({conversation!r}).erase() in Python erases it"
            lines.append(((told, "yellow"),))
    return Output(receipt, lines)


def _taken_along(
    memory: "Memory", conversation: str | None, seqs: tuple[int, ...], text: str | None, forks: str
) -> str:
    """Print to stderr the other events that an erasure would reach, and return their number as text."""
    from refold.memory.reasons import sentence_of

    taken = _reached(memory, conversation, seqs, text, forks)
    for recorded in taken[:_TAKEN_COUNT]:
        tell(f"  seq {recorded.stamp.seq} in {recorded.stamp.stream}: {sentence_of(recorded)}")
    if len(taken) > _TAKEN_COUNT:
        tell(f"  and {len(taken) - _TAKEN_COUNT} more; --keep-derived leaves them all")
    return counted(len(taken), "event") if taken else "nothing"


def _reached(
    memory: "Memory", conversation: str | None, seqs: tuple[int, ...], text: str | None, forks: str
) -> "list[Recorded]":
    from refold.memory.options import core_of
    from refold.memory.store import derived_of

    return derived_of(core_of(memory)[0], conversation, seqs, text, forks=forks == "erase")


def _receipt_lines(receipt: "Receipt", text: str | None) -> Iterator[Line]:
    erased = f"{counted(len(receipt.seqs), 'event')} erased, {len(receipt.derived)} derived from them"
    yield (erased, "bold"), *(f", now {stream}" for stream in receipt.streams)
    chats = counted(receipt.conversations, "conversation")
    yield (f"a model was shown it in {counted(receipt.turns, 'turn')} of {chats}",)
    files = counted(receipt.files, "file")
    searched = f"{receipt.markers} of their texts and values in {receipt.searched_bytes:,} bytes of {files}"
    times = counted(receipt.occurrences, "time")
    if not receipt.occurrences:
        yield f"{searched} are ", ("found no more", "green")
    elif text is not None:  # Text next to it can occur elsewhere too, such as the name of a tool.
        yield ((f"{searched} are still found {times}, where {text!r} is not, as it is written or in JSON", "yellow"),)
    else:
        yield ((f"{searched} are still found {times}, in events that were not erased", "yellow"),)
        yield ("  `refold why TEXT` says where; `refold erase --text TEXT` reaches all that hold it",)
    for name in receipt.named:
        kind, _, own = name.partition("/")
        advice = f"; memory.{kind}({own!r}).erase() in Python erases it" if kind in {"project", "table"} else ""
        if kind == "conversation":
            advice = f"; `refold erase {shlex.quote(own)}` erases it"
        yield ((f"still in the name of {name}{advice}", "yellow"),)
    if receipt.naming:
        first = f"seq {receipt.naming[0]} is the first; --json lists them"
        yield ((f"kept, naming the conversation: {counted(len(receipt.naming), 'event')}; {first}", "yellow"),)
    for place in receipt.beyond_reach:
        yield (f"beyond reach: {place}",)


@verb("backup", click.argument("path", type=click.Path()))
def backup(memory: "Memory", path: str) -> Output:
    """Copy a store while others write.

    Writes a verified copy with a manifest to PATH, where nothing may be. The copy is a store: every verb takes it.
    """
    with progress_bar("verifying the copy") as progress:
        made = memory.backup(path, progress)
    text = f"  {counted(made.head, 'event')} in {counted(made.streams, 'stream')}, {made.data_bytes:,} bytes"
    return Output(made, [((path, "bold"), text), (f"state hash {made.state_hash}",)])


@verb(
    "recover",
    click.argument("backup", type=click.Path()),
    click.argument("new", type=click.Path()),
    moment_option("--to", help="Recover it as it was then, not whole."),
    opens=None,
)
def recover(backup: str, new: str, to: Moment) -> Output:
    """Make a store of a backup or a store, as of now or then.

    Makes the store NEW, where nothing may be, of BACKUP; with --to, of its log up to a seq, or at the last event by a
    time. A seq inside a commit is refused, and the ones before and after it are named. Whatever the log gives is made
    anew from it; what a faulty writer counted or linked wrongly is put in order, and it says what that was.
    """
    with progress_bar("verifying the new store") as progress:
        made = recovered(backup, new, to=to, progress=progress)
    text = f"  the log up to seq {made.seq}: {counted(made.head, 'event')} in {counted(made.streams, 'stream')}"
    repairs: list[Line] = [(f"repaired: {repair}",) for repair in made.repairs]
    return Output(made, [((new, "bold"), text), (f"state hash {made.state_hash}",), *repairs])


@verb("move", click.argument("source", type=click.Path()), click.argument("target", type=click.Path()), opens=None)
def move(source: str, target: str) -> Output:
    """Move a memory to a server, or from there to a directory.

    SOURCE and TARGET are the path of a store and the address of a log, postgresql://… or nats://…, either way round, or
    two addresses. Others may go on writing; once all is there, whoever writes to SOURCE is told where it went. A move
    that was cut off goes on when it is called again.
    """
    from refold.log.commits import shown_address

    with progress_bar("moving the events") as progress:
        made = moved(source, target, progress=progress)
    taken = f"{counted(made.events, 'event')} in {counted(made.streams, 'stream')}"
    text = f"  {taken}; {shown_address(source)} can still be read"
    return Output(made, [((shown_address(target), "bold"), text), (f"state hash {made.state_hash}",)])


_PORT_MAX = 65_535


@cli.command("mcp")
@click.option(
    "--http",
    "http_port",
    type=click.IntRange(0, _PORT_MAX),
    metavar="PORT",
    help="Serve HTTP on 127.0.0.1; 0 takes a free port.",
)
@click.option("--conversation", metavar="ID", help="The one conversation that is served.  [default: one per session]")
@click.option("--project", metavar="NAME", help="The one project that is served.  [default: the conversation's]")
@click.option("--profile", default="default", metavar="NAME", help="The profile that is served.")
@click.option("--journal", default="default", metavar="NAME", help="The journal that is served.")
@click.option("--skills", is_flag=True, help="Offer the skills of this directory and of the user as a tool, too.")
@click.option("--library", metavar="NAME", help="The library of what was learned, with --skills.  [default: default]")
@click.option("--readonly", is_flag=True, help="Offer only what leaves no trace.")
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
    """Serve a store by the Model Context Protocol.

    Serves tools, resources and prompts to one client over stdin and stdout, or with --http to any number of them on
    this machine. The store is created if it is not there. Which conversation is meant says this command or the session,
    never the model, unless --conversation-by-model lets it. Clients that speak the protocol of 2026 over HTTP have no
    sessions and share one conversation, unless their hosts name others in _meta.
    """
    from refold.mcp import check_installed, serve
    from refold.mcp.resources import Binding

    if library is not None and not skills:
        raise click.UsageError("--library names where skills were learned; give --skills, too")
    check_installed()  # Before a store is created in vain.
    with (reading if readonly else opened)(db, embedder=embedder) as memory:
        if skills:
            from refold.skills import SkillRoots, skills_of
            from refold.skills.skills import skill_tool

            roots = SkillRoots(project=".", home=str(Path.home()))
            tool = skill_tool(skills_of(memory, roots, library=library or "default"))
            if tool is not None:  # At least one skill can be called by a model.
                memory.tools.register(tool)
        serve(Binding(memory, readonly=readonly, own=f"mcp-{drawn(8).hex()}", **bound), http_port=http_port)


@cli.command("demo")
@click.option("--db", metavar="PATH", help="Keep the store there; it must be new. REFOLD_DB is not read here.")
@click.option("--plain", is_flag=True, help="Without colour, on terminals too.")
@click.option("--cluster", is_flag=True, help="Three servers keep the log, and one is killed; needs a nats-server.")
@json_option
@click.pass_context
def demo_command(context: click.Context, *, db: str | None, plain: bool, cluster: bool, as_json: bool) -> None:
    """See in a minute what it is for.

    An agent forgets what it was told and fails. The log says when and why; in a fork from before that, it remembers and
    answers. At last a writer is killed, and a replay proves that nothing was lost.
    """
    import tempfile

    console = Console(quiet=as_json, plain=plain)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="refold-demo-")))
        if cluster:
            if db is not None:
                raise click.UsageError("--cluster keeps its log on servers of its own; leave --db out")
            from refold.cli import cluster_demo

            facts = cluster_demo.demonstrate(place, console)
        else:
            from refold.cli.demo import demonstrate

            facts = demonstrate(db or str(place / "store"), console)
    if as_json:
        print_json(facts)
    if not facts["ok"]:
        context.exit(EXIT_ERROR)
