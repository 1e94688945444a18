"""Projects over HTTP and on pages."""

from __future__ import annotations

import httpx2

from tests.requirements import requirement
from tests.server.browsers import at, browser, open_page, said, send, ticked, words_of
from tests.server.test_attachments import sent
from tests.server.world import World, chat, text_of


@requirement("projects:faces")
def test_a_project_over_http(client: httpx2.Client) -> None:
    made = client.post("/api/projects", json={"name": "Attic", "instructions": "Speak of beams."})
    assert made.status_code == 201, made.text
    project = made.json()
    assert client.post("/api/projects", json={"name": "attic"}).status_code == 400
    path = f"/api/projects/{project['id']}"
    events = chat(client, "instructions? The sledge is called Rosebud.", project="Attic")
    assert "Speak of beams." in text_of(events)
    [info] = client.get(f"{path}/sessions").json()
    assert info["project"] == project["id"]
    assert info["title"].startswith("instructions? The sledge")
    state = client.get(f"/api/sessions/{info['id']}/state").json()
    assert (state["project"], state["private"]) == ("Attic", False)
    changed = client.patch(path, json={"instructions": "Speak of nails.", "archived": True}).json()
    assert (changed["conversations"], changed["archived"], changed["name"]) == (1, True, "Attic")
    assert client.get("/api/projects").json() == []
    assert [one["id"] for one in client.get("/api/projects", params={"archived": True}).json()] == [
        project["id"]
    ]
    assert "Speak of nails." in text_of(chat(client, "instructions?", session_id=info["id"]))

    [hit] = client.get(f"{path}/memories/search", params={"q": "sledge Rosebud", "limit": 1}).json()
    memory = hit["memory"]["id"]
    assert memory in {one["id"] for one in client.get(f"{path}/memories").json()}
    everywhere = client.get("/api/memories/search", params={"q": "Rosebud", "mode": "lexical"}).json()
    assert everywhere == []
    surfaced = client.post(
        "/api/surface", json={"messages": [{"role": "user", "content": "Who is Rosebud?"}]}
    )
    assert "sledge" not in surfaced.text
    assert client.get(f"/api/memories/{memory}").json()["content"].endswith("Rosebud.")

    moved = client.patch(f"/api/sessions/{info['id']}", json={"project": ""}).json()
    assert moved["project"] is None
    assert client.get(f"{path}/memories").json() == []
    assert client.get("/api/memories/search", params={"q": "Rosebud", "mode": "lexical"}).json()
    client.patch(f"/api/sessions/{info['id']}", json={"project": "Attic"})
    deleted = client.delete(path).json()
    assert (deleted["conversations"], deleted["memories"] > 0) == (1, True)
    assert client.get(path).status_code == 404
    assert client.get(f"/api/sessions/{info['id']}").status_code == 404
    assert client.get("/api/memories/search", params={"q": "Rosebud", "mode": "lexical"}).json() == []


MANUAL = b"# Boiler\n## Label\nThe type is quagmire-7.\n## Descaling\nUse citric acid.\n"


