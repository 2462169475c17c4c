"""Edits of skill files: values are changed in place, and all other text stays as it is. Pure."""

from typing import Any, Final

import yaml
from msgspec.structs import replace

from refold.errors import InvalidInput
from refold.skills.format import (
    BlockError,
    Skill,
    check_size,
    mend,
    parse_skill,
    quote,
    read_frontmatter,
    render_skill,
    split_frontmatter,
    validate_skill,
)

_BY_HAND: Final = "edit the file by hand"


def edit_skill(
    path: str,
    content: bytes,
    *,
    description: str | None = None,
    body: str | None = None,
    tags: tuple[str, ...] | None = None,
) -> bytes:
    r"""Change the given fields of a skill file, and keep its other fields, its comments and the order of its keys.

    Raises `InvalidInput` for a file that cannot be read, and for an edit that would make a file break the specification
    that it followed before; `LimitExceeded` over `SKILL_FILE_BYTES_MAX`.

    >>> greet = b"---\nname: greet # as people do\ndescription: Wave.\n---\n"
    >>> edit_skill("greet/SKILL.md", greet, description="Bow.")
    b'---\nname: greet # as people do\ndescription: "Bow."\n---\n'
    """
    try:
        split = split_frontmatter(content.decode())
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 (byte {error.start}); convert it first") from error
    if split.block is None:
        raise InvalidInput(f"{path}: {split.problem}; {_BY_HAND}")
    block = _readable(path, split.block)
    if description is not None:
        render_skill("any", description, "")  # Checks the description, even if the file is not valid.
    try:
        if description is not None:
            block = _set_description(block, quote(description))
        if tags is not None:
            block = _set_tags(block, quote(", ".join(tags)))
    except (yaml.YAMLError, LookupError, ValueError) as error:
        raise _edit_error(path) from error
    place = split.head.rindex(split.block)
    head = split.head[:place] + block + split.head[place + len(split.block) :]
    if body and not head.endswith("\n"):
        head += "\n"
    given = {"description": description, "body": body, "tags": tags}
    fields = {name: value for name, value in given.items() if value is not None}
    return _check_edit(path, content, head + (split.body if body is None else body), fields)


def _edit_error(path: str) -> InvalidInput:
    return InvalidInput(f"{path} has a frontmatter in which this cannot be changed; {_BY_HAND}")


def _readable(path: str, block: str) -> str:
    """Return a block in a form that YAML can read, with quotes around the values that need them."""
    problem = ""
    for each in (block, mend(block)[0]):
        try:
            read_frontmatter(each)
        except BlockError as error:
            problem = problem or error.reason
        else:
            return each
    raise InvalidInput(f"{path}: {problem}; {_BY_HAND}")


def _check_edit(path: str, before: bytes, text: str, fields: dict[str, Any]) -> bytes:
    """Check that only the given fields have changed, and that a valid file is still valid."""
    after, directory = check_size(text.encode()), path.rpartition("/")[0].rpartition("/")[2]
    problems = () if validate_skill(before, directory) else validate_skill(after, directory)
    if problems:
        raise InvalidInput(f"{problems[0]}; a skill that breaks the specification is not written")
    old, new = parse_skill(path, before).skill, parse_skill(path, after).skill
    if old is None or new is None or _plain(replace(old, **fields)) != _plain(new):
        raise _edit_error(path)
    return after


def _plain(skill: Skill) -> tuple[Skill, dict[str, Any]]:
    """Return the data of a skill file, except where its tags are."""
    metadata = {key: value for key, value in skill.metadata.items() if key != "tags"}
    return replace(skill, id="", hash="", front=b"\x80"), metadata


def _set_description(block: str, value: str) -> str:
    pair = _pair(_pairs(block), "description")
    if pair is None:
        raise KeyError("description")
    return _replace_value(block, *pair, value)


def _set_tags(block: str, value: str) -> str:
    """Set tags where they are now, else in the metadata, which the specification provides for extensions."""
    pairs, newline = _pairs(block), "\r\n" if "\r\n" in block else "\n"
    _, metadata = _pair(pairs, "metadata") or (None, None)
    inner: list[tuple[Any, Any]] = metadata.value if isinstance(metadata, yaml.MappingNode) else []
    pair = _pair(pairs, "tags") or _pair(inner, "tags")
    if pair is not None:
        return _replace_value(block, *pair, value)
    if metadata is None:
        return f"{block}metadata:{newline}  tags: {value}{newline}"
    if not inner or metadata.flow_style:
        return f"{block}tags: {value}{newline}"
    mark = inner[0][0].start_mark
    return f"{block[: mark.index]}tags: {value}{newline}{' ' * mark.column}{block[mark.index :]}"


def _pairs(block: str) -> list[tuple[Any, Any]]:
    node = yaml.compose(block, Loader=yaml.SafeLoader)
    assert isinstance(node, yaml.MappingNode), "it was read as one"
    pairs: list[tuple[Any, Any]] = node.value
    return pairs


def _pair(pairs: list[tuple[Any, Any]], key: str) -> tuple[Any, Any] | None:
    """Return the nodes of a key and its value; if the key is there twice, the last one counts."""
    return next((pair for pair in reversed(pairs) if pair[0].value == key), None)


def _replace_value(block: str, key: Any, node: Any, value: str) -> str:
    """Replace the value of a key; comments stay, even those between the key and its value."""
    begin, end = block.index(":", key.end_mark.index) + 1, node.start_mark.index
    gap, old = block[begin:end], block[end : node.end_mark.index]
    if old.endswith("\n"):  # It extends to the next key, past comments that are not part of it.
        lines = old.splitlines(keepends=True)
        while lines and (not lines[-1].strip() or lines[-1].startswith("#")):
            lines.pop()
        old = "".join(lines).rstrip("\r\n")
    gap = gap[: gap.rindex("\n") + 1] + " " * (key.start_mark.column + 2) if "#" in gap else " "
    return f"{block[:begin]}{gap}{value}{block[end + len(old) :]}"
