"""Where the web tools go, and where they don't."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from satchel.errors import Refused, UsageError
from satchel.tools.web.addresses import AddressRules
from tests.requirements import requirement
from tests.tools.web.conftest import names

pytestmark = pytest.mark.anyio

PRIVATE = (
    "http://0.0.0.0",
    "http://[::]",
    "http://[fec0::1]",
    "http://169.254.169.254/latest/meta-data/",
    "http://100.64.0.1",
    "HTTP://LOCALHOST",
    "http://localhost./",
    "http://168.63.129.16/metadata",
    "http://192.0.0.192",
    "http://100.100.100.200",
    "http://192.88.99.1",
    "http://[::ffff:0:8.8.8.8]",
    "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]",
    "http://[2001:db8::1]",
    "http://[3fff::1]",
    "http://[5f00::1]",
    "http://[2002:a83f:8110::1]",
    "http://[2606:2800::5efe:10.0.0.1]",
    "http://[fd00:ec2::254]",
    "http://[4000::1]",
)
"""Spellings of 127.0.0.1 and of other ranges are in tests/attacks and tests/sandbox."""
PUBLIC = (
    "8.8.8.8",
    "2606:4700::1111",
    "64:ff9b::8.8.8.8",
    "::ffff:8.8.8.8",
    "2002:808:808::1",
    "168.63.129.17",
)


@requirement("web:fetch:private")
@pytest.mark.parametrize("address", PUBLIC)
async def test_an_address_beside_the_special_ranges_is_let_through(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert (await AddressRules().check(f"http://{host}/")).port == 80


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.com\\.python.org/",
        "http://a b.example/",
        "http://a..b/",
        "http://[fe80::1%25eth0]/",
        "http://‮a/",
    ],
)
async def test_a_host_that_programs_would_parse_differently_is_invalid(url: str) -> None:
    with pytest.raises(UsageError):
        await AddressRules(resolve=names({})).check(url)


@requirement("web:fetch:private")
@pytest.mark.parametrize("url", PRIVATE)
async def test_an_address_that_is_not_public_is_refused_however_it_is_written(url: str) -> None:
    with pytest.raises(Refused, match=r"not a public address.*allow_private"):
        await AddressRules().check(url)


@requirement("web:fetch:private")
@pytest.mark.parametrize(
    "answers",
    [["10.0.0.7"], ["93.184.215.14", "10.0.0.7"], ["2606:2800::1", "::1"], ["fe80::1%eth0"], ["junk"]],
)
async def test_a_name_is_refused_when_any_of_its_addresses_is_private(answers: Sequence[str]) -> None:
    rules = AddressRules(resolve=names({"intra.example": answers}))
    with pytest.raises(Refused, match="intra.example"):
        await rules.check("https://intra.example/")


@requirement("web:fetch:private")
async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["93.184.215.14"] if len(asked) == 1 else ["127.0.0.1"]

    target = await AddressRules(resolve=rebinding).check("https://example.com:8443/a?b=1#part")
    assert asked == ["example.com"]
    assert target.dialled_url == "https://93.184.215.14:8443/a?b=1"
    assert target.host_header == "example.com:8443"


async def test_a_public_name_in_any_script_is_let_through() -> None:
    rules = AddressRules(resolve=names({"xn--mnchen-3ya.example": ["2606:2800::1"]}))
    target = await rules.check("http://münchen.example/straße")
    assert (target.host_header, target.port) == ("xn--mnchen-3ya.example", 80)
    assert target.dialled_url.startswith("http://[2606:2800::1]:80/")


@requirement("web:fetch:private")
@pytest.mark.parametrize(
    ("allowed", "url", "passes"),
    [
        (["127.0.0.1:8000"], "http://127.0.0.1:8000/x", True),
        (["127.0.0.1:8000"], "http://127.0.0.1:8001/x", False),
        (["127.0.0.1"], "http://127.0.0.1:8001/x", True),
        (["[::1]:80"], "http://[::1]/", True),
        (["NAS.local"], "http://nas.local/", True),
        (["nas.local"], "http://10.0.0.9/", False),
    ],
)
async def test_what_the_user_named_is_let_through_and_nothing_beside_it(
    allowed: list[str], url: str, passes: bool
) -> None:
    answers = {host: [host] for host in ("127.0.0.1", "::1", "10.0.0.9")} | {"nas.local": ["10.0.0.9"]}
    rules = AddressRules(allow_private=allowed, resolve=names(answers))
    if passes:
        await rules.check(url)
    else:
        with pytest.raises(Refused):
            await rules.check(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "file:///etc/passwd",
        "ftp://example.com/",
        "javascript:alert(1)",
        "http://",
        "http://:80/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://[::1",
        "http://ann:secret@example.com/",
        "http://127.0.0.1\\@example.com/",
        "http://" + "a" * 70 + ".example/",
        "https://example.com/" + "a" * 9000,
        "http://nowhere.invalid/",
        "http://ü" + "x" * 80 + ".example/",
    ],
)
async def test_what_is_no_address_of_a_page_is_an_error_that_says_so(url: str) -> None:
    with pytest.raises(UsageError):
        await AddressRules(resolve=names({"example.com": ["93.184.215.14"]})).check(url)
