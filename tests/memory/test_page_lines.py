"""What a line of the page may say: nothing that its facts don't say, in the languages that memory serves."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import ManualClock
from satchel.memory import Memory
from satchel.models import ModelRequest, ScriptedModel
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SAYS: list[tuple[str, tuple[str, ...]]] = [
    # The line, and the facts that say it.
    (
        "Linh: wife; Vietnamese; can't stand dairy",
        ("Linh is the user's wife.", "Linh is Vietnamese.", "Linh, the user's wife, can't stand dairy."),
    ),
    ("Jochen (brother): is vegan", ("The user's brother Jochen is vegan.",)),
    ("brother Jochen vegan", ("The user's brother Jochen is vegan.",)),
    (
        "works as lock keeper at Wittring; restores accordions",
        ("The user works as a lock keeper at Wittring.", "The user restores accordions."),
    ),
    ("Anna feeds Bollard, the user's dog", ("Anna (from next door) feeds Bollard, the user's dog.",)),
    ("Linh can't stand dairy; user loves fish", ("Linh can't stand dairy.", "The user loves fish.")),
    (
        "plays on Saturday (2026-03-21) at the Moulin",
        ("The user plays on Saturday (2026-03-21) at the Moulin.",),
    ),
    ("Tuan may be allergic to peanuts", ("Tuan may be allergic to peanuts.",)),
    ("Frau Linh verträgt keine Milch", ("Die Frau des Nutzers Linh verträgt keine Milch.",)),
    ("arbeitet als Schleusenwärter", ("Der Nutzer arbeitet als Schleusenwärter.",)),
    ("Linh: verträgt keine Milch; mag Koriander", ("Linh verträgt keine Milch.", "Linh mag Koriander.")),
    ("esposa Linh es vietnamita", ("La esposa del usuario Linh es vietnamita.",)),
    ("vive en Forbach", ("El usuario vive en Forbach.",)),
    ("frère Jochen végan", ("Le frère de l'utilisateur Jochen est végan.",)),
    ("habite à Forbach", ("L'utilisateur habite à Forbach.",)),
    ("妻子琳不吃奶制品", ("用户的妻子琳不吃奶制品。",)),
    ("琳：不吃奶制品；喜欢香菜", ("琳不吃奶制品。", "琳喜欢香菜。")),
    ("住在福尔巴克", ("用户住在福尔巴克。",)),
    ("Linh è vietnamita.", ("Linh è vietnamita.",)),
]

WRONG: list[tuple[str, tuple[str, ...]]] = [
    # Denials, put in and lost.
    ("Mara is allergic to nuts", ("Mara is not allergic to nuts.",)),
    ("Mara is not allergic to nuts", ("Mara is allergic to nuts.",)),
    ("eats meat", ("The user no longer eats meat.",)),
    ("Linh can stand dairy", ("Linh can't stand dairy.",)),
    ("never drinks coffee", ("The user drinks coffee.",)),
    ("allergic to nuts", ("The user is allergic to nuts, but not to almonds.",)),
    ("isst Fleisch", ("Der Nutzer isst kein Fleisch.",)),
    ("isst Fleisch", ("Der Nutzer isst Fleisch seit Mai nicht mehr.",)),
    ("isst kein Fleisch", ("Der Nutzer isst Fleisch.",)),
    ("come carne", ("El usuario no come carne.",)),
    ("no come carne", ("El usuario come carne.",)),
    ("mange de la viande", ("L'utilisateur ne mange pas de viande.",)),
    ("ne mange pas de viande", ("L'utilisateur mange de la viande.",)),
    ("妻子琳吃奶制品", ("用户的妻子琳不吃奶制品。",)),
    ("琳不喜欢香菜", ("琳喜欢香菜。",)),
    # Owners.
    ("peanut allergy", ("Tuan has a peanut allergy.",)),
    ("has a peanut allergy", ("Tuan has a peanut allergy.",)),
    ("The user has a peanut allergy", ("Tuan has a peanut allergy.",)),
    ("brother is a nurse", ("Mara's brother is a nurse.",)),
    ("Mara is a nurse", ("Mara's brother is a nurse.",)),
    ("Linh: loves fish", ("The user loves fish, and Linh cooks it.",)),
    ("Linh can't stand dairy; loves fish", ("Linh can't stand dairy.", "The user loves fish.")),
    ("Jochen is Mara's brother", ("Jochen is the user's brother.",)),
    ("Linh: hates coriander", ("The user hates coriander but Linh loves it.",)),
    ("Jochen hates wife Linh", ("Jochen hates the user's wife Linh.",)),
    ("Mathias gave dog Bollard a bone", ("Mathias gave the user's dog Bollard a bone.",)),
    ("马克喜欢妻子", ("马克喜欢用户的妻子。",)),
    ("ensaya el martes", ("El usuario ensaya los martes.",)),
    ("moving to Ghent", ("The user is moving to Ghent, in case the job works out.",)),
    ("works on Friday", ("The user works on Friday, or on Saturday.",)),
    ("The user's car is red", ("Uta's car is red.",)),
    ("Bruder ist Pfleger", ("Maras Bruder ist Pfleger.",)),
    ("hat eine Nussallergie", ("Tuan hat eine Nussallergie.",)),
    ("tiene alergia al cacahuete", ("Tuan tiene alergia al cacahuete.",)),
    ("hermano de Mara", ("Jochen es hermano del usuario.",)),
    ("a une allergie aux arachides", ("Tuan a une allergie aux arachides.",)),
    ("对花生过敏", ("团对花生过敏。",)),
    ("玛拉的哥哥约亨", ("用户的哥哥约亨。",)),
    # Certainty and time.
    ("will quit", ("The user wants to quit.",)),
    ("quits", ("The user may quit.",)),
    ("is moving to Ghent", ("The user is thinking of moving to Ghent.",)),
    ("Mara is pregnant", ("Tom thinks that Mara is pregnant.",)),
    ("Tuan is allergic to peanuts", ("Tuan may be allergic to peanuts.",)),
    ("Tuan is allergic to peanuts", ("Tuan was allergic to peanuts.",)),
    ("will leave the firm", ("The user will leave the firm, if the bonus is cut.",)),
    ("had his car", ("The user had his car stolen.",)),
    ("wird kündigen", ("Der Nutzer möchte kündigen.",)),
    ("hat sein Auto", ("Der Nutzer hat sein Auto verkauft.",)),
    ("kündigt", ("Der Nutzer kündigt vielleicht.",)),
    ("Linh ist krank", ("Linh war krank.",)),
    ("va a dimitir", ("El usuario quiere dimitir.",)),
    ("Linh está enferma", ("Linh quizá está enferma.",)),
    ("va démissionner", ("L'utilisateur veut démissionner.",)),
    ("Linh est malade", ("Linh était malade.",)),
    ("要辞职", ("用户可能要辞职。",)),
    # Numbers and days.
    ("contract number 2017", ("The user's contract has number 2071.",)),
    ("earns 3,500 euros", ("The user earns 5,300 euros.",)),
    ("operation on Thursday (2026-03-12)", ("Linh's operation is on Friday (2026-03-13).",)),
    ("Linh's operation is on Friday (2026-03-12)", ("Linh's operation is on Friday (2026-03-13).",)),
    ("Linh's operation is at 13:30", ("Linh's operation is at 7:30.",)),
    ("flying to Lisbon tomorrow", ("The user is flying to Lisbon tomorrow (2026-03-03).",)),
    ("lock 28 closes on day 27", ("Lock 27 closes on day 28.",)),
    ("zahlt 412 Euro", ("Der Nutzer zahlt 421 Euro.",)),
    ("paga 412 euros", ("El usuario paga 421 euros.",)),
    ("paie 412 euros", ("L'utilisateur paie 421 euros.",)),
    ("有三个孩子", ("用户有两个孩子。",)),
    # Names.
    ("Anne from next door feeds Bollard", ("Anna from next door feeds Bollard.",)),
    (
        "Anne feeds Bollard; Anna is the colleague at lock 28",
        ("Anna from next door feeds Bollard.", "Anne is the colleague at lock 28."),
    ),
    ("Anna is the colleague at lock 28", ("Anna feeds Bollard, Anne is the colleague at lock 28.",)),
    ("Matthieu turns sixty", ("Mathias turns sixty.",)),
    ("Linh hates Jochen", ("Jochen hates Linh.",)),
    ("Uta: brother", ("The user's brother Jochen is married to Uta.",)),
    ("Bella Ciao has to be the end", ("La Foule has to be the end, not Bella Ciao.",)),
    ("Anna hat Bollard gefüttert", ("Bollard hat Anna gefüttert.",)),
    ("Anne da de comer a Bollard", ("Anna da de comer a Bollard.",)),
    ("Anne nourrit Bollard", ("Anna nourrit Bollard.",)),
    ("安娜喜欢马克", ("马克喜欢安娜。",)),
    # Of things that can't be left out where nobody knows the language's words.
    ("Linh è vietnamita", ("Linh non è vietnamita.",)),
    ("Linh heeft geen hond", ("Linh heeft een hond.",)),
]


async def page_of(
    cases: list[tuple[str, tuple[str, ...]]],
) -> tuple[list[str], int]:
    """What stands on a page on which a model wants to write these lines, twice; and how many it was refused."""
    clock = ManualClock(at=datetime(2026, 3, 2, 9, tzinfo=UTC))
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        for _, facts in cases:
            for words in facts:
                await memory.add(words)

        def reply(request: ModelRequest) -> str:
            found = [json.loads(line) for line in request.messages[0].text.splitlines()]
            numbers: dict[str, list[int]] = {}
            for one in found:
                if "says" in one:
                    numbers.setdefault(one["says"], []).append(one["fact"])
            lines: list[dict[str, Any]] = [
                {
                    "section": "people",
                    "text": text,
                    "facts": [numbers[words][0] for words in facts],
                    "until": "",
                }
                for text, facts in cases
            ]
            return json.dumps({"keep": [], "lines": lines})

        written = await memory.write_page(model=ScriptedModel(reply), budget_tokens=100_000)
        page = await memory.page(budget_tokens=100_000)
        assert written is not None
        assert page is not None
        return [line.words for line in page.memories], len(written.refused)


async def test_lines_that_leave_out_what_may_be_left_out_are_taken() -> None:
    shown, refused = await page_of(SAYS)
    assert [text for text, _ in SAYS if text not in shown] == []
    assert refused == 0


@requirement("memory:page:wrong")
async def test_lines_that_say_what_their_facts_dont_never_stand_on_the_page() -> None:
    own = {words for _, facts in WRONG for words in facts}
    shown, _ = await page_of(WRONG)
    assert [text for text, facts in WRONG if text in shown and text not in own] == []
    # Their facts stand there in their own words.
    assert own <= set(shown)


@requirement("memory:page:wrong")
async def test_no_wrong_line_by_somebody_who_has_not_seen_the_rule_stands_on_a_page() -> None:
    lines = json.loads((Path(__file__).parents[2] / "benchmarks/data/page_lines.json").read_text("utf-8"))
    wrong = [one for one in lines if one["label"] == "wrong"]
    for at in range(0, len(wrong), 40):
        cases = [
            (one["line"], tuple(fact["text"] for fact in one["facts"] if fact["id"] in one["names"]))
            for one in wrong[at : at + 40]
        ]
        shown, refused = await page_of(cases)
        assert not {line for line, _ in cases} & set(shown)
        assert refused >= len(cases)
    assert len(wrong) == 170
