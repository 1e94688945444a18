"""Compaction: a summary replaces older messages, and the newest stay as they are."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from satchel.errors import ModelError, ModelUnavailable
from satchel.events import Compaction, Event, ModelCalled, Notice
from satchel.loop.answers import PartialAnswer, read_answer
from satchel.loop.limits import Patience
from satchel.loop.tokens import TokenEstimator
from satchel.messages import (
    Block,
    FileBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    clean_text,
    size_of_message,
    size_of_text,
)
from satchel.models.files import part_of
from satchel.models.port import ChatModel, FileReader, ModelRequest, price_by
from satchel.wording import cut_text

_MOST_CHARS = 4_000
"""Characters of one block in the transcript for the summary; of a longer block, both ends are kept."""
_SUMMARY_TOKENS = 2_000
"""The length of a summary: about 1,500 words."""
_SUMMARY_BYTES = 40_000
"""Where a summary that does not end is stopped: five times the length that was asked for."""
_LEAST_RESULT = 500
"""Characters that a result keeps if the kept messages alone are too long."""
_LEAST_GAIN = 1_000
"""Bytes of older messages below which a summary would hardly be shorter."""
_PICTURE_CHARS = 16_000_000
"""Of all pictures that the summary describes, in base64: half of what Anthropic takes, 32 MB."""
_WINDOW_PER_PICTURE = 8_000
"""Tokens of the window for each of them, which counts as 1,600; see `size_of_message`."""
_PATIENCE = Patience()
_UNKNOWN_WINDOW = 128_000
"""The window assumed for the summary's request if the model's is unknown, in tokens; a middling size today."""


async def compact(
    messages: Sequence[Message],
    *,
    model: ChatModel,
    turn: int,
    trigger: Literal["auto", "manual"],
    emit: Callable[[Event], Awaitable[None]],
    estimator: TokenEstimator,
    patience: Patience = _PATIENCE,
    focus: str = "",
    to_do: str = "",
    keep_part: float = 0.3,
    session_id: str = "",
    on_request: Callable[[ModelRequest], Awaitable[None]] | None = None,
    read_file: FileReader | None = None,
) -> Compaction | None:
    """Replace older messages with a summary that the model writes.

    The newest messages and the user's last words stay as they are. A call is never separated from its result. With the
    model "none", or if the model fails where the window is full, the oldest messages are dropped and a note says so.

    Args:
        messages: A valid history (see `Conversation.messages`). Calls that are open stay open.
        model: Writes the summary, in a separate request without tools.
        turn: The number of the turn.
        trigger: Whether the user asked for the compaction.
        emit: Receives a `Notice` if the model fails to write the summary, or retries, and a `ModelCalled` with what it
            cost if it changes nothing.
        estimator: The estimator of the session.
        patience: How long the model may send nothing.
        focus: What the summary should keep above all, in the user's words.
        to_do: The model's to-do list, told again unless it stands in the messages that are kept.
        keep_part: The part of the model's window, in (0, 1), that the newest messages may keep; never more than a third
            of the history.
        session_id: For providers that route by session.
        on_request: Called with the request for the summary.
        read_file: Reads the pictures of the older messages, which the model describes in the summary.

    Returns:
        The event, whose `messages` are the new history, for the caller to emit; None if nothing can be dropped.

    Raises:
        ModelError: The user asked for the summary, and the model fails to write it.
    """
    before_size = _size(messages)
    max_bytes = most_attached = before_size // 3
    if model.context_window is not None:
        max_bytes = min(max_bytes, estimator.bytes(int(model.context_window * keep_part)))
        # What no model has read yet may fill more than what one has.
        most_attached = estimator.bytes(model.context_window // 2)
    messages = _with_last_words_apart(messages, most_attached)
    start = _start_of_kept(messages, max_bytes=max_bytes)
    older, kept = messages[:start], _trimmed(messages[start:], max_bytes=max_bytes)
    if _size(older) < _LEAST_GAIN:
        return None
    spent: list[Usage] = []
    event: Compaction | None = None
    try:
        summary = ""
        if model.provider != "none":
            try:
                summary = await _summarise(
                    older,
                    spent=spent,
                    model=model,
                    emit=emit,
                    estimator=estimator,
                    patience=patience,
                    focus=focus,
                    session_id=session_id,
                    on_request=on_request,
                    read_file=read_file,
                )
            except ModelError as error:
                if trigger == "manual":  # what the user wants shorter fits still
                    raise
                text = f"The model could not summarise the older messages, so they were dropped: {error}"
                await emit(Notice(part="compaction", text=text))
        note = _summary_note(summary) if summary else _dropped_note(older)
        if to_do and not _has_result(kept, to_do):
            note += f"\n\nYour to-do list:\n{_ends(to_do, max_bytes // 4)}"
        after = _joined(note, older, kept, most_attached=max_bytes // 4)
        after_size = _size(after)
        if after_size < before_size:
            event = Compaction(
                turn=turn,
                messages=after,
                before_tokens=estimator.tokens(before_size),
                after_tokens=estimator.tokens(after_size),
                trigger=trigger,
                focus=focus,
                usage=sum(spent, Usage()),
            )
    finally:
        if spent and event is None:
            usage = sum(spent, Usage())
            await emit(
                ModelCalled(
                    turn=turn, purpose="compaction", provider=model.provider, model=model.model, usage=usage
                )
            )
    return event


def _size(messages: Iterable[Message]) -> int:
    return sum(size_of_message(message) for message in messages)


def _with_last_words_apart(messages: Sequence[Message], most_attached: int) -> list[Message]:
    """The history with the user's newest words, and what is attached to them, in a message of their own.

    The message of a failed turn has no answer, and the next one was added to it: the older words may be what does not
    fit.
    """
    last = messages[-1] if messages else None
    if last is None or last.role != "user":
        return list(messages)
    place = _place_of_last_words(last, most_attached)
    if place == 0:
        return list(messages)
    before, newest = last.blocks[:place], last.blocks[place:]
    return [*messages[:-1], Message(role="user", blocks=before), Message(role="user", blocks=newest)]


def _place_of_last_words(message: Message, most_attached: int) -> int:
    """The index of the last block that the user said in a message, or of the files before it unless they are larger; 0
    if there is none.
    """
    said = (
        place
        for place, block in enumerate(message.blocks)
        if isinstance(block, TextBlock) and block.origin == "said"
    )
    place = first = max(said, default=0)
    while first and isinstance(message.blocks[first - 1], FileBlock):
        first -= 1
    attached = Message(role="user", blocks=message.blocks[first:place])
    return first if size_of_message(attached) <= most_attached else place


def _is_said(message: Message) -> bool:
    """Whether the user said something in a message, or attached it without a word."""
    return message.role == "user" and bool(message.text.strip() or message.files)


def _is_start(message: Message) -> bool:
    """Whether a history may be cut before this message: an answer, or a message of the user without results."""
    return message.role == "assistant" or not isinstance(message.blocks[0], ToolResultBlock)


def _start_of_kept(messages: Sequence[Message], *, max_bytes: int) -> int:
    """The index where the kept part begins: as early as `max_bytes` allows, at the latest at the last possible cut."""
    size = 0
    start = len(messages)
    for position in range(len(messages) - 1, -1, -1):
        size += size_of_message(messages[position])
        if size > max_bytes and start < len(messages):
            break
        if _is_start(messages[position]):
            start = position
    return 0 if start == len(messages) else start


def _trimmed(kept: Sequence[Message], *, max_bytes: int) -> list[Message]:
    """The kept messages, with their results cut if the messages alone are too long: first to their words."""
    size = _size(kept)
    if size > max_bytes and len(kept) > 1:
        # The newest message holds what the model has not seen yet. What the others hold, it can open again.
        kept = [*map(_in_words, kept[:-1]), kept[-1]]
        size = _size(kept)
    if size <= max_bytes:
        return list(kept)
    results = sorted(
        (
            size_of_text(block.content)
            for message in kept
            for block in message.blocks
            if isinstance(block, ToolResultBlock)
        ),
        reverse=True,
    )
    # The longest results are cut to one length, the largest that removes enough.
    limit = _LEAST_RESULT
    for count in range(1, len(results) + 1):
        following = results[count] if count < len(results) else 0
        if sum(results[:count]) - count * following >= size - max_bytes:
            limit = max(_LEAST_RESULT, (sum(results[:count]) - (size - max_bytes)) // count)
            break
    return [
        replace(
            message,
            blocks=tuple(
                replace(block, content=_ends(block.content, _chars_in(block.content, limit)))
                if isinstance(block, ToolResultBlock)
                else block
                for block in message.blocks
            ),
        )
        for message in kept
    ]


def _chars_in(text: str, size: int) -> int:
    """About as many characters of a text as have so many bytes."""
    return max(_LEAST_RESULT, size * len(text) // max(1, size_of_text(text)))


def _in_words(message: Message) -> Message:
    return replace(
        message,
        blocks=tuple(replace(b, files=()) if isinstance(b, ToolResultBlock) else b for b in message.blocks),
    )


def _joined(
    note: str, older: Sequence[Message], kept: Sequence[Message], *, most_attached: int
) -> tuple[Message, ...]:
    """The summary, the user's last words with their files if they were in the older part, and the kept messages."""
    head: list[Block] = [TextBlock(text=note, origin="notice")]
    if not any(map(_is_said, kept)):
        said = next(filter(_is_said, reversed(older)), None)
        if said is not None:
            newest = said.blocks[_place_of_last_words(said, most_attached) :]
            head += [
                block
                for block in newest
                if isinstance(block, FileBlock) or (isinstance(block, TextBlock) and block.origin != "notice")
            ]
    joined = [Message(role="user", blocks=tuple(head))]
    for message in kept:
        if joined[-1].role == message.role == "user":
            joined[-1] = Message(role="user", blocks=joined[-1].blocks + message.blocks)
        else:
            joined.append(message)
    return tuple(joined)


