"""Answers of language models that are recorded beside a benchmark, so that anyone can play it again without a model.

A file has one JSON object on each line: the hash of a task ("extract", "notes", …) and of what was asked, the
messages of the request, and the answer. The instructions of a task, which stand in many requests, have a line of their
own. If a prompt or anything that leads to a request has changed, the hash isn't found and the answer is missing: that
is counted, and nothing is made up in its place.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel.errors import ModelError, ModelUnavailable
from satchel.memory.text.framing import estimate_tokens
from satchel.messages import Message, TextBlock, Usage
from satchel.models.port import ChatModel, Completion, ModelEvent, ModelRequest


class EndpointFailed(Exception):
    """The endpoint gave no answer, so that a recording can't go on. What came until then is in its file."""


def key_of(task: str, asked: Any) -> str:
    """The hash by which an answer is found; `asked` is plain JSON data."""
    text = json.dumps([task, asked], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(slots=True)
class Sent:
    """Requests of one task: how many, their characters and those of the answers."""

    calls: int = 0
    asked: int = 0
    answered: int = 0

    def add(self, asked: int, answered: int) -> None:
        """Count one more."""
        self.calls += 1
        self.asked += asked
        self.answered += answered


class Recording:
    """The answers of one life.

    Attributes:
        model: Answers what isn't recorded; None if only recorded answers are played.
        missing: How many requests of each task had no answer.
        sent: What was asked of `model`, by task.
    """

    def __init__(self, path: Path, model: ChatModel | None = None, *, writes: bool = True) -> None:
        """Read the file, if it is there. It is written only if `writes`."""
        self._path = path if writes else None
        self.model = model
        self.missing: Counter[str] = Counter()
        self.sent: defaultdict[str, Sent] = defaultdict(Sent)
        self._lines: dict[str, dict[str, Any]] = {}
        self._used: dict[str, None] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._lines[entry["key"]] = entry

    def has(self, task: str) -> bool:
        """Whether anything is recorded for a task."""
        return any(entry["task"] == task for entry in self._lines.values())

    def tasks(self) -> list[str]:
        """What something is recorded for, sorted."""
        return sorted({entry["task"] for entry in self._lines.values()})

    def find(self, task: str, asked: Any) -> Any:
        """The recorded answer, or None."""
        entry = self._lines.get(key := key_of(task, asked))
        if entry is None:
            return None
        self._used[key] = None
        return entry["answer"]

    def keep(self, task: str, asked: Any, answer: Any, **more: Any) -> None:
        """Record an answer at once; `more` stands beside it, for readers."""
        entry = {"key": key_of(task, asked), "task": task, **more, "answer": answer}
        self._lines[entry["key"]] = entry
        self._used[entry["key"]] = None
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def tidy(self) -> None:
        """Leave only what was used, in the order in which it was. For a life that was played whole."""
        if self._path is not None and self._used:
            lines = [json.dumps(self._lines[key], ensure_ascii=False) + "\n" for key in self._used]
            self._path.write_text("".join(lines), encoding="utf-8")

    async def answer(self, task: str, request: ModelRequest) -> str:
        """The answer to a request, recorded or from the model, which is then recorded.

        Raises:
            ModelUnavailable: Nothing is recorded, and there is no model.
            EndpointFailed: The model failed.
        """
        said = [message.text for message in request.messages]
        asked = [request.system, *said]
        found = self.find(task, asked)
        if found is not None:
            self.find("prompt", request.system)
            return str(found)
        if self.model is None:
            self.missing[task] += 1
            raise ModelUnavailable(f"no answer is recorded to this request ({task})")
        text = await self.ask(task, request)
        if self.find("prompt", request.system) is None:
            self.keep("prompt", request.system, request.system, of=task)
        self.keep(task, asked, text, messages=said)
        return text

    async def ask(self, task: str, request: ModelRequest) -> str:
        """What the model answers; nothing is recorded.

        Raises:
            EndpointFailed: It failed.
        """
        assert self.model is not None
        text = ""
        try:
            async for event in self.model.stream(request):
                if isinstance(event, Completion):
                    text = event.message.text
        except ModelError as error:
            raise EndpointFailed(f"{task}: {error}") from error
        self.sent[task].add(len(request.system) + sum(len(one.text) for one in request.messages), len(text))
        return text


def request_of(system: str, said: str, schema: Mapping[str, Any] | None = None) -> ModelRequest:
    """A request of one message."""
    message = Message(role="user", blocks=(TextBlock(text=said),))
    return ModelRequest(system=system, messages=[message], max_tokens=8_000, response_schema=schema)


@dataclass(slots=True)
class Cost:
    """What a column asked of models in the background: calls, and tokens of requests and answers, estimated."""

    calls: int = 0
    tokens: int = 0

    def add(self, asked: str, answer: str) -> None:
        """Count one call."""
        self.calls += 1
        self.tokens += estimate_tokens(asked) + estimate_tokens(answer)


@dataclass(slots=True)
class RecordedModel:
    """A `ChatModel` for one task that answers from a recording."""

    recording: Recording
    task: str
    cost: Cost = field(default_factory=Cost)
    provider: str = "recorded"
    model: str = "recorded"
    context_window: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `ChatModel.stream`."""
        text = await self.recording.answer(self.task, request)
        self.cost.add(request.system + "".join(message.text for message in request.messages), text)
        yield Completion(
            blocks=(TextBlock(text=text),),
            stop_reason="end_turn",
            usage=Usage(),
            provider=self.provider,
            model=self.model,
        )

    async def aclose(self) -> None:
        """There is nothing to close."""
