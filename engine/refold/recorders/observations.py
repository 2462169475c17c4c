"""LoCoMo's observations: facts about the speakers of a sample, each with the turns that say it.

A fact goes to the project of its ``sample_id``, beside the conversation. It happened when its session did, and its
metadata keeps whom it is about, the session, and the ids that are cited, as they are written: some in a list, some in
one text, some of turns that do not exist.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from refold.errors import InvalidInput
from refold.recorders.keeping import Fields
from refold.recorders.locomo import LOCOMO, samples, session_ns, sessions
from refold.recorders.protocol import SourceMemory

_OBSERVED: Final = re.compile(r"session_([0-9]{1,9})_observation\Z")
_TURN: Final = re.compile(r"D[0-9]{1,9}:[0-9]{1,9}(?![0-9])")
_ADVICE: Final = "give the benchmark's JSON file, or mend it"
_FACT_PARTS: Final = 2


class ObservationReader:
    """Reads the observations of LoCoMo."""

    name = "locomo"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin samples of LoCoMo."""
        return LOCOMO.recognises(head)

    def memories(self, path: Path) -> Iterator[SourceMemory]:
        """Return the facts of a file, all of which are checked before the first is given."""
        with path.open("rb") as file:
            found = [memory for place, sample in samples(file) for memory in _of_sample(place, sample)]
        if not found:
            message = f"the samples have no observations; {_ADVICE}, or import it without --facts"
            raise InvalidInput(message)
        yield from found


OBSERVATIONS: Final = ObservationReader()


def _of_sample(place: str, sample: Fields) -> Iterator[SourceMemory]:
    observed = sample.get("observation", {})
    if not isinstance(observed, dict):
        message = f"{place} has an observation that is no object; {_ADVICE}"
        raise InvalidInput(message)
    turns = _turns(sample)
    by_session = cast("dict[str, Any]", observed)
    numbered = sorted((int(found.group(1)), key) for key in by_session if (found := _OBSERVED.match(key)))
    for number, key in numbered:
        for speaker, facts in _facts(f"{place}, {key}", by_session[key]):
            for position, fact in enumerate(facts, 1):
                where = f"{place}, {key} of {speaker}, fact {position}"
                own_key = f"{sample['sample_id']}/{number}/{speaker}/{position}"
                yield _memory(where, own_key, sample, (number, speaker, fact), turns)


def _turns(sample: Fields) -> frozenset[str]:
    """Return the ids of a sample's turns."""
    listed = [cast("list[object]", turns) for _, _, turns in sessions(sample) if isinstance(turns, list)]
    turns = [cast("Fields", turn) for session in listed for turn in session if isinstance(turn, dict)]
    return frozenset(str(turn.get("dia_id")) for turn in turns)


def _facts(place: str, by_speaker: object) -> Iterator[tuple[str, list[object]]]:
    if not isinstance(by_speaker, dict):
        message = f"{place} is no object of speakers; {_ADVICE}"
        raise InvalidInput(message)
    for speaker, facts in cast("dict[str, Any]", by_speaker).items():
        if not isinstance(facts, list):
            message = f"{place} of {speaker} is no list of facts; {_ADVICE}"
            raise InvalidInput(message)
        yield speaker, cast("list[object]", facts)


def _memory(place: str, key: str, sample: Fields, said: tuple[int, str, Any], turns: frozenset[str]) -> SourceMemory:
    number, speaker, fact = said
    parts = cast("list[object]", fact) if isinstance(fact, list) else []
    if len(parts) != _FACT_PARTS or not isinstance(parts[0], str) or not parts[0].strip():
        message = f"{place} is no pair of a text and the ids of its turns; {_ADVICE}"
        raise InvalidInput(message)
    text, cited = parts
    talk = sample.get("conversation")
    ids = dict.fromkeys(_TURN.findall(str(cited)))
    return SourceMemory(
        place,
        key,
        text,
        metadata={"speaker": speaker, "session": number, "dia_ids": cited},
        source=f"session_{number}",
        occurred_ns=session_ns(cast("Fields", talk), number) if isinstance(talk, dict) else None,
        project=sample["sample_id"],
        turns=tuple(turn for turn in ids if turn in turns),
    )
