"""The verb that erases."""

from typing import TYPE_CHECKING

import click

from refold.errors import InvalidInput
from refold.faces.commands.root import cli, db_option, json_option
from refold.faces.console import Console, print_json
from refold.faces.reproducible import writing

if TYPE_CHECKING:
    from refold import Receipt


@cli.command("erase")
@click.argument("conversation", required=False)
@click.option("--seq", "seqs", type=int, multiple=True, metavar="N", help="Erase this event; may be repeated.")
@click.option("--keep-derived", is_flag=True, help="Leave what was derived from it.")
@click.option("--forks", type=click.Choice(["refuse", "erase"]), default="refuse", show_default=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@db_option
@json_option
def erase_command(
    *,
    conversation: str | None,
    seqs: tuple[int, ...],
    keep_derived: bool,
    forks: str,
    yes: bool,
    db: str,
    as_json: bool,
) -> None:
    """Erase a conversation, or single events, for ever.

    Their bytes go from every file of the store, with what was derived from them; the receipt says what was reached, and
    where copies may be that no store can reach.
    """
    if bool(conversation) == bool(seqs):
        message = "erase takes a CONVERSATION or --seq, one of the two"
        raise InvalidInput(message)
    derived = "keep" if keep_derived else "erase"
    with writing(db) as memory:
        if not yes:
            click.confirm(f"Erase {conversation or f'{len(seqs)} events'} for ever?", abort=True, err=True)
        if conversation:
            receipt = memory.conversation(conversation).erase(derived=derived, forks=forks)
        else:
            receipt = memory.erase(seqs, derived=derived)
    if as_json:
        print_json(receipt)
    else:
        _show(receipt)


def _show(receipt: "Receipt") -> None:
    console = Console()
    erased = f"{len(receipt.seqs)} events erased, {len(receipt.derived)} derived from them"
    console.line((erased, "bold"), *(f", now {stream}" for stream in receipt.streams))
    console.line(
        f"{receipt.markers} texts and values looked for in {receipt.searched_bytes:,} bytes of {receipt.files} files: ",
        (f"found {receipt.occurrences} times", "green" if not receipt.occurrences else "yellow"),
    )
    for place in receipt.beyond_reach:
        console.line(f"beyond reach: {place}")
