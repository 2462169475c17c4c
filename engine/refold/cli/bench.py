"""The verbs that measure: bench retrieval, bench eviction. They report, and write to no store."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from refold.cli.output import Console, print_json, progress_bar
from refold.cli.root import FunctionType, cli, json_option
from refold.errors import InvalidInput

if TYPE_CHECKING:
    from refold.evaluation.eviction import Eviction
    from refold.evaluation.retrieval import Embedded, Figures, System


_EMBEDDERS = ("hashed", "minilm", "wordllama")
"""Written out, so that the help loads nothing; a test compares."""

_NAME_CHARS = 30
_KILO = 1_024


@cli.group("bench")
def bench_group() -> None:
    """Measure retrieval and eviction on recorded conversations.

    On LoCoMo, BEAM, LongMemEval and recorded sessions, or on a store of one's own. Nothing is written to any store.
    """


def _source_options(function: FunctionType) -> FunctionType:
    """Add what is measured on."""
    for option in (
        click.option(
            "--vectors",
            type=click.Path(path_type=Path),
            metavar="FOLDER",
            help="Take vectors from its two .npy files, of items and of questions, instead of an embedder's.",
        ),
        click.option("--embedder", type=click.Choice(_EMBEDDERS), default="hashed", show_default=True),
        click.option(
            "--queries",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help='Label by JSON lines: {"query": TEXT, "seqs": [N, ...]}, or "ids" of messages or memories.',
        ),
        click.option(
            "--data",
            envvar="REFOLD_DB",
            show_envvar=True,
            required=True,
            type=click.Path(path_type=Path),
            metavar="PATH",
            help="A file of sessions, or the directory of a store.",
        ),
    ):
        function = option(function)
    return function


def _embedded(data: Path, queries: Path | None, embedder: str, vectors: Path | None) -> "list[Embedded]":
    """Return the cases of a path with their vectors."""
    from refold.evaluation.cases import cases_of
    from refold.evaluation.retrieval import EMBEDDERS, embedded, stored

    with progress_bar("reading") as progress:
        cases = cases_of(data, queries, progress)
    if not cases:
        raise InvalidInput(
            f"{data} has no conversation with messages; give a file of sessions or a store that has some"
        )
    if vectors is not None:
        return stored(cases, vectors)
    with progress_bar("embedding") as progress:
        return embedded(cases, EMBEDDERS[embedder](), progress)


@bench_group.command("retrieval")
@_source_options
@click.option("--ranking", "rankings", multiple=True, metavar="NAME", help="Only these; repeat. All by default.")
@click.option("--depth", type=click.IntRange(1), default=10, show_default=True, metavar="K", help="Recall at so many.")
@click.option("--by-category", is_flag=True, help="The figures of each category, too.")
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="FIELD=V,V,...",
    help="Try every combination of these values of a ranking's fields, in one pass; repeat.",
)
@json_option
def retrieval_command(
    *,
    data: Path,
    queries: Path | None,
    embedder: str,
    vectors: Path | None,
    rankings: tuple[str, ...],
    depth: int,
    by_category: bool,
    sweeps: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure how much of what answers a question each ranking finds.

    Shows the recall of the evidence among the first K with its 95 % interval over the questions, the part of the
    questions with all of it, and the mean reciprocal rank. With --sweep, the settings of one ranking, the best first.
    """
    from refold.evaluation.retrieval import ALL

    embedded = _embedded(data, queries, embedder, vectors)
    counted = sum(bool(question.evidence) for each in embedded for question in each.case.questions)
    if not counted:
        raise InvalidInput(f"{data} has no question with known evidence; label its conversations with --queries FILE")
    found = _swept(embedded, rankings, sweeps, depth) if sweeps else _compared(embedded, rankings, depth)
    shown = [each for each in found if by_category or each.category == ALL]
    told = {"data": data.name, "vectors": "stored" if vectors else embedder, "depth": depth}
    if as_json:
        print_json(told | {"cases": len(embedded), "questions": counted, "figures": shown})
        return
    _print_figures(shown, depth, f"{counted} questions, {len(embedded)} conversations, vectors: {told['vectors']}")


def _compared(embedded: "list[Embedded]", rankings: tuple[str, ...], depth: int) -> "list[Figures]":
    from refold.evaluation.retrieval import answers, figures

    chosen = _systems(rankings)
    found: list[Figures] = []
    with progress_bar("ranking") as progress:
        for done, system in enumerate(chosen, 1):
            found += figures(system.name, answers(embedded, system), depth)
            if progress:
                progress(done, len(chosen))
    return found


