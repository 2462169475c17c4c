"""Evaluation of eviction: policies as data, replayed over traces of cases, with the evidence left at each need."""

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from refold.agent.candidates import RANK_POWERS
from refold.agent.parts import MESSAGES, MIRROR, RANKED_HEADINGS, TOPICS, instructions_text, today_text
from refold.evaluation.cases import IMPORTANCE, Case, CaseQuestion
from refold.evaluation.retrieval import Interval, interval
from refold.index.messages import MessageIndex, MessageRow
from refold.index.ranking import RANKINGS, Query
from refold.index.signals import RowText, TextIndex
from refold.limits import CONTEXT_TOKENS_DEFAULT
from refold.memory.earlier import EarlierQuery, matches
from refold.memory.message_indexes import ROLE_NUMBERS
from refold.memory.scope_block import ROLES
from refold.message import PROMPT_ROLES
from refold.text import ByteClassCounter, keywords, pluralize
from refold.views.store import DEFAULTS
from refold.views.window import POLICIES as RELEASED

Order: TypeAlias = Literal["oldest", "least recalled", "least important"]

_CERTAIN: Final = 1 - 1e-9


class Piece(Struct, frozen=True):
    """One message, as far as eviction sees it.

    ``recalled`` lists earlier pieces that were looked up when this one arrived; ``importance`` ranges from 0 to 1.
    """

    tokens: int
    role: str = "user"
    call_ids: tuple[str, ...] = ()
    answers: str | None = None
    pinned: bool = False
    importance: float = 0.0
    recalled: tuple[int, ...] = ()


class Need(Struct, frozen=True):
    """The evidence needed once ``arrived`` pieces have arrived; ``ranked`` is what a context finds then, best first."""

    arrived: int
    evidence: frozenset[int]
    ranked: Sequence[int] = ()


class Trace(Struct, frozen=True):
    """One conversation: its pieces, and its needs in the order in which they arise."""

    name: str
    pieces: tuple[Piece, ...]
    needs: tuple[Need, ...]


class Policy(Struct, frozen=True, kw_only=True):
    """How a window makes room.

    - ``order``: what is evicted first. ``"least recalled"``: the piece that arrived, or was recalled, longest ago.
      ``"least important"``: like ``"oldest"``, but a message of importance 1 stays for one more budget of tokens,
      others for less. In any order, the newest group is evicted last.
    - ``groups``: tool calls and their outputs are evicted together, and an output whose call is gone is not admitted.
    - ``keeps_pinned``: pinned messages are never evicted; one that does not fit with the other pinned ones is refused.
    - ``pinned_roles``: roles that count as pinned.
    - ``window_share``: the share of the budget that the window takes; the rest is left to a search.
    """

    name: str
    order: Order = "oldest"
    groups: bool = True
    keeps_pinned: bool = True
    pinned_roles: tuple[str, ...] = ()
    window_share: float = 1.0


_SYSTEM: Final = ("system", "developer")

POLICIES: Final = (
    Policy(name="bare", groups=False, keeps_pinned=False),
    Policy(name="bare-pinned", groups=False, pinned_roles=_SYSTEM),
    Policy(name="fifo"),
    Policy(name="least-recalled", order="least recalled"),
    Policy(name="least-important", order="least important"),
    Policy(name="fifo-recall", window_share=0.5),
)
"""The policies that are compared. Those with which a conversation can be opened have the same names there."""

ASSUMPTIONS: Final = {
    "least-recalled": "assumes chat.recall(text, top_k=3) for each message of the user; no default loop makes a recall",
    "least-important": "assumes chat.rate(message, share of its new words) for each message; no default loop rates any",
}
"""What a program has to do beside opening a conversation with a policy; otherwise the oldest messages leave first."""

CLAIRVOYANT: Final = "clairvoyant"
CLAIRVOYANT_RECALL: Final = "clairvoyant-recall"


class PolicyOutcome(Struct, frozen=True):
    """The effect of a policy on a trace.

    ``survived`` is the share of each need's evidence that was present, ``window_tokens`` the tokens shown to the model
    at each need and at the end. ``broken`` counts the arrivals after which the window contained an output without its
    call.
    """

    survived: tuple[float, ...]
    window_tokens: tuple[int, ...]
    evicted: int
    broken: int
    refused: int


