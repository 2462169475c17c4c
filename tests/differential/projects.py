"""What the contract says of projects: memories, what becomes of them, episodes, and searches by brute force."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from struct import pack, unpack
from typing import Any, ClassVar

from refold import InvalidInput, NotFound
from tests.differential.chats import Chats, State, Values
from tests.differential.log import Change, Options, Row
from tests.support.other_process import WordsEmbedder

DAY_NS = 86_400 * 10**9
TEXTS = ("content", "keywords", "metadata")


def keywords_of(text: str) -> tuple[str, ...]:
    """The words of at least three bytes, each once."""
    return tuple(dict.fromkeys(word for word in re.findall(r"\w+", text.lower()) if len(word.encode()) >= 3))


def vector_of(text: str) -> tuple[float, ...]:
    """The vector of a text."""
    return tuple(WordsEmbedder().embed([text])[0])


NO_VECTOR = (0.0,) * 5
"""What is left of a vector that was erased: nothing is similar to it."""


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two vectors, as single floats, to six decimals."""
    units = [[number / (sqrt(sum(n * n for n in vector)) or 1.0) for number in vector] for vector in (one, other)]
    a, b = (unpack(f"{len(unit)}f", pack(f"{len(unit)}f", *unit)) for unit in units)
    return float(round(sum(x * y for x, y in zip(a, b, strict=True)), 6))


@dataclass(frozen=True)
class Fact:
    """One memory; ``body`` is the seq of the row that holds its text, ``blank`` the texts of it that were erased."""

    id: str
    content: str
    category: str
    keywords: tuple[str, ...]
    importance: float
    status: str
    metadata: Any
    source: str | int | None
    vector: tuple[float, ...]
    access_count: int = 0
    created_ns: int = 0
    updated_ns: int = 0
    accessed_ns: int = 0
    decayed_ns: int = 0
    occurred_ns: int = 0
    body: int = 0
    vector_seq: int = 0
    blank: tuple[str, ...] = ()

    def shown(self) -> Any:
        """What a diff tells apart."""
        said = (self.content, self.category, self.keywords, self.importance, self.access_count, self.status)
        return (*said, repr(self.metadata), self.source, self.accessed_ns, self.decayed_ns)


@dataclass
class Shared(State):
    """The state of a project: values, memories by id, the ids of erased ones, merges taken apart, episodes."""

    values: Values = field(default_factory=dict)
    memories: dict[str, Fact] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)
    apart: dict[int, None] = field(default_factory=dict)
    episodes: list[tuple[Any, ...]] = field(default_factory=list)

    def hashed(self) -> Any:
        apart = sorted(self.apart) if self.memories or self.gone else []
        facts = [replace(fact, vector=()) for fact in self.memories.values()]
        return sorted(self.values.items()), facts, sorted(self.gone), apart, self.episodes

    def plain(self) -> Any:
        values = {key: repr(value) for key, (value, _) in self.values.items()}
        memories = {fact.id: fact.shown() for fact in self.memories.values()}
        return values, memories, sorted(self.gone), [row[1:] for row in self.episodes]

    def same(self, content: str) -> Fact | None:
        """The memory of exactly this content."""
        return next((fact for fact in self.memories.values() if fact.content == content), None)

    def get(self, fact_id: str) -> Fact:
        """The memory of an id, which has to be there."""
        if fact_id not in self.memories:
            raise NotFound(fact_id)
        return self.memories[fact_id]

    def lose(self, fact_id: str) -> None:
        """Leave nothing of a memory but its id."""
        self.memories.pop(fact_id, None)
        self.gone[fact_id] = None

    def change(self, row: Row, fact_id: str, changes: dict[str, Any]) -> None:
        """Give a memory other fields, if it is there; those with a text come with all of its texts."""
        held = self.memories.get(fact_id)
        if held is not None:
            body: dict[str, Any] = {"body": row.seq, "blank": ()} if changes.keys() & set(TEXTS) else {}
            self.memories[fact_id] = replace(held, **body, **changes)


def joint(text: str, other: str) -> str:
    """The text that says both: one that has the words of the other side by side, else both."""
    if says(text, other):
        return text
    return other if says(other, text) else f"{text} | {other}"


def says(text: str, other: str) -> bool:
    """Whether a piece of a text has each piece of another, in words without case and punctuation."""
    pieces, others = (
        [[word.strip("!.,") for word in piece.lower().split()] for piece in each.split(" | ")] for each in (text, other)
    )
    return all(
        any(words[begin : begin + len(own)] == own for words in pieces for begin in range(len(words))) for own in others
    )


