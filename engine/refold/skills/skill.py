"""A skill: its fields, its source, when it applies, the diagnostics of its file, and the words of its texts."""

import re
from typing import Any, Final

from msgspec import Struct

from refold.event import unpack_json

_TOKEN: Final = re.compile(r"[a-z0-9]+|[^\W_]")
_SPACED: Final = bytes(byte if chr(byte).isascii() and chr(byte).isalnum() else 32 for byte in range(256))


def tokens(text: str) -> list[str]:
    """Cut a text into words for the formula of the seeds: runs of ASCII, and every other letter by itself.

    >>> tokens("Use React-18, bitte: \u00fc")
    ['use', 'react', '18', 'bitte', '\u00fc']
    """
    return _TOKEN.findall(text.lower())


def token_set(text: str) -> frozenset[bytes]:
    r"""Collect the different words of a text, as `tokens` cuts it, in UTF-8: an order of magnitude quicker.

    >>> sorted(token_set("Use React, use \u00fc"))
    [b'react', b'use', b'\xc3\xbc']
    """
    lowered = text.lower()
    found = frozenset(lowered.encode("ascii", "replace").translate(_SPACED).split())
    if lowered.isascii():
        return found
    return found | {character.encode() for character in set(lowered) if character > "\x7f" and _TOKEN.match(character)}


SOURCES: Final = ("builtin", "external", "user", "project", "generated")
"""The sources of skills, in the order of their priorities; generated ones live in the log."""

PHASES: Final = ("planning", "implementation", "retry")
"""When a skill may be put before a model."""

ALWAYS: Final = "always"
"""All phases."""

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"


class Diagnostic(Struct, frozen=True, order=True):
    """One problem of a skill file: the file, the line (0: the whole file), its severity, and the reason.

    An `error` keeps the file from being loaded, a `warning` is a departure that was skipped, a `note` is for readers.
    """

    path: str
    line: int
    severity: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.reason}"


class HookAction(Struct, frozen=True):
    """A command of a hook of a skill file. It is data: refold never runs it."""

    type: str
    command: str


class HookRule(Struct, frozen=True):
    """The hooks for the tools whose names a pattern matches."""

    matcher: str
    hooks: tuple[HookAction, ...]


class SkillHooks(Struct, frozen=True):
    """The hooks of a skill file, by their moments."""

    pre_tool_use: tuple[HookRule, ...] = ()
    post_tool_use: tuple[HookRule, ...] = ()
    stop: tuple[HookAction, ...] = ()


class Detection(Struct, frozen=True):
    """When a skill applies to a project: one of the files exists and has one of the patterns, if there are any."""

    files: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class Skill(Struct, frozen=True, kw_only=True):
    """A skill: the content of its file, its source, and its priority.

    `id` is the normalized name with the first 12 digits of the SHA-256 of its content. `allowed_tools`, if there are
    any, are the only tools that may be used along with it. `front` is the whole frontmatter, packed.
    """

    id: str
    name: str
    description: str
    body: str
    path: str
    hash: str
    version: str | None = None
    tags: tuple[str, ...] = ()
    user_invocable: bool = False
    model_invocable: bool = True
    allowed_tools: tuple[str, ...] = ()
    license: str | None = None
    compatibility: str | None = None
    hooks: SkillHooks | None = None
    front: bytes = b"\x80"
    is_convention: bool = False
    modified_ns: int | None = None
    source: str = "project"
    source_name: str = ""
    priority: int = 0
    detect: Detection | None = None
    inject_into: tuple[str, ...] = (ALWAYS,)
    enabled: bool = True

    @property
    def metadata(self) -> dict[str, Any]:
        """Its `metadata`, and every key of its frontmatter that has no meaning here, fresh at each access."""
        front: dict[str, Any] = unpack_json(self.front)
        declared = front.pop("metadata", None)
        unknown = {key: value for key, value in front.items() if key not in KNOWN_KEYS}
        return unknown | declared if isinstance(declared, dict) else unknown

    @property
    def source_label(self) -> str:
        """The name of its source with the kind, or the kind alone."""
        return f"{self.source_name} ({self.source})" if self.source_name else self.source


KNOWN_KEYS: Final = frozenset(
    (
        *("name", "description", "version", "tags", "license", "compatibility", "metadata", "hooks"),
        *("allowed-tools", "user-invocable", "disable-model-invocation"),
    )
)
"""The keys of a frontmatter that mean something here; every other one is part of `Skill.metadata`."""


class SkillSummary(Struct, frozen=True, kw_only=True):
    """A skill without its body, for listings."""

    id: str
    name: str
    description: str
    version: str | None
    tags: tuple[str, ...]
    source: str
    source_name: str
    priority: int
    enabled: bool
    detected: bool
    user_invocable: bool
    model_invocable: bool
    has_hooks: bool
    inject_into: tuple[str, ...]
    path: str


def summary_of(skill: Skill, *, detected: bool = False) -> SkillSummary:
    """Summarize a skill without its body."""
    computed: dict[str, Any] = {"detected": detected, "has_hooks": skill.hooks is not None}
    fields = {field: getattr(skill, field) for field in SkillSummary.__struct_fields__ if field not in computed}
    return SkillSummary(**fields, **computed)
