"""A month of recorded users through the default path: 60 sessions, and what of it is shown when it is asked for."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from refold import Memory
from refold.agent import AgentLoop, CallableProvider, Reply, default_hooks
from refold.limits import CONTEXT_TOKENS_DEFAULT
from refold.views.session import ContextShown
from tests.agent.test_loop import Script
from tests.support.memories import Clock, assert_sound
from tests.support.paths import DATA

FRIENDS = DATA / "locomo" / "locomo7_dev.json"
AIRLINE = DATA / "tau-bench" / "gpt4o_airline_dev.jsonl"
CATEGORIES = {1: "several sessions", 2: "times", 3: "world knowledge", 4: "one session"}
HALF_DAY_S = 43_200


class Talk(NamedTuple):
    """What a user says, each with what the agent answers, and what a model learns from it: texts by their turns."""

    turns: list[tuple[str, str]]
    learned: dict[str, str]


def alternating(spoken: Iterator[tuple[bool, str]]) -> list[tuple[str, str]]:
    """Join what each side says in a row; what comes before the user's first words is left out."""
    turns: list[list[str]] = []
    for is_user, text in spoken:
        if is_user and (not turns or turns[-1][1]):
            turns.append([text, ""])
        elif turns:
            turns[-1][not is_user] += "\n" * bool(turns[-1][not is_user]) + text
    return [(asked, answered or "I see.") for asked, answered in turns]


def friend(sample: dict[str, Any]) -> list[Talk]:
    """The sessions of one user of LoCoMo, with the observations that people wrote about each."""
    talks = []
    for number in range(1, 31):
        turns = sample["conversation"].get(f"session_{number}", [])
        spoken = ((turn["speaker"] == sample["conversation"]["speaker_a"], turn["text"]) for turn in turns)
        observed = sample["observation"].get(f"session_{number}_observation", {}).values()
        pairs = [(text, where) for person in observed for text, where in person]
        talks.append(Talk(alternating(spoken), {text: str(where) for text, where in pairs}))
    return talks


def traveller(line: str) -> Talk:
    said = [row for row in json.loads(line)["traj"] if row["role"] in {"user", "assistant"} and row["content"]]
    return Talk(alternating((row["role"] == "user", row["content"]) for row in said), {})


class Month:
    """The memory of a user over 30 days, and the prompts that were made of it."""

    def __init__(self, memory: Memory, clock: Clock, tokens: int | None) -> None:
        self.memory, self.clock, self.tokens = memory, clock, tokens
        self.prompts: list[str] = []
        self.learned: dict[str, str] = {}
        """What the model learns from the session that ends, and the turns that told it."""
        default_hooks(memory, provider=CallableProvider(self._extract, id="scripted"))

    def _extract(self, *_: object) -> dict[str, Any]:
        learned = [{"content": text, "category": "fact", "keywords": [], "importance": 0.5} for text in self.learned]
        return {"memories": learned}

    def hold(self, name: str, talk: Talk) -> None:
        """Hold a session, and end it."""
        self.learned = talk.learned
        self._run(name, talk.turns).end()
        self.clock.advance(HALF_DAY_S)

    def ask(self, name: str, question: str) -> str:
        """Ask in a session of its own, and return all that the model is shown."""
        self._run(name, [(question, "I see.")])
        return self.prompts[-1]

    def _run(self, name: str, turns: list[tuple[str, str]]) -> AgentLoop:
        model = Script(*(Reply(answered) for _, answered in turns))
        loop = AgentLoop(self.memory, self.memory.conversation(name, project="life"), model, budget=self.tokens)
        for asked, _ in turns:
            loop.run(asked)
        self.prompts += ["\n".join(message["content"] for message in messages) for messages in model.asked]
        return loop


@pytest.mark.slow
@pytest.mark.skipif(not (FRIENDS.exists() and AIRLINE.exists()), reason="the data sets are not on this machine")
@pytest.mark.parametrize("tokens", [None, 2_000])
def test_a_month_of_recorded_users(tmp_path: Path, tokens: int | None) -> None:
    sample = json.loads(FRIENDS.read_text(encoding="utf-8"))[5]
    with AIRLINE.open(encoding="utf-8") as lines:
        travellers = [traveller(next(lines)) for _ in range(30)]
    talks = [talk for pair in zip(friend(sample), travellers, strict=True) for talk in pair]
    told = {text: turn for talk in talks for text, turn in talk.learned.items()}
    sessions = [turns for turns in sample["conversation"].values() if isinstance(turns, list)]
    said = {turn["dia_id"]: turn["text"] for turns in sessions for turn in turns}
    clock = Clock()
    with Memory(tmp_path / "store", clock_ns=clock) as memory:
        month = Month(memory, clock, tokens)
        for number, talk in enumerate(talks):
            month.hold(f"s{number}", talk)
        facts, shown, asked = Counter[str](), Counter[str](), Counter[str]()
        for number, row in enumerate(sample["qa"]):
            answers = [text for text, turn in told.items() if turn in row["evidence"]]
            if row["category"] in CATEGORIES and answers:
                prompt = month.ask(f"q{number}", row["question"])
                category = CATEGORIES[row["category"]]
                asked[category] += 1
                facts[category] += any(text in prompt for text in answers)
                shown[category] += any(text in prompt for text in (*answers, *(said[turn] for turn in row["evidence"])))
        assert shown.total() / asked.total() > 0.975, (shown, asked)
        assert facts.total() / asked.total() > 0.93, (facts, asked)
        for prompt in month.prompts:
            facts_shown = [line for line in prompt.splitlines() if line.startswith("- [")]
            assert len(facts_shown) == len(set(facts_shown)), "nothing is shown twice"
        for event, _ in memory.events():
            if isinstance(event, ContextShown):
                window = event.tokens[event.names.index("window")]
                assert sum(event.tokens) <= (tokens or CONTEXT_TOKENS_DEFAULT + window)
        entries = memory.project("life").list()
        assert {entry.content for entry in entries} == set(told)
        assert all(entry.importance > 0.4 for entry in entries if entry.access_count), "what is used does not fade"
        assert_sound(memory)
