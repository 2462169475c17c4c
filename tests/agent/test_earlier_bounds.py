"""Earlier messages under small bounds: what is found depends on the log alone, not on what was searched before."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from refold import Memory, Snapshot
from tests.support.bounds import lowered

ASKED = "Which port does the staging database have?"
NAMES = ("a", "b", "c")
PROJECTS = ("acme", "umbrella", None)
ACTS = (
    *("say", "say", "say", "say", "answer", "ask", "ask", "ask"),
    *("fork", "drop", "restore", "bring", "replace", "note", "forget", "state"),
)


def found(memory: Memory, name: str, project: str, seq: int) -> Sequence[str]:
    """The lines of the earlier messages that a conversation is shown at a seq."""
    chat = memory.conversation(name).at(seq)
    part = memory.context(chat, query=ASKED, project=project, profile="p").part("messages")
    return () if part is None else part.text.splitlines()


class Histories:
    """Conversations that are written to at random, and what was found at each question."""

    def __init__(self, memory: Memory, random: Random) -> None:
        self.memory = memory
        self.asked: list[tuple[tuple[str, str, int], Sequence[str]]] = []
        self._random = random
        other = Memory().conversation("other", window_tokens=100)
        other.append("user", "The staging database listens on port 5432.", tokens=40)
        self._foreign = Snapshot.from_bytes(other.snapshot().to_bytes())

    def go_on(self, act: str) -> None:
        memory, choose = self.memory, self._random.choice
        name = choose(NAMES)
        is_new = name not in memory.conversations()
        chat = memory.conversation(name)
        if is_new:
            chat = memory.conversation(name, project=choose(PROJECTS), window_tokens=100)
        text = f"The staging database listens on port {6000 + memory.head}."
        window = chat.window()
        if act in ("say", "answer"):
            chat.append("user" if act == "say" else "assistant", text, tokens=40)
        elif act == "drop":
            chat.drop()
        elif act == "bring":
            chat.restore(self._foreign)
        elif act == "state":
            memory.table("metrics").put("port", memory.head)
        elif act == "forget":
            memory.profile("p").delete(choose("xyz"))
        elif act == "ask":
            question = name, choose(("acme", "umbrella")), memory.head
            self.asked.append((question, found(memory, *question)))
        elif window and act == "fork":
            chat.fork(choose([each for each in NAMES if each != name]), replace=True)
        elif window and act == "restore":
            memory.conversation(choose(NAMES)).restore(chat.snapshot())
        elif window and act == "replace":
            chat.replace(choose(window), f"{text} Really.", tokens=40)
        elif window and act == "note":
            memory.profile("p").set(choose("xyz"), text, sources=[choose(window).seq])


@settings(max_examples=50, deadline=None)
@given(acts=st.lists(st.sampled_from(ACTS), min_size=30, max_size=60), seed=st.integers(0, 2**32))
def test_a_running_memory_finds_what_a_reopened_one_does(acts: list[str], seed: int) -> None:
    with TemporaryDirectory() as root, lowered(EARLIER_EVENTS_COUNT=10, EARLIER_MESSAGES_COUNT=4):
        path = Path(root) / "store"
        with Memory(path) as memory:
            histories = Histories(memory, Random(seed))
            for act in acts:
                histories.go_on(act)
            for question, lines in histories.asked:
                assert found(memory, *question) == lines, "the running one, later"
        for question, lines in reversed(histories.asked):
            with Memory(path) as memory:
                assert found(memory, *question) == lines, "one that was opened for this question"
