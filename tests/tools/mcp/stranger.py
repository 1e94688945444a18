"""An MCP server on stdin and stdout, without the SDK, that behaves as its first argument says, mostly badly."""

# It is handed JSON of any shape, as a program on its own: types would say `Any` everywhere.
# mypy: ignore-errors

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

BEHAVIOUR = sys.argv[1]
FOLDER = Path(sys.argv[2]) if len(sys.argv) > 2 else Path()
MODERN = BEHAVIOUR.startswith("modern")


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def tool(name, description="A tool.", **more):
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": {}},
        **more,
    }


def listed():
    match BEHAVIOUR:
        case "told-by-file":
            return json.loads((FOLDER / "tools.json").read_text())
        case "lies":
            return [
                tool(
                    "lie",
                    outputSchema={
                        "type": "object",
                        "properties": {"n": {"type": "integer"}},
                        "required": ["n"],
                    },
                )
            ]
        case "slow-results" | "no-results":
            slow = {"type": "string", "pattern": "^(a+)+$"}
            return [tool("lie", outputSchema={"type": "object", "properties": {"n": slow}})]
        case "bad-schemas":
            return [
                tool("good"),
                {"name": "none", "inputSchema": {"type": "array"}},
                {
                    "name": "outside",
                    "inputSchema": {"type": "object", "properties": {"x": {"$ref": "http://h/x"}}},
                },
                {"name": "wrong", "inputSchema": {"type": "object", "properties": {"x": {"type": 7}}}},
                {"name": "", "inputSchema": {"type": "object"}},
                tool("a name with spaces and " + "x" * 200),
                tool("good"),
                {"name": "long", "inputSchema": {"type": "object", "description": "x" * 70_000}},
            ]
        case "tasks" | "tasks-endless" | "tasks-fail" | "no-tasks":
            return [tool("plain"), tool("work", execution={"taskSupport": "required"})]
        case "names":
            return [tool("a.b"), tool("a b"), tool("a_b")]
        case _:
            return [
                tool(
                    "work",
                    annotations={"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
                )
            ]


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


SAMPLE = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Which\u200b city?"}}],
    "systemPrompt": "Be short.",
    "maxTokens": 100_000,
    "temperature": 0.5,
}


def offers(request):
    """Answer what is asked about resources and prompts; a file of the folder says it all."""
    told = json.loads((FOLDER / "offers.json").read_text())
    done = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if MODERN else {}
    match request["method"]:
        case "resources/list" if told.get("endless"):
            listed = [{"uri": f"demo://{n}", "name": "n"} for n in range(300)]
            answer(request, {**done, "resources": listed, "nextCursor": "more"})
        case "resources/list":
            answer(request, {**done, "resources": told.get("resources", [])})
        case "resources/templates/list":
            answer(request, {**done, "resourceTemplates": told.get("templates", [])})
        case "resources/read":
            uri = request["params"]["uri"]
            contents = told.get("contents", {}).get(uri)
            if contents is None:
                error = {"code": -32002, "message": "Resource not found"}
                send({"jsonrpc": "2.0", "id": request["id"], "error": error})
            else:
                answer(request, {**done, "contents": [{"uri": uri, **part} for part in contents]})
        case "prompts/list":
            answer(request, {**done, "prompts": told.get("prompts", [])})
        case "prompts/get":
            said = f"{request['params']['name']} {json.dumps(request['params'].get('arguments'), sort_keys=True)}"
            messages = told.get("messages", [{"role": "user", "content": {"type": "text", "text": said}}])
            answer(request, {**done, "messages": messages})


LOOKS, WAITING = [], []


def task(status, **more):
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    return {
        "taskId": "t1",
        "status": status,
        "statusMessage": f"It is {status}.",
        "ttl": None,
        **times,
        **more,
    }


def ask_about_task(request):
    """Answer `tasks/get`: at work at first, then as the behaviour says; a new one asks the user in between."""
    LOOKS.append(request)
    more = {"resultType": "complete", "pollIntervalMs": 1, "ttlMs": None} if MODERN else {"pollInterval": 1}
    if BEHAVIOUR.endswith("endless") or len(LOOKS) == 1:
        (FOLDER / "looked").touch()
        answer(request, {**task("working"), **more})
    elif BEHAVIOUR.endswith("fail"):
        error = {"code": -32000, "message": "no paper left"}
        answer(request, {**task("failed"), **more, **({"error": error} if MODERN else {})})
    elif MODERN and len(LOOKS) < 4:
        form = {"type": "object", "properties": {"city": {"type": "string"}}}
        asked = {"method": "elicitation/create", "params": {"message": "Where?", "requestedSchema": form}}
        answer(request, {**task("input_required"), **more, "inputRequests": {"q": asked}})
    else:
        answer(request, {**task("completed"), **more, "result": text(json.dumps(GIVEN, sort_keys=True))})


