"""What was erased is not confirmed by whoever guesses it: short bodies, long lists, every file from then on."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from refold import InvalidInput, Memory, fold, recover
from refold.engine.reader import HASH_KEY, VERB_BYTES
from refold.engine.transaction import Mutation
from refold.engine.writer import Ticket
from refold.event import pack_json
from refold.log.record import NO_LINK, erase_bodies, keyed_hash
from refold.message import MessageAppended
from refold.views.profile import ProfileSet
from tests.rigs.breaks import BUILDS
from tests.rigs.dictionary import Secret, Taken, confirmed, is_what_it_was, taken
from tests.support.rows import Rows
from tests.support.seams import engine_of

SEEN_IN = {"kept_salts"}

PIN, TEXT, OTHER_PIN = "4821", "gate 00777", "0093"
SECRETS = (PIN, TEXT, OTHER_PIN)


def texts() -> Iterator[str]:
    return (f"gate {number:05}" for number in range(100_000))


def pins() -> Iterator[str]:
    return (f"{number:04}" for number in range(10_000))


class World:
    """A store with three secrets in one record, of which one after the other is erased, and what is taken of it."""

    def __init__(self, store: Path) -> None:
        self.files: list[Taken] = []
        """The store before any erasure, after the first, the second, the third, and later."""
        with Memory(store) as memory:
            chat = memory.conversation("chat")
            chat.append("user", "hello", tokens=1)
            with memory.batch():
                for text in ("one", PIN, "two", TEXT, "three", OTHER_PIN, "four"):
                    chat.append("user", text, tokens=2)
            seqs = {message.content: message.seq for message in chat.window()}
        self.files.append(taken(store))
        for text in SECRETS:
            with Memory(store) as memory:
                memory.erase([seqs[text]])
            self.files.append(taken(store))
        with Memory(store) as memory:
            memory.conversation("chat").append("user", "and life goes on", tokens=2)
            memory.erase([seqs["hello"]])
            assert memory.verify().ok
        self.files.append(taken(store))
        records = self.files[0].records
        place = next(place for place, record in enumerate(records) if record.last_seq >= seqs[PIN])
        self.secret = Secret(
            records[place],
            records[place - 1].link if place else NO_LINK,
            [seqs[text] - records[place].first_seq for text in SECRETS],
        )
        assert records[place].count > 6

    def candidates(self, step: int, guesses: Iterator[str]) -> dict[str, bytes]:
        """The arrays of the body that was erased in a step, if it said what is guessed."""
        array = self.secret.before.array(self.secret.erased[step])
        event = fold.decode(array)
        assert isinstance(event, MessageAppended)
        assert event.text == SECRETS[step]
        return {guess: fold.encode(msgspec.structs.replace(event, text=guess)) for guess in guesses}

    def confirmed(self, step: int, guesses: Iterator[str], files: Sequence[Taken]) -> list[str]:
        """What an adversary confirms of the body that was erased in a step."""
        return confirmed(self.secret, self.secret.erased[step], self.candidates(step, guesses), files)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("dictionary") / "store")


GUESSES: Sequence[Callable[[], Iterator[str]]] = (pins, texts, pins)


@pytest.mark.parametrize("step", range(len(SECRETS)))
def test_no_candidate_is_confirmed_by_the_files_from_the_erasure_on(world: World, step: int) -> None:
    assert is_what_it_was(world.secret)
    assert SECRETS[step] in list(GUESSES[step]())
    assert world.confirmed(step, GUESSES[step](), world.files[step + 1 :]) == []


@pytest.mark.parametrize("step", range(len(SECRETS)))
def test_whoever_has_a_file_from_before_is_not_asked_to_guess(world: World, step: int) -> None:
    """The adversary finds what is there to be found."""
    assert world.confirmed(step, iter([*SECRETS, "0000"]), world.files[step:]) == [SECRETS[step]]


def test_no_salt_from_before_an_erasure_is_in_a_file_from_then_on(world: World) -> None:
    """Of the record that was erased from; the salts of the others stay with what they are of."""
    last = world.secret.before.last_seq
    salts = [each.record(last).salt for each in world.files]
    assert len(set(salts)) == 1 + len(SECRETS)
    for before, salt in enumerate(salts[: len(SECRETS)]):
        assert not any(salt in window for each in world.files[before + 1 :] for window in each.windows)


@pytest.mark.parametrize("build", SEEN_IN)
def test_a_broken_build_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: str) -> None:
    monkeypatch.setattr("refold.engine.erasure.erase_bodies", erase_bodies)  # Which puts it back.
    BUILDS[build]()
    world = World(tmp_path / "store")
    for step, text in enumerate(SECRETS):
        guesses = islice(GUESSES[step](), 100)
        assert world.confirmed(step, iter({*guesses, text}), world.files[step + 1 :]) == [text]


def request_hashes(store: Path) -> dict[str, bytes]:
    """What a store keeps of a request to set each PIN, by whoever has its file, which holds the key."""
    rows = Rows(store)
    key = rows.get("meta", HASH_KEY)
    rows.close()
    asked = {pin: pack_json(["profile/default", "set", "pin", pin]) for pin in pins()}
    return {pin: keyed_hash(key, b"call" + packed)[VERB_BYTES:] for pin, packed in asked.items()}


@pytest.mark.parametrize("changes", [True, False])
def test_a_request_says_nothing_of_what_was_erased(tmp_path: Path, *, changes: bool) -> None:
    """Whether it made the event that was erased, or found it there and changed nothing."""
    store = tmp_path / "store"
    with Memory(store) as memory:
        profile = memory.profile()
        if not changes:
            profile.set("pin", PIN)
        profile.set("pin", PIN, request_id="asked")
        profile.set("other", PIN, request_id="other")
    hashes = request_hashes(store)
    requests = found_in(store)
    assert [pin for pin, hashed in hashes.items() if hashed in requests] == [PIN]
    with Memory(store) as memory:
        memory.erase([1])
        assert memory.profile().get("pin") is None
        memory.profile().set("pin", PIN, request_id="asked")
        assert memory.profile().get("pin") is None, "the request was answered, and is not made again"
        with pytest.raises(InvalidInput, match="used for another request"):
            memory.profile().set("other", OTHER_PIN, request_id="other")
    requests = found_in(store)
    assert [pin for pin, hashed in hashes.items() if hashed in requests] == []


def found_in(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in store.iterdir())


def test_a_copy_that_ends_within_a_record_confirms_nothing_of_what_came_behind(tmp_path: Path) -> None:
    """Two callers share a record; a store is recovered that ends with the first; then what the other said is erased."""
    store, recovered = tmp_path / "store", tmp_path / "recovered"
    with Memory(store) as memory:
        engine = engine_of(memory)
        mutations = list[Mutation]()
        memory.profile().set("theme", "dark")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine.writer, "submit", mutations.append)
            for name, value in (("first", "kept"), ("second", PIN)):
                memory.profile(name).set("key", value)
        engine.writer.write(list(map(Ticket, mutations)))
        assert memory.head == 3
    before = taken(store).records
    assert [record.count for record in before] == [1, 2]
    recover(store, recovered, to=2)
    with Memory(store) as memory:
        memory.erase([3])
    secret = Secret(before[1], before[0].link, [1])
    event = fold.decode(secret.before.array(1))
    assert isinstance(event, ProfileSet)
    guesses = {pin: fold.encode(msgspec.structs.replace(event, value=pin)) for pin in pins()}
    assert guesses[PIN] == secret.before.array(1)
    assert confirmed(secret, 1, guesses, [taken(recovered), taken(store)]) == []
