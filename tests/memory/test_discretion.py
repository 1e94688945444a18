"""What the user wants held back stays out of everything that is shown unasked, and nobody else is told anything."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.errors import UsageError
from satchel.memory import Episode, Memory, MemoryRecord
from satchel.memory.text.discretion import wish_of
from satchel.memory.toolset import MemoryTools
from satchel.messages import Message, TextBlock
from satchel.models import ModelRequest, Reply, ScriptedModel
from tests.memory.test_toolset import call, context
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.every_database]

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@asynccontextmanager
async def opened(where: str | Path = ":memory:") -> AsyncIterator[Memory]:
    clock = ManualClock(at=NOON)
    async with Memory.open(where, embedder="none", clock=clock, back_fill=False) as memory:
        yield memory


async def talk(memory: Memory, *said: str, answer: str = "Noted.", session: str = "s") -> None:
    """Each message of the user is a turn, stored with its answer, as a conversation stores it."""
    for number, text in enumerate(said, 1):
        await memory.add_episodes(
            [
                Episode(session=session, turn=number, speaker="user", text=text, position=0),
                Episode(
                    session=session, turn=number, speaker="assistant", text=answer, position=1, trust="agent"
                ),
            ]
        )


async def users(memory: Memory) -> list[MemoryRecord]:
    return [one for one in reversed(await memory.list()) if one.source.position == 0]


async def users_in(memory: Memory, session: str) -> list[MemoryRecord]:
    return [one for one in await users(memory) if one.source.session == session]


async def everything_shown(memory: Memory, message: str) -> str:
    """All that a model is shown unasked."""
    shown = await memory.surface(message, threshold=0.0, limit=50, budget_tokens=5_000)
    profile, agenda = await memory.profile(), await memory.agenda()
    return "\n".join((shown.text, profile.text, agenda.text))


SAID = {
    "en": ("I am allergic to latex and see Dr. Okafor on Friday.", "Forget that.", "Please don't tell my boss."),
    "de": ("Ich bin gegen Latex allergisch und gehe am Freitag zu Dr. Okafor.", "Merk dir das nicht.", "Das bleibt unter uns."),
    "es": ("Soy alérgica al látex y el viernes voy al Dr. Okafor.", "No guardes eso.", "No se lo digas a mi jefe."),
    "fr": ("Je suis allergique au latex et vendredi je vais chez le Dr Okafor.", "Oublie ça.", "Ça reste entre nous."),
    "zh": ("我对乳胶过敏，星期五去看 Okafor 医生。", "这个不要记下来。", "别告诉我老板。"),
}  # fmt: skip


@requirement("memory:discretion:obeyed")
@pytest.mark.parametrize("language", SAID)
@pytest.mark.parametrize("is_confidential", [False, True])
async def test_a_wish_holds_back_the_turn_before_and_its_answer_in_every_language(
    language: str, is_confidential: bool
) -> None:
    secret, forget, confidential = SAID[language]
    wish = confidential if is_confidential else forget
    async with opened() as memory:
        await talk(memory, secret, answer="Latex and Okafor: noted.")
        before = await everything_shown(memory, f"Latex Okafor. {secret}")
        assert "Okafor" in before
        await talk(memory, secret, wish)
        shown = await everything_shown(memory, "Latex Okafor.")
        assert "Okafor" not in shown
        held = {one.discretion for one in await memory.list()}
        assert held == {"confidential" if is_confidential else "withheld"}
        # Whoever looks for it finds it, with the mark.
        found = {hit.memory.discretion for hit in await memory.search("Okafor")}
        assert found == {"confidential" if is_confidential else "withheld"}


LAST_NIGHT = {
    "en": ("Claire rang, it's sorted. Forget what I said last night.", "Forget what I said yesterday."),
    "de": ("Claire hat angerufen. Vergiss, was ich gestern Abend gesagt habe.", "Vergiss, was ich gestern gesagt habe."),
    "es": ("Claire ha llamado. Olvida lo que dije ayer.", "Olvida lo que dije ayer."),
}  # fmt: skip


@requirement("memory:discretion:obeyed")
@pytest.mark.parametrize("language", LAST_NIGHT)
async def test_a_wish_that_names_the_day_is_about_what_was_said_then(language: str) -> None:
    about, everything = LAST_NIGHT[language]
    for wish, held in ((about, ["open", "withheld", "open"]), (everything, ["withheld", "withheld", "open"])):
        async with opened() as memory:
            for hours, text in (
                (20, "My bike is a green Gazelle."),
                (17, "Claire is a selfish cow."),
                (3, "Claire likes tulips."),
            ):
                said_at = NOON - timedelta(hours=hours)
                await memory.add_episodes(
                    [Episode(session=f"s{hours}", turn=1, speaker="user", text=text, said_at=said_at)]
                )
            await talk(memory, wish, session="now")
            (asked,) = await users_in(memory, "now")
            told = {one.source.session for one in await memory.just_held_back([asked.id])}
            assert told == {
                "now",
                *(name for name, how in zip(("s20", "s17", "s3"), held, strict=True) if how != "open"),
            }
            found = {one.source.session: one.discretion for one in await memory.list()}
            assert [found["s20"], found["s17"], found["s3"]] == held
            assert "selfish" not in await everything_shown(memory, "What about Claire?")


@requirement("memory:discretion:obeyed")
@pytest.mark.parametrize(
    "wish",
    ["Forget what I told you about the dinner on Friday.", "Forget what I said about yesterday's dinner."],
)
async def test_a_day_in_a_wish_that_is_not_when_it_was_said_holds_back_nothing_else(wish: str) -> None:
    async with opened() as memory:
        # The Friday and the day before the wish, which is on a Monday.
        for days, text in ((3, "My bike is a green Gazelle."), (1, "My boat is a white sloop.")):
            said_at = NOON - timedelta(days=days)
            await memory.add_episodes(
                [Episode(session=f"s{days}", turn=1, speaker="user", text=text, said_at=said_at)]
            )
        await talk(memory, wish, session="now")
        held = {one.source.session for one in await memory.list() if one.discretion != "open"}
        assert held == {"now"}


@requirement("memory:discretion:obeyed")
async def test_a_wish_after_words_in_the_same_message_is_about_these_and_leaves_the_turn_before_alone() -> (
    None
):
    async with opened() as memory:
        await talk(memory, "I like tulips.", "I earn 80,000 euros. Don't keep that.", "I like roses.")
        assert [one.discretion for one in await users(memory)] == ["open", "withheld", "open"]


@requirement("memory:discretion:lifted")
async def test_what_a_later_turn_holds_back_is_in_the_history_survives_a_lost_database_and_is_undone(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for number in range(2):
        async with Memory.open(
            tmp_path / f"{number}.db", embedder="none", home=home, clock=ManualClock(at=NOON), back_fill=False
        ) as memory:
            if number == 0:
                await talk(memory, "I earn 80,000 euros.", "Forget that.")
            await memory.keep_up()
            said = await users(memory)
            assert [(one.discretion, one.kept_from) for one in said] == [
                ("withheld", "as asked in turn 2"),
                ("withheld", "Forget that."),
            ]
    async with opened() as memory:
        await talk(memory, "I earn 80,000 euros.", "Forget that.")
        first = (await users(memory))[0].id
        change = (await memory.history(first))[-1]
        assert (change.action, change.who, change.after["discretion"]) == ("edit", "user", "withheld")
        await memory.undo(change.id)
        assert (await memory.get(first)).discretion == "open"


@requirement("memory:discretion:taken-back")
async def test_what_was_said_in_anger_and_taken_back_is_read_for_no_fact_and_its_facts_go_too() -> None:
    model = ScriptedModel(lambda request: Reply(text=_fact(request)))
    async with opened() as memory:
        await talk(memory, "My neighbour Ohlrogge is a thief who steals our water.")
        report = await memory.distill(model=model)
        assert len(report.facts) == 1
        await talk(
            memory, "My neighbour Ohlrogge is a thief who steals our water.", "I take that back, I was angry."
        )
        report = await memory.distill(model=model)
        assert list(report.facts) == []
        assert not await memory.page()
        assert {one.discretion for one in await memory.list()} == {"withheld"}


def _fact(request: ModelRequest) -> str:
    if "read_before" in str(request.messages) or "thief" not in str(request.messages):
        return '{"facts": []}'
    return json.dumps(
        {"facts": [{"content": "The user's neighbour Ohlrogge is a thief.", "quote": "Ohlrogge is a thief"}]}
    )


@requirement("memory:discretion:confidential")
async def test_what_is_confidential_comes_when_the_user_asks_about_it_and_says_so() -> None:
    async with opened() as memory:
        await memory.add(
            "The user interviews at Novatek on Friday.", discretion="confidential", kept_from="my boss"
        )
        await memory.add("The user's boss likes short reports on Friday.")
        shown = await memory.surface("Write a mail to my boss: the report comes on Friday.", threshold=0.0)
        assert [hit.memory.content for hit in shown.memories] == [
            "The user's boss likes short reports on Friday."
        ]
        recalled = await memory.recall("Write a mail to my boss: the report comes on Friday.", threshold=0.0)
        assert [why for hit, why in recalled.left_out if "Novatek" in hit.memory.content] == [
            "is confidential, and you did not ask about it"
        ]
        # Words that only join others ask about nothing, in any language.
        await memory.add(
            "Je porte des patchs depuis que j'ai arrêté, et il y a encore ce rêve.", discretion="confidential"
        )
        await memory.add("Ich habe mir noch einen Termin bei der Beratung geholt.", discretion="confidential")
        for question in (
            "Qu'est ce que j'ai encore de prévu ?",
            "Was habe ich mir noch bei der Post geholt?",
        ):
            shown = await memory.surface(question, threshold=0.0)
            assert {hit.memory.discretion for hit in shown.memories} <= {"open"}, question
        asked = await memory.surface("C'est quoi, les patchs que je porte ?", threshold=0.0)
        assert "confidential" in asked.text
        asked = await memory.surface("When do I interview at Novatek?", threshold=0.0)
        assert (
            'noted by hand, confidential (my boss): "The user interviews at Novatek on Friday."' in asked.text
        )


@requirement("memory:discretion:extractor")
async def test_a_models_word_makes_a_fact_confidential_with_words_that_were_said() -> None:
    def answer(quote: str, words: str, content: str) -> dict[str, object]:
        return {"content": content, "quote": quote, "confidential": words, "spheres": ["health", "nonsense"]}

    found = [
        answer("I am expecting a baby", "Lena learns it from me", "The user is expecting a baby."),
        answer("I like tulips a lot", "", "The user likes tulips."),
        answer("my back hurts badly", "nobody said this", "The user's back hurts."),
    ]
    model = ScriptedModel(lambda request: Reply(text=json.dumps({"facts": found})))
    async with opened() as memory:
        await talk(
            memory,
            "I am expecting a baby. I want to be the one, Lena learns it from me. I like tulips a lot; my back hurts badly.",
        )
        await memory.distill(model=model)
        facts = await memory.list(kind="fact")
        assert {(one.content, one.discretion, one.kept_from, one.spheres) for one in facts} == {
            ("The user is expecting a baby.", "confidential", "Lena learns it from me", ("health",)),
            ("The user likes tulips.", "open", "", ("health",)),
            ("The user's back hurts.", "confidential", "", ("health",)),
        }


@requirement("memory:discretion:guest")
@pytest.mark.parametrize(
    ("announced", "back"),
    [
        ("It's his wife here. What does he like to eat?", "It's me again."),
        ("Hier ist seine Frau. Was isst er gern?", "Ich bin's wieder."),
        ("Soy su mujer. ¿Qué le gusta comer?", "Soy yo otra vez."),
        ("C'est sa femme. Qu'est-ce qu'il aime manger ?", "C'est moi de nouveau."),
        ("我是他老婆。他喜欢吃什么？", "又是我了。"),
    ],
)
async def test_a_guest_is_told_nothing_of_no_sphere_and_what_a_guest_says_is_not_the_users(
    announced: str, back: str
) -> None:
    async with opened() as memory:
        await memory.add("The user likes to eat goulash.")
        await talk(memory, announced, "I am allergic to nuts. What does he like to eat?", session="chat")
        said = await users(memory)
        assert [(one.speaker, one.trust) for one in said] == [("guest", "outside")] * 2
        assert "nuts" not in (await memory.profile()).text
        for messages in ([announced], [announced, "And goulash?"], ["What does he eat, goulash?"]):
            shown = await memory.surface(messages, exclude_session="chat", threshold=0.0)
            assert not shown
        why = await memory.recall("Does he eat goulash?", exclude_session="chat", threshold=0.0)
        assert [reason for hit, reason in why.left_out if "goulash" in hit.memory.content] == [
            "somebody else is speaking"
        ]
        assert not why.context
        await talk(memory, announced, "I am allergic to nuts.", f"{back} I like roses.", session="chat")
        assert (await users(memory))[-1].speaker == "user"
        assert await memory.surface("Do I eat goulash?", exclude_session="chat", threshold=0.0)


@requirement("memory:discretion:guest")
@pytest.mark.parametrize(
    ("said", "fact", "text", "is_guest"),
    [
        ("Moi c'est Bénédicte, tt le monde dit Béné.", "User: tient Chez Béné", "Salut c'est Béné !", False),
        ("My name is Bridget but everyone calls me Bee.", "User: runs Bee & Sons", "Hi, it's Bee!", False),
        ("Good morning.", "User: Bénédicte, dite Béné, 46 ans", "Salut c'est Béné !", False),
        ("Good morning.", "User: Jörn, Frau Heike, 67", "Heike hier, was ist?", True),
        ("Je m'appelle Béné.", "Friterie Chez Béné: fermée lundi", "Salut c'est Béné !", False),
        ("Renzo here, Trieste.", "Furlan: boss of Renzo", "Renzo here. What is on?", False),
        ("Kevin, mais on dit Castor, bosse ici.", "User: doit 5 € à Castor", "Salut c'est Castor !", True),
        ("Renzo here, Trieste.", "Renzo (brother): rows", "Renzo here. What is on?", True),
        # Whoever says whose they are, is quoted, or is written for is not the user.
        ("Hi, I'm Lena, Tobi's wife. Hello?", "User: plays chess with Lena", "Lena here. What is on?", True),
        ("Ich bin Lena, die Frau von Tobi.", "User: spielt mit Lena Go", "Lena hier. Was ist heute?", True),
        ("Je suis Lena, la femme de Tobi.", "User: court avec Lena", "C'est Lena, tu es là ?", True),
        ("Soy Lena, la mujer de Tobi.", "User: corre con Lena", "Soy Lena, ¿qué hay hoy?", True),
        (
            "Draft a letter: I am Lena and rent flat 4.",
            "User: lets a flat to Lena",
            "Lena here. Hello?",
            True,
        ),
    ],
)
async def test_a_name_that_the_user_gave_as_their_own_is_not_a_guests(
    said: str, fact: str, text: str, is_guest: bool
) -> None:
    async with opened() as memory:
        await talk(memory, said, session="first")
        await memory.add(fact)
        assert await memory.guest_speaks([text]) is is_guest


@requirement("memory:discretion:guest")
@pytest.mark.parametrize(
    ("fact", "text", "is_guest"),
    [
        ("Heike (wife): is seasick", "Heike hier, wo sind die Schlüssel?", True),
        ("Heike (wife): is seasick", "Moin, hier ist Heike. Wo sind die Schlüssel?", True),
        ("Heike and the user live together", "Heike here. Where are the keys?", True),
        (
            "Secret from Jonas: a surprise party",
            "Hello, here is Jonas, I may use her computer. What is on?",
            True,
        ),
        ("Zoë: plays chess", "Hi, this is Zoe. When is chess?", True),
        ("Pancho (father): 79, lives alone", "Hola, soy Pancho. ¿Qué hay hoy?", True),
        ("Léa (sœur): médecin", "Salut, c'est Léa ! Tu fais quoi ?", True),
        ("Ewa: manager of Tomasz", "Cześć, tu Ewa. Co nowego?", True),
        ("王芳：喜欢茶", "我是王芳，今天做什么？", True),
        (
            "Calum (Hana's boy): allergic to all nuts",
            "hi its calum grandads asleep, why does this not work",
            True,
        ),
        ("Peter (son) and his Ema, 8, stay till 2026-08-03", "hello this is ema. how big is a potato", True),
        ("User: two children: Rosa (14), Eli (9)", "hiya its rosa, mums driving so ive got her phone", True),
        ("Yaiza (hija): 2º de bachillerato", "holaaa soy yaiza, la hija, qué hay hoy", True),
        ("Rosa's 15th birthday: Thu 2026-03-12", "Good morning, this is Rosa. What is on?", True),
        (
            "User: buys Wenna a dinghy for her birthday",
            "hiya its wenna, brans daughter. What is for tea?",
            True,
        ),
        ("User: Jory is not coming", "Jory here. Where are the keys?", True),
        ("Wenna (daughter): vegetarian", "It's Wenna, Bran's daughter. What is for tea?", True),
        ("Mrs Pascoe (neighbour): has the garage", "Mrs Pascoe here. Is the boat there?", True),
        ("Zélie (fille): 9 ans", "coucou c zélie !! dis moi 5 trucs sur les lapins", True),
        ("Zélie (fille): 9 ans", "salut c'est moi, zélie, dis moi 5 trucs", True),
        ("Jeannine (maman): 78 ans", "Bonjour je suis Jeannine la maman de Bénédicte. Tu es là ?", True),
        ("Jutta (Mutter): 78", "Hallo ich bin Jutta die Mutter von Jörn. Was ist heute?", True),
        ("Marta (hermana): médica", "Hola soy Marta la hermana de Inés, ¿qué hay hoy?", True),
        ("June (mother): 78", "Hello I'm June the mother of Ben, what is on?", True),
        # Nobody knows a Heike; the user's own name; talk about somebody.
        ("User: Claire, deux ados", "Bonjour, je suis Claire, la maman de Noé. Tu es là ?", False),
        ("Back: pain since May", "Hi, I'm back. Where are the keys?", False),
        ("User: Bran Trevose, 52", "It's Bran, Wenna's dad. What is for tea?", False),
        ("Manni: mows the lawn", "Heike hier, wo sind die Schlüssel?", False),
        ("User: Ann, 40, lives in Graz with Heike", "Ann here. Where are the keys?", False),
        ("The user is called Ann.", "Ann here. Where are the keys?", False),
        ("Heike (wife): is seasick", "Heike, wo sind die Schlüssel?", False),
        ("Heike (wife): is seasick", "Is Heike here?", False),
        ("Heike (wife): is seasick", "Heike again, she wants to film the class.", False),
        ("Heike (wife): is seasick", "Who was it? This is Heike's coat, I think.", False),
        ("Heike (wife): is seasick", "We met at the lake. Heike here, Manni there, and it rained.", False),
        ("June (wife): is seasick", "June here. Where are the keys?", True),
        ("Julio: juega al ajedrez", "Hola, soy Julio. ¿Qué hay hoy?", True),
        ("User: lives with wife June", "Hi, this is June. Where are the keys?", True),
        ("Choir: every Friday", "Hi, it's Friday! Where are the keys?", False),
        ("March 12: the rent is due", "Hi, it's March! Where are the keys?", False),
    ],
)
async def test_somebody_who_says_a_name_that_facts_are_about_is_a_guest(
    fact: str, text: str, is_guest: bool
) -> None:
    async with opened() as memory:
        await memory.add(fact)
        await memory.add("The user likes to eat goulash.")
        assert await memory.guest_speaks([text, "And goulash?"]) is is_guest
        shown = await memory.surface([text, "And goulash?"], threshold=0.0)
        assert bool(shown) is not is_guest
        await talk(memory, text, session="chat")
        assert (await users(memory))[-1].speaker == ("guest" if is_guest else "user")
        assert await memory.guest_speaks("And goulash?", session="chat") is is_guest


@requirement("memory:discretion:guest")
@pytest.mark.parametrize(
    ("said", "text", "is_guest"),
    [
        (
            "I'm Lena, I run a bakery with my husband Tobi.",
            "Tobi here, on her laptop. What does she plan?",
            True,
        ),
        ("My sister, Zoë, is coming.", "Hi, this is Zoe. What does she plan?", True),
        ("Meine Tochter heißt Ida.", "Hallo, hier ist Ida. Was hat sie vor?", True),
        ("Meine Frau Heike ist seekrank.", "Heike hier, was plant er?", True),
        ("Mi hija Yaiza estudia.", "Hola, soy Yaiza. ¿Qué planea?", True),
        ("Ma sœur s'appelle Léa.", "Salut, c'est Léa ! Elle prévoit quoi ?", True),
        ("My husband's name is Tobi.", "Tobi here. What does she plan?", True),
        ("Der Name meines Mannes ist Tobi.", "Tobi hier. Was plant sie?", True),
        ("Mein Mann, er heißt Tobi, backt.", "Tobi hier. Was plant sie?", True),
        ("El nombre de mi marido es Tobi.", "Soy Tobi. ¿Qué planea?", True),
        ("Le nom de mon mari est Tobi.", "C'est Tobi. Elle prévoit quoi ?", True),
        ("我老公小明喜欢喝茶。", "我是小明，她今天做什么？", True),
        ("我的女儿叫王芳。", "你好，我是王芳。今天做什么？", True),
        ("我老公喜欢喝茶。", "我是小明，我今天做什么？", False),
        ("我是老师。", "我是小明，我今天做什么？", False),
        ("我朋友明天来。", "我是明天来，不是今天。几点？", False),
        ("我妈妈昨天来的。", "我是昨天来的，很累。做什么？", False),
        ("我妈妈是老师。", "我是老师，我今天做什么？", False),
        ("我老公是北京人。", "我是北京人，我今天做什么？", False),
        ("我妈妈叫医生来。", "我是医生，我今天做什么？", False),
        ("I'm Lena, I run a bakery with my husband Tobi.", "Lena here. What did I plan?", False),
        ("Tobi is what I call the oven.", "Tobi here makes a noise. What did I plan?", False),
        ("My wife June is seasick.", "June here. What does he plan?", True),
        ("I see my friend Monday.", "Hi, it's Monday. What did I plan?", False),
        ("Ich treffe meine Schwester Montag.", "Montag hier! Was habe ich vor?", False),
        ("I'm Tobi's wife Lena.", "Lena here. What did I plan?", False),
        ("Ich bin Tobis Frau Lena.", "Lena hier. Was habe ich vor?", False),
        ("Soy la hermana Lena.", "Hola, soy Lena. ¿Qué planeo?", False),
        ("Je suis sa mère Lena.", "Ici Lena. Qu'est-ce que je prévois ?", False),
    ],
)
async def test_somebody_of_the_users_is_a_guest_before_what_was_said_of_them_is_read(
    said: str, text: str, is_guest: bool
) -> None:
    async with opened() as memory:
        await talk(memory, said)
        assert await memory.guest_speaks(text) is is_guest
        await talk(memory, text, session="chat")
        assert (await users_in(memory, "chat"))[-1].speaker == ("guest" if is_guest else "user")


@requirement("memory:discretion:guest")
@pytest.mark.parametrize(
    "back", ["Marek again. Where is my tea?", "So, wieder Marek hier. Wo ist mein Tee?", "Marek here."]
)
async def test_who_says_the_users_own_name_is_the_user_again(back: str) -> None:
    async with opened() as memory:
        await memory.add("User: Marek Dvorsky, 79, from Olomouc")
        await memory.add("Hana (daughter): set up the tablet; she sat at Marek's tablet")
        hana = "Hi, Hana here. What does he take?"
        assert await memory.guest_speaks([hana])
        assert not await memory.guest_speaks([hana, back])
        await talk(memory, hana, back, session="chat")
        assert [one.speaker for one in await users(memory)] == ["guest", "user"]
        quote = next(words for words in ("my tea", "mein Tee", back) if words in back)
        found = {"facts": [{"content": "User: misses the tea", "quote": quote}], "off": []}
        await memory.distill(model=ScriptedModel(lambda _: json.dumps(found)))
        (fact,) = [one for one in await memory.list(kind="fact") if "tea" in one.content]
        assert (fact.trust, fact.speaker) == ("user", "user")


@requirement("memory:discretion:guest")
async def test_a_guest_is_answered_from_what_is_private_to_nobody() -> None:
    async with opened() as memory:
        await memory.add("The keys of the flat are at the agents' office.", spheres=["home"])
        await memory.add("The keys of the flat open at the clinic, too.", spheres=["home", "health"])
        await memory.add(
            "The keys of the flat are a present for Ben.", spheres=["home"], discretion="confidential"
        )
        await memory.add("The keys of the flat have a red tag.")
        guest = "Hello, this is her sister. Where are the keys of the flat?"
        shown = await memory.surface(guest, threshold=0.0)
        assert [hit.memory.content for hit in shown.memories] == [
            "The keys of the flat are at the agents' office."
        ]
        why = await memory.recall(guest, threshold=0.0)
        assert {reason for hit, reason in why.left_out} == {"somebody else is speaking"}


@requirement("memory:discretion:guest")
async def test_a_guests_model_gets_nothing_from_the_memory_tools() -> None:
    async with opened() as memory:
        await memory.add("The user likes to eat goulash.")
        recall = next(tool for tool in await MemoryTools(memory).tools() if tool.spec.name == "recall_memory")
        said = [Message(role="user", blocks=(TextBlock(text="This is his wife, he's asleep."),))]
        found = await recall.call({"query": "goulash"}, context(messages=lambda: said))
        assert (found.is_error, "goulash" in found.text) == (True, False)


@requirement("memory:discretion:tools")
async def test_the_models_own_search_finds_what_is_confidential_but_not_what_is_withheld() -> None:
    async with opened() as memory:
        await memory.add("The user interviews at Novatek.", discretion="confidential")
        withheld = await memory.add("The user cursed Novatek.", discretion="withheld")
        tools = MemoryTools(memory)
        found = await call(tools, "recall_memory", {"query": "Novatek"})
        assert ("confidential" in found.text, "cursed" in found.text) == (True, False)
        deep = await call(tools, "deep_memory", {"query": "Novatek"})
        assert ("interviews" in deep.text, "cursed" in deep.text) == (True, False)
        # What is to be forgotten has to be found for that.
        assert withheld in (await call(tools, "forget_memory", {"query": "Novatek"})).text
        # Nor is it shown to the model that reads what is said of the matter later.
        model = ScriptedModel(lambda _: json.dumps({"facts": [], "off": []}))
        await talk(memory, "Novatek is on the phone.", session="later")
        await memory.distill(model=model)
        read = model.requests[-1].messages[0].text
        assert ("interviews" in read, "cursed" in read) == (True, False)


@requirement("memory:discretion:given-away")
async def test_an_open_note_that_would_give_a_secret_of_the_conversation_away_is_confidential_too() -> None:
    secret = {
        "content": "User: buys Wenna a Mirror dinghy by Friday; kept from Wenna",
        "quote": "I'm buying her a Mirror dinghy", "section": "confidential",
    }  # fmt: skip
    found = [
        secret,
        {"content": "Wenna: User's daughter", "quote": "my daughter Wenna"},
        {"content": "Wenna: turns 17 on Friday", "quote": "Wenna turns 17 on Friday"},
        {"content": "Mrs Pascoe (next door): has a garage, perhaps for the dinghy", "quote": "has a garage"},
        {"content": "Mrs Pascoe (next door): feeds the cat", "quote": "she feeds the cat"},
        {"content": "User: learned to sail in a dinghy", "quote": "I learned to sail in a dinghy"},
        # "Kept" is a word of whoever notes, in the secret as here.
        {"content": "User: kept bees as a boy", "quote": "I had bees as a boy"},
    ]
    later = [{"content": "Ben: lends the User a trailer for the Mirror", "quote": "Ben lends me a trailer"}]
    answers = iter([found, later])
    model = ScriptedModel(lambda request: Reply(text=json.dumps({"facts": next(answers)})))
    async with opened() as memory:
        await talk(
            memory,
            "It's about my daughter Wenna.",
            "Between you and me: I'm buying her a Mirror dinghy by Friday.",
            "Mrs Pascoe has a garage, and she feeds the cat.",
            "Wenna turns 17 on Friday. I learned to sail in a dinghy. I had bees as a boy.",
        )
        await memory.distill(model=model)
        await memory.add_episodes(
            [Episode(session="s", turn=9, speaker="user", text="Ben lends me a trailer.")]
        )
        await memory.distill(model=model)
        facts = await memory.list(kind="fact")
        held = {one.content.replace(" (2026-11-27)", "") for one in facts if one.discretion == "confidential"}
        assert held == {secret["content"], found[3]["content"], later[0]["content"]}
        assert len(facts) == 8


@requirement("memory:discretion:extractor")
async def test_what_a_secret_is_not_about_stays_open_if_the_model_says_so() -> None:
    """The wish's own sentence and its neighbours are held back whatever the model says; beyond them, it decides."""
    said = (
        "Uwe reads the meters by Friday. The pump needs a new seal. Between us: I resign as chairman. "
        "Sabine knows it. The hedge is too high. Ten members will leave with me."
    )

    def fact(quote: str, **more: str) -> dict[str, object]:
        return {"content": f"{quote}.", "quote": quote, **more}

    found = [
        fact("Uwe reads the meters by Friday"), fact("The pump needs a new seal"), fact("I resign as chairman"),
        fact("Sabine knows it"), fact("The hedge is too high"),
        fact("Ten members will leave with me", section="confidential"),
    ]  # fmt: skip
    model = ScriptedModel(lambda request: Reply(text=json.dumps({"facts": found})))
    async with opened() as memory:
        await talk(memory, said)
        await memory.distill(model=model)
        facts = {one.content: one.discretion for one in await memory.list(kind="fact")}
        assert facts == {
            "Uwe reads the meters by Friday.": "open",
            "The pump needs a new seal.": "confidential",
            "I resign as chairman.": "confidential",
            "Sabine knows it.": "confidential",
            "The hedge is too high.": "open",
            "Ten members will leave with me.": "confidential",
        }
        (turn,) = await users(memory)
        assert turn.discretion == "confidential"


