"""Evaluation of the default path: recorded conversations are played through it, then their questions are asked.

Each session is a conversation of one project, held by an `AgentLoop` with the default hooks. A question is the first
message of a new conversation, which knows nothing of other questions. Evidence counts as present if the model's input
contains the text of a message that answers the question, or of a memory made from that message.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, groupby
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from refold import Memory
from refold.agent import AgentLoop, CallableProvider, Reply, default_hooks
from refold.agent.commands import RememberCommand, detect_memory_command
from refold.agent.parts import line_of, memory_line, quote_text
from refold.embedders import Embedder, HashedEmbedder
from refold.errors import InvalidInput
from refold.evaluation.cases import Case, CaseQuestion, Item, conversations, make_case, memory_of, places
from refold.evaluation.retrieval import ALL, Interval, System, embed_cases, interval, questions_of
from refold.index.ranking import DEFAULT, RANKINGS
from refold.limits import EXTRACTED_CHARS_MAX
from refold.memory.conversation import Conversation
from refold.text import ByteClassCounter

BUDGETS: Final = (1_000, 2_000, 5_500)
"""Token budgets of the contexts that are compared, covering everything sent to the model except tool schemas."""

SYSTEMS: Final = ("context", "window", "messages", "memories")
"""The default path, and the baselines with the same budget.

`window` takes the newest messages of all sessions, `messages` the best results of an exact search over all messages,
and `memories` the best results of an exact search over the memories.
"""

_INDENT: Final = "  "  # For the lines of an earlier message after its first one.
_COUNT: Final = ByteClassCounter().count
_RANKING: Final = System(name=DEFAULT, ranking=RANKINGS[DEFAULT])


class ExtractedFact(Struct, frozen=True):
    """A fact that an extraction made from a conversation: its text, and the places of the items it was made from."""

    text: str
    places: frozenset[int]


class Recording(Struct, frozen=True):
    """A conversation with its questions, and the facts that an extraction made from it."""

    case: Case
    facts: tuple[ExtractedFact, ...]


class SentContext(Struct, frozen=True):
    """A system's context for one question: the share of the evidence in it, and its tokens."""

    system: str
    budget: int
    category: str
    share: float
    tokens: int


class Presence(Struct, frozen=True):
    """How much of the evidence reaches a model within a budget: means over the questions of a category.

    `share` is the share of a question's evidence that is present, `full` the share of questions with all of it, and
    `tokens` the number of tokens sent.
    """

    system: str
    budget: int
    category: str
    questions: int
    share: float
    share_interval: Interval
    full: float
    tokens: float


def recordings_of(path: Path, progress: Callable[[int, int], None] | None = None) -> list[Recording]:
    """Read the conversations of a file that have questions with evidence; raises the same errors as `cases_of`."""
    with memory_of(path, progress) as memory:
        recordings = [
            Recording(make_case(name, items, source, shared), tuple(_facts(items, source)))
            for name, items, source, shared in conversations(memory)
        ]
    return [each for each in recordings if any(question.evidence for question in each.case.questions)]


_Observations: TypeAlias = dict[str, dict[str, list[tuple[str, str | list[str]]]]]


def _facts(items: Sequence[Item], source: dict[str, Any]) -> Iterator[ExtractedFact]:
    """Yield LoCoMo's own observations; for other datasets, the messages of the user."""
    if "observation" not in source:
        for place, item in enumerate(items):
            if item.role == "user":
                yield ExtractedFact(item.text[:EXTRACTED_CHARS_MAX].strip(), frozenset({place}))
        return
    place_of = places(items)
    try:
        sessions = msgspec.convert(source["observation"], _Observations).values()
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the observations are not as LoCoMo has them: {error}; give its file unchanged") from error
    for text, cited in (fact for session in sessions for facts in session.values() for fact in facts):
        keys = ",".join([cited] if isinstance(cited, str) else cited).replace(";", ",").split(",")
        made_of = frozenset(place_of[key.strip()] for key in keys if key.strip() in place_of)
        if made_of:
            yield ExtractedFact(text, made_of)


