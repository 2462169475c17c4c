"""Skills: what finding, reading again and selecting takes, beside a bare walk that reads the same files.

Run it where skill files lie::

    python benchmarks/skills.py DIRECTORY [ROUNDS]
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from refold import Memory
from refold.skills import SelectionPolicy, Selector, SkillLoader, SkillRoots, skills_of

QUERY = "write tests for the endpoints of a service"
WORDS = SelectionPolicy(ranking="words")


def read_all(directory: str) -> int:
    """The floor: every skill file found and read, nothing understood."""
    count = 0
    for parent, _, names in os.walk(directory):
        count += sum(len(Path(parent, name).read_bytes()) for name in names if name == "SKILL.md")
    return count


def jobs(directory: str) -> dict[str, Callable[[], object]]:
    roots = SkillRoots(builtin=(directory,))
    loader = SkillLoader(roots)
    index = loader.load()
    selector = Selector(index)
    skills = skills_of(Memory(), roots)
    print(f"{len(index)} skills, {len(index.diagnostics)} diagnostics")
    return {
        "floor: find and read the files": lambda: read_all(directory),
        "index, cold": lambda: SkillLoader(roots).load(),
        "index, nothing changed": loader.load,
        "first selection of an index, seed": lambda: Selector(index).select(QUERY),
        "first selection of an index, words": lambda: Selector(index).select(QUERY, policy=WORDS),
        "selection, seed": lambda: selector.select(QUERY),
        "selection, words": lambda: selector.select(QUERY, policy=WORDS),
        "Skills.select": lambda: skills.select(QUERY),
    }


def milliseconds(job: Callable[[], object]) -> float:
    begin = time.perf_counter()
    job()
    return 1e3 * (time.perf_counter() - begin)


def main(directory: str, rounds: int) -> None:
    """Take every job in turn, round after round, and print the tenth and the middle of their times."""
    found = jobs(directory)
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, job in found.items():
            times[name].append(milliseconds(job))
    floor = sorted(times["floor: find and read the files"])[rounds // 2]
    print(f"{'job':36} {'p10 ms':>8} {'median':>8} {'of floor':>9}")
    for name, taken in times.items():
        taken.sort()
        print(f"{name:36} {taken[rounds // 10]:8.2f} {taken[rounds // 2]:8.2f} {taken[rounds // 2] / floor:9.2f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 25)