class SimulatedWindow:
    """A window of ``window_tokens`` tokens under a policy; pieces are identified by their order of arrival."""

    def __init__(self, policy: Policy, window_tokens: int) -> None:
        self._policy = policy
        self._window_tokens = window_tokens
        self._queue: list[tuple[float, int]] = []
        self._keys: dict[int, float] = {}
        """The key of each evictable unit, by its leader; a pair in the queue with a different key is stale."""
        self._units: dict[int, list[tuple[int, Piece]]] = {}
        self._leaders: dict[int, int] = {}  # The leader of the unit of each live piece.
        self._makers: dict[str, list[int]] = {}
        """Live pieces that made a call with this id; an output belongs to the last of them."""
        self._answers: dict[str, set[int]] = {}
        """Live pieces that lead a unit and answer a call with this id; without such a call they become orphans."""
        self._orphans: set[int] = set()
        self._pinned: set[int] = set()
        self._pinned_tokens = 0
        self._arrived_tokens = 0
        self.tokens = 0
        self.evicted = 0
        self.refused = 0

    def __contains__(self, place: object) -> bool:
        return place in self._leaders

    @property
    def is_broken(self) -> bool:
        """Whether the window contains an output without the call that it answers."""
        return bool(self._orphans)

    def newest(self, tokens: int) -> tuple[frozenset[int], int]:
        """Return the pieces that a context keeps of the window within some tokens, and the tokens that they take.

        These are the pinned ones and the system prompt, and the newest that fit; what the need asks is not in the
        window.
        """
        if self.tokens <= tokens:
            return frozenset(self._leaders), self.tokens
        sizes = {leader: sum(piece.tokens for _, piece in unit) for leader, unit in self._units.items()}
        kept = self._pinned | set(self._prompts())
        taken = sum(sizes[leader] for leader in kept)
        for leader in sorted(self._units.keys() - kept, reverse=True):
            if taken + sizes[leader] > tokens:
                break
            kept.add(leader)
            taken += sizes[leader]
        return frozenset(place for leader in kept for place, _ in self._units[leader]), taken

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the system prompt."""
        return sum(piece.tokens for leader in self._prompts() for _, piece in self._units[leader])

    def _prompts(self) -> Iterator[int]:
        return (leader for leader, unit in self._units.items() if unit[0][1].role in PROMPT_ROLES)

    def add(self, place: int, piece: Piece) -> None:
        """Add an arriving piece, then make room for it."""
        for earlier in piece.recalled:
            self._touch(earlier, place)
        leader = self._leader(place, piece)
        if leader is None:
            return
        if not self._admit(leader, piece):
            self.refused += 1
            return
        self._enter(leader, place, piece)
        newest, held = leader, None
        while self.tokens > self._window_tokens and (self._queue or held):
            key, leader = heappop(self._queue) if self._queue else (held, newest)
            if self._keys.get(leader) != key:
                continue
            if leader == newest and self._queue and self._policy.order != "oldest":
                held = key
                continue
            del self._keys[leader]
            self._drop(leader)
            held = None if leader == newest else held
        if held is not None:
            self._place(newest, held)

    def _leader(self, place: int, piece: Piece) -> int | None:
        """Return the leader of the unit that the piece belongs to, or ``None`` if it must stay out."""
        if piece.answers is None or not self._policy.groups:
            return place
        makers = self._makers.get(piece.answers)
        return makers[-1] if makers else None

    def _admit(self, leader: int, piece: Piece) -> bool:
        """Account for pinned pieces, unless they would no longer fit."""
        is_pinned = self._policy.keeps_pinned and (piece.pinned or piece.role in self._policy.pinned_roles)
        if leader in self._pinned:
            added = piece.tokens
        elif is_pinned:
            added = piece.tokens + sum(member.tokens for _, member in self._units.get(leader, ()))
        else:
            return True
        if self._pinned_tokens + added > self._window_tokens:
            return False
        self._pinned.add(leader)
        self._pinned_tokens += added
        self._keys.pop(leader, None)
        return True

    def _enter(self, leader: int, place: int, piece: Piece) -> None:
        self._arrived_tokens += piece.tokens
        if piece.answers is not None and not self._makers.get(piece.answers):
            self._orphans.add(place)
        if piece.answers is not None and leader == place:
            self._answers.setdefault(piece.answers, set()).add(place)
        for call_id in piece.call_ids:
            self._makers.setdefault(call_id, []).append(place)
        self._units.setdefault(leader, []).append((place, piece))
        self._leaders[place] = leader
        self.tokens += piece.tokens
        if leader == place and leader not in self._pinned:
            is_by_importance = self._policy.order == "least important"
            value = self._arrived_tokens + piece.importance * self._window_tokens
            self._place(leader, value if is_by_importance else place)

    def _place(self, leader: int, key: float) -> None:
        self._keys[leader] = key
        heappush(self._queue, (key, leader))

    def _touch(self, earlier: int, place: int) -> None:
        leader = self._leaders.get(earlier)
        if self._policy.order == "least recalled" and leader in self._keys:
            self._place(leader, place)

    def _drop(self, leader: int) -> None:
        for place, piece in self._units.pop(leader):
            del self._leaders[place]
            self._orphans.discard(place)
            if piece.answers is not None and piece.answers in self._answers:
                self._answers[piece.answers].discard(place)
                if not self._answers[piece.answers]:
                    del self._answers[piece.answers]
            self.tokens -= piece.tokens
            self.evicted += 1
            for call_id in piece.call_ids:
                makers = self._makers[call_id]
                makers.remove(place)
                # A later call with the same id is not the one that an earlier output answers.
                first = makers[0] if makers else inf
                self._orphans |= {answer for answer in self._answers.get(call_id, ()) if answer < first}
                if not makers:
                    del self._makers[call_id]


def replay(trace: Trace, policy: Policy, window_tokens: int, *, with_search: bool = False) -> PolicyOutcome:
    """Replay a trace through a window of ``window_tokens`` tokens and return the outcome.

    With a search, each need is met as in a context of as many tokens without facts, notes and skills: at most half of
    the budget, or what the window leaves of it, and at most ``CONTEXT_TOKENS_DEFAULT`` tokens are for the fixed parts
    and for what the search finds, and the window keeps its newest pieces in the rest. Needs must be in the order in
    which they arise. Changes nothing; the same arguments give the same outcome.

    >>> trace = Trace("chat", (Piece(600), Piece(600)), (Need(2, frozenset({0}), (0, 1)), Need(2, frozenset({1}))))
    >>> replay(trace, POLICIES[0], 1_000).survived
    (0.0, 1.0)
    >>> replay(trace, POLICIES[0], 1_500, with_search=True).survived
    (1.0, 1.0)
    """
    window = SimulatedWindow(policy, int(window_tokens * policy.window_share))
    survived: list[float] = []
    sizes: list[int] = []
    broken = place = 0
    for need in (*trace.needs, Need(len(trace.pieces), frozenset())):
        while place < need.arrived:
            window.add(place, trace.pieces[place])
            place += 1
            broken += window.is_broken
        there, tokens = _search(trace, window, need, window_tokens) if with_search else (window, window.tokens)
        sizes.append(tokens)
        if need.evidence:
            survived.append(sum(each in there for each in need.evidence) / len(need.evidence))
    return PolicyOutcome(tuple(survived), tuple(sizes), window.evicted, broken, window.refused)


_FIXED: Final = (instructions_text(set(TOPICS) - {MIRROR}), today_text("2000-01-01"), RANKED_HEADINGS[MESSAGES])
FIXED_TOKENS: Final = sum(map(ByteClassCounter().count, _FIXED))
"""The tokens of what every context with earlier messages has: the instructions, the date, and a heading."""

_FOUND_COUNT: Final = DEFAULTS["messages_max_injected"]


def _search(trace: Trace, window: SimulatedWindow, need: Need, budget: int) -> tuple[frozenset[int], int]:
    """Return the pieces of a context within a budget, from the window and from a search, and their tokens.

    As in a context, what is found takes room from the window, so that more of its pieces have to be searched, twice.
    """
    rest = budget - window.prompt_tokens
    parts = max(min(CONTEXT_TOKENS_DEFAULT, max((rest + 1) // 2, budget - window.tokens)), 0)
    fixed = min(FIXED_TOKENS, parts)
    kept, taken = window.newest(window.tokens)
    for _ in range(2):
        needed = sum(trace.pieces[place].tokens for place in _candidates(need, kept))
        fewer, tokens = window.newest(budget - fixed - min(needed, parts - fixed))
        if tokens >= taken:
            break
        kept, taken = fewer, tokens
    left = min(parts, budget - taken) - fixed
    found: set[int] = set()
    for place in _by_value(trace, _candidates(need, kept)):
        tokens = trace.pieces[place].tokens
        if tokens <= left:
            found.add(place)
            left -= tokens
            taken += tokens
    return kept | found, taken


def _candidates(need: Need, kept: frozenset[int]) -> list[int]:
    return list(islice((place for place in need.ranked if place not in kept), _FOUND_COUNT))


def _by_value(trace: Trace, ranked: Sequence[int]) -> list[int]:
    """Order pieces by the value of their ranks per token, as a context takes them."""
    costs = {place: rank ** RANK_POWERS[MESSAGES] * trace.pieces[place].tokens for rank, place in enumerate(ranked, 1)}
    return sorted(ranked, key=costs.__getitem__)


def bounds(trace: Trace, window_tokens: int) -> dict[str, tuple[float, ...]]:
    """Return for each need the share of its evidence that the best choice of messages contains.

    ``clairvoyant`` knows everything that will be asked at a moment and fills one window for it: no policy without
    a search has a higher mean. ``clairvoyant-recall`` fills a window for each need alone: no policy does better at any
    need. A message that fits in part counts in part, so both bounds are slightly higher than what can be reached.

    >>> trace = Trace("chat", (Piece(60), Piece(60)), (Need(2, frozenset({0})), Need(2, frozenset({1}))))
    >>> bounds(trace, 60)["clairvoyant"], bounds(trace, 60)["clairvoyant-recall"]
    ((1.0, 0.0), (1.0, 1.0))
    """
    needs = [need for need in trace.needs if need.evidence]
    together: dict[int, list[Need]] = {}
    for need in needs:
        together.setdefault(need.arrived, []).append(need)
    shares = {arrived: _best_shares(trace, group, window_tokens) for arrived, group in together.items()}
    return {
        CLAIRVOYANT: tuple(_part(need, shares[need.arrived]) for need in needs),
        CLAIRVOYANT_RECALL: tuple(_part(need, _best_shares(trace, [need], window_tokens)) for need in needs),
    }


def _best_shares(trace: Trace, needs: Iterable[Need], window_tokens: int) -> dict[int, float]:
    """Return the share of each piece of evidence that fits, filling in order of value per token."""
    values: dict[int, float] = {}
    for need in needs:
        for place in need.evidence:
            values[place] = values.get(place, 0.0) + 1 / len(need.evidence)
    left = float(window_tokens)
    shares: dict[int, float] = {}
    for place in sorted(values, key=lambda place: (trace.pieces[place].tokens / values[place], place)):
        tokens = trace.pieces[place].tokens
        shares[place] = min(1.0, left / tokens) if tokens else 1.0
        left -= shares[place] * tokens
    return shares


def _part(need: Need, shares: dict[int, float]) -> float:
    return sum(shares[place] for place in need.evidence) / len(need.evidence)


def full_share(survived: Sequence[float]) -> float:
    """Return the share of needs whose evidence was all present, or 0 without needs.

    >>> full_share((1.0, 0.5, 1.0, 0.0))
    0.5
    """
    return sum(part >= _CERTAIN for part in survived) / len(survived) if survived else 0.0


BUDGETS: Final = tuple(2**power for power in range(9, 18))
"""512 to 131,072 tokens."""

RECALLED: Final = 3
"""The number of earlier messages that count as recalled when a user speaks."""

RANKED_MAX: Final = 4_096
"""The most messages that a search returns at a need, so that long conversations fit in RAM."""

_RECALL_RANKING: Final = RANKINGS["lexical"]


class Eviction(Struct, frozen=True):
    """The result of a policy within a budget, over all needs of all traces.

    ``survival`` is the mean, over the needs, of the share of a need's evidence that was present, ``regret`` the mean of
    the share that was not, so both add up to 1; ``full`` is the share of needs with all of their evidence. These are
    ``None`` if nothing was needed. ``with_search`` is whether a context of the same budget, with a search at each need,
    is meant: its survival is an upper bound, because facts, notes, skills and the days above messages take room, too.
    The counts are in the result without one, and ``None`` here and for bounds.
    """

    policy: str
    budget: int
    needs: int
    survival: float | None
    survival_interval: Interval | None
    full: float | None
    regret: float | None
    tokens: float | None
    evicted: int | None
    broken: int | None
    refused: int | None
    append_ns: float | None
    with_search: bool = False


def trace_of(case: Case, policies: Sequence[Policy] = POLICIES) -> Trace:
    """Convert a case to pieces and needs; recalls and searches are computed as pieces arrive.

    Recalls, which search all earlier messages for each message of the user, are computed only if a policy needs them.
    """
    recalls = any(policy.order == "least recalled" for policy in policies)
    texts = TextIndex()
    seen: set[str] = set()
    pieces: list[Piece] = []
    for place, item in enumerate(case.items):
        recalled = _recall_rows(texts, item.text) if recalls and item.role == "user" else ()
        words = set(keywords(item.text))
        news = len(words - seen) / len(words) if words else 0.0
        seen |= words
        pieces.append(Piece(item.tokens, item.role, item.call_ids, item.answers, item.pinned, news, recalled))
        if recalls:
            texts.add(
                place,
                RowText(item.text, item.session, item.occurred_ns),
                keywords=tuple(words),
                importance=IMPORTANCE,
                accessed_ns=item.accessed_ns,
            )
    return Trace(case.name, tuple(pieces), tuple(_needs(case)))


def _needs(case: Case) -> Iterator[Need]:
    """Yield the questions that have evidence in the order in which they come up, each with what a context finds then.

    A context searches what users and models said, by words, and shows it without calls.
    """
    index = MessageIndex()
    rows = ((seq, item) for seq, item in enumerate(case.items, 1) if item.role in ROLES)
    index.extend([MessageRow(seq, 0, case.name, ROLE_NUMBERS[item.role], item.text) for seq, item in rows])
    for question in sorted(case.questions, key=lambda question: question.arrived):
        if question.evidence:
            yield Need(question.arrived, _evidence(case, question), array("I", _rank_places(case, index, question)))


def _evidence(case: Case, question: CaseQuestion) -> frozenset[int]:
    if case.units is None:
        return question.evidence
    return frozenset(place for place, unit in enumerate(case.units) if unit in question.evidence)


def _rank_places(case: Case, index: MessageIndex, question: CaseQuestion) -> Iterator[int]:
    look = index.view(question.arrived)
    mask = look.mask_without([(place + 1, 0) for place in question.own_places])
    query = EarlierQuery(0, None, "", "", question.text, None, frozenset(), RANKED_MAX, None, opens=False)
    ranked = (match.seq - 1 for match in matches([(look, mask)], query).found)
    return (place for place in ranked if not case.items[place].call_ids)


def _recall_rows(texts: TextIndex, text: str) -> tuple[int, ...]:
    if not len(texts):
        return ()
    total, _ = texts.score(Query(text=text, ranking=_RECALL_RANKING))
    return tuple(row for row, points in texts.best(total, RECALLED, (total > 0).nonzero()[0]) if points > 0)


def evictions(
    traces: Sequence[Trace],
    budgets: Sequence[int] = BUDGETS,
    policies: Sequence[Policy] = POLICIES,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Eviction]:
    """Yield the results of each policy within each budget, without and with a search, and each budget's two bounds."""
    steps = [(budget, policy) for budget in budgets for policy in (*policies, None)]
    for done, (budget, policy) in enumerate(steps, 1):
        if policy is None:
            yield from _measure_bounds(traces, budget)
        else:
            yield from _measure_policy(traces, policy, budget)
        if progress:
            progress(done, len(steps))


