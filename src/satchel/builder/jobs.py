"""Builds as durable jobs: DBOS dispatches them to threads and hands those of a dead process to this one.

Only the worker process imports this module: DBOS takes seconds to load. A job has one step, which continues the build
wherever its session stopped, so repeating the step is harmless. What DBOS adds is a record of the builds that are to
run, bounds on how many do, and their recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from dbos import DBOS, DBOSConfig, SetWorkflowID

from satchel.storage.jobs import jobs_engine

_APPLICATION_VERSION: Final = "builds-1"
"""Not a hash of the code, which is DBOS's default: after an upgrade, jobs of the version before have to go on."""
_QUEUE: Final = "builds"
_POLL_S: Final = 0.25
_PENDING: Final = ("PENDING", "ENQUEUED", "DELAYED")
_CLOSING_S: Final = 5


class BuildJobs:
    """The jobs of a home. A process has one at a time, and another process with the same database another name."""

    def __init__(self, database: Path, *, executor: str, workers: int, run: Callable[[str], None]) -> None:
        """Launch DBOS, which takes a moment, and recover nothing yet; see `take_over`. Blocks. `executor` names this
        process. `run`, called in a thread, runs the build with an id to its end.
        """
        self._engine = jobs_engine(database)
        self._executor = executor
        config: DBOSConfig = {
            "name": "satchel",
            "system_database_engine": self._engine,
            "system_database_url": f"sqlite:///{database}",
            "executor_id": executor,
            "application_version": _APPLICATION_VERSION,
            "max_executor_threads": workers + 2,
            "log_level": "ERROR",
            "console_log_level": "ERROR",
            "notification_listener_polling_interval_sec": 5.0,
        }
        DBOS(config=config)

        @DBOS.step(name="work")
        def work(build_id: str) -> None:
            run(build_id)

        @DBOS.workflow(name="build", max_recovery_attempts=None)
        def build(build_id: str) -> None:
            work(build_id)

        self._build = build
        DBOS.launch()
        DBOS.register_queue(
            _QUEUE, worker_concurrency=workers, polling_interval_sec=_POLL_S, on_conflict="always_update"
        )

    def ensure(self, build_id: str, attempts: int) -> None:
        """Make sure that a build which has not ended has a job that is waiting or running. Blocks. `attempts` says how
        often it was begun: a job that has failed is followed by another one.
        """
        found = DBOS.list_workflows(workflow_id_prefix=build_id, load_input=False, load_output=False)
        if any(job.status in _PENDING for job in found):
            return
        with SetWorkflowID(build_id if not found else f"{build_id}/{attempts}-{len(found)}"):
            DBOS.enqueue_workflow(_QUEUE, self._build, build_id)

    def take_over(self) -> None:
        """Continue the jobs of processes that have died; no other one is alive. Blocks."""
        for job in DBOS.list_workflows(status="PENDING", load_input=False, load_output=False):
            if job.executor_id != self._executor:
                DBOS.resume_workflow(job.workflow_id, queue_name=_QUEUE)

    def close(self) -> None:
        """Stop dispatching, and let go of the database. Blocks."""
        DBOS.destroy(destroy_registry=True, workflow_completion_timeout_sec=_CLOSING_S)
        self._engine.dispose()
