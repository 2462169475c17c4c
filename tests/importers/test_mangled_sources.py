"""Made-up sources with one value after another replaced: each is found again in the log, or refused."""

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, LimitExceeded, Memory
from refold.importers import import_file
from refold.importers.memories import JSON_MEMORIES, OBSERVATIONS
from tests.importers.documents import differences, rebuilt
from tests.importers.test_memories import ENTRY, FROM_MEM0
from tests.support.paths import SOURCES

MADE_UP = SOURCES
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e300,
    2**70,
    "",
    "x",
    "\ud800",
    [],
    ["x"],
    [[]],
    {},
    {"role": "user"},
    {"text": 3},
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a document, and of the document."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*place, key))


def mangled(document: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Copies of a document, each with one value that is another or, as ``...`` says, absent."""
    for place in places(document):
        for strange in (*STRANGE, ...):
            whole = [copy.deepcopy(document)]
            holder: Any = whole
            for key in (0, *place)[:-1]:
                holder = holder[key]
            if strange is ...:
                if not place:
                    continue
                del holder[place[-1]]
            else:
                holder[(0, *place)[-1]] = strange
            yield (*place, strange), whole[0]


def is_taken(take: Callable[[], object]) -> bool:
    """Return whether a call returns or says what is wrong; any other error ends the test."""
    try:
        take()
    except (InvalidInput, LimitExceeded) as error:
        assert str(error)  # noqa: PT017 - either way is right
        return False
    return True


DOCUMENTS = [
    pytest.param(
        name, json.loads((MADE_UP / file).read_text(encoding="utf-8").splitlines()[0] if lines else text), id=file
    )
    for name, file, lines in (
        ("swe-agent", "calls.traj", False),
        ("swe-agent", "thoughts.traj", False),
        ("swe-agent", "steps.traj", False),
        ("beam", "beam.jsonl", True),
        ("locomo", "locomo.json", False),
    )
    for text in [(MADE_UP / file).read_text(encoding="utf-8")]
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "document"), DOCUMENTS)
def test_a_source_with_a_strange_value_is_found_again_or_refused(tmp_path: Path, name: str, document: Any) -> None:
    taken = refused = 0
    with Memory() as memory:
        for number, (place, strange) in enumerate(mangled(document)):
            file = tmp_path / f"{number}.json"
            file.write_text(json.dumps(strange), encoding="utf-8")
            head = memory.head
            if is_taken(partial(import_file, memory, file, format=name)):
                taken += 1
                documents = strange if isinstance(strange, list) else [strange]
                assert list(differences(documents, rebuilt(memory, name, file.stem, documents))) == [], place
            else:
                refused += 1
                # Only a file of several conversations may keep those before the one that is refused.
                assert memory.head == head or name == "locomo", place
            file.unlink()
        assert memory.verify().ok
    assert taken > 10
    assert refused > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "document"),
    [
        pytest.param(JSON_MEMORIES, ENTRY, id="entry"),
        pytest.param(JSON_MEMORIES, {"results": [FROM_MEM0, FROM_MEM0 | {"id": "78"}]}, id="mem0"),
        pytest.param(OBSERVATIONS, json.loads((MADE_UP / "locomo.json").read_text(encoding="utf-8")), id="locomo"),
    ],
)
def test_memories_with_a_strange_value_are_read_or_refused(tmp_path: Path, reader: Any, document: Any) -> None:
    file = tmp_path / "file"
    taken = refused = 0
    for _, strange in mangled(document):
        file.write_text(json.dumps(strange), encoding="utf-8")
        was_taken = is_taken(lambda: list(reader.memories(file)))
        taken, refused = taken + was_taken, refused + (not was_taken)
    assert taken > 10
    assert refused > 10
