"""What reaches the model: associations, one line a thing, passages, what comes from outside, a small model that chooses."""

from __future__ import annotations

import json
import string
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from satchel.clock import ManualClock
from satchel.errors import ModelUnavailable
from satchel.memory import Episode, Memory
from satchel.memory.find.associations import associations_of
from satchel.memory.find.relevance import examples
from satchel.memory.show import judging
from satchel.memory.show.choosing import LINE_FEATURES, MESSAGE_FEATURES, need_words, shipped_weights
from satchel.memory.text.block import strip_injected
from satchel.models.embedding import MINILM, HashingEmbedder
from satchel.models.port import ModelRequest
from satchel.models.scripted import Reply, ScriptedModel
from tests.memory.embedders import Counting
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

WHEN = datetime(2026, 5, 8, 13, 56, tzinfo=UTC)
TEXTS = Path(__file__).parents[2] / "benchmarks" / "data" / "associations.json"
ALLERGY = "My sister Mara is allergic to shellfish."


def said(turn: int, text: str, *, session: str = "s1", speaker: str = "user") -> Episode:
    return Episode(session=session, turn=turn, speaker=speaker, text=text, said_at=WHEN)


# What holds now.


def on(day: int, text: str, *, session: str | None = None) -> Episode:
    return Episode(
        session=session or f"s{day}",
        turn=1,
        speaker="user",
        text=text,
        said_at=datetime(2026, 1, day, tzinfo=UTC),
    )


async def shown(memory: Memory, message: str) -> list[str]:
    context = await memory.surface(message, threshold=0.0, limit=20)
    return [hit.memory.content for hit in context.memories]


@requirement("memory:surface:later")
async def test_a_turn_whose_fact_was_superseded_is_shown_with_what_holds_now() -> None:
    async with Memory.open(":memory:", embedder="none", back_fill=False) as memory:
        await memory.add_episodes([on(1, "My gym is the one in Hulme and the gym bag is blue.")])
        old = await memory.add("The user's gym is in Hulme.", session="s1", turn=1)
        middle = await memory.add("The user trains in Leeds.")
        newest = await memory.add("The user trains in York.")
        await memory.supersede(old, middle)
        await memory.supersede(middle, newest)
        # The newest has no word of the message.
        lines = await shown(memory, "Where is my gym bag from?")
        assert lines[0] == "The user trains in York."
        assert len(lines) == 2


@requirement("memory:surface:past")
@pytest.mark.parametrize(
    ("fact", "message", "is_shown"),
    [
        ("The patio opening moved to Friday, 13 March.", "Is the patio dry?", False),
        ("The dentist's appointment is on 13 March at ten.", "Find me a good dentist", False),
        ("The dentist's appointment is on 13 March at ten.", "When was my dentist's appointment?", True),
        ("The dentist's appointment is on 13 May at ten.", "Find me a good dentist", True),
        ("Der Termin beim Zahnarzt ist am 13. März.", "Empfiehl mir einen Zahnarzt", False),
        ("Der Termin beim Zahnarzt ist am 13. März.", "Wann war der Zahnarzt?", True),
        # What comes every year, what was over when it was said, what begins on a day, and what says more than the day.
        ("Mara's birthday is on Friday (2026-03-13).", "I need a present for Mara's birthday", True),
        ("Paul hat am 13.3.2026 Geburtstag.", "Ich brauche ein Geschenk zu Pauls Geburtstag", True),
        ("The cat Miso died on 13 February.", "What can I do about cat hair?", True),
        ("The dentist is Dr. Wulff since 13 March.", "Find me a good dentist", True),
        ("The dentist charged 240 euros on 13 March.", "Find me a good dentist", True),
        ("The user is allergic to latex, the dentist learned on 13 March.", "Find me a good dentist", True),
    ],
)
async def test_an_appointment_that_is_over_is_not_shown_unless_the_message_asks_about_the_past(
    fact: str, message: str, is_shown: bool
) -> None:
    clock = ManualClock(at=datetime(2026, 3, 1, tzinfo=UTC))
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        await memory.add(fact)
        assert await shown(memory, message) == [fact]
        clock.at = datetime(2026, 4, 20, tzinfo=UTC)
        assert await shown(memory, message) == ([fact] if is_shown else [])
        found = await memory.recall(message, threshold=0.0)
        assert is_shown or [why for _, why in found.left_out] == ["is over"]


