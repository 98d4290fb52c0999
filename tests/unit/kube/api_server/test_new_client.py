"""After a connection could not be made, the next one is made by a new client.

The kubeconfig's credential plugin may be what opens the way to the API server, such as a tunnel
that has ended. Only a new client runs the plugin again.
"""

from collections.abc import Callable
from typing import Any

import pytest
import urllib3

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api

Ask = Callable[[Api], object]


class Client:
    """Stand-in for the official client. The first client cannot connect."""

    made = 0

    def __init__(self, _: Access) -> None:
        Client.made += 1
        self._fails = Client.made == 1

    def connect(self, *_: Any) -> str:
        if self._fails:
            raise urllib3.exceptions.ProtocolError("refused")
        return "connected"

    stream = websocket = connect


@pytest.mark.parametrize(
    "ask",
    [lambda api: api.stream("/path", {}), lambda api: api.websocket("/path", [])],
    ids=["stream", "websocket"],
)
def test_failed_connection_makes_a_new_client(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.kube.api_server.client.Client", Client)
    monkeypatch.setattr(Client, "made", 0)
    api = Api(Access(kubeconfig="{}"))
    with pytest.raises(urllib3.exceptions.ProtocolError):
        ask(api)
    assert [ask(api), ask(api), Client.made] == ["connected", "connected", 2]
