"""Addresses that a rule or the check of addresses could take for another one, and pages that keep a program busy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from satchel.errors import SatchelError
from satchel.tools.patterns import url_matches, url_may_match
from satchel.tools.web.addresses import AddressRules
from satchel.tools.web.fetching import FetchedPage
from satchel.tools.web.reading import read_page
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

BESIDE_DOCS = [
    # Broke: servers that stop at a NUL, take two bytes for a dot, or normalise what they decode.
    "https://good.com/docs/..%00/x", "https://good.com/docs/%c0%ae%c0%ae/x", "https://good.com/docs/\uff0e\uff0e/x",
    "https://good.com/docs/%ef%bc%8e%ef%bc%8e/x", "https://good.com/docs/\u2025/x", "https://good.com/docs/..%ef%bc%8fx",
    # Held.
    "https://good.com/docs/%2e%2e;/x", "https://good.com/docs/..;a=b/x", "https://good.com/docs/%2e%2e%3b/x", "https://good.com/docs/.%2e/x",
    "https://good.com/docs/a%2f..%2f..%2fx", "https://good.com/docs/%5c..%5cx", "https://good.com/docs/..%255c..%255cx",
    "https://good.com/docs/.\n./x", "https://good.com/docs/..?x", "https://good.com/docs/..#x", "https://good.com/docs?/", "https://good.com/docs%2fx/..",
    "https://good.com/Docs/x", "https://good.com:443:443/docs/x", "https://good.com:8443/docs/x", "https://good.com%3a8080/docs/x",
    "https://good.com%00.evil.com/docs/x", "https://good.com%2f.evil.com/docs/x", "https://good.com%23.evil.com/docs/x",
    "https://good.com\u2100evil.com/docs/x", "https://good.com\uff0f.evil.com/docs/x", "https://good.com\uff1f.evil.com/docs/", "https://good.com\uff03.evil.com/docs/",
    "https://good.com\uff1a8080/docs/x", "https://\u0262ood.com/docs/x", "https://good.com../docs/x", "https://[good.com]/docs/x", "https:/good.com/docs/x",
    "https:\\\\good.com/docs/x", "https://good.com\\docs/x", "javascript://good.com/docs/x", "view-source:https://good.com/docs/x", "file://good.com/docs/x",
    "https://good.com&@evil.com/docs/x", "https://good.com%40evil.com/docs/x",
]  # fmt: skip


@requirement("permissions:rule:url-spelling")
@pytest.mark.parametrize("url", BESIDE_DOCS)
def test_a_rule_that_allows_a_folder_of_a_site_does_not_cover(url: str) -> None:
    assert not url_matches("https://good.com/docs/*", url)


@pytest.mark.parametrize(
    "url",
    [
        "https://good.com/docs/a%20b",
        "https://good.com/docs/%C3%A9?q=%00",
        "https://good.com/docs/\u00e9.html",
    ],
)
def test_a_plain_page_is_still_covered(url: str) -> None:
    assert url_matches("https://good.com/docs/*", url)


@pytest.mark.parametrize(
    "url",
    [
        "https://@evil.com/x",
        "https://evil\u200b.com/x",
        "\u00a0https://evil.com/x",
        "https://evil.com:/x",
        "https://evil\u3002com/x",
        "https://\u24d4vil.com:00443/x",
    ],
)
def test_a_rule_that_denies_a_host_covers(url: str) -> None:
    assert url_may_match("https://evil.com/*", url)


NOT_PUBLIC = [
    "[0:0:0:0:0:ffff:127.0.0.1]", "[::1%25lo]", "[::1%lo]", "[2002:c0a8:0101::]", "[64:ff9b::192.168.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::8.8.8.8]",
    "[2001:10::1]", "[2001:20::1]", "[2a00::5efe:a00:1]", "[2a00::200:5efe:a00:1]", "[::ffff:0:0]", "[v1.x]", "[0000::1]", "127.0.0.1.", "127.0.0.1..", "127.0.1",
    "127.0.0.1:80:80", "017700000001", "1.1.1.1&@127.0.0.1", "127\u30020\u30020\u30021", "\u2460\u2461\u2466.0.0.1", "%31%32%37.0.0.1", "0x7F.1", "00000177.1",
    "127.0.0.1%2f", "4294967297", "[ff0e::1]", "198.19.255.255", "192.0.0.9", "203.0.113.9", "[100:0:0:1::1]", "[64:ff9b::]",
]  # fmt: skip


@requirement("web:fetch:private")
@pytest.mark.parametrize("host", NOT_PUBLIC)
async def test_no_spelling_of_a_private_address_is_dialled(host: str) -> None:
    async def resolve(name: str, port: int) -> Sequence[str]:
        return [name]

    with pytest.raises(SatchelError):
        await AddressRules(resolve=resolve).check(f"http://{host}/")


@requirement("web:fetch")
@pytest.mark.parametrize(
    "charset",
    [
        "punycode",
        "idna",
        "undefined",
        "utf-7",
        "utf-8\0",
        "\ud800",
        "hex",
        "unicode_escape",
        "../x",
        "x" * 10_000,
    ],
)
def test_an_encoding_that_no_page_has_is_ignored(charset: str) -> None:
    page = FetchedPage(
        url="https://a/",
        status=200,
        kind="text/plain",
        charset=charset,
        body=b"+AGE- \\x41 \xc3\xa9",
        is_cut=False,
    )
    assert read_page(page).text == "+AGE- \\x41 \u00e9"


@pytest.mark.parametrize("piece", [b"[" * 900 + b"]" * 900, b'{"a":' * 900 + b"1" + b"}" * 900])
def test_json_does_not_grow_without_bound_by_its_layout(piece: bytes) -> None:
    body = b"[" + b",".join([piece] * 200) + b"]"
    page = FetchedPage(
        url="https://a/", status=200, kind="application/json", charset="", body=body, is_cut=False
    )
    assert len(read_page(page).text) <= 4 * len(body) + 1_000
