"""The rules of the state machine for the memories and episodes of projects."""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from refold import InvalidInput, NotFound
from refold.engine import batch as batches
from refold.text import keywords as keywords_of
from tests.machine.chat_rules import GIVEN, drawn_rule
from tests.machine.driver import Drawn, drawn_options, moments
from tests.machine.memory_rules import WholeRules
from tests.machine.model import Options
from tests.machine.model_facts import DAY_NS, Fact, Shared, best, cosine, joint, merge_changes, texts_of, vector_of
from tests.machine.model_states import Entry
from tests.support.seams import engine_of

CONTENTS = ["tea", "tea!", "tea milk", "tea tea milk", "port", "port red", "red \u00e9", "milk " * 60]
projects = st.sampled_from(["p", "p", "default"])
places = st.integers(0, 1_000)
vectors = st.sampled_from([None, None, None, [1.0, 2.0, 0.0, 0.0, 0.5], [0.0, 0.0, 3.0, 0.0, 0.0]])
drafts = st.fixed_dictionaries(
    {
        "content": st.sampled_from(CONTENTS),
        "category": st.sampled_from(["fact", "preference"]),
        "keywords": st.sampled_from([None, None, ["Hot", "drink"], []]),
        "importance": st.sampled_from([0.05, 0.5, 0.9]),
        "metadata": st.sampled_from([None, {"m": [1]}]),
        "status": st.sampled_from(["active", "active", "active", "pending_review"]),
        "vector": vectors,
        "occurred": moments,
    }
)
sources = st.sampled_from([None, None, "s", 0, 7])
updates = st.fixed_dictionaries(
    {},
    optional={
        "content": st.sampled_from(CONTENTS),
        "category": st.sampled_from(["fact", "pattern"]),
        "keywords": st.just(["cold"]),
        "importance": st.sampled_from([0.05, 0.7]),
        "metadata": st.just({"n": None}),
    },
)

GIVEN |= {
    "remember": {"project": projects, "draft": drafts, "source": sources, "drawn": drawn_options},
    "learn": {"project": projects, "learned": st.lists(st.tuples(st.booleans(), drafts), min_size=2, max_size=6)},
    "upsert": {
        "project": projects,
        "draft": drafts,
        "threshold": st.sampled_from([None, None, 0.5]),
        "drawn": drawn_options,
    },
    "unmerge": {"project": projects, "place": places, "drawn": drawn_options},
    "update": {"project": projects, "place": places, "fields": updates, "drawn": drawn_options},
    "forget": {"project": projects, "place": places, "drawn": drawn_options},
    "empty_project": {"project": projects, "drawn": drawn_options},
    "review": {
        "project": projects,
        "place": places,
        "verb": st.sampled_from(["approve", "reject", "archive", "review"]),
        "drawn": drawn_options,
    },
    "decay": {"project": projects, "dry_run": st.booleans(), "drawn": drawn_options},
    "prune": {"project": projects, "bound": st.sampled_from([0.1, 0.6]), "drawn": drawn_options},
    "compact": {"project": projects, "threshold": st.sampled_from([None, 0.7]), "drawn": drawn_options},
    "recall": {
        "project": projects,
        "query": st.sampled_from(["tea milk", "red", ""]),
        "chat": st.sampled_from([None, "a"]),
        "drawn": drawn_options,
    },
    "try_something": {"project": projects, "task": st.sampled_from(["tea", "port"]), "drawn": drawn_options},
}
STATUS = {"approve": "active", "reject": "rejected", "archive": "archived", "review": "pending_review"}
VECTOR = "vector"