@requirement("memory:surface:read")
async def test_a_turn_that_a_model_has_read_and_that_adds_nothing_to_its_facts_is_left_out() -> None:
    moved = "The hospital moved me to Thursday the 24th. Silas drives the van in St Just, so I tell him."
    asked, other = "and who'd mind the cat", "The cat Biscuit scratches vans."
    facts = [
        {"content": "User: at the hospital on Thursday the 24th", "quote": "moved me to Thursday the 24th",
         "time": "event", "when": "Thursday the 24th"},
        {"content": "Silas: drives the van in St Just", "quote": "Silas drives the van in St Just"},
    ]  # fmt: skip
    clock = ManualClock(at=datetime(2026, 9, 14, tzinfo=UTC))
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        await memory.add_episodes(
            Episode(session="s1", turn=turn, speaker="user", text=text, said_at=clock.now())
            for turn, text in enumerate((moved, asked, other), start=1)
        )
        await memory.distill(model=ScriptedModel([Reply(text=json.dumps({"facts": facts}))]))
        (silas,) = [one.id for one in await memory.list(kind="fact") if "Silas" in one.content]

        async def told(message: str) -> tuple[set[str], dict[str, str]]:
            found = await memory.recall(message, threshold=0.0, limit=20, exclude={silas})
            return (
                {hit.memory.content for hit in found.context.memories},
                {hit.memory.content: why for hit, why in found.left_out},
            )

        clock.at = datetime(2026, 10, 5, tzinfo=UTC)
        shown, left_out = await told("Silas gets the van scratched by the cat at the hospital of St Just.")
        assert (left_out[moved], left_out[asked]) == ("is over", "is only a question")
        assert other in shown
        # What the message asks about comes with all its words.
        assert moved in (await told("What do I tell Silas in St Just?"))[0]


@requirement("memory:surface:read")
@pytest.mark.parametrize(
    ("said", "fact", "quote", "message"),
    [
        (
            "Meine Zahnärztin ist Dr. Weber am Lendplatz, die blaue Mappe mitbringen.",
            "User: Zahnärztin Dr. Weber",
            "Meine Zahnärztin ist Dr. Weber",
            "Was brauche ich bei der Zahnärztin?",
        ),
        (
            "我的牙医是韦伯大夫，在广场边，带蓝色文件夹。",
            "User: 牙医是韦伯大夫",
            "我的牙医是韦伯大夫",
            "去看牙医要带什么？",
        ),
    ],
)
async def test_in_other_languages_too_what_a_message_asks_about_comes_with_all_its_words(
    said: str, fact: str, quote: str, message: str
) -> None:
    answer = Reply(text=json.dumps({"facts": [{"content": fact, "quote": quote}]}))
    async with Memory.open(":memory:", embedder="none", back_fill=False) as memory:
        await memory.add_episodes([Episode(session="s1", turn=1, speaker="user", text=said)])
        await memory.distill(model=ScriptedModel([answer]))
        (known,) = await memory.list(kind="fact")
        found = await memory.recall(message, threshold=0.0, exclude={known.id})
        assert [hit.memory.content for hit in found.context.memories] == [said]


@requirement("memory:surface:later")
@pytest.mark.parametrize(("weight", "comes"), [(0.2, True), (0.0, False)])
async def test_a_note_that_may_replace_another_one_comes_before_it(weight: float, comes: bool) -> None:
    async with Memory.open(":memory:", embedder="none", back_fill=False) as memory:
        old = await memory.add("The gym closes at ten.")
        new = await memory.add("They shut an hour earlier now.")
        await memory.link(new, old, "may_replace", weight)
        both = ["They shut an hour earlier now.", "The gym closes at ten."]
        assert await shown(memory, "When does the gym close?") == (both if comes else both[1:])


# Associations.


@requirement("memory:surface:associations")
async def test_a_request_finds_the_need_that_it_does_not_mention(minilm_home: Path) -> None:
    async with Memory.open(":memory:", home=minilm_home, back_fill=False) as memory:
        await memory.add("Mara is allergic to shellfish.")
        await memory.add("The car was bought in 2019.")
        shown = (await memory.surface("What can I cook tonight?")).memories
        assert [hit.memory.content for hit in shown] == ["Mara is allergic to shellfish."]
        assert (shown[0].signals["called"] or 0) > 0.5


