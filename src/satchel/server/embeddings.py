"""OpenAI's embeddings, made by the embedder of memory."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from satchel.server.service import Service
from satchel.server.v1_errors import V1Failure
from satchel.server.v1_requests import HOME_MODEL, invalid, unsupported

_MOST_TEXTS: Final = 2048
"""OpenAI's own limit."""
_MOST_CHARS: Final = 1_200_000
"""Of all texts together: some 300,000 tokens, OpenAI's own limit."""


class EmbeddingRequest(BaseModel):
    """A request. Other fields are ignored."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={"examples": [{"model": HOME_MODEL, "input": ["The router is in the cellar."]}]},
    )

    model: Annotated[str, Field(max_length=200)] = Field(
        HOME_MODEL, description='"satchel", or the name that an answer gives the embedder.'
    )
    input: Any = Field(description="A text or a list of texts. Lists of tokens are refused.")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, description="Only the embedder's own number is accepted.")


class EmbeddingList(BaseModel):
    """A vector for each text, in order, as OpenAI describes them."""

    model_config = ConfigDict(extra="allow")

    object: Literal["list"]
    data: list[dict[str, Any]]
    model: str
    usage: dict[str, int]


async def embeddings(service: Service, request: EmbeddingRequest) -> dict[str, Any]:
    """The vectors of texts, each of unit length. Texts that are too long for the embedder are cut.

    Raises:
        V1Failure: There is no embedder, or it can't do what is asked.
        EmbedderError: It is unavailable.
    """
    embedder = service.satchel.home.embedder
    if isinstance(embedder, str):
        raise V1Failure(
            400,
            f'There is no embedder: memory.embedder is "{embedder}". Name one in the settings.',
            param="model",
            code="unsupported_value",
        )
    if request.model not in (HOME_MODEL, embedder.info.id):
        raise V1Failure(
            404,
            f"There is no embedder {request.model!r} here. Name {HOME_MODEL!r} or {embedder.info.id!r}.",
            param="model",
            code="model_not_found",
        )
    texts = [request.input] if isinstance(request.input, str) else request.input
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) and t for t in texts):
        raise invalid("input", "must be a text or a list of texts, none of them empty; not tokens")
    chars = sum(map(len, texts))
    if len(texts) > _MOST_TEXTS or chars > _MOST_CHARS:
        raise invalid("input", f"must be at most {_MOST_TEXTS} texts with {_MOST_CHARS} characters together")
    vectors = await embedder.embed(texts, "document")
    if request.dimensions not in (None, vectors.shape[1]):
        raise unsupported("dimensions", request.dimensions, f"Vectors have {vectors.shape[1]} here")
    is_packed = request.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": number,
            "embedding": b64encode(vector.astype("<f4").tobytes()).decode() if is_packed else vector.tolist(),
        }
        for number, vector in enumerate(vectors)
    ]
    # Embedders report no tokens; one for 4 characters is the usual rule.
    tokens = max(1, chars // 4)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": embedder.info.id, "usage": usage}
