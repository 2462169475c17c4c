"""Calls that an interrupt breaks, whatever the engine does: what is wrong with them has to be found."""

import threading
from typing import Any, Final

from tests.support.worlds import Verb, World


def _careless_batch(memory: Any, _: World) -> None:
    batch = memory.batch()
    batch.__enter__()
    memory.profile().set("in", "a batch")
    batch.__exit__(KeyError, None, None)


def _second_attempt(memory: Any, _: World) -> None:
    chat = memory.conversation("c")
    try:
        chat.append("user", "once")
    except KeyboardInterrupt:
        chat.append("user", "once")
        raise


def _subscribe_to_gate(world: World) -> None:
    gate = world.things["gate"] = threading.Lock()

    def wait(_: object) -> None:
        with gate:
            pass

    world.memory.subscribe(wait)


def _closed_gate(memory: Any, world: World) -> None:
    world.things["gate"].acquire()
    memory.conversation("c").append("user", "waited for")
    world.things["gate"].release()


BROKEN: Final = {
    "careless batch": Verb(_careless_batch),
    "second attempt": Verb(_second_attempt),
    "closed gate": Verb(_closed_gate, prepare=_subscribe_to_gate),
}