class FactRules(WholeRules):
    """Every verb of a project that changes something."""

    def project(self, name: str) -> Any:
        """The handle on a project."""
        return self.memory.project() if name == "default" else self.memory.project(name)

    def _fact_id(self, stream: str, place: int) -> str:
        """The id of a memory, now and then of one that is gone or of none."""
        state: Shared = self.model.state(stream)
        ids = [*state.memories, *state.memories, *state.memories, *state.gone, "nobody"]
        return ids[place % len(ids)]

    def _drafted(self, draft: dict[str, Any], fact_id: str, session: str | None = None, origin: int = 0) -> Fact:
        """The memory that the model adds."""
        words = draft["keywords"]
        said = tuple(word.lower() for word in words) if words is not None else keywords_of(draft["content"])
        vector = tuple(draft[VECTOR]) if draft[VECTOR] is not None else vector_of(draft["content"])
        given = (draft["content"], draft["category"], said, draft["importance"], draft["status"], draft["metadata"])
        return Fact(fact_id, *given, session, origin, vector)

    @drawn_rule("remember")
    def remember(self, project: str, draft: dict[str, Any], source: Any, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)
        head = self.model.committed
        origin = 0 if isinstance(source, str) or source is None or not head else 1 + source % head
        session: str | None = source if isinstance(source, str) else None
        if origin:
            kind, _, name = self.model.log[origin - 1].stream.partition("/")
            session = name if kind == "conversation" else None
        given_source = origin or session
        add = self.memory.add if project == "default" else handle.add

        def plan(options: Options, result: Any) -> Any:
            def decide(state: Shared) -> Any:
                if state.same(draft["content"]) is not None:
                    return None
                fact = self._drafted(draft, result.id if result else "", session, origin)
                return "remembered", fact, (origin,) if origin else ()

            asked = ("add", repr(draft), given_source)
            return self.model.note(stream, asked, decide, options, occurred_ns=draft["occurred"])

        given = self.drive(stream, drawn, lambda **options: add(**draft, source=given_source, **options), plan)
        if given is not None:
            entry, noted = given
            assert entry.content == draft["content"]
            if noted is not None and not noted.erased:
                assert entry.id == noted.data.id
                assert entry.seq == (noted.seq if noted.seq <= self.model.committed else None)

    @drawn_rule("upsert")
    def upsert(self, project: str, draft: dict[str, Any], threshold: float | None, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)
        bound = 0.85 if threshold is None else threshold

        def plan(options: Options, result: Any) -> Any:
            def decide(state: Shared) -> Any:
                other = self._drafted(draft, result.entry.id if result and result.outcome == "inserted" else "")
                kept = state.same(other.content)
                if kept is None:
                    found = best(state, other.vector)
                    kept = found[0] if found is not None and found[1] > bound else None
                    taken = kept is not None and state.same(joint(kept.content, other.content))
                    kept = None if taken and taken is not kept else kept
                if kept is None:
                    return "remembered", other
                changes = merge_changes(kept, other)
                same = all(getattr(kept, name) == value for name, value in changes.items())
                if same or kept.status != "active":
                    return None
                other = replace(other, id=self._other_id(stream, result))
                return "joined", (kept.id, other, changes), (kept.body,)

            asked = ("upsert", repr(draft), bound)
            return self.model.note(stream, asked, decide, options, occurred_ns=draft["occurred"])

        given = self.drive(
            stream, drawn, lambda **options: handle.upsert(**draft, threshold=threshold, **options), plan
        )
        if given is not None:
            upserted, noted = given
            kinds = {"inserted": "remembered", "merged": "joined", "skipped": None}
            assert kinds[upserted.outcome] == (None if noted is None else noted.kind)
            assert (upserted.reason is None) == (noted is not None)

    def _other_id(self, stream: str, result: Any) -> str:
        """The id of the text that was merged, which the event alone tells; a plan without a result writes nothing."""
        if result is None:
            return f"merged-{self.model.head}"
        home = self.branch_of(self.store)
        batch = batches.active(engine_of(home))
        if batch is not None:
            return str(vars_of(batch.transaction.events[-1], "other"))
        return str(vars_of(list(home.project(stream.partition("/")[2]).events())[-1].event, "other"))

    @drawn_rule("learn")
    def learn(self, project: str, learned: list[tuple[bool, dict[str, Any]]]) -> None:
        """Several memories of one project, so that there is something to merge and to find."""
        for is_added, draft in learned:
            if is_added:
                self.remember(project, draft, None, Drawn())
            else:
                self.upsert(project, draft, None, Drawn())

    @drawn_rule("unmerge")
    def unmerge(self, project: str, place: int, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)
        merges = [e.seq for e in self.model.entries(stream, self.model.committed) if e.kind == "joined"]
        seqs = [*merges, *merges, 1 + place % (self.model.committed + 1)]
        seq = seqs[place % len(seqs)]
        before = self.model.state(stream, seq - 1)

        def plan(options: Options, _: Any) -> Any:
            merge = self._merge_at(stream, seq)
            if merge.data[0] not in before.memories:
                raise NotFound(merge.data[0])
            return self.model.note(stream, ("unmerge", seq), lambda state: parting(state, before, merge), options)

        given = self.drive(stream, drawn, lambda **options: handle.unmerge(seq, **options), plan)
        if given is not None:
            entries, noted = given
            assert [entry.id for entry in entries] == [noted.data[0], *([noted.data[1].id] if noted.data[1] else [])]

    def _merge_at(self, stream: str, seq: int) -> Entry:
        merge = next((e for e in self.model.entries(stream, self.model.committed) if e.seq == seq), None)
        if merge is None or merge.kind != "joined":
            raise NotFound(seq)
        if merge.erased:
            raise InvalidInput(seq)
        return merge

    @drawn_rule("update")
    def update(self, project: str, place: int, fields: dict[str, Any], drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)
        fact_id = self._fact_id(stream, place)

        def decide(state: Shared) -> Any:
            held = state.memories.get(fact_id)
            if held is None:
                raise NotFound(fact_id)
            wanted = dict(fields)
            if "keywords" in wanted:
                wanted["keywords"] = tuple(wanted["keywords"])
            elif "content" in wanted and held.keywords == keywords_of(held.content):
                wanted["keywords"] = keywords_of(wanted["content"])
            changes = {name: value for name, value in wanted.items() if getattr(held, name) != value}
            twin = state.same(changes["content"]) if "content" in changes else None
            if twin is not None:
                raise InvalidInput(twin.id)
            if not changes:
                return None
            if "content" in changes:
                changes[VECTOR] = vector_of(changes["content"])
            texts = texts_of(held, changes)
            return "rewritten", (fact_id, changes, texts), (held.body,) if texts else ()

        self.drive(
            stream,
            drawn,
            lambda **options: handle.update(fact_id, **fields, **options),
            lambda options, _: self.model.note(stream, ("update", fact_id, repr(fields)), decide, options),
        )

    @drawn_rule("forget")
    def forget(self, project: str, place: int, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)
        fact_id = self._fact_id(stream, place)

        def decide(state: Shared) -> Any:
            if fact_id not in state.memories:
                raise NotFound(fact_id)
            return "forgotten", [fact_id]

        self.drive(
            stream,
            drawn,
            lambda **options: handle.delete(fact_id, **options),
            lambda options, _: self.model.note(stream, ("delete", fact_id), decide, options),
        )

    @drawn_rule("empty_project")
    def empty_project(self, project: str, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)
        self.drive(
            stream,
            drawn,
            handle.clear,
            lambda options, _: self.model.note(
                stream, ("clear project",), lambda state: ("emptied", None) if state.memories else None, options
            ),
        )

    @drawn_rule("review")
    def review(self, project: str, place: int, verb: str, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)
        fact_id, status = self._fact_id(stream, place), STATUS[verb]
        call = getattr(handle, verb)
        args = (fact_id, status) if verb == "review" else (fact_id,)

        def decide(state: Shared) -> Any:
            if fact_id not in state.memories:
                raise NotFound(fact_id)
            return None if state.memories[fact_id].status == status else ("reviewed", (fact_id, status))

        self.drive(
            stream,
            drawn,
            lambda **options: call(*args, **options),
            lambda options, _: self.model.note(stream, ("review", fact_id, status), decide, options),
        )

    # Maintenance; what is of an open batch has no time yet, so that it is left to its end.

    @drawn_rule("decay")
    def decay(self, project: str, dry_run: bool, drawn: Drawn) -> None:
        stream, handle, now_ns = f"project/{project}", self.project(project), self.model.now_ns()
        if self.model.batch is not None:
            return

        def decide(state: Shared) -> Any:
            rows: list[tuple[str, float, int]] = []
            for fact in state.memories.values():
                since_ns = max(fact.accessed_ns, fact.decayed_ns)
                days = (now_ns - since_ns) // DAY_NS
                if days > 0:
                    rows.append((fact.id, fact.importance * 0.95 ** (days / 7), since_ns + days * DAY_NS))
            return ("decayed", rows) if rows else None

        if dry_run:
            rows = decide(self.model.state(stream))
            assert handle.decay(dry_run=True).changed == (len(rows[1]) if rows else 0)
            return
        self.drive(stream, drawn, handle.decay, lambda options, _: self._note(stream, ("decay",), decide, options))

    def _note(self, stream: str, asked: Any, decide: Any, options: Options) -> Any:
        return self.model.note(stream, asked, decide, options)

    @drawn_rule("prune")
    def prune(self, project: str, bound: float, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)

        def decide(state: Shared) -> Any:
            ids = [fact.id for fact in state.memories.values() if fact.importance < bound]
            return ("forgotten", ids) if ids else None

        given = self.drive(
            stream,
            drawn,
            lambda **options: handle.prune(bound, **options),
            lambda options, _: self._note(stream, ("prune", bound), decide, options),
        )
        if given is not None:
            assert given[0].removed == (len(given[1].data) if given[1] else 0)

    @drawn_rule("compact")
    def compact(self, project: str, threshold: float | None, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)
        bound = 0.90 if threshold is None else threshold
        given = self.drive(
            stream,
            drawn,
            lambda **options: handle.compact(threshold, **options),
            lambda options, _: self.model.note_all(
                stream, ("compact", bound), lambda state: merges(state, bound), options
            ),
        )
        if given is not None:
            assert given[0].merged >= len(given[1])

    # Recalls and episodes.

    @drawn_rule("recall")
    def recall(self, project: str, query: str, chat: str | None, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)
        call = self.memory.recall if project == "default" else handle.recall
        lines = self.model.state(f"conversation/{chat}").lines if chat else []
        cited = (lines[-1].seq,) if lines else ()

        def plan(options: Options, result: Any) -> Any:
            ids = [hit.entry.id for hit in result] if result is not None else []
            return self.model.note(stream, ("recall", query, chat), lambda _: ("recalled", ids, cited), options)

        given = self.drive(stream, drawn, lambda **options: call(query, top_k=2, conversation=chat, **options), plan)
        if given is not None:
            assert [hit.entry.id for hit in given[0]] == given[1].data

    @precondition(lambda machine: machine.model.batch is None)
    @rule(draft=drafts)
    def erase_project(self, draft: dict[str, Any]) -> None:
        """One that nobody else goes on from, so that nothing refuses it."""
        self.leave_elsewhere()
        self.remember("gone", draft, None, Drawn())
        for stream in self.memory.project("gone").erase(derived="keep").streams:
            self.model.erase_stream("project/gone", stream)
        assert "gone" not in self.memory.projects()

    @drawn_rule("try_something")
    def try_something(self, project: str, task: str, drawn: Drawn) -> None:
        stream, handle = f"project/{project}", self.project(project)

        def plan(options: Options, result: Any) -> Any:
            episode_id = result.id if result is not None else ""
            return self.model.note(stream, ("try", task), lambda _: ("tried", (episode_id, task)), options)

        self.drive(
            stream, drawn, lambda **options: handle.record_episode("failure", task=task, outcome="no", **options), plan
        )


