"""OAuth for remote MCP servers: logs in with the SDK's flow, renews tokens and revokes them.

The SDK finds the authorization server (RFC 9728, RFC 8414), registers Satchel (RFC 7591) and exchanges the code with
PKCE. This module adds limits on where requests may go, messages without secrets, and tokens that outlive the process.
Importing it loads the SDK, which takes 0.7 s: import it when a server is reached.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp.types import LATEST_PROTOCOL_VERSION

from satchel.clock import Clock
from satchel.config import McpServerSettings
from satchel.errors import SatchelError
from satchel.tools.mcp.failures import load_sdk
from satchel.tools.mcp.guard import GuardedTransport, Reach
from satchel.tools.mcp.logins import Login, LoginNeeded, LoginStore, note_refusal
from satchel.tools.mcp.redirects import Redirected, clause

EARLY_S = 30.0
"""A token is renewed this long before it expires, since requests take time and clocks differ."""
_TOKEN = re.compile(r"[\x21-\x7e]{1,32768}")
"""A value that a header can hold; RFC 6750 allows less."""
_LONGEST_S = 10 * 365 * 86_400.0
"""The longest lifetime that is believed."""

Present = Callable[[str], Awaitable[None]]
"""Shows the user an address to open."""


async def log_in(
    entry: McpServerSettings,
    *,
    redirect_uri: str,
    client_secret: str | None,
    present: Present,
    redirected: Callable[[str], Awaitable[Redirected]],
    clock: Clock,
) -> Login:
    """Have the user log in, and return the tokens. The browser comes back to `redirect_uri`; `redirected` waits until
    it did, with this state. `client_secret` is that of the client in `entry.oauth_client_id`.

    Raises:
        SatchelError: There is no login; the message says why, and holds nothing secret.
    """
    load_sdk()  # keeps its log, with whole answers in it, from the terminal
    reach = Reach(entry.url)
    flow = _Flow(
        entry,
        redirect_uri=redirect_uri,
        client_secret=client_secret,
        present=present,
        redirected=redirected,
        reach=reach,
    )
    # A request that no server opens a session for.
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {
        **entry.headers,
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": LATEST_PROTOCOL_VERSION,
    }
    try:
        async with httpx2.AsyncClient(transport=GuardedTransport(reach), auth=flow, timeout=None) as client:
            response = await client.post(entry.url, json=ping, headers=headers)
    except OAuthFlowError as error:
        raise SatchelError(f"The login at {entry.name} failed: {flow.explained(error)}.") from None
    except ValueError as error:
        raise SatchelError(
            f"The login at {entry.name} failed: the authorization server sent an invalid response "
            f"({type(error).__name__})."
        ) from None
    login = flow.login(clock.now().timestamp())
    if response.status_code in (401, 403):
        raise SatchelError(
            f"The login at {entry.name} failed: the server refuses the new token "
            f"(HTTP {response.status_code}). It may be for another server."
        )
    return login


class _Flow(OAuthClientProvider):
    """The SDK's flow for one login."""

    def __init__(
        self,
        entry: McpServerSettings,
        *,
        redirect_uri: str,
        client_secret: str | None,
        present: Present,
        redirected: Callable[[str], Awaitable[Redirected]],
        reach: Reach,
    ) -> None:
        self._entry = entry
        self._present = present
        self._redirected = redirected
        self._reach = reach
        self._state = ""
        registered = None
        if entry.oauth_client_id:
            registered = OAuthClientInformationFull(
                client_id=entry.oauth_client_id, client_secret=client_secret
            )
        super().__init__(
            entry.url,
            OAuthClientMetadata.model_validate({"client_name": "Satchel", "redirect_uris": [redirect_uri]}),
            _Nothing(registered),
            redirect_handler=self._show,
            callback_handler=self._wait,
        )

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The SDK's flow, which starts even if the server answers without a login, as some do for some requests."""
        flow = super()._auth_flow(request)
        try:
            outgoing = await flow.__anext__()
            response = yield outgoing
            if response.status_code >= 500:
                raise SatchelError(
                    f"The MCP server {self._entry.name} answers with HTTP {response.status_code}."
                )
            outgoing = await flow.asend(self._challenge(response))
            while True:
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _challenge(self, response: httpx2.Response) -> httpx2.Response:
        said = response.headers.get("www-authenticate", "") if response.status_code == 401 else ""
        if self._entry.oauth_scopes:
            # The SDK uses the first scope that it finds, and the user's setting overrides the server.
            said = f'Bearer scope="{" ".join(self._entry.oauth_scopes)}", {said.partition(" ")[2]}'
        headers = {"www-authenticate": said} if said else {}
        return httpx2.Response(401, headers=headers, request=response.request)

    async def _show(self, url: str) -> None:
        metadata = self.context.oauth_metadata
        methods = metadata.code_challenge_methods_supported if metadata else None
        if methods is not None and "S256" not in methods:
            raise OAuthFlowError("the authorization server does not support PKCE with S256")
        client = self.context.client_info
        if client is not None and client.client_secret and client.token_endpoint_auth_method is None:
            # The default of RFC 8414 is "client_secret_basic".
            supported = (metadata and metadata.token_endpoint_auth_methods_supported) or [
                "client_secret_basic"
            ]
            basic = "client_secret_basic" in supported
            client.token_endpoint_auth_method = "client_secret_basic" if basic else "client_secret_post"
        await self._reach.check(httpx2.URL(url))
        # The last one: an endpoint's address may have a query of its own.
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[-1]
        await self._present(url)

    async def _wait(self) -> AuthorizationCodeResult:
        back = await self._redirected(self._state)
        if back.error:
            raise OAuthFlowError(f"the authorization server says: {back.error}")
        return AuthorizationCodeResult(code=back.code, state=back.state, iss=back.issuer)

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        # Replaces the SDK's check, whose errors quote the response.
        self.context.current_tokens = _read_tokens(response)

    def login(self, now: float) -> Login:
        """The login that the flow obtained. `now` is in seconds since 1970."""
        context = self.context
        tokens, client, metadata = context.current_tokens, context.client_info, context.oauth_metadata
        if tokens is None or client is None:
            raise SatchelError(f"The login at {self._entry.name} gave no token.")
        has_resource = context.should_include_resource_param(context.protocol_version)
        return Login(
            url=self._entry.url,
            issuer=str(metadata.issuer) if metadata else "",
            token_endpoint=self._get_token_endpoint(),
            revocation_endpoint=str(metadata.revocation_endpoint or "") if metadata else "",
            client_id=client.client_id,
            client_auth=client.token_endpoint_auth_method or "none",
            client_secret=client.client_secret or "",
            resource=context.get_resource_url() if has_resource else "",
            scope=tokens.scope or context.client_metadata.scope or "",
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or "",
            expires_at=_expires_at(tokens, now),
        )

    def explained(self, error: OAuthFlowError) -> str:
        """An error as a clause without secrets."""
        text = str(error)
        if isinstance(error, OAuthRegistrationError):
            metadata = self.context.oauth_metadata
            if metadata is not None and metadata.registration_endpoint is None:
                return (
                    f"the authorization server {metadata.issuer} does not register clients by itself. Register one "
                    f"there, and set mcp_servers.{self._entry.name}.oauth_client_id"
                )
            status = re.match(r"Registration failed: (\d{3}[^\n]{0,200}?not followed\)|\d{3})", text)
            why = f"HTTP {status[1]}" if status else "invalid response"
            if metadata is None:
                return f"the server publishes no way to log in (registration: {why})"
            return f"the authorization server {metadata.issuer} does not register Satchel ({why})"
        if text.startswith("State parameter mismatch"):
            return "the answer belongs to another login"
        return clause(text).rstrip(".") or type(error).__name__


