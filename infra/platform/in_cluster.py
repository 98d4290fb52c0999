"""What the pods that run a program of infra/in_cluster have in common: its files and an account."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.labels import content_hash
from infra.objects import Manifest

SOURCE = Path(__file__).parents[1] / "in_cluster"
PACKAGE = "infra.in_cluster"
FOLDER = "/program"
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3600  # the kubelet renews it before it ends
RBAC = "rbac.authorization.k8s.io"
MOUNTS = (
    {"name": "program", "mountPath": FOLDER, "readOnly": True},
    {"name": "account", "mountPath": TOKEN_FOLDER, "readOnly": True},
)


@dataclass(frozen=True)
class Program:
    """A module of infra/in_cluster, and the modules there that it imports; without `.py`."""

    module: str
    needs: tuple[str, ...]

    @property
    def texts(self) -> dict[str, str]:
        """Each file's content by its name."""
        names = [f"{name}.py" for name in (self.module, *self.needs)]
        return {name: (SOURCE / name).read_text() for name in names}

    @property
    def hash(self) -> str:
        """Of all files; pods have to start anew when it changes."""
        return content_hash(self.texts)

    @property
    def command(self) -> list[str]:
        """Starts it, in the folder FOLDER."""
        return ["python", "-m", f"{PACKAGE}.{self.module}"]

    def config_map(self, metadata: Manifest) -> Manifest:
        """The files."""
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self.texts}

    def volumes(self, config_map: str) -> list[Manifest]:
        """For MOUNTS: the files as a package, and the account's token, which is mounted by hand:
        whoever reads the pod sees that it has one."""
        folder = PACKAGE.replace(".", "/")
        items = [{"key": name, "path": f"{folder}/{name}"} for name in self.texts]
        token = {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}}
        authority = {
            "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        }
        field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
        place = {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}}
        return [
            {"name": "program", "configMap": {"name": config_map, "items": items}},
            {"name": "account", "projected": {"sources": [token, authority, place]}},
        ]


@dataclass(frozen=True)
class Account:
    """A service account and its rights.

    Args:
        inside: metadata of its objects in the namespace.
        of_cluster: metadata of its ClusterRole.
    """

    inside: Manifest
    of_cluster: Manifest

    def rights(
        self, in_namespace: Sequence[Manifest], in_cluster: Sequence[Manifest]
    ) -> list[tuple[str, Manifest]]:
        """Role in the stack and manifest of each object; the lists hold rules of RBAC."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.inside}
        made = [("account", account)]
        if in_cluster:
            made += [
                ("cluster-role", _role("ClusterRole", self.of_cluster, in_cluster)),
                ("cluster-role-binding", self._binding("ClusterRole", self.of_cluster)),
            ]
        return [
            *made,
            ("role", _role("Role", self.inside, in_namespace)),
            ("role-binding", self._binding("Role", self.inside)),
        ]

    def _binding(self, kind: str, about: Manifest) -> Manifest:
        name, namespace = self.inside["name"], self.inside["namespace"]
        return {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": about,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": about["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }


def rule(resource: str, *verbs: str) -> Manifest:
    """What may be done with objects of the core group, such as pods."""
    return {"apiGroups": [""], "resources": [resource], "verbs": [*verbs]}


def _role(kind: str, about: Manifest, rules: Sequence[Manifest]) -> dict[str, Any]:
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": about, "rules": [*rules]}