@requirement("memory:discretion:lifted")
async def test_the_user_lifts_a_mark_and_undoes_that_and_an_export_keeps_it(tmp_path: Path) -> None:
    async with opened() as memory:
        id = await memory.add(
            "I am allergic to latex.", discretion="confidential", kept_from="Ben", spheres=["health"]
        )
        assert "latex" not in (await memory.profile()).text
        change = await memory.edit(id, discretion="open")
        assert change is not None
        assert "latex" in (await memory.profile()).text
        await memory.undo(change)
        assert "latex" not in (await memory.profile()).text
        with pytest.raises(UsageError, match="discretion"):
            await memory.edit(id, discretion="secret")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="There is no sphere 'sport'"):
            await memory.edit(id, spheres=["sport"])
        await memory.export_to(tmp_path / "all.jsonl")
        assert [one.id for one in await memory.list(discretion="confidential")] == [id]
    async with opened() as other:
        await other.import_from(tmp_path / "all.jsonl")
        kept = await other.get(id)
        assert (kept.discretion, kept.kept_from, kept.spheres) == ("confidential", "Ben", ("health",))


@requirement("memory:discretion:obeyed")
async def test_what_says_nothing_of_keeping_it_back_is_no_wish() -> None:
    said: Sequence[str] = (
        "Don't forget that my flight is on Friday.",
        "I told my boss that I am leaving.",
        "My husband must not eat shellfish.",
        "Forget the old plan, let's use Postgres instead.",
        "Vergiss die Milch nicht.",
        "Meine Frau weiß, wo der Schlüssel ist.",
        "No olvides comprar pan.",
        "Personne ne sait comment ça marche.",
        "别忘了买牛奶。",
    )
    assert [text for text in said if wish_of(text)] == []


