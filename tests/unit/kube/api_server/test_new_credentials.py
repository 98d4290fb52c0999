"""Credentials that end while a task waits, and programs that issue credentials."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import Answer
from infra.kube.api_server.api import Api
from infra.kube.api_server.quick_client import QuickClient, UnsupportedError
from infra.kube.errors import ApiError

VERSION = "client.authentication.k8s.io/v1"


class Client:
    """Stand-in for the quick client. Each client has a new token, and the server accepts some of
    them.
    """

    tokens = 0
    accepted: tuple[int, ...] = ()
    asked = 0

    def __init__(self, *_: object) -> None:
        Client.tokens += 1
        self._token = Client.tokens

    def request(self, *_: Any) -> Answer:
        Client.asked += 1
        if self._token in Client.accepted:
            return Answer(200, "", '{"items": []}')
        return Answer(401, "", '{"kind": "Status", "message": "Unauthorized"}')

    def close(self) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """Return an API client that uses the stand-in. Its first token is accepted."""
    monkeypatch.setattr("infra.kube.api_server.quick_client.QuickClient", Client)
    for name, value in (("tokens", 0), ("asked", 0), ("accepted", (1,))):
        monkeypatch.setattr(Client, name, value)
    return Api(Access(kubeconfig="{}"), patience_seconds=0)


def test_token_that_ends_is_renewed(api: Api) -> None:
    """A token that has ended is renewed, and the request is sent again. Programs for credentials
    keep a token until it ends, as Google's does, so a token may end within seconds. Otherwise a
    `pulumi up` that has waited for hours would fail.
    """
    assert api.list("/pods") == []
    Client.accepted = (2,)
    assert api.list("/pods") == []
    assert (Client.tokens, Client.asked) == (2, 3)


def test_refused_new_token_ends_it(api: Api) -> None:
    """A new token that is refused ends the task at once. A token that was accepted before is
    renewed once, and the task ends if the new one is refused, too.
    """
    Client.accepted = ()
    for tokens in (1, 2):
        with pytest.raises(
            ApiError, match="does not accept the kubeconfig's credentials"
        ) as raised:
            api.list("/pods")
        assert "log in again, or have the kubeconfig written anew" in str(raised.value)
        assert (Client.tokens, Client.asked) == (tokens, tokens)
    Client.accepted = (3,)
    assert api.list("/pods") == []
    Client.accepted = ()
    with pytest.raises(ApiError, match="credentials"):
        api.list("/pods")
    assert (Client.tokens, Client.asked) == (4, 5)


def kubeconfig(folder: Path, command: str, **more: object) -> Access:
    """Return a kubeconfig file in this folder whose user is logged in by a program."""
    called = {"apiVersion": VERSION, "command": command, "interactiveMode": "Never", **more}
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": called}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(content))
    return Access(kubeconfig_path=str(file))


def test_program_beside_the_kubeconfig_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path of a program starts at the folder of the kubeconfig, as for kubectl.
    Otherwise a preview could not look at the cluster. The program itself runs in the current
    folder.
    """
    (tmp_path / "kube" / "bin").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    answer = {"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": "t"}}
    program = tmp_path / "kube" / "bin" / "get-token"
    program.write_text(f"#!/bin/sh\npwd > {tmp_path}/asked\necho '{json.dumps(answer)}'\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    for command in ("./bin/get-token", "get-token", str(program)):
        QuickClient(kubeconfig(tmp_path / "kube", command), 1).close()
        assert (tmp_path / "asked").read_text() == f"{tmp_path / 'elsewhere'}\n"
        (tmp_path / "asked").unlink()


def test_program_that_asks_for_cluster(tmp_path: Path) -> None:
    """A program that asks for the cluster's address and authority (`provideClusterInfo`) is left to
    the official client, which passes them on.
    """
    called = kubeconfig(tmp_path, "no-such-program", provideClusterInfo=True)
    with pytest.raises(UnsupportedError):
        QuickClient(called, 1)
    with pytest.raises(FileNotFoundError):
        QuickClient(kubeconfig(tmp_path, "no-such-program", provideClusterInfo=False), 1)
