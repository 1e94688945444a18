from __future__ import annotations

import re
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.config import ProviderSettings
from satchel.config.providers import builtin_providers
from satchel.errors import ConfigError
from satchel.models.embedding import (
    HASHING,
    MINILM,
    MINILM_WEIGHTS,
    RECORDS,
    HashingEmbedder,
    MiniLmEmbedder,
    open_embedder,
    record_of,
)
from satchel.models.embedding.remote import RemoteEmbedder
from satchel.models.port import Embedder
from tests.requirements import requirement

PROVIDERS = {
    "ollama": ProviderSettings(name="ollama", kind="ollama", base_url="http://box:11434/v1/"),
    "attic": ProviderSettings(name="attic", kind="ollama", base_url="http://attic:11434"),
    "claude": ProviderSettings(name="claude", kind="anthropic"),
    "openai": builtin_providers({})["openai"],
    "local": ProviderSettings(name="local", kind="openai", base_url="http://127.0.0.1:1/v1", env_api_key="K"),
}


def opened(name: str, home: Path) -> Embedder:
    return open_embedder(name, home=home, environ={}, clock=ManualClock(), providers=PROVIDERS)


@requirement("models:embedder:default")
def test_a_name_opens_its_embedder_and_nothing_is_touched_before_the_first_call(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert isinstance(opened("minilm", home), MiniLmEmbedder)
    assert isinstance(opened("hash", home), HashingEmbedder)
    found = {
        name: (embedder.info, embedder._url)
        for name in (
            "ollama:nomic-embed-text:v1.5",
            "attic:nomic-embed-text",
            "local:text-embedding-3-small",
            "openai:x",
        )
        if isinstance(embedder := opened(name, home), RemoteEmbedder)
    }
    assert {name: (info.id, info.dimension, url) for name, (info, url) in found.items()} == {
        "ollama:nomic-embed-text:v1.5": (
            "ollama:nomic-embed-text:v1.5",
            768,
            "http://box:11434/v1/embeddings",
        ),
        "attic:nomic-embed-text": ("attic:nomic-embed-text", 768, "http://attic:11434/v1/embeddings"),
        "local:text-embedding-3-small": (
            "local:text-embedding-3-small",
            1536,
            "http://127.0.0.1:1/v1/embeddings",
        ),
        "openai:x": ("openai:x", 0, "https://api.openai.com/v1/embeddings"),
    }
    assert not home.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "bert",
            'memory.embedder = "bert": there is no such embedder. Allowed is "minilm", "use-multilingual", "hash"',
        ),
        ("", 'memory.embedder = "": there is no such embedder.'),
        ("ollama:", 'memory.embedder = "ollama:": there is no such embedder.'),
        ("ollama:x@http://far:1", "the address belongs in base_url of [providers.ollama]"),
        ("attic:x@http://far:1", "the address belongs in base_url of [providers.attic]"),
        ("nobody:x", 'there is no provider "nobody" (there are: attic, claude, local, ollama, openai).'),
        ("claude:x", 'the provider "claude" is of kind "anthropic", which has no embeddings'),
    ],
)
def test_a_name_that_opens_nothing_says_what_is_allowed(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        opened(name, tmp_path)


def test_records_are_found_under_all_names_of_a_model() -> None:
    assert record_of("nomic-ai/Nomic-Embed-Text:latest", id="x").query_prefix == "search_query: "
    assert record_of("BAAI/bge-small-en-v1.5", id="x").dimension == 384
    unknown = record_of("something-new", id="x")
    assert (unknown.id, unknown.dimension, unknown.max_tokens, unknown.query_prefix) == ("x", 0, 512, "")


def test_every_record_is_whole() -> None:
    for info in (MINILM, HASHING, *RECORDS.values()):
        assert info.id
        assert info.dimension > 0
        assert info.max_tokens >= 256
        assert 0 < info.threshold < 1
    for name, info in RECORDS.items():
        assert name == info.id == name.lower()
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in MINILM_WEIGHTS.files)
