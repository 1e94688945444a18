"""Which URLs a permission rule fits, however they are spelled."""

from __future__ import annotations

import pytest

from satchel.tools.patterns import url_matches, url_may_match
from tests.requirements import requirement

EVIL = "https://evil.com/*"
DOCS = "https://good.com/docs/*"


@requirement("permissions:rule:url-spelling")
@pytest.mark.parametrize(
    "url",
    [
        "https://ｅｖｉｌ.com/x",
        "https://evil。com/x",
        "https://evil．com/x",
        "https://evil｡com/x",
        "https://ⓔⓥⓘⓛ.ⓒⓞⓜ/x",
        "https://𝐞𝐯𝐢𝐥.com/x",
        "https://%65vil.com/x",
        "https://%EF%BD%85vil.com/x",
        "https://EVIL.COM./x",
        "https://ev\til.com/x",
        "ht\ntps://evil.com/x",
        "https://evil.com:0443/x",
        "https://user:word@evil.com/x",
        "https://good.com@evil.com/x",
        "https://evil\u00ad.com/x",
        "HTTPS://evil.com",
    ],
)
def test_a_rule_that_denies_a_host_holds_for_every_spelling_of_it(url: str) -> None:
    assert url_may_match(EVIL, url)
    assert not url_may_match("https://other.com/*", url)


@requirement("permissions:rule:url-spelling")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/x",
        "http://127.1/x",
        "http://2130706433/x",
        "http://0x7f.0.0.1/x",
        "http://0177.0.0.1/x",
        "http://１２７.0.0.1/x",
    ],
)
def test_a_rule_that_denies_an_address_holds_for_every_way_to_write_the_number(url: str) -> None:
    assert url_may_match("http://127.0.0.1/*", url)


@requirement("permissions:rule:url-spelling")
@pytest.mark.parametrize(
    "pattern",
    [
        "https://EVIL.com/*",
        "https://ｅvil.com/*",
        "https://evil.com:443/*",
        "https://evil.com./*",
        "HTTPS://evil.com/*",
    ],
)
def test_a_rules_own_spelling_does_not_matter_either(pattern: str) -> None:
    assert url_may_match(pattern, "https://evil.com/x")
    assert url_matches(pattern, "https://evil.com/x")


@requirement("permissions:rule:url-spelling")
@pytest.mark.parametrize(
    "url",
    [
        "https://good.com/docs/../x",
        "https://good.com/docs/%2e%2e/x",
        "https://good.com/docs/..%2fx",
        "https://good.com/docs/%252e%252e/x",
        "https://good.com/docs/%25252e%25252e%25252fx",
        "https://good.com/docs/..;/x",
        "https://good.com/docs/..\\x",
        "https://good.com/docs/..%5cx",
        "https://good.com/docs/a/../../x",
        "https://good.com/docs/./../x",
        "https://good.com//docs/..//x",
        "https://good.com/docs/..",
        "https://good.com.evil.com/docs/x",
        "https://good.com@evil.com/docs/x",
        "https://good.com:8443/docs/x",
        "https://good.com\\@evil.com/docs/x",
        "https://evil.com\\good.com/docs/x",
        "https://evil.com#good.com/docs/x",
        "https://evil.com/https://good.com/docs/x",
        "https://good.com\t.evil.com/docs/x",
        "http://good.com/docs/x",
        "https:good.com/docs/x",
        "https:///good.com/docs/x",
        "good.com/docs/x",
    ],
)
def test_a_rule_that_allows_a_folder_of_a_site_fits_nothing_beside_it(url: str) -> None:
    assert not url_matches(DOCS, url)


@requirement("permissions:rule:url-spelling")
@pytest.mark.parametrize(
    "url",
    [
        "https://good.com/docs/x",
        "https://GOOD.com./docs/a/../x?q=1#part",
        "https://good.com:443/docs/a%20b",
        "https://ｇood.com/docs/",
    ],
)
def test_a_rule_that_allows_a_folder_of_a_site_fits_what_is_in_it(url: str) -> None:
    assert url_matches(DOCS, url)
