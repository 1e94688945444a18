"""Turns as spans of OpenTelemetry, for who has the extra `telemetry` and names a receiver (decision 101).

The names of attributes are those of OpenTelemetry's conventions for generative AI. A span says who was called, how long
it took and how it ended, and never a word of what was said: no message, input, result, path or title.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from satchel.events import (
    Assistant,
    Compaction,
    ContextAdded,
    MemorySurfaced,
    ModelCalled,
    Observation,
    Permission,
    QuestionAnswered,
    Record,
    RoundObserved,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from satchel.messages import Usage
from satchel.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span

_log = logging.getLogger(__name__)

_TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_ALL: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_BEFORE_A_CALL: Final = (
    TurnStart,
    TurnResumed,
    ContextAdded,
    MemorySurfaced,
    Observation,
    RoundObserved,
    QuestionAnswered,
    Compaction,
    Assistant,
)
"""A model is asked directly after one of these: the log has no event for the beginning of a call."""
_NAME: Final = re.compile(r"[\w.:/-]{1,100}")
"""A model may call a tool that doesn't exist by any words; they are content."""
_FLUSH_MS: Final = 3_000
_END_S: Final = 5.0


def spans_for(environ: Mapping[str, str]) -> Spans | None:
    """What makes spans; None unless a variable names a receiver, the SDK may run, and the extra is installed."""
    endpoint = environ.get(_TRACES, "").strip()
    if not endpoint and (base := environ.get(_ALL, "").strip()):
        endpoint = f"{base.rstrip('/')}/v1/traces"
    if not endpoint:
        return None
    if "true" in _said(environ, "OTEL_SDK_DISABLED") or "none" in _said(environ, "OTEL_TRACES_EXPORTER"):
        return None
    try:  # half a second, and only for who wants it
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        return None
    try:
        return Spans(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    except ValueError as error:  # of another variable, such as OTEL_BSP_MAX_QUEUE_SIZE
        _log.warning("No spans are sent: %s", error)
        return None


def _said(environ: Mapping[str, str], name: str) -> Sequence[str]:
    return [each.strip() for each in environ.get(name, "").lower().split(",")]


class Spans:
    """Makes the spans of this process. It sets no global provider, so no other library sends spans through it."""

    def __init__(self, processor: SpanProcessor) -> None:
        """`processor` gets the spans that have ended."""
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only with the extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

        # What the variables say has precedence over the name.
        named = Resource({"service.name": "satchel", "service.version": __version__})
        found = Resource.create()
        if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
            found = found.merge(named)
        self._provider = TracerProvider(resource=found, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self.tracer = self._provider.get_tracer("satchel", __version__)

    async def aclose(self) -> None:
        """Send what waits. A receiver that doesn't answer is not waited for long."""

        def end() -> None:
            self._provider.force_flush(_FLUSH_MS)
            self._provider.shutdown()

        with anyio.move_on_after(_END_S, shield=True):
            await anyio.to_thread.run_sync(end, abandon_on_cancel=True)


class SpanSink:
    """Makes the spans of one session from its records: a turn, and in it model calls and tool calls.

    It is a `HistorySink`: no turn waits for it.
    """

    def __init__(self, spans: Spans, session_id: str) -> None:
        """`spans` makes them; `session_id` is on each."""
        self._tracer = spans.tracer
        self._session = session_id
        self._turn: Span | None = None
        self._before: datetime | None = None
        self._refused: set[str] = set()

    def append(self, record: Record) -> None:
        """See `HistorySink`."""
        event, at = record.event, record.at
        if isinstance(event, TurnStart | TurnResumed):
            self._begin(event.turn, at)
        elif isinstance(event, Assistant):
            asked = {"gen_ai.response.finish_reasons": [str(event.stop_reason)]}
            self._model_call(event, self._before or at, at, asked)
        elif isinstance(event, ModelCalled):
            self._model_call(event, at, at, {"satchel.purpose": event.purpose.partition(":")[0]})
        elif isinstance(event, Permission) and event.decision == "deny":
            self._refused.add(event.call_id)
        elif isinstance(event, Observation):
            self._tool_call(event, at)
        elif isinstance(event, TurnEnd) and self._turn is not None:
            self._turn.set_attributes(
                {
                    "satchel.turn.status": event.status,
                    "satchel.turn.rounds": event.rounds,
                    **_tokens(event.usage),
                }
            )
            _finish(self._turn, at, error="failed" if event.status == "failed" else "")
            self._turn = None
        if isinstance(event, _BEFORE_A_CALL):
            self._before = at

    def _begin(self, turn: int, at: datetime) -> None:
        if self._turn is not None:  # it broke off, and is resumed
            _finish(self._turn, at, error="interrupted")
        self._refused.clear()
        self._turn = self._span(
            "invoke_agent", "satchel", at, {"gen_ai.agent.name": "satchel", "satchel.turn": turn}
        )

    def _model_call(
        self, event: Assistant | ModelCalled, began: datetime, at: datetime, more: Mapping[str, Any]
    ) -> None:
        model = {"gen_ai.provider.name": event.provider, "gen_ai.request.model": event.model}
        span = self._span("chat", event.model, began, {**model, **_tokens(event.usage), **more}, is_call=True)
        _finish(span, at)

    def _tool_call(self, event: Observation, at: datetime) -> None:
        # What never started may be a name that the model made up.
        is_known = event.duration_ms > 0 or event.call_id in self._refused
        name = event.tool if is_known and _NAME.fullmatch(event.tool) else "other"
        error = "refused" if event.call_id in self._refused else "tool_error" if event.is_error else ""
        began = at - timedelta(milliseconds=event.duration_ms)
        _finish(self._span("execute_tool", name, began, {"gen_ai.tool.name": name}), at, error=error)

    def _span(
        self, operation: str, of: str, began: datetime, more: Mapping[str, Any], *, is_call: bool = False
    ) -> Span:
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - only with the extra

        return self._tracer.start_span(
            f"{operation} {of}",
            # An empty context otherwise: no span of an embedding program becomes the parent by chance.
            context=set_span_in_context(self._turn) if self._turn is not None else _nothing(),
            kind=SpanKind.CLIENT if is_call else SpanKind.INTERNAL,
            attributes={"gen_ai.operation.name": operation, "gen_ai.conversation.id": self._session, **more},
            start_time=_ns(began),
        )


def _nothing() -> Any:
    from opentelemetry.context import Context  # noqa: PLC0415 - only with the extra

    return Context()


def _finish(span: Span, at: datetime, *, error: str = "") -> None:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415 - only with the extra

    if error:
        span.set_attribute("error.type", error)
        span.set_status(StatusCode.ERROR)
    span.end(_ns(at))


def _tokens(usage: Usage) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
    }


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000
