"""refold's own JSONL: an export, which loads into an empty store with every stamp as it was."""

import re
from typing import Final

from refold import Memory
from refold.message import MessageAppended

_HEAD: Final = re.compile(rb'\s*\{\s*"refold"\s*:\s*\d')


class RefoldRecorder:
    """Recognises an export; ``Memory.load`` reads it, since it holds events, not only messages."""

    name = "refold"

    def recognises(self, head: bytes) -> bool:
        """Return whether the bytes begin with the head of an export."""
        return _HEAD.match(head) is not None

    def messages(self, memory: Memory) -> int:
        """Return how many messages a loaded memory holds in its log."""
        return sum(isinstance(event, MessageAppended) for event, _ in memory.events())


REFOLD: Final = RefoldRecorder()