def texts_of(held: Fact, changes: dict[str, Any]) -> dict[str, Any]:
    """The texts of a memory that changes one of them: a row that has one has all."""
    return {name: getattr(held, name) for name in TEXTS} if changes.keys() & set(TEXTS) else {}


def merge_of(held: Fact, other: Fact) -> dict[str, Any]:
    """What a merge changes of the memory that is kept: category and metadata are its own."""
    content, vectors = joint(held.content, other.content), {other.content: other.vector}
    return {
        "content": content,
        "keywords": tuple(dict.fromkeys((*held.keywords, *other.keywords))),
        "importance": max(held.importance, other.importance),
        "metadata": held.metadata,
        **({"vector": vectors.get(content) or vector_of(content)} if content != held.content else {}),
    }


def best(state: Shared, vector: Sequence[float]) -> tuple[Fact, float] | None:
    """The active memory that is most alike: of several the most important, then the oldest."""
    active = [(fact, cosine(vector, fact.vector)) for fact in state.memories.values() if fact.status == "active"]
    return max(active, key=lambda pair: (pair[1], pair[0].importance), default=None)


def scores(state: Shared, query: str, now_ns: int, *, has_recency: bool) -> dict[str, float]:
    """The score of every active memory of some importance, by the formula as it is written."""
    vector, words, found = vector_of(query), set(keywords_of(query)), dict[str, float]()
    for fact in state.memories.values():
        if fact.status == "active" and fact.importance >= 0.1:
            own = set(fact.keywords)
            jaccard = len(words & own) / len(words | own) if words | own else 0.0
            recency = 0.15 / (1 + 0.1 * max(now_ns - fact.accessed_ns, 0) / DAY_NS) if has_recency else 0.0
            found[fact.id] = 0.40 * cosine(vector, fact.vector) + 0.25 * jaccard + 0.20 * fact.importance + recency
    return found


def adding(fact: Fact, sources: tuple[int, ...] | None) -> Change:
    """A memory comes in."""

    def effect(state: Shared, row: Row) -> None:
        if row.erased:
            state.lose(fact.id)
            return
        times: dict[str, Any] = {"created_ns": row.clock_ns, "updated_ns": row.clock_ns}
        happened: dict[str, Any] = {"accessed_ns": row.occurred_ns, "occurred_ns": row.occurred_ns}
        state.memories[fact.id] = replace(fact, **times, **happened, body=row.seq, vector_seq=row.seq)

    return Change(effect, ("fact", fact), sources, ids=(fact.id,))


def merging(kept_id: str, other: Fact, changes: dict[str, Any], sources: tuple[int, ...]) -> Change:
    """A memory takes in another one, which may have come for that alone."""

    def effect(state: Shared, row: Row) -> None:
        was_there = state.memories.pop(other.id, None) is not None
        if row.erased or (was_there and kept_id not in state.memories):
            state.gone[other.id] = None
        else:
            vector = {"vector_seq": row.seq} if "vector" in changes else {}
            state.change(row, kept_id, changes | vector | {"updated_ns": row.clock_ns})

    return Change(effect, ("merge", kept_id, other, changes), sources, ids=(kept_id, other.id))


