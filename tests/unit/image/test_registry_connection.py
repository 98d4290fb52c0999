"""The connection to a registry: which addresses get its login, and what is said if it gives no
token.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

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
    """A stand-in for the connections to a registry that asks for a login by HTTP Basic."""

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
    """Return a function that uploads to the place that the registry has named, and returns the
    connections.
    """

    def ask(repository: str, place: str) -> Pool:
        pool = Pool()
        monkeypatch.setattr(connection, "_pool", lambda *_: pool)
        server = Connection(Access(repository, LOGIN))
        answer = server.ask("PATCH", place)
        server.expect(answer, "take a layer", 202)
        return pool

    return ask


def test_authorities_may_have_comments_in_any_letters() -> None:
    """The certificates of `caBundle` may have comments in letters beyond ASCII, which Python's ssl
    itself refuses with a TypeError.
    """
    Connection(Access(HOST, authorities=f"# Autorité de l'entreprise\n{AUTHORITY}"))


@pytest.mark.parametrize("proxy", ["socks5h://me:sekret@localhost:1080", "http://me:sekret@[::1"])
def test_proxy_that_cannot_be_used_is_refused_with_what_to_do(proxy: str) -> None:
    """A proxy of the user's shell that a push cannot use, such as one for SOCKS, is named as the
    cause, with the variables to set.
    """
    words = r"imageRepository: 'registry\.example\.org/a': the proxy .*https_proxy, or add registry"
    with pytest.raises(RegistryError, match=words) as refused:
        Connection(Access(f"{HOST}/a", proxies={"ALL_PROXY": proxy}))
    assert "sekret" not in str(refused.value)
    Connection(Access(f"{HOST}/a", proxies={"ALL_PROXY": proxy, "NO_PROXY": HOST}))


@pytest.mark.parametrize("password", ["p@ss", "grün", "пароль"])
def test_proxy_gets_its_login_as_from_other_programs(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    """A proxy gets its login in UTF-8, as curl and the nodes send it, whatever letters it has."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(urllib3, "ProxyManager", lambda url, **more: given.update(more, url=url))
    proxy = f"http://me:{quote(password)}@proxy:3128"
    Connection(Access(f"{HOST}/a", proxies={"https_proxy": proxy}))
    assert given["url"] == "http://proxy:3128"
    login = {"Proxy-Authorization": f"Basic {Login('me', password).encoded}"}
    assert given["proxy_headers"] == login


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
    """The place for an upload gets the login if it is on the same registry, in whatever form the
    host and port are written. Otherwise `up` would say that the registry refuses the login.
    """
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
    """The login is not sent to another host or port, without TLS, or to what is no address."""
    with pytest.raises(RegistryError) as refused:
        upload_to(f"{HOST}/team/trainer", place)
    assert LOGIN.password not in str(refused.value)


BEARER = 'Bearer realm="https://tokens.example.org/t",service="r"'


def server_that_answers(
    monkeypatch: pytest.MonkeyPatch,
    login: Login,
    token: urllib3.HTTPResponse | Exception,
    challenge: str = BEARER,
) -> tuple[Connection, list[str]]:
    """Return a connection to a stand-in for a registry that asks for a token, and the list of
    logins that the server of tokens has seen.
    """
    shown: list[str] = []

    class Tokens:
        def request(self, method: str, url: str, **more: Any) -> urllib3.HTTPResponse:
            if url.startswith("https://tokens"):
                shown.append(more["headers"]["Authorization"])
                if isinstance(token, Exception):
                    raise token
                return token
            asks = {"WWW-Authenticate": challenge}
            is_known = "Authorization" in more["headers"]
            return urllib3.HTTPResponse(b"", headers=asks, status=200 if is_known else 401)

    monkeypatch.setattr(connection, "_pool", lambda *_: Tokens())
    return Connection(Access(f"{HOST}/team/trainer", login)), shown


@pytest.mark.parametrize("status", [429, 503])
def test_busy_server_of_tokens_does_not_count_as_a_refused_login(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A server of tokens that is busy counts as a broken connection, so that what can be sent again
    is sent again. The error gives its answer and does not tell the user to log in.
    """
    busy = urllib3.HTTPResponse(b"slow down", status=status)
    server, _ = server_that_answers(monkeypatch, LOGIN, busy)
    with pytest.raises(CutError, match=f"tokens.example.org, .* HTTP status {status}"):
        server.ask("POST", "blobs/uploads/", cuts=True)
    with pytest.raises(RegistryError, match=f"HTTP status {status}, slow down. Run `pulumi up` ag"):
        server.ask("GET", "manifests/1")


def test_server_of_tokens_that_gives_no_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the server of tokens cannot be reached, the error names it, and not the registry, which
    can be. An upload takes it for a broken connection, and tries again.
    """
    broken = urllib3.exceptions.ProtocolError("Connection refused")
    server, _ = server_that_answers(monkeypatch, LOGIN, broken)
    words = r"trainer': tokens\.example\.org, which logs in to it cannot be reached \(Connection"
    with pytest.raises(RegistryError, match=words):
        server.ask("GET", "manifests/1")
    with pytest.raises(CutError, match="Connection refused"):
        server.ask("POST", "blobs/uploads/", cuts=True)


def test_login_may_have_any_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login may have letters beyond ASCII, and is sent as docker sends it."""
    login = Login("me", "пароль")
    token = urllib3.HTTPResponse(b'{"token": "t"}', status=200)
    server, shown = server_that_answers(monkeypatch, login, token)
    assert server.ask("GET", "manifests/1").status == 200
    assert shown == [f"Basic {login.encoded}"]


@pytest.mark.parametrize(
    "challenge",
    [f'{BEARER}, Basic realm="Gitea Container Registry"', f'Basic realm="Gitea", {BEARER}'],
)
def test_registry_may_offer_basic_beside_bearer(
    monkeypatch: pytest.MonkeyPatch, challenge: str
) -> None:
    """Gitea offers Basic beside Bearer. The token is asked for at the address that Bearer names,
    and the name that Basic gives its users' list is not taken for an address.
    """
    token = urllib3.HTTPResponse(b'{"token": "t"}', status=200)
    server, shown = server_that_answers(monkeypatch, LOGIN, token, challenge)
    assert server.ask("GET", "manifests/1").status == 200
    assert shown == [f"Basic {LOGIN.encoded}"]
