"""What a remote tool returns, held against what it said that it returns, in so many steps, whatever it said.

The schema comes from the server, and so may be one that no check comes to an end with: of patterns that backtrack for
ever, of references that double at each step. So the plain schema is what counts, without patterns, and the steps are
counted; what was not found to be wrong by then is taken as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from refold.errors import RefoldError
from refold.tools.mcp.limits import MCP_CHECKS_COUNT_MAX, MCP_NOTE_CHARS_MAX
from refold.tools.mcp.schemas import plain_schema

_CHECKED: Final = (
    *("type", "enum", "required", "properties", "additionalProperties", "items", "anyOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)


class _EnoughError(Exception):
    """So many steps were made."""


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, dict)) else 0  # pyright: ignore[reportUnknownArgumentType]


def checker_of(schema: Mapping[str, Any]) -> Callable[[object], str]:
    """Return a function that says what is wrong with a value, nothing where nothing was found."""
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # noqa: PLC0415 - of the extra `mcp`
    from jsonschema.validators import create  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    left = [0]

    def counted(check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def steps(validator: Any, said: Any, value: Any, held: Any) -> Iterator[Any]:
            left[0] -= 1 + _length(said) + _length(value)
            if left[0] < 0:
                raise _EnoughError
            yield from check(validator, said, value, held) or ()

        return steps

    words = {word: counted(Draft202012Validator.VALIDATORS[word]) for word in _CHECKED}
    try:
        validator: Any = create(Draft202012Validator.META_SCHEMA, words)(plain_schema(schema))
    except RefoldError as error:
        fault = f"its schema of results is none: {error}"
        return lambda _: fault

    def fault_of(value: Any) -> str:
        left[0] = MCP_CHECKS_COUNT_MAX
        try:
            found = next(validator.iter_errors(value), None)
        except Exception:  # noqa: BLE001 - enough steps, a multiple of zero: what cannot be checked is taken as it is
            return ""
        return "" if found is None else str(found.message)[:MCP_NOTE_CHARS_MAX]

    return fault_of