@requirement("memory:discretion:obeyed")
@pytest.mark.parametrize("text", ["This is confidential.", "C'est confidentiel."])
async def test_what_is_confidential_is_nobodys_name(text: str) -> None:
    wish = wish_of(text)
    assert wish is not None
    assert wish.kind == "confidential"


@requirement("memory:discretion:part")
@pytest.mark.parametrize(
    ("text", "quote", "is_read"),
    [
        ("The password is hunter22x. Don't keep that. The port is 8081 now.", "The port is 8081 now", True),
        (
            "Das Passwort ist geheim42. Merk dir das nicht. Der Port ist jetzt 8081.",
            "Der Port ist jetzt 8081",
            True,
        ),
        ("La clave es secreta99. No guardes eso. El puerto ahora es 8081.", "El puerto ahora es 8081", True),
        ("Don't keep this: the port is 8081 now.", "the port is 8081 now", False),
        ("The port is 8081 now. Don't keep that.", "The port is 8081 now", False),
    ],
)
async def test_what_is_said_after_a_wish_not_to_keep_something_is_read_and_what_it_is_about_is_not(
    text: str, quote: str, is_read: bool
) -> None:
    async with opened() as memory:
        await talk(memory, text)
        fact = {"content": "User: port 8081", "quote": quote, "section": "work"}
        more = {**fact, "content": "User: port 8081 is new", "section": ""}
        model = ScriptedModel(lambda _: json.dumps({"facts": [fact, more], "off": []}))
        report = await memory.distill(model=model)
        seen = "".join(request.messages[0].text for request in model.requests)
        assert (quote in seen) == is_read
        assert not any(secret in seen for secret in ("hunter22x", "geheim42", "secreta99"))
        assert [(await memory.get(id)).discretion for id in report.facts] == ["open"] * 2 * is_read
        assert (await users(memory))[0].discretion == "withheld"
        assert (await memory.distill_status()).pending == 0
        page = await memory.page()
        assert (page is not None) == is_read


