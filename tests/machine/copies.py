"""What the state machine does with a whole store: back it up, recover the end of some command, show what is in it."""

import shutil

from refold import Memory, recover
from refold.engine.reader import end_of_command
from tests.machine.memory_rules import WholeRules
from tests.mirror.files import days, held, rendered
from tests.support.seams import log_of


def carry_away(machine: WholeRules, place: int) -> None:
    """Back the store up, recover a state of then from the backup, and compare both with what the machine knows."""
    backup, new = machine.root / "backup", machine.root / "recovered"
    made = machine.memory.backup(backup)
    assert (made.head, made.state_hash) == (machine.model.head, machine.store.state_hash())
    with machine.opened(backup, readonly=True) as copy:
        hashes = {branch: machine.branch_of(copy, branch).state_hash() for branch in machine.branches()}
        assert hashes == {
            branch: machine.branch_of(machine.store, branch).state_hash() for branch in machine.branches()
        }
    seq = place % (machine.model.head + 1)
    seq = end_of_command(log_of(machine.store), seq) if seq else 0
    assert recover(backup, new, to=seq, clock_ns=machine.clock).state_hash == machine.store.state_hash(at=seq)
    with machine.opened(new) as again:
        assert again.replay_hash() == again.state_hash()
        for (branch, at), hashed in machine.hashes.items():
            if at <= seq and branch <= len(again.forks()):
                assert machine.branch_of(again, branch).state_hash(at=at) == hashed
    shutil.rmtree(backup)
    shutil.rmtree(new)


def show_files(machine: WholeRules, memory: Memory) -> None:
    """Mirror a memory in files, which hold its profile and its notes, and change neither."""
    directory, before = machine.root / "mirror", memory.state_hash()
    with memory.mirror(directory) as mirror:
        assert (mirror.report.ok, mirror.report.edits) == (True, ())
    assert held(directory) == rendered(
        memory, [f"{path.stem[:4]}-{path.stem[4:6]}-{path.stem[6:]}" for path in days(directory)]
    )
    assert memory.state_hash() == before
    shutil.rmtree(directory)


def show_contexts(memory: Memory) -> None:
    """Show a context of each conversation of a copy, and build every one again after all of them were shown."""
    assert repr(memory.hooks) == "Hooks()"
    seqs: list[int] = []
    for name in memory.conversations():
        chat = memory.conversation(name)
        chat.session.note_finding("a finding")
        seqs.append(memory.show(memory.context(chat, query="tea")))
    assert all(memory.rebuild(seq).matches for seq in seqs)
    assert memory.state_hash() == memory.replay_hash()