@requirement("projects:documents", "projects:deleting")
def test_documents_of_a_project_are_found_in_it_and_go_with_it(world: World, client: httpx2.Client) -> None:
    project = client.post("/api/projects", json={"name": "Boiler room"}).json()["id"]
    path = f"/api/projects/{project}"

    def give(content: bytes, filename: str, project: str) -> httpx2.Response:
        fields = {"filename": filename, "project": project}
        return client.post("/api/memory/documents/sent", params=fields, content=content)

    assert give(MANUAL, "boiler.md", "nobody").status_code == 404
    given = give(MANUAL, "boiler.md", "boiler room").json()
    assert (given["outcome"], given["passages"]) == ("added", 2)
    assert client.get("/api/memory/documents").json() == []
    assert client.get("/api/memories/search", params={"q": "quagmire"}).json() == []

    inside = chat(client, "Which quagmire type is the boiler?", project="Boiler room")
    outside = chat(client, "Which quagmire type is the boiler?")
    assert "quagmire-7" in client.get(f"/api/sessions/{inside[0].data['sessionId']}").text
    assert "quagmire-7" not in client.get(f"/api/sessions/{outside[0].data['sessionId']}").text

    file = sent(client, b"# Pump\n\nIt hums in b flat.\n", "pump.md")
    talk = chat(client, "Keep this.", project="Boiler room", attachments=[file])[0].data["sessionId"]
    with browser(world) as page:
        open_talk = open_page(page, f"/chat/{talk}")
        [action] = open_talk.xpath("//form[button[starts-with(., 'Remember this document')]]/@action")
        send(page, open_talk, action)
        assert "Remembered in the project: 1 passage." in said(open_page(page, f"/chat/{talk}"))
        here = open_page(page, f"/projects/{project}")
        assert "2 documents" in words_of(here.xpath("//header[@class='head']")[0])
        [button] = here.xpath("//button[@id='remember']")
        assert button.get("data-project") == project
        known = words_of(here.xpath("//section[@aria-labelledby='known-h']")[0])
        assert "Which quagmire type" in known
        assert "quagmire-7" not in known  # its passages stand apart
        assert text_of(inside).split("\n")[0] not in known  # a model's words, though they rest on a document
        goes = words_of(here.xpath("//details[summary='Delete…']")[0])
        assert "and 2 documents with the files you sent" in goes
        [read_it] = here.xpath("//a[text()='Boiler']/@href")
        text = open_page(page, read_it)
        assert "quagmire-7" in words_of(text)
        assert text.xpath(f"//p[contains(@class, 'crumb')]/a[@href='/projects/{project}']")
        [pump] = [form for form in here.forms if "pump" in str(form.fields.get("source", ""))]
        gone = page.post(
            pump.get("action"),
            data=dict(pump.form_values()),
            headers={"origin": at(page), "sec-fetch-site": "same-origin"},
        )
        assert gone.headers["location"] == f"/projects/{project}"
    [left] = client.get("/api/memory/documents", params={"project": project}).json()
    assert left["path"] == given["path"]

    # The same file is the user's own as well: it stays when the project goes.
    assert give(MANUAL, "boiler.md", "").json()["path"] == given["path"]
    assert client.get(path).json()["documents"] == 1
    assert client.delete(path).json()["documents"] == 1
    kept = world.home / given["path"]
    assert kept.read_bytes() == MANUAL
    [own] = client.get("/api/memory/documents").json()
    assert own["path"] == given["path"]
    client.delete("/api/memory/documents", params={"document": own["path"]})
    assert not kept.exists()