def vars_of(event: Any, name: str) -> Any:
    """A field of an event whose kind is known."""
    return getattr(event, name)


def parting(state: Shared, before: Shared, merge: Entry) -> Any:
    """What takes a merge apart."""
    kept_id, other, changes = merge.data
    held, old = state.memories.get(kept_id), before.memories[kept_id]
    if held is None:
        raise NotFound(kept_id)
    if merge.seq in state.apart:
        raise InvalidInput(merge.seq)
    names = [name for name in ("content", "keywords", "importance") if getattr(held, name) == changes[name]]
    back = {name: getattr(old, name) for name in names if getattr(held, name) != getattr(old, name)}
    if "content" in back and any(f.content == back["content"] for f in state.memories.values() if f.id != kept_id):
        raise InvalidInput(back["content"])
    texts = texts_of(held, back)
    sources = (merge.seq, held.body) if texts else (merge.seq,)
    if "content" in back:
        back |= {VECTOR: old.vector, "vector_seq": old.vector_seq}
    times: dict[str, Any] = {"created_ns": merge.time_ns, "updated_ns": merge.time_ns}
    happened: dict[str, Any] = {"accessed_ns": merge.occurred_ns, "occurred_ns": merge.occurred_ns}
    other = before.memories.get(other.id) or replace(other, **times, **happened)
    twin = state.same(other.content)
    is_back = twin is None or (twin.id == kept_id and "content" in back)
    return "parted", (kept_id, other if is_back else None, merge.seq, back, texts), sources


