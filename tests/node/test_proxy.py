"""A host that gets out only by a real proxy with a password: tinyproxy, over the link.

The mirror listens where the host's own network does not reach.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.no_proxy import no_proxy, required_entries
from sandbox.stack import Stack
from tests.cli.servers import PASSWORD, USER, free_port, proxy
from tests.node.lab import ADDRESS_OF_K3S, UP, Lab, failure


class Proxied:
    """A host, its mirror, and the proxy between them."""

    def __init__(self, lab: Lab, mirror: str, scratch: Path) -> None:
        self.lab, self.mirror, self.scratch = lab, mirror, scratch
        self.port = free_port(lab.host.gateway)

    def runs(self) -> Any:
        """Return a context in which the proxy runs."""
        return proxy(self.scratch, address=self.lab.host.gateway, port=self.port)

    def url(self, password: str = PASSWORD) -> str:
        """Return the proxy's URL with a password."""
        return f"http://{USER}:{password}@{self.lab.host.gateway}:{self.port}"

    def stack(self, **changes: str) -> Stack:
        return self.lab.stack(
            **{
                "k3sMirror": self.mirror,
                "nodeAddress": self.lab.host.address,
                "httpsProxy": self.url(),
                "noProxy": ADDRESS_OF_K3S,
                **changes,
            }
        )

    def findings(self, password: str = PASSWORD) -> list[str]:
        """Return the ids of the doctor's findings with the proxy and this password."""
        required = required_entries(self.lab.host.address, "10.42.0.0/16", "10.43.0.0/16")
        return self.lab.findings(
            https_probe=self.mirror,
            https_proxy=self.url(password),
            no_proxy=no_proxy(required, [ADDRESS_OF_K3S]),
        )

    @property
    def log(self) -> str:
        """Return the text of the proxy's log."""
        return (self.scratch / "proxy-True.log").read_text()


@pytest.fixture
def proxied(lab: Lab, tmp_path: Path) -> Iterator[Proxied]:
    """Yield the way out by a proxy that does not run yet."""
    with lab.mirror.outside() as mirror:
        yield Proxied(lab, mirror, tmp_path)


def test_k3s_comes_through_the_proxy_once_it_is_there_and_its_password_is_right(
    lab: Lab, proxied: Proxied
) -> None:
    """`up` downloads k3s through the proxy of the settings, and k3s uses the proxy too.

    Before, `up` fails if the proxy is down or its password is wrong, and the doctor names the
    reason.
    """
    stack = proxied.stack()
    assert "cannot download https://127.0.0.7:8443/k3s/" in failure(stack)
    assert not lab.host.exists("/usr/local/bin/k3s")
    assert proxied.findings() == ["proxy-reachable"]
    with proxied.runs():
        stack.set("httpsProxy", proxied.url("wrong-one"), secret=True)
        output = failure(stack)
        assert "cannot download https://127.0.0.7:8443/k3s/" in output
        assert "wrong-one" not in output
        assert not lab.host.exists("/usr/local/bin/k3s")
        assert proxied.findings("wrong-one") == ["proxy-password"]
        stack.set("httpsProxy", proxied.url(), secret=True)
        assert proxied.findings() == []
        assert UP in stack.up()
        assert proxied.findings() == []
        assert "CONNECT 127.0.0.7:8443" in proxied.log
        environment = lab.host.shell("cat /etc/default/k3s")
        assert f'HTTPS_PROXY="{proxied.url()}"' in environment
        for entry in (lab.host.address, "10.42.0.0/16", "10.43.0.0/16", ".svc", "localhost"):
            assert entry in environment
        stack.destroy()
    assert lab.differences() == []