class Projects(Chats):
    """The verbs of a project, which is given by its name."""

    EMPTY: ClassVar = Chats.EMPTY | {"project": Shared}

    def _project(self, where: str, asked: Any, decide: Any, options: Any, occurred: int | None = None) -> Row | None:
        return self.note(f"project/{where}", asked, decide, Options(**options), occurred=occurred)

    def _drafted(self, fact_id: str, content: str, draft: dict[str, Any], source: Any = None) -> Fact:
        given, vector = draft["keywords"], draft["vector"]
        words = keywords_of(content) if given is None else tuple(word.lower() for word in given)
        rest = (draft["category"], words, draft["importance"], draft["status"], draft["metadata"])
        return Fact(fact_id, content, *rest, source, tuple(vector) if vector else vector_of(content))

    def project_add(self, where: str, content: str, *, draft: Any, source: Any = None, **options: Any) -> Any:
        fact = self._drafted(self.new_ids[0] if self.new_ids else "", content, draft, source)

        def decide(state: Shared) -> Change | None:
            return adding(fact, (source,) if isinstance(source, int) else None) if not state.same(content) else None

        asked = ("add", content, repr(draft), source)
        row = self._project(where, asked, decide, options, draft["occurred"])
        if row is None and self.state(f"project/{where}", self.decided_at).same(content) is None:
            return {"content": "", "erased": True}
        if row is None:
            return {"content": content}
        if row.erased:
            return {"content": "", "erased": True}
        return {"content": content, "id": row.about[1].id, "seq": self.settled(row.seq)}

    def project_upsert(
        self, where: str, content: str, *, draft: Any, threshold: float | None = None, **options: Any
    ) -> Any:
        """Add a memory, or merge it into what is more alike than the threshold."""
        bound = 0.85 if threshold is None else threshold

        def decide(state: Shared) -> Change | None:
            other = self._drafted(self.new_ids[0] if self.new_ids else "", content, draft)
            kept = state.same(content)
            if kept is None:
                found = best(state, other.vector)
                kept = found[0] if found is not None and found[1] > bound else None
                taken = kept and state.same(joint(kept.content, content))
                kept = None if taken and taken is not kept else kept
            if kept is None:
                return adding(other, None)
            changes = merge_of(kept, other)
            if kept.status != "active" or all(getattr(kept, name) == value for name, value in changes.items()):
                return None
            return merging(kept.id, other, changes, (kept.body,))

        row = self._project(where, ("upsert", content, repr(draft), bound), decide, options, draft["occurred"])
        return "skipped" if row is None else {"fact": "inserted", "merge": "merged"}[row.about[0]]

    def project_update(self, where: str, fact_id: str, *, fields: dict[str, Any], **options: Any) -> Any:
        """Change fields of a memory; keywords that were made of its content follow that, and so does a given time."""
        occurred = fields.get("occurred")
        if occurred is not None and "content" not in fields:
            raise InvalidInput(occurred)

        def decide(state: Shared) -> Change | None:
            held, wanted = state.get(fact_id), {name: value for name, value in fields.items() if name != "occurred"}
            if "keywords" in wanted:
                wanted["keywords"] = tuple(wanted["keywords"])
            elif "content" in wanted and held.keywords == keywords_of(held.content):
                wanted["keywords"] = keywords_of(wanted["content"])
            changes = {name: value for name, value in wanted.items() if getattr(held, name) != value}
            if "content" in changes and state.same(changes["content"]):
                raise InvalidInput(changes["content"])
            if not changes:
                return None
            kept_words = "keywords" not in fields and held.keywords and held.keywords != keywords_of(held.content)
            is_kept = kept_words or held.source or (held.metadata is not None and fields.get("metadata") is None)
            is_new = "content" in changes
            return rewriting(held, changes, is_whole=is_new and not is_kept, is_dated=is_new and occurred is not None)

        self._project(where, ("update", fact_id, repr(fields)), decide, options, occurred)
        return ...

    def project_delete(self, where: str, fact_id: str, **options: Any) -> None:
        def decide(state: Shared) -> Change:
            return deleting_facts([state.get(fact_id).id])

        self._project(where, ("delete", fact_id), decide, options)

    def project_clear(self, where: str, **options: Any) -> Any:
        def effect(state: Shared, _: Row) -> None:
            state.memories = {}

        self._project(where, ("clear project",), lambda state: Change(effect) if state.memories else None, options)
        return ...

    def project_review(self, where: str, fact_id: str, status: str, **options: Any) -> Any:
        def effect(state: Shared, row: Row) -> None:
            state.change(row, fact_id, {"status": status, "updated_ns": row.clock_ns})

        def decide(state: Shared) -> Change | None:
            return Change(effect, ids=(fact_id,)) if state.get(fact_id).status != status else None

        self._project(where, ("review", fact_id, status), decide, options)
        return ...

    def project_approve(self, where: str, fact_id: str, **options: Any) -> Any:
        return self.project_review(where, fact_id, "active", **options)

    def project_reject(self, where: str, fact_id: str, **options: Any) -> Any:
        return self.project_review(where, fact_id, "rejected", **options)

    def project_archive(self, where: str, fact_id: str, **options: Any) -> Any:
        return self.project_review(where, fact_id, "archived", **options)

    # Upkeep.

    def project_decay(self, where: str, *, dry_run: bool = False, **options: Any) -> Any:
        now_ns = self.now_ns()

        def rows_of(state: Shared) -> list[tuple[str, float, int]]:
            rows = []
            for fact in state.memories.values():
                times = (fact.accessed_ns, fact.decayed_ns, fact.created_ns)
                past = [time_ns for time_ns in times if time_ns <= now_ns + 3_600 * 10**9]
                since_ns = max(past, default=0)
                days = (now_ns - since_ns) // DAY_NS
                if len(past) < len(times) and (fact.decayed_ns not in past or not fact.decayed_ns):
                    rows.append((fact.id, fact.importance, now_ns))
                elif days > 0:
                    rows.append((fact.id, fact.importance * 0.95 ** (days / 7), since_ns + days * DAY_NS))
            return rows

        def decide(state: Shared) -> Change | None:
            rows = rows_of(state)

            def effect(now: Shared, row: Row) -> None:
                for fact_id, importance, decayed_ns in rows:
                    now.change(row, fact_id, {"importance": importance, "decayed_ns": decayed_ns})

            return Change(effect, ("count", len(rows)), ids=tuple(row[0] for row in rows)) if rows else None

        if dry_run:
            return {"changed": len(rows_of(self.state(f"project/{where}")))}
        row = self._project(where, ("decay",), decide, options)
        return {"changed": row.about[1] if row else 0}

    def project_prune(self, where: str, bound: float, **options: Any) -> Any:
        def decide(state: Shared) -> Change | None:
            ids = [fact.id for fact in state.memories.values() if fact.importance < bound]
            return deleting_facts(ids) if ids else None

        row = self._project(where, ("prune", bound), decide, options)
        return {"removed": row.about[1] if row else 0}

    def project_compact(self, where: str, threshold: float | None = None, **options: Any) -> Any:
        bound = 0.90 if threshold is None else threshold
        row = self._project(where, ("compact", bound), lambda state: compaction(state, bound), options)
        return {"merged": len(self.written)} if not self.is_repeated and not (row and row.erased) else ...

    def project_unmerge(self, where: str, seq: int, **options: Any) -> Any:
        """Take a merge apart: what the kept memory got by it goes back, unless it was changed since."""
        stream = f"project/{where}"
        merge = next((row for row in self.stream_rows(stream, self.committed) if row.seq == seq), None)
        if merge is None or not merge.about or merge.about[0] != "merge":
            raise NotFound(seq)
        if merge.erased:
            raise InvalidInput(seq)
        before = self.state(stream, seq - 1)
        before.get(merge.about[1])

        def is_erased(source: int) -> bool:
            return any(row.erased for row in self.rows if row.seq == source)

        row = self._project(where, ("unmerge", seq), lambda state: parting(state, before, merge, is_erased), options)
        assert row is not None
        return [fact_id for fact_id in row.about if fact_id]

    # Recalls and episodes.

    def project_recall(self, where: str, query: str, *, top_k: int, conversation: str | None, **options: Any) -> Any:
        """Record a search; what was found is the engine's to say, for scores are not part of the contract."""
        found = tuple(self.new_ids)
        lines = self.state(f"conversation/{conversation}").lines if conversation else []

        def effect(state: Shared, row: Row) -> None:
            for fact_id in found:
                held = state.memories.get(fact_id)
                if held is not None:
                    changes = {"access_count": held.access_count + 1, "accessed_ns": row.occurred_ns}
                    state.change(row, fact_id, changes)

        change = Change(effect, found, (lines[-1].seq,) if lines else None, ids=found)
        row = self._project(where, ("recall", query, top_k, conversation), lambda _: change, options)
        assert row is not None
        return row.about

    def project_record_episode(self, where: str, kind: str, *, task: str, outcome: str, **options: Any) -> Any:
        episode_id = self.new_ids[0] if self.new_ids else ""

        def effect(state: Shared, row: Row) -> None:
            if not row.erased:
                state.episodes.append((row.seq, episode_id, task, row.time_ns, row.occurred_ns))

        self._project(where, ("try", kind, task, outcome), lambda _: Change(effect), options)
        return ...


