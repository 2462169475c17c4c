"""Golden records: the bytes of a record of every event, plain and erased, as they must be read for ever.

`python tools/golden.py` writes a record for each event that lacks one; `--check` only says which do. A record that
exists is never changed: an event that has grown by a body field gets a second one (`message_appended-2.json`), and
the first stays, because stores hold such bytes.

Each is the first record of a log and holds one event. What it must be read as stands beside it; of the erased form
only what is other than before.
"""

import json
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast
from zlib import crc32

import msgspec
from msgspec import inspect

from refold import fold
from refold.engine.origin import Origin
from refold.engine.reader import Reader
from refold.engine.streams import Stream
from refold.engine.transaction import CommitSeed, Group, build_commit
from refold.event import Event
from refold.log.record import NO_LINK, Record, erase_bodies, link_after

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"

STREAM: Final = "conversation/golden"
STREAM_NUMBER: Final = 3
VERSION_BEFORE: Final = 4
SEQ_BEFORE: Final = 40
SEQ: Final = 42
TIME_NS: Final = 1_764_000_000_123_456_789
OCCURRED_NS: Final = 1_763_999_999_000_000_000
SEED: Final = bytes(range(32))
ERASED_SALT: Final = bytes(range(64, 80))
_SAMPLE_INTS: Final = 100_000
_UNREADABLE: Final = (msgspec.DecodeError, LookupError, ValueError, struct.error)


def sample(event_type: type[Event]) -> Event:
    """Return an event with a telling value in every field, the same one at each call."""
    return event_type(**{field.name: _value(_only(field.type), field.name) for field in _struct(event_type).fields})


def _struct(event_type: type[Event]) -> inspect.StructType:
    described = inspect.type_info(event_type)
    assert isinstance(described, inspect.StructType), described
    return described


def _only(described: inspect.Type) -> inspect.Type:
    """Return the type itself, or what an optional one may hold beside None."""
    if isinstance(described, inspect.UnionType):
        return next(member for member in described.types if not isinstance(member, inspect.NoneType))
    return described


def _value(described: inspect.Type, name: str) -> Any:
    """Return a value of a type that shows in which field it stands."""
    for kind, make in _SAMPLES.items():
        if isinstance(described, kind):
            return make(described, name)
    raise TypeError(f"{name} is of {described}, of which tools/golden.py knows no sample; teach it one in _SAMPLES")


def _items(kinds: Iterable[inspect.Type], name: str) -> tuple[Any, ...]:
    return tuple(_value(_only(kind), f"{name}[{place}]") for place, kind in enumerate(kinds))


def _nested(described: Any, name: str) -> Any:
    return described.cls(
        **{field.name: _value(_only(field.type), f"{name}.{field.name}") for field in described.fields}
    )


_SAMPLES: Final[dict[type[inspect.Type], Callable[[Any, str], Any]]] = {
    inspect.BoolType: lambda _, __: True,
    inspect.IntType: lambda _, name: crc32(name.encode()) % _SAMPLE_INTS + 1,
    inspect.FloatType: lambda _, name: crc32(name.encode()) % _SAMPLE_INTS / 64,
    inspect.StrType: lambda _, name: f"{name} \u00b5",
    inspect.BytesType: lambda _, name: msgspec.msgpack.encode({"field": name}),
    inspect.LiteralType: lambda described, _: min(described.values),
    inspect.VarTupleType: lambda described, name: _items([described.item_type] * 2, name),
    inspect.TupleType: lambda described, name: _items(described.item_types, name),
    inspect.StructType: _nested,
}


def record_of(event: Event) -> bytes:
    """Return the record that the engine writes for an event, with a fixed stamp and a fixed seed."""
    stream = Stream(STREAM_NUMBER, STREAM)
    stream.version, stream.seq = VERSION_BEFORE, SEQ_BEFORE
    group = Group(cast("Reader", None))
    group.streams[STREAM] = stream
    group.add(STREAM, event, Origin(OCCURRED_NS))
    group.starts.append(0)
    commit = build_commit(group, CommitSeed(TIME_NS, SEED), first_seq=SEQ, after_ns=TIME_NS, link=NO_LINK)
    ((_, packed),) = commit.records
    return packed


def described(event: Event) -> dict[str, Any]:
    """Return an event's fields as JSON values; bytes appear as base64."""
    fields = {field: getattr(event, field) for field in event.__struct_fields__}
    shown: dict[str, Any] = json.loads(msgspec.json.encode(fields))
    return shown


