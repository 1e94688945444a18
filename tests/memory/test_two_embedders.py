"""A second embedder for what the first doesn't read: by itself, beside it, and without it where it can't be had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from satchel.clock import ManualClock
from satchel.errors import EmbedderError
from satchel.memory import Memory
from satchel.memory.text.languages import language_of
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import EmbedderInfo, EmbedRole, FetchedEmbedder, Vectors
from satchel.storage import Database
from tests.memory.embedders import Counting
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

VECTORS = (
    "SELECT m.name, r.content FROM memory_vectors v JOIN embedding_models m ON m.id = v.model_id "
    "JOIN memories r ON r.rid = v.rid ORDER BY r.rid, m.id"
)
ENGLISH = "My sister Mara lives in Leeds and works as a nurse."
GERMAN = "Ich bin allergisch gegen Erdnüsse und esse kein Fleisch."
CHINESE = "我住在杭州，在一家外贸公司工作。"
HUNGARIAN = "A macskám egész nap alszik."


class First(Counting):
    """Reads English."""

    def __init__(self) -> None:
        super().__init__("first")
        self._info = EmbedderInfo(
            id="first", dimension=512, max_tokens=4096, threshold=0.3, script="LATIN", languages=("en",)
        )


class Other(Counting, FetchedEmbedder):
    """Reads German, Chinese and English, with vectors of another length; it has to be fetched first.

    Attributes:
        fails: How many calls it answers before it fails; None for all.
    """

    def __init__(self, *, here: bool = True, can_fetch: bool = True, fails: int | None = None) -> None:
        super().__init__("other")
        self.here = here
        self.can_fetch = can_fetch
        self.fails = fails
        self.calls = 0
        self._info = EmbedderInfo(
            id="other", dimension=256, max_tokens=4096, threshold=0.3, languages=("de", "en", "zh")
        )

    def is_here(self) -> bool:
        return self.here

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        self.calls += 1
        if not self.here and not self.can_fetch:
            raise EmbedderError("The second embedding model is not on this machine and could not be fetched.")
        self.here = True
        if self.fails is not None and self.calls > self.fails:
            raise EmbedderError("The second embedding model can't be loaded: damaged.")
        rows = await super().embed(texts, role)
        folded = rows[:, :256] + rows[:, 256:] + np.float32(0.01)
        return np.asarray(folded / np.linalg.norm(folded, axis=1, keepdims=True), dtype=np.float32)


async def vectors(database: Database) -> list[tuple[str, str]]:
    return [
        (name, content[:9])
        for name, content in await database.read(
            lambda connection: [tuple(row) for row in connection.execute(text(VECTORS))]
        )
    ]


async def stored(memory: Memory, *texts: str) -> None:
    for one in texts:
        await memory.add(one)


@requirement("memory:languages:second")
async def test_each_text_gets_vectors_of_the_embedder_that_reads_its_language(tmp_path: Path) -> None:
    first, other = First(), Other()
    async with Database.open(tmp_path / "m.db") as database:
        async with Memory.open(database, embedder=first, second_embedder=other, back_fill=False) as memory:
            await stored(memory, ENGLISH, GERMAN, CHINESE, HUNGARIAN)
            for question, expected in (
                ("Wogegen bin ich allergisch?", GERMAN),
                ("Where does my sister live?", ENGLISH),
                ("我住在哪里？", CHINESE),
            ):
                hits = await memory.search(question)
                assert hits[0].memory.content == expected
                assert hits[0].signals["dense"] is not None
            # Each question is compared with the rows of every embedder that reads it.
            compared = {
                hit.memory.content: hit.signals["dense"] for hit in await memory.search("Where is my sister?")
            }
            assert None not in compared.values()
            by_german = {
                hit.memory.content: hit.signals["dense"] for hit in await memory.search("Wo ist die Katze?")
            }
            assert by_german[GERMAN] is not None
            assert by_german.get(ENGLISH) is None
            stats = await memory.stats()
            assert (stats.memories, stats.embedded) == (4, 4)
            assert memory.degraded is None
        # What neither reads, and what tells nothing of its language, is the first one's.
        assert await vectors(database) == [
            ("first", ENGLISH[:9]),
            ("other", GERMAN[:9]),
            ("other", CHINESE[:9]),
            ("first", HUNGARIAN[:9]),
        ]
    assert set(first.documents) - {"dimension"} == {ENGLISH, HUNGARIAN}
    assert set(other.documents) - {"dimension"} == {GERMAN, CHINESE}


@requirement("memory:languages:second")
async def test_nothing_of_the_second_is_asked_or_written_while_there_is_no_text_for_it(
    tmp_path: Path,
) -> None:
    other = Other(here=False)
    with_it: list[object] = []
    for second in (other, None):
        async with Memory.open(
            tmp_path / f"{second is None}.db",
            embedder=First(),
            second_embedder=second,
            clock=ManualClock(),
            back_fill=False,
        ) as memory:
            await stored(memory, ENGLISH, "I ski in winter.", "OK", "Mara's number is 555 1234.")
            await memory.embed_pending()
            hits = await memory.search("Where does my sister work?")
            shown = await memory.surface(["Where does my sister work?"])
            with_it.append(
                (
                    [(hit.memory.content, hit.score, hit.signals) for hit in hits],
                    [hit.memory.content for hit in shown.memories],
                )
            )
    assert with_it[0] == with_it[1]
    assert other.calls == 0
    async with Database.open(tmp_path / "False.db") as database:
        assert {name for name, _ in await vectors(database)} == {"first"}


@requirement("memory:languages:second")
async def test_an_english_message_beside_texts_of_the_second_is_shown_what_it_was_shown_before(
    minilm_home: Path,
) -> None:
    shown = []
    for second in ("none", Other()):
        async with Memory.open(
            ":memory:", home=minilm_home, second_embedder=second, back_fill=False
        ) as memory:
            await stored(memory, "My sister Mara is allergic to shellfish.", "I ski in winter.", GERMAN)
            await memory.search("warm")
            found = await memory.surface(["Mara is coming on Friday.", "What should I cook for her?"])
            shown.append({hit.memory.content: hit.score for hit in found.memories})
    # Before the second has its own table of associations, that of the first serves all the same.
    mara = "My sister Mara is allergic to shellfish."
    assert shown[1][mara] == pytest.approx(shown[0][mara], abs=0.05)


@requirement("memory:languages:second")
async def test_cues_are_compared_by_the_embedder_that_reads_the_question(tmp_path: Path) -> None:
    async with Memory.open(
        tmp_path / "m.db", embedder=First(), second_embedder=Other(), back_fill=False
    ) as memory:
        await memory.add(ENGLISH)
        await memory.add(GERMAN, cues=["ein Restaurant auswählen", "für Gäste kochen"])
        await memory.add("I ski in winter.", cues=["packing for the mountains"])
        await memory.embed_pending()
        for question, expected in (
            ("Welches Restaurant soll ich auswählen?", GERMAN),
            ("packing for the mountains", "I ski in winter."),
        ):
            assert (await memory.search(question))[0].memory.content == expected


@requirement("memory:languages:offline")
async def test_until_the_second_is_fetched_words_alone_find_its_texts_and_nobody_waits(
    tmp_path: Path,
) -> None:
    other = Other(here=False)
    async with Memory.open(
        tmp_path / "m.db", embedder=First(), second_embedder=other, back_fill=False
    ) as memory:
        await stored(memory, ENGLISH, GERMAN)
        hits = await memory.search("Wogegen bin ich allergisch?")
        assert hits[0].memory.content == GERMAN
        # Nor does the first embedder put what it has read before it.
        assert all(hit.signals["dense"] is None for hit in hits)
        assert (await memory.search("Where does my sister live?"))[0].signals["dense"] is not None
        await memory.surface(["Wogegen bin ich allergisch?"])
        assert other.calls == 0  # a search and a turn don't fetch it
        assert "not embedded yet" in (memory.degraded or "")
        done = await memory.reindex()
        assert (done.embedded, done.left, done.trouble) == (1, 0, None)
        hits = await memory.search("Wogegen bin ich allergisch?")
        assert hits[0].signals["dense"] is not None
        assert memory.degraded is None


@requirement("memory:languages:offline")
async def test_a_second_that_cannot_be_had_is_told_and_harms_nothing(tmp_path: Path) -> None:
    other = Other(here=False, can_fetch=False)
    async with Memory.open(
        tmp_path / "m.db", embedder=First(), second_embedder=other, back_fill=False
    ) as memory:
        await stored(memory, ENGLISH, GERMAN)
        await memory.embed_pending()
        assert (memory.degraded or "").startswith("Texts in other languages are found only by their words:")
        assert "could not be fetched" in (memory.degraded or "")
        assert (await memory.search("allergisch"))[0].memory.content == GERMAN
        hits = await memory.search("Where does my sister live?")
        assert hits[0].memory.content == ENGLISH
        assert hits[0].signals["dense"] is not None
        assert (await memory.check()).embedder_trouble is not None


@requirement("memory:languages:offline")
async def test_a_second_that_fails_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    texts = [f"Das ist der Satz mit der Nummer {number} und nicht mehr." for number in range(100)]
    for fails in (2, None):
        async with Memory.open(
            path, embedder=First(), second_embedder=Other(fails=fails), back_fill=False
        ) as memory:
            if fails:
                await stored(memory, ENGLISH, *texts)
            done = await memory.reindex()
            if fails:
                assert 0 < done.embedded < 101
                assert done.left == 101 - done.embedded
                assert len(await memory.search("Satz mit der Nummer 7")) > 0
                assert "damaged" in (memory.degraded or "")
            else:
                assert done.left == 0
                assert memory.degraded is None
    async with Database.open(path) as database:
        assert len(await vectors(database)) == 101


@requirement("memory:languages:moves")
async def test_texts_that_the_first_embedded_move_to_the_second_and_back_when_it_is_turned_off(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.db"

    async def opened_with(second: Other | None, expected: list[tuple[str, str]]) -> None:
        async with Database.open(path) as database:
            async with Memory.open(
                database, embedder=First(), second_embedder=second, back_fill=False
            ) as memory:
                if not await memory.count():
                    await stored(memory, ENGLISH, GERMAN, "Mein Zahnarzt ist der Mann von Frau Weiß.")
                await memory.search("warm")  # an index that has what was there before
                await memory.reindex()
                hits = await memory.search("Wogegen bin ich allergisch?")
                assert hits[0].memory.content == GERMAN
                assert hits[0].signals["dense"] is not None
                assert len(hits) == len({hit.memory.id for hit in hits})
                assert (await memory.stats()).embedded == 3
            assert await vectors(database) == expected

    english, german, more = ("first", ENGLISH[:9]), ("first", GERMAN[:9]), ("first", "Mein Zahn")
    moved = [english, ("other", GERMAN[:9]), ("other", "Mein Zahn")]
    await opened_with(None, [english, german, more])
    await opened_with(Other(), moved)
    await opened_with(Other(), moved)
    # Turned off: the first embeds them again; what the second made stays for the case that it is turned on.
    both = [english, german, ("other", GERMAN[:9]), more, ("other", "Mein Zahn")]
    await opened_with(None, both)
    await opened_with(Other(), both)


@requirement("memory:languages:second")
async def test_a_text_in_three_languages_goes_to_one_of_them_and_is_found_by_each(tmp_path: Path) -> None:
    mixed = "我的姐姐住在汉堡。 Meine Schwester wohnt in Hamburg. My sister lives in Hamburg."
    async with Memory.open(
        tmp_path / "m.db", embedder=First(), second_embedder=Other(), back_fill=False
    ) as memory:
        await stored(memory, ENGLISH, GERMAN, CHINESE, mixed)
        for question in ("Wer wohnt in Hamburg?", "Who lives in Hamburg?", "谁住在汉堡？"):
            assert (await memory.search(question))[0].memory.content == mixed
        shown = await memory.recall([f"{mixed} {GERMAN} {CHINESE}"])
        assert shown.context is not None


@requirement("memory:languages:second")
async def test_forgetting_takes_the_vectors_of_the_second_too(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "m.db") as database:
        async with Memory.open(
            database, embedder=First(), second_embedder=Other(), back_fill=False
        ) as memory:
            await stored(memory, ENGLISH, GERMAN, CHINESE)
            assert (await memory.search("allergisch"))[0].memory.content == GERMAN
            await memory.forget(ids=[(await memory.search("allergisch"))[0].memory.id])
            assert GERMAN not in [
                hit.memory.content for hit in await memory.search("Wogegen bin ich allergisch?")
            ]
        assert await vectors(database) == [("first", ENGLISH[:9]), ("other", CHINESE[:9])]


def test_an_embedder_that_reads_everything_needs_no_second() -> None:
    assert HashingEmbedder().info.languages == ()


@requirement("memory:languages:told")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("I moved to Leeds last year.", "en"),
        ("OK", "en"),
        ("", "en"),
        ("12:30, 555 1234", "en"),
        ("Noémie Walsh lives in Montréal and works for the city.", "en"),
        ("Bisi's contract was to end in December 2026.", "en"),
        ("Morgen habe ich um zehn einen Termin beim Zahnarzt.", "de"),
        ("Je ne mange pas de viande, mais j'aime le poisson.", "fr"),
        ("Mañana tengo cita con el dentista.", "es"),
        ("Domani non posso venire, ho il dentista alle dieci.", "it"),
        ("Amanhã não posso, tenho de ir ao dentista.", "pt"),
        ("Morgen heb ik om tien uur een afspraak bij de tandarts.", "nl"),
        ("Jutro mam wizytę u dentysty o dziesiątej.", "pl"),
        ("Yarın saat onda diş hekimine gidiyorum, ama çok korkuyorum.", "tr"),
        ("Завтра в десять я иду к зубному врачу.", "ru"),
        ("غدا لدي موعد مع طبيب الأسنان", "ar"),
        ("明天十点我要去看牙医。", "zh"),
        ("明日は十時に歯医者の予約があります。", "ja"),
        ("내일 열 시에 치과 예약이 있어요.", "ko"),
        ("พรุ่งนี้ฉันมีนัดหมอฟันตอนสิบโมง", "th"),
        ("Αύριο έχω ραντεβού στον οδοντίατρο.", "other"),
        ("麻烦翻译: Hi", "zh"),
    ],
)
def test_the_language_of_a_text_is_told_by_script_and_function_words(said: str, expected: str) -> None:
    assert language_of(said) == expected
