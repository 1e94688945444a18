"""Lines of the page that a reader of a conversation shortened: what may be left out, and for how long."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.memory import Episode, Memory, MemoryRecord
from satchel.memory.store.page_lines import shortened
from satchel.models import ScriptedModel
from tests.memory.test_page import opened, shown
from tests.requirements import requirement

MISLEADING = (
    ("Mara: can't eat nuts, eggs, milk", "Mara: milk"),
    ("Mara: allergic to nuts, likes fish, eggs", "Mara: allergic to nuts, eggs"),
    ("User: not in Leeds, Hull, York", "User: York"),
    ("User: may drive, but not at night", "User: may drive"),
    ("Mara: allergic to nuts, except almonds", "Mara: allergic to nuts"),
    ("Tom: gets the car, if he passes the test", "Tom: gets the car"),
    ("Tom: gets the car, unless Ana needs it", "Tom: gets the car"),
    ("Job at the mill: offered, not accepted yet", "Job at the mill: offered"),
    ("Concert: Fri 2026-05-08, cancelled", "Concert: Fri 2026-05-08"),
    ("Sister's flat: sold, or so Ana says", "Sister's flat: sold"),
    (
        "Gerd: Hecke 1,60 (erlaubt 1,20); 19 m³ Wasser fehlen, unbewiesen",
        "Gerd: Hecke 1,60 (erlaubt 1,20); 19 m³ Wasser fehlen",
    ),
    ("Opa: kein Salz, Zucker, Fett", "Opa: Zucker, Fett"),
    ("User: Schichtdienst, außer montags", "User: Schichtdienst"),
    ("User: fährt mit, sofern Ute kommt", "User: fährt mit"),
    ("Angebot Dachdecker: 4.200 €, ohne Gerüst", "Angebot Dachdecker: 4.200 €"),
    ("Dácil: no come trigo, cebada, avena", "Dácil: avena"),
    ("Yaiza: viene en agosto, salvo que trabaje", "Yaiza: viene en agosto"),
    ("Yaiza: viene en agosto, pero sin los niños", "Yaiza: viene en agosto"),
    ("Piso: vendido, según Nayra", "Piso: vendido"),
    ("Noé: ne mange ni porc, ni bœuf, agneau", "Noé: agneau"),
    ("Zélie: accepte le poste, sauf si Mons répond", "Zélie: accepte le poste"),
    ("Wim: demi-frère, d'après la lettre", "Wim: demi-frère"),
    ("Acompte: 2.835 €, pas encore payé", "Acompte: 2.835 €"),
    ("Giulia: niente glutine, lattosio, uova", "Giulia: lattosio"),
    ("Giulia: viene a Pasqua, se trova il treno", "Giulia: viene a Pasqua"),
    ("Apicoltura: corso martedì, tranne ad agosto", "Apicoltura: corso martedì"),
    ("Opa: 84, kein Salz, Zucker", "Opa: 84, Zucker"),
    ("Pancho: 79, no toma azúcar, sal", "Pancho: 79, sal"),
    ("Sam: 9, not allowed phones, sweets; likes chess", "Sam: 9, sweets; likes chess"),
    ("Nath: 50, n'aime pas le chou, les endives", "Nath: 50, les endives"),
    ("Renzo: 71, mai caffè, vino", "Renzo: 71, vino"),
    ("Loan: 900 from Udo (at 3 percent; no term); told nobody", "Loan: 900 from Udo (at 3 percent)"),
    ("Jens: Lehrer in Husum; mag keinen Fisch", "Jens: Lehrer in Husum; mag Fisch"),
    ("Noé: permis raté, 39/50; repasse en juin", "Noé: permis raté"),
)
"""Notes, and forms of them that say something else."""
MISSED = (
    ("User: may drive; not at night", "User: may drive"),
    ("Paolo: owed User 4000; paid 500 in April; still owes 3000", "Paolo: owed User 4000"),
    ("Mara: 34; can't eat nuts; eggs; milk", "Mara: 34; eggs; milk"),
    ("User: Fahrrad verliehen an Ute; zurück seit Fr 2026-05-01", "User: Fahrrad verliehen an Ute"),
)
"""The same, where a clause of its own limits or denies another one, or shares its verb: the "…" is all that tells."""

WORD = st.text("abcäéñ123-:,.'", min_size=1, max_size=5).filter(lambda word: any(map(str.isalnum, word)))
CLAUSE = st.lists(WORD, min_size=1, max_size=4).map(" ".join)


@requirement("memory:page:short")
@given(st.lists(CLAUSE, min_size=1, max_size=6), st.data())
def test_any_clauses_but_the_first_may_go_and_no_word_within_one(
    texts: list[str], data: st.DataObject
) -> None:
    clauses = [f"n{number} {text}" for number, text in enumerate(texts)]
    note = "; ".join(clauses)
    kept = [0, *(number for number in range(1, len(clauses)) if data.draw(st.booleans()))]
    asked = [clauses[number] for number in kept]
    found = shortened("; ".join(asked).upper(), note)
    gaps = [after > number + 1 for number, after in pairwise([*kept, len(clauses)])]
    assert found == "; ".join(
        f"{clause} …" if gap else clause for clause, gap in zip(asked, gaps, strict=True)
    )
    assert shortened(found, note) == found
    place = data.draw(st.integers(0, len(kept) - 1))
    words = asked[place].split()
    at = data.draw(st.integers(0, len(words) - 1))
    for instead in ([], ["other"], [words[at], "other"]):
        changed = " ".join([*words[:at], *instead, *words[at + 1 :]])
        assert shortened("; ".join([*asked[:place], changed, *asked[place + 1 :]]), note) == ""


@requirement("memory:page:short")
def test_what_a_form_says_that_the_note_does_not_is_refused_in_five_languages() -> None:
    assert [one for one in MISLEADING if shortened(one[1], one[0])] == []
    assert [one for one in MISSED if "…" not in shortened(one[1], one[0])] == []
    wim = 'Wim (two girls; one boy): "yes; no", at 9:40; calls back'
    assert shortened('wim  (two girls; one boy) "yes; no", at 9:40.', wim) == wim[:-12] + " …"
    assert shortened("Wim (two girls)", wim) == ""
    assert shortened("", wim) == ""


PANCHO = "Pancho (father): 79, lives alone; Loli cooks on Mondays; diabetic"
SHORT = "Pancho (father): 79, lives alone …; diabetic"


def noted(content: str, quote: str, **more: Any) -> dict[str, Any]:
    return {"content": content, "quote": quote, "importance": 4, "section": "people", **more}


class Reader:
    """A model whose answers are given, and what it was shown."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._turn = 0
        self.known: list[str] = []

    async def reads(self, text: str, *facts: dict[str, Any], **more: Any) -> None:
        self._turn += 1
        said = Episode(session=f"s{self._turn}", turn=1, speaker="user", text=text)
        await self._memory.add_episodes([said])
        model = ScriptedModel(lambda _: json.dumps({"facts": facts, "off": [], **more}))
        await self._memory.distill(model=model)
        (request,) = model.requests
        self.known = request.messages[0].text.partition("known:\n")[2].splitlines()

    async def fact(self, begin: str) -> MemoryRecord:
        (found,) = [one for one in await self._memory.list(kind="fact") if one.content.startswith(begin)]
        return found

    async def shortens(self, form: str = "Pancho (father): 79, lives alone; diabetic") -> str:
        """Pancho's note is read, and shortened by the next reading."""
        await self.reads("Pancho is 79, Loli cooks, he is diabetic.", noted(PANCHO, "Pancho is 79"))
        id = (await self.fact("Pancho")).id
        await self.reads("It rains again.", short=[{"id": id[:8], "text": form}])
        return id


