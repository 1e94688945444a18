"""People of one server: one of them tries every door with every id, hash and name of what the others have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.routing import Route

import satchel.server.pages
from tests.requirements import requirement
from tests.server import household as houses
from tests.server.world import World, chat

MARK = "marzipan"
"""In all that ann has said; bob never says it."""
KINDS = (
    "memory",
    "shared",
    "document",
    "attached",
    "said",
    "asked",
    "answered",
    "project",
    "capability",
    "page",
)
RESTART = "/settings/restart"
OF_NOTHING = {"/setup", "/doctor", "/doctor/memories/repair"}
"""Pages that look at other programs, or at all memories, and take no id: they are asked once, since each takes half a second."""
NUMBERS = {"number", "version", "turn", "place", "call"}
_PAGES = Path(satchel.server.pages.__file__).parent
FIELDS = sorted(
    {
        name
        for source in _PAGES.glob("*.py")
        for name in re.findall(r'\.(?:get|all|text|one)\("([a-z_]+)"', source.read_text())
    }
)
"""The names of fields of forms and of pages' queries."""


def words(kind: str) -> str:
    return f"{MARK}-{kind}"


def fill(schema: Mapping[str, Any], value: str, known: Mapping[str, Any]) -> Any:
    """Data of a schema with a value at each place for a text."""
    if "$ref" in schema:
        return fill(known[schema["$ref"].rpartition("/")[2]], value, known)
    for name in ("anyOf", "oneOf", "allOf"):
        if name in schema:
            return fill(schema[name][0], value, known)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            return {name: fill(part, value, known) for name, part in properties.items() if name != "model"}
        case "array":
            return [fill(schema.get("items", {}), value, known)]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case _:
            return value


