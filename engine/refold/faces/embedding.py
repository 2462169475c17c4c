"""The embedder that a command is given: by its name, or as a model at an endpoint."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from refold import Embedder

FunctionType = TypeVar("FunctionType", bound=Callable[..., Any])

EMBEDDER_VARIABLE: Final = "REFOLD_EMBEDDER"
KEY_VARIABLE: Final = "REFOLD_EMBEDDER_KEY"
_BY_NAME: Final = {"hashed": "HashedEmbedder", "wordllama": "WordLlamaEmbedder", "minilm": "MiniLmEmbedder"}
_HELP: Final = f"hashed (the built-in one), wordllama, minilm, or MODEL:DIM@URL (its key in {KEY_VARIABLE})."


def embedder_option(function: FunctionType) -> FunctionType:
    """Add --embedder, which REFOLD_EMBEDDER may stand in for."""
    option = click.option(
        "--embedder", callback=_embedder, envvar=EMBEDDER_VARIABLE, show_envvar=True, metavar="NAME", help=_HELP
    )
    return option(function)


def _embedder(_context: click.Context, parameter: click.Parameter, value: str | None) -> "Embedder | None":
    if value is None:
        return None
    name, _, url = value.partition("@")
    model, _, dim = name.rpartition(":")
    if value not in _BY_NAME and not (model and url and dim.isdecimal()):
        message = f"{value!r} is none; give {', '.join(_BY_NAME)}, or MODEL:DIM@URL for an OpenAI-compatible endpoint"
        raise click.BadParameter(message, param=parameter)
    import refold

    if value in _BY_NAME:
        chosen: Embedder = getattr(refold, _BY_NAME[value])()
        return chosen
    return refold.OpenAIEmbedder(base_url=url, model=model, dim=int(dim), api_key=os.environ.get(KEY_VARIABLE))
