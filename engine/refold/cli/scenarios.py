"""The verb that shows a store under other policies: what-if."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from refold.cli import output
from refold.cli.output import Line
from refold.cli.root import Moment, Output, find_conversation, moment_option, seq_of, verb

if TYPE_CHECKING:
    from refold import Conversation, Memory
    from refold.memory.scenario import Scenario

_SHOWN_COUNT = 20


@verb(
    "what-if",
    click.argument("conversation", required=False),
    click.option(
        "--window-tokens",
        "budgets",
        type=click.IntRange(1),
        multiple=True,
        metavar="N",
        help="Use this token budget; repeatable.",
    ),
    click.option(
        "--eviction",
        "evictions",
        multiple=True,
        metavar="NAME",
        help="Use this policy: fifo, least-recalled, least-important, fifo-recall or summary; repeatable.",
    ),
    click.option("--ranking", metavar="NAME", help="Use this ranking for searches and recalls."),
    click.option(
        "--dedupe", type=click.FloatRange(0, 1), metavar="COSINE", help="Undo merges whose cosine does not exceed this."
    ),
    click.option(
        "--without",
        "seqs",
        type=click.IntRange(1),
        multiple=True,
        metavar="SEQ",
        help="Leave out this event; repeatable.",
    ),
    moment_option("--until", help="Use only events up to this seq or time.  [default: the head]"),
)
def what_if(
    memory: "Memory",
    conversation: str | None,
    budgets: Sequence[int],
    evictions: Sequence[str],
    ranking: str | None,
    dedupe: float | None,
    seqs: Sequence[int],
    until: Moment,
) -> Output:
    """Show what other policies would have changed.

    With several budgets or evictions, compares all pairs in one pass: how many windows differ from those of the log,
    and how many messages were needed after they had left (regret). With one, lists the windows, memories and recalls
    that differ, and what was needed; with CONVERSATION, only its differences, and its window. Nothing is written.
    """
    chat = None if conversation is None else find_conversation(memory, conversation)
    end = seq_of(memory, until)
    pairs = list(product(budgets or (None,), evictions or (None,)))
    scenarios = memory.sweep(
        [
            memory.what_if(
                window_tokens=budget, eviction=eviction, ranking=ranking, dedupe=dedupe, until=end, without=seqs
            )
            for budget, eviction in pairs
        ]
    )
    documents = [_document(scenario, chat) for scenario in scenarios]
    if len(scenarios) == 1:
        return Output(documents[0], _details(documents[0], scenarios[0], chat))
    return Output({"scenarios": documents}, _table(documents))


def _document(scenario: "Scenario", chat: "Conversation | None") -> dict[str, Any]:
    diff, regret = scenario.diff(), scenario.regret()
    windows = [each for each in diff.windows if chat is None or each.conversation == chat.id]
    document: dict[str, Any] = {
        "settings": scenario.settings(),
        "until": scenario.memory.head,
        "windows": windows,
        "memories": diff.memories if chat is None else [],
        "recalls": diff.recalls if chat is None else [],
        "regret": [each for each in regret if chat is None or each.conversation == chat.id],
        "state_hash": scenario.state_hash(),
    }
    if chat is not None:
        document["window"] = [message.seq for message in scenario.conversation(chat.id).window()]
    return document


def _table(documents: list[dict[str, Any]]) -> Iterator[Line]:
    yield ((f"{'budget':>10}  {'eviction':<16}{'windows that differ':>20}{'regret':>10}", "bold"),)
    for document in documents:
        settings = document["settings"]
        budget, eviction = settings.get("window_tokens", "unchanged"), settings.get("eviction", "unchanged")
        yield f"{budget:>10}  {eviction:<16}{len(document['windows']):>20,}{len(document['regret']):>10,}"


def _details(document: dict[str, Any], scenario: "Scenario", chat: "Conversation | None") -> Iterator[Line]:
    settings = {name: value for name, value in document["settings"].items() if name != "without"}
    policies = ", ".join(f"{name} {value}" for name, value in settings.items()) or "the policies of the log"
    if left_out := document["settings"].get("without"):
        policies += f", without seq {', '.join(map(str, left_out))}"
    yield ((f"with {policies}, up to seq {document['until']}", "bold"),)
    for each in document["windows"][:_SHOWN_COUNT]:
        parts = [f"{len(seqs):,} {what}" for seqs, what in ((each.added, "more"), (each.missing, "fewer")) if seqs]
        difference = ", ".join(parts) or "in another order"
        since = f", since seq {each.since}" if each.since else ""
        yield f"window of {output.shorten(each.conversation)}: {difference}{since}"
    for change in document["memories"][:_SHOWN_COUNT]:
        yield output.shorten(str(change))
    for recall in document["recalls"][:_SHOWN_COUNT]:
        yield f"recall at seq {recall.seq} in {output.shorten(recall.project)}: {output.shorten(recall.query)}"
        yield f"  {' '.join(recall.before)} -> {' '.join(recall.after)}"
    for regret in document["regret"][:_SHOWN_COUNT]:
        where = output.shorten(regret.conversation)
        yield f"seq {regret.seq} of {where} had left when seq {regret.needed_seq} needed it: {regret.reason}"
    counts = {name: len(document[name]) for name in ("windows", "memories", "recalls", "regret")}
    if not any(counts.values()):
        same = "no window, memory or recall would change" if chat is None else "the window would not change"
        yield f"{same}, and no message was needed after it had left"
    elif max(counts.values()) > _SHOWN_COUNT:
        yield ((f"in total {', '.join(f'{count:,} {name}' for name, count in counts.items())}; --json has all", "dim"),)
    if chat is not None:
        yield ((f"the window of {output.shorten(chat.id)} would be", "bold"),)
        for message in scenario.conversation(chat.id).window():
            head = f"seq {message.seq}  "
            yield f"{head}{output.message_text(message, output.free_columns(len(head)))}"
