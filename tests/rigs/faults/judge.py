"""A case from its first call to the verdict: what must hold while calls fail, and once they do not any more."""

import shutil
from collections.abc import Callable
from pathlib import Path

from refold import Memory, StoreError
from tests.rigs import judge
from tests.rigs.faults import erasures
from tests.rigs.faults.cases import Case, Faults
from tests.rigs.faults.workloads import WORKLOADS
from tests.rigs.faults.world import BEFORE_COUNT, Told, World, chat_of


def count_calls(workload: str, seed: int, path: Path) -> int:
    """Return how many calls a workload makes when none of them fails."""
    faults, world = Faults(), _world(workload, seed, path, Told())
    _run(world, workload, faults, faults.watch)
    assert world.told.errors == world.told.findings == [], world.told
    seen = faults.seen
    faults.disarm()
    shutil.rmtree(path.parent.parent)
    return seen


def suffer(case: Case, path: Path) -> Told:
    """Do what the case says, and return what callers were told; its store is closed, or left as it is."""
    faults, told = Faults(), Told()
    world = _world(case.workload, case.seed, path, told)
    memory = _run(world, case.workload, faults, lambda: faults.arm(case))
    if memory is None:
        return told
    _look_stopped(world, memory, has_failed=bool(faults.met))
    faults.disarm()
    _go_on(world, case.workload, memory)
    if not case.abandons or world.options:  # Who delays has promised nothing to a process that ends.
        _close(world, memory)
    return told


def judged(case: Case, path: Path, told: Told) -> list[str]:
    """Return what is wrong with the store once no call fails any more."""
    world = _world(case.workload, case.seed, path, told)
    with world.open() as memory:
        findings = _missing(memory, told) + judge.unsound(memory) + erasures.half_done(memory, world)
    findings += erasures.left_over(world)
    with world.open() as memory:
        repeated = [
            text for text in told.acknowledged + told.unknown if not any(text in group for group in told.groups)
        ]
        for text in repeated:
            chat_of(memory).append("user", text, tokens=1, request_id=text.split(maxsplit=1)[0])
        found = [str(message.content) for message in chat_of(memory).window()]
        findings += [
            f"asked for again, {text[:12]} is there {found.count(text)} times"
            for text in repeated
            if found.count(text) != 1
        ]
        findings += erasures.erase_again(world, memory) + erasures.back_up_again(world, memory) + judge.unsound(memory)
    return findings + erasures.left_over(world) + erasures.judge_backups(world)


def _world(workload: str, seed: int, path: Path, told: Told) -> World:
    return World(path, seed, WORKLOADS[workload].options, told)


def _run(world: World, workload: str, faults: Faults, arm: Callable[[], None]) -> Memory | None:
    """Write what is there before, let calls fail, and do the work; ``None`` where the store could not be opened."""
    row = WORKLOADS[workload]
    world.path.parent.mkdir(parents=True)
    (world.path.parent.parent / "backups").mkdir()
    if not row.is_there:
        arm()
    opened: list[Memory] = []
    world.tried([], lambda: opened.append(world.open()))
    if not opened:
        _check_creation(world, faults.removals)
        faults.disarm()
        return None
    memory = opened[0]
    if row.is_there:
        for place in range(BEFORE_COUNT):
            text = world.text(f"before-{place}")
            chat_of(memory).append("user", text, tokens=1, request_id=f"before-{place}")
            world.told.acknowledged.append(text)
        if row.before is not None:
            row.before(world, memory)
        memory.flush()
        arm()
    row.work(world, memory)
    return memory


def _check_creation(world: World, removals: int) -> None:
    """A store that could not be made has left nothing, or is there whole; what could not be removed has no name."""
    left = sorted(entry.name for entry in world.path.parent.iterdir() if not (removals and entry.name.startswith(".")))
    if left not in ([], [world.path.name]):
        world.told.findings.append(f"creating failed and left {left}")


def _look_stopped(world: World, memory: Memory, *, has_failed: bool) -> None:
    """After an I/O error that somebody was told of, nobody writes."""
    stopped = [error for error in world.told.errors if error.startswith("StoreError")]
    if not stopped or world.path is None:
        return
    assert has_failed, world.told
    try:
        chat_of(memory).append("user", world.text("stopped"), tokens=1, request_id="stopped")
    except StoreError as error:
        if "request_id" not in str(error):
            world.told.findings.append(f"an error that does not say how to find out: {error}")
    else:
        world.told.findings.append("writing went on after an I/O error")
    world.told.unknown.append(world.text("stopped"))


def _go_on(world: World, workload: str, memory: Memory) -> None:
    """Where there was only no space, and there is again, writing goes on without a restart."""
    if any(not error.startswith("StoreFull") for error in world.told.errors):
        return
    text = world.text("space")
    try:
        chat_of(memory).append("user", text, tokens=1, request_id="space")
    except StoreError as error:
        world.told.findings.append(f"there is space again, and writing does not go on: {error}")
    else:
        world.told.acknowledged.append(text)
        if world.told.erasures and WORKLOADS[workload].work is erasures.erasures:
            erasures.go_on(world, memory)


def _close(world: World, memory: Memory) -> None:
    """Close, which succeeds now that nothing fails any more."""
    try:
        memory.close()
    except StoreError as error:
        world.told.findings.append(f"nothing fails any more, and closing does: {error}")


def _missing(memory: Memory, told: Told) -> list[str]:
    """Compare what is there with what was told: all of it, in order; nothing else; groups whole."""
    found = [str(message.content) for message in chat_of(memory).window() if not message.erased]
    findings = [
        f"{text[:12]} was acknowledged and is there {found.count(text)} times"
        for text in told.acknowledged
        if found.count(text) != 1
    ]
    strangers = set(found) - set(told.acknowledged) - set(told.unknown)
    strangers -= {text for erasure in told.erasures for text in erasure.texts}
    findings += [f"{text[:12]} is there and nobody wrote it" for text in strangers]
    findings += ["half of a batch is there" for group in told.groups if 0 < len(set(group) & set(found)) < len(group)]
    return findings
