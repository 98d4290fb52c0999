"""A kubeconfig whose user is logged in by a program (`exec`), which Kubernetes calls a plugin."""

import copy
import json
import logging
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.quick_client import QuickClient
from infra.kube.errors import KubeconfigError, PluginError, UnreachableError

VERSION = "client.authentication.k8s.io/v1"
CONTENT: dict[str, Any] = {
    "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "me", "user": {}}, {"name": "other", "user": {"exec": {}}}],
    "contexts": [
        {"name": name, "context": {"cluster": "lab", "user": name}} for name in ("me", "other")
    ],
    "current-context": "me",
}


def access(plugin: object) -> Access:
    """Return a kubeconfig whose user `me` has this plugin."""
    content = copy.deepcopy(CONTENT)
    content["users"][0]["user"]["exec"] = plugin
    return Access(kubeconfig=json.dumps(content))


@pytest.mark.parametrize(
    ("plugin", "missing"),
    [
        ({"command": "true"}, "has no apiVersion. Add it"),
        ({"apiVersion": VERSION, "command": None}, "has no command. Add it"),
        ({}, "has no apiVersion and no command. Add it"),
        ("aws", "has no apiVersion and no command. Add it"),
    ],
)
def test_plugin_that_lacks_something_is_named(plugin: object, missing: str) -> None:
    """A plugin without an apiVersion or a command is refused with a message that names the user and
    what is missing. Otherwise each command would end with a traceback.
    """
    with pytest.raises(KubeconfigError) as refused:
        Api(access(plugin), patience_seconds=0).list("/pods")
    said = str(refused.value)
    assert said.startswith("the kubeconfig of the stack cannot be used: `exec` of user 'me' ")
    assert missing in said
    assert VERSION in said


def test_plugin_of_another_user_counts_not() -> None:
    """Only the plugin of the context's user is checked."""
    assert access({"apiVersion": VERSION, "command": "true"}).content()["current-context"] == "me"
    with pytest.raises(KubeconfigError, match="`exec` of user 'other' has no"):
        Access(kubeconfig=json.dumps(CONTENT), context="other").content()


def test_variable_without_value_is_empty(tmp_path: Path) -> None:
    """An environment variable of a plugin that has no value is empty, as for kubectl. Otherwise
    each command would end with a traceback.
    """
    file = tmp_path / "login.py"
    file.write_text(
        "import json, os\n"
        'print(json.dumps({"status": {"token": "token" + os.environ["REGION"]}}))\n'
    )
    command = {"command": sys.executable, "args": [str(file)], "env": [{"name": "REGION"}]}
    client = QuickClient(access({"apiVersion": VERSION, **command}), 1)
    client.close()
    assert "token" in vars(client).values()


def failing(folder: Path, **more: object) -> Access:
    """Return a kubeconfig whose plugin notes that it was called, says why it fails, and fails."""
    program = folder / "get-token"
    program.write_text(
        f"#!/bin/sh\necho called >>{folder}/calls\necho session is over >&2\nexit 1\n"
    )
    program.chmod(stat.S_IRWXU)
    return access({"apiVersion": VERSION, "command": str(program), **more})


@pytest.mark.parametrize("more", [{}, {"provideClusterInfo": True}], ids=["quick", "official"])
def test_words_of_failed_plugin_are_shown(
    more: dict[str, object],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plugin that fails is called only once, and the error has its own message once. Otherwise
    the official client would log that message, ask without a login, and report that the cluster
    refuses the credentials.
    """
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with pytest.raises(PluginError) as failed:
        Api(failing(tmp_path, **more)).list("/pods")
    assert str(failed.value).count("session is over") == 1
    assert "logs in with" in str(failed.value)
    assert (tmp_path / "calls").read_text() == "called\n"
    assert "".join(capfd.readouterr()) == ""


def test_plugin_that_fails_later_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that fails after it has worked counts as a cluster that does not answer, so that a
    task tries again. A moment without network may be the reason, and `up` may wait for hours.
    """
    api = Api(failing(tmp_path), patience_seconds=0)
    monkeypatch.setattr(api, "_has_answered", True)
    with pytest.raises(UnreachableError, match="session is over"):
        api.list("/pods")
    with pytest.raises(UnreachableError, match="session is over"):
        api.stream("/pods", {})