class _Nothing:
    """Storage for the SDK that stores nothing: a login is stored when it is complete."""

    def __init__(self, registered: OAuthClientInformationFull | None) -> None:
        self._registered = registered

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        pass

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._registered

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


class Tokens:
    """The tokens of one login, shared by all requests of a connection and renewed when they expire."""

    def __init__(self, entry: McpServerSettings, store: LoginStore, *, clock: Clock) -> None:
        self._entry = entry
        self._store = store
        self._clock = clock
        self._reach = Reach(entry.url)
        self._login: Login | None = None
        self._lock = anyio.Lock()

    async def current(self) -> Login | None:
        """The login, with a token that has not expired as far as known; None if there is no login.

        Raises:
            LoginNeeded: It expired and can't be renewed.
            SatchelError: The authorization server can't be reached.
        """
        async with self._lock:
            if self._login is None:
                # Read again each time: the user may log in while the connection is open.
                self._login = await self._store.load(self._entry)
            if self._login is not None and self._needs_renewal(self._login):
                self._login = await self._renew(self._login)
            return self._login

    async def renewed(self, refused: Login) -> Login:
        """The login that replaces one whose token the server refused. Raises the same as `current`."""
        async with self._lock:
            if self._login is None or self._login.access_token == refused.access_token:
                self._login = await self._renew(refused)
            return self._login

    def _needs_renewal(self, login: Login) -> bool:
        return login.expires_at is not None and self._clock.now().timestamp() > login.expires_at - EARLY_S

    async def _renew(self, login: Login) -> Login:
        async with self._store.locked():
            kept = await self._store.load(self._entry)
            if kept is None:
                raise LoginNeeded(self._entry.name)
            if kept.access_token != login.access_token:
                # Another process renewed it, or the user logged in again.
                return kept
            if not kept.refresh_token:
                raise LoginNeeded(self._entry.name, "the login expired")
            response = await _post_form(
                kept,
                kept.token_endpoint,
                {"grant_type": "refresh_token", "refresh_token": kept.refresh_token},
                self._reach,
            )
            if 400 <= response.status_code < 500 and response.status_code != 429:
                raise LoginNeeded(self._entry.name, "the login was not renewed")
            try:
                tokens = _read_tokens(response)
            except OAuthTokenError as error:
                raise SatchelError(f"its login could not be renewed: {error}") from None
            fresh = replace(
                kept,
                access_token=tokens.access_token,
                refresh_token=tokens.refresh_token or kept.refresh_token,
                scope=tokens.scope or kept.scope,
                expires_at=_expires_at(tokens, self._clock.now().timestamp()),
            )
            await self._store.save(self._entry, fresh)
            return fresh