@requirement("memory:page:short")
@pytest.mark.anyio
async def test_a_reading_shortens_a_line_and_nothing_of_its_fact() -> None:
    async with opened() as (memory, _):
        reader = Reader(memory)
        id = await reader.shortens()
        before = reader.known[0]
        page = await memory.page()
        assert page is not None
        assert f'- "{SHORT}"' in page.text
        # What is left out can still be shown with a message.
        assert page.whole_ids == frozenset()
        assert (await memory.get(id)).content == PANCHO
        assert [hit.memory.id for hit in await memory.search("Loli cooks", kind="fact", limit=1)] == [id]
        # The next reading sees all that is known, that the line is shorter, and how much room that made.
        await reader.reads("It rains still.", short={id: PANCHO})
        assert [line.partition(" ")[2].partition(" ")[2] for line in reader.known[2:]] == [f"{PANCHO} …"]
        used = [int(head.partition("(")[2].partition(" ")[0]) for head in (before, reader.known[0])]
        assert used[0] - used[1] == len(PANCHO) - len(SHORT)
        # Asked for in all its words, the line has them again.
        assert await shown(memory) == [PANCHO]


@requirement("memory:page:short")
@pytest.mark.anyio
@pytest.mark.parametrize("form", ["Pancho (father): 79; diabetic", "Loli cooks on Mondays", "", 7, None])
async def test_what_is_no_shorter_form_leaves_the_line_as_it_was(form: Any) -> None:
    async with opened() as (memory, _):
        reader = Reader(memory)
        id = await reader.shortens()
        await reader.reads("It rains.", short=[{"id": id, "text": form}, {"id": "zzzz", "text": "x"}, 7])
        assert await shown(memory) == [SHORT]
        assert len(await memory.page_versions()) == 2


