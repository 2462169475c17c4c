"""The memory that importers fill."""

from collections.abc import Iterator

import pytest

from refold import Memory
from tests.support.memories import assert_sound


@pytest.fixture
def memory() -> Iterator[Memory]:
    """An empty memory in RAM, whose replay gives the live state in the end."""
    with Memory() as opened:
        yield opened
        assert_sound(opened)