class Recommendation(Struct, frozen=True):
    """The policy that a log calls for, and the reasons in sentences."""

    eviction: str
    reasons: tuple[str, ...]


NEEDS_MIN: Final = 10
"""With fewer needs, a policy could be better by chance."""

GAIN_MIN: Final = 0.01
"""A gain of less than one point in all is not worth another policy."""


def recommendation(results: Sequence[Eviction]) -> Recommendation | None:
    """Return the policy, among those that a conversation can be opened with, that keeps most of what is needed later.

    Policies are compared with ``"fifo"`` within the same budget, both without or both with a search. It is ``"fifo"``
    unless the survival of another policy is outside the 95 % interval of fifo's at some of these, higher in sum by
    ``GAIN_MIN``, and there are at least ``NEEDS_MIN`` needs. Returns ``None`` if nothing was needed, or if fewer than
    two such policies were measured.
    """
    needed = [each for each in results if each.policy in RELEASED and each.survival is not None]
    own = {_setting(each): each for each in needed if each.policy == "fifo"}
    others = [each for each in needed if each.policy != "fifo" and _setting(each) in own]
    if not others:
        return None
    gains: dict[str, float] = {}
    for each in others:
        gains[each.policy] = gains.get(each.policy, 0.0) + _clear_gain(each, own[_setting(each)])
    best = max(gains, key=lambda name: gains[name])
    chosen = best if gains[best] >= GAIN_MIN else "fifo"
    lossy = {_setting(each) for each in needed if each.regret and _setting(each) in own}
    shown = sorted((each for each in needed if each.policy == chosen), key=_setting)
    reasons = [_reason(each, own[_setting(each)]) for each in shown if _setting(each) in lossy]
    reasons += [f"this {ASSUMPTIONS[chosen]}"] if chosen in ASSUMPTIONS else []
    needs = max(each.needs for each in others)
    few = [f"{pluralize(needs, 'question')}: too few to tell"] if needs < NEEDS_MIN else []
    return Recommendation(chosen, (*few, *(reasons or ["nothing that was needed had left any of these windows"])))