def _metadata_of(url: httpx2.URL) -> list[httpx2.URL]:
    """Where a server says that it has logins (RFC 9728 and, for a server that issues tokens itself, RFC 8414)."""
    known = "/.well-known/oauth-protected-resource"
    paths = (f"{known}{url.path}", known, "/.well-known/oauth-authorization-server")
    return [url.copy_with(path=path, query=None) for path in paths]


class BearerAuth(httpx2.Auth):
    """Adds the token to requests to the MCP server. Never opens a browser.

    A request without a valid login gets the server's refusal, as any request may, so that other requests of the
    connection go on; `note_refusal` gets the reason.
    """

    def __init__(self, entry: McpServerSettings, store: LoginStore, *, clock: Clock) -> None:
        """Take the entry, filled in; nothing is read. If it has an Authorization header, no login is used."""
        has_own = any(name.lower() == "authorization" for name in entry.headers)
        self._name = entry.name
        self._tokens = None if has_own else Tokens(entry, store, clock=clock)

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """See `httpx2.Auth`."""
        if self._tokens is None:
            response = yield request
            if response.status_code == 401:
                note_refusal(f"it refuses the Authorization header in [mcp_servers.{self._name}] (HTTP 401)")
            return
        reason = str(LoginNeeded(self._name))
        login = None
        try:
            login = await self._tokens.current()
        except SatchelError as error:
            reason = str(error)
        if login is not None:
            request.headers["authorization"] = f"Bearer {login.access_token}"
        response = yield request
        if response.status_code == 401 and login is not None:
            try:
                login = await self._tokens.renewed(login)
            except SatchelError as error:
                reason = str(error)
            else:
                request.headers["authorization"] = f"Bearer {login.access_token}"
                response = yield request
                reason = str(LoginNeeded(self._name, "it refuses the login"))
        if response.status_code == 401:
            if login is None and not extract_field_from_www_auth(response, "resource_metadata"):
                # Servers of older versions of the protocol say nowhere else that they have logins.
                for place in _metadata_of(request.url):
                    metadata = yield httpx2.Request("GET", place)
                    if metadata.status_code == 200 and "json" in metadata.headers.get("content-type", ""):
                        break
                else:
                    reason = "it wants a key, and offers no login (HTTP 401): add the header that it asks for"
                yield request  # whose answer the caller gets
            note_refusal(reason)
        elif response.status_code == 403 and "insufficient_scope" in (
            extract_field_from_www_auth(response, "error") or ""
        ):
            scope = clause(extract_scope_from_www_auth(response) or "")
            note_refusal(
                f"the login lacks the scope {scope or 'that this needs'}: set mcp_servers.{self._name}.oauth_scopes, "
                f"then type: satchel mcp-server login {self._name}"
            )