@requirement("memory:surface:associations")
def test_the_table_that_comes_with_the_package_is_that_of_the_texts() -> None:
    found = json.loads(TEXTS.read_text(encoding="utf-8"))
    topics, situations = found["topics"], found["situations"]
    table = associations_of(MINILM.id)
    assert table is not None
    assert table.spheres == tuple(one.get("sphere", "") for one in topics.values())
    rows = [[one["topics"].get(name, 0.0) for name in topics] for one in situations.values()]
    assert table.weights.round(2).tolist() == np.array(rows, np.float32).round(2).tolist()
    assert (len(table.topics), len(table.situations)) == (len(topics), len(situations))
    assert associations_of("another") is None


@requirement("memory:surface:associations-sent")
async def test_an_embedder_elsewhere_is_sent_what_the_user_said_and_no_built_in_table() -> None:
    said, asked = "The zorp sail is torn.", "quib harbour today"
    embedder = Counting()
    async with Memory.open(":memory:", embedder=embedder) as memory:
        await memory.add(said)
        await memory.embed_pending()
        assert (await memory.surface(asked, threshold=0.0)).memories[0].signals["called"] == 0.0
    assert set(embedder.documents) == {said}
    assert set(embedder.queries) == {asked, *(text for text, _ in examples())}


# One line for a thing.


@requirement("memory:surface:one-line")
async def test_a_fact_its_turn_and_the_assistants_echo_are_one_line() -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        await memory.add_episodes(
            [
                said(1, "By the way, my sister Mara is allergic to shellfish."),
                said(1, "Noted: your sister Mara is allergic to shellfish.", speaker="assistant"),
                said(2, "Mara lives in Basel and is never allergic to Basel."),
            ]
        )
        fact = await memory.add("Mara is allergic to shellfish.", session="s1", turn=1)
        recall = await memory.recall("Is Mara allergic to shellfish?", threshold=0.05)
        lines = [hit.memory.content for hit in recall.context.memories]
        assert lines[0] == "Mara is allergic to shellfish."
        assert "Mara lives in Basel and is never allergic to Basel." in lines
        assert len(lines) == 2
        assert "says the same as a line that is shown" in {why for _, why in recall.left_out}
        # Without the fact, the user's own words are the line.
        await memory.forget([fact])
        shown = (await memory.surface("Is Mara allergic to shellfish?", threshold=0.05)).memories
        assert "By the way, my sister Mara is allergic to shellfish." in [hit.memory.content for hit in shown]


@requirement("memory:surface:passages")
async def test_of_an_essay_the_passage_that_fits_is_shown_with_its_place() -> None:
    filler = ["The lake was calm and the boats went out before noon, one after the other." for _ in range(14)]
    essay = " ".join([*filler, "For Mara, cook without shellfish, as she is allergic to it.", *filler])
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        await memory.add_episodes([said(1, essay, speaker="assistant")])
        context = await memory.surface("Is Mara allergic to shellfish?", threshold=0.0)
        block = context.text
        assert "cook without shellfish" in block
        assert "turn 1, part 3 of " in block
        assert context.tokens < 240
        # What comes back is known for what it is: the block, and its line alone.
        assert strip_injected(f"before\n{block}\nafter") == "before\nafter"
        line = block.split("\n")[2]
        await memory.add_episodes([said(2, f"See\n{line}\nthere.")])
        assert (await memory.list(session="s1"))[0].content == "See\nthere."
        # Of a table, under its head.
        rows = "".join(f"Quab{at} | 5-{at} | R{at}\n" for at in range(90))
        await memory.add(f"Name | Phone | Room\n{rows}", trust="outside")
        [_, _, line, *_] = (await memory.surface("Which room has Quab41?", threshold=0.0)).text.split("\n")
        assert ': "Name | Phone | Room … ' in line
        assert "Quab41 | 5-41 | R41" in line


async def test_a_line_of_an_older_block_is_known_too() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        await memory.add_episodes([said(3, ALLERGY, speaker="Ann")])
        line = f'- 2026-05-08, Ann, session s1 turn 3: "{ALLERGY}"'
        await memory.add_episodes([said(4, f"See\n{line}\nthere.")])
        assert (await memory.list(session="s1"))[0].content == "See\nthere."


# What comes from outside, and odd messages.


@requirement("memory:surface:outside-share")
async def test_what_comes_from_outside_gets_at_most_its_share() -> None:
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        for word in string.ascii_lowercase:
            text = (
                f"What Mara is allergic to, {word * 5} knows: the {word * 6} of {word * 7}, the {word * 8}."
            )
            await memory.add(text, trust="outside")
        own = [await memory.add(f"Mara is allergic to {what}.") for what in ("kiwi", "latex", "wool")]
        context = await memory.surface(
            "What is Mara allergic to?", threshold=0.0, limit=6, budget_tokens=2_000
        )
        outside = [hit for hit in context.memories if hit.memory.trust == "outside"]
        assert len(outside) == 2
        assert {hit.memory.id for hit in context.memories} >= set(own)