def _has_result(messages: Sequence[Message], text: str) -> bool:
    blocks = (block for message in messages for block in message.blocks)
    return any(isinstance(block, ToolResultBlock) and block.content == text for block in blocks)


def _summary_note(summary: str) -> str:
    return (
        "[Notice from Satchel: the conversation became too long. This summary, written by you, "
        f"replaces its older part.]\n\n{summary}"
    )


def _dropped_note(older: Sequence[Message]) -> str:
    turns = sum(1 for message in older if message.role == "user" and message.text.strip())
    calls = sum(len(message.tool_uses) for message in older)
    what = f"{len(older)} older messages ({turns} of the user, {calls} tool call{'' if calls == 1 else 's'})"
    return f"[Notice from Satchel: {what} were dropped here to make room. The session log still has them.]"


@cache
def _instructions() -> str:
    return files("satchel.loop").joinpath("prompts/compact.md").read_text(encoding="utf-8").strip()


async def _summarise(
    older: Sequence[Message],
    *,
    spent: list[Usage],
    model: ChatModel,
    emit: Callable[[Event], Awaitable[None]],
    estimator: TokenEstimator,
    patience: Patience,
    focus: str,
    session_id: str,
    on_request: Callable[[ModelRequest], Awaitable[None]] | None,
    read_file: FileReader | None,
) -> str:
    """Have the model write the summary. What that costs is added to `spent`, also where it comes to nothing.

    Raises:
        ModelError: The model failed, or wrote nothing.
    """
    # Half of the window, because the estimate may be wrong and the summary needs room.
    window = model.context_window if model.context_window is not None else _UNKNOWN_WINDOW
    transcript = _transcript(older, max_bytes=estimator.bytes(window // 2))
    request_text = f"<transcript>\n{transcript}\n</transcript>"
    if focus:
        request_text += f"\n\nThe user asks that the summary keeps this above all: {focus}"
    words = TextBlock(text=request_text, origin="notice")

    async def emit_notices(event: Event) -> None:
        # The deltas of a summary must not look like an answer to the user.
        if isinstance(event, Notice):
            await emit(event)

    async def ask(pictures: Sequence[Block]) -> str:
        request = ModelRequest(
            system=_instructions(),
            messages=(Message(role="user", blocks=(words, *pictures)),),
            max_tokens=min(_SUMMARY_TOKENS, max(256, window // 8)),
            session_id=session_id,
            read_file=read_file,
        )
        if on_request is not None:
            await on_request(request)
        answer = PartialAnswer()
        try:
            await read_answer(
                model, request, answer=answer, emit=emit_notices, max_bytes=_SUMMARY_BYTES, patience=patience
            )
        finally:
            if answer.completion is not None:
                spent.append(answer.completion.usage)
            elif answer.size:
                sent, said = estimator.tokens(_size(request.messages)), estimator.tokens(answer.size)
                spent.append(price_by(model, Usage(input_tokens=sent, output_tokens=said, estimated=True)))
        completion = answer.completion
        if completion is None:
            raise ModelUnavailable("The summary did not end; it was stopped.")
        summary = clean_text("\n".join(b.text for b in completion.blocks if isinstance(b, TextBlock)).strip())
        if not summary:
            raise ModelUnavailable("The model wrote an empty summary.")
        return summary

    pictures = _pictures(older, window=window, read_file=read_file)
    if pictures:
        # The pictures may be what it can't take, and words are better than nothing.
        with suppress(ModelError):
            return await ask(pictures)
    return await ask(())


def _pictures(
    messages: Sequence[Message], *, window: int, read_file: FileReader | None
) -> list[TextBlock | FileBlock]:
    """The newest pictures that take up a fifth of the window and half of a request at most, each after its name."""
    pictures = [
        file for message in messages for file in (*message.result_files, *message.files) if file.is_picture
    ]
    found: dict[str, FileBlock] = {}
    chars = 0
    for file in reversed(pictures):
        if file.sha256 not in found:
            chars += len(part_of(file, read_file, takes="all").content)
            if chars > _PICTURE_CHARS or len(found) >= window // _WINDOW_PER_PICTURE:
                break
            found[file.sha256] = file
    return [
        block
        for file in reversed(found.values())
        for block in (TextBlock(text=f"FILE {file.name}:", origin="notice"), file)
    ]


def _transcript(messages: Sequence[Message], *, max_bytes: int) -> str:
    """The messages as text, each block cut to a readable length; if it is still too long, without its middle."""
    lines = [line for message in messages for line in _lines(message)]
    text = "\n\n".join(lines)
    # Cut by characters, so that none is split: about as many as make up the bytes.
    max_chars = max_bytes * len(text) // max(1, size_of_text(text))
    return _ends(text, max(1_000, max_chars))


def _lines(message: Message) -> Iterable[str]:
    for block in message.blocks:
        match block:
            case TextBlock(text=text, origin="said"):
                yield f"{message.role.upper()}: {_ends(text, _MOST_CHARS)}"
            case TextBlock(text=text, origin="context"):
                yield f"CONTEXT: {_ends(text, _MOST_CHARS)}"
            case TextBlock(text=text, origin="notice"):
                yield f"NOTICE: {_ends(text, 4 * _MOST_CHARS)}"
            case FileBlock():
                yield f"FILE {block.name} ({block.media_type})"
            case ToolUseBlock(name=name, input=input, unparsed=unparsed):
                yield f"CALL {name}: {_ends(_written(input, unparsed), _MOST_CHARS)}"
            case ToolResultBlock(content=content, is_error=is_error):
                yield f"{'ERROR' if is_error else 'RESULT'}: {_ends(content, _MOST_CHARS)}"
                yield from (f"FILE {file.name} ({file.media_type})" for file in block.files)
            # Memory is surfaced again when it is needed; thinking belongs to the answer that it led to.
            case TextBlock() | ThinkingBlock():
                pass


def _written(input: Mapping[str, Any] | None, unparsed: str) -> str:
    return unparsed if input is None else json.dumps(input, ensure_ascii=False, default=str)


def _ends(text: str, max_chars: int) -> str:
    """The head and the tail of a text that is longer than `max_chars`."""
    return cut_text(text, max_chars // 2, max_chars // 2, what="characters left out")
