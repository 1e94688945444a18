"""Secrets in the forms that tools, errors and models write them: none of these reaches a log."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator

import pytest

from satchel.events import Assistant, Event, Failure, Notice, Observation
from satchel.loop import ToolPool
from satchel.messages import TextBlock, ToolUseBlock, Usage
from satchel.runtime.log_redactor import LogRedactor
from tests.memory.labelled_secrets import ANTHROPIC
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

WORD = "hunter2-Zebra"
ONCE = json.dumps({"password": WORD})
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA7hunter2-Zebra\nabc\n-----END PRIVATE KEY-----\n"

BROKE = {
    "JSON in JSON": json.dumps(ONCE),
    "JSON in JSON in JSON": json.dumps(json.dumps(ONCE)),
    "an environment in Python": f"os.environ['API_KEY'] = '{WORD}'",
    "an item in Python": f'config["db_password"] = "{WORD}"',
    "a variable of PostgreSQL": f"PGPASSWORD={WORD} psql",
    "a key after an escaped line break": json.dumps(f"x\n{ANTHROPIC}"),
    "a key in an encoded address": f"https://a/?next={urllib.parse.quote(f'/x?k={ANTHROPIC}', safe='')}",
    "a variable of MySQL": f"export MYSQLPASSWORD={WORD}",
}
HELD = {
    "JSON": ONCE,
    "YAML": f"password: {WORD}",
    "TOML": f"password = '{WORD}'",
    "a settings file": f"DB_PASSWORD={WORD}",
    "an argument in Python": f"connect(user='a', password='{WORD}')",
    "an address": f"https://ann:{WORD}@example.com/x",
    "a database's address": f"postgresql://ann:{WORD}@db/x",
    "an address without a name": f"redis://:{WORD}@db:6379",
    "an option": f"docker login -u ann --password {WORD}",
    "prose": f"the password is {WORD}.",
    "German": f"Mein Passwort ist {WORD}",
    "bytes": repr(f"password={WORD}".encode()),
    "a header": f"Authorization: Bearer {WORD}{WORD}",
    "a header of a name and a password": f"Authorization: Basic {WORD}{WORD}",
    "a header for a key": f"X-Api-Key: {WORD}99",
    "a cookie": f"Cookie: session={WORD}{WORD}",
    "a private key": PEM,
    "a private key in JSON": json.dumps({"key": PEM}),
    "a private key without an end": PEM[:70],
    "a key in an address": f"https://a/x?access_token={WORD}99&b=1",
    "an encoded key": urllib.parse.quote(f"api_key={WORD}=", safe="=-"),
    "a key in an error": f"401: invalid x-api-key {ANTHROPIC} {ANTHROPIC}",
    "a key in a command": f"curl -H 'x-api-key: {ANTHROPIC}' https://a",
    "a coloured word": f"password: \x1b[31m{WORD}\x1b[0m",
}


@pytest.fixture(scope="module")
def redactor() -> Iterator[LogRedactor]:
    pool = ToolPool(1)
    yield LogRedactor(redacts=True, pool=pool)
    pool.close()


@requirement("sessions:redacted:every-field")
@pytest.mark.parametrize("what", [*BROKE, *HELD])
async def test_a_secret_is_found_in_whatever_form_it_is_written(redactor: LogRedactor, what: str) -> None:
    text = {**BROKE, **HELD}[what]
    used = ToolUseBlock(id="c", name="t", input={"deep": [{"er": text}]})
    blocks = (TextBlock(text=f"So: {text}"), used)
    events: list[Event] = [
        Notice(part="x", text=text),
        Failure(part="x", message=text, error="E", traceback=f"Traceback:\n  {text}"),
        Observation(turn=1, round=1, call_id="c", tool="t", text=text, data={"text": [text]}),
        Assistant(
            turn=1, round=1, blocks=blocks, stop_reason="end_turn", provider="p", model="m", usage=Usage()
        ),
    ]
    for event in await redactor.redacted(events):
        assert WORD not in str(event)
        assert ANTHROPIC not in str(event)


PLAIN = [
    "token = tokens[0]",
    'os.environ["API_KEY"]',
    'key = "name"',
    "COMPASSWORD is no word",
    r'"password_field": "password"',
    "self.tokens['count'] = 5",
]


@pytest.mark.parametrize("text", PLAIN)
async def test_code_that_only_names_secrets_stays_as_it_is(redactor: LogRedactor, text: str) -> None:
    assert await redactor.redacted_text(text) == text
