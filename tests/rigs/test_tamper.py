"""The tamper suite of agent-memory-integrity against refold: what each edit leads to, with a witness and without."""

from pathlib import Path

import pytest
from agmi import check
from agmi.attacks.at_rest import AT_REST_ATTACKS_WITH_SNAPSHOT

from refold import Memory
from tests.rigs import tamper
from tests.rigs.tamper import Careless, Store

EDITS = ("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9")
LETTERS = {"REJECTED": "r", "REPORTED": "v", "ACCEPTED": "-"}

TABLE = {
    # r: opening or reading refuses. v: verify finds it. -: nothing sees it.  T1 ... T9
    "Careless": "vrrvvvvvr",
    "Tidy": "vrrvvvvvr",
    "Erasing": "vrrvvvvvr",
    "Relinking": "rrrr-rrrr",
    "CarelessAlone": "vrrvvvvv-",
    "TidyAlone": "v-rvvvvv-",
    "RelinkingAlone": "------v--",
    "CarelessTogether": "vrrvvvvvr",
    "TidyTogether": "vrrvvvvvr",
    "ErasingTogether": "-rr-v-v-r",
    "RelinkingTogether": "rrrr-rrrr",
    "CarelessAloneTogether": "vrrvvvvv-",
    "TidyAloneTogether": "vvrvvvvv-",
    "RelinkingAloneTogether": "------v--",
}
"""What becomes of each edit, by attacker; FORMAT.md has the same table in words.

Nothing shows an edit next to an event that is given up: what else was in its record is as whoever appends says it is.
"""


def attacker(name: str) -> Careless:
    """An attacker by its name in the table: against a store without a witness, or messages that share a record."""
    kind = getattr(tamper, name.removesuffix("Together").removesuffix("Alone"))
    made: Careless = kind()
    made.has_witness, made.is_together = "Alone" not in name, name.endswith("Together")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", [name for name in TABLE if name != "Careless"])
def test_every_edit_of_an_attacker_leads_to_what_the_table_says(name: str, jobs: int) -> None:
    adapter = attacker(name)
    adapter.jobs = jobs
    rows = check.run(adapter)
    assert tuple(row["edit"][:2] for row in rows) == EDITS
    assert "".join(LETTERS.get(row["verdict"], "?") for row in rows) == TABLE[name], rows


def test_with_a_witness_the_suite_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--adapter", "tests.rigs.tamper:Careless"]) == 0, capsys.readouterr().out
    shown = [line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()[2:]]
    assert tuple(edit[:2] for edit, _ in shown) == EDITS
    assert "".join(LETTERS.get(verdict, "?") for _, verdict in shown) == TABLE["Careless"]


def test_the_suite_goes_red_on_a_build_that_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the comparison with the witness, the edit that only a witness shows is accepted."""
    monkeypatch.setattr("refold.engine.witness._problem", lambda *_: None)
    attack = next(kind for kind in AT_REST_ATTACKS_WITH_SNAPSHOT if kind.name == "snapshot_rollback")
    adapter = Careless()
    assert check.verdict(attack().run(adapter), adapter) == "ACCEPTED"


def test_an_attacker_who_changes_nothing_is_not_seen() -> None:
    """What the attackers cover up with is itself sound: it is the edit that is found, and not the covering up."""
    for name in ("Tidy", "Erasing", "Relinking", "RelinkingTogether"):
        adapter = attacker(name)
        adapter.setup()
        adapter.seed(4)
        adapter.seed_other(2)
        with Store(adapter._store) as store:
            before = store.log()
            adapter.cover_up(store)
            assert store.log() == before
        adapter.reload()
        assert adapter.verify(), adapter.verify_detail
        adapter.teardown()


def test_records_are_put_together_as_refold_does(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation("a").append("user", "hello", tokens=1)
        with memory.batch():
            for number in range(200):
                memory.conversation("ab"[number % 2]).append("user", f"hello {number}", tokens=1)
        memory.conversation("a").append("user", "of an earlier day", tokens=1, occurred=1)
    with Store(tmp_path / "store") as store:
        log, blocks = store.log(), store.blocks()
        assert {block.last_seq: block.packed for block in blocks} == log
        assert tamper.untouched(blocks) == len(blocks)
        assert {block.last_seq: block.packed for block in tamper.relinked(blocks, 2)} == dict(list(log.items())[2:])


def test_an_event_marked_as_erased_has_no_body() -> None:
    """Who marks what he edits as erased, and says so in an event that fits, has to give the body up."""
    attack = next(kind for kind in AT_REST_ATTACKS_WITH_SNAPSHOT if kind.name == "tamper")
    adapter = tamper.Erasing()
    assert check.verdict(attack().run(adapter), adapter) == "REPORTED"
    assert adapter.verify_detail == "erasure at 4"


def test_what_an_erasure_left_is_not_edited_unseen() -> None:
    """The chain covers what was there before; what is left is held against what the erasure says of it."""
    adapter = attacker("CarelessTogether")
    adapter.setup()
    adapter.seed(4)
    with Memory(adapter._store, witness=adapter._witness) as memory:
        memory.erase([3])
        assert memory.verify().ok
    adapter.write_raw(adapter.mutate_payload(adapter.read_all_raw()[0]))
    adapter.reload()
    assert not adapter.verify()
    assert adapter.verify_detail == "erasure at 5"
    adapter.teardown()
