"""Creates a working tool and a passing test of it, as a starting point."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from satchel.errors import StorageUnwritable, UsageError
from satchel.tools.external.schema import NAME, RESERVED

PYTHON_TOOL: Final = '''\
#!/usr/bin/env python3
"""A tool: `--schema` says what it is; a call gets JSON on stdin and prints JSON on stdout."""

import json
import sys

SCHEMA = {
    "name": "@NAME@",
    "description": "Greets someone. Say here what the tool does, when to use it and what comes back.",
    "parameters": {
        "who": {"type": "string", "description": "Who is greeted.", "required": True},
        "times": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How often. Default 1."},
    },
    "returns": {"type": "object", "properties": {"greeting": {"type": "string"}}},
}


def run(input: dict) -> dict:
    times = input.get("times", 1)
    for done in range(times):
        # Lines like this on stderr are shown while the tool runs.
        print(json.dumps({"progress": f"{done + 1} of {times}"}), file=sys.stderr, flush=True)
    return {"greeting": " ".join([f"Hello, {input['who']}!"] * times)}


def main() -> int:
    if sys.argv[1:] == ["--schema"]:
        print(json.dumps(SCHEMA))
        return 0
    try:
        print(json.dumps(run(json.load(sys.stdin))))
    except (KeyError, TypeError, ValueError) as error:
        print(json.dumps({"error": f"The input is wrong: {error!r}", "error_code": "INVALID_INPUT"}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''

TEST: Final = '''\
#!/usr/bin/env python3
"""Tests of @NAME@; run this file, or pytest on it."""

import json
import subprocess
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parent.parent / "@NAME@"


def ran(*arguments: str, stdin: str = "") -> tuple[int, dict]:
    ended = subprocess.run([TOOL, *arguments], input=stdin, capture_output=True, text=True, timeout=30)
    return ended.returncode, json.loads(ended.stdout)


class ToolTest(unittest.TestCase):
    def test_says_what_it_is(self) -> None:
        code, schema = ran("--schema")
        self.assertEqual((code, schema["name"]), (0, "@NAME@"))

    def test_greets(self) -> None:
        self.assertEqual(ran(stdin='{"who": "\\\\"Ann\\\\""}'), (0, {"greeting": 'Hello, "Ann"!'}))

    def test_says_what_is_wrong(self) -> None:
        code, answer = ran(stdin="{}")
        self.assertEqual((code, answer["error_code"]), (1, "INVALID_INPUT"))


if __name__ == "__main__":
    unittest.main()
'''

BASH_TOOL: Final = r"""#!/usr/bin/env bash
# A tool: `--schema` says what it is; a call gets JSON on stdin and prints JSON on stdout.
set -euo pipefail

if [[ "${1:-}" == --schema ]]; then
    cat <<'JSON'
{
  "name": "@NAME@",
  "description": "Greets someone. Say here what the tool does, when to use it and what comes back.",
  "parameters": {
    "who": {"type": "string", "description": "Who is greeted.", "required": true}
  },
  "returns": {"type": "object", "properties": {"greeting": {"type": "string"}}}
}
JSON
    exit
fi

# A text as a JSON string.
quoted() {
    local text=$1
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//$'\n'/\\n}
    text=${text//$'\r'/\\r}
    text=${text//$'\t'/\\t}
    printf '"%s"' "$text"
}

# The text field $2 of the JSON object $1. jq does it well; without jq, plain strings work.
field() {
    if command -v jq >/dev/null; then
        jq -er --arg name "$2" '.[$name] | strings' <<<"$1"
    else
        local pattern="\"$2\"[[:space:]]*:[[:space:]]*\"(([^\"\\\\]|\\\\.)*)\""
        [[ $1 =~ $pattern ]] && printf '%b' "${BASH_REMATCH[1]//\\\"/\"}"
    fi
}

input=$(cat)
if ! who=$(field "$input" who 2>/dev/null); then
    echo '{"error": "The input is wrong: it needs who, a text.", "error_code": "INVALID_INPUT"}'
    exit 1
fi

# Lines like this on stderr are shown while the tool runs.
echo '{"progress": "greeting"}' >&2
printf '{"greeting": %s}\n' "$(quoted "Hello, $who!")"
"""

NODE_TOOL: Final = """\
#!/usr/bin/env node
// A tool: `--schema` says what it is; a call gets JSON on stdin and prints JSON on stdout.

const schema = {
  name: "@NAME@",
  description: "Greets someone. Say here what the tool does, when to use it and what comes back.",
  parameters: {
    who: { type: "string", description: "Who is greeted.", required: true },
    times: { type: "integer", minimum: 1, maximum: 10, description: "How often. Default 1." },
  },
  returns: { type: "object", properties: { greeting: { type: "string" } } },
};

function run(input) {
  if (typeof input.who !== "string") throw new TypeError("it needs who, a text");
  const times = input.times ?? 1;
  for (let done = 1; done <= times; done++) {
    // Lines like this on stderr are shown while the tool runs.
    process.stderr.write(JSON.stringify({ progress: `${done} of ${times}` }) + "\\n");
  }
  return { greeting: Array(times).fill(`Hello, ${input.who}!`).join(" ") };
}

if (process.argv[2] === "--schema") {
  console.log(JSON.stringify(schema));
} else {
  let text = "";
  process.stdin.setEncoding("utf8");
  process.stdin.on("data", (piece) => (text += piece));
  process.stdin.on("end", () => {
    try {
      console.log(JSON.stringify(run(JSON.parse(text))));
    } catch (error) {
      console.log(JSON.stringify({ error: `The input is wrong: ${error.message}`, error_code: "INVALID_INPUT" }));
      process.exitCode = 1;
    }
  });
}
"""

_TOOLS: Final = {"python": PYTHON_TOOL, "bash": BASH_TOOL, "node": NODE_TOOL}
LANGUAGES: Final = tuple(_TOOLS)


def new_tool(folder: Path, name: str, *, language: str) -> tuple[Path, Path]:
    """Write `folder/NAME`, and `folder/tests/test_NAME.py`, which runs it. If the folder is missing, it is created,
    writable only by its owner. The language is one of `LANGUAGES`.

    Returns:
        The tool and its test, both executable.

    Raises:
        UsageError: It is not a valid tool name, or a file of that name exists.
        StorageUnwritable: They can't be written.
    """
    if not NAME.fullmatch(name) or name.startswith(RESERVED) or name in ("tests", "__pycache__"):
        raise UsageError(
            f"A tool can't be called {name!r}: a name has 1 to 64 letters, digits, underscores and hyphens, "
            f"and doesn't begin with {' or '.join(RESERVED)}."
        )
    path, test_path = folder / name, folder / "tests" / f"test_{name.replace('-', '_')}.py"
    try:
        for place in (folder, test_path.parent):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for target in (path, test_path):
            if os.path.lexists(target):
                raise UsageError(f"{target} already exists. Choose another name, or remove it first.")
        for target, text in ((path, _TOOLS[language]), (test_path, TEST)):
            handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text.replace("@NAME@", name))
    except OSError as error:
        raise StorageUnwritable(f"{path} could not be written: {error.strerror}.") from error
    return path, test_path
