"""Sends requests to one repository of an image registry: with login, proxy and trusted authorities.

It also explains refusals. Logins follow
https://distribution.github.io/distribution/spec/auth/token/
"""

import io
import json
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, cast
from urllib.parse import unquote_to_bytes, urlencode, urljoin, urlsplit

import urllib3
from urllib3.exceptions import LocationParseError
from urllib3.util import Retry, Timeout, parse_url

from infra.image.authorities import trust
from infra.image.registry.login import DOCKER_HUB, Login, host_of
from infra.image.registry.proxies import proxy_of

DOCKER_HUB_SERVER = "registry-1.docker.io"
CONNECT_SECONDS = 10
ANSWER_SECONDS = 300  # A registry reads a layer of gigabytes once more before it answers.
BLOCK_BYTES = 1 << 20
USUAL_PORTS = {"https": 443, "http": 80}
PASSING = (429, 500, 502, 503, 504)  # statuses of faults that are usually over soon


class RegistryError(RuntimeError):
    """The registry cannot be reached, or refuses a request. The text says what to do."""


class CutError(Exception):
    """The connection broke, or the registry was busy, so the same request may succeed now.

    Args:
        text: what happened.
        may_go_on: whether an upload may be continued; otherwise it must start again from its
            beginning.
    """

    def __init__(self, text: str, *, may_go_on: bool = True) -> None:
        super().__init__(text)
        self.may_go_on = may_go_on


@dataclass(frozen=True)
class Access:
    """How to reach a repository.

    Args:
        repository: name without tag, such as `registry.example.org/team/trainer`.
        login: the user and the password; None: requests have no login.
        plain_http: whether the registry speaks HTTP without TLS.
        authorities: certificates (PEM) to trust in addition to the system's.
        proxies: the proxy variables of an environment; empty: no proxy is used.
        patience_seconds: longest wait for an answer; None: ANSWER_SECONDS, as long as a large
            layer needs.
        owner: the stack whose setting imageRepository names the repository; empty: it is the stack
            of this program's user.
    """

    repository: str
    login: Login | None = None
    plain_http: bool = False
    authorities: str = ""
    proxies: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    patience_seconds: float | None = None
    owner: str = ""


