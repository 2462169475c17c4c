"""A memory's constructor: what it was given, checked; the store opened; the door to it."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from refold import checks
from refold.engine.opening import open_engine
from refold.memory import arguments
from refold.memory.door import Door
from refold.memory.moments import zone
from refold.text import ByteClassCounter, TokenCounter

if TYPE_CHECKING:
    from refold.embedders import Embedder


def opened(
    path: "str | os.PathLike[str] | None",
    *,
    durability: str,
    window_tokens: int,
    memory_bytes: int,
    embedder: "Embedder | None",
    token_counter: TokenCounter | None,
    timezone: str,
    clears: bool,
    readonly: bool,
    witness: "str | os.PathLike[str] | None",
    doors: tuple[Callable[[], int], Callable[[int], bytes]],
) -> Door:
    """Return the door to a store, which is created where there is none; everything is checked before it is touched."""
    clock_ns, random_bytes = doors
    checks.window_tokens(window_tokens)
    zone(timezone)
    counter = ByteClassCounter() if token_counter is None else arguments.checked_counter(token_counter)
    checked = arguments.checked_place(path, readonly=readonly, clears=clears)
    chosen = arguments.checked_embedder(embedder)
    arguments.check_doors(clock_ns=clock_ns, random_bytes=random_bytes)
    engine = open_engine(
        checked,
        readonly=checks.flag(readonly, "readonly"),
        clock_ns=clock_ns,
        random_bytes=random_bytes,
        memory_bytes=arguments.checked_bytes(memory_bytes),
        delayed=arguments.is_delayed(durability, readonly=readonly),
        witness=arguments.checked_witness(witness, checked),
    )
    try:
        return Door(
            engine, counter=counter, timezone=timezone, window_tokens=window_tokens, path=checked, embedder=chosen
        )
    except BaseException:
        engine.close()
        raise
