"""WordLlama: 256 numbers for a text from a table of word vectors, in a tenth of a millisecond and without a network."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from refold.embedders.extras import loaded, visible
from refold.embedders.protocol import COMPACT_COSINE, MERGE_COSINE

if TYPE_CHECKING:
    from numpy.typing import NDArray


class WordLlamaEmbedder:
    """The static model that ships in the package ``wordllama`` (the extra of that name).

    A text without any character to see is embedded as a full stop. Raises ``InvalidInput`` if the package is absent.
    """

    id = "wordllama-l2-supercat-256"
    dim = 256
    merge_threshold = MERGE_COSINE
    compact_threshold = COMPACT_COSINE

    def __init__(self) -> None:
        module = loaded("wordllama", "wordllama")
        # Told where its own files lie, it does not look for them on the network.
        folder = Path(module.__file__).parent
        self._model: Any = module.WordLlama.load(cache_dir=folder, disable_download=True)

    def embed(self, texts: list[str]) -> "NDArray[Any]":
        """Return one vector of length 1 for each text, in order, as rows of float32."""
        import numpy  # noqa: PLC0415 - loads when the first vector comes

        if not texts:
            return numpy.empty((0, self.dim), dtype=numpy.float32)
        rows: NDArray[Any] = self._model.embed(visible(texts), norm=True)
        return rows