@requirement("memory:surface:odd-messages")
@pytest.mark.parametrize(
    "message",
    [
        "2026-01-01 12:00:00 ERROR worker 7 died, restarting in 3 s\n" * 1_800,
        "Wie geht es Mara? Est-ce qu'elle mange du poisson ? 她对贝类过敏吗",
        "shellfish",
        "",
        "?",
        "\u202e\u200b",
        "x" * 100_000,
    ],
    ids=["log", "three languages", "word", "none", "mark", "invisible", "one long word"],
)
@pytest.mark.parametrize("embedder", [HashingEmbedder(), "none"], ids=["vectors", "words"])
async def test_odd_messages_get_the_right_lines_or_none(
    message: str, embedder: HashingEmbedder | str
) -> None:
    async with Memory.open(":memory:", embedder=embedder) as memory:
        await memory.add(ALLERGY)
        await memory.add_episodes([said(turn, f"On day {turn} it rained in Basel.") for turn in range(5)])
        context = await memory.surface(["Hello.", message], budget_tokens=200)
        assert context.tokens <= 200
        assert {hit.memory.content for hit in context.memories} <= {ALLERGY}


# The weights are data.


@requirement("memory:surface:explained")
@pytest.mark.parametrize("with_vectors", [True, False])
async def test_every_weight_has_an_explained_feature_and_every_hit_says_what_was_weighed(
    with_vectors: bool,
) -> None:
    weights = shipped_weights(with_vectors=with_vectors)
    assert set(weights.line.weights) <= set(LINE_FEATURES)
    assert set(weights.message.weights) <= set(MESSAGE_FEATURES)
    embedder = HashingEmbedder() if with_vectors else "none"
    async with Memory.open(":memory:", embedder=embedder) as memory:
        await memory.add(ALLERGY)
        (hit,) = (await memory.surface("Is Mara allergic to shellfish?", threshold=0.0)).memories
    assert set(hit.signals) == set(weights.line.weights)


def test_what_kind_of_message_it_is_shows_in_its_words_whatever_the_language() -> None:
    assert {"ends ?", "begins when", "my dentist"} <= need_words("When is my dentist?")
    assert "ends ?" in need_words("牙医什么时候？")
    assert need_words("") == frozenset({"length 0"})


# A small model that chooses.


async def judged(reply: Reply | str) -> tuple[list[str], int]:
    """What is shown, and the calls that were counted."""
    model = ScriptedModel([reply if isinstance(reply, Reply) else Reply(text=reply)])
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        await memory.add(ALLERGY)
        await memory.add("The cat is called Pixel.")
        context = await memory.surface("Is Mara allergic to shellfish?", judge=model)
        spent = [row for row in await memory.spent() if row.purpose == "judge"]
        return [hit.memory.content for hit in context.memories], sum(row.calls for row in spent)


@requirement("memory:surface:judge")
async def test_a_small_model_chooses_among_the_candidates() -> None:
    assert await judged("[2]") == (["The cat is called Pixel."], 1)
    assert await judged("Needed: [2, 1]") == (["The cat is called Pixel.", ALLERGY], 1)
    assert await judged("[]") == ([], 1)


@requirement("memory:surface:judge")
@pytest.mark.parametrize("answer", ["", "I can't say.", "[7, 99, -1, 0]", '["m1"]', "[true]", "[1", "[[1]"])
async def test_an_answer_without_usable_numbers_changes_nothing(answer: str) -> None:
    shown, calls = await judged(answer)
    assert shown == [ALLERGY]
    assert calls == 1


@requirement("memory:surface:judge")
async def test_a_small_model_that_is_late_or_fails_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await judged(Reply(error=ModelUnavailable("down"))))[0] == [ALLERGY]
    monkeypatch.setattr(judging, "WITHIN_S", 0.01)
    shown, calls = await judged(Reply(before=anyio.sleep_forever, text="[2]"))
    assert shown == [ALLERGY]
    assert calls == 1


PAGE = (
    "So much has happened since we last spoke, I hardly know where to begin with it all today. "
    "The garden is under water again, the neighbours are away, and nobody has seen the cat since Monday. "
    "The trains were late three times this week, which is a record even for this line, as everybody says. "
    "By the way, the price of the berth at the boathouse is now 4471, and Ann has the only other key. "
    "That is all for now, I think, and more than enough for one evening, so I wish you a good night."
)


