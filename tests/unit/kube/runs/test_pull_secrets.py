"""The Secrets with which the nodes are to pull the image of a run's pods."""

from collections.abc import Mapping
from typing import Any

from infra.kube.api_server.findings import Findings
from infra.kube.errors import ApiError
from infra.kube.runs.pods_findings import RunPods, pods_findings
from tests.unit.kube.server import ApiServer, Json, api_of

NAMESPACE = "/api/v1/namespaces/ml"
LOGIN = {"type": "kubernetes.io/dockerconfigjson"}


class Cluster(ApiServer):
    """A stand-in for a cluster with this namespace and this Secret `login`.

    Args:
        secret: the Secret; None: it does not exist; `hidden`: these credentials may not read it.
        has_namespace: whether the namespace exists.
    """

    def __init__(self, secret: Json | None | str, *, has_namespace: bool = True) -> None:
        self._secret, self._has_namespace = secret, has_namespace

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if method == "POST":
            return body
        if path == f"{NAMESPACE}/secrets/login" and self._secret == "hidden":
            raise ApiError(403, "forbidden")
        node = {"metadata": {"name": "n"}, "spec": {}, "status": {"allocatable": {"pods": "9"}}}
        return {
            "/api/v1/nodes": {"items": [node]},
            f"{NAMESPACE}/resourcequotas": {"items": []},
            f"{NAMESPACE}/secrets/login": self._secret,
            NAMESPACE: {"metadata": {"name": "ml"}} if self._has_namespace else None,
        }.get(path)


def found_in(cluster: Cluster, *comes: str) -> Findings:
    container = {"name": "t", "resources": {}}
    spec = {"containers": [container], "imagePullSecrets": [{"name": "login"}]}
    pod = {"metadata": {}, "spec": spec}
    return pods_findings(api_of(cluster), RunPods("ml", pod, 1, grows=False, secrets_come=comes))


def test_missing_pull_secret_is_refused() -> None:
    """A run is refused if the Secret with which the nodes are to pull does not exist or holds no
    login. The kubelet would pull without a login, and name only the registry's refusal.
    """
    assert found_in(Cluster(LOGIN)) == Findings()
    assert found_in(Cluster(None), "login") == Findings()  # The stack itself makes it.
    (problem,) = found_in(Cluster(None)).problems
    assert problem.startswith("imageDeliveryOptions.pullSecret: 'login' cannot be used: namespace")
    assert "`kubectl -n ml create secret docker-registry login " in problem
    (problem,) = found_in(Cluster({"type": "Opaque"})).problems
    assert "its type is Opaque" in problem


def test_pull_secret_comes_with_namespace() -> None:
    """Nothing is refused if the stack makes the namespace, because a policy of the cluster may copy
    the Secret into each new one. A note says what to do where no policy does.
    """
    found = found_in(Cluster(None, has_namespace=False))
    assert found.problems == []
    (note,) = found.notes
    assert "does not exist yet" in note
    assert "topology none" in note


def test_pull_secret_may_be_hidden() -> None:
    """Nothing is refused if these credentials may not read the Secret, and a note says so."""
    found = found_in(Cluster("hidden"))
    assert found.problems == []
    assert found.notes[0].startswith(
        "it was not checked whether the Secret login of namespace ml holds"
    )