class Connection:
    """Sends requests to one repository, and keeps the login for all later requests.

    Raises:
        RegistryError: the proxy for it cannot be used.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        host, _, path = access.repository.partition("/")
        if host == DOCKER_HUB:
            host, path = DOCKER_HUB_SERVER, path if "/" in path else f"library/{path}"
        self._host, self._path = host, path
        self._base = f"{'http' if access.plain_http else 'https'}://{host}/v2/{path}/"
        self._authorization: dict[str, str] = {}
        try:
            self._pool = _pool(access, self._base)
        except ValueError as error:  # Its text has no password.
            raise self.error(
                f"the proxy that the variables of this shell name for it cannot be used ({error}). "
                f"Set one with http:// or https:// in https_proxy, or add {host} to NO_PROXY"
            ) from None

    def location(self, answer: urllib3.BaseHTTPResponse) -> str:
        """Return the address in the header `Location` of an answer.

        Raises:
            RegistryError: there is no such header, which the protocol demands, or no address in it.
        """
        location = answer.headers.get("Location", "")
        try:
            if location:
                return urljoin(self._base, location)
        except ValueError:
            pass  # It is no address, which the error below says.
        raise self.error(
            f"{self._host} does not say where the upload goes on: its answer names {location!r} as "
            "the place (header Location). Look for a proxy before it that changes its answers, or "
            "set another registry"
        )

    def ask(
        self,
        method: str,
        where: str,
        *,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        cuts: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """Send one request, and log in if the registry asks for it.

        Args:
            method: the method of HTTP.
            where: a path below the repository, or a whole address.
            body: the content to send.
            headers: headers in addition to the login's.
            cuts: whether to raise CutError, and not RegistryError, for faults that may be gone in
                the next attempt.
        """
        url = urljoin(self._base, where)
        answer = self._once(method, url, body, headers, cuts)
        if answer.status == 401 and self._is_own(url):
            self._log_in(answer.headers.get("WWW-Authenticate", ""), cuts)
            if isinstance(body, io.IOBase):
                raise CutError("the login had run out")  # The stream must be sent again.
            answer = self._once(method, url, body, headers, cuts)
        if cuts and answer.status in PASSING:
            raise CutError(f"HTTP status {answer.status}")
        return answer

    def _once(
        self,
        method: str,
        url: str,
        body: bytes | IO[bytes] | None,
        headers: Mapping[str, str] | None,
        cuts: bool,
    ) -> urllib3.BaseHTTPResponse:
        own = self._authorization if self._is_own(url) else {}
        try:
            return self._pool.request(
                method, url, body=body, headers={**(headers or {}), **own}, preload_content=True
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._broken(error, self._host, cuts) from None

    def _is_own(self, url: str) -> bool:
        """Whether an address is the registry's own, so that it may get the login.

        The address for an upload may be that of another host.
        """
        return _origin(url) == _origin(self._base)

    def _log_in(self, challenge: str, cuts: bool) -> None:
        login = self._access.login
        words = _bearer(challenge)
        basic = {"Authorization": f"Basic {login.encoded}"} if login else {}
        if "realm" in words:
            scope = {"scope": f"repository:{self._path}:pull,push"}
            service = {"service": words["service"]} if "service" in words else {}
            joint = "&" if urlsplit(words["realm"]).query else "?"
            url = f"{words['realm']}{joint}{urlencode({**service, **scope})}"
            server = f"{urlsplit(url).netloc}, which logs in to it"
            try:
                answer = self._pool.request("GET", url, headers=basic)
            except urllib3.exceptions.HTTPError as error:
                raise self._broken(error, server, cuts) from None
            token = _token(answer)
            if not token and answer.status in PASSING:
                text = f"{server}: HTTP status {answer.status}"
                if cuts:
                    raise CutError(text)
                raise self.error(f"{text}, {_words(answer)}. Run `pulumi up` again a little later")
            if not token:
                raise self._refused(answer)
            self._authorization = {"Authorization": f"Bearer {token}"}
        elif login:
            self._authorization = basic

    def expect(self, answer: urllib3.BaseHTTPResponse, what: str, *wanted: int) -> None:
        """Raise RegistryError unless the answer has a wanted status. `what` names the request."""
        if answer.status in wanted:
            return
        words = _words(answer)
        if answer.status in (401, 403):
            raise self._refused(answer)
        if answer.status == 404:
            raise self.error(
                f"the registry knows no such repository (it says: {words}). Some registries, such "
                "as Amazon's ECR, need it made before the first push: make it there"
            )
        if answer.status == 413:
            raise self.error(
                f"what was sent is larger than {self._host}, or a proxy before it, takes in one "
                "request (HTTP status 413): raise that limit there"
            )
        raise self.error(f"the registry did not {what}: HTTP status {answer.status}, {words}")

    def _refused(self, answer: urllib3.BaseHTTPResponse) -> RegistryError:
        login = self._access.login
        who = f"the user {login.user!r} may not do this" if login else "nobody is logged in"
        return self.error(
            f"{self._host} refuses, HTTP status {answer.status}: {who} (it says: "
            f"{_words(answer)}). Run `docker login {host_of(self._access.repository)}` on this "
            "machine, or set imageDeliveryOptions.user and imageDeliveryOptions.password"
        )

    def _broken(self, error: BaseException, server: str, cuts: bool) -> Exception:
        """Return the error for a request to a server that got no answer."""
        reason = _reason(error)
        if cuts and not isinstance(reason, ssl.SSLError):
            return CutError(_short(reason))
        text = str(reason)
        if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
            advice = "it speaks plain HTTP: set imageDeliveryOptions.plainHttp to true"
        elif "CERTIFICATE_VERIFY_FAILED" in text:
            advice = "its certificate is not trusted: set caBundle to the authority's certificate"
        else:
            # A stack on the platform of another one pushes with the proxies of its user's shell.
            exceptions = "the variable NO_PROXY" if self._access.owner else "noProxy"
            advice = (
                "look at its name and port; if this machine reaches it without the proxy, add it "
                f"to {exceptions}"
            )
        return self.error(f"{server} cannot be reached ({_short(reason)}); {advice}")

    def error(self, text: str) -> RegistryError:
        """Return an error that names the setting imageRepository and its value."""
        access = self._access
        setting = f"imageRepository of stack {access.owner}" if access.owner else "imageRepository"
        return RegistryError(f"{setting}: {access.repository!r}: {text}")


def _pool(access: Access, url: str) -> urllib3.PoolManager:
    context = ssl.create_default_context()
    if access.authorities:
        trust(context, access.authorities)
    patience = access.patience_seconds
    common: dict[str, Any] = {
        "ssl_context": context,
        "timeout": Timeout(connect=patience or CONNECT_SECONDS, read=patience or ANSWER_SECONDS),
        "retries": Retry(total=None, connect=0, read=0, redirect=5, status=0, other=0),
        "blocksize": BLOCK_BYTES,
    }
    proxy = proxy_of(url, access.proxies)
    if not proxy:
        return urllib3.PoolManager(**common)
    parts = urlsplit(proxy)
    user, _, host = parts.netloc.rpartition("@")
    # As curl and Go do, it sends the bytes that the address gives, such as %C3%BC for ü.
    login = b64encode(unquote_to_bytes(user)).decode()
    headers = {"Proxy-Authorization": f"Basic {login}"} if user else None
    return urllib3.ProxyManager(
        parts._replace(netloc=host).geturl(),
        proxy_headers=headers,
        proxy_ssl_context=context,
        **common,
    )


def _origin(url: str) -> tuple[str | None, str | None, int | None] | None:
    """Return scheme, host and port of an address in one spelling; None if it is no address.

    A server may be written in several ways: with capitals, and with or without the usual port.
    """
    try:
        parts = parse_url(url)
    except LocationParseError:
        return None
    return parts.scheme, parts.host, parts.port or USUAL_PORTS.get(parts.scheme or "")


def _reason(error: BaseException) -> BaseException:
    """Return the innermost reason of an error of urllib3."""
    inner = getattr(error, "reason", None)
    while isinstance(inner, BaseException):
        error, inner = inner, getattr(inner, "reason", None)
    return error


def _short(reason: BaseException) -> str:
    text = re.sub(r"<urllib3[^>]*>: ", "", str(reason)) or type(reason).__name__
    return text[:200]


def _words(answer: urllib3.BaseHTTPResponse) -> str:
    """Return the registry's own message."""
    try:
        errors = json.loads(answer.data)["errors"]
        said = (f"{error.get('code', '')} {error.get('message', '')}".strip() for error in errors)
        return "; ".join(said)[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        return answer.data.decode(errors="replace").strip()[:300] or "nothing"


def _bearer(challenge: str) -> dict[str, str]:
    """Return the parameters of the scheme Bearer in a header WWW-Authenticate; empty without it.

    Gitea also offers Basic, with another realm, before or after Bearer. So the first value of a
    name behind the word Bearer counts.
    """
    _, *offer = re.split(r"\bbearer\s", challenge, maxsplit=1, flags=re.IGNORECASE)
    found = re.findall(r'(\w+)="([^"]*)"', "".join(offer))
    return dict(reversed(cast(list[tuple[str, str]], found)))


def _token(answer: urllib3.BaseHTTPResponse) -> str:
    if answer.status != 200:
        return ""
    try:
        content = json.loads(answer.data)
        return str(content.get("token") or content.get("access_token") or "")
    except (ValueError, AttributeError):
        return ""