GIVEN = []


def call(request):
    params = request["params"]
    match BEHAVIOUR:
        case "vanishes":
            os._exit(1)
        case "vanishes-once":
            if not (FOLDER / "was-here").exists():
                (FOLDER / "was-here").touch()
                os._exit(1)
            answer(request, text("back"))
        case "huge":
            answer(request, text("x" * 50_000_000))
        case "huge-id-last":
            line = json.dumps({"jsonrpc": "2.0", "result": text("x" * 50_000_000), "id": request["id"]})
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        case "slow-results":
            answer(request, text("so", structuredContent={"n": "a" * 50 + "!"}))
        case "no-results":
            answer(request, text("so"))
        case "lies":
            answer(request, text("so", structuredContent={"n": "seven"}))
        case "never-answers":
            (FOLDER / "called").touch()
        case "errors":
            error = {"code": -32000, "message": "out of paper"}
            send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        case "wrong-results":
            answer(request, {"content": "no list"})
        case "asks" | "asks-much":
            fields = {"city": {"type": "string"}}
            if BEHAVIOUR == "asks-much":
                pets = [{"const": "p1", "title": "Cat"}, {"const": "p2", "title": "Dog"}]
                fields |= {
                    "days": {"type": "integer", "maximum": 9, "default": 3},
                    "pets": {"type": "array", "items": {"anyOf": pets}},
                    "mail": {"type": "string", "format": "email"},
                }
            send(
                {
                    "jsonrpc": "2.0",
                    "id": "q1",
                    "method": "elicitation/create",
                    "params": {
                        "message": "Which city?",
                        "requestedSchema": {"type": "object", "properties": fields, "required": ["city"]},
                    },
                }
            )
            for line in sys.stdin:
                reply = json.loads(line)
                if reply.get("id") == "q1":
                    answer(request, text(json.dumps(reply["result"], sort_keys=True)))
                    return
        case "modern-asks":
            given = params.get("inputResponses")
            if not given:
                asked = {
                    "method": "elicitation/create",
                    "params": {
                        "message": "Really delete?",
                        "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean"}}},
                    },
                }
                answer(
                    request,
                    {"resultType": "input_required", "inputRequests": {"q": asked}, "requestState": "sealed"},
                )
            else:
                said = json.dumps(
                    [given, params.get("requestState"), params.get("arguments")], sort_keys=True
                )
                answer(request, {"resultType": "complete", **text(said)})
        case "tasks" | "tasks-endless" | "tasks-fail" if "task" in params:
            answer(request, {"task": task("working", pollInterval=1)})
        case "tasks" | "tasks-endless" | "tasks-fail" | "no-tasks":
            answer(request, text("plain"))
        case "modern-tasks" | "modern-tasks-endless" | "modern-tasks-fail":
            answer(request, {"resultType": "task", **task("working", ttlMs=None, pollIntervalMs=1)})
        case "renames":
            (FOLDER / "tools.json").write_text(json.dumps([tool("other")]))
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            answer(request, text("renamed"))
        case "tells-progress":
            token = params["_meta"]["progressToken"]
            for done in (1, 2):
                send(
                    {
                        "jsonrpc": "2.0",
                        "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": done, "total": 2, "message": "half"},
                    }
                )
            answer(request, text("done"))
        case "asks-roots" | "samples" | "samples-much":
            for number in range(6 if BEHAVIOUR == "samples-much" else 1):
                method, asked = (
                    ("roots/list", {}) if BEHAVIOUR == "asks-roots" else ("sampling/createMessage", SAMPLE)
                )
                send({"jsonrpc": "2.0", "id": f"q{number}", "method": method, "params": asked})
                reply = next(r for r in map(json.loads, sys.stdin) if r.get("id") == f"q{number}")
                reply = reply.get("result") or reply.get("error")
            answer(request, text(json.dumps(reply, sort_keys=True)))
        case "samples-when-two" | "asks-when-two":
            WAITING.append(request)
            if len(WAITING) == 2:
                method, asked = ("sampling/createMessage", SAMPLE)
                if BEHAVIOUR == "asks-when-two":
                    form = {"type": "object", "properties": {"city": {"type": "string"}}}
                    method, asked = "elicitation/create", {"message": "Where?", "requestedSchema": form}
                send({"jsonrpc": "2.0", "id": "q", "method": method, "params": asked})
                reply = next(r for r in map(json.loads, sys.stdin) if r.get("id") == "q")
                for each in WAITING:
                    answer(each, text(json.dumps(reply.get("result") or reply["error"])))
        case "progresses-invisibly":
            token = params["_meta"]["progressToken"]
            told = {"progressToken": token, "progress": 1, "message": "half\u202e"}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
            error = {"code": -32603, "message": "no\U000e0041"}
            send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        case "modern-samples" | "modern-asks-roots":
            given = params.get("inputResponses")
            method, asked = (
                ("roots/list", {}) if BEHAVIOUR.endswith("roots") else ("sampling/createMessage", SAMPLE)
            )
            if given:
                answer(request, {"resultType": "complete", **text(json.dumps(given["q"], sort_keys=True))})
            else:
                more = {"q": {"method": method, "params": asked}}
                answer(request, {"resultType": "input_required", "inputRequests": more})
        case "folder":
            answer(request, text(str(Path.cwd())))
        case "environment":
            answer(request, text(json.dumps(dict(os.environ))))
        case "parts":
            answer(
                request,
                {
                    "content": [
                        {"type": "text", "text": "see"},
                        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
                        {"type": "image", "data": "%%%", "mimeType": "image/png"},
                        {
                            "type": "resource_link",
                            "uri": "file:///a",
                            "name": "a",
                            "description": "the first",
                        },
                        {"type": "resource", "resource": {"uri": "file:///b", "text": "words"}},
                        {"type": "resource", "resource": {"uri": "file:///c", "blob": "aGVsbG8="}},
                    ],
                    "structuredContent": {"n": 7},
                },
            )
        case "garbles":
            sys.stdout.write('debug: half a li\n{"jsonrpc":\n[1,2]\n\xff\n')
            sys.stdout.flush()
            answer(request, text("all the same"))
        case _:
            answer(request, text("done"))


