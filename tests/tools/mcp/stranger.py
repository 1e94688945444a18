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
        case "lies":
            answer(request, text("so", structuredContent={"n": "seven"}))
        case "never-answers":
            (FOLDER / "called").touch()
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
                capabilities = {"tools": {}}
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
                answer(
                    request,
                    {
                        "protocolVersion": "2025-06-18",
                        "capabilities": {"tools": {"listChanged": True}},
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
