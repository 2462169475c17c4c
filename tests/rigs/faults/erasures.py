"""Erasing and backing up while calls fail, and what must hold of both once they do not any more.

An erasure is all there or not at all; once somebody was told that it is done, no file of the store holds a byte of it.
A backup is whole or not there, and no fault of the place where it is made keeps anybody from writing to the store.
"""

from contextlib import closing
from pathlib import Path
from typing import Final

from refold import Memory, StoreError, StoreFull
from refold.results import Receipt
from tests.rigs import judge
from tests.rigs.faults.world import Copied, Erasure, World, append, chat_of, look

STOPPED: Final = "a request_id then tells"
"""What errors say that stop writing."""
NOTHING: Final = "nothing was erased"
ERASED: Final = "the events are erased"
MARKER_CHARS: Final = 16


def write_before(world: World, memory: Memory) -> None:
    """Write what is erased later on: messages of the conversation, and another conversation."""
    for place in range(4):
        text = world.text(f"secret-number-{place}")
        seq = chat_of(memory).append("user", text, tokens=1).seq
        world.told.erasures.append(Erasure([text], [seq]))
    texts = [world.text(f"hidden-number-{place}") for place in range(3)]
    for text in texts:
        memory.conversation("gone", window_tokens=1_000).append("user", text, tokens=1)
    world.told.erasures.append(Erasure(texts, []))


def erasures(world: World, memory: Memory) -> None:
    """Erase messages and a conversation, and write before, between and behind."""
    append(world, memory, "first")
    for number, erasure in enumerate(world.told.erasures[1:], start=1):
        erase(world, memory, erasure)
        look(world, memory)
        append(world, memory, f"behind-{number}")


def backups(world: World, memory: Memory) -> None:
    """Make backups, write between them, and erase before the last one."""
    for number in range(2):
        append(world, memory, f"before-backup-{number}")
        back_up(world, memory, f"backup-{number}")
        look(world, memory)
    erase(world, memory, world.told.erasures[0])
    back_up(world, memory, "backup-2")
    append(world, memory, "last")


def erase(world: World, memory: Memory, erasure: Erasure) -> None:
    """Erase, and note what the caller was told."""
    try:
        receipt = _erase(memory, erasure)
    except StoreError as error:
        world.check_told(error)
        erasure.is_refused = NOTHING in str(error)
        erasure.is_done |= ERASED in str(error)
        if isinstance(error, StoreFull) or STOPPED in str(error):
            world.told.errors.append(f"{type(error).__name__}: {error}")
        elif not (erasure.is_refused or erasure.is_done):
            world.told.findings.append(f"an erasure failed, and does not say what became of it: {error}")
    else:
        erasure.is_done, erasure.is_refused = True, False
        if receipt.occurrences:
            world.told.findings.append(f"a receipt counts {receipt.occurrences} occurrences")


def _erase(memory: Memory, erasure: Erasure) -> Receipt:
    return memory.erase(erasure.seqs) if erasure.seqs else memory.conversation("gone").erase()


def back_up(world: World, memory: Memory, name: str) -> None:
    """Make a backup beside the store, and note what the caller was told."""
    texts, path = list(world.told.acknowledged), _backup_path(world, name)
    try:
        memory.backup(path)
    except StoreError as error:
        world.check_told(error)
        if path.exists() and "stands at" not in str(error):
            world.told.findings.append(f"a backup failed, and something is there: {error}")
    else:
        world.told.backups.append(Copied(name, texts))


def _backup_path(world: World, name: str) -> Path:
    return world.path.parent.parent / "backups" / name


def go_on(world: World, memory: Memory) -> None:
    """Erase what could not be erased for want of space, now that there is space again."""
    for erasure in world.told.erasures:
        if not erasure.is_done:
            erase(world, memory, erasure)
            if not erasure.is_done:
                world.told.findings.append("there is space again, and erasing does not go on")


def half_done(memory: Memory, world: World) -> list[str]:
    """Return what is wrong with the erasures as they were left."""
    found = _all_texts(memory)
    findings = []
    for erasure in world.told.erasures:
        there = [text for text in erasure.texts if text in found]
        if erasure.is_refused and not there:
            findings.append(f"{erasure.texts[0][:20]} is erased, and somebody was told that it is not")
        if there and (erasure.is_done or len(there) < len(erasure.texts)):
            findings.append(
                f"{there[0][:20]} and {len(there) - 1} more of {len(erasure.texts)} are there and were erased"
            )
    return findings


def _all_texts(memory: Memory) -> list[str]:
    gone = memory.conversation("gone").window() if "gone" in memory.conversations() else []
    return [str(message.content) for message in [*chat_of(memory).window(), *gone]]


def left_over(world: World) -> list[str]:
    """Return what files of the store still hold of what is erased; it was opened since, and is closed."""
    erased = [text for erasure in world.told.erasures if erasure.is_done for text in erasure.texts]
    return list(judge.remains(world.path, ((f"what {text[:12]}", text[:MARKER_CHARS].encode()) for text in erased)))


def erase_again(world: World, memory: Memory) -> list[str]:
    """Erase all that was asked for; nothing fails any more."""
    for erasure in world.told.erasures:
        receipt = _erase(memory, erasure)
        if receipt.occurrences:
            return [f"asked for again, a receipt counts {receipt.occurrences} occurrences"]
        erasure.is_done, erasure.is_refused = True, False
    return half_done(memory, world)


def judge_backups(world: World) -> list[str]:
    """Return what is wrong with the backups: each is whole, and holds what was acknowledged before it."""
    place = _backup_path(world, "")
    told = {copied.name: copied.texts for copied in world.told.backups}
    findings = [f"{name} was acknowledged and is not there" for name in told if not (place / name).is_dir()]
    for path in place.glob("[!.]*"):
        with closing(Memory(path, readonly=True)) as memory:
            found = [str(message.content) for message in chat_of(memory).window()]
            findings += [f"{path.name} lacks {text[:12]}" for text in told.get(path.name, ()) if text not in found]
            findings += [f"{path.name}: {finding}" for finding in judge.unsound(memory)]
    return findings


def back_up_again(world: World, memory: Memory) -> list[str]:
    """Make one more backup where one failed; what it left is cleared away."""
    place = _backup_path(world, "")
    path = place / "backup-1"
    if path.exists():
        return []
    memory.backup(path)
    return [f"{left.name} is left" for left in place.glob(".backup-1*")]
