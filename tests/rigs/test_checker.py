"""The history checker on histories made by hand: silent on those that can have happened, loud on those that cannot."""

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from tests.rigs.history.checker import RULES, violations
from tests.rigs.history.record import Answer, Call, Delivery, Fact, Line, Look, Write, operations

SHARED = "shared"


class History:
    """A history that is written down call by call; the log is said apart, because it is what may be wrong."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.facts: list[Fact] = []

    def write(
        self,
        name: str,
        begin: int,
        end: int | None,
        streams: Sequence[str] = (SHARED,),
        places: Sequence[tuple[int, int]] = (),
        expected: int | None = None,
        process: int = 0,
        key: str = "",
        error: str = "",
        actual: int = -1,
    ) -> None:
        """A call between two moments; one that never came back has no end."""
        writes = tuple(Write(stream, f"{name}{place}", key, expected) for place, stream in enumerate(streams))
        self.lines.append(Call(name, process, begin, writes))
        if end is not None:
            self.lines.append(Answer(name, end, tuple(places), error=error, actual=actual))

    def look(
        self,
        name: str,
        begin: int,
        end: int,
        seen: Sequence[str],
        stream: str = SHARED,
        process: int = 0,
        key: str = "",
    ) -> None:
        self.lines += [Call(name, process, begin, look=Look(stream, key)), Answer(name, end, seen=tuple(seen))]

    def log(self, *marks: str, stream: str = SHARED, key: str = "") -> None:
        """Adds events to the log; an empty mark opens the stream."""
        for mark in marks:
            version = 1 + sum(fact.stream == stream for fact in self.facts)
            self.facts.append(Fact(len(self.facts) + 1, stream, version, mark, key))

    def rules(self, *deliveries: Delivery) -> set[str]:
        return {violation.rule for violation in violations(operations(self.lines), self.facts, deliveries)}


def two_in_a_row() -> History:
    """Opened by a, and then b: everybody was told the truth."""
    history = History()
    history.write("a", 10, 20, places=[(2, 2)])
    history.write("b", 30, 40, places=[(3, 3)], process=1)
    history.log("", "a0", "b0")
    return history


class TestGoodHistories:
    def test_an_empty_one(self) -> None:
        assert History().rules() == set()

    def test_one_after_the_other(self) -> None:
        assert two_in_a_row().rules() == set()

    def test_side_by_side_in_either_order(self) -> None:
        for marks in (("", "a0", "b0"), ("", "b0", "a0")):
            history = History()
            history.write("a", 10, 40)
            history.write("b", 20, 30)
            history.log(*marks)
            assert history.rules() == set()

    @pytest.mark.parametrize("marks", [(), ("", "a0")])
    def test_an_unknown_outcome_either_way(self, marks: tuple[str, ...]) -> None:
        history = History()
        history.write("a", 10, None)
        history.log(*marks)
        assert history.rules() == set()

    def test_an_unknown_outcome_that_was_told_of_when_asked_again(self) -> None:
        """It happened before the other one, although its answer came later: the request was the same."""
        history = History()
        history.write("a", 10, None)
        history.write("b", 30, 40, places=[(3, 3)])
        history.write("a", 50, 60, places=[(2, 2)])
        history.log("", "a0", "b0")
        assert history.rules() == set()

    def test_an_unknown_outcome_that_was_refused_when_asked_again(self) -> None:
        history = History()
        history.write("a", 10, None, expected=1)
        history.write("b", 30, 40)
        history.write("a", 50, 60, expected=1, error="WrongVersion", actual=2)
        history.log("", "b0")
        assert history.rules() == set()

    def test_expected_versions(self) -> None:
        history = History()
        history.write("a", 10, 20, expected=0)
        history.write("b", 30, 40, expected=2)
        history.write("c", 30, 40, expected=2, error="WrongVersion", actual=3)
        history.write("d", 35, 37, expected=7, error="WrongVersion", actual=2)
        history.log("", "a0", "b0")
        assert history.rules() == set()

    def test_a_batch_of_two_streams(self) -> None:
        history = History()
        history.write("a", 10, 20, [SHARED, "other"], [(2, 2), (4, 2)])
        history.log("", "a0")
        history.log("", "a1", stream="other")
        history.look("first", 12, 14, ["a0"])
        history.look("second", 15, 17, ["a1"], "other")
        assert history.rules() == set()

    def test_looks_of_messages_and_keys(self) -> None:
        history = two_in_a_row()
        history.write("c", 50, 60, key="plan")
        history.log("c0", key="plan")
        history.look("none", 1, 5, [])
        history.look("early", 5, 35, ["a0"])
        history.look("late", 32, 70, ["a0", "b0"])
        history.look("key", 55, 70, ["c0"], key="plan")
        history.look("no key yet", 55, 58, [], key="plan", process=1)
        assert history.rules() == set()

    def test_a_look_shows_the_newest_five(self) -> None:
        history = History()
        marks = [f"{letter}0" for letter in "abcdefg"]
        for begin, mark in zip(count(10, 10), marks, strict=False):
            history.write(mark[0], begin, begin + 5)
        history.log("", *marks)
        history.look("all", 100, 110, marks[-5:])
        assert history.rules() == set()


def lost() -> History:
    history = two_in_a_row()
    del history.facts[-1]
    return history


def twice() -> History:
    history = two_in_a_row()
    history.log("b0")
    return history


def in_another_stream() -> History:
    history = History()
    history.write("a", 10, 20)
    history.log("", "a0", stream="other")
    return history


def seq_left_out() -> History:
    history = two_in_a_row()
    history.facts[2] = Fact(4, SHARED, 3, "b0")
    history.lines[-1] = Answer("b", 40)
    return history


def version_left_out() -> History:
    history = two_in_a_row()
    history.facts[2] = Fact(3, SHARED, 4, "b0")
    history.lines[-1] = Answer("b", 40)
    return history


def refused_and_written() -> History:
    history = two_in_a_row()
    history.write("c", 50, 60, expected=1, error="WrongVersion", actual=3)
    history.log("c0")
    return history


def unknown_and_twice() -> History:
    history = History()
    history.write("a", 10, None)
    history.log("", "a0", "a0")
    return history


def asked_by_nobody() -> History:
    history = two_in_a_row()
    history.log("z0")
    return history


def told_another_place() -> History:
    history = History()
    history.write("a", 10, 20, places=[(3, 3)])
    history.log("", "a0")
    return history


def told_two_places() -> History:
    history = two_in_a_row()
    history.write("a", 50, 60, places=[(4, 4)])
    return history


def half_a_batch() -> History:
    history = History()
    history.write("a", 10, None, [SHARED, "other"])
    history.log("", "a0")
    return history


def batch_with_another_inside() -> History:
    history = History()
    history.write("a", 10, 40, [SHARED, SHARED])
    history.write("b", 20, 30)
    history.log("", "a0", "b0", "a1")
    return history


def batch_out_of_order() -> History:
    history = History()
    history.write("a", 10, 40, [SHARED, SHARED])
    history.log("", "a1", "a0")
    return history


def against_real_time() -> History:
    history = History()
    history.write("a", 10, 20)
    history.write("b", 30, 40)
    history.log("", "b0", "a0")
    return history


def unknown_before_it_was_invoked() -> History:
    history = History()
    history.write("a", 10, 20)
    history.write("b", 30, None)
    history.log("", "b0", "a0")
    return history


def expected_another_version() -> History:
    history = two_in_a_row()
    history.write("c", 50, 60, expected=2)
    history.log("c0")
    return history


def expected_a_version_to_come() -> History:
    history = two_in_a_row()
    history.write("c", 50, 60, expected=9)
    history.log("c0")
    return history


def refused_at_the_right_version() -> History:
    history = two_in_a_row()
    history.write("c", 50, 60, expected=3, error="WrongVersion", actual=3)
    return history


def refused_for_a_version_long_gone() -> History:
    history = two_in_a_row()
    history.write("c", 50, 60, expected=3, error="WrongVersion", actual=2)
    return history


def refused_for_a_version_to_come() -> History:
    history = two_in_a_row()
    history.write("c", 22, 25, expected=1, error="WrongVersion", actual=3)
    return history


def refused_without_a_reason() -> History:
    history = two_in_a_row()
    history.write("c", 50, 60, error="WrongVersion", actual=3)
    return history


def failed_in_another_way() -> History:
    history = two_in_a_row()
    history.write("c", 50, 60, expected=3, error="StoreBusy")
    return history


def look(begin: int, end: int, *seen: str, process: int = 1) -> History:
    history = two_in_a_row()
    history.look("look", begin, end, seen, process=process)
    return history


def look_that_went_back() -> History:
    """The second look is early enough to miss b, had not its process seen b before."""
    history = History()
    history.write("a", 10, 20)
    history.write("b", 30, 90)
    history.log("", "a0", "b0")
    history.look("first", 40, 50, ["a0", "b0"], process=1)
    history.look("second", 60, 70, ["a0"], process=1)
    return history


def look_at_half_a_batch() -> History:
    history = History()
    history.write("a", 10, 90, [SHARED, "other"])
    history.log("", "a0")
    history.log("", "a1", stream="other")
    history.look("first", 40, 50, ["a0"])
    history.look("second", 60, 70, [], "other")
    return history


BAD: dict[Callable[[], History], str] = {
    lost: "acknowledged_is_there_once",
    twice: "acknowledged_is_there_once",
    in_another_stream: "acknowledged_is_there_once",
    seq_left_out: "seqs_are_gapless",
    version_left_out: "versions_are_gapless",
    refused_and_written: "refused_is_not_there",
    unknown_and_twice: "unknown_is_there_at_most_once",
    asked_by_nobody: "nothing_is_invented",
    told_another_place: "answers_tell_the_place",
    told_two_places: "answers_tell_the_place",
    half_a_batch: "batches_are_whole",
    batch_with_another_inside: "batches_are_whole",
    batch_out_of_order: "batches_are_whole",
    against_real_time: "log_follows_real_time",
    unknown_before_it_was_invoked: "log_follows_real_time",
    expected_another_version: "expected_versions_held",
    expected_a_version_to_come: "expected_versions_held",
    refused_at_the_right_version: "refusals_are_true",
    refused_for_a_version_long_gone: "refusals_are_true",
    refused_for_a_version_to_come: "refusals_are_true",
    refused_without_a_reason: "refusals_are_true",
    failed_in_another_way: "refusals_are_true",
    lambda: look(50, 60, "b0"): "looks_saw_what_was_there",
    lambda: look(50, 60, "z0"): "looks_saw_what_was_there",
    lambda: look(50, 60, "b0", "a0"): "looks_saw_what_was_there",
    lambda: look(50, 60, "a0"): "looks_are_current",
    lambda: look(50, 60, "a0", process=0): "looks_are_current",
    lambda: look(21, 22): "looks_are_current",
    lambda: look(22, 25, "a0", "b0"): "looks_are_current",
    look_that_went_back: "looks_never_go_back",
    look_at_half_a_batch: "looks_never_go_back",
}


@pytest.mark.parametrize(("history", "rule"), BAD.items())
def test_a_bad_history_breaks_its_rule(history: Callable[[], History], rule: str) -> None:
    assert rule in history().rules()


SOLE = (
    look_that_went_back,
    look_at_half_a_batch,
    against_real_time,
    unknown_before_it_was_invoked,
    half_a_batch,
    batch_with_another_inside,
    seq_left_out,
    version_left_out,
)


@pytest.mark.parametrize("history", SOLE)
def test_nothing_else_is_said_of_it(history: Callable[[], History]) -> None:
    assert history().rules() == {BAD[history]}


class TestDeliveries:
    @pytest.mark.parametrize(
        "delivery",
        [
            Delivery("all", (1, 2, 3), after=0, until=3),
            Delivery("from now", (2, 3)),
            Delivery("nothing yet", (), after=3, until=3),
            Delivery("cut off", (1, 2), after=0),
            Delivery("cut off at once", ()),
        ],
    )
    def test_in_order_once(self, delivery: Delivery) -> None:
        assert two_in_a_row().rules(delivery) == set()

    @pytest.mark.parametrize(
        "delivery",
        [
            Delivery("twice", (1, 2, 2, 3), after=0),
            Delivery("left out", (1, 3), after=0),
            Delivery("left out at the beginning", (2, 3), after=0),
            Delivery("left out at the end", (1, 2), after=0, until=3),
            Delivery("never given any", (), after=0, until=3),
            Delivery("out of order", (1, 3, 2), after=0),
            Delivery("not what was asked for", (1, 2, 3), after=1),
            Delivery("what is not in the log", (1, 2, 3, 4), after=0),
        ],
    )
    def test_or_not(self, delivery: Delivery) -> None:
        assert two_in_a_row().rules(delivery) == {"deliveries_are_in_order_once"}


def test_every_rule_has_a_bad_history() -> None:
    assert {rule.__name__ for rule in RULES} == {*BAD.values(), "deliveries_are_in_order_once"}


def test_operations_know_what_their_callers_know() -> None:
    def known(*lines: Line) -> tuple[bool, bool, bool, int | None]:
        (operation,) = operations(lines)
        return operation.is_acknowledged, operation.is_unknown, operation.refusal is not None, operation.returned_ns

    call, again = Call("a", 0, 1), Call("a", 0, 5)
    done, refused = Answer("a", 3), Answer("a", 3, error="WrongVersion")
    assert known(call) == (False, True, False, None)
    assert known(call, done) == (True, False, False, 3)
    assert known(call, refused) == (False, False, True, 3)
    assert known(call, done, again) == (True, False, False, 3)
    assert known(call, refused, again) == (False, True, False, None)
    assert known(call, again, Answer("a", 7)) == (True, False, False, 7)
    assert known(call, done, again, Answer("a", 7)) == (True, False, False, 3)


def test_operations_are_in_the_order_of_their_calls() -> None:
    lines: list[Line] = [Call("b", 0, 1), Call("a", 1, 2), Answer("b", 3)]
    found = operations(lines)
    assert [(one.name, one.process, one.invoked_ns) for one in found] == [("b", 0, 1), ("a", 1, 2)]
