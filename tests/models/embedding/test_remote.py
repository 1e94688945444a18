from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import numpy as np
import pytest

from satchel.clock import ManualClock
from satchel.config import ProviderSettings
from satchel.errors import EmbedderError
from satchel.models.embedding import record_of
from satchel.models.embedding.remote import RemoteEmbedder
from tests.models.loopback import Answer, Asked, Loopback, as_json, loopback
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def embedder_at(
    url: str, *, model: str = "tiny", key: str | None = None
) -> AsyncIterator[tuple[RemoteEmbedder, list[float]]]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    embedder = RemoteEmbedder(
        record_of(model, id=f"test:{model}"),
        settings=ProviderSettings(name="test", kind="openai", base_url=f"{url}/v1/", env_api_key="K"),
        model=model,
        clock=ManualClock(),
        api_key=key,
        sleep=sleep,
    )
    try:
        with anyio.fail_after(120):
            yield embedder, waits
    finally:
        await embedder.aclose()


def lengths(asked: Asked) -> Answer:
    return rows([[len(text), 1, 0] for text in asked.body["input"]])


def rows(vectors: Any) -> Answer:
    return as_json({"data": [{"embedding": vector} for vector in vectors]})


def backwards(asked: Asked) -> Answer:
    found = [
        {"index": place, "embedding": [len(text), 1, 0]} for place, text in enumerate(asked.body["input"])
    ]
    return as_json({"data": found[::-1]})


@requirement("models:embedder:nomic-prefixes")
async def test_it_is_asked_with_the_prefixes_of_the_model() -> None:
    def answer(asked: Asked) -> Answer:
        return rows([[1.0] + [0.0] * 767 for _ in asked.body["input"]])

    async with (
        loopback(answer) as endpoint,
        embedder_at(endpoint.url, model="nomic-embed-text") as (embedder, _),
    ):
        assert (await embedder.embed(["a"], "query")).shape == (1, 768)
        assert (await embedder.embed(["b", ""], "document")).shape == (2, 768)
    assert [(path, body["model"], body["input"]) for path, _, body in requests(endpoint)] == [
        ("/v1/embeddings", "nomic-embed-text", ["search_query: a"]),
        ("/v1/embeddings", "nomic-embed-text", ["search_document: b", "search_document: "]),
    ]


@requirement("models:embedder:endpoint")
async def test_an_openai_endpoint_gets_the_key_and_its_numbers_give_the_order() -> None:
    async with loopback(backwards) as endpoint, embedder_at(endpoint.url, key="secret") as (embedder, _):
        assert embedder.info.dimension == 0
        vectors = await embedder.embed(["", "ab", "\ud800abc"], "document")
        assert embedder.info.dimension == 3
    assert vectors == pytest.approx(embed_lengths(1, 2, 4), abs=1e-6)
    assert requests(endpoint) == [
        (
            "/v1/embeddings",
            "Bearer secret",
            {"model": "tiny", "input": [" ", "ab", "\ufffdabc"], "encoding_format": "float"},
        )
    ]


def requests(endpoint: Loopback) -> list[tuple[str, str | None, Any]]:
    return [(asked.path, asked.headers.get("authorization"), asked.body) for asked in endpoint.asked]


def embed_lengths(*lengths: int) -> Any:
    rows = np.array([[length, 1, 0] for length in lengths], float)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


async def test_many_and_long_texts_go_in_requests_of_bounded_size() -> None:
    async with loopback(lengths) as endpoint, embedder_at(endpoint.url) as (embedder, _):
        vectors = await embedder.embed(["x" * (1 + n) for n in range(150)] + ["y" * 10**6], "document")
        assert (await embedder.embed([], "document")).shape == (0, 3)
    assert vectors == pytest.approx(embed_lengths(*range(1, 151), 512 * 3), abs=1e-6)
    assert [len(body["input"]) for _, _, body in requests(endpoint)] == [64, 64, 23]