def deleting_facts(ids: list[str]) -> Change:
    """Memories go."""

    def effect(state: Shared, _: Row) -> None:
        for fact_id in ids:
            state.memories.pop(fact_id, None)

    return Change(effect, ("count", len(ids)), ids=tuple(ids))


def rewriting(held: Fact, changes: dict[str, Any], *, is_whole: bool, is_dated: bool) -> Change:
    """A memory gets other fields; one that is told whole is there although what it said before is erased."""
    if "content" in changes:
        changes = changes | {"vector": vector_of(changes["content"])}
    texts = texts_of(held, changes)

    def effect(state: Shared, row: Row) -> None:
        now = state.memories.get(held.id)
        if now is None:
            if is_whole and not row.erased and held.id in state.gone:
                del state.gone[held.id]
                told = replace(held, **{"source": None, "access_count": 0, "decayed_ns": 0} | changes)
                times: dict[str, Any] = {"created_ns": row.clock_ns, "updated_ns": row.clock_ns}
                happened: dict[str, Any] = {"accessed_ns": row.occurred_ns, "occurred_ns": row.occurred_ns}
                begun: dict[str, Any] = {"body": row.seq, "vector_seq": row.seq, "blank": ()}
                state.memories[held.id] = replace(told, **times, **happened, **begun)
            return
        if not row.erased:
            vector = {"vector_seq": row.seq} if "vector" in changes else {}
            happened = dict.fromkeys(["occurred_ns", "accessed_ns"][: 1 if now.access_count else 2], row.occurred_ns)
            times = {"updated_ns": row.clock_ns} | (happened if is_dated else {})
            state.change(row, held.id, texts | changes | vector | times)
        elif "content" in changes:
            state.lose(held.id)
        else:
            blank = tuple(name for name in ("keywords", "metadata") if name in changes or name in now.blank)
            empty: dict[str, Any] = {"keywords": (), "metadata": None}
            state.memories[held.id] = replace(now, **{name: empty[name] for name in blank}, blank=blank)

    return Change(effect, None, (held.body,) if texts and not is_whole else (), ids=(held.id,))