@requirement("projects:faces")
def test_a_project_on_its_pages(world: World, client: httpx2.Client) -> None:
    with browser(world) as page:
        empty = open_page(page, "/projects")
        refused = send(page, empty, "/projects", {"name": "   ", "instructions": "Speak of tulips."})
        assert refused.status_code == 422
        assert "The title is empty." in refused.text
        assert "Speak of tulips." in refused.text  # what was typed is kept
        made = send(page, empty, "/projects", {"name": "Garden", "instructions": "Speak of tulips."})
        here = made.headers["location"]
        assert "Made: Garden." in said(open_page(page, here))
        start = open_page(page, f"/?project={here.rpartition('/')[2]}")
        sent = send(page, start, "/chat", {"message": "The shed key hangs behind the ivy."})
        talk = sent.headers["location"].partition("#")[0]
        session = talk.rpartition("/")[2]
        chat(client, "And the rake?", session_id=session)  # waits for the first turn
        shown = open_page(page, here)
        assert shown.xpath(f"//main//a[@href='{talk}']")
        [standing, memory, *_] = shown.xpath("//a[starts-with(@href, '/memories/')]/@href")
        assert words_of(open_page(page, memory))
        send(
            page, open_page(page, standing), standing, {"text": "# Who the user is\nPaul waters the tulips."}
        )
        assert "Paul waters" in words_of(open_page(page, standing))
        assert "Paul waters" not in words_of(open_page(page, "/memories/page"))
        edited = client.get("/api/page", params={"project": "Garden"}).json()
        assert edited["edited"] == "# Who the user is\nPaul waters the tulips.\n"
        client.patch("/api/page", json={"text": ""}, params={"project": "Garden"})
        assert client.get("/api/page", params={"project": "Garden"}).json()["lines"] == []
        client.post("/api/page/restore", json={}, params={"project": "Garden"})
        assert len(client.get("/api/page/versions", params={"project": "Garden"}).json()) == 3
        assert client.get("/api/page").json()["lines"] == []
        outside = send(page, shown, "/sessions", {"project": "", "do": "move"})
        assert outside.headers["location"] == talk
        moved = open_page(page, talk)
        assert "In no project now" in said(moved)
        assert not open_page(page, here).xpath(f"//main//a[@href='{talk}']")
        other = client.post("/api/sessions", json={}).json()["id"]
        chat(client, "Where does the hose hang?", session_id=other)
        several = open_page(page, "/sessions")
        [garden] = several.xpath("//select[@name='project']/option[text()='Garden']/@value")
        assert ticked(page, several, [session, other], "move", project=garden).status_code == 303
        listed = open_page(page, "/sessions")
        assert "In the project Garden now, with what was learnt: 2 conversations. Undo" in said(listed)
        for talked in (session, other):
            assert client.get(f"/api/sessions/{talked}").json()["project"] == garden
        [undo] = listed.get_element_by_id("sayings").iter("form")
        headers = {"origin": at(page), "sec-fetch-site": "same-origin"}
        page.post(undo.get("action"), data=dict(undo.form_values()), headers=headers)
        assert "In no project now" in said(moved := open_page(page, "/sessions"))
        assert ticked(page, moved, [session], "move", project=garden).status_code == 303
        shown = open_page(page, here)
        assert "deletes for good its instructions, 1 conversation and" in words_of(shown)
        send(page, shown, here, {"name": "Orchard", "instructions": "Speak of pears."})
        assert "Orchard" in words_of(open_page(page, "/projects"))
        send(page, open_page(page, here), f"{here}/archive")
        assert "Orchard" not in words_of(open_page(page, "/projects").find(".//main"))
        send(page, open_page(page, here), f"{here}/delete")
        assert "Deleted: Orchard." in said(open_page(page, "/projects"))
        open_page(page, talk, status=404)


@requirement("projects:faces")
def test_memories_of_a_project_are_changed_as_others_are(world: World, client: httpx2.Client) -> None:
    project = client.post("/api/projects", json={"name": "Cellar"}).json()["id"]
    chat(client, "The barrel is called Diogenes.", project="Cellar")
    chat(client, "The lamp is called Argand.", project="Cellar")

    def told() -> dict[str, str]:
        return {one["content"]: one["id"] for one in client.get(f"/api/projects/{project}/memories").json()}

    barrel, lamp = told()["The barrel is called Diogenes."], told()["The lamp is called Argand."]
    client.patch(f"/api/memories/{barrel}", json={"content": "The barrel is called Xenia."})
    change = client.get(f"/api/memories/{barrel}/history").json()[-1]["id"]
    assert client.post(f"/api/memories/changes/{change}/undo").status_code == 200
    assert told()["The barrel is called Diogenes."] == barrel
    assert client.post("/api/memories/changes/c999999/undo").status_code == 404
    assert client.get(f"/api/memories/{barrel}/related").status_code == 200
    with browser(world) as page:
        assert "Diogenes" in words_of(open_page(page, f"/memories/{barrel}"))
        shown = open_page(page, f"/memories/merge?ids={barrel}+{lamp}")
        assert "Diogenes" in words_of(shown)
        assert "Argand" in words_of(shown)
        token = dict(shown.xpath("//form[@action='/memories/merge']")[0].form_values())["form_token"]
        same_site = {"origin": at(page), "sec-fetch-site": "same-origin"}

        def post(path: str, **fields: str | list[str]) -> None:
            done = page.post(path, data={"form_token": token, **fields}, headers=same_site)
            assert done.status_code == 303, done.text

        post("/memories/review", id=barrel, do="change", content="The barrel is called Zeno.")
        assert told()["The barrel is called Zeno."] == barrel
        change = client.get(f"/api/memories/{barrel}/history").json()[-1]["id"]
        post("/memories/many", do="undo", ids=change)
        memory = world.call(world.satchel.home.memory_in, project)
        facts = [world.call(memory.add, f"The cellar is {how}.") for how in ("damp", "dark")]
        post("/memories/merge", id=facts, content="The cellar is damp and dark.")
        assert "The cellar is damp and dark." in told()