@dataclass
class Compaction:
    """Rounds of the more important taking in what is alike, until nothing is."""

    facts: list[Fact]
    contents: set[str]
    bound: float
    texts: dict[str, tuple[int, ...]]
    made: list[tuple[str, Any, tuple[int, ...]]] = field(default_factory=list)

    def round(self) -> None:
        """Takes each memory in turn."""
        kept: list[Fact] = []
        while self.facts:
            first, *others = self.facts
            fact, self.facts = first, []
            for other in others:
                fact = self._taken_in(first, fact, other)
            kept.append(fact)
        self.facts = kept

    def _taken_in(self, first: Fact, fact: Fact, other: Fact) -> Fact:
        text = joint(fact.content, other.content)
        is_taken = text not in {fact.content, other.content} and text in self.contents
        if cosine(first.vector, other.vector) <= self.bound or is_taken:
            self.facts.append(other)
            return fact
        changes = merge_changes(fact, other)
        self.texts[fact.id] += self.texts[other.id]
        self.made.append(("joined", (fact.id, other, changes), self.texts[fact.id]))
        self.contents.add(text)
        return replace(fact, **changes)


def merges(state: Shared, bound: float) -> list[tuple[str, Any, tuple[int, ...]]]:
    """The merges of a compaction."""
    active = [fact for fact in state.memories.values() if fact.status == "active"]
    facts = sorted(active, key=lambda fact: -fact.importance)
    contents = {fact.content for fact in state.memories.values()}
    compaction = Compaction(facts, contents, bound, {fact.id: (fact.body,) for fact in facts})
    count = -1
    while len(compaction.made) > count:
        count = len(compaction.made)
        compaction.round()
    return compaction.made
