"""Tasks reach the API server with the standard library alone, without the official client."""

import subprocess
import sys

from tests.kube.lab import PROJECT, Lab


def test_requests_import_no_official_client(lab: Lab) -> None:
    """Requests to the API server do not import Kubernetes' official client.

    Its import takes longer than most tasks, and `pulumi up` starts ten of them.
    """
    code = f"""
import sys
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
path = "/api/v1/namespaces/{lab.namespace()}/configmaps"
api = Api(Access(kubeconfig_path={str(lab.cluster.kubeconfig)!r}))
api.create(path, {{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "a"}}}})
api.patch(path + "/a", {{"data": {{"key": "value"}}}})
print(api.get(path + "/a")["data"], api.delete(path + "/a", {{}}), "kubernetes" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{'key': 'value'} True False\n"


def test_status_looks_without_the_official_client(lab: Lab) -> None:
    """`status` of a cluster that answers imports no official client and no other slow package."""
    words = ["status", "--kubeconfig", str(lab.cluster.kubeconfig), "--namespace", lab.namespace()]
    code = f"""
import sys
from cli.__main__ import main
main({words!r})
print(*sorted({{"kubernetes", "requests", "urllib3", "pulumi", "rich"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    first, *_, modules = done.stdout.splitlines()
    assert first.startswith("1 node")
    assert modules == ""
