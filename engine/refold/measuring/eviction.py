"""What windows keep: cases as traces, replayed under every policy and budget, and what was left when it was needed."""

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from refold.measuring.cases import Question
from refold.measuring.intervals import Interval, interval
from refold.measuring.policies import POLICIES, Need, Outcome, Piece, Policy, Trace, bounds, replay, whole
from refold.measuring.retrieval import IMPORTANCE
from refold.measuring.vectors import Embedded
from refold.rank import RANKINGS, Columns, Query, Ranking, best, score
from refold.text import keywords

BUDGETS: Final = tuple(2**power for power in range(9, 18))
"""512 to 131,072 tokens."""

RECALLED: Final = 3
"""So many earlier messages count as recalled when a user speaks."""

RANKED_MAX: Final = 4_096
"""So many messages a search gives at most when something is needed; a bound, so that long conversations fit in RAM."""

_LOOKING: Final = RANKINGS["lexical"]


class Eviction(Struct, frozen=True):
    """What a policy kept within a budget, over all needs of all traces.

    ``survival`` is the mean part of a need's evidence that was there, ``full`` the part of the needs with all of it,
    ``regret`` the part of all pieces of evidence that were not there. These are ``None`` where nothing was needed, and
    the counts are ``None`` for bounds, which evict nothing.
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


def trace_of(embedded: Embedded, ranking: Ranking) -> Trace:
    """Return a case as pieces and needs; what is recalled, and what a search would give, is looked up as it arrives."""
    case = embedded.case
    columns = Columns()
    seen: set[str] = set()
    pieces: list[Piece] = []
    needs: list[Need] = []
    waiting = _asked(embedded)
    for place, item in enumerate(case.items):
        needs += [_need(embedded, columns, ranking, *each) for each in waiting.pop(place, ())]
        recalled = _recalled(columns, item.text) if item.role == "user" else ()
        words = set(keywords(item.text))
        news = len(words - seen) / len(words) if words else 0.0
        seen |= words
        pieces.append(Piece(item.tokens, item.role, item.call_ids, item.answers, item.pinned, news, recalled))
        columns.add(
            place,
            item.text,
            keywords=tuple(words),
            importance=IMPORTANCE,
            accessed_ns=item.accessed_ns,
            session=item.session,
            occurred_ns=item.occurred_ns,
        )
    needs += [_need(embedded, columns, ranking, *each) for arrived in sorted(waiting) for each in waiting[arrived]]
    return Trace(case.name, tuple(pieces), tuple(needs))


def _asked(embedded: Embedded) -> dict[int, list[tuple[Question, Any]]]:
    """Return the questions that have evidence, with their vectors, by how many items have arrived before them."""
    waiting: dict[int, list[tuple[Question, Any]]] = {}
    for question, vector in zip(embedded.case.questions, embedded.questions, strict=True):
        if question.evidence:
            waiting.setdefault(question.arrived, []).append((question, vector))
    return waiting


def _need(embedded: Embedded, columns: Columns, ranking: Ranking, question: Question, vector: Any) -> Need:
    cosine = embedded.items[: len(columns)] @ vector
    now_ns = int(columns.accessed_ns().max(initial=0))
    total, _ = score(ranking, Query(text=question.text, now_ns=now_ns, cosine=cosine), columns)
    ranked = array("I", (row for row, _ in best(total, columns, min(len(columns), RANKED_MAX))))
    units = embedded.case.units
    evidence = question.evidence
    if units is not None:
        evidence = frozenset(place for place, unit in enumerate(units) if unit in question.evidence)
    return Need(question.arrived, evidence, ranked)


def _recalled(columns: Columns, text: str) -> tuple[int, ...]:
    if not len(columns):
        return ()
    total, _ = score(_LOOKING, Query(text=text), columns)
    return tuple(row for row, points in best(total, columns, RECALLED) if points > 0)


def evictions(
    traces: Sequence[Trace],
    budgets: Sequence[int] = BUDGETS,
    policies: Sequence[Policy] = POLICIES,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Eviction]:
    """Yield what each policy kept within each budget, and after the policies of a budget its two bounds."""
    whole_count = len(budgets) * (len(policies) + 1)
    done = 0
    for budget in budgets:
        for policy in policies:
            yield _measured(traces, policy, budget)
            done += 1
            if progress:
                progress(done, whole_count)
        yield from _bounded(traces, budget)
        done += 1
        if progress:
            progress(done, whole_count)


def _measured(traces: Sequence[Trace], policy: Policy, budget: int) -> Eviction:
    outcomes = [replay(trace, policy, budget) for trace in traces]
    survived = [part for outcome in outcomes for part in outcome.survived]
    held = [tokens for outcome in outcomes for tokens in outcome.held_tokens]
    wanted = _sum(outcomes, "wanted")
    return Eviction(
        policy.name,
        budget,
        len(survived),
        *_survival(survived),
        _sum(outcomes, "regretted") / wanted if wanted else None,
        sum(held) / len(held) if held else None,
        _sum(outcomes, "evicted"),
        _sum(outcomes, "broken"),
        _sum(outcomes, "refused"),
        _append_ns(traces, policy, budget),
    )


def _append_ns(traces: Sequence[Trace], policy: Policy, budget: int) -> float | None:
    """Return what one arrival takes, without anything that is needed, in nanoseconds."""
    arriving = [Trace(trace.name, trace.pieces, ()) for trace in traces]
    begin = time.perf_counter_ns()
    for trace in arriving:
        replay(trace, policy, budget)
    took_ns = time.perf_counter_ns() - begin
    count = sum(len(trace.pieces) for trace in traces)
    return took_ns / count if count else None


def _bounded(traces: Sequence[Trace], budget: int) -> Iterator[Eviction]:
    found = [bounds(trace, budget) for trace in traces]
    for name in found[0] if found else ():
        survived = [part for each in found for part in each[name]]
        nothing = (None,) * 6
        yield Eviction(name, budget, len(survived), *_survival(survived), *nothing)


def _survival(survived: list[float]) -> tuple[float | None, Interval | None, float | None]:
    if not survived:
        return None, None, None
    return sum(survived) / len(survived), interval(survived), whole(survived)


def _sum(outcomes: Sequence[Outcome], field: str) -> int:
    return sum(getattr(outcome, field) for outcome in outcomes)
