"""A remote MCP server with a login: the SDK's own authorization server and resource server, in a thread of the test.

With other behaviours, it is a server that breaks the rules; see `Guarded`.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

Handler = Callable[[dict[str, Any], Callable[..., Awaitable[None]]], Awaitable[None]]


class Users:
    """The authorization server's side: every user agrees at once, or not at all (`denies`)."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.denies = False
        self.resource: str | None = None
        self.lives_s = 3600
        self.renewals = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if self.denies:
            return construct_redirect_uri(
                str(params.redirect_uri),
                error="access_denied",
                error_description="Ann said no.",
                state=params.state,
            )
        code = f"code-{secrets.token_hex(16)}"
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or ["read"],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._give(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        # Each serves once, as the standard recommends for clients without a secret.
        del self.refresh[refresh_token.token]
        self.renewals += 1
        return self._give(client.client_id, refresh_token.scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.clear()
        self.refresh.clear()

    async def exchange_identity_assertion(self, client: Any, params: Any) -> OAuthToken:
        raise NotImplementedError

    def _give(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        resource = self.resource or resource
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, resource=resource)
        self.refresh[refresh] = RefreshToken(
            token=refresh, client_id=client_id, scopes=scopes, resource=resource
        )
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lives_s, scope=" ".join(scopes)
        )


class Guarded:
    """The server, and what a test looks at or changes.

    Attributes:
        url: Of the MCP server; the authorization server is on the same port.
        users: What the authorization server knows.
        answers: By path, what is answered in place of the SDK's server.
        requests: Method and path of each request.
        headers: Of the last request to each path.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.url = f"{origin}/mcp"
        self.users = Users()
        self.answers: dict[str, tuple[int, dict[str, str], bytes | Any]] = {}
        self.requests: list[str] = []
        self.headers: dict[str, dict[str, str]] = {}

    @property
    def given(self) -> list[str]:
        """Everything secret that was given out and is still known."""
        secret = [client.client_secret for client in self.users.clients.values() if client.client_secret]
        return [*self.users.access, *self.users.refresh, *secret]

    def redirect(self, address: str) -> str:
        """Where the authorization server sends a browser, without going there."""
        with httpx2.Client(follow_redirects=False, trust_env=False, timeout=120) as client:
            return str(client.get(address).headers["location"])

    def browse(self, address: str) -> httpx2.Response:
        """What the user's browser does: open the address, and follow where it is sent."""
        with httpx2.Client(follow_redirects=True, trust_env=False, timeout=120) as client:
            return client.get(address)


@contextmanager
def guarded(*, registers: bool = True) -> Iterator[Guarded]:
    """Serve on loopback.

    Args:
        registers: Whether clients may register themselves.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        found = Guarded(origin)
        server = MCPServer(
            "guarded",
            auth_server_provider=found.users,
            auth=AuthSettings(
                issuer_url=AnyHttpUrl(origin),
                resource_server_url=AnyHttpUrl(found.url),
                client_registration_options=ClientRegistrationOptions(
                    enabled=registers, valid_scopes=["read", "write"], default_scopes=["read"]
                ),
                revocation_options=RevocationOptions(enabled=True),
                required_scopes=["read"],
                validate_token_resource=True,
            ),
        )

        @server.tool()
        def whoami() -> str:
            """Who is logged in."""
            return "Ann"

        inner = server.streamable_http_app()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                found.requests.append(f"{scope['method']} {scope['path']}")
                found.headers[scope["path"]] = {k.decode(): v.decode() for k, v in scope["headers"]}
                answer = found.answers.get(scope["path"])
                if answer is not None:
                    status, headers, body = answer
                    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
                    await send({"type": "http.response.start", "status": status, "headers": raw})
                    if isinstance(body, bytes):
                        await send({"type": "http.response.body", "body": body})
                    else:
                        await body(send)
                    return
            await inner(scope, receive, send)

        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield found
        finally:
            running.should_exit = True
            thread.join(120)
