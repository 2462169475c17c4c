"""The verbs that measure: bench retrieval, bench eviction, bench agent. They do not write to any store."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from refold.cli.output import Line, progress_bar
from refold.cli.root import Output, cli, verb
from refold.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from refold.evaluation.agent import Presence
    from refold.evaluation.cases import Case
    from refold.evaluation.eviction import Eviction, Recommendation
    from refold.evaluation.retrieval import EmbeddedCase, Figures

_EMBEDDERS = ("hashed", "minilm", "wordllama")  # Spelled out so that help loads nothing; a test compares them.
_NAME_CHARS = 30
_POLICY_CHARS = 24
_SHARES = ("survival, %", "regret, %")
_BOUND = "rows + search: an upper bound of what a context of that budget holds"
_KILO = 1_024


@cli.group("bench")
def bench_group() -> None:
    """Measure retrieval, eviction and the default agent loop.

    retrieval and eviction measure on LoCoMo, BEAM, LongMemEval, recorded sessions, or your own store; agent on files of
    LoCoMo and BEAM. None writes to a store. What was needed before a conversation was forked counts once, however many
    forks there are.
    """


# The options that name the data.
_DATA = (
    click.option(
        "--data",
        envvar="REFOLD_DB",
        show_envvar=True,
        required=True,
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="A file of sessions or the directory of a store.",
    ),
    click.option(
        "--queries",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help='Queries with their answers, as JSON Lines: {"query": TEXT, "seqs": [N, ...]}, '
        'or instead of "seqs" the "ids" of messages or memories. A question comes up as of the seq "at" if it has one; '
        "else at the first message that is the question itself and comes after its answers; else at the end of the "
        'conversation. "conversation", "project" and "category" may be given, too.',
    ),
)
_SOURCES = (
    *_DATA,
    click.option("--embedder", type=click.Choice(_EMBEDDERS), default="hashed", help="The embedder to use."),
    click.option(
        "--vectors",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="Read the vectors of items and questions from two .npy files in FOLDER instead of computing them.",
    ),
)


def _read_cases(data: Path, queries: Path | None) -> "list[Case]":
    from refold.evaluation.cases import cases_of

    with progress_bar("reading") as progress:
        cases = cases_of(data, queries, progress)
    if not cases:
        raise InvalidInput(
            f"{data} has no conversation with messages; give a file of sessions or a store that has some"
        )
    return cases


def _embed_cases(*, data: Path, queries: Path | None, embedder: str, vectors: Path | None) -> "list[EmbeddedCase]":
    from refold.evaluation.retrieval import EMBEDDERS, embed_cases, load_vectors

    cases = _read_cases(data, queries)
    if vectors is not None:
        return load_vectors(cases, vectors)
    with progress_bar("embedding") as progress:
        return embed_cases(cases, EMBEDDERS[embedder](), progress)


def _select_entries(kind: str, table: Iterable[Any], names: tuple[str, ...]) -> list[Any]:
    known = {entry.name: entry for entry in table}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise InvalidInput(f"the {kind} {unknown!r} is unknown; give one of {', '.join(map(repr, known))}")
    return [known[name] for name in names or known]


def _map_progress(description: str, items: list[Any], work: Callable[[Any], Any]) -> list[Any]:
    results: list[Any] = []
    with progress_bar(description) as progress:
        for item in items:
            results.append(work(item))
            if progress:
                progress(len(results), len(items))
    return results


@verb(
    "retrieval",
    *_SOURCES,
    click.option("--ranking", "rankings", multiple=True, metavar="NAME", help="Measure only this ranking; repeatable."),
    click.option("--depth", type=click.IntRange(1), default=10, metavar="K", help="Measure the first K results."),
    click.option("--by-category", is_flag=True, help="Also show the figures of each category."),
    click.option(
        "--sweep",
        "sweeps",
        multiple=True,
        metavar="FIELD=V,V,...",
        help="Try these values of a field of the ranking, in all combinations and one pass; repeatable.",
    ),
    opens=None,
    group=bench_group,
)
def retrieval(
    rankings: tuple[str, ...], depth: int, sweeps: tuple[str, ...], *, by_category: bool, **source: Any
) -> Output:
    """Measure how much of the evidence each ranking finds.

    Shows the recall of the evidence among the first K results with its 95 % interval over the questions, the share of
    questions with all of their evidence, and the mean reciprocal rank. The rows "messages" are the search of messages
    (chat.search), without and with vectors; the others are rankings of memories. With --sweep, shows the settings of
    one ranking, best first.
    """
    from refold.evaluation.retrieval import ALL, SYSTEMS, answers, figures

    embedded = _embed_cases(**source)
    count = sum(bool(question.evidence) for each in embedded for question in each.case.questions)
    if not count:
        raise InvalidInput(
            f"{source['data']} has no question with known evidence; label its conversations with --queries FILE"
        )
    if sweeps:
        results = _sweep(embedded, rankings, sweeps, depth)
    else:
        measure = _map_progress(
            "ranking",
            _select_entries("ranking", SYSTEMS, rankings),
            lambda system: figures(system.name, answers(embedded, system), depth),
        )
        results = [figure for group in measure for figure in group]
    results = [each for each in results if by_category or each.category == ALL]
    vectors = "stored" if source["vectors"] else source["embedder"]
    document = {"data": source["data"].name, "vectors": vectors, "depth": depth}
    document |= {"cases": len(embedded), "questions": count, "figures": results}
    heading = f"{count} questions, {len(embedded)} conversations, vectors: {vectors}"
    return Output(document, _figure_lines(results, depth, heading))


def _sweep(
    embedded: "list[EmbeddedCase]", rankings: tuple[str, ...], sweeps: tuple[str, ...], depth: int
) -> "list[Figures]":
    from refold.evaluation.retrieval import SYSTEMS, grid_of, sweep_rankings

    if len(rankings) > 1:
        raise InvalidInput(f"--sweep varies one ranking, and {len(rankings)} are given; give one --ranking")
    (base,) = _select_entries("ranking", SYSTEMS, rankings or ("hybrid",))
    if base.searches_messages:
        raise InvalidInput(f"--sweep varies rankings of memories, and {base.name!r} is none; give another --ranking")
    fields: dict[str, tuple[Any, ...]] = {}
    for text in sweeps:
        name, _, values = text.partition("=")
        if not values:
            raise InvalidInput(f"--sweep is {text!r}; give a field and its values, such as cosine=0.4,0.5,0.6")
        if name in fields:
            raise InvalidInput(f"--sweep is given twice for {name}; give all its values at once, such as {name}=A,B")
        fields[name] = tuple(map(_value, values.split(",")))
    with progress_bar("sweeping") as progress:
        return sweep_rankings(embedded, grid_of(base.ranking, fields), depth, progress, system=base)


def _value(text: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _figure_lines(figures: "list[Figures]", depth: int, heading: str) -> Iterator[Line]:
    yield ((heading, "dim"),)
    width = max([_NAME_CHARS, *(len(each.system) for each in figures)])
    yield ((f"{'':<{width}} {'recall@' + str(depth):>9}  {'95 %':<11} {'full':>5} {'MRR':>5}", "bold"),)
    for each in figures:
        interval = f"{100 * each.recall_interval.low:.1f}-{100 * each.recall_interval.high:.1f}"
        rest = f"{100 * each.full[depth]:>5.1f} {100 * each.reciprocal_rank:>5.1f}"
        category = "" if each.category == "all" else f"  {each.category}, {each.questions} questions"
        recall = f"{100 * each.recall[depth]:>9.1f}"
        yield f"{each.system:<{width}} ", (recall, "cyan"), f"  {interval:<11} {rest}{category}"


@verb(
    "eviction",
    *_DATA,
    click.option(
        "--budget",
        "budgets",
        type=click.IntRange(1),
        multiple=True,
        metavar="TOKENS",
        help="Measure only windows of this size; repeatable.",
    ),
    click.option("--policy", "names", multiple=True, metavar="NAME", help="Measure only this policy; repeatable."),
    opens=None,
    group=bench_group,
)
def eviction(data: Path, queries: Path | None, budgets: tuple[int, ...], names: tuple[str, ...]) -> Output:
    """Measure how much of what is needed later each policy keeps.

    Replays every conversation in RAM, with each policy and budget. Survival is the mean, over the questions, of the
    share of a question's evidence that was in the window when it came up; in conversations without questions, what tool
    calls repeat counts as evidence. Regret is the rest: the mean of the share that was not in the window. So every
    question weighs the same in both, and they add up to 100.

    Rows "+ search" are an upper bound of what a context of that budget holds (memory.context): the newest messages of
    the window, and what a search for the question finds among the others, by words, which with the instructions takes
    at most half of the budget or what the window leaves of it, and at most 5,500 tokens. A store with facts, notes or
    skills has less room for it; only a conversation opened with embed=True can find more, by meaning. No policy can
    beat the two clairvoyant rows, the first of which makes no search.

    Two policies need a program's help, which no default loop gives: least-recalled assumes a recall of three messages
    for each message of the user, least-important a rating of each message by its share of new words. Without these,
    the oldest messages leave first, as with fifo.

    The last lines recommend a policy that conversations can be opened with: fifo, unless another is clearly better for
    these conversations in the same budget, both with a search or both without. --json adds evictions, broken calls,
    tokens in use, and the time per append.
    """
    from refold.evaluation.cases import MEMORIES
    from refold.evaluation.eviction import ASSUMPTIONS, BUDGETS, POLICIES, evictions, recommendation, trace_of

    policies = _select_entries("policy", POLICIES, names)
    cases = _read_cases(data, queries)
    projects = [each.name for each in cases if each.origin == MEMORIES]
    if projects:
        raise InvalidInput(
            f"queries ask for memories of the project {projects[0]!r}, which no window holds; label messages"
        )
    traces = _map_progress("recalling", cases, lambda each: trace_of(each, policies))
    with progress_bar("replaying") as progress:
        results = list(evictions(traces, budgets or BUDGETS, policies, progress))
    messages = sum(len(trace.pieces) for trace in traces)
    document: dict[str, Any] = {"data": data.name, "conversations": len(traces), "messages": messages}
    document["evictions"] = results
    measured = {each.policy for each in results}
    assumed = {name: text for name, text in ASSUMPTIONS.items() if name in measured}
    document["assumptions"] = assumed
    document["recommendation"] = advice = recommendation(results)
    heading = f"{messages} messages, {len(traces)} conversations, {results[0].needs} needs"
    notes = ["", *(f"{name} {text}" for name, text in assumed.items())] if assumed else []
    return Output(document, [*_eviction_lines(results, heading), *notes, *_advice(advice)])


def _advice(advice: "Recommendation | None") -> Iterator[Line]:
    if advice is not None:
        yield ()
        yield ((f'recommended for this data: memory.conversation(id, eviction="{advice.eviction}")', "bold"),)
        yield from advice.reasons


def _eviction_lines(results: "list[Eviction]", heading: str) -> Iterator[Line]:
    tables: Mapping[str, Callable[[Eviction], str]] = {
        _SHARES[0]: lambda each: _percent(each.survival),
        _SHARES[1]: lambda each: _percent(each.regret),
        "evicted": lambda each: f"{each.evicted:,}",
        "broken windows": lambda each: f"{each.broken:,}",
        "us per append": lambda each: f"{(each.append_ns or 0) / 1_000:.1f}",
    }
    budgets = list(dict.fromkeys(each.budget for each in results))
    cells = {(_row_name(each), each.budget): each for each in results}
    names = dict.fromkeys(_row_name(each) for each in results)
    yield ((heading, "dim"),)
    yield ((_BOUND, "dim"),)
    for title, cell in tables.items():
        yield ()
        yield ((f"{title:<{_POLICY_CHARS}}" + "".join(f"{_size(budget):>9}" for budget in budgets), "bold"),)
        for name in names:
            row = [cells[name, budget] for budget in budgets]
            if title in _SHARES or row[0].evicted is not None:
                yield (f"{name:<{_POLICY_CHARS}}" + "".join(f"{cell(each):>9}" for each in row),)


def _row_name(each: "Eviction") -> str:
    return f"{each.policy} + search" if each.with_search else each.policy


_SETS: Final = ("locomo*.json", "beam*.jsonl")
_WHERE: Final = (
    "get LoCoMo (CC BY-NC 4.0), data/locomo10.json of https://github.com/snap-research/LoCoMo, or BEAM (CC BY-SA 4.0), "
    "chats/100K of https://github.com/mohammadtavakoli78/BEAM, each chat as a line of a beam.jsonl: "
    '{"id", "messages": [{"id", "role", "batch", "content"}], "questions": [{"question", "source_chat_ids"}]}'
)


@verb(
    "agent",
    click.argument("path", type=click.Path(path_type=Path)),
    click.option(
        "--budget",
        "budgets",
        type=click.IntRange(1),
        multiple=True,
        metavar="TOKENS",
        help="Measure only this budget; repeatable.",
    ),
    click.option("--by-category", is_flag=True, help="Also show the figures of each category."),
    click.option("--embedder", type=click.Choice(_EMBEDDERS), default="hashed", help="The embedder to use."),
    click.option("--without-facts", is_flag=True, help="Let no extraction learn anything: messages are all there is."),
    opens=None,
    group=bench_group,
)
def agent(path: Path, budgets: tuple[int, ...], embedder: str, *, by_category: bool, without_facts: bool) -> Output:
    """Measure how much of the evidence an agent loop shows a model.

    PATH is a file of LoCoMo or BEAM, or a directory with files locomo*.json or beam*.jsonl; a store is measured by
    bench eviction and bench retrieval. Each conversation runs session by session through an
    AgentLoop with the default hooks, in RAM; LoCoMo's observations, or for other sets the messages of the user, stand
    in for what an extraction learns, unless --without-facts is given. Each question then begins a new session, with a
    budget for everything that the model is sent.

    Shows the share of the evidence in what is sent (context) with its 95 % interval, next to three baselines that fill
    the same budget: the newest messages of all sessions (window), an exact search over all messages (messages), and one
    over all memories (memories).
    """
    from refold.evaluation.agent import BUDGETS, measure_contexts, presences, recordings_of
    from refold.evaluation.retrieval import ALL, EMBEDDERS

    if (path / "data.mdb").is_file():
        raise InvalidInput(f"{path} is a store; give files of LoCoMo or BEAM, or measure it with bench eviction --data")
    files = [path] if path.is_file() else [file for form in _SETS for file in sorted(path.rglob(form))]
    if not files:
        raise NotFound(f"there is no {' or '.join(_SETS)} in {path}; refold does not include the data: {_WHERE}")
    document: list[dict[str, Any]] = []
    lines: list[Line] = []
    for file in files:
        with progress_bar(f"reading {file.name}") as progress:
            recordings = recordings_of(file, progress)
        if not recordings:
            raise InvalidInput(f"{file} has no question with known evidence; give files of LoCoMo or BEAM")
        if without_facts:
            import msgspec

            recordings = [msgspec.structs.replace(recording, facts=()) for recording in recordings]
        with progress_bar(f"asking {file.name}") as progress:
            results = presences(measure_contexts(recordings, budgets or BUDGETS, EMBEDDERS[embedder](), progress))
        shown = [each for each in results if by_category or each.category == ALL]
        document.append({"name": file.stem, "conversations": len(recordings), "figures": shown})
        lines += _presence_lines(
            shown, f"{file.stem}: {results[0].questions} questions, {len(recordings)} conversations"
        )
    facts = not without_facts
    return Output({"data": path.name, "embedder": embedder, "facts": facts, "sets": document}, lines)


def _presence_lines(results: "list[Presence]", heading: str) -> Iterator[Line]:
    yield ((heading, "dim"),)
    budgets = list(dict.fromkeys(each.budget for each in results))
    yield ((f"{'evidence, %':<20}" + "".join(f"{f'{budget:,} tokens':>20}" for budget in budgets), "bold"),)
    for category in dict.fromkeys(each.category for each in results):
        rows = [each for each in results if each.category == category]
        if category != "all":
            yield ((f"{category}, {rows[0].questions} questions", "dim"),)
        for system in dict.fromkeys(each.system for each in rows):
            own = [(100 * each.share, each.share_interval) for each in rows if each.system == system]
            cells = (f"{share:.1f} ({100 * bound.low:.1f}-{100 * bound.high:.1f})" for share, bound in own)
            yield (f"{system:<20}" + "".join(f"{cell:>20}" for cell in cells),)


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}"


def _size(budget: int) -> str:
    return f"{budget // _KILO}k" if budget >= _KILO and budget % _KILO == 0 else str(budget)