def parting(state: Shared, before: Shared, merge: Row, is_erased: Callable[[int], bool]) -> Change:
    """What takes a merge apart; a vector that goes back is gone where the event that has it was erased."""
    _, kept_id, other, changes = merge.about
    held, old = state.get(kept_id), before.memories[kept_id]
    if merge.seq in state.apart:
        raise InvalidInput(merge.seq)
    names = [name for name in ("content", "keywords", "importance") if getattr(held, name) == changes[name]]
    back = {name: getattr(old, name) for name in names if getattr(held, name) != getattr(old, name)}
    if "content" in back and any(f.content == back["content"] for f in state.memories.values() if f.id != kept_id):
        raise InvalidInput(back["content"])
    texts = texts_of(held, back)
    if "content" in back:
        back |= {"vector": old.vector, "vector_seq": old.vector_seq}
    times: dict[str, Any] = {"created_ns": merge.clock_ns, "updated_ns": merge.clock_ns}
    happened: dict[str, Any] = {"accessed_ns": merge.occurred_ns, "occurred_ns": merge.occurred_ns}
    found = before.memories.get(other.id) or replace(other, **times, **happened)
    twin = state.same(found.content)
    is_back = twin is None or (twin.id == kept_id and "content" in back)
    if other.body and other.id not in before.memories:  # It was there, and what said so was erased since.
        is_back = False

    def effect(now: Shared, row: Row) -> None:
        now.apart[merge.seq] = None
        if row.erased:
            if kept_id in now.memories and now.memories[kept_id].body == merge.seq:
                now.lose(kept_id)
            if is_back:
                now.gone[found.id] = None
            return
        lost = {"vector": NO_VECTOR} if "vector" in back and is_erased(old.vector_seq) else {}
        now.change(row, kept_id, texts | back | lost | {"updated_ns": row.clock_ns})
        if is_back:
            now.gone.pop(found.id, None)
            now.memories[found.id] = replace(found, body=row.seq, vector_seq=row.seq, blank=())

    sources = (merge.seq, held.body) if texts else (merge.seq,)
    brought = found.id if is_back else ""
    return Change(effect, (kept_id, brought), sources, ids=(kept_id, brought) if is_back else (kept_id,))


def compaction(state: Shared, bound: float) -> list[Change]:
    """Rounds in which each memory, the more important first, takes in what is alike, until nothing is."""
    active = [fact for fact in state.memories.values() if fact.status == "active"]
    facts = sorted(active, key=lambda fact: -fact.importance)
    contents = {fact.content for fact in state.memories.values()}
    bodies: dict[str, tuple[int, ...]] = {fact.id: (fact.body,) for fact in facts}
    made: list[Change] = []
    count = -1
    while len(made) > count:
        count, kept = len(made), list[Fact]()
        while facts:
            first, *others = facts
            taker, facts = first, []
            for other in others:
                text = joint(taker.content, other.content)
                is_taken = text not in {taker.content, other.content} and text in contents
                if cosine(first.vector, other.vector) <= bound or is_taken:
                    facts.append(other)
                    continue
                changes = merge_of(taker, other)
                bodies[taker.id] += bodies[other.id]
                made.append(merging(taker.id, other, changes, bodies[taker.id]))
                contents.add(text)
                taker = replace(taker, **changes)
            kept.append(taker)
        facts = kept
    return made