@requirement("memory:discretion:obeyed")
@pytest.mark.parametrize(
    "wish", ["no, wait. forget the code, I don't want it written down", "no, espera. olvida el código"]
)
async def test_a_wish_behind_a_word_or_two_is_about_the_turn_before(wish: str) -> None:
    async with opened() as memory:
        await talk(memory, "The code of the gate is 4471.", wish)
        assert [one.discretion for one in await users(memory)] == ["withheld", "withheld"]


@requirement("memory:discretion:page")
async def test_what_is_kept_from_somebody_stands_on_the_page_of_the_users_own_conversations_alone() -> None:
    async with opened() as memory:
        said = "I applied at the mill, don't tell my boss. My back hurts, don't bring it up unless I ask. I like tea."
        await talk(memory, said)
        facts = [
            {"content": "User: applied at the mill; boss must not know", "quote": "I applied at the mill",
             "section": "confidential", "confidential": "don't tell my boss"},
            {"content": "User: back hurts", "quote": "My back hurts", "section": "",
             "confidential": "don't bring it up unless I ask"},
            {"content": "User: likes tea", "quote": "I like tea", "section": "confidential"},
        ]  # fmt: skip
        await memory.distill(model=ScriptedModel(lambda _: json.dumps({"facts": facts, "off": []})))
        own = await memory.standing(confidential=True)
        assert "applied at the mill; boss must not know" in own.text
        assert "back hurts" not in own.text
        # An agent that is connected, over MCP, a hook or the proxy, is not told.
        assert "mill" not in (await memory.standing()).text
        assert "tea" not in (await memory.standing()).text
        agenda = await memory.agenda()
        shown = await memory.surface("What do I drink at the mill?", threshold=0.0, limit=50)
        assert "applied" not in agenda.text + shown.text
