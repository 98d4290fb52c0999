"""Checks of the connection to the internet: the proxies, their passwords and NO_PROXY."""

from urllib.parse import urlsplit

from cli.check import Check, Fault, error, skip_unless, warning
from cli.facts import Facts, NotSeenError
from infra.no_proxy import (
    bypasses_proxy,
    is_address,
    missing_entries,
    required_entries,
    split_no_proxy,
)
from infra.node.expectations import Expectations

# Exit statuses of curl: https://curl.se/libcurl/c/libcurl-errors.html
NO_PROXY_NAME, NO_NAME, REFUSED, TIMED_OUT = 5, 6, 7, 28
UNTRUSTED = (51, 60)
REASONS = {
    NO_PROXY_NAME: "its name cannot be resolved",
    REFUSED: "nobody listens there",
    TIMED_OUT: "no answer in time",
}
DEMANDS_PASSWORD = ("407", "401")  # tinyproxy answers a wrong password with 401


def proxy_reachable(facts: Facts, expect: Expectations) -> Fault | str:
    """Each proxy answers and fetches a page from outside."""
    skip_unless(expect.has_proxy, "no proxy is set")
    for kind, url in _proxies(expect):
        status, connect, answer = _via(facts, kind)
        if _demanded(connect, answer):
            continue  # the proxy answers; the check proxy-password reports the rest
        if status in REASONS and connect == "000" and answer == "000":
            return error(
                f"{kind} proxy {_shown(url)}: {REASONS[status]}",
                f"start it, or correct {kind}Proxy; try: curl -x {_shown(url)} http://example.org",
            )
        if status in UNTRUSTED:
            continue  # the proxy reaches the page; the check proxy-certificate reports the rest
        if status or answer[:1] == "5":
            refused = connect if connect not in ("000", "200") else answer
            return error(
                f"{kind} proxy {_shown(url)} does not reach the internet: "
                f"curl ended with {status}, HTTP status {refused}",
                f"have {urlsplit(_probe(expect, kind)).hostname} allowed by the proxy",
            )
    return ", ".join(_shown(url) for _, url in _proxies(expect))


def proxy_password(facts: Facts, expect: Expectations) -> Fault | str:
    """The proxy accepts the user name and password that are set, if it asks for them."""
    skip_unless(expect.has_proxy, "no proxy is set")
    for kind, url in _proxies(expect):
        _, connect, answer = _via(facts, kind)
        status = _demanded(connect, answer)
        if status:
            given = "refuses the given one" if "@" in url else "none is given"
            return error(
                f"{kind} proxy {_shown(url)} demands a password and {given} ({status})",
                f"pulumi config set --secret {kind}Proxy http://USER:PASSWORD@HOST:PORT",
            )
    return "none demanded, or accepted"


def proxy_certificate(facts: Facts, expect: Expectations) -> Fault | str:
    """Certificates that come through the proxy are trusted; some proxies sign them themselves."""
    skip_unless(expect.https_proxy, "no proxy for https is set")
    status, _, _ = _via(facts, "https")
    if status in UNTRUSTED:
        return error(
            f"behind the proxy, {expect.https_probe} shows a certificate that nobody here trusts",
            "pulumi config set caBundle FILE (the proxy's certificate authority as PEM)",
        )
    return "trusted" if status == 0 else "not seen"


def no_proxy(facts: Facts, expect: Expectations) -> Fault | str:
    """NO_PROXY of the settings and of k3s covers the node, pods, services and loopback."""
    of_k3s = {
        f"{name} of k3s' environment file": text
        for name in ("NO_PROXY", "CONTAINERD_NO_PROXY")
        if (text := facts.get(f"k3s_env.{name}"))
    }
    proxied = any(facts.get(f"k3s_env.{name}") for name in ("HTTP_PROXY", "HTTPS_PROXY"))
    if proxied and not facts.get("k3s_env.NO_PROXY"):
        of_k3s["NO_PROXY of k3s' environment file"] = ""
    no_list = "`pulumi up` computes it" if expect.has_proxy else "no proxy is set"
    skip_unless(expect.no_proxy or of_k3s, no_list)
    if expect.no_proxy and (missing := _missing(expect.no_proxy, expect)):
        return error(
            f"NO_PROXY of the settings lacks {missing}",
            "leave noProxyOverride empty, so that the list is computed, then run `pulumi up`",
        )
    if own := _own_address_by_proxy(facts, expect):
        # A proxy may let such connections pass. So a k3s that is installed already is not stopped.
        return (warning if facts.get("k3s_binary") == "yes" else error)(
            f"NO_PROXY of the settings lacks {own}, this host's own address: k3s would ask the "
            "proxy for its kubelet there, and logs of pods and commands in them would fail",
            f"pulumi config set nodeAddress {own}"
            if expect.node_address and not is_address(expect.node_address)
            else f"add {own}, or a network that it is in, to the setting noProxy",
        )
    for where, text in of_k3s.items():
        if missing := _missing(text, expect):
            evidence = f"{where} lacks {missing}"
            if expect.provision:  # An error would stop the `up` that writes the file.
                return warning(evidence, "run `pulumi up`, which writes it again")
            return error(evidence, "add that to it, and restart k3s")
    return "complete: " + ", ".join([*(["the settings"] if expect.no_proxy else []), *of_k3s])


