"""Residents: which streams stay in RAM, within a bound in bytes.

A stream in RAM weighs what was read or written to get it there: an estimate, kept as a running sum in ``Streams``. Over
the bound, the streams that were not touched lately leave at their checkpoint; they come back from rows and tail when
somebody asks. Which ones are in RAM changes no answer.
"""

from refold.engine.keeper import Keeper
from refold.engine.kept import Kept
from refold.engine.slots import Slot
from refold.engine.streams import Streams
from refold.limits import LOADED_PARTS_COUNT, RELIEVED_COUNT
from refold.store.protocol import Log


class Residents:
    """The hand that goes round the streams in RAM and lets those leave that nobody has touched since it last passed.

    A second chance instead of a list by last use: a touch costs one attribute and no lock.
    """

    def __init__(self, log: Log, streams: Streams, keeper: Keeper, kept: Kept, bytes_max: int) -> None:
        self._log = log
        self._relieved = 0
        """How often streams had come or left when the log was last asked to let go of what it has read."""
        self._streams = streams
        self._keeper = keeper
        self._kept = kept
        self._bytes_max = bytes_max

    @property
    def is_over(self) -> bool:
        """Whether streams should leave: what the vectors of memories take is not there for them, but for a part."""
        room_bytes = max(self._bytes_max - self._kept.nbytes, self._bytes_max // LOADED_PARTS_COUNT)
        return self._streams.bytes > room_bytes

    def trim(self, count: int) -> None:
        """Let up to ``count`` streams leave; never while a commit is under way, which may be writing to one of them."""
        queue = self._streams.queue
        passes = 2 * len(queue)
        while self.is_over and count and passes:
            slot = queue.popleft()
            passes -= 1
            if slot.is_used:
                slot.is_used = False
                queue.append(slot)
            elif self._leaves(slot):
                count -= 1
            elif self._keeper.is_packing(slot):
                queue.appendleft(slot)
                return  # It is large, and leaves soon: nobody else has to.
            else:
                queue.append(slot)

    def relieve(self) -> None:
        """Let the log let go of what it has read, now and then: pages that were mapped count as this process's."""
        if self._streams.traffic - self._relieved >= RELIEVED_COUNT:
            self._relieved = self._streams.traffic
            self._log.relieve()

    def _leaves(self, slot: Slot) -> bool:
        """Let a stream leave if a row covers its last event, or can be made to."""
        if slot.number in self._streams.dirty:
            if slot.state is None:
                return False
            if not self._keeper.settles(slot):
                return False
        self._streams.forget(slot)
        return True
