"""How much of what answers a question each ranking finds: evidence recall at 10 on recorded conversations.

    python benchmarks/retrieval.py                  # every set and preset, with 95 % intervals over the questions
    python benchmarks/retrieval.py --by-category    # the same by the questions' category
    python benchmarks/retrieval.py --split-half     # settings chosen on half of the conversations, judged on the rest
    python benchmarks/retrieval.py --embedder hash  # vectors of the built-in embedder in place of the stored ones
    python benchmarks/retrieval.py --data DIRECTORY

A set whose files are absent is left out, with the reason.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy
from retrieval_sets import SETS, Conversation, Question, Vectors, stored_vectors

from refold.embedders import HashedEmbedder
from refold.rank import RANKINGS, Columns, Query, Ranking, best, score
from refold.rank.stemming import terms_of
from refold.text import keywords

DATA: Final = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
SEED: Final = 20_240_501
RESAMPLES: Final = 2_000
SPLITS: Final = 200

KeywordsOf = Callable[[str], tuple[str, ...]]


def stemmed_keywords(text: str) -> tuple[str, ...]:
    """Keywords as an earlier study took them: at least 3 bytes, without the commonest words, stemmed."""
    long = " ".join(keywords(text))
    return tuple(dict.fromkeys(terms_of(long, "light")[0]))


def columns_of(conversation: Conversation, keywords_of: KeywordsOf = keywords) -> Columns:
    """What is searched: every text of a conversation, all of the same importance."""
    columns = Columns()
    for row, item in enumerate(conversation.items):
        columns.add(
            row,
            item.text,
            keywords=keywords_of(item.text),
            importance=0.5,
            accessed_ns=item.accessed_ns,
            session=item.session,
            occurred_ns=item.occurred_ns,
        )
    return columns


def asked(
    conversation: Conversation, columns: Columns, keywords_of: KeywordsOf = keywords
) -> Iterator[tuple[Question, Query]]:
    """Every question, asked at the moment of the conversation's last text."""
    now_ns = int(columns.accessed_ns().max(initial=0))
    for question in conversation.questions:
        cosine = conversation.vectors @ question.vector
        yield question, Query(text=question.text, keywords=keywords_of(question.text), now_ns=now_ns, cosine=cosine)


def found(total: Any, columns: Columns, question: Question, count: int) -> float:
    """Which part of a question's evidence is among the best rows."""
    rows = {row for row, _ in best(total, columns, count)}
    return len(rows & question.evidence) / len(question.evidence)


def recalls(
    conversations: list[Conversation], ranking: Ranking, count: int, keywords_of: KeywordsOf = keywords
) -> list[tuple[str, float]]:
    """The category of each question, and which part of its evidence is found."""
    answers: list[tuple[str, float]] = []
    for conversation in conversations:
        columns = columns_of(conversation, keywords_of)
        for question, query in asked(conversation, columns, keywords_of):
            total, _ = score(ranking, query, columns)
            answers.append((question.category, found(total, columns, question, count)))
    return answers


def percent(values: list[float]) -> float:
    """A mean, in percent."""
    return 100 * float(numpy.mean(values))


def interval(values: list[float]) -> tuple[float, float]:
    """The middle 95 % of the means of questions drawn with repetition."""
    drawn = numpy.random.default_rng(SEED).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = numpy.percentile(numpy.array(values)[drawn].mean(axis=1), [2.5, 97.5])
    return 100 * float(low), 100 * float(high)


def compared() -> Iterator[tuple[str, Ranking, KeywordsOf]]:
    """What the table has a line for."""
    for name, ranking in RANKINGS.items():
        yield name, ranking, keywords
    for name in ("seed-without-recency", "seed-exponential"):
        yield f"{name}, stemmed keywords", RANKINGS[name], stemmed_keywords


def print_presets(name: str, conversations: list[Conversation], count: int, *, by_category: bool) -> None:
    """One line for each ranking."""
    questions = sum(len(conversation.questions) for conversation in conversations)
    categories = sorted({question.category for each in conversations for question in each.questions})
    columns = categories if by_category else []
    print(f"\n## {name}: recall@{count}, {questions} questions, {len(conversations)} conversations\n")
    print(f"| ranking | all | 95 % | {' | '.join(columns)} |" if columns else "| ranking | all | 95 % |")
    print("|---|---|---|" + "---|" * len(columns))
    for label, ranking, keywords_of in compared():
        answers = recalls(conversations, ranking, count, keywords_of)
        values = [value for _, value in answers]
        low, high = interval(values)
        cells = [f"{percent([value for kind, value in answers if kind == column]):.1f}" for column in columns]
        print(f"| {label} | {percent(values):.1f} | {low:.1f}-{high:.1f} |" + "".join(f" {cell} |" for cell in cells))


