"""How much of what answers a question a search of messages finds, at each weight of their meaning beside their words.

    python benchmarks/messages.py                      # MiniLM's stored vectors
    python benchmarks/messages.py --embedder hashed    # vectors of the built-in embedder

Evidence recall at 10. A message without any word of the question counts where its score reaches the embedder's floor.
Split halves choose the weight on half of the conversations of both sets and judge it on the rest.
"""

import argparse
from pathlib import Path
from typing import Any, Final

import numpy
from retrieval import DATA, EMBEDDERS, SPLITS
from retrieval_sets import SETS

from refold.embedders import HashedEmbedder, MiniLmEmbedder
from refold.evaluation.retrieval import SEED, EmbeddedCase
from refold.index.messages import RANKING, MessageIndex, MessageView, pack_vectors, search

NAMES: Final = ("LoCoMo", "BEAM-100K")
DEPTH: Final = 10
WEIGHTS: Final = (0.0, 0.2, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 1.0, 1.5)
RATES: Final = {"hashed": HashedEmbedder.floor_rate, "stored": MiniLmEmbedder.floor_rate}
EVERY: Final = 1_000_000
DECIMALS: Final = 6
USER: Final = 2


def indexed(case: EmbeddedCase) -> MessageView:
    """The messages of a conversation with their vectors."""
    index = MessageIndex()
    for row, item in enumerate(case.case.items):
        index.add(row + 1, 0, case.case.name, USER, item.text)
    index.begin_vectors(case.items.shape[1])
    packed = pack_vectors(case.items, case.items.shape[1])
    index.add_vectors({(row + 1, 0): vector for row, vector in enumerate(packed)})
    return index.view(None)


def recalls(case: EmbeddedCase, rate: float) -> "numpy.ndarray[Any, Any]":
    """The recall of each question that has evidence, for each weight: weights down, questions across."""
    look = indexed(case)
    columns = [
        [_recall(look, question, vector / numpy.linalg.norm(vector), weight, rate) for weight in WEIGHTS]
        for question, vector in zip(case.case.questions, case.questions, strict=True)
        if question.evidence
    ]
    return numpy.array(columns).T


def _recall(look: MessageView, question: Any, vector: Any, weight: float, rate: float) -> float:
    found = search([look], question.text, None, EVERY, vector=vector)
    parts = [[match.parts[name] for name in ("coverage", "question", "cosine")] for match in found]
    totals = numpy.round(numpy.array(parts) @ [RANKING.coverage, RANKING.question, weight], DECIMALS)
    floor = (RANKING.coverage + weight) * rate * numpy.log1p(len(look.seqs))
    rows = numpy.array([match.seq - 1 for match in found])
    is_found = numpy.array([match.words > 0 for match in found]) | ((weight > 0) & (totals >= floor))
    order = numpy.lexsort((-rows, -totals))
    best = rows[order][is_found[order]][:DEPTH]
    return len(question.evidence & set(best.tolist())) / len(question.evidence)


def means(tables: "list[numpy.ndarray[Any, Any]]") -> "numpy.ndarray[Any, Any]":
    """The recall of each weight over the questions of conversations, in percent."""
    return 100 * numpy.concatenate(tables, axis=1).mean(axis=1)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--embedder", choices=sorted(EMBEDDERS), default="stored")
    options = parser.parse_args()
    rate = RATES[options.embedder]
    sets = {name: SETS[name][0](options.data, EMBEDDERS[options.embedder]) for name in NAMES}
    tables = {name: [recalls(case, rate) for case in cases] for name, cases in sets.items()}
    print(f"seed {SEED}, vectors: {options.embedder}\n\n| weight | {' | '.join(NAMES)} |\n|---|---|---|")
    for row, weight in enumerate(WEIGHTS):
        print(f"| {weight} | {' | '.join(f'{means(tables[name])[row]:.1f}' for name in NAMES)} |")
    random = numpy.random.default_rng(SEED)
    judged: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    chosen: list[float] = []
    for _ in range(SPLITS):
        orders = {name: random.permutation(len(tables[name])) for name in NAMES}
        halves = {
            name: (order[: (len(order) + 1) // 2], order[(len(order) + 1) // 2 :]) for name, order in orders.items()
        }
        training = sum(means([tables[name][place] for place in halves[name][0]]) for name in NAMES)
        best = int(numpy.argmax(training))
        chosen.append(WEIGHTS[best])
        for name in NAMES:
            rest = means([tables[name][place] for place in halves[name][1]])
            judged[name].append((rest[best], rest[0]))
    least, middle, most = numpy.percentile(chosen, [5, 50, 95])
    print(f"\nSplit halves: {SPLITS}, weights {middle} ({least} to {most})\n")
    print("| set | chosen | words alone |\n|---|---|---|")
    for name in NAMES:
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in numpy.mean(judged[name], axis=0))} |")


if __name__ == "__main__":
    main()