def _setting(each: Eviction) -> tuple[bool, int]:
    """Return what results must have in common to be compared."""
    return each.with_search, each.budget


def _clear_gain(each: Eviction, fifo: Eviction) -> float:
    interval, survival = fifo.survival_interval, each.survival or 0.0
    if interval is None or each.needs < NEEDS_MIN or interval.low <= survival <= interval.high:
        return 0.0
    return survival - (fifo.survival or 0.0)


def _reason(each: Eviction, fifo: Eviction) -> str:
    regret, others = round(100 * (each.regret or 0.0)), round(100 * (fifo.regret or 0.0))
    share, how = f"{regret} %", "was not in the window"
    if each.with_search:
        share, how = f"at least {share}", "was neither in the window nor found by a search"
    loss = f"in {each.budget:,} tokens, {share} of what was needed later {how}"
    return loss if each.policy == "fifo" else f"{loss}; with fifo, {others} %"


def _measure_policy(traces: Sequence[Trace], policy: Policy, budget: int) -> Iterator[Eviction]:
    for with_search in (False, True):
        outcomes = [replay(trace, policy, budget, with_search=with_search) for trace in traces]
        survived = [part for outcome in outcomes for part in outcome.survived]
        sizes = [tokens for outcome in outcomes for tokens in outcome.window_tokens]
        yield Eviction(
            policy.name,
            budget,
            len(survived),
            *_survival(survived),
            sum(sizes) / len(sizes) if sizes else None,
            None if with_search else sum(outcome.evicted for outcome in outcomes),
            None if with_search else sum(outcome.broken for outcome in outcomes),
            None if with_search else sum(outcome.refused for outcome in outcomes),
            None if with_search else _append_ns(traces, policy, budget),
            with_search,
        )


def _append_ns(traces: Sequence[Trace], policy: Policy, budget: int) -> float | None:
    bare = [Trace(trace.name, trace.pieces, ()) for trace in traces]
    begin = time.perf_counter_ns()
    for trace in bare:
        replay(trace, policy, budget)
    took_ns = time.perf_counter_ns() - begin
    count = sum(len(trace.pieces) for trace in traces)
    return took_ns / count if count else None


def _measure_bounds(traces: Sequence[Trace], budget: int) -> Iterator[Eviction]:
    best = [bounds(trace, budget) for trace in traces]
    for name in best[0] if best else ():
        survived = [part for each in best for part in each[name]]
        yield Eviction(name, budget, len(survived), *_survival(survived), None, None, None, None, None)


def _survival(survived: list[float]) -> tuple[float | None, Interval | None, float | None, float | None]:
    if not survived:
        return None, None, None, None
    mean = sum(survived) / len(survived)
    return mean, interval(survived), full_share(survived), 1 - mean
