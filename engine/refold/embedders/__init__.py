"""Embedders: texts into vectors, by a table of hashes or by a model that the caller chose."""

from refold.embedders.cached import CachedEmbedder
from refold.embedders.hashed import HashedEmbedder
from refold.embedders.protocol import COMPACT_COSINE, MERGE_COSINE, Embedder, thresholds
from refold.embedders.vectors import check_vectors

__all__ = [
    "COMPACT_COSINE",
    "MERGE_COSINE",
    "CachedEmbedder",
    "Embedder",
    "HashedEmbedder",
    "check_vectors",
    "thresholds",
]