def main():
    match BEHAVIOUR:
        case "hangs":
            time.sleep(1000)
        case "dies":
            sys.stderr.write("no license key\n")
            sys.exit(3)
        case "dies with its last words":
            os.close(1)
            sys.stdin.read()
            sys.stderr.write("no license key\n")
            sys.exit(3)
        case "garbage":
            while True:
                sys.stdout.write("what is this\n" * 100)
        case "stays":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen(
                [sys.executable, "-c", "import os, time; os.setsid(); time.sleep(1000)"],
                stdout=subprocess.DEVNULL,
            )
            (FOLDER / "pids").write_text(f"{os.getpid()} {child.pid}")
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "server/discover" if MODERN:
                capabilities = {
                    "tools": {},
                    **({"resources": {}, "prompts": {}} if "offers" in BEHAVIOUR else {}),
                }
                answer(
                    request,
                    {
                        "resultType": "complete",
                        "supportedVersions": ["2026-07-28"],
                        "capabilities": capabilities,
                        "ttlMs": 0,
                        "cacheScope": "private",
                    },
                )
            case "initialize":
                tasks = (
                    {"tasks": {"requests": {"tools": {"call": {}}}}} if BEHAVIOUR.startswith("tasks") else {}
                )
                answer(
                    request,
                    {
                        "protocolVersion": "2025-11-25" if tasks else "2025-06-18",
                        "capabilities": {
                            "tools": {"listChanged": True},
                            **tasks,
                            **({"resources": {}, "prompts": {}} if "offers" in BEHAVIOUR else {}),
                        },
                        "instructions": (FOLDER / "instructions.txt").read_text()
                        if (FOLDER / "instructions.txt").exists()
                        else "",
                        "serverInfo": {"name": "stranger", "version": "1"},
                    },
                )
            case "tools/list":
                if BEHAVIOUR == "renames" and (FOLDER / "tools.json").exists():
                    tools = json.loads((FOLDER / "tools.json").read_text())
                else:
                    tools = listed()
                more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if MODERN else {}
                answer(request, {"tools": tools, **more})
            case "tools/call":
                call(request)
            case method if method and method.startswith(("resources/", "prompts/")) and "offers" in BEHAVIOUR:
                offers(request)
            case "tasks/get":
                ask_about_task(request)
            case "tasks/result" if BEHAVIOUR.endswith("fail"):
                error = {"code": -32000, "message": "no paper left"}
                send({"jsonrpc": "2.0", "id": request["id"], "error": error})
            case "tasks/result":
                answer(request, text("the result"))
            case "tasks/update":
                GIVEN.append(request["params"]["inputResponses"])
                answer(request, {"resultType": "complete"})
            case "tasks/cancel":
                (FOLDER / "cancelled").touch()
                answer(request, task("cancelled"))
            case "notifications/cancelled":
                (FOLDER / "cancelled").touch()
            case _ if "id" in request:
                send(
                    {
                        "jsonrpc": "2.0",
                        "id": request["id"],
                        "error": {"code": -32601, "message": "Method not found"},
                    }
                )
    if BEHAVIOUR == "stays":
        time.sleep(1000)


main()
