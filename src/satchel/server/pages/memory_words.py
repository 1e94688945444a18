"""The words for memories, their signals and their changes on pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from satchel.memory import Change, Hit, MemoryRecord, Successor
from satchel.memory.show.reasons import said_words, shared_word, who_said
from satchel.runtime.lines import counted, one_line

KINDS: Final = {"fact": "facts", "episode": "what was said", "summary": "summaries"}
KIND_OF: Final = {"fact": "Fact", "episode": "Said", "summary": "Summary"}
TYPES: Final = ("general", "decision", "insight", "fact", "preference", "project", "conversation")
DISCRETIONS: Final = {
    "confidential": "Confidential: shown only when you ask about it.",
    "withheld": "Held back: you asked not to keep it. No model is shown it.",
}
TIERS: Final = {"long_term": "long term", "short_term": "short term"}
TRUST: Final = {
    "user": "you",
    "agent": "a model",
    "outside": "from outside, and trusted less",
}

_SIGNALS: Final = {
    "words": "words",
    "meaning": "meaning",
    "match": "its tokens",
    "asked": "what was asked before",
    "echo": "words of the question before",
    "cue": "a cue",
    "session": "its conversation",
    "speaker": "speaker",
    "date": "its date",
}
"""The parts of a score (`candidates.weights.WEIGHTS`), as pages call them."""
_FACTORS: Final = ("importance", "recency", "priority")
_MOST_REASONS: Final = 3
_LEAST: Final = 0.005


def reasons_of(hit: Hit) -> tuple[str, ...]:
    """The parts of a hit's score, the largest first: "words 0.31", "cosine 0.56", "recency +6 %"."""
    if "need" in hit.signals:
        return _reasons_to_show(hit)
    parts = {
        name: value
        for name, value in hit.signals.items()
        if value is not None and name in _SIGNALS and value > _LEAST
    }
    said = [
        f"{_SIGNALS[name]} {value:.2f}"
        for name, value in sorted(parts.items(), key=lambda part: -part[1])[:_MOST_REASONS]
    ]
    cosine = hit.signals.get("dense")
    if cosine is not None:
        said.append(f"cosine {cosine:.2f}")
    for name in _FACTORS:
        factor = hit.signals.get(f"times_{name}")
        if factor is not None and abs(factor - 1) >= _LEAST:
            said.append(f"{name} {factor - 1:+.0%}".replace("%", "\N{NO-BREAK SPACE}%").replace("-", "−"))
    return tuple(said)


def _reasons_to_show(hit: Hit) -> tuple[str, ...]:
    """The reasons for showing a memory with a message (`choosing.LINE_FEATURES`), in words."""

    def of(name: str) -> float:
        return hit.signals.get(name) or 0.0

    said = []
    if of("covered") > _LEAST:
        said.append(
            f"its words are {of('covered'):.0%} of what the message says".replace("%", "\N{NO-BREAK SPACE}%")
        )
    if of("message") > _LEAST:
        said.append(f"meaning {of('message'):.1f}")
    if of("context") > of("message") + _LEAST:
        said.append(f"what was said before {of('context'):.1f}")
    if of("cue") > _LEAST:
        said.append(f"a cue {of('cue'):.2f}")
    if of("called") > _LEAST:
        said.append(f"what such a message calls for {of('called'):.2f}")
    return tuple(said)


