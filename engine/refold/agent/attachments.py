"""Data that hooks attach to a user's message: metadata of the message, never its words."""

from collections.abc import Sequence
from math import isfinite
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Struct

from refold import checks
from refold.message import INJECTED_KEY, Message

NamedSkill: TypeAlias = tuple[str, str, float]


class Attachment(Struct, frozen=True, omit_defaults=True):
    """Text, skills and memories for the answer to one message; skills are name, text and score, memories are ids."""

    text: str = ""
    skills: tuple[NamedSkill, ...] = ()
    memories: tuple[str, ...] = ()


def attachment_in(messages: Sequence[Message]) -> Attachment:
    """Return the data attached to the newest user message; empty if there is none or another program wrote it."""
    newest = next((message for message in reversed(messages) if message.role == "user"), None)
    metadata = None if newest is None else newest.metadata
    try:
        return msgspec.convert((metadata or {}).get(INJECTED_KEY, {}), Attachment)
    except msgspec.ValidationError:
        return Attachment()


def merge_skills(skills: Sequence[object], attachment: Attachment) -> list[NamedSkill]:
    """List the skills to show, best first, each name once: the caller's take precedence over the message's."""
    named: dict[str, NamedSkill] = {}
    for skill in (*map(_parse_skill, skills), *attachment.skills):
        named.setdefault(skill[0], skill)
    # Whatever their order, the best skill is the last to be trimmed.
    return sorted(named.values(), key=lambda skill: -skill[2])


def _parse_skill(skill: object) -> NamedSkill:
    """Return the name, text and score of a skill: a match, or texts without a score, which rank first."""
    whole = skill
    if isinstance(skill, (tuple, list)):
        items = cast("Sequence[Any]", skill)
        name, body, score = (*items, float("1e9"))[:3] if len(items) in (2, 3) else (None, None, None)
    else:
        owner: object = getattr(skill, "skill", skill)
        name, body, score = (getattr(owner, "name", None), getattr(skill, "body", None), getattr(skill, "score", None))
    if name is None or not isinstance(score, (int, float)) or not isfinite(score):
        shape = "a (name, text), a (name, text, score), or has a name, a body and a score"
        checks.invalid(f"a skill is {shape}, unlike {checks.brief(whole)}")
    return checks.text(name, "a skill's name"), checks.text(body, "a skill's text"), float(score)
