"""The history checker: what calls say and what the log holds go in, violations come out.

It is pure. Every rule is a function of an ``Index`` and yields messages; ``RULES`` lists them. A history is right if
there is one order of all writes, that of the log, in which every call could have happened at one moment between its
invocation and its return. Because the log numbers its events, that order need not be searched for.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from tests.rigs.history.index import Index
from tests.rigs.history.looks import LOOK_RULES
from tests.rigs.history.record import Answer, Delivery, Fact, Operation

ALLOWED_REFUSALS = frozenset({"WrongVersion"})
"""Exceptions that a call of the rigs may meet while nothing is wrong."""


class Violation(Struct, frozen=True):
    """One thing that must not be: the rule that it breaks, and what was seen."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


def seqs_are_gapless(index: Index) -> Iterator[str]:
    """The log holds seqs 1, 2, 3 and so on."""
    for expected, fact in enumerate(index.facts, start=1):
        if fact.seq != expected:
            yield f"seq {fact.seq} stands where {expected} should"
            return


def versions_are_gapless(index: Index) -> Iterator[str]:
    """Each stream holds versions 1, 2, 3 and so on."""
    for stream, facts in index.streams.items():
        for expected, fact in enumerate(facts, start=1):
            if fact.version != expected:
                yield f"{stream}, seq {fact.seq}: version {fact.version} stands where {expected} should"
                break


def acknowledged_is_there_once(index: Index) -> Iterator[str]:
    """What was acknowledged is in the log exactly once, as it was asked for."""
    for operation in index.operations:
        if operation.is_acknowledged:
            for write in operation.writes:
                found = [(fact.stream, fact.key) for fact in index.by_mark.get(write.mark, ())]
                if found != [(write.stream, write.key)]:
                    yield f"{write.mark} was acknowledged for {(write.stream, write.key)}; the log holds {found}"


def refused_is_not_there(index: Index) -> Iterator[str]:
    """What was refused is not in the log."""
    for operation in index.operations:
        if operation.refusal is not None:
            for write in operation.writes:
                if write.mark in index.by_mark:
                    yield f"{write.mark} was refused with {operation.refusal.error}; the log holds it"


def unknown_is_there_at_most_once(index: Index) -> Iterator[str]:
    """What was neither acknowledged nor refused is in the log once or not at all."""
    for operation in index.operations:
        if operation.is_unknown:
            for write in operation.writes:
                count = len(index.by_mark.get(write.mark, ()))
                if count > 1:
                    yield f"{write.mark}, of unknown outcome, is in the log {count} times"


def nothing_is_invented(index: Index) -> Iterator[str]:
    """The log holds only what somebody asked for."""
    asked = {write.mark for operation in index.operations for write in operation.writes}
    for fact in index.facts:
        if fact.mark and fact.mark not in asked:
            yield f"seq {fact.seq} of {fact.stream} holds {fact.mark}, which nobody asked for"


def answers_tell_the_place(index: Index) -> Iterator[str]:
    """Every answer to a request, the first one and those to its repetitions, names the place in the log."""
    for operation in index.operations:
        places = [index.place(write) for write in operation.writes]
        for answer in operation.answers:
            if answer.places and list(answer.places) != places:
                yield f"{operation.name} was told {list(answer.places)}; the log has it at {places}"


def batches_are_whole(index: Index) -> Iterator[str]:
    """The events of a batch are all there, in their order and with nobody else's between them, or none is."""
    for operation in index.operations:
        seqs = [index.place(write)[0] for write in operation.writes]
        if len(seqs) < 2 or not any(seqs):
            continue
        if not all(seqs) or seqs != sorted(seqs):
            yield f"batch {operation.name} has its events at seqs {seqs}, where 0 is missing"
            continue
        own = {write.mark for write in operation.writes} | {""}
        between = {index.by_seq[seq].mark for seq in range(seqs[0], seqs[-1]) if seq in index.by_seq} - own
        if between:
            yield f"batch {operation.name}, seqs {seqs}, has {sorted(between)} of others inside"