def undescribed(fields: Mapping[str, Any], event_type: type[Event]) -> Event:
    """Return the event that ``described`` described."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(event_type)}
    return event_type(**{name: msgspec.convert(value, kinds[name]) for name, value in fields.items()})


def described_record(packed: bytes) -> dict[str, Any]:
    """Return what a record of one event says beside the event, and its digest; bytes in hex."""
    record = Record(packed)
    ((seq, number, version, time_ns, occurred_ns, cause, actor, flags),) = record.rows()
    ((_, version_before, seq_before, branch),) = record.heads
    return {
        "format": record.format,
        "columns": record.columns,
        "partition": record.partition,
        "key_id": record.key_id,
        "salt": record.salt.hex(),
        "origin": record.origin.hex(),
        "link": record.link.hex(),
        "digest": record.digest().hex(),
        "seq": seq,
        "command": record.commands[0],
        "stream": number,
        "branch": branch,
        "version_before": version_before,
        "seq_before": seq_before,
        "version": version,
        "time_ns": time_ns,
        "occurred_ns": occurred_ns,
        "cause": cause,
        "actor": actor,
        "flags": flags,
    }


def golden_of(event_type: type[Event]) -> dict[str, Any]:
    """Return the golden record of an event as it is written today."""
    plain = record_of(sample(event_type))
    erased = erase_bodies(plain, [0], fold.strip_body, ERASED_SALT)
    record, left = described_record(plain), described_record(erased)
    fields, left_fields = (described(_event_in(packed, event_type)) for packed in (plain, erased))
    return {
        "event": fold.NAMES[event_type],
        "tag": fold.TAGS[event_type],
        "plain": plain.hex(),
        "erased": erased.hex(),
        "expected": {
            "plain": {"record": record, "fields": fields},
            "erased": {"record": _changes(record, left), "fields": _changes(fields, left_fields)},
        },
    }


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in after.items() if before[name] != value}


def expected(golden: Mapping[str, Any], form: str, part: str) -> dict[str, Any]:
    """Return the ``record`` or the ``fields`` as which the ``plain`` or the ``erased`` form must be read."""
    forms = golden["expected"]
    return {**forms["plain"][part], **forms[form][part]}


def _event_in(packed: bytes, event_type: type[Event]) -> Event:
    return msgspec.msgpack.decode(Record(packed).array(0), type=event_type)


def stored(directory: Path = GOLDEN) -> dict[str, list[dict[str, Any]]]:
    """Return the golden records by the name of their event, oldest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(directory.glob("*.json"), key=_place_of):
        golden = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(_place_of(path)[0], []).append(golden)
    return found


def _place_of(path: Path) -> tuple[str, int]:
    name, _, number = path.stem.partition("-")
    return name, int(number or 1)


def lacking(
    directory: Path = GOLDEN, types: Iterable[type[Event]] = tuple(fold.TAGS)
) -> Iterator[tuple[Path, type[Event]]]:
    """Return the events that no golden record describes with all their fields, and where theirs belongs."""
    known = stored(directory)
    for event_type in types:
        name = _snake(event_type)
        versions = known.get(name, [])
        if not versions or list(versions[-1]["expected"]["plain"]["fields"]) != list(event_type.__struct_fields__):
            number = f"-{len(versions) + 1}" if versions else ""
            yield directory / f"{name}{number}.json", event_type


def _snake(event_type: type[Event]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event_type.__name__).lower()


def write(directory: Path = GOLDEN) -> list[Path]:
    """Write the golden records that are lacking and return their paths; one that exists is never opened."""
    written: list[Path] = []
    for path, event_type in lacking(directory):
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(golden_of(event_type), indent=1, ensure_ascii=True) + "\n")
        written.append(path)
    return written


def problems(directory: Path = GOLDEN, types: Mapping[str, type[Any]] | None = None) -> Iterator[str]:
    """Return what is wrong: an event without a record, or a record that is not read or written as it was."""
    kinds = types if types is not None else fold.TYPES_BY_NAME
    for path, _ in lacking(directory, kinds.values()):
        yield f"{path.name} is missing; write it with `python tools/golden.py`"
    for name, versions in stored(directory).items():
        if name not in kinds:
            yield f"{name} has a golden record and no event; a released event is never removed or renamed"
            continue
        for golden in versions:
            yield from _misread(golden, kinds[name])
        yield from _miswritten(versions[-1], kinds[name])


def _misread(golden: dict[str, Any], event_type: type[Event]) -> Iterator[str]:
    name, tag = golden["event"], event_type.__struct_config__.tag
    if golden["tag"] != tag:
        yield f"{name} has tag {tag}, its golden record {golden['tag']}; a released tag never changes"
    for form in ("plain", "erased"):
        packed = bytes.fromhex(golden[form])
        try:
            record = Record(packed)
            found = described_record(packed)
            fields = described(_event_in(packed, event_type))
            columns = list(record.problems())
        except _UNREADABLE as error:
            yield f"{name}, {form}: the record cannot be read ({error})"
            continue
        yield from (f"{name}, {form}: the record makes no sense: {problem}" for problem in columns)
        if found != expected(golden, form, "record"):
            yield f"{name}, {form}: the record is read as {found}"
        if fold.tag_of(record.array(0)) != golden["tag"] or link_after(NO_LINK, record.covered_digest()) != record.link:
            yield f"{name}, {form}: the record is not intact"
        wanted = expected(golden, form, "fields")
        if {field: fields.get(field) for field in wanted} != wanted:
            yield f"{name}, {form}: the event is read as {fields}"


def _miswritten(golden: dict[str, Any], event_type: type[Event]) -> Iterator[str]:
    """Return how the newest record of an event differs from what is written for the event that it describes."""
    try:
        event = undescribed(golden["expected"]["plain"]["fields"], event_type)
        array = Record(bytes.fromhex(golden["plain"])).array(0)
    except (KeyError, TypeError, *_UNREADABLE) as error:
        yield f"{golden['event']}: the described event cannot be made or the record not be read ({error})"
        return
    if msgspec.msgpack.encode(event) != array:
        yield f"{golden['event']}: the described event is written as other bytes"


def main(arguments: list[str]) -> int:
    """Write what is lacking, or with ``--check`` say what is wrong; return the exit code."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    if not arguments:
        for path in write():
            print(f"wrote {path.name}")
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
