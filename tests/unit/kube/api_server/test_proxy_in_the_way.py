"""A proxy of the shell that does not lead to the API server."""

import socket
import threading
from collections.abc import Iterator

import pytest
import yaml

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import UnreachableError


@pytest.fixture
def proxy() -> Iterator[str]:
    """Yield the address of a proxy that refuses every connection to port 6443."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

        threading.Thread(target=refuse, daemon=True).start()
        yield f"http://me:hunter2@127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("by", ["the variable HTTPS_PROXY", "proxy-url of the kubeconfig"])
def test_proxy_in_the_way_is_named_without_its_password(
    proxy: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a proxy does not connect to the API server, the error says who has named the proxy, and
    how the server is reached without it.
    """
    for name in ("https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    cluster = {"server": "https://192.0.2.1:6443"}
    if "kubeconfig" in by:
        cluster["proxy-url"] = proxy
    else:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    api = Api(Access(kubeconfig=yaml.safe_dump(content)), patience_seconds=0)
    with pytest.raises(UnreachableError) as failed:
        api.get("/api/v1/nodes")
    said = str(failed.value)
    assert said.startswith(f"the proxy of {by} does not connect to 192.0.2.1 (Tunnel connection")
    assert ("put 192.0.2.1 into the variable NO_PROXY" in said) == ("HTTPS" in by)
    assert "hunter2" not in said
