"""Verbs for data that outlives conversations: profile, journal, files, tables and settings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from refold.cli import output
from refold.cli.output import Line
from refold.cli.root import Moment, Output, cli, memory_at, past_options, suggest_name, tell_empty, verb
from refold.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from refold import Memory
    from refold.memory import Table, TableItem


def _group(name: str, text: str) -> click.Group:
    group = click.Group(name, help=text)
    cli.add_command(group)
    return group


_at = past_options("Show the state as of this seq or time instead of now.")


# Profile.

_profile = _group("profile", "Show and change a profile: facts that every conversation sees.")
_profile_name = click.option("--name", default="default", metavar="NAME", help="The profile to use.")
_FULL = click.option("--full", is_flag=True, help="Show values in full instead of on one line.")


@verb("list", _profile_name, _FULL, _at, group=_profile)
def profile_list(memory: "Memory", name: str, at: Moment, *, full: bool) -> Output:
    """List the facts of a profile, in the order they were first set."""
    items = memory_at(memory, at).profile(name).items()
    if not items:
        tell_empty("profile", name, memory.profiles())
    return Output({"profile": name, "facts": dict(items)}, _pair_lines(items, full=full))


@verb("set", click.argument("key"), click.argument("value"), _profile_name, opens="writing", group=_profile)
def profile_set(memory: "Memory", key: str, value: str, name: str) -> Output:
    """Set a fact.

    If the fact already has this VALUE, records nothing.
    """
    head = memory.head
    memory.profile(name).set(key, value)
    document = {"profile": name, "key": key, "value": value, "changed": memory.head > head}
    return Output(document, _pair_lines([(key, value)], full=True))


@verb("delete", click.argument("key"), _profile_name, opens="writing", group=_profile)
def profile_delete(memory: "Memory", key: str, name: str) -> Output:
    """Delete a fact.

    The log keeps it.
    """
    profile = memory.profile(name)
    if not profile.delete(key):
        known = [known for known, _ in profile.items()]
        raise NotFound(
            f"profile {name} has no key {key!r}{suggest_name(key, known)}; `refold profile list` shows its keys"
        )
    return Output({"profile": name, "key": key, "deleted": True}, [(f"{key} deleted",)])


def _pair_lines(items: "list[tuple[str, Any]]", *, full: bool) -> Iterator[Line]:
    for key, value in items:
        yield from output.block((f"{output.shorten(key)} = ", "bold"), str(value), full=full)


# Journal.

_journal = _group("journal", "Show and extend a journal: notes by day.")
_journal_name = click.option("--name", default="default", metavar="NAME", help="The journal to use.")


@verb(
    "list",
    click.option("--day", metavar="YYYY-MM-DD", help="List only the notes of this day."),
    click.option(
        "--days", type=click.IntRange(min=1), default=3, metavar="N", help="List the notes of the last N days."
    ),
    _journal_name,
    _FULL,
    _at,
    group=_journal,
)
def journal_list(memory: "Memory", day: str | None, days: int, name: str, at: Moment, *, full: bool) -> Output:
    """List the notes of recent days or of one day, oldest first."""
    journal = memory_at(memory, at).journal(name)
    notes = journal.recent(days) if day is None else journal.day(day)
    if not notes and name not in memory.journals():
        tell_empty("journal", name, memory.journals())
    rows = [{"day": note.day, "text": note.text, "time_ns": note.time_ns} for note in notes]
    lines = (line for note in notes for line in output.block((f"{note.day}  ", "bold"), note.text, full=full))
    return Output({"journal": name, "notes": rows}, lines)


@verb(
    "append",
    click.argument("text"),
    click.option("--day", metavar="YYYY-MM-DD", help="File the note under this day instead of today."),
    _journal_name,
    opens="writing",
    group=_journal,
)
def journal_append(memory: "Memory", text: str, day: str | None, name: str) -> Output:
    """Append a note to a journal."""
    note = memory.journal(name).append(text, day=day)
    document = {"journal": name, "day": note.day, "text": note.text, "time_ns": note.time_ns}
    return Output(document, output.block((f"{note.day}  ", "bold"), note.text, full=True))


# Files.

_files = _group("files", "Show the files that a model keeps under /memories.")
_files_name = click.option("--name", default="default", metavar="NAME", help="The tree of files to use.")


@verb("list", _files_name, _at, group=_files)
def files_list(memory: "Memory", name: str, at: Moment) -> Output:
    """List the files with their sizes."""
    files = memory_at(memory, at).files(name).list()
    rows = [{"path": file.path, "size_bytes": file.size_bytes, "seq": file.seq} for file in files]
    lines = [((f"{row['size_bytes']:>9,}  ", "dim"), (str(row["path"]), "bold")) for row in rows]
    return Output({"files": rows}, lines)


@verb("show", click.argument("path"), _files_name, _at, group=_files)
def files_show(memory: "Memory", path: str, name: str, at: Moment) -> Output:
    """Print a file."""
    files = memory_at(memory, at).files(name)
    try:
        text = files.read(path)
    except NotFound as error:
        close = suggest_name(path, [file.path for file in files.list()])
        raise NotFound(f"there is no file {path}{close}; `refold files list` shows the existing ones") from error
    return Output({"path": path, "text": text}, [(line,) for line in text.split("\n")])


# Tables.

_tables = _group("table", "Show the tables in which programs keep their own records.")


@verb(
    "list",
    click.argument("name", required=False),
    click.option(
        "--prefix",
        default="",
        show_default=False,
        metavar="TEXT",
        help="List only keys that begin with this; write a key of several parts as A/B.",
    ),
    click.option(
        "--limit", type=click.IntRange(min=1), default=50, metavar="N", help="List at most N items.", show_default=True
    ),
    _FULL,
    _at,
    group=_tables,
)
def table_list(memory: "Memory", name: str | None, prefix: str, limit: int, at: Moment, *, full: bool) -> Output:
    """List the tables, or the items of one table.

    Lists the items of the table NAME in the order of their keys.
    """
    then = memory_at(memory, at)
    if name is None:
        counts = {known: then.table(known).count() for known in then.tables()}
        return Output(
            {"tables": counts}, [((f"{count:>9,}  ", "dim"), (known, "bold")) for known, count in counts.items()]
        )
    table = _find_table(then, name)
    begin = tuple(prefix.split("/")) if "/" in prefix else prefix
    items, count = table.scan(begin, limit=limit), table.count(begin)
    lines = list(_pair_lines([("/".join(_parts(item)), _json_of(item)) for item in items], full=full))
    if count > len(items):
        lines.append(((f"{count - len(items):,} more; see them with --limit or --prefix", "dim"),))
    return Output({"table": name, "count": count, "items": list(map(_item_json, items))}, lines)


@verb("show", click.argument("name"), click.argument("key", nargs=-1, required=True), _at, group=_tables)
def table_show(memory: "Memory", name: str, key: tuple[str, ...], at: Moment) -> Output:
    """Show every value that a key of a table ever had.

    Shows all that was ever put under KEY in the table NAME, in full, oldest first. Several KEY arguments are the parts
    of one key.
    """
    table = _find_table(memory_at(memory, at), name)
    items = table.history(key) or (table.history(tuple(key[0].split("/"))) if len(key) == 1 else [])  # As listed.
    if not items:
        known = table.keys()
        close = suggest_name("/".join(key), ["/".join(each) if isinstance(each, tuple) else each for each in known])
        raise NotFound(f"table {name} has no key {'/'.join(key)!r}{close}; `refold table list {name}` shows its keys")
    lines = [line for item in items for line in output.block((f"{item.seq:>6}  ", "dim"), _json_of(item), full=True)]
    return Output({"table": name, "items": list(map(_item_json, items))}, lines)


def _find_table(memory: "Memory", name: str) -> "Table":
    known = memory.tables()
    if name not in known:
        raise NotFound(
            f"there is no table {name!r}{suggest_name(name, known)}; `refold table list` shows the existing ones"
        )
    return memory.table(name)


def _parts(item: "TableItem") -> tuple[str, ...]:
    return item.key if isinstance(item.key, tuple) else (item.key,)


def _item_value(item: "TableItem") -> Any:
    from refold.engine.jsonl import value_to_json

    return value_to_json(item.value)


def _json_of(item: "TableItem") -> str:
    return output.json_text(_item_value(item))


def _item_json(item: "TableItem") -> dict[str, Any]:
    return {
        "key": list(_parts(item)),
        "value": _item_value(item),
        "seq": item.seq,
        "time_ns": item.time_ns,
        "expires_ns": item.expires_ns,
    }


# Settings.

_settings = _group("settings", "Show and change the settings of a store.")


@verb("list", _at, group=_settings)
def settings_list(memory: "Memory", at: Moment) -> Output:
    """List all settings with their values."""
    items = memory_at(memory, at).settings.items()
    lines = [((f"{name} = ", "bold"), output.json_text(value)) for name, value in items]
    return Output({"settings": dict(items)}, lines)


@verb("set", click.argument("key"), click.argument("value"), opens="writing", group=_settings)
def settings_set(memory: "Memory", key: str, value: str) -> Output:
    """Change a setting.

    VALUE is true, false or a whole number.
    """
    known = [name for name, _ in memory.settings.items()]
    if key not in known:
        close = suggest_name(key, known)
        raise NotFound(f"there is no setting {key!r}{close}; `refold settings list` shows the existing ones")
    switch = {"true": True, "false": False}.get(value.lower())
    if switch is None and not value.isdecimal():
        raise InvalidInput(f"{key} cannot be {value!r}; give true, false or a whole number")
    chosen = int(value) if switch is None else switch
    memory.settings.set(key, chosen)
    return Output({"key": key, "value": chosen}, [((f"{key} = ", "bold"), output.json_text(chosen))])
