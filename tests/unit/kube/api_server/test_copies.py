"""Copies of the kubeconfig that Pulumi's Kubernetes provider leaves in the temporary folder."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.kube.api_server.access import Access
from infra.kube.api_server.copies import remove_copies
from infra.settings.project import PROJECT_ROOT

KEY = "a2V5" * 200
AUTHORITY = "Y2E" * 100 + "="


def kubeconfig(user: object, authority: str = AUTHORITY) -> dict[str, Any]:
    server = {"server": "https://10.1.2.3:6443", "certificate-authority-data": authority}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": server}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "current-context": "default",
        "users": [{"name": "default", "user": user}],
    }


BY_KEY = {"client-certificate-data": "Y2VydA" * 100, "client-key-data": KEY}
BY_PROGRAM = {
    "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "python3",
        "args": ["-I", "-c", "import sys\nprint('the tunnel of this stack')\n" * 5],
        "env": [{"name": "WAY", "value": json.dumps({"key": "-----BEGIN\n" + KEY})}],
    }
}


def left_by_provider(folder: Path, content: object, name: str = "kubeconfig1628476760") -> Path:
    """Write a kubeconfig as the provider's library does, with sorted keys and with the key
    `preferences`, which the original lacks. Return its path.
    """
    path = folder / name
    path.write_text(yaml.safe_dump({"preferences": {}, **content}))  # pyright: ignore
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("user", [BY_KEY, BY_PROGRAM], ids=["key", "tunnel"])
def test_copies_of_the_own_kubeconfig_are_removed(tmp_path: Path, user: object) -> None:
    copies = [left_by_provider(tmp_path, kubeconfig(user), f"kubeconfig{i}") for i in (1, 22)]
    remove_copies(Access(json.dumps(kubeconfig(user))), tmp_path)
    assert not any(path.exists() for path in copies)


def test_nothing_of_others_is_removed(tmp_path: Path) -> None:
    """No other files are removed, such as copies of other users, clusters or names, links, and
    files that are no YAML.
    """
    own = kubeconfig(BY_KEY)
    elsewhere = left_by_provider(tmp_path, own, "kubeconfig-of-mine")
    link = tmp_path / "kubeconfig3"
    link.symlink_to(elsewhere)
    kept = [
        elsewhere,
        link,
        left_by_provider(tmp_path, kubeconfig({"token": KEY}), "kubeconfig4"),
        left_by_provider(tmp_path, kubeconfig(BY_KEY, "b3RoZXI" * 20), "kubeconfig5"),
        left_by_provider(tmp_path, kubeconfig({**BY_KEY, "token": f"{KEY}x"}), "kubeconfig6"),
    ]
    no_yaml = tmp_path / "kubeconfig7"
    no_yaml.write_text(f"{AUTHORITY}: [")
    (tmp_path / "kubeconfig8").mkdir()
    remove_copies(Access(json.dumps(own)), tmp_path)
    assert all(path.exists() for path in [*kept, no_yaml, tmp_path / "kubeconfig8"])


def test_copies_of_a_users_own_file_stay(tmp_path: Path) -> None:
    """Copies of a kubeconfig file of the user are not removed, because another project of the user
    may be using its copy of the same file.
    """
    mine = tmp_path / "config"
    mine.write_text(yaml.safe_dump(kubeconfig(BY_KEY)))
    copy = left_by_provider(tmp_path, kubeconfig(BY_KEY))
    remove_copies(Access(kubeconfig_path=str(mine)), tmp_path)
    assert copy.exists()


def test_kubeconfig_without_secrets_removes_nothing(tmp_path: Path) -> None:
    """Nothing is removed for a kubeconfig without secrets, because its copies cannot be told from
    other files.
    """
    bare = kubeconfig({"username": "me"})
    copy = left_by_provider(tmp_path, bare)
    remove_copies(Access(json.dumps(bare)), tmp_path)
    assert copy.exists()


@pytest.mark.parametrize("action", ["create", "delete"])
def test_task_of_the_first_moment_removes_them_without_a_cluster(
    tmp_path: Path, action: str
) -> None:
    """The task `copies` removes the copies without a request to the cluster. The engine runs it
    before the provider starts and at the very end of a `destroy`, and the server of this kubeconfig
    does not exist.
    """
    copy = left_by_provider(tmp_path, kubeconfig(BY_PROGRAM))
    other = left_by_provider(tmp_path, kubeconfig(BY_KEY), "kubeconfig4")
    job = {"kubeconfig": json.dumps(kubeconfig(BY_PROGRAM)), "owner": "o", "namespace": "n"}
    done = subprocess.run(
        [sys.executable, "-m", "infra.kube", "copies", action],
        cwd=PROJECT_ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert not copy.exists()
    assert other.exists()
