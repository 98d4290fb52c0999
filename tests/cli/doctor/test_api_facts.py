"""Whether this machine reaches the port of the API server on the host."""

import socket

import pytest

from cli.doctor.api_facts import api_line

VARIABLES = ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY")


@pytest.fixture(autouse=True)
def _without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_port_counts_as_reached_before_anybody_listens() -> None:
    """A refused connection shows that packets arrive. Before k3s is installed, nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        assert api_line("127.0.0.1", port) == "api_port=reached"
    assert api_line("127.0.0.1", port) == "api_port=reached"
    assert api_line("") == "api_port=not needed"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in 3 s"),
        (OSError(113, "No route to host"), "No route to host"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
    ],
)
def test_port_that_is_not_reached_is_told_with_its_reason(
    error: OSError, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost packets, no route and a name that cannot be resolved are the reasons in the fact."""

    def fail(*_: object) -> socket.socket:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    assert api_line("gpu01") == f"api_port={words}"


def test_proxy_of_the_shell_is_told_unless_no_proxy_has_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clients of `pulumi up` use the shell's proxy, so a connection past it would say nothing.
    A host in NO_PROXY, and this machine itself, are tried.
    """
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setattr(socket, "create_connection", lambda *_: socket.socket())
    assert api_line("gpu01") == "api_port=by proxy"
    assert api_line("127.0.0.1") == "api_port=reached"
    monkeypatch.setenv("NO_PROXY", "gpu01")
    assert api_line("gpu01") == "api_port=reached"