def _rules(items: Sequence[Item]) -> Iterator[ExtractedFact]:
    """Yield what users ask to remember, as the default hooks store it; that can differ from the message text."""
    for place, item in enumerate(items):
        command = detect_memory_command(item.text) if item.role == "user" else None
        if isinstance(command, RememberCommand):
            yield ExtractedFact(command.content, frozenset({place}))


class _Snippet(NamedTuple):
    """A text that can be sent: its tokens, and the places that are known from it."""

    tokens: int
    places: list[frozenset[int]]


class _ReplayModel:
    """The text and facts of a conversation, which stand in for both models of the default path."""

    def __init__(self, recording: Recording) -> None:
        self.answer = ""
        self.sent = ""
        items = recording.case.items
        # As the prompt of an extraction quotes a message: its lines after the first are indented.
        self._facts = [(fact, quote_text(items[max(fact.places)].text, _INDENT)) for fact in recording.facts]

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Reply:  # noqa: ARG002 - protocol
        self.sent = "\n\n".join(message["content"] for message in messages)
        return Reply(self.answer)

    def learn(self, messages: list[dict[str, Any]], *_: object) -> dict[str, Any]:
        """Answer an extraction with the facts learned from the messages in its prompt."""
        page = messages[-1]["content"]
        facts = [fact for fact, text in self._facts if text in page]
        self._facts = [(fact, text) for fact, text in self._facts if text not in page]
        return {"memories": [{"category": "fact", "content": fact.text, "importance": 0.5} for fact in facts]}


class Agent:
    """An agent that has lived through a recorded conversation, ready to answer its questions."""

    def __init__(self, recording: Recording, embedder: Embedder | None = None) -> None:
        self.recording = recording
        self._now_ns = 0
        self._questions_count = 0
        self._lines = [(line_of(fact.text), fact.places) for fact in (*recording.facts, *_rules(recording.case.items))]
        quotes = [
            (quote_text(item.text, _INDENT), frozenset({place})) for place, item in enumerate(recording.case.items)
        ]
        # At the start of a message, or within one that was joined from several.
        self._quotes = [
            (tuple(f"{before}{text}\n" for before in ("user: ", "assistant: ", f"\n{_INDENT}")), places)
            for text, places in quotes
            if text
        ]
        self._pieces: dict[str, _Snippet] = {}
        self._record = _ReplayModel(recording)
        self.memory = Memory(embedder=embedder, clock_ns=lambda: self._now_ns)
        default_hooks(self.memory, provider=CallableProvider(self._record.learn))
        for session, items in groupby(recording.case.items, key=lambda item: item.session):
            self._replay_session(f"session {session}", items)

    def _replay_session(self, name: str, items: Iterator[Item]) -> None:
        loop = self._loop(name)
        prompt = ""
        for role, group in groupby(items, key=lambda item: item.role):
            turns = list(group)
            self._now_ns = max(self._now_ns, *(item.accessed_ns for item in turns))
            text = "\n\n".join(item.text for item in turns)
            if role == "user":
                prompt = text
                continue
            self._record.answer = text
            if prompt:
                loop.run(prompt)
            else:
                loop.chat.append("assistant", text)
            prompt = ""
        if prompt:
            loop.chat.append("user", prompt)
        loop.end()

    def _loop(self, name: str) -> AgentLoop:
        return AgentLoop(self.memory, self._conversation(name), self._record)

    def _conversation(self, name: str) -> Conversation:
        return self.memory.conversation(name, project=self.recording.case.name)

    def ask(self, question: CaseQuestion, budget: int) -> SentContext:
        """Ask a question at the start of a new session, and return what the model is sent."""
        self._questions_count += 1
        self._record.answer = ""
        # Forks of one conversation do not see each other.
        chat = self._conversation("questions").fork(f"question {self._questions_count}")
        AgentLoop(self.memory, chat, self._record, budget=budget).run(question.text)
        text = self._record.sent
        return _measure_context(SYSTEMS[0], budget, question, self._find_places(text), _COUNT(text))

    def rank_memories(self, question: CaseQuestion) -> list[_Snippet]:
        """List the memories for a question, best first."""
        project = self.memory.project(self.recording.case.name)
        lines = [
            memory_line(hit.entry) for hit in project.search(question.text, top_k=max(project.count(), 1), floor=0)
        ]
        for line in lines:
            if line not in self._pieces:
                self._pieces[line] = _Snippet(_COUNT(line), self._find_places(line))
        return [self._pieces[line] for line in lines]

    def _find_places(self, text: str) -> list[frozenset[int]]:
        there = [places for line, places in self._lines if line in text]
        lines = f"{text}\n"
        return there + [places for forms, places in self._quotes if any(form in lines for form in forms)]


