"""Passkeys of people at the front door: added by who is logged in, and taken instead of a password (WebAuthn).

The extra `passkeys` brings the library that checks them. Browsers offer passkeys over HTTPS, and on `localhost`.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from hmac import compare_digest
from importlib.util import find_spec
from typing import Any, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from satchel.addresses import host_and_port
from satchel.clock import Clock
from satchel.runtime.people import People, Person
from satchel.server.browser_access import as_browser, place_of, values_of
from satchel.server.json_answers import JsonAnswer
from satchel.server.pages.rendering import form_of, rendered

PATH: Final = "/passkeys"
_LASTS_S: Final = 300.0
"""How long somebody may take to confirm at their device."""
_WHEN: Final = struct.Struct(">d")
_NONCE_BYTES: Final = 16
_MOST_KEYS: Final = 20
_MOST_NAME: Final = 60
_MOST_ID_BYTES: Final = 1_023
"""WebAuthn's own limit. A key has a few hundred bytes."""
_MOST_KEY_BYTES: Final = 2_000


def has_passkeys() -> bool:
    """Whether the library is installed."""
    return find_spec("webauthn") is not None


@dataclass(slots=True)
class Passkeys:
    """Adds, lists and removes passkeys of people, and finds out whose one is.

    A challenge says when it was made, and is signed, so any front door of these people can check the answer. A passkey
    answers only a challenge that is newer than its last one, so none counts twice.
    """

    people: People
    clock: Clock

    # Of a person who is logged in.

    async def page(self, request: Request, person: Person) -> Response:
        """The person's passkeys."""
        scope = as_browser(request.scope, next(iter(values_of(request.scope)), ""))
        return rendered(scope, "passkeys.html", title="Passkeys", keys=person.passkeys, person=person.name)

    async def begin(self, request: Request, person: Person) -> Response:
        """What the browser needs to make one."""
        from webauthn import generate_registration_options, options_to_json  # noqa: PLC0415 - an extra
        from webauthn.helpers import base64url_to_bytes  # noqa: PLC0415
        from webauthn.helpers.structs import (  # noqa: PLC0415
            AuthenticatorSelectionCriteria,
            PublicKeyCredentialDescriptor,
            ResidentKeyRequirement,
            UserVerificationRequirement,
        )

        options = generate_registration_options(
            rp_id=_host(request),
            rp_name="Satchel",
            user_name=person.name,
            user_id=str(person.number).encode(),
            challenge=self._challenge(person.name),
            authenticator_selection=AuthenticatorSelectionCriteria(
                resident_key=ResidentKeyRequirement.REQUIRED,
                user_verification=UserVerificationRequirement.REQUIRED,
            ),
            exclude_credentials=[
                PublicKeyCredentialDescriptor(id=base64url_to_bytes(str(key["id"])))
                for key in person.passkeys
            ],
        )
        return Response(options_to_json(options), media_type="application/json")

    async def add(self, request: Request, person: Person) -> Response:
        """Keep the one that the browser made."""
        from webauthn import verify_registration_response  # noqa: PLC0415
        from webauthn.helpers import bytes_to_base64url  # noqa: PLC0415

        given, origin = await _json(request), request.headers.get("origin", "")
        try:
            found = verify_registration_response(
                credential=given.get("credential", {}),
                expected_challenge=self._answered(given, person.name),
                expected_rp_id=_host(request),
                expected_origin=origin,
                require_user_verification=True,
            )
        # A boundary: what a stranger sends goes through parsers of others.
        except Exception:  # noqa: BLE001
            return JsonAnswer({"detail": "The passkey was not accepted. Try again."}, status_code=400)
        known = {key["id"] for one in self.people.all().values() for key in one.passkeys}
        sizes = (
            len(found.credential_id) <= _MOST_ID_BYTES and len(found.credential_public_key) <= _MOST_KEY_BYTES
        )
        if bytes_to_base64url(found.credential_id) in known or not sizes:
            return JsonAnswer({"detail": "That passkey can't be added here."}, status_code=409)
        if len(person.passkeys) >= _MOST_KEYS:
            return JsonAnswer({"detail": f"{_MOST_KEYS} passkeys are enough."}, status_code=409)
        key = {
            "id": bytes_to_base64url(found.credential_id),
            "key": bytes_to_base64url(found.credential_public_key),
            "count": found.sign_count,
            "origin": origin,
            "name": " ".join(str(given.get("name") or "").split())[:_MOST_NAME] or "Passkey",
            "added": self.clock.now().astimezone(UTC).date().isoformat(),
        }
        await self._change(person, lambda keys: [*keys, key])
        return JsonAnswer({}, status_code=201)

    async def remove(self, request: Request, person: Person) -> Response:
        """Forget one."""
        id = (await form_of(request)).get("id")
        await self._change(person, lambda keys: [key for key in keys if key["id"] != id])
        return RedirectResponse(place_of(request.scope) + PATH, 303)

    # Logging in.

    async def ask(self, request: Request) -> Response:
        """What the browser needs to prove that it has one; it finds out itself which."""
        from webauthn import generate_authentication_options, options_to_json  # noqa: PLC0415
        from webauthn.helpers.structs import UserVerificationRequirement  # noqa: PLC0415

        options = generate_authentication_options(
            rp_id=_host(request),
            challenge=self._challenge(""),
            user_verification=UserVerificationRequirement.REQUIRED,
        )
        return Response(options_to_json(options), media_type="application/json")

    async def prove(self, request: Request) -> Person | None:
        """Whose passkey answered; None if nobody's did."""
        from webauthn import verify_authentication_response  # noqa: PLC0415
        from webauthn.helpers import base64url_to_bytes  # noqa: PLC0415

        given = await _json(request)
        credential = given.get("credential")
        id = credential.get("id") if isinstance(credential, Mapping) else None
        found = [
            (person, key)
            for person in self.people.all().values()
            for key in person.passkeys
            if key["id"] == id and not person.leaving
        ]
        try:
            [(person, key)] = found
            challenge = self._answered(given, "")
            proven = verify_authentication_response(
                credential=dict(credential) if isinstance(credential, Mapping) else {},
                expected_challenge=challenge,
                expected_rp_id=_host(request),
                # Where it was added, and not what the request says: other ports of a host may be somebody else's.
                expected_origin=str(key["origin"]),
                credential_public_key=base64url_to_bytes(str(key["key"])),
                credential_current_sign_count=int(key["count"]),
                require_user_verification=True,
            )
        # A boundary, as in `add`.
        except Exception:  # noqa: BLE001
            return None
        used = {"count": proven.new_sign_count, "answered": _when(challenge)}
        is_new = False

        def change(keys: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
            nonlocal is_new
            is_new = any(one["id"] == id and one.get("answered", 0.0) < used["answered"] for one in keys)
            return [{**one, **used} if is_new and one["id"] == id else one for one in keys]

        await self._change(person, change)
        return person if is_new else None

    async def _change(
        self, person: Person, change: Callable[[Sequence[Mapping[str, Any]]], Sequence[Mapping[str, Any]]]
    ) -> None:
        await anyio.to_thread.run_sync(self.people.change_passkeys, person.name, change)

    def _challenge(self, name: str) -> bytes:
        made = _WHEN.pack(self.clock.now().timestamp()) + secrets.token_bytes(_NONCE_BYTES)
        return made + self._signature(made, name)

    def _signature(self, made: bytes, name: str) -> bytes:
        return bytes.fromhex(self.people.secret(f"challenge {made.hex()} {name}"))

    def _answered(self, given: Mapping[str, Any], name: str) -> bytes:
        """The challenge that was answered.

        Raises:
            KeyError, TypeError, ValueError: It is another's, or too old, or none.
        """
        from webauthn.helpers import base64url_to_bytes, parse_client_data_json  # noqa: PLC0415

        said = parse_client_data_json(base64url_to_bytes(given["credential"]["response"]["clientDataJSON"]))
        length = _WHEN.size + _NONCE_BYTES
        made, signature = said.challenge[:length], said.challenge[length:]
        is_theirs = compare_digest(signature, self._signature(made, name))
        if not is_theirs or self.clock.now().timestamp() > _when(made) + _LASTS_S:
            raise ValueError("The challenge is another's, or too old.")
        return said.challenge


def _when(challenge: bytes) -> float:
    return float(_WHEN.unpack_from(challenge)[0])


def _host(request: Request) -> str:
    return host_and_port(request.headers.get("host", ""))[0]


async def _json(request: Request) -> Mapping[str, Any]:
    try:
        given = json.loads(await request.body())
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, Mapping) else {}
