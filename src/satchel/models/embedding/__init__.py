"""Embedding models: the bundled default, a hashing double for tests, endpoints, libraries."""

from satchel.models.embedding.fetching import Fetching, FileSource, Progress, SourceFailed
from satchel.models.embedding.hashing import HashingEmbedder
from satchel.models.embedding.minilm import MiniLmEmbedder
from satchel.models.embedding.opening import DEFAULT_EMBEDDER, DEFAULT_SECOND_EMBEDDER, open_embedder
from satchel.models.embedding.own import OwnEmbedder, OwnEmbedding, as_embedder
from satchel.models.embedding.records import (
    HASHING,
    MINILM,
    MINILM_WEIGHTS,
    RECORDS,
    USE_MULTILINGUAL,
    USE_WEIGHTS,
    ModelFiles,
    WeightFile,
    Wheel,
    record_of,
)
from satchel.models.embedding.rows import product, unit_rows
from satchel.models.embedding.sources import (
    FolderSource,
    IndexSource,
    InstalledWheel,
    default_sources,
)
from satchel.models.embedding.use import UseEmbedder
from satchel.models.embedding.weights import fetch_weights, find_weights, weights_source

__all__ = [
    "DEFAULT_EMBEDDER",
    "DEFAULT_SECOND_EMBEDDER",
    "HASHING",
    "MINILM",
    "MINILM_WEIGHTS",
    "RECORDS",
    "USE_MULTILINGUAL",
    "USE_WEIGHTS",
    "Fetching",
    "FolderSource",
    "HashingEmbedder",
    "IndexSource",
    "InstalledWheel",
    "MiniLmEmbedder",
    "OwnEmbedder",
    "OwnEmbedding",
    "Progress",
    "FileSource",
    "SourceFailed",
    "UseEmbedder",
    "WeightFile",
    "ModelFiles",
    "Wheel",
    "as_embedder",
    "default_sources",
    "fetch_weights",
    "find_weights",
    "open_embedder",
    "product",
    "record_of",
    "unit_rows",
    "weights_source",
]