def _missing(text: str, expect: Expectations) -> str:
    """Return what a NO_PROXY has to contain and does not; empty if it is complete."""
    needed = required_entries(expect.node_address, expect.pod_cidr, expect.service_cidr)
    return ", ".join(filter(None, missing_entries(split_no_proxy(text), needed)))


def _own_address_by_proxy(facts: Facts, expect: Expectations) -> str:
    """Return the host's own IP address if k3s would use the proxy for it; empty otherwise.

    The API server connects to a kubelet by the machine's IP address, whatever its name is.
    """
    own = facts.get("node_ip")
    if not (expect.provision and expect.no_proxy and expect.proxy_scope == "all" and own):
        return ""
    return "" if bypasses_proxy(own, split_no_proxy(expect.no_proxy)) else own


def proxy_of_k3s(facts: Facts, expect: Expectations) -> Fault | str:
    """If k3s uses a proxy, it is that of these settings, so that pods use the same one."""
    settings = {"http": expect.http_proxy, "https": expect.https_proxy}
    found = [
        (url, kind)
        for prefix in ("", "CONTAINERD_")
        for kind in settings
        if (url := facts.get(f"k3s_env.{prefix}{kind.upper()}_PROXY").rstrip("/"))
    ]
    skip_unless(found, "k3s has no proxy")
    first = found[0][0]
    if not expect.has_proxy:
        return warning(
            f"k3s runs with the proxy {first} and the settings name none, so that pods get none",
            f"pulumi config set httpsProxy {first} (with --secret if it holds a password)",
        )
    for url, kind in found:
        # The facts contain no passwords.
        wanted = _shown(settings[kind]).rstrip("/")
        if url != wanted and expect.provision:
            return f"{url}; `pulumi up` replaces it with that of the settings"
        if url != wanted:
            return warning(
                f"k3s runs with the proxy {url}, and pods get {wanted or 'none'} for {kind}",
                f"set {kind}Proxy to that of k3s, or correct k3s' environment file and restart k3s",
            )
    return first


def way_out(facts: Facts, expect: Expectations) -> Fault | str:
    """If no proxy is set, the address from which k3s is downloaded answers."""
    skip_unless(expect.provision and expect.internet, "nothing is downloaded from outside")
    skip_unless(not expect.has_proxy, "a proxy is used; see proxy-reachable")
    skip_unless(facts.get("k3s_binary") != "yes", "k3s is there already")
    status, _, _ = _via(facts, "direct")
    name = urlsplit(expect.https_probe).hostname
    if status == NO_NAME or facts.get(f"dns.{name}") == "not found":
        raise NotSeenError("the name cannot be resolved; see dns")
    if status:
        reason = REASONS.get(status, "failed")
        return error(
            f"{expect.https_probe}: {reason} (curl {status})",
            "set httpProxy/httpsProxy, or install from a bundle (docs/airgap.md)",
        )
    return f"{expect.https_probe} answers"


def _proxies(expect: Expectations) -> list[tuple[str, str]]:
    both = (("http", expect.http_proxy), ("https", expect.https_proxy))
    return [(kind, url) for kind, url in both if url]


def _probe(expect: Expectations, kind: str) -> str:
    return expect.http_probe if kind == "http" else expect.https_probe


def _via(facts: Facts, name: str) -> tuple[int, str, str]:
    facts.one(f"via.{name}")
    status, connect, answer = facts.rows(f"via.{name}", 3)[-1]
    return int(status or "0"), connect, answer


def _demanded(connect: str, answer: str) -> str:
    """Return the HTTP status by which a proxy asks for a password; empty if it does not ask."""
    return next((status for status in (connect, answer) if status in DEMANDS_PASSWORD), "")


def _shown(url: str) -> str:
    """Return the address without the user name and the password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


PROXY_CHECKS = (
    Check("proxy-reachable", proxy_reachable),
    Check("proxy-password", proxy_password),
    Check("proxy-certificate", proxy_certificate),
    Check("no-proxy", no_proxy),
    Check("proxy-of-k3s", proxy_of_k3s),
    Check("way-out", way_out),
)
