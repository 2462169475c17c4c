"""What brings earlier messages into a context: a conversation's own questions, those of others, and small talk.

    python benchmarks/earlier.py            # LoCoMo, BEAM-100K, what is said to an airline and to an agent

Of its own questions, the part of the evidence among the messages that are found; of everything else, how much finds
none, as it should.
"""

import argparse
import random
from pathlib import Path
from statistics import fmean
from typing import Final

from retrieval import DATA
from retrieval_sets import there
from selection import talks

from refold.evaluation.cases import Case, cases_of
from refold.evaluation.retrieval import SEED
from refold.index.messages import MessageIndex, MessageView
from refold.memory.earlier import EarlierQuery, matches
from refold.memory.message_indexes import ROLE_NUMBERS

FILES: Final = {"LoCoMo": "locomo/locomo7_dev.json", "BEAM-100K": "beam/beam_100K_dev12.jsonl"}
TOP_K: Final = 50  # The default of the setting `messages_max_injected`.
OTHERS: Final = 20  # Questions of each other conversation, and three times as many lines of talk, with a fixed seed.


def indexed(case: Case) -> MessageView:
    """The messages of a conversation, a session after the other."""
    index = MessageIndex()
    for row, item in enumerate(case.items):
        index.add(row + 1, 0, str(item.session), ROLE_NUMBERS[item.role], item.text)
    return index.view(None)


def found(look: MessageView, query: str) -> set[int]:
    """The places of the messages that a query brings."""
    asked = EarlierQuery(0, None, "", "", query, None, frozenset(), TOP_K, asker=None, opens=True)
    return {match.seq - 1 for match in matches([(look, look.seqs > 0)], asked).found}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    talk = talks(options.data)
    generator = random.Random(SEED)
    print(f"| set | evidence | others: none | {' | '.join(f'{kind}: none' for kind in talk)} |")
    print("|---|---|---|" + "---|" * len(talk))
    for name, path in FILES.items():
        cases = cases_of(there(options.data / path))
        looks = [indexed(case) for case in cases]
        asked = [[question for question in case.questions if question.evidence] for case in cases]
        own = [
            len(question.evidence & found(look, question.text)) / len(question.evidence)
            for look, questions in zip(looks, asked, strict=True)
            for question in questions
        ]
        others = [
            not found(look, question.text)
            for place, look in enumerate(looks)
            for home, questions in enumerate(asked)
            if home != place
            for question in generator.sample(questions, min(OTHERS, len(questions)))
        ]
        silent = [
            fmean(
                not found(look, text) for look in looks for text in generator.sample(texts, min(3 * OTHERS, len(texts)))
            )
            for texts in talk.values()
        ]
        print(f"| {name} | {' | '.join(f'{100 * value:.1f}' for value in (fmean(own), fmean(others), *silent))} |")


if __name__ == "__main__":
    main()