@dataclass
class Walk:
    """What somebody asks of each route, and what came of it.

    Attributes:
        ids: Whatever names something of ann's.
        own: A conversation of whoever asks.
    """

    client: httpx2.Client
    routes: list[tuple[str, str]]
    ids: list[str]
    own: str
    described: Mapping[str, Any] = field(default_factory=dict)
    found: dict[str, set[str]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def requests(self, method: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each id in the path, and each in the body or the query with a conversation of one's own in the path."""
        about = self.described["paths"].get(path, {}).get(method.lower())
        names = re.findall(r"\{(\w+)", path)
        # A conversation of one's own helps where more than its id is named.
        takes_more = path.startswith(("/api/sessions/{", "/chat/{")) and (len(names) > 1 or method != "GET")
        for id in self.ids[:1] if path in OF_NOTHING else self.ids:
            sent = self.sent(method, about, id)
            for place in dict.fromkeys((id, self.own if takes_more else id)):
                at = path
                for name in names:
                    value = "1" if name in NUMBERS else place if name == names[0] else id
                    at = re.sub(rf"\{{{name}[^}}]*\}}", value, at)
                yield at, sent
            if not names and method == "GET" and not sent["params"]:
                return

    def sent(self, method: str, about: Mapping[str, Any] | None, id: str) -> dict[str, Any]:
        """The query and the body, as they are described; else all fields that any page has."""
        if about is None:
            fields = dict.fromkeys(FIELDS, id)
            return {"data": fields} if method != "GET" else {"params": fields | {"q": "code", "page": "1"}}
        known, asked = self.described["components"]["schemas"], about.get("parameters", [])
        sent: dict[str, Any] = {
            "params": {
                each["name"]: fill(each["schema"], id, known) for each in asked if each["in"] == "query"
            }
        }
        content = about.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            body = fill(content["application/json"]["schema"], id, known)
            sent["json"] = {**body, "messages": [{"role": "user", "content": id}]}
        elif method != "GET":
            sent["content"] = id.encode()
        return sent

    def run(self, methods: set[str], *, until: Sequence[str] = ("never",)) -> None:
        """Ask every route, until these words have been found."""
        self.described = self.client.get("/openapi.json").json()
        for method, path in self.routes:
            if method in methods and not self.found.keys() >= set(until):
                for at, sent in self.requests(method, path):
                    self.ask(f"{method} {path}", method, at, **sent)

    def ask(self, door: str, method: str, at: str, **sent: Any) -> str:
        """Send a request, and note the words of ann's that come back."""
        with self.client.stream(method, at, **sent) as answer:
            if answer.status_code >= 500:
                self.broken.add(door)
            is_endless = method == "GET" and "event-stream" in answer.headers.get("content-type", "")
            text = "" if is_endless else answer.read().decode(errors="replace")
        self.note(door, text)
        return text

    def note(self, door: str, text: str) -> None:
        for word in re.findall(rf"{MARK}-(\w+)", text):
            self.found.setdefault(word, set()).add(door)

    def use_tools(self) -> None:
        """Call each tool by way of the model, and each that other agents have, with each id."""
        for tool in self.client.get("/api/tools").json():
            schema = tool["input_schema"] or {"type": "object"}
            inputs = json.dumps([fill(schema, id, {}) for id in self.ids])
            events = chat(self.client, f"CALL {tool['name']} {inputs}")
            self.note(f"tool {tool['name']}", str([event.data for event in events]))
        anyio.run(self.speak)

    async def speak(self) -> None:
        """Use everything that other agents are offered over MCP."""
        headers = {"authorization": self.client.headers["authorization"]}
        async with httpx2.AsyncClient(headers=headers, timeout=240, trust_env=False) as http:
            transport = streamable_http_client(
                f"{self.client.base_url}/mcp".replace("//mcp", "/mcp"), http_client=http
            )
            async with Client(transport, mode="legacy") as agent:
                tools = (await agent.list_tools()).tools
                assert len(tools) > 5
                for tool in tools:
                    for id in self.ids:
                        answer = await agent.call_tool(tool.name, fill(tool.input_schema, id, {}))
                        self.note("mcp", str(answer))
                for resource in (await agent.list_resources()).resources:
                    self.note("mcp", str(resource) + str(await agent.read_resource(resource.uri)))


def things_of(ann: httpx2.Client) -> list[str]:
    """Make one of each kind. Returns what names them, a conversation first."""

    def post(path: str, **sent: Any) -> Any:
        answer = ann.post(path, **sent)
        assert answer.is_success, answer.text
        return answer.json()

    post("/api/memories", json={"content": f"The code of the shed is {words('memory')}."})
    file = f"The code of the boat is {words('document')}.".encode()
    post("/api/memory/documents/sent", params={"filename": "boat.txt"}, content=file)
    page = {"text": f"# People\nThe code of the car: {words('page')}\n"}
    assert ann.patch("/api/page", json=page).is_success
    note = words("attached").encode()
    attached = {"sha256": post("/api/attachments", params={"filename": "note.txt"}, content=note)["sha256"]}
    text = f"The code of the door is {words('said')}."
    session = str(chat(ann, text, attachments=[{**attached, "filename": "note.txt"}])[-1].data["sessionId"])
    asks = json.dumps([{"question": f"Is the code {words('asked')}?"}])
    assert chat(ann, f"CALL ask_user {asks}")[-1].data["status"] == "asking"
    project = post("/api/projects", json={"name": "Keys", "instructions": words("project")})["id"]
    wish = {"name": "open_shed", "description": f"Opens the shed with {words('capability')}."}
    build = post("/api/capabilities", json=wish)
    answer = post("/v1/responses", json={"input": f"The code of the gate is {words('answered')}."})["id"]
    post("/api/spaces", json={"name": "club"})
    post("/api/spaces/club/members", json={"name": "carl"})
    shared = {"content": f"The code of the club is {words('shared')}."}
    entry = post("/api/spaces/club/memories", json=shared)["id"]
    memories = [one["id"] for one in ann.get("/api/memories").json() if "shed" in str(one)]
    documents = [str(one["path"]) for one in ann.get("/api/memory/documents").json()]
    with ann.stream("GET", "/api/builder/status", params={"buildId": build["build_id"]}) as until_over:
        until_over.read()
    ids = [
        *memories,
        "club",
        entry,
        entry.partition("/")[2],
        *documents,
        attached["sha256"],
        project,
        build["build_id"],
        answer,
    ]
    return [session, *ids, "open_shed", f"{attached['sha256'][:16]}-note.txt", "code"]


def state_of(ann: httpx2.Client, ids: list[str]) -> list[str]:
    """All that ann has, as she is shown it."""
    paths = ["memories", "sessions", "memory/documents", "projects", "capabilities", "page", "page/versions"]
    paths += ["spaces", "spaces/memories"]
    paths += [f"{kind}/{id}" for kind in ("memories", "projects", "capabilities") for id in ids]
    paths.append(f"sessions/{ids[0]}/exchanges")  # the log itself ends when nobody uses it
    return [ann.get(f"/api/{path}").text for path in paths]


@requirement("people:apart:doors")
def test_who_has_every_id_of_another_person_gets_none_of_their_words_and_changes_nothing(
    world: World,
) -> None:
    routers = (*world.app.api.state.routers, world.app.api.router)
    known = [route for router in routers for route in router.routes if isinstance(route, Route)]
    routes = sorted({(method, route.path) for route in known for method in route.methods or ()})
    assert len(routes) > 150
    routes.sort(key=lambda one: one[1] == RESTART)  # while his Satchel starts anew, nothing is asked of it
    changes = {method for method, _ in routes} - {"GET", "HEAD"}
    with houses.household(SATCHEL_SERVER_REQUESTS_PER_S="10000") as house:
        for name in ("ann", "bob", "carl"):
            house.add(name)
        house.start()
        with house.program("ann") as ann, house.program("bob") as bob, house.program("carl") as carl:
            ids = things_of(ann)
            assert carl.post("/api/spaces/club/accept").is_success
            shared = carl.get("/api/spaces/memories").text
            assert words("shared") in shared  # of all that ann has, only this
            assert set(re.findall(rf"{MARK}-(\w+)", shared)) == {"shared"}
            before = state_of(ann, ids)
            own = str(chat(bob, "Hello")[-1].data["sessionId"])
            his = Walk(bob, routes, ids, own)
            his.run({"GET"})
            his.use_tools()
            his.run(changes)
            assert his.found == {}
            assert his.broken <= {f"POST {RESTART}"}
            assert state_of(ann, ids) == before
            # Nothing of it came into his home by any job either.
            for file in (house.home / "users" / "bob").rglob("*"):
                assert not file.is_file() or MARK.encode() not in file.read_bytes(), file
            # These doors do lead to all of it: with her token, the same requests find each of her words.
            hers = Walk(ann, routes, ids, ids[0])
            hers.run({"GET"}, until=KINDS)
            assert set(KINDS) <= set(hers.found), hers.found
            hers.ids = ids[-1:]
            hers.use_tools()
            assert {door.split()[0] for doors in hers.found.values() for door in doors} >= {
                "GET",
                "tool",
                "mcp",
            }
