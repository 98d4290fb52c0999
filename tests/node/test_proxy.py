"""A host that gets out by a real proxy alone, which demands a password: tinyproxy, over the link.

The mirror listens where the host's own network does not reach.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.no_proxy import no_proxy, required_entries
from sandbox.stack import Stack
from tests.cli.servers import PASSWORD, USER, free_port, proxy
from tests.node.lab import UP, Lab, failure


class Proxied:
    """The way out, and what belongs to it."""

    def __init__(self, lab: Lab, mirror: str, scratch: Path) -> None:
        self.lab, self.mirror, self.scratch = lab, mirror, scratch
        self.port = free_port(lab.host.gateway)

    def runs(self) -> Any:
        """The proxy, as a context."""
        return proxy(self.scratch, address=self.lab.host.gateway, port=self.port)

    def url(self, password: str = PASSWORD) -> str:
        return f"http://{USER}:{password}@{self.lab.host.gateway}:{self.port}"

    def stack(self, **changes: str) -> Stack:
        return self.lab.stack(
            **{
                "k3sMirror": self.mirror,
                "nodeAddress": self.lab.host.address,
                "httpsProxy": self.url(),
                **changes,
            }
        )

    def findings(self, password: str = PASSWORD) -> list[str]:
        required = required_entries(self.lab.host.address, "10.42.0.0/16", "10.43.0.0/16")
        return self.lab.findings(
            https_probe=self.mirror, https_proxy=self.url(password), no_proxy=no_proxy(required, ())
        )

    @property
    def log(self) -> str:
        return (self.scratch / "proxy-True.log").read_text()


@pytest.fixture
def proxied(lab: Lab, tmp_path: Path) -> Iterator[Proxied]:
    with lab.mirror.outside() as mirror:
        yield Proxied(lab, mirror, tmp_path)


def test_k3s_comes_through_the_proxy_once_it_is_there_and_its_password_is_right(
    lab: Lab, proxied: Proxied
) -> None:
    """A proxy that is down and a wrong password are named, and the next `up` gets through."""
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
