"""Selecting skills by default: is the right one among five, and does small talk select none?

Run it on the folder of the published sets, and on folders of skills that nobody chose anything on::

    python benchmarks/selection.py DATA [DIRECTORY ...]

The tasks are the bullets in which a skill's own file says when to use it; the skill is indexed without that section.
Small talk is what people say to each other (LoCoMo), what customers say to an agent of an airline (tau-bench), and
`small_talk.txt`. Last, the floor is chosen on one half of the skills and of the talk, and judged on the other half.
"""

import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from refold.skills import SelectionPolicy, Selector, Skill, SkillIndex, SkillLoader, SkillRoots

TASKS_OF_A_SKILL = 8
TALK = 1_000  # What is drawn of each kind of talk, with a fixed seed.
HEADING = re.compile(r"^#{1,4}\s+(.*)$")
WHEN = re.compile(r"when (to (use|apply)|.*use)|triggers", re.IGNORECASE)
ABOUT_USE = re.compile(r"when (to|not)|do not use|trigger", re.IGNORECASE)
NOT = re.compile(r"\bnot\b|n.t\b", re.IGNORECASE)
NOT_FOR = re.compile(r"(do not|don.t|not) (use|apply|for)|when not|instead", re.IGNORECASE)
BULLET = re.compile(r"\s*[-*]\s+(.*)")
MARKS = re.compile(r"[*`_\[\]]|\(http[^)]*\)")
ALL = SelectionPolicy(top_k=5, min_score=0.0)


class Task(NamedTuple):
    """What somebody asks for, and the skill that it is for."""

    text: str
    skill: str


class Corpus(NamedTuple):
    """Skills as they are indexed, and the tasks that they are for."""

    name: str
    skills: tuple[Skill, ...]
    tasks: list[Task]


def sections(body: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the heading and the lines of each section."""
    heading, lines, is_code = "", list[str](), False
    for line in body.splitlines():
        is_code ^= line.lstrip().startswith("```")
        match = None if is_code else HEADING.match(line)
        if match:
            yield heading, lines
            heading, lines = match[1], []
        else:
            lines.append(line)
    yield heading, lines


def bullets(lines: Sequence[str]) -> Iterator[str]:
    """Yield the bullets of a section up to the words that say when not to use the skill."""
    for line in lines:
        bullet = BULLET.match(line)
        if bullet is None and NOT_FOR.search(line):
            return
        if bullet and 2 <= len((text := MARKS.sub("", bullet[1]).strip()).split()) <= 40:
            yield text


def corpus_of(directory: Path) -> Corpus:
    """Load the skills below a directory without what they say of their use, and make tasks of that."""
    index = SkillLoader(SkillRoots(builtin=(str(directory),))).load()
    skills, tasks = list[Skill](), list[Task]()
    for skill in index.skills:
        parts = list(sections(skill.body))
        rest = [f"{heading}\n" + "\n".join(lines) for heading, lines in parts if not ABOUT_USE.search(heading)]
        uses = [lines for heading, lines in parts if WHEN.search(heading) and not NOT.search(heading)]
        texts = [text for lines in uses for text in bullets(lines)]
        tasks += [Task(text, skill.name) for text in texts[:TASKS_OF_A_SKILL]]
        skills.append(replace(skill, body="\n".join(rest)))
    labels = directory / "selection_queries.jsonl"
    if labels.is_file():
        names = {skill.name for skill in skills}
        lines = map(json.loads, labels.read_text(encoding="utf-8").splitlines())
        tasks = [Task(line["query"], line["skill"]) for line in lines if line["skill"] in names]
    return Corpus(directory.name, tuple(skills), tasks)


def talks(data: Path) -> dict[str, list[str]]:
    """Small talk by where it comes from."""
    people = [
        turn["text"]
        for sample in json.loads((data / "locomo" / "locomo7_dev.json").read_text(encoding="utf-8"))
        for key, turns in sample["conversation"].items()
        if key.startswith("session_") and isinstance(turns, list)
        for turn in turns
    ]
    lines = (data / "tau-bench" / "gpt4o_airline_dev.jsonl").read_text(encoding="utf-8").splitlines()
    messages = [message for line in lines for message in json.loads(line)["traj"] if message["role"] == "user"]
    customers = dict.fromkeys(message["content"] for message in messages)
    agent = Path(__file__).with_name("small_talk.txt").read_text(encoding="utf-8").splitlines()
    generator = random.Random(0)
    kinds = {"people": people, "customers": list(customers), "to an agent": agent}
    return {kind: generator.sample(texts, min(TALK, len(texts))) for kind, texts in kinds.items()}


class Judged(NamedTuple):
    """The best score of every task and that of the right skill, if it is among five; the best score of any talk."""

    tasks: list[tuple[float, float]]
    talk: dict[str, list[float]]

    def recall(self, floor: float, half: slice) -> float:
        """The share of tasks whose skill is selected where the best needs `floor` and the others half of it."""
        tasks = self.tasks[half]
        return sum(best >= floor and right >= floor / 2 for best, right in tasks) / len(tasks)

    def quiet(self, floor: float, half: slice) -> dict[str, float]:
        """The share of talk that selects nothing, by its kind."""
        return {kind: sum(best < floor for best in bests[half]) / len(bests[half]) for kind, bests in self.talk.items()}


def judged(corpus: Corpus, talk: dict[str, list[str]]) -> Judged:
    """Score all tasks and all talk, the tasks by skill so that a half of them is a half of the skills."""
    selector = Selector(SkillIndex(corpus.skills))

    def scores(text: str) -> dict[str, float]:
        return {match.skill.name: match.score for match in selector.select(text, policy=ALL)}

    names = sorted({task.skill for task in corpus.tasks})
    random.Random(1).shuffle(names)
    tasks = sorted(corpus.tasks, key=lambda task: names.index(task.skill))
    found = [
        (max(row.values(), default=0.0), row.get(task.skill, -1.0)) for task in tasks for row in [scores(task.text)]
    ]
    bests = {kind: [max(scores(text).values(), default=0.0) for text in texts] for kind, texts in talk.items()}
    return Judged(found, bests)


def main(data: Path, directories: Sequence[Path]) -> None:
    """Print recall at 5 and the share of talk that selects nothing, of each folder of skills."""
    talk = talks(data)
    kinds = list(talk)
    print(f"{'skills':28} {'tasks':>6} {'recall@5':>9} {'no floor':>9} " + " ".join(f"{kind:>12}" for kind in kinds))
    for directory in (data / "skills", *directories):
        corpus = corpus_of(directory)
        result, whole, size = judged(corpus, talk), slice(None), len(corpus.tasks)
        quiet = result.quiet(1.0, whole)
        print(
            f"{corpus.name[:20]:20} {len(corpus.skills):7} {size:6} {100 * result.recall(1.0, whole):9.1f} "
            f"{100 * result.recall(0.0, whole):9.1f} " + " ".join(f"{100 * quiet[kind]:12.1f}" for kind in kinds)
        )
        for half, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
            floors = (floor / 100 for floor in range(200))
            chosen = next(floor for floor in floors if min(result.quiet(floor, half).values()) >= 0.9)
            skills_half = slice(size // 2, None) if other.start else slice(size // 2)
            quiet = result.quiet(chosen, other)
            print(
                f"    floor {chosen:.2f} of the other half {size // 2:6} "
                f"{100 * result.recall(chosen, skills_half):7.1f} {'':9} "
                + " ".join(f"{100 * quiet[kind]:12.1f}" for kind in kinds)
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]])
