"""Passkeys at the front door of several people, with a real browser and an authenticator that it simulates.

A module of its own: Playwright's event loop runs in the thread of the tests, and those of people start their own.
"""

from __future__ import annotations

import json
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from satchel.tools.web import find_chromium, has_playwright
from tests.requirements import requirement
from tests.server.household import Household, household

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    with household() as house:
        house.add("ann")
        house.start()
        yield house


@requirement("people:passkeys")
@pytest.mark.skipif(
    not has_playwright() or find_chromium("", os.environ) is None,
    reason="passkeys are NOT tested: it needs the package playwright and Chromium (apt-get install chromium)",
)
def test_a_person_logs_in_with_a_passkey_until_it_is_removed(house: Household, chromium: Browser) -> None:
    url = house.url.replace("127.0.0.1", "localhost")  # where browsers offer passkeys without TLS
    window = chromium.new_context()
    page = window.new_page()
    device = window.new_cdp_session(page)
    device.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "automaticPresenceSimulation": True}
    options |= dict.fromkeys(("hasResidentKey", "hasUserVerification", "isUserVerified"), True)
    device.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    sent: list[str] = []
    # Ten tries are allowed in a row, and this test needs them all.
    page.on("request", lambda r: sent.append(r.post_data or "") if "/login/passkey?" in r.url else None)

    page.goto(f"{url}/login")
    page.fill("#name", "ann")
    page.fill("#password", house.passwords["ann"])
    page.press("#password", "Enter")
    page.click("text='Passkeys'")
    page.fill("#key-name", "My phone")
    page.click("text='Add a passkey'")
    page.wait_for_selector("h3:has-text('My phone')")
    page.click("text='Add a passkey'")
    page.wait_for_selector("text='This device has a passkey here already.'")
    place = re.search(r"/s/[0-9a-f]{32}", page.url)
    assert place is not None
    window.clear_cookies()

    page.goto(f"{url}/login?next=/memories")
    page.evaluate("localStorage.clear()")
    page.click("text='Log in with a passkey'")
    page.wait_for_url(re.compile(r"/s/[0-9a-f]+/memories"))
    assert place[0] not in page.url
    with house.client(origin=url, host=url.removeprefix("http://")) as other:
        again = other.post("/login/passkey", content=sent[0])
        assert (again.status_code, again.json()["detail"]) == (403, "That passkey is not known here.")
        begun = other.post("/login/passkey/begin").json()
        swapped = json.loads(sent[0])
        said = json.loads(urlsafe_b64decode(swapped["credential"]["response"]["clientDataJSON"] + "=="))
        said["challenge"] = begun["challenge"]
        swapped["credential"]["response"]["clientDataJSON"] = (
            urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
        )
        assert other.post("/login/passkey", json=swapped).status_code == 403
        assert other.post("/passkeys/begin").status_code in (303, 401, 403)  # nobody is logged in
    # Another port of the host may be somebody else's page: what was signed there lets nobody in.
    kept = json.loads((house.home / "people.json").read_text())["people"]["ann"]["passkeys"]
    assert [key["origin"] for key in kept] == [url]

    page.click("text='Passkeys'")
    page.click("text='Remove'")
    page.wait_for_selector("text='None yet.'")
    window.clear_cookies()
    page.goto(f"{url}/login")
    page.evaluate("localStorage.clear()")
    page.click("text='Log in with a passkey'")
    page.wait_for_selector("text='That passkey is not known here.'")
    window.close()

    # Another device, without one, and a place that can have none.
    window = chromium.new_context()
    page = window.new_page()
    other_device = window.new_cdp_session(page)
    other_device.send("WebAuthn.enable")
    other_device.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    for at, words in ((url, "No passkey was used"), (house.url, "Passkeys belong to a name")):
        page.goto(f"{at}/login")
        page.click("text='Log in with a passkey'")
        page.wait_for_selector(f"#passkey-error:has-text('{words}')")
    window.close()