# What is chosen from in the split-half: shapes of the coverage, and weights.
SHAPES: Final = [
    {"stemmer": stemmer, "gate_terms": gate, "pivot_terms": pivot, "neighbours": neighbours}
    for stemmer in ("light", "porter")
    for gate in (60.0, 80.0, 120.0)
    for pivot in (30.0, 40.0, 50.0)
    for neighbours in ((0.8, 0.5, 0.2), (0.6, 0.3), (1.0, 0.8, 0.6, 0.4))
]
WEIGHTS: Final = [(cosine, question) for cosine in (0.45, 0.5, 0.55) for question in (0.0, -0.1, -0.2)]


def grid(conversations: list[Conversation], count: int) -> "numpy.ndarray[Any, Any]":
    """The recall of every setting on every conversation: settings down, conversations across."""
    table = numpy.zeros((len(SHAPES) * len(WEIGHTS), len(conversations)))
    for place, conversation in enumerate(conversations):
        columns = columns_of(conversation)
        for shape_place, shape in enumerate(SHAPES):
            ranking = Ranking(cosine=1.0, coverage=1.0, question=1.0, **shape)  # type: ignore[arg-type]
            for question, query in asked(conversation, columns):
                parts = score(ranking, query, columns)[1]
                for weight_place, (cosine, asking) in enumerate(WEIGHTS):
                    total = cosine * parts["cosine"] + (1 - cosine) * parts["coverage"] + asking * parts["question"]
                    row = shape_place * len(WEIGHTS) + weight_place
                    table[row, place] += found(total, columns, question, count) / len(conversation.questions)
        print(f"  {conversation.name}: {len(SHAPES) * len(WEIGHTS)} settings", file=sys.stderr)
    return table


def print_split_half(sets: dict[str, list[Conversation]]) -> None:
    """Choose the best sum of both sets on half of the conversations, and judge it on the others."""
    tables = {name: grid(conversations, 10) for name, conversations in sets.items()}
    weights = {
        name: numpy.array([len(each.questions) for each in conversations]) for name, conversations in sets.items()
    }
    whole = {name: 100 * table @ weights[name] / weights[name].sum() for name, table in tables.items()}
    random = numpy.random.default_rng(SEED)
    outcomes: dict[str, list[float]] = {name: [] for name in sets}
    chosen: dict[int, int] = {}
    for _ in range(SPLITS):
        halves = {name: random.permutation(len(sets[name])) for name in sets}
        training = sum(
            tables[name][:, half[: (len(half) + 1) // 2]]
            @ weights[name][half[: (len(half) + 1) // 2]]
            / weights[name][half[: (len(half) + 1) // 2]].sum()
            for name, half in halves.items()
        )
        setting = int(numpy.argmax(training))
        chosen[setting] = chosen.get(setting, 0) + 1
        for name, half in halves.items():
            rest = half[(len(half) + 1) // 2 :]
            outcomes[name].append(
                100 * float(tables[name][setting, rest] @ weights[name][rest] / weights[name][rest].sum())
            )
    print(f"\n## Split-half: {len(SHAPES) * len(WEIGHTS)} settings, {SPLITS} splits\n")
    print("| set | chosen on one half, judged on the other | all settings on all: least, median, most |")
    print("|---|---|---|")
    for name in sets:
        spread = numpy.percentile(whole[name], [0, 50, 100])
        print(f"| {name} | {numpy.mean(outcomes[name]):.1f} | {spread[0]:.1f}, {spread[1]:.1f}, {spread[2]:.1f} |")
    print("\nMost often chosen:")
    for setting, times in sorted(chosen.items(), key=lambda pair: -pair[1])[:3]:
        shape, weight = divmod(setting, len(WEIGHTS))
        print(f"- {times} of {SPLITS}: {SHAPES[shape]}, cosine and question {WEIGHTS[weight]}")


def hashed_vectors(texts: list[str], _stored: Path | None) -> Vectors:
    """Vectors of the built-in embedder."""
    return HashedEmbedder().embed(texts)


EMBEDDERS: Final = {"stored": stored_vectors, "hash": hashed_vectors}


def loaded(data: Path, embedder: str) -> Iterator[tuple[str, list[Conversation], int]]:
    """Every set whose files are there, with how many rows its recall looks at."""
    for name, (load, count) in SETS.items():
        try:
            conversations = load(data, EMBEDDERS[embedder])
        except FileNotFoundError as error:
            print(f"\n{name}: left out, {error.filename} is not on this machine")
            continue
        yield name, conversations, count


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--embedder", choices=sorted(EMBEDDERS), default="stored")
    parser.add_argument("--by-category", action="store_true")
    parser.add_argument("--split-half", action="store_true")
    parser.add_argument("--only", action="append", choices=sorted(SETS), help="a set; may be repeated")
    options = parser.parse_args()
    print(f"seed {SEED}, vectors: {options.embedder}")
    sets = [each for each in loaded(options.data, options.embedder) if not options.only or each[0] in options.only]
    if options.split_half:
        print_split_half({name: conversations for name, conversations, _ in sets if name in {"LoCoMo", "BEAM-100K"}})
        return
    for name, conversations, count in sets:
        print_presets(name, conversations, count, by_category=options.by_category)


if __name__ == "__main__":
    main()
