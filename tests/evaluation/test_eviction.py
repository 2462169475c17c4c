"""Eviction policies: none beats the bounds, each keeps its promise, and one of them is refold's own window."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from refold import Conversation, LimitExceeded, Memory
from refold.evaluation.cases import CaseQuestion, cases_of, conversations, item_of, make_case
from refold.evaluation.eviction import (
    FIXED_TOKENS,
    POLICIES,
    Eviction,
    Need,
    Piece,
    Policy,
    SimulatedWindow,
    Trace,
    bounds,
    evictions,
    full_share,
    recommendation,
    replay,
    trace_of,
)
from refold.evaluation.retrieval import Interval
from refold.importers import import_file, transcript
from refold.memory.core import core_of
from refold.views.window import POLICIES as RELEASED
from refold.views.window import MessagesRecalled
from tests.support.paths import DATA

TAU = DATA / "tau-bench" / "gpt4o_airline_dev.jsonl"
NAMED = {policy.name: policy for policy in POLICIES}
OWN = NAMED["fifo"]
SELECTABLE = tuple(name for name in RELEASED if name in NAMED)
CALL = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
ROLES = ("system", "user", "assistant", "tool")


@some.composite
def pieces(draw: some.DrawFn) -> Piece:
    role = draw(some.sampled_from(ROLES))
    call = draw(some.sampled_from(("a", "b", "c")))
    return Piece(
        draw(some.integers(0, 40)),
        role,
        (call,) if role == "assistant" and draw(some.booleans()) else (),
        call if role == "tool" else None,
        draw(some.integers(0, 9)) == 0,
        draw(some.integers(0, 1_000)) / 1_000,
        tuple(draw(some.lists(some.integers(0, 30), max_size=2))),
    )


@some.composite
def traces(draw: some.DrawFn) -> Trace:
    arriving = draw(some.lists(pieces(), min_size=1, max_size=30))
    needs: list[Need] = []
    for arrived in sorted(draw(some.lists(some.integers(1, len(arriving)), max_size=6))):
        evidence = draw(some.frozensets(some.integers(0, arrived - 1), min_size=1, max_size=4))
        ranked = tuple(draw(some.permutations(range(arrived))))
        needs.append(Need(arrived, evidence, ranked))
    return Trace("drawn", tuple(arriving), tuple(needs))


budgets = some.integers(1, 300)
policies = some.sampled_from(POLICIES)


def mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


@given(traces(), policies, budgets, some.booleans())
@settings(deadline=None)
def test_no_policy_beats_the_clairvoyant_ones(trace: Trace, policy: Policy, budget: int, with_search: bool) -> None:
    outcome = replay(trace, policy, budget, with_search=with_search)
    best = bounds(trace, budget)
    together, alone = best["clairvoyant"], best["clairvoyant-recall"]
    assert len(outcome.survived) == len(together) == len(alone)
    assert all(ours <= bound + 1e-9 for ours, bound in zip(outcome.survived, alone, strict=True))
    if trace.needs:
        assert mean(together) <= mean(alone) + 1e-9
    if trace.needs and not with_search:
        assert mean(outcome.survived) <= mean(together) + 1e-9


@given(traces(), policies, budgets, some.booleans())
@settings(deadline=None)
def test_a_budget_is_never_exceeded(trace: Trace, policy: Policy, budget: int, with_search: bool) -> None:
    budget += 2 * FIXED_TOKENS * with_search
    outcome = replay(trace, policy, budget, with_search=with_search)
    assert max(outcome.window_tokens) <= budget
    assert outcome.broken == 0 or not policy.groups


@given(traces(), policies)
@settings(deadline=None)
def test_what_fits_is_kept(trace: Trace, policy: Policy) -> None:
    budget = 2 * sum(piece.tokens for piece in trace.pieces) + 2
    outcome = replay(trace, policy, budget)
    assert (outcome.evicted, outcome.refused) == (0, 0)
    if not policy.groups:
        assert set(outcome.survived) <= {1.0}


def append(chat: Conversation, piece: Piece, ids: list[str | None]) -> str | None:
    """Append what a piece stands for, behind what it recalls; ``None`` where refold refuses it."""
    calls = [{**CALL, "id": call_id} for call_id in piece.call_ids] or None
    recalled = tuple(each for place in piece.recalled if place < len(ids) and (each := ids[place]) is not None)
    recall(chat, recalled)
    options: dict[str, Any] = {"tool_calls": calls, "tool_call_id": piece.answers, "pinned": piece.pinned}
    try:
        said = chat.append(piece.role, None if calls else "said", tokens=piece.tokens, **options)
    except LimitExceeded:
        return None
    is_leader = piece.answers is None or piece.role != "tool"
    if chat.eviction == "least-important" and is_leader and said.id in {each.id for each in chat.window()}:
        chat.rate(said, piece.importance)
    return said.id


def recall(chat: Conversation, ids: tuple[str, ...]) -> None:
    """Record a recall of these messages, as a search that finds them would."""
    core, _ = core_of(chat)
    if ids:
        core.write(chat.place[0], MessagesRecalled((), ids, "", (1.0,) * len(ids)), at=None, call=())


@given(some.lists(pieces(), max_size=30), budgets, some.sampled_from(SELECTABLE))
@settings(deadline=None, max_examples=150)
def test_the_policies_of_conversations_are_those_that_are_compared(
    drawn: list[Piece], budget: int, eviction: str
) -> None:
    """Message for message, after every append, with groups, pins, recalls, ratings and what is refused."""
    policy = NAMED[eviction]
    window = SimulatedWindow(policy, int(budget * policy.window_share))
    ids: list[str | None] = []
    with Memory(window_tokens=budget) as memory:
        chat = memory.conversation("drawn", eviction=eviction)
        for place, piece in enumerate(drawn):
            window.add(place, piece)
            ids.append(append(chat, piece, ids))
            if policy.window_share < 1 and window.refused != ids.count(None):
                return  # Half of the budget is what a simulated window has in all.
            kept = [message.id for message in chat.window()]
            assert [own_id for place, own_id in enumerate(ids) if place in window] == kept
        assert window.refused == ids.count(None)
        assert window.tokens == chat.token_count()
        assert memory.state_hash() == memory.replay_hash()


@pytest.mark.skipif(not TAU.is_file(), reason="the tau-bench trajectories are not on this machine")
@pytest.mark.parametrize("budget", [512, 2_048])
def test_one_policy_is_the_window_of_refold_in_real_sessions(budget: int) -> None:
    with Memory(window_tokens=budget) as memory:
        assert import_file(memory, TAU).messages == 4_326
        evicted = 0
        for name in memory.conversations():
            window = SimulatedWindow(OWN, budget)
            said = list(transcript(memory, name))
            for place, item in enumerate(map(item_of, said)):
                piece = Piece(item.tokens, item.role, item.call_ids, item.answers, item.pinned)
                window.add(place, piece)
            kept = [message.seq for message in memory.conversation(name).window()]
            assert [message.seq for place, message in enumerate(said) if place in window] == kept
            evicted += window.evicted
        assert evicted > 500


@pytest.mark.skipif(not TAU.is_file(), reason="the tau-bench trajectories are not on this machine")
def test_the_calls_of_real_sessions_need_what_was_said_before() -> None:
    cases = cases_of(TAU)
    questions = [question for case in cases for question in case.questions]
    assert len(cases) == 140
    assert len(questions) == 741
    assert all(max(question.evidence) < question.arrived for question in questions)


def test_the_seed_splits_calls_from_answers_and_refold_does_not() -> None:
    arriving = (Piece(10, "assistant", ("a",)), Piece(10, "tool", (), "a"), Piece(10))
    trace = Trace("split", arriving, (Need(3, frozenset({1})),))
    assert (replay(trace, NAMED["bare"], 20).survived, replay(trace, NAMED["bare"], 20).broken) == ((1.0,), 1)
    assert (replay(trace, OWN, 20).survived, replay(trace, OWN, 20).broken) == ((0.0,), 0)


def test_what_is_recalled_stays_longer() -> None:
    arriving = (Piece(10), Piece(10), Piece(10, recalled=(0,)), Piece(10, recalled=(1,)))
    trace = Trace("touched", arriving, (Need(3, frozenset({0})), Need(3, frozenset({1}))))
    assert replay(trace, NAMED["least-recalled"], 20).survived == (1.0, 0.0)
    assert replay(trace, NAMED["bare"], 20).survived == (0.0, 1.0)


def test_what_is_important_stays_for_one_more_budget() -> None:
    arriving = (Piece(10, importance=1.0), Piece(10), Piece(10), Piece(10), Piece(10))
    needs = tuple(Need(arrived, frozenset({0})) for arrived in (3, 4, 5))
    trace = Trace("important", arriving, needs)
    assert replay(trace, NAMED["least-important"], 20).survived == (1.0, 0.0, 0.0)
    assert replay(trace, NAMED["bare"], 20).survived == (0.0, 0.0, 0.0)


def test_half_of_the_budget_is_for_what_a_search_finds() -> None:
    arriving = tuple(Piece(100) for _ in range(10))
    trace = Trace("found", arriving, (Need(10, frozenset({0, 9}), (1, 0, 2)),))
    outcome = replay(trace, NAMED["fifo-recall"], 800, with_search=True)
    assert (outcome.survived, outcome.window_tokens[0]) == ((1.0,), 600)
    assert replay(trace, NAMED["fifo-recall"], 400, with_search=True).survived == (0.5,)
    assert replay(trace, NAMED["fifo-recall"], 800).survived == (0.5,)


def test_a_context_keeps_pins_and_the_newest_messages_beside_what_a_search_finds() -> None:
    arriving = tuple(Piece(100, pinned=place == 0) for place in range(16))
    needs = tuple(Need(16, frozenset(evidence), (1, 2, 4)) for evidence in ({0, 14, 15}, {1, 2, 4}, {3, 5}))
    outcome = replay(Trace("kept", arriving, needs), OWN, 900, with_search=True)
    assert (outcome.survived, outcome.window_tokens[0]) == ((1.0, 1.0, 0.0), 700)


def test_a_context_takes_the_prompt_and_its_fixed_parts_before_anything_else() -> None:
    arriving = (Piece(400, "system"), *(Piece(100) for _ in range(10)))
    trace = Trace("prompt", arriving, (Need(11, frozenset({0, 1}), (1,)), Need(11, frozenset({10}))))
    assert replay(trace, NAMED["bare-pinned"], 1_000, with_search=True).survived == (1.0, 1.0)
    assert replay(trace, NAMED["bare-pinned"], 800, with_search=True).survived == (0.5, 1.0)
    assert replay(trace, NAMED["bare-pinned"], 800).survived == (0.5, 1.0)


def test_no_more_messages_are_found_than_a_context_takes() -> None:
    arriving = tuple(Piece(1) for _ in range(2_000))
    needs = tuple(Need(2_000, frozenset({place}), tuple(range(60))) for place in (49, 50))
    assert replay(Trace("many", arriving, needs), OWN, 1_000, with_search=True).survived == (1.0, 0.0)


WORDS = ("amber", "birch", "cedar", "daisy", "ebony", "flint", "grape", "hazel", "ivory", "jade", "kelp", "lilac")


@pytest.mark.parametrize("budget", [600, 1_000, 2_000, 4_000, 8_000])
def test_a_row_with_a_search_is_little_more_than_a_context_holds(budget: int) -> None:
    """The same questions, asked of `memory.context` with the same budget."""
    with Memory(window_tokens=budget) as memory:
        chat = memory.conversation("chat")
        for number in range(240):
            first, second = WORDS[number % 12], WORDS[number // 12 % 12]
            chat.append("user", f"The {first} {second} box number {number} went to shelf {number * 7 % 101} today.")
            chat.append("assistant", f"Thanks, I noted it, and there is room for {number} more of these.")
        ((name, items, source, shared),) = conversations(memory)
        asked = tuple(
            CaseQuestion(f"Which shelf has the {WORDS[n % 12]} {WORDS[n // 12 % 12]} box?", "", frozenset({2 * n}), 480)
            for n in range(0, 240, 6)
        )
        trace = trace_of(replace(make_case(name, items, source, shared), questions=asked), [OWN])
        simulated = replay(trace, OWN, budget, with_search=True).survived
        contexts = [memory.context(chat, query=question.text, budget=budget) for question in asked]
    held = [{*each.seqs, *(message.seq for message in each.window)} for each in contexts]
    real = [float(items[min(question.evidence)].seq in seqs) for question, seqs in zip(asked, held, strict=True)]
    assert mean(tuple(real)) <= mean(simulated) <= mean(tuple(real)) + 0.1


def test_a_context_finds_what_was_said_and_no_calls_or_outputs() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"order": "heron 77"}'}}
    with Memory() as memory:
        chat = memory.conversation("chat")
        chat.append("user", "Find the order of the heron, please.")
        chat.append("assistant", None, tool_calls=[call])
        chat.append("tool", "heron 77 is on its way", tool_call_id="c1")
        chat.append("assistant", "The order of the heron arrives on Monday.")
        (each,) = conversations(memory)
    question = CaseQuestion("When does the order of the heron arrive?", "", frozenset({3}), 4)
    (need,) = trace_of(replace(make_case(*each), questions=(question,))).needs
    assert sorted(need.ranked) == [0, 3]


def test_pinned_roles_stay_and_what_does_not_fit_beside_them_is_refused() -> None:
    arriving = (Piece(10, "system"), Piece(10), Piece(10), Piece(20, "developer"))
    trace = Trace("pinned", arriving, (Need(4, frozenset({0, 1})),))
    outcome = replay(trace, NAMED["bare-pinned"], 20)
    assert (outcome.survived, outcome.evicted, outcome.refused) == ((0.5,), 1, 1)
    assert replay(trace, NAMED["bare"], 20).evicted == 3


def measured(
    policy: str,
    survival: float | None,
    low: float = 0.0,
    high: float = 1.0,
    budget: int = 100,
    needs: int = 90,
    *,
    with_search: bool = False,
) -> Eviction:
    """A result of which only what a recommendation reads is drawn up."""
    within = None if survival is None else Interval(low, high)
    regret = None if survival is None else 1 - survival
    return Eviction(policy, budget, needs, survival, within, survival, regret, 50.0, 3, 0, 0, 100.0, with_search)


FIFO = measured("fifo", 0.5, 0.4, 0.6)
FOUND = measured("fifo", 0.8, 0.7, 0.9, with_search=True)


@pytest.mark.parametrize(
    ("results", "policy"),
    [
        ([FIFO, measured("least-recalled", 0.61)], "least-recalled"),
        (
            [FIFO, measured("least-recalled", 0.59)],
            "fifo",
        ),  # Within the interval it may be chance.
        ([FIFO, measured("least-recalled", 0.7), measured("summary", 0.8)], "summary"),
        (
            [FIFO, measured("bare", 0.9), measured("least-recalled", 0.3)],
            "fifo",
        ),  # Not selectable.
        (
            [FIFO, measured("least-recalled", 0.9, budget=200)],
            None,
        ),  # Nothing to compare it with.
        (
            [FIFO, measured("fifo-recall", 0.9, with_search=True)],
            None,
        ),  # A search is no merit of a policy.
        (
            [FIFO, FOUND, measured("fifo-recall", 0.2), measured("fifo-recall", 0.8, with_search=True)],
            "fifo",
        ),  # As good with a search, and worse without.
        (
            [FIFO, FOUND, measured("least-recalled", 0.7), measured("least-recalled", 0.8, with_search=True)],
            "least-recalled",
        ),
        ([measured("fifo", 0.004, 0.0, 0.01), measured("least-recalled", 0.013)], "fifo"),  # Less than one point.
        ([measured("fifo", None), measured("least-recalled", None)], None),
        ([], None),
    ],
)
def test_a_policy_is_recommended_where_it_is_clearly_better(results: list[Eviction], policy: str | None) -> None:
    found = recommendation(results)
    assert (found and found.eviction) == policy


def test_a_recommendation_says_what_a_program_has_to_do() -> None:
    found = recommendation([FIFO, measured("least-recalled", 0.75)])
    assert found is not None
    assert found.reasons[-1].startswith("this assumes chat.recall(text, top_k=3)")


def test_a_recommendation_says_what_each_policy_lost() -> None:
    found = recommendation([FIFO, measured("least-recalled", 0.75)])
    assert found is not None
    reason, _ = found.reasons
    assert reason.startswith("in 100 tokens, 25 % of what was needed later was not in")
    assert reason.endswith("with fifo, 50 %")


def test_a_policy_that_lost_nothing_is_compared_with_fifo() -> None:
    found = recommendation([measured("fifo", 0.0, 0.0, 0.0), measured("summary", 1.0)])
    assert found is not None
    told = "in 100 tokens, 0 % of what was needed later was not in the window; with fifo, 100 %"
    assert (found.eviction, found.reasons) == ("summary", (told,))


def test_what_a_search_did_not_find_is_a_least() -> None:
    found = recommendation([FOUND, measured("summary", 0.95, with_search=True)])
    assert found is not None
    reason = "in 100 tokens, at least 5 % of what was needed later was neither in the window nor found by a search"
    assert found.reasons[0] == f"{reason}; with fifo, 20 %"


def test_survival_and_regret_count_alike() -> None:
    """A question with nine pieces of evidence weighs as much as a question with one."""
    arriving = tuple(Piece(10) for _ in range(19))
    trace = Trace("weighed", arriving, (Need(19, frozenset(range(9))), Need(19, frozenset({18}))))
    for each in evictions([trace], [100], [OWN]):
        assert each.survival is not None
        assert each.regret == 1 - each.survival
        assert each.survival == (1.0 if each.policy.startswith("clairvoyant") else 0.5)


def test_that_nothing_had_left_is_said_only_where_no_policy_lost_anything() -> None:
    full = recommendation([measured("fifo", 1.0, 1.0, 1.0), measured("summary", 1.0)])
    assert full is not None
    assert full.reasons == ("nothing that was needed had left any of these windows",)
    others = recommendation([measured("fifo", 1.0, 1.0, 1.0), measured("summary", 0.5)])
    assert others is not None
    told = "in 100 tokens, 0 % of what was needed later was not in the window"
    assert (others.eviction, others.reasons) == ("fifo", (told,))


@pytest.mark.parametrize(("needs", "policy"), [(1, "fifo"), (9, "fifo"), (10, "summary")])
def test_a_few_questions_recommend_nothing_else(needs: int, policy: str) -> None:
    found = recommendation([measured("fifo", 0.0, 0.0, 0.0, needs=needs), measured("summary", 1.0, needs=needs)])
    assert found is not None
    assert found.eviction == policy
    assert any("too few to tell" in reason for reason in found.reasons) is (policy == "fifo")


def test_no_need_is_no_survival() -> None:
    assert full_share(()) == 0.0
    assert replay(Trace("idle", (Piece(5),), ()), OWN, 10).survived == ()


def test_conversations_come_in_the_order_in_which_they_began() -> None:
    with Memory() as memory:
        for name in ("b", "a", "empty"):
            memory.conversation(name).scratchpad.set("key", "value")
        for name in ("b", "a"):
            memory.conversation(name).append("user", "Hello", name="Ada")
        assert [name for name, *_ in conversations(memory)] == ["b", "a"]
        assert [items[0].text for _, items, *_ in conversations(memory)] == ["Ada: Hello"] * 2


def test_what_forks_share_is_counted_once() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "open", "arguments": '{"code": "Z0099"}'}}
    with Memory() as memory:
        chat = memory.conversation("a")
        chat.append("user", "The code of the door is Z0099.")
        chat.append("assistant", None, tool_calls=[call])
        chat.append("tool", "opened", tool_call_id="c1")
        for number in range(3):
            chat.fork(f"0-try-{number}")
        again = chat.fork("0-again")
        again.append("assistant", None, tool_calls=[{**call, "id": "c2"}])
        shared = [(name, len(items), shared) for name, items, _, shared in conversations(memory)]
        assert shared == [("a", 3, 0), *((f"0-try-{number}", 3, 3) for number in range(3)), ("0-again", 4, 3)]
        cases = [make_case(*each) for each in conversations(memory)]
        assert [[question.arrived for question in case.questions] for case in cases] == [[1], [], [], [], [3]]


def test_the_questions_of_a_source_are_those_of_one_conversation() -> None:
    source = {"questions": [{"question": "Which code?", "source_chat_ids": ["m1"]}]}
    with Memory() as memory:
        chat = memory.conversation("b")
        chat.append("user", "Z0099", metadata={"id": "m1", "source": source})
        chat.fork("a").append("user", "More.")
        cases = [make_case(*each) for each in conversations(memory)]
        assert [(case.name, len(case.questions)) for case in cases] == [("b", 1), ("a", 0)]