async def revoke(login: Login) -> bool:
    """Have the authorization server revoke a login.

    Returns:
        Whether it did; False if it does not support that.

    Raises:
        SatchelError: It could not be reached, or refused.
    """
    if not login.revocation_endpoint:
        return False
    reach = Reach(login.url)
    # The refresh token first, since most servers then revoke its access tokens too.
    for hint in ("refresh_token", "access_token"):
        token = getattr(login, hint)
        if token:
            form = {"token": token, "token_type_hint": hint}
            response = await _post_form(login, login.revocation_endpoint, form, reach)
            if response.status_code != 200:
                raise SatchelError(f"the authorization server answered HTTP {response.status_code}")
    return True


async def _post_form(login: Login, url: str, form: Mapping[str, str], reach: Reach) -> httpx2.Response:
    """Send a form with the client's credentials."""
    context = OAuthContext(
        server_url=login.url,
        client_metadata=OAuthClientMetadata(redirect_uris=None),
        storage=_Nothing(None),
        redirect_handler=None,
        callback_handler=None,
        client_info=OAuthClientInformationFull(
            client_id=login.client_id,
            client_secret=login.client_secret or None,
            token_endpoint_auth_method=login.client_auth,
        ),
    )
    data = {**form, "client_id": login.client_id}
    if login.resource:
        data["resource"] = login.resource
    data, headers = context.prepare_token_auth(data, {})
    async with httpx2.AsyncClient(transport=GuardedTransport(reach), timeout=None) as client:
        return await client.post(url, data=data, headers=headers, follow_redirects=False)


def _read_tokens(response: httpx2.Response) -> OAuthToken:
    """The tokens in a response.

    Raises:
        OAuthTokenError: There are none. The message quotes nothing of the response.
    """
    if response.status_code not in (200, 201):
        raise OAuthTokenError(
            f"the authorization server answered HTTP {response.status_code}{_error_code(response)}"
        )
    try:
        tokens = OAuthToken.model_validate_json(response.content)
    except ValueError:
        raise OAuthTokenError("the authorization server sent no token") from None
    given = (tokens.access_token, *([tokens.refresh_token] if tokens.refresh_token else []))
    if not all(_TOKEN.fullmatch(token) for token in given):
        raise OAuthTokenError("the authorization server sent a token that a header can't hold")
    return tokens


def _error_code(response: httpx2.Response) -> str:
    """The error code in a response (RFC 6749 5.2), such as ` (invalid_grant)`, or ""."""
    try:
        code = json.loads(response.content)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f" ({code})" if isinstance(code, str) and re.fullmatch(r"[a-z_]{1,40}", code) else ""


def _expires_at(tokens: OAuthToken, now: float) -> float | None:
    if tokens.expires_in is None:
        return None
    return now + float(min(max(tokens.expires_in, 0), math.floor(_LONGEST_S)))
