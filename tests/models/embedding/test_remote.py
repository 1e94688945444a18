from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import numpy as np
import pytest

from satchel.clock import ManualClock
from satchel.config import ProviderSettings
from satchel.errors import EmbedderError
from satchel.models.embedding import record_of
from satchel.models.embedding.remote import RemoteEmbedder
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

Answer = tuple[int, dict[str, str], bytes]


class Endpoint:
    """A server on the loopback that answers as it is told and remembers what it was asked."""

    def __init__(self, answer: Callable[[dict[str, Any]], Answer]) -> None:
        self.answer = answer
        self.requests: list[tuple[str, str | None, dict[str, Any]]] = []
        self.url = ""


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Answer]) -> Iterator[Endpoint]:
    endpoint = Endpoint(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            endpoint.requests.append((self.path, self.headers["authorization"], body))
            status, headers, content = endpoint.answer(body)
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        endpoint.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()


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


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    return status, headers, json.dumps(value).encode()


def lengths(body: dict[str, Any]) -> Answer:
    return rows([[len(text), 1, 0] for text in body["input"]])


def rows(vectors: Any) -> Answer:
    return as_json({"data": [{"embedding": vector} for vector in vectors]})


def backwards(body: dict[str, Any]) -> Answer:
    found = [{"index": place, "embedding": [len(text), 1, 0]} for place, text in enumerate(body["input"])]
    return as_json({"data": found[::-1]})


@requirement("models:embedder:nomic-prefixes")
async def test_it_is_asked_with_the_prefixes_of_the_model() -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return rows([[1.0] + [0.0] * 767 for _ in body["input"]])

    with serving(answer) as endpoint:
        async with embedder_at(endpoint.url, model="nomic-embed-text") as (embedder, _):
            assert (await embedder.embed(["a"], "query")).shape == (1, 768)
            assert (await embedder.embed(["b", ""], "document")).shape == (2, 768)
    assert [(path, body["model"], body["input"]) for path, _, body in endpoint.requests] == [
        ("/v1/embeddings", "nomic-embed-text", ["search_query: a"]),
        ("/v1/embeddings", "nomic-embed-text", ["search_document: b", "search_document: "]),
    ]


@requirement("models:embedder:endpoint")
async def test_an_openai_endpoint_gets_the_key_and_its_numbers_give_the_order() -> None:
    with serving(backwards) as endpoint:
        async with embedder_at(endpoint.url, key="secret") as (embedder, _):
            assert embedder.info.dimension == 0
            vectors = await embedder.embed(["", "ab", "\ud800abc"], "document")
            assert embedder.info.dimension == 3
    assert vectors == pytest.approx(embed_lengths(1, 2, 4), abs=1e-6)
    assert endpoint.requests == [
        (
            "/v1/embeddings",
            "Bearer secret",
            {"model": "tiny", "input": [" ", "ab", "\ufffdabc"], "encoding_format": "float"},
        )
    ]


def embed_lengths(*lengths: int) -> Any:
    rows = np.array([[length, 1, 0] for length in lengths], float)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


async def test_many_and_long_texts_go_in_requests_of_bounded_size() -> None:
    with serving(lengths) as endpoint:
        async with embedder_at(endpoint.url) as (embedder, _):
            vectors = await embedder.embed(["x" * (1 + n) for n in range(150)] + ["y" * 10**6], "document")
            assert (await embedder.embed([], "document")).shape == (0, 3)
    assert vectors == pytest.approx(embed_lengths(*range(1, 151), 512 * 3), abs=1e-6)
    assert [len(body["input"]) for _, _, body in endpoint.requests] == [64, 64, 23]


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
    with serving(lambda _: as_json(answer)) as endpoint:
        async with embedder_at(endpoint.url) as (embedder, _):
            with pytest.raises(EmbedderError, match=message):
                await embedder.embed(["a", "b"], "document")


async def test_a_model_that_changes_its_dimension_is_refused() -> None:
    with serving(lambda body: rows([[1] * len(body["input"][0])])) as endpoint:
        async with embedder_at(endpoint.url) as (embedder, _):
            await embedder.embed(["abc"], "query")
            with pytest.raises(EmbedderError, match="gave vectors of 2 numbers instead of 3"):
                await embedder.embed(["ab"], "query")


async def test_a_temporary_failure_is_retried_and_a_permanent_one_is_reported() -> None:
    answers = [as_json({}, 503), as_json({}, 429, **{"retry-after": "2"})]
    with serving(lambda body: answers.pop(0) if answers else lengths(body)) as endpoint:
        async with embedder_at(endpoint.url) as (embedder, waits):
            assert (await embedder.embed(["a"], "query")).shape == (1, 3)
            assert 0.25 <= waits[0] <= 0.5
            assert waits[1] == 2.0
            endpoint.answer = lambda _: as_json({"error": {"message": "loading"}}, 503)
            with pytest.raises(EmbedderError, match=r"answered 503: loading\. Satchel tried 3 times\."):
                await embedder.embed(["a"], "query")
            endpoint.answer = lambda _: as_json({"error": "slow down"}, 429, **{"retry-after": "3600"})
            with pytest.raises(EmbedderError, match="answered 429: slow down"):
                await embedder.embed(["a"], "query")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (as_json({}, 401), "answered 401: .* Check whether the key in K is correct"),
        (as_json({"error": {"message": "too long"}}, 400), "answered 400: too long"),
        (as_json({"error": 'model "tiny" not found, try pulling it first'}, 404), "try pulling it first"),
        (
            (307, {"location": "/v1/embeddings"}, b""),
            "answered 307: It leads to /v1/embeddings, which is not followed",
        ),
        ((200, {}, b"<html>hello"), "answered with something that is not JSON"),
        ((200, {}, b"[" * 100_000), "answered with something that is not JSON"),
        ((200, {}, b" " * (65 << 20)), "sent more than 64 MB"),
    ],
)
async def test_a_refusal_is_reported_once(answer: Answer, message: str) -> None:
    with serving(lambda _: answer) as endpoint:
        async with embedder_at(endpoint.url, key="secret") as (embedder, waits):
            with pytest.raises(EmbedderError, match=message) as caught:
                await embedder.embed(["a"], "query")
    assert (len(endpoint.requests), waits) == (1, [])
    assert "secret" not in str(caught.value)


async def test_an_endpoint_that_is_not_there_is_named() -> None:
    with serving(lengths) as endpoint:
        pass
    async with embedder_at(endpoint.url) as (embedder, _):
        with pytest.raises(
            EmbedderError,
            match=r"test:tiny at http://127\.0\.0\.1:\d+/v1 cannot be reached: .*\. Is it running",
        ):
            await embedder.embed(["a"], "query")