def said_of(memory: MemoryRecord, now: datetime) -> str:
    """Who said it and when: "You said so on 3 May"."""
    words = said_words(who_said(memory), memory.said_at, now)
    return words[0].upper() + words[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedMemory:
    """A memory in a list.

    Attributes:
        words: The words to show: of a long memory the matching passage, or its beginning.
        is_cut: There is more of it.
        title: Of the session that it comes from, or "".
        replaced_by: What replaced it for certain, and `doubted_by` what may have.
        score: Of a hit; None in a list.
        reasons: What the score is made of.
        about: A word of the query that it has, or "".
        evidence: The turns that it rests on, without rows of their own.
    """

    memory: MemoryRecord
    words: str
    is_cut: bool
    title: str
    kind: str
    replaced_by: Sequence[MemoryRecord] = ()
    doubted_by: Sequence[MemoryRecord] = ()
    score: float | None = None
    reasons: Sequence[str] = ()
    answers: str = ""
    about: str = ""
    evidence: Sequence[MemoryRecord] = ()

    def said(self, now: datetime) -> str:
        """Who said it and when, as the beginning of a sentence."""
        return said_of(self.memory, now)

    @property
    def is_past(self) -> bool:
        """Whether something replaced it."""
        return bool(self.replaced_by)


_LIST_CHARS: Final = 400


def shown(
    found: Hit | MemoryRecord,
    *,
    later: Mapping[str, Sequence[Successor]],
    titles: Mapping[str, str],
    evidence: Mapping[str, Sequence[MemoryRecord]] = MappingProxyType({}),
    query: str = "",
) -> ListedMemory:
    """A memory or a hit as lists show it.

    Args:
        found: What is shown.
        later: What replaces memories, by id.
        titles: Of sessions, by id.
        evidence: The turns that facts rest on, by id, where they have no rows of their own.
        query: What was searched.
    """
    hit = found if isinstance(found, Hit) else None
    memory = found.memory if isinstance(found, Hit) else found
    text = hit.passage.text if hit is not None and hit.passage is not None else memory.content
    words = one_line(text, _LIST_CHARS)
    successors = later.get(memory.id, ())
    return ListedMemory(
        memory=memory,
        words=words,
        is_cut=len(" ".join(memory.content.split())) > len(words),
        title=titles.get(memory.source.session or "", ""),
        kind=memory.memory_type.capitalize() if memory.kind == "fact" else KIND_OF[memory.kind],
        replaced_by=[one.memory for one in successors if one.is_certain],
        doubted_by=[one.memory for one in successors if not one.is_certain],
        score=None if hit is None else hit.score,
        reasons=() if hit is None else reasons_of(hit),
        answers=one_line(hit.answers, 160) if hit is not None and hit.answers else "",
        about=shared_word(query, memory.content),
        evidence=evidence.get(memory.id, ()),
    )


_RELATIONS: Final[Mapping[str, tuple[str, str]]] = {
    "supersedes": ("replaced", "replaced by"),
    "may_replace": ("may replace", "may be replaced by"),
    "contradicts": ("disagrees with", "disagrees with"),
    "elaborates": ("adds to", "detailed by"),
    "restates": ("says again", "said again in"),
    "derived_from": ("rests on", "led to"),
    "related": ("related", "related"),
}


def relation_words(relation: str, *, outgoing: bool) -> str:
    """How a memory is related to another: for the source of an edge or, if not `outgoing`, its target."""
    words = _RELATIONS.get(relation)
    if words is None:
        return one_line(relation.replace("_", " "), 40)
    return words[0 if outgoing else 1]


_FIELDS: Final = {
    "content": "words",
    "tags": "tags",
    "tier": "tier",
    "memory_type": "type",
    "importance": "importance",
    "priority": "priority",
    "decay_rate": "decay",
    "speaker": "who said it",
    "said_at": "day on which it was said",
    "valid_from": "day from which it holds",
    "valid_to": "day until which it holds",
    "pinned": "pin",
    "time": "kind of time",
    "discretion": "discretion",
    "kept_from": "people that it is kept from",
    "spheres": "parts of life",
    "edge": "link",
}
_WHO: Final = {
    "user": "You",
    "agent": "The agent",
    "distill": "Distilling",
    "compare": "Comparing",
    "upgrade": "An upgrade",
}
"""Older histories name `compare`, which compared words, and what an upgrade took back of it."""
_DID: Final = {
    "add": "stored it",
    "edit": "changed it",
    "tier": "changed its tier",
    "link": "linked it",
    "unlink": "removed a link",
    "supersede": "let a newer memory take the place of an older one",
    "keep": "looked at it and kept it",
    "undo": "undid a change",
    "forget": "forgot it",
}


def change_words(change: Change) -> str:
    """A change as a sentence, such as "You changed the words, tags."."""
    who = _WHO.get(change.who, one_line(change.who, 60))
    fields = [field_words(name) for name in changed_fields(change)]
    if fields == ["pinned"]:
        return f"{who} {'pinned it' if change.after.get('pinned') else 'unpinned it'}."
    if change.action == "edit" and fields:
        return f"{who} changed the {', '.join(fields)}."
    return f"{who} {_DID.get(change.action, change.action)}."


def field_words(name: str) -> str:
    """The name of a field of a change."""
    return _FIELDS.get(name, name.replace("_", " "))


def changed_fields(change: Change) -> list[str]:
    """The fields that a change is about, besides the link."""
    return [name for name in {**change.before, **change.after} if name not in ("edge", "said_offset_min")]


def value_words(name: str, value: Any) -> str:
    """A value of a field of a change, for people."""
    if name in ("said_at", "valid_from", "valid_to") and isinstance(value, str) and value:
        return value[:10]
    match value:
        case None | "":
            return "nothing"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(str, value)) or "nothing"
        case _:
            return one_line(str(value), 400)


def receipt_sentence(memories: int, with_it: int, places: int) -> str:
    """What was forgotten, in one line."""
    text = f"Forgotten: {counted(memories, 'memory', 'memories')}"
    if with_it:
        text += f", {with_it:,} of them because they rested on it alone"
    if places:
        text += f", and its words in {counted(places, 'conversation log')}"
    return f"{text}."
