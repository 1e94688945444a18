"""Reads ChatGPT's export (`conversations.json`): each conversation; memories are of its current branch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, BinaryIO, TypeAlias

from satchel.addons.importers.transcripts import WRITTEN_BY_PROGRAM, TurnNumbering, moment_of, place_of, whole
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.json_stream import elements, parse
from satchel.memory.transfer.parts import ImportedFile, LeftOut, Part, stable_id

_MAX_BYTES = 64 << 20  # Of a file that is a single conversation and not a list.
_MOST_BRANCHES = 50
_MARK = re.compile("\ue200[^\ue200\ue201]*\ue201|【[^【】]{1,80}】|[\ue203\ue204]")
"""What stands in an answer where ChatGPT shows a source, a picture or a card, and around what a source is for."""
_FILE_ID = re.compile(r"file[-_][A-Za-z0-9]+")
_Beside: TypeAlias = Mapping[str, tuple[str, Callable[[], bytes]]]


_KINDS_LEFT_OUT = {
    "thoughts": "thinking",
    "reasoning_recap": "thinking",
    "user_editable_context": WRITTEN_BY_PROGRAM,
    "model_editable_context": WRITTEN_BY_PROGRAM,
    "execution_output": "the output of a tool",
    "tether_browsing_display": "the output of a tool",
    "tether_quote": "the output of a tool",
    "system_error": "the output of a tool",
    "sonic_webpage": "the output of a tool",
}


def is_conversation(found: Mapping[str, Any]) -> bool:
    """Whether an object is a conversation of ChatGPT."""
    return isinstance(found.get("mapping"), Mapping)


def single_conversation(stream: BinaryIO) -> Mapping[str, Any] | None:
    """The conversation that a file is; None if it is something else."""
    try:
        found = parse(stream.read(_MAX_BYTES))
    except ValueError:
        return None
    return found if isinstance(found, Mapping) and is_conversation(found) else None


def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
    """Read every conversation, without tools and system messages."""
    beside = cache(partial(_by_id, file))
    with file.open() as again:
        head = again.read(64)
    if head.lstrip()[:1] == b"{":
        found = single_conversation(stream)
        if found is None:
            yield LeftOut(reason="a file that is not a ChatGPT export", where=file.name)
        else:
            where = f"{file.name}#1"
            yield from whole(_conversation(found, file, beside, where), where)
        return
    for number, element in elements(stream, file.name):
        where = f"{file.name}#{number}"
        if isinstance(element, LeftOut):
            yield element
        elif is_conversation(element):
            yield from whole(_conversation(element, file, beside, where), where)
        else:
            yield LeftOut(reason="an element that is not a conversation", where=where)


def _conversation(
    found: Mapping[str, Any], file: SourceFile, beside: Callable[[], _Beside], where: str
) -> Iterator[Part]:
    mapping: Mapping[str, Any] = found["mapping"]
    name = found.get("conversation_id") or found.get("id") or stable_id(*sorted(mapping)[:50])
    begun = moment_of(found.get("create_time")) or moment_of(found.get("update_time"))
    branch, problem = _branch(mapping, found.get("current_node"))
    if problem:
        yield LeftOut(reason=problem, where=where)

    def read_branch(nodes: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Part]:
        last = begun
        for node_id, node in nodes:
            message = node.get("message")
            if not isinstance(message, Mapping):
                continue
            author = message.get("author")
            role = author.get("role") if isinstance(author, Mapping) else None
            reason = _why_left_out(message, role)
            files = _files(message, beside) if not reason or role == "tool" else []
            if reason:
                yield LeftOut(reason=reason, where=f"{where} {node_id}"[:200], expected=True)
                if not files:
                    continue
            metadata = message.get("metadata")
            references = metadata.get("content_references") if isinstance(metadata, Mapping) else None
            text = "" if reason else _text(message.get("content"))
            if role == "assistant":
                text = _with_sources(text, references)
            if text.strip() or files:
                last = moment_of(message.get("create_time")) or last
            yield transcript.episode(
                text,
                role=str(role),
                at=last,
                modified_at=file.modified_at,
                where=f"{where} {node_id}"[:200],
                names=("chatgpt", name, message.get("id") or node_id),
                files=files,
                model=metadata.get("model_slug") if isinstance(metadata, Mapping) else "",
            )

    branches = []
    for leaf in _leaves(mapping, {id for id, _ in branch}):
        transcript = TurnNumbering("")
        for _ in read_branch(_branch(mapping, leaf)[0]):
            pass
        branches.append(transcript.messages)
    transcript = TurnNumbering(place_of("chatgpt", name))
    yield from read_branch(branch)
    yield from transcript.conversation(found.get("title"), branches=branches)


def _leaves(mapping: Mapping[str, Any], current: Collection[str]) -> list[str]:
    """The ends of the branches other than the current one, the most of them that are kept."""
    return [
        id
        for id, node in mapping.items()
        if id not in current and isinstance(node, Mapping) and not node.get("children")
    ][:_MOST_BRANCHES]


def _files(message: Mapping[str, Any], beside: Callable[[], _Beside]) -> list[ImportedFile]:
    """The pictures and files of a message that the export holds."""
    content, metadata = message.get("content"), message.get("metadata")
    parts = content.get("parts") if isinstance(content, Mapping) else None
    pointers = [part.get("asset_pointer") for part in parts or () if isinstance(part, Mapping)]
    attached = metadata.get("attachments") if isinstance(metadata, Mapping) else None
    names = {one.get("id"): one.get("name") for one in attached or () if isinstance(one, Mapping)}
    # A pointer is an address, and the scheme of some looks like an id: `file-service://file-Abc1`.
    named = [str(one).rpartition("://")[2] for one in (*pointers, *names)]
    ids = [match[0] for one in named if (match := _FILE_ID.search(one))]
    found = []
    for id in dict.fromkeys(ids):
        if id in beside():
            base, read_file = beside()[id]
            name = names.get(id) or base.removeprefix(id).lstrip("-_") or base
            found.append(ImportedFile(name=str(name), read=read_file))
    return found


def _by_id(file: SourceFile) -> _Beside:
    """The files beside an export: their names and what reads them, by the ids that the names begin with."""
    return {
        match[0]: (base, read_file)
        for base, read_file in file.others().items()
        if (match := _FILE_ID.match(base))
    }


def _branch(mapping: Mapping[str, Any], leaf: object) -> tuple[list[tuple[str, Mapping[str, Any]]], str]:
    """The nodes from the root to the current leaf, and a problem to report or ""."""
    problem = ""
    if not isinstance(leaf, str) or not isinstance(mapping.get(leaf), Mapping):
        leaf = _latest(mapping)
        problem = "" if not mapping else "a conversation without a current branch: the latest one was read"
    nodes: list[tuple[str, Mapping[str, Any]]] = []
    seen: set[str] = set()
    while isinstance(leaf, str) and isinstance(mapping.get(leaf), Mapping):
        if leaf in seen:
            problem = "a conversation that is a cycle: it was read once around"
            break
        seen.add(leaf)
        node = mapping[leaf]
        nodes.append((leaf, node))
        leaf = node.get("parent")
    return nodes[::-1], problem


def _latest(mapping: Mapping[str, Any]) -> str | None:
    """The id of the node with the latest time."""
    best: tuple[float, str] | None = None
    for id, node in mapping.items():
        message = node.get("message") if isinstance(node, Mapping) else None
        time = message.get("create_time") if isinstance(message, Mapping) else None
        if isinstance(time, int | float) and (best is None or time > best[0]):
            best = (time, id)
    return best[1] if best else next(iter(mapping), None)


def _why_left_out(message: Mapping[str, Any], role: object) -> str:
    metadata = message.get("metadata")
    if role == "tool":
        return "the output of a tool"
    if role not in ("user", "assistant"):
        return WRITTEN_BY_PROGRAM
    if isinstance(metadata, Mapping) and metadata.get("is_visually_hidden_from_conversation"):
        return WRITTEN_BY_PROGRAM
    if message.get("recipient") not in (None, "all"):
        return "the call of a tool"
    content = message.get("content")
    return _KINDS_LEFT_OUT.get(str(content.get("content_type")), "") if isinstance(content, Mapping) else ""


def _text(content: object) -> str:
    """The text parts of a message, including transcribed speech."""
    if not isinstance(content, Mapping):
        return ""
    parts = content.get("parts")
    if not isinstance(parts, list):
        return content["text"] if isinstance(content.get("text"), str) else ""
    words = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            words.append(part["text"])
    return "\n".join(word for word in words if word.strip())


def _with_sources(text: str, references: object) -> str:
    """A text with links in place of the marks of its sources. Of a mark without one, the words that it has stay."""
    links: dict[object, list[object]] = {}
    for one in reversed(references) if isinstance(references, list) else ():
        if isinstance(one, Mapping) and isinstance(one.get("matched_text"), str):
            links.setdefault(one["matched_text"], []).append(one.get("alt"))

    def linked(mark: re.Match[str]) -> str:
        # Each is used once, so that a hostile file can't make a text much longer than itself.
        left = links.get(mark[0])
        link = left.pop() if left else None
        words = link if isinstance(link, str) else mark[0] if mark[0].startswith("【") else ""
        return words or _words_in(mark[0])

    return _MARK.sub(linked, text)


def _words_in(mark: str) -> str:
    """The words that a mark has itself: of a name (`["city", "Lyon", "a city"]`), and of a link."""
    kind, *fields = mark[1:-1].split("\ue202")
    match kind, fields:
        case "entity", [named]:
            try:
                _, words, *_ = json.loads(named)
            except (ValueError, TypeError, RecursionError):
                return named
            return str(words)
        case "link_title" | "url", [words, address] if address.startswith(("https://", "http://")):
            return f"[{words}]({address})"
        case "link_title" | "url", [words, *_]:
            return words
        case _:
            return ""