def _measure_context(
    system: str, budget: int, question: CaseQuestion, known: Sequence[frozenset[int]], tokens: int
) -> SentContext:
    present = question.evidence.intersection(chain.from_iterable(known))
    return SentContext(system, budget, question.category, len(present) / len(question.evidence), tokens)


def _fill_context(system: str, budget: int, question: CaseQuestion, pieces: Sequence[_Snippet]) -> SentContext:
    """Take the pieces that fit beside a question, in the given order."""
    left = budget - _COUNT(question.text)
    known: list[frozenset[int]] = []
    for piece in pieces:
        if piece.tokens <= left:
            left -= piece.tokens
            known += piece.places
    return _measure_context(system, budget, question, known, budget - left)


def measure_contexts(
    recordings: Sequence[Recording],
    budgets: Sequence[int] = BUDGETS,
    embedder: Embedder | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[SentContext]:
    """Ask the default path and each baseline every question that has evidence, within each budget."""
    results: list[SentContext] = []
    for done, recording in enumerate(recordings, 1):
        agent = Agent(recording, embedder)
        messages = [_Snippet(item.tokens, [frozenset({place})]) for place, item in enumerate(recording.case.items)]
        (case,) = embed_cases([recording.case], embedder or HashedEmbedder())
        for question, query, cosine, texts in questions_of(case, _RANKING):
            order = [row for row, _ in texts.best(texts.score(query, cosine)[0], len(texts))]
            memories = agent.rank_memories(question)
            for budget in budgets:
                results += [
                    agent.ask(question, budget),
                    _fill_context("window", budget, question, _newest(messages, budget - _COUNT(question.text))),
                    _fill_context("messages", budget, question, [messages[row] for row in order]),
                    _fill_context("memories", budget, question, memories),
                ]
        if progress:
            progress(done, len(recordings))
    return results


def _newest(pieces: Sequence[_Snippet], tokens: int) -> list[_Snippet]:
    """Take pieces from the end until one does not fit."""
    sums = accumulate(piece.tokens for piece in reversed(pieces))
    return list(pieces[len(pieces) - sum(each <= tokens for each in sums) :])


def presences(results: Sequence[SentContext]) -> list[Presence]:
    """Return the figures of each system and budget over all questions, then those of each category."""
    groups: dict[tuple[str, str, int], list[SentContext]] = {}
    for each in results:
        for category in (ALL, each.category):
            groups.setdefault((category, each.system, each.budget), []).append(each)
    kinds = [ALL, *sorted({each.category for each in results} - {ALL})]
    keys = sorted(groups, key=lambda key: (kinds.index(key[0]), key[2], SYSTEMS.index(key[1])))
    return [_presence(*key, groups[key]) for key in keys]


def _presence(category: str, system: str, budget: int, group: Sequence[SentContext]) -> Presence:
    shares = [each.share for each in group]
    return Presence(
        system,
        budget,
        category,
        len(group),
        fmean(shares),
        interval(shares),
        fmean(share == 1 for share in shares),
        fmean(each.tokens for each in group),
    )