@requirement("memory:page:short")
@pytest.mark.anyio
@pytest.mark.parametrize("more", [{"importance": 5}, {"section": "limits"}, {"section": "confidential"}])
async def test_nothing_is_left_out_where_it_could_cost_a_life_or_a_secret(more: dict[str, Any]) -> None:
    async with opened() as (memory, _):
        reader = Reader(memory)
        await reader.reads("Pancho is 79, diabetic.", noted(PANCHO, "Pancho is 79", **more))
        await reader.reads(
            "It rains.", short={(await reader.fact("Pancho")).id: "Pancho (father): 79, lives alone"}
        )
        assert await shown(memory) == [PANCHO]


@requirement("memory:page:short")
@pytest.mark.anyio
async def test_a_shorter_form_ends_with_the_words_that_it_was_made_of() -> None:
    async with opened() as (memory, _):
        reader = Reader(memory)
        id = await reader.shortens()
        # What was changed stands in the part that the line left out.
        changed = PANCHO.replace("Mondays", "Sundays")
        await memory.edit(id, content=changed)
        assert await shown(memory) == [changed]
        await memory.undo((await memory.history(id))[-1].id)
        assert await shown(memory) == [SHORT]
        await memory.edit(id, importance=5)
        assert await shown(memory) == [PANCHO]
        await memory.edit(id, importance=4)
        more = f"{PANCHO}; has a cat"
        await reader.reads(
            "Pancho has a cat.",
            noted(more, "Pancho has a cat", relation="elaborates", to=id),
            short={id: SHORT},
        )
        assert await shown(memory) == [more]


@requirement("memory:page:short")
@pytest.mark.anyio
async def test_the_user_brings_a_line_back_and_no_reading_shortens_the_users_own(tmp_path: Path) -> None:
    async with opened() as (memory, _):
        reader = Reader(memory)
        await reader.shortens()
        await memory.restore_page(None)
        assert await shown(memory) == [PANCHO]
        await memory.restore_page(None)
        assert await shown(memory) == [SHORT]
        await memory.export_to(tmp_path / "a.jsonl")
        async with opened() as (other, _):
            await other.import_from(tmp_path / "a.jsonl")
            assert await shown(other) == [SHORT]
        own = "Mara: lends the bike; needs it in May"
        await memory.edit_page(f"# People\n- {SHORT}\n- {own}\n")
        assert await shown(memory) == [SHORT, own]
        await reader.reads("It rains.", short={(await reader.fact("Mara")).id: "Mara: lends the bike"})
        assert await shown(memory) == [SHORT, own]


@requirement("memory:page:short")
@pytest.mark.anyio
async def test_forgetting_leaves_nothing_of_a_shorter_form(tmp_path: Path) -> None:
    async with opened(tmp_path / "m.db") as (memory, _):
        id = await Reader(memory).shortens()
        await memory.add("Bollard is the user's dog.")
        ((_, words),) = await memory.words_said([id])
        assert SHORT in words
        await memory.forget(query="Pancho")
        await memory.restore_page(2)
        assert await shown(memory) == []
    left = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"ancho" not in left
    assert b"iabetic" not in left
