"""A small OIDC provider on loopback: discovery, a form to log in, codes with PKCE, ID tokens signed by a key of its own.

It is as strict as a real one: a code counts once, for the client, redirect URI and verifier that it was given for. Fields say
what it does wrong on purpose. Source: OpenID Connect Core, RFC 6749, RFC 7636.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET, AUDIENCE = "twinlog-page", "a secret: of 100 %", "twinlog-shop"
KEY, OTHER_KEY = rsa.generate_private_key(65537, 2048), rsa.generate_private_key(65537, 2048)
PAGE = """<!doctype html><title>Provider</title><h1>Provider</h1><form method="post" action="/authorize">{hidden}
<label>User <input name="user"></label><button name="do" value="in">Sign in</button>
<button name="do" value="no">Decline</button></form>"""


@dataclass
class Code:
    client_id: str
    redirect_uri: str
    challenge: str
    nonce: str
    user: str


@dataclass
class Provider:
    """`users`: name -> groups. `claims` are put over those of each ID token (None: left out); `token_answer`: given to each
    code instead; `hold`: a code waits for it; `secret` empty: a public client."""

    url: str = ""
    secret: str = SECRET
    users: dict[str, list[str]] = field(default_factory=lambda: {"ann": ["dba"], "ben": ["ops"], "eve": ["guests"]})
    claims: dict[str, Any] = field(default_factory=dict)
    key: Any = field(default_factory=lambda: KEY)
    algorithm: str = "RS256"
    discovery: dict[str, Any] = field(default_factory=dict)
    token_answer: tuple[int, bytes] | None = None
    hold: threading.Event | None = None
    is_cutting: bool = False  # it closes the connection instead of an answer to a code
    is_careless: bool = False  # it looks at no verifier and no nonce
    codes: dict[str, Code] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # paths
    id_tokens: list[str] = field(default_factory=list)
    given_codes: list[str] = field(default_factory=list)

    def id_token(self, code: Code) -> str:
        now = int(time.time())
        said: dict[str, Any] = {
            "iss": self.url, "aud": code.client_id, "sub": code.user, "iat": now, "exp": now + 300, "nonce": code.nonce,
            "groups": self.users.get(code.user, []), **self.claims,
        }
        made = jwt.encode({name: value for name, value in said.items() if value is not None}, self.key, self.algorithm,
                          headers={"kid": "k1"})
        self.id_tokens.append(made)
        return made

    def consent(self, asked: dict[str, str], user: str) -> str:
        """Returns where the browser of `user` is sent; empty user: one who declines."""
        back = {"state": asked["state"], "iss": self.url, "session_state": "x"}
        if user:
            code = secrets.token_urlsafe(16)
            self.codes[code] = Code(
                asked["client_id"], asked["redirect_uri"], asked.get("code_challenge", ""), asked.get("nonce", ""), user
            )
            self.given_codes.append(code)
            back["code"] = code
        else:
            back |= {"error": "access_denied", "error_description": "the user said <no>"}
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def tokens(self, form: dict[str, str], authorization: str) -> tuple[int, bytes]:
        if self.hold is not None:
            self.hold.wait(30)
        if self.token_answer is not None:
            return self.token_answer
        if not self._is_client(form, authorization):
            return 401, b'{"error": "invalid_client"}'
        code = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if code is None or form.get("redirect_uri") != code.redirect_uri or (
            challenge != code.challenge and not self.is_careless
        ):
            return 400, b'{"error": "invalid_grant", "error_description": "no"}'
        return 200, json.dumps({"access_token": "opaque", "token_type": "Bearer", "id_token": self.id_token(code)}).encode()

    def _is_client(self, form: dict[str, str], authorization: str) -> bool:
        if not self.secret:
            return form.get("client_id") == CLIENT and not authorization
        if "token_endpoint_auth_methods_supported" in self.discovery:
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT, self.secret)
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return (unquote_plus(name), unquote_plus(secret)) == (CLIENT, self.secret)

    def document(self) -> bytes:
        return json.dumps({
            "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys", **self.discovery,
        }).encode()

    @staticmethod
    def keys() -> bytes:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
        return json.dumps({"keys": [{**public, "kid": "k1"}]}).encode()


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def answer(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.asked.append(parts.path)
            files: dict[str, Callable[[], bytes]] = {
                "/.well-known/openid-configuration": provider.document, "/keys": provider.keys,
            }
            if parts.path == "/authorize":
                hidden = "".join(
                    f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
                    for name, value in parse_qsl(parts.query)
                )
                self.answer(200, PAGE.format(hidden=hidden).encode(), "text/html")
            elif parts.path == "/logout":
                self.answer(200, b"<!doctype html><title>Out</title><h1>Logged out there</h1>", "text/html")
            elif parts.path in files:
                self.answer(200, files[parts.path]())
            else:
                self.answer(404, b"")

        def do_POST(self) -> None:
            provider.asked.append(self.path)
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            if self.path == "/authorize":
                there = provider.consent(form, form.get("user", "") if form.get("do") == "in" else "")
                self.answer(303, b"", Location=there)
            elif provider.is_cutting:
                self.close_connection = True
            else:
                self.answer(*provider.tokens(form, self.headers.get("Authorization", "")))

    return Handler


@contextmanager
def running_provider(port: int = 0, **fields: Any) -> Iterator[Provider]:
    provider = Provider(**fields)
    with ThreadingHTTPServer(("127.0.0.1", port), _handler(provider)) as server:
        provider.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            if provider.hold is not None:
                provider.hold.set()
            server.shutdown()
            thread.join()
