"""The verbs that carry sessions in and out: import and export."""

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from refold.errors import NotFound
from refold.faces.commands.root import cli, db_option, json_option
from refold.faces.console import Console, print_json, progress_bar, tell
from refold.faces.embedding import embedder_option
from refold.faces.reproducible import opened, reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from refold import Embedder, Memory
    from refold.recorders import Imported, ImportedMemories

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
        message = "--project says where memories go; give it with --facts"
        raise click.UsageError(message)
    from refold.recorders import format_of, memory_format_of

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
    from refold.recorders import import_file, import_memories

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
    from refold.recorders import export_openai
    from refold.recorders.log import export_lines

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
        message = f"the directory {path.parent} of the export does not exist; create it first"
        raise NotFound(message)
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=".refold-export-", delete=False) as file:
        partial = Path(file.name)
        try:
            written = _write(memory, file, format_name)
            partial.replace(path)
        except BaseException:
            partial.unlink()
            raise
    return written