@requirement("memory:surface:judge")
async def test_the_judge_reads_what_would_be_shown_of_a_long_memory_the_day_and_both_ends_of_a_long_message() -> (
    None
):
    model = ScriptedModel([Reply(text="[1]")])
    clock = ManualClock(at=datetime(2026, 5, 9, 8, tzinfo=UTC))
    asked = "What is the price of the berth at the boathouse?"
    async with Memory.open(":memory:", embedder=HashingEmbedder(), clock=clock) as memory:
        await memory.add_episodes([said(0, PAGE)])
        context = await memory.surface(f"Morning! {'Lorem ipsum dolor. ' * 500}{asked}", judge=model)
    prompt = model.requests[0].messages[0].text
    assert prompt.startswith("Today is 2026-05-09 Sat.\n")
    assert '- "Morning! Lorem' in prompt
    assert f'{asked}"' in prompt
    assert len(prompt) < 2_000
    (line,) = [
        line
        for line in prompt.splitlines()
        if line.startswith("1. 2026-05-08 Fri, user, session s1 turn 0: ")
    ]
    assert "is now 4471" in line
    assert "is now 4471" in context.text


@requirement("memory:surface:judge")
async def test_the_judge_is_not_asked_about_what_stands_before_the_model_anyway() -> None:
    model = ScriptedModel([Reply(text="[1]")])
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        allergy = await memory.add(ALLERGY)
        question = "Is Mara allergic to shellfish?"
        context = await memory.surface(question, standing=[allergy], judge=model)
        assert not model.requests
        assert (context.memories, [hit.memory.id for hit in context.standing]) == ((), [allergy])
        await memory.add("The cat is called Pixel.")
        context = await memory.surface(question, standing=[allergy], judge=model)
    assert 'shellfish."' not in model.requests[0].messages[0].text
    assert [hit.memory.content for hit in context.memories] == ["The cat is called Pixel."]
    assert [hit.memory.id for hit in context.standing] == [allergy]


@requirement("memory:surface:judge")
async def test_the_judge_reads_a_text_once_however_often_it_was_said() -> None:
    model = ScriptedModel([Reply(text="[2]")])
    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        await memory.add_episodes([said(turn, "Mara likes her tea strong.") for turn in range(30)])
        await memory.add(ALLERGY)
        context = await memory.surface("Is Mara allergic to shellfish?", judge=model, threshold=0.0)
    prompt = model.requests[0].messages[0].text
    assert (prompt.count("tea strong"), prompt.count("allergic to shellfish.")) == (1, 1)
    assert len(context.memories) == 1


@requirement("memory:surface:judge")
async def test_the_time_counts_from_when_the_model_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "WITHIN_S", 0.0)

    def load(_: ModelRequest) -> Reply:
        # What blocks the event loop before the request is under way, as loading a client does, is not counted.
        monkeypatch.setattr(judging, "WITHIN_S", 60.0)
        return Reply(text="[2]", before=anyio.lowlevel.checkpoint)

    async with Memory.open(":memory:", embedder=HashingEmbedder()) as memory:
        await memory.add(ALLERGY)
        await memory.add("The cat is called Pixel.")
        context = await memory.surface("Is Mara allergic to shellfish?", judge=ScriptedModel(load))
    assert [hit.memory.content for hit in context.memories] == ["The cat is called Pixel."]


# Passages.


@requirement("memory:surface:passages")
async def test_a_long_text_in_a_script_without_spaces_is_shown_from_the_sentence_that_fits() -> None:
    text = (
        "今天的事情一件接一件，早上样品间漏水，中午货代说舱位又没有了，下午小方把两个客户的报价单发反了。"
        "刚坐下喝口水，汉堡那边来消息，说想跟我们一起过一遍第二批彩盒。船库警报器的密码改成四四七一了。"
        "晚上还要去接孩子，明天再说吧，真是累得不行，什么也不想做了。"
    )
    async with Memory.open(":memory:", embedder="none", back_fill=False) as memory:
        await memory.add_episodes([said(0, text)])
        context = await memory.surface("船库警报器的密码是多少？", threshold=0.0)
    assert [hit.memory.content for hit in context.memories] == [text]
    assert "彩盒。船库警报器的密码改成四四七一了。晚上还要" in context.text
    assert context.tokens <= 240