@requirement("models:embedder:bad-output")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"data": [{"embedding": [1, 2]}]}, "test:tiny gave 1 vectors for 2 texts"),
        ({"data": [{"embedding": [1, 2]}, {"embedding": [1]}]}, "rows of numbers of equal length"),
        ({"data": [{"embedding": [1, 2]}, {"embedding": [0, 0]}]}, "only zeros for text 2"),
        ({"data": [{"embedding": [1, float("nan")]}, {"embedding": [1, 1]}]}, "NaN or infinity for text 1"),
        ({"data": []}, "gave 0 vectors for 2 texts"),
        ([1], "answered without vectors"),
        ({"data": [{"embedding": "AAAA"}] * 2}, r"answered without vectors\. Is it an embedding model\?"),
        ({"data": [{"index": 0, "embedding": [1]}] * 2}, "numbered its vectors wrongly"),
        ({"data": [{"index": [], "embedding": [1]}] * 2}, "numbered its vectors wrongly"),
        ({"choices": []}, "answered without vectors"),
    ],
)
async def test_an_answer_that_does_not_fit_is_an_error(answer: Any, message: str) -> None:
    async with loopback(lambda _: as_json(answer)) as endpoint, embedder_at(endpoint.url) as (embedder, _):
        with pytest.raises(EmbedderError, match=message):
            await embedder.embed(["a", "b"], "document")


async def test_a_model_that_changes_its_dimension_is_refused() -> None:
    async with (
        loopback(lambda asked: rows([[1] * len(asked.body["input"][0])])) as endpoint,
        embedder_at(endpoint.url) as (embedder, _),
    ):
        await embedder.embed(["abc"], "query")
        with pytest.raises(EmbedderError, match="gave vectors of 2 numbers instead of 3"):
            await embedder.embed(["ab"], "query")


async def test_a_temporary_failure_is_retried_and_a_permanent_one_is_reported() -> None:
    busy = as_json({"error": {"message": "loading"}}, status=503)
    answers = [
        as_json({}, status=503),
        as_json({}, status=429, **{"retry-after": "2"}),
        rows([[1, 1, 0]]),
        *[busy] * 3,
        as_json({"error": "slow down"}, status=429, **{"retry-after": "3600"}),
    ]
    async with loopback(answers) as endpoint, embedder_at(endpoint.url) as (embedder, waits):
        assert (await embedder.embed(["a"], "query")).shape == (1, 3)
        assert 0.25 <= waits[0] <= 0.5
        assert waits[1] == 2.0
        with pytest.raises(EmbedderError, match=r"answered 503: loading\. Satchel tried 3 times\."):
            await embedder.embed(["a"], "query")
        with pytest.raises(EmbedderError, match="answered 429: slow down"):
            await embedder.embed(["a"], "query")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (as_json({}, status=401), "answered 401: .* Check whether the key in K is correct"),
        (as_json({"error": {"message": "too long"}}, status=400), "answered 400: too long"),
        (
            as_json({"error": 'model "tiny" not found, try pulling it first'}, status=404),
            "try pulling it first",
        ),
        (
            Answer(status=307, headers={"location": "/v1/embeddings"}),
            "answered 307: It leads to /v1/embeddings, which is not followed",
        ),
        (Answer(pieces=[b"<html>hello"]), "answered with something that is not JSON"),
        (Answer(pieces=[b"[" * 100_000]), "answered with something that is not JSON"),
        (Answer(pieces=[b" " * (65 << 20)]), "sent more than 64 MB"),
    ],
)
async def test_a_refusal_is_reported_once(answer: Answer, message: str) -> None:
    async with (
        loopback(lambda _: answer) as endpoint,
        embedder_at(endpoint.url, key="secret") as (embedder, waits),
    ):
        with pytest.raises(EmbedderError, match=message) as caught:
            await embedder.embed(["a"], "query")
    assert (len(endpoint.asked), waits) == (1, [])
    assert "secret" not in str(caught.value)


async def test_an_endpoint_that_is_not_there_is_named() -> None:
    async with loopback(lengths) as endpoint:
        pass
    async with embedder_at(endpoint.url) as (embedder, _):
        with pytest.raises(
            EmbedderError,
            match=r"test:tiny at http://127\.0\.0\.1:\d+/v1 cannot be reached: .*\. Is it running",
        ):
            await embedder.embed(["a"], "query")
