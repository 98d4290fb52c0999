"""Which addresses get the login of a registry: its own, however they are written."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import urllib3

from infra.image.registry import connection
from infra.image.registry.connection import Access, Connection, CutError, RegistryError
from infra.image.registry.login import Login
from tests.unit.certificates import AUTHORITY

HOST = "registry.example.org"
LOGIN = Login("me", "hunter2")


@dataclass
class Pool:
    """Stands in for the connections to a registry, which asks for a login by HTTP Basic."""

    seen: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])

    def request(self, method: str, url: str, **more: Any) -> urllib3.HTTPResponse:
        is_known = "authorization" in {name.lower() for name in more["headers"]}
        self.seen.append((url, is_known))
        challenge = {"WWW-Authenticate": 'Basic realm="registry"'}
        status = 202 if is_known else 401
        return urllib3.HTTPResponse(b"no body", headers=challenge, status=status)


Uploads = Callable[[str, str], Pool]


@pytest.fixture
def upload_to(monkeypatch: pytest.MonkeyPatch) -> Uploads:
    """Asks a place to upload to, as the registry's answer names it."""

    def ask(repository: str, place: str) -> Pool:
        pool = Pool()
        monkeypatch.setattr(connection, "_pool", lambda *_: pool)
        server = Connection(Access(repository, LOGIN))
        answer = server.ask("PATCH", place)
        server.expect(answer, "take a layer", 202)
        return pool

    return ask


def test_authorities_may_have_comments_in_any_letters() -> None:
    """Python's ssl takes only ASCII, so such a file of `caBundle` ended with a TypeError."""
    Connection(Access(HOST, authorities=f"# Autorité de l'entreprise\n{AUTHORITY}"))


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("Registry.Example.org", HOST),
        (f"{HOST}:443", HOST),
        (HOST, f"{HOST}:443"),
        (f"{HOST}:5000", "Registry.example.org:5000"),
    ],
)
def test_upload_place_gets_login_however_written(host: str, named: str, upload_to: Uploads) -> None:
    """A registry names the place by the usual form of its host. It got no login there if
    imageRepository has another form, and `up` said that the registry refuses the login."""
    place = f"https://{named}/v2/team/trainer/blobs/uploads/1"
    assert upload_to(f"{host}/team/trainer", place).seen[-1] == (place, True)


@pytest.mark.parametrize(
    "place",
    [
        "https://elsewhere.example.org/v2/x",
        f"https://{HOST}:8443/v2/x",
        f"http://{HOST}/v2/x",
        f"https://{HOST}:none/v2/x",
    ],
)
def test_login_stays_with_its_registry(place: str, upload_to: Uploads) -> None:
    """Another host, another port, a connection without TLS, and what is no address."""
    with pytest.raises(RegistryError) as refused:
        upload_to(f"{HOST}/team/trainer", place)
    assert LOGIN.password not in str(refused.value)


def server_that_answers(
    monkeypatch: pytest.MonkeyPatch, login: Login, token: urllib3.HTTPResponse
) -> tuple[Connection, list[str]]:
    """A registry that asks for a token, and what the token's server has seen of the login."""
    shown: list[str] = []

    class Tokens:
        def request(self, method: str, url: str, **more: Any) -> urllib3.HTTPResponse:
            if url.startswith("https://tokens"):
                shown.append(more["headers"]["Authorization"])
                return token
            asks = {"WWW-Authenticate": 'Bearer realm="https://tokens.example.org/t",service="r"'}
            is_known = "Authorization" in more["headers"]
            return urllib3.HTTPResponse(b"", headers=asks, status=200 if is_known else 401)

    monkeypatch.setattr(connection, "_pool", lambda *_: Tokens())
    return Connection(Access(f"{HOST}/team/trainer", login)), shown


@pytest.mark.parametrize("status", [429, 503])
def test_busy_server_of_tokens_does_not_count_as_a_refused_login(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The push ended, and the advice was to log in; what can be sent again is sent again."""
    busy = urllib3.HTTPResponse(b"slow down", status=status)
    server, _ = server_that_answers(monkeypatch, LOGIN, busy)
    with pytest.raises(CutError, match=f"tokens.example.org, .* HTTP status {status}"):
        server.ask("POST", "blobs/uploads/", cuts=True)
    with pytest.raises(RegistryError, match=f"HTTP status {status}, slow down. Run `pulumi up` ag"):
        server.ask("GET", "manifests/1")


def test_login_may_have_any_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As docker sends it. `up` ended with "'latin-1' codec can't encode"."""
    login = Login("me", "пароль")
    token = urllib3.HTTPResponse(b'{"token": "t"}', status=200)
    server, shown = server_that_answers(monkeypatch, login, token)
    assert server.ask("GET", "manifests/1").status == 200
    assert shown == [f"Basic {login.encoded}"]