def _systems(names: tuple[str, ...]) -> "list[System]":
    """Return what stands under the names, all where none is given."""
    from refold.evaluation.retrieval import SYSTEMS

    known = {system.name: system for system in SYSTEMS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInput(f"the ranking {unknown[0]!r} is unknown; give one of {', '.join(map(repr, known))}")
    return [known[name] for name in names or known]


def _swept(
    embedded: "list[Embedded]", rankings: tuple[str, ...], sweeps: tuple[str, ...], depth: int
) -> "list[Figures]":
    from refold.evaluation.retrieval import grid_of, swept

    if len(rankings) > 1:
        raise InvalidInput(f"--sweep varies one ranking, and {len(rankings)} are given; give one --ranking")
    (base,) = _systems(rankings or ("hybrid",))
    fields = list(map(_field, sweeps))
    twice = [name for place, (name, _) in enumerate(fields) if name in dict(fields[:place])]
    if twice:
        raise InvalidInput(
            f"--sweep is given twice for {twice[0]}; give all its values at once, such as {twice[0]}=A,B"
        )
    with progress_bar("sweeping") as progress:
        return swept(embedded, grid_of(base.ranking, dict(fields)), depth, progress, system=base)


def _field(text: str) -> tuple[str, tuple[Any, ...]]:
    """Return the field and the values of ``FIELD=V,V,...``; a number is one, and anything else a word."""
    name, _, values = text.partition("=")
    if not values:
        raise InvalidInput(f"--sweep is {text!r}; give a field and its values, such as cosine=0.4,0.5,0.6")
    return name, tuple(map(_value, values.split(",")))


def _value(text: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _print_figures(found: "list[Figures]", depth: int, heading: str) -> None:
    console = Console()
    console.line((heading, "dim"))
    width = max(_NAME_CHARS, *(len(each.system) for each in found))
    console.line((f"{'':<{width}} {'recall@' + str(depth):>9}  {'95 %':<11} {'full':>5} {'MRR':>5}", "bold"))
    for each in found:
        interval = f"{100 * each.recall_interval.low:.1f}-{100 * each.recall_interval.high:.1f}"
        figures = f"{100 * each.full[depth]:>5.1f} {100 * each.reciprocal_rank:>5.1f}"
        category = "" if each.category == "all" else f"  {each.category}, {each.questions} questions"
        console.line(
            f"{each.system:<{width}} ",
            (f"{100 * each.recall[depth]:>9.1f}", "cyan"),
            f"  {interval:<11} {figures}{category}",
        )


@bench_group.command("eviction")
@_source_options
@click.option(
    "--budget", "budgets", type=click.IntRange(1), multiple=True, metavar="TOKENS", help="Only these; repeat."
)
@click.option("--policy", "names", multiple=True, metavar="NAME", help="Only these; repeat. All by default.")
@click.option("--ranking", default="hybrid", show_default=True, metavar="NAME", help="How what is recalled is found.")
@json_option
def eviction_command(
    *,
    data: Path,
    queries: Path | None,
    embedder: str,
    vectors: Path | None,
    budgets: tuple[int, ...],
    names: tuple[str, ...],
    ranking: str,
    as_json: bool,
) -> None:
    """Measure what windows of different policies and budgets keep of what is needed later.

    Replays every conversation in RAM. Shows, for each policy and budget, the part of the evidence that was there when
    its question came; conversations without questions are asked for what their tool calls repeat. The bounds are what
    nobody can beat. With --json also what was regretted, evicted and broken, tokens held, and time per append.
    """
    from refold.evaluation.cases import MEMORIES
    from refold.evaluation.eviction import BUDGETS, evictions, trace_of
    from refold.index.ranking import ranking_of

    chosen, looking = _policies(names), ranking_of(ranking)
    embedded = _embedded(data, queries, embedder, vectors)
    remembered = [each.case.name for each in embedded if each.case.origin == MEMORIES]
    if remembered:
        raise InvalidInput(
            f"queries ask for memories of the project {remembered[0]!r}, which no window holds; label messages"
        )
    with progress_bar("looking up what is recalled") as progress:
        traces = list(_told(embedded, lambda each: trace_of(each, looking), progress))
    with progress_bar("replaying") as progress:
        found = list(evictions(traces, budgets or BUDGETS, chosen, progress))
    messages = sum(len(trace.pieces) for trace in traces)
    if as_json:
        print_json({"data": data.name, "conversations": len(traces), "messages": messages, "evictions": found})
        return
    _print_evictions(found, f"{messages} messages, {len(traces)} conversations, {found[0].needs} needs")


def _told(
    embedded: "list[Embedded]", work: "Callable[[Embedded], Any]", progress: Callable[[int, int], None] | None
) -> Any:
    for done, each in enumerate(embedded, 1):
        yield work(each)
        if progress:
            progress(done, len(embedded))


def _policies(names: tuple[str, ...]) -> Any:
    from refold.evaluation.eviction import POLICIES

    known = {policy.name: policy for policy in POLICIES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInput(f"the policy {unknown[0]!r} is unknown; give one of {', '.join(map(repr, known))}")
    return [known[name] for name in names or known]


def _print_evictions(found: "list[Eviction]", heading: str) -> None:
    console = Console()
    budgets = list(dict.fromkeys(each.budget for each in found))
    console.line((heading, "dim"))
    _print_grid(console, "survival, %", found, budgets, lambda each: _percent(each.survival))
    measured = [each for each in found if each.evicted is not None]
    _print_grid(console, "regret, %", measured, budgets, lambda each: _percent(each.regret))
    _print_grid(console, "evicted", measured, budgets, lambda each: f"{each.evicted:,}")
    _print_grid(console, "broken windows", measured, budgets, lambda each: f"{each.broken:,}")
    _print_grid(console, "us per append", measured, budgets, lambda each: f"{(each.append_ns or 0) / 1_000:.1f}")


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}"


def _print_grid(
    console: Console, title: str, found: "list[Eviction]", budgets: list[int], cell: "Callable[[Eviction], str]"
) -> None:
    console.line()
    console.line((f"{title:<20}" + "".join(f"{_size(budget):>9}" for budget in budgets), "bold"))
    for name in dict.fromkeys(each.policy for each in found):
        cells = {each.budget: cell(each) for each in found if each.policy == name}
        console.line(f"{name:<20}" + "".join(f"{cells[budget]:>9}" for budget in budgets))


def _size(budget: int) -> str:
    return f"{budget // _KILO}k" if budget >= _KILO and budget % _KILO == 0 else str(budget)
