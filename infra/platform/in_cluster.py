"""What the workloads that run a program of infra/in_cluster have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pulumi

from infra.deliveries.kind import Pull
from infra.dependencies import dependencies
from infra.labels import COMPONENT_LABEL, content_hash, metadata
from infra.objects import NO_AWAIT, Manifest, kubernetes_object

SOURCE = Path(__file__).parents[1] / "in_cluster"
PACKAGE = "infra.in_cluster"
FOLDER = "/program"
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3600  # the kubelet renews it before it ends
RBAC = "rbac.authorization.k8s.io"
REQUESTS = {"cpu": "10m", "memory": "64Mi"}
# A namespace whose quota demands limits refuses pods without them. These are far more than needed.
LIMITS = {"cpu": "1", "memory": "512Mi"}
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
        """Hash of all files; pods have to start anew when it changes."""
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


@dataclass(frozen=True)
class ProgramArgs:
    """Where a program runs, from which image, and whose platform it is."""

    namespace: str
    image: str
    pull: Pull
    stack: str
    owner: pulumi.Output[str]


@dataclass(frozen=True)
class InCluster:
    """A program, and how its objects are called.

    Args:
        component: such as `lost-nodes`.
        program: what its pods run.
    """

    component: str
    program: Program

    @property
    def name(self) -> str:
        """Name of its objects in the namespace."""
        return f"disttrain-{self.component}"

    def metadata(self, args: ProgramArgs, **more: Any) -> Manifest:
        """Metadata of its objects in the namespace."""
        return {**self._metadata(args, self.name, args.namespace), **more}

    def account(self, args: ProgramArgs, annotations: Manifest | None = None) -> Account:
        """Its account; `annotations` are for what the account may do in the whole cluster."""
        of_cluster = self._metadata(args, f"{args.namespace}-{self.component}", None)
        more = {"annotations": dict(annotations)} if annotations else {}
        return Account(self.metadata(args), {**of_cluster, **more})

    def _metadata(self, args: ProgramArgs, name: str, namespace: str | None) -> dict[str, Any]:
        return metadata(name, namespace, self.component, stack=args.stack, owner=args.owner)

    def workload(
        self,
        kind: Literal["DaemonSet", "Deployment"],
        args: ProgramArgs,
        spec: Manifest,
        pod: Manifest,
        annotations: Manifest | None = None,
    ) -> Manifest:
        """Its pods, which start anew when the program changes.

        `up` does not wait for them: they may have to be pulled, a namespace may refuse them, and a
        training does without.

        Args:
            spec: of the workload, without selector and template.
            pod: the spec of a pod.
            annotations: of a pod.
        """
        selector = {"app.kubernetes.io/name": "disttrain", COMPONENT_LABEL: self.component}
        of_pod = {
            "labels": self.metadata(args)["labels"],
            "annotations": {"disttrain.dev/program": self.program.hash, **(annotations or {})},
        }
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": self.metadata(args, annotations=NO_AWAIT),
            "spec": {
                **spec,
                "selector": {"matchLabels": selector},
                "template": {"metadata": of_pod, "spec": pod},
            },
        }

    def pod(self, args: ProgramArgs) -> dict[str, Any]:
        """What the spec of each of its pods has; without `containers` and `volumes`."""
        secrets = [{"name": name} for name in args.pull.secrets]
        return {
            "serviceAccountName": self.name,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            **({"imagePullSecrets": secrets} if secrets else {}),
        }

    def container(self, args: ProgramArgs, capabilities: Sequence[str] = ()) -> dict[str, Any]:
        """The container that runs the program, with these capabilities and no others."""
        added = {"add": [*capabilities]} if capabilities else {}
        return {
            "name": self.component,
            "image": args.image,
            "imagePullPolicy": args.pull.policy,
            "command": self.program.command,
            "workingDir": FOLDER,
            "resources": {"requests": dict(REQUESTS), "limits": dict(LIMITS)},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"], **added},
            },
            "volumeMounts": [dict(mount) for mount in MOUNTS],
        }

    def volumes(self) -> list[Manifest]:
        """What the container mounts."""
        return self.program.volumes(self.name)

    def make(
        self,
        parent: pulumi.ComponentResource,
        name: str,
        args: ProgramArgs,
        rights: Sequence[tuple[str, Manifest]],
        workload: tuple[str, Manifest],
        opts: pulumi.ResourceOptions | None,
    ) -> None:
        """Make the objects: rights and program first, then the workload.

        Args:
            rights, workload: role in the stack, and manifest.
        """
        child = pulumi.ResourceOptions(parent=parent, depends_on=dependencies(opts))
        files = self.program.config_map(self.metadata(args))
        made = [
            kubernetes_object(f"{name}-{role}", manifest, child)
            for role, manifest in [*rights, ("program", files)]
        ]
        after = pulumi.ResourceOptions(parent=parent, depends_on=made)
        role, manifest = workload
        kubernetes_object(f"{name}-{role}", manifest, after)
