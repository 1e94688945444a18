"""A worker that is killed: its main program is forked for each round, with everything imported."""

from __future__ import annotations

from pathlib import Path

# Imported before the fork: they take seconds, and the moments that matter come after that.
import satchel.builder.jobs
import satchel.models.openai
import satchel.sandbox.choice  # noqa: F401
from satchel.config import Settings, load
from satchel.runtime.worker import run_worker
from tests.killing import serve, tell


def settings_of(home: str, url: str) -> Settings:
    environ = {
        "SATCHEL_HOME": home,
        "HOME": home,
        "PATH": "/usr/bin:/bin",
        "OPENAI_API_KEY": "key-o",
        "OPENAI_BASE_URL": f"{url}/v1",
        "SATCHEL_MODEL": "openai:m-1",
        "SATCHEL_MEMORY_EMBEDDER": "none",
        # Questions that are not answered at once lay their builds aside, so that some kills meet that.
        "SATCHEL_BUILDER_QUESTION_WAIT_S": "0.2",
        "SATCHEL_SANDBOX_ALLOW_UNSAFE": "true",
    }
    return load(environ, cwd=Path(home))


async def work(home: str, url: str) -> None:
    settings = settings_of(home, url)
    tell("up")
    await run_worker(settings, once=True, tell=lambda text: tell("said", text))
    tell("over")


if __name__ == "__main__":
    serve(work)