def log_follows_real_time(index: Index) -> Iterator[str]:
    """What was invoked after something was acknowledged stands behind it."""
    placed = [(operation, seqs) for operation in index.operations if (seqs := index.seqs(operation))]
    known = sorted((operation.returned_ns, max(seqs)) for operation, seqs in placed if operation.returned_ns)
    position, behind = 0, 0
    for operation, seqs in sorted(placed, key=lambda one: one[0].invoked_ns):
        while position < len(known) and (known[position][0] or 0) < operation.invoked_ns:
            behind = max(behind, known[position][1])
            position += 1
        if min(seqs) < behind:
            yield f"{operation.name} has seq {min(seqs)}; seq {behind} was acknowledged before it was invoked"


def expected_versions_held(index: Index) -> Iterator[str]:
    """A write that expected version n is the first after version n, but for the event that opens its stream."""
    for operation in index.operations:
        for write in operation.writes:
            version = index.place(write)[1]
            if write.expected is None or not version:
                continue
            between = index.streams[write.stream][write.expected : version - 1]
            if version <= write.expected or any(fact.mark for fact in between):
                yield f"{write.mark} expected version {write.expected} of {write.stream} and became {version}"


def refusals_are_true(index: Index) -> Iterator[str]:
    """A refusal is for a wrong version, of a call that expected one, and names a version that was current meanwhile."""
    for operation in index.operations:
        for answer in operation.answers:
            if answer.error:
                yield from _untruths(index, operation, answer)


def _untruths(index: Index, operation: Operation, answer: Answer) -> Iterator[str]:
    error, actual, returned_ns = answer.error, answer.actual, answer.returned_ns
    expecting = [write for write in operation.writes if write.expected is not None]
    if error not in ALLOWED_REFUSALS or not expecting:
        yield f"{operation.name} failed with {error}, which no call like it may: {answer.reason}"
        return
    bounds = [index.timelines[write.stream].between(operation.invoked_ns, returned_ns) for write in expecting]
    if all(actual == write.expected for write in expecting):
        yield f"{operation.name} expected version {actual} and was refused at that version"
    elif not any(low <= actual <= high for low, high in bounds):
        yield f"{operation.name} was told version {actual}; current meanwhile were {bounds}"


def deliveries_are_in_order_once(index: Index) -> Iterator[str]:
    """A subscriber is given every event from its first one on, in the order of the log, once, and no other."""
    for delivery in index.deliveries:
        yield from _misdelivered(delivery, len(index.facts))


def _misdelivered(delivery: Delivery, head: int) -> Iterator[str]:
    seqs = delivery.seqs
    after = delivery.after if delivery.after is not None else (seqs[0] - 1 if seqs else 0)
    for expected, seq in enumerate(seqs, start=after + 1):
        if seq != expected:
            kind = "skipped to" if seq > expected else "was given again, or too late,"
            yield f"{delivery.subscriber} {kind} seq {seq}; the next was {expected}"
            return
    if seqs and seqs[-1] > head:
        yield f"{delivery.subscriber} was given seq {seqs[-1]}, and the log ends at {head}"
    if delivery.until is not None and after + len(seqs) < delivery.until:
        yield f"{delivery.subscriber} was given events up to {after + len(seqs)} of {delivery.until}"


Rule: TypeAlias = Callable[[Index], Iterator[str]]
RULES: tuple[Rule, ...] = (
    seqs_are_gapless,
    versions_are_gapless,
    acknowledged_is_there_once,
    refused_is_not_there,
    unknown_is_there_at_most_once,
    nothing_is_invented,
    answers_tell_the_place,
    batches_are_whole,
    log_follows_real_time,
    expected_versions_held,
    refusals_are_true,
    *LOOK_RULES,
    deliveries_are_in_order_once,
)


def violations(
    operations: Sequence[Operation], facts: Sequence[Fact], deliveries: Sequence[Delivery] = ()
) -> list[Violation]:
    """Return everything that is wrong with a history, rule by rule; nothing if it could have happened."""
    index = Index(operations, facts, deliveries)
    return [Violation(rule.__name__, message) for rule in RULES for message in rule(index)]
