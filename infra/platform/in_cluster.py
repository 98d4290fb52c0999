"""The objects that every program of infra/in_cluster needs to run as pods of a platform."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pulumi

from infra.deliveries.kind import Pull
from infra.dependencies import child_options
from infra.labels import COMPONENT_LABEL, content_hash, metadata
from infra.objects import NO_AWAIT, Manifest, kubernetes_object
from infra.pod_metadata import with_own
from infra.settings.pods_demands import PodDemands

SOURCE = Path(__file__).parents[1] / "in_cluster"
PACKAGE = "infra.in_cluster"
FOLDER = "/program"
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3600  # The kubelet renews the token before it expires.
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
    """A module of infra/in_cluster, and the modules of that folder that it imports.

    The names do not end with `.py`.
    """

    module: str
    needs: tuple[str, ...]

    @property
    def texts(self) -> dict[str, str]:
        """The content of each file, by the file's name."""
        names = [f"{name}.py" for name in (self.module, *self.needs)]
        return {name: (SOURCE / name).read_text() for name in names}

    @property
    def hash(self) -> str:
        """Hash of all files. Pods have to be replaced when it changes."""
        return content_hash(self.texts)

    @property
    def command(self) -> list[str]:
        """The command that starts the program in the folder FOLDER."""
        return ["python", "-m", f"{PACKAGE}.{self.module}"]

    def config_map(self, metadata: Manifest) -> Manifest:
        """The ConfigMap that holds the files."""
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self.texts}

    def volumes(self, config_map: str) -> list[Manifest]:
        """The volumes for MOUNTS: the files as a package, and the token of the account.

        The token is mounted explicitly, so that everyone who reads the pod sees that it has one.
        """
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
        namespace_file = {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}}
        return [
            {"name": "program", "configMap": {"name": config_map, "items": items}},
            {"name": "account", "projected": {"sources": [token, authority, namespace_file]}},
        ]


@dataclass(frozen=True)
class Account:
    """A service account and its rights.

    Args:
        inside: metadata of the account's objects in the namespace.
        of_cluster: metadata of the account's ClusterRole.
    """

    inside: Manifest
    of_cluster: Manifest

    def rights(
        self, in_namespace: Sequence[Manifest], in_cluster: Sequence[Manifest]
    ) -> list[tuple[str, Manifest]]:
        """The objects that give the account its rights.

        Args:
            in_namespace: RBAC rules for the account's namespace.
            in_cluster: RBAC rules for the whole cluster.

        Returns:
            The role in the stack and the manifest of each object.
        """
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
    """An RBAC rule that allows these verbs for a resource of the core group, such as pods."""
    return {"apiGroups": [""], "resources": [resource], "verbs": [*verbs]}


def _role(kind: str, about: Manifest, rules: Sequence[Manifest]) -> dict[str, Any]:
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": about, "rules": [*rules]}


@dataclass(frozen=True)
class ProgramArgs:
    """Where a program runs, which image it uses, who owns the platform, and what all pods have."""

    namespace: str
    image: str
    pull: Pull
    stack: str
    owner: pulumi.Output[str]
    demands: PodDemands


@dataclass(frozen=True)
class InCluster:
    """A program, and the names of its objects.

    Args:
        component: name of the program in labels and object names, such as `lost-nodes`.
        program: the program that its pods run.
    """

    component: str
    program: Program

    @property
    def name(self) -> str:
        """Name of its objects in the namespace."""
        return f"disttrain-{self.component}"

    def name_in_cluster(self, namespace: str) -> str:
        """Name of its objects that are in no namespace. Each platform has its own."""
        return f"{namespace}-{self.component}"

    def metadata(self, args: ProgramArgs, **more: Any) -> Manifest:
        """Metadata of its objects in the namespace."""
        return {**self._metadata(args, self.name, args.namespace), **more}

    def account(self, args: ProgramArgs, annotations: Manifest | None = None) -> Account:
        """The program's account. The ClusterRole with its rights gets the `annotations`."""
        of_cluster = self._metadata(args, self.name_in_cluster(args.namespace), None)
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
        """The workload whose pods run the program. They are replaced when the program changes.

        `up` does not wait for the pods. Their image may have to be pulled, the namespace may refuse
        them, and a training works without them.

        Args:
            kind: kind of the workload.
            args: say where the program runs.
            spec: the spec of the workload, without selector and template.
            pod: the spec of a pod.
            annotations: further annotations of a pod.
        """
        selector = {"app.kubernetes.io/name": "disttrain", COMPONENT_LABEL: self.component}
        of_pod = {
            "labels": {**with_own({}, args.demands.labels), **self.metadata(args)["labels"]},
            "annotations": {
                **with_own({}, args.demands.annotations),
                "disttrain.dev/program": self.program.hash,
                **(annotations or {}),
            },
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
        """The fields that the spec of every pod has, without `containers` and `volumes`."""
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
        """The volumes that the container mounts."""
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
        """Make the objects: the rights and the program first, then the workload.

        Args:
            parent: the component to which the objects belong.
            name: name of the component.
            args: say where the program runs.
            rights: role in the stack and manifest of each object that gives rights.
            workload: role in the stack and manifest of the workload.
            opts: the options of the component.
        """
        child = child_options(parent, opts)
        files = self.program.config_map(self.metadata(args))
        made = [
            kubernetes_object(f"{name}-{role}", manifest, child)
            for role, manifest in [*rights, ("program", files)]
        ]
        after = pulumi.ResourceOptions(parent=parent, depends_on=made)
        role, manifest = workload
        kubernetes_object(f"{name}-{role}", manifest, after)
