"""Kubeconfigs that get their rights in special ways, with both clients of the API server.

Some call a program for credentials, as those of EKS, GKE and AKS do. In others, the user acts as
another user.
"""

import json
from pathlib import Path

import pytest
import yaml

from infra.kube.api_server.api import Api
from infra.kube.api_server.read_only import read_only_api
from infra.kube.errors import ApiError
from tests.kube.accounts import user_of
from tests.kube.lab import LIMIT_SECONDS, Lab

VERSION = "client.authentication.k8s.io/v1"


def plugin_of(lab: Lab, folder: Path) -> Path:
    """Write the user's kubeconfig with a program in place of the token, and return its path."""
    content = yaml.safe_load((folder / "kubeconfig").read_text())
    (user,) = content["users"]
    status = {"token": user["user"]["token"]}
    answer = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
    (folder / "answer.json").write_text(json.dumps(answer))
    program = folder / "get-token"
    # as `aws eks get-token` does, it needs its arguments and its environment
    program.write_text('#!/bin/sh\n[ "$1 $CLUSTER" = "get-token mine" ] && cat "$2"\n')
    program.chmod(0o755)
    user["user"] = {
        "exec": {
            "apiVersion": VERSION,
            "command": str(program),
            "args": ["get-token", str(folder / "answer.json")],
            "env": [{"name": "CLUSTER", "value": "mine"}],
            "interactiveMode": "Never",
        }
    }
    file = folder / "with-plugin"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(content))
    assert lab.cluster.kubeconfig.read_text() != file.read_text()
    return file


def test_credentials_of_a_program_are_used_by_both_clients(lab: Lab, tmp_path: Path) -> None:
    """The client of the commands and that of the Pulumi program both use a program's credentials.

    Both have exactly the rights of the user for whom the program gives a token.
    """
    namespace = lab.namespace()
    user_of(lab, namespace, tmp_path, "view")
    access = lab.access(plugin_of(lab, tmp_path))
    pods, secrets = (f"/api/v1/namespaces/{namespace}/{kind}" for kind in ("pods", "secrets"))
    with read_only_api(access, LIMIT_SECONDS) as quick:
        for api in (Api(access), quick):
            assert api.list(pods) == []
            with pytest.raises(ApiError, match="cannot list resource"):
                api.list(secrets)


def test_user_who_asks_as_another_has_his_rights(lab: Lab, tmp_path: Path) -> None:
    """A kubeconfig with `as` has the rights of that other user, with both clients and over
    websockets.

    Otherwise an administrator's login would do what the user of `as` may not do.
    """
    namespace = lab.namespace()
    user_of(lab, namespace, tmp_path, "view")
    content = yaml.safe_load(lab.cluster.kubeconfig.read_text())
    content["users"][0]["user"]["as"] = f"system:serviceaccount:{namespace}:viewer"
    file = tmp_path / "as-viewer"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(content))
    pods, secrets = (f"/api/v1/namespaces/{namespace}/{kind}" for kind in ("pods", "secrets"))
    with read_only_api(lab.access(file), LIMIT_SECONDS) as quick:
        for api in (Api(lab.access(file)), quick):
            assert api.list(pods) == []
            with pytest.raises(ApiError, match="cannot list resource"):
                api.list(secrets)
            with pytest.raises(ApiError, match=r"viewer\".* cannot .*pods/exec"):
                api.websocket(f"{pods}/any/exec", [("command", "true"), ("stdout", "true")])
