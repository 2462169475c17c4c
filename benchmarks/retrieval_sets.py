"""Recorded conversations with questions whose evidence is known, as the retrieval benchmark searches them."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy

Vectors: TypeAlias = Any
"""Rows of float32."""

VectorsOf: TypeAlias = Callable[[list[str], Path | None], Vectors]
"""Vectors for texts, by a model or from a file."""

WEEK_NS = 7 * 86_400 * 10**9
ADVERSARIAL = 5


class Item(NamedTuple):
    """One text that may be found."""

    text: str
    session: str | None
    accessed_ns: int
    occurred_ns: int | None


class Question(NamedTuple):
    """One question: the rows that hold its evidence."""

    text: str
    vector: Any
    category: str
    evidence: set[int]


class Conversation(NamedTuple):
    """Texts, their vectors, and questions about them."""

    name: str
    items: list[Item]
    vectors: Any
    questions: list[Question]


def stored_vectors(texts: list[str], stored: Path | None) -> Vectors:
    """Vectors that lie beside the texts; where none do, those of the built-in embedder."""
    if stored is None:
        from refold.embedders import HashedEmbedder  # noqa: PLC0415 - the other sets do without

        return HashedEmbedder().embed(texts)
    rows = numpy.load(stored).astype(numpy.float32)
    assert len(rows) == len(texts), f"{stored.name} has {len(rows)} vectors for {len(texts)} texts"
    return rows


def lines_of(path: Path) -> list[Any]:
    """The JSON values of a file, line by line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def locomo(data: Path, vectors_of: VectorsOf) -> list[Conversation]:
    """LoCoMo: chat turns with their speakers and dates, questions of categories 1 to 4."""
    folder = data / "locomo-emb"
    turns, questions = lines_of(folder / "turns.jsonl"), lines_of(folder / "questions.jsonl")
    turn_vectors = vectors_of([turn["text"] for turn in turns], folder / "turns_minilm_l6_f16.npy")
    question_texts = [question["question"] for question in questions]
    question_vectors = vectors_of(question_texts, folder / "questions_minilm_l6_f16.npy")
    conversations = []
    for name in dict.fromkeys(turn["conv"] for turn in turns):
        places = [place for place, turn in enumerate(turns) if turn["conv"] == name]
        row_of = {turns[place]["id"]: row for row, place in enumerate(places)}
        answered = [
            Question(
                question["question"], vector, str(question["category"]), {row_of[key] for key in question["evidence"]}
            )
            for question, vector in zip(questions, question_vectors, strict=True)
            if question["conv"] == name and question["evidence"] and question["category"] != ADVERSARIAL
        ]
        items = [locomo_item(turns[place]) for place in places]
        conversations.append(Conversation(name, items, turn_vectors[places], answered))
    return conversations


def locomo_item(turn: dict[str, Any]) -> Item:
    """A turn; all of a session have its time."""
    time = datetime.strptime(turn["date"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    time_ns = int(time.timestamp()) * 10**9
    return Item(turn["text"], str(turn["session"]), time_ns, time_ns)


def locomo_facts(data: Path, vectors_of: VectorsOf) -> list[Conversation]:
    """The facts that LoCoMo has about its conversations; evidence is any fact that cites a turn of the evidence."""
    asked = {each.name: each.questions for each in locomo(data, vectors_of)}
    turn_ids: dict[str, list[str]] = {}
    for turn in lines_of(data / "locomo-emb" / "turns.jsonl"):
        turn_ids.setdefault(turn["conv"], []).append(turn["id"])
    conversations = []
    for sample in json.loads((data / "locomo" / "locomo7_dev.json").read_text(encoding="utf-8")):
        facts = list(facts_of(sample["observation"]))
        cited = [[row for row, (_, keys) in enumerate(facts) if key in keys] for key in turn_ids[sample["sample_id"]]]
        vectors = vectors_of([text for text, _ in facts], None)
        questions = [each for each in asked[sample["sample_id"]] if any(cited[turn] for turn in each.evidence)]
        fresh = vectors_of([each.text for each in questions], None)
        answered = [
            Question(each.text, vector, each.category, {row for turn in each.evidence for row in cited[turn]})
            for each, vector in zip(questions, fresh, strict=True)
        ]
        items = [Item(text, None, 0, None) for text, _ in facts]
        conversations.append(Conversation(sample["sample_id"], items, vectors, answered))
    return conversations


def facts_of(observation: dict[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Each fact with the turns that it cites."""
    for session in observation.values():
        for facts in session.values():
            for text, cited in facts:
                keys = cited if isinstance(cited, list) else [cited]
                yield text, {part.strip() for key in keys for part in key.replace(";", ",").split(",")}


def beam(data: Path, vectors_of: VectorsOf) -> list[Conversation]:
    """BEAM: long messages; the times are drawn out over 26 weeks by position, because few have one."""
    chats = lines_of(data / "beam" / "beam_100K_dev12.jsonl")
    folder = data / "beam-emb"
    texts = [message["content"] for chat in chats for message in chat["messages"]]
    vectors = vectors_of(texts, folder / "beam_100K_dev12_messages_minilm_l6_f16.npy")
    asked = [question["question"] for chat in chats for question in chat["questions"]]
    question_vectors = iter(vectors_of(asked, folder / "beam_100K_dev12_questions_minilm_l6_f16.npy"))
    conversations, start = [], 0
    for chat in chats:
        messages = chat["messages"]
        step_ns = 26 * WEEK_NS // len(messages)
        items = [
            Item(message["content"], str(message["batch"]), row * step_ns, None) for row, message in enumerate(messages)
        ]
        row_of = {message["id"]: row for row, message in enumerate(messages)}
        answered = [
            Question(question["question"], next(question_vectors), question["type"], evidence)
            for question in chat["questions"]
            for evidence in [{row_of[key] for key in flat(question.get("source_chat_ids")) if key in row_of}]
        ]
        answered = [question for question in answered if question.evidence]
        conversations.append(Conversation(chat["id"], items, vectors[start : start + len(items)], answered))
        start += len(items)
    return conversations


def flat(value: Any) -> list[Any]:
    """Everything in a nest of lists and objects."""
    if isinstance(value, dict):
        return flat(list(value.values()))
    if isinstance(value, list):
        return [leaf for each in value for leaf in flat(each)]
    return [] if value is None else [value]


def skills(data: Path, vectors_of: VectorsOf) -> list[Conversation]:
    """Skills by name and description; the questions are the bullets that say when to use them."""
    folder = data / "skills-emb"
    indexed, asked = lines_of(folder / "skills.jsonl"), lines_of(data / "skills" / "selection_queries.jsonl")
    texts = [f"{skill['name']}. {skill['description']}" for skill in indexed]
    vectors = vectors_of(texts, folder / "skills_minilm_l6_f16.npy")
    query_vectors = vectors_of([each["query"] for each in asked], folder / "selection_queries_minilm_l6_f16.npy")
    row_of = {skill["path"]: row for row, skill in enumerate(indexed)}
    questions = [
        Question(each["query"], vector, "all", {row_of[each["path"]]})
        for each, vector in zip(asked, query_vectors, strict=True)
        if each["path"] in row_of
    ]
    return [Conversation("skills", [Item(text, None, 0, None) for text in texts], vectors, questions)]


SETS: dict[str, tuple[Callable[[Path, VectorsOf], list[Conversation]], int]] = {
    "LoCoMo": (locomo, 10),
    "BEAM-100K": (beam, 10),
    "LoCoMo facts": (locomo_facts, 10),
    "skills": (skills, 5),
}
"""The sets by name, with how many rows their recall looks at."""
