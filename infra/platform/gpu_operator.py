"""NVIDIA's GPU Operator, by its Helm chart: installed, waited for, and taken away whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import dependencies
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.labels import content_hash, metadata
from infra.objects import KubernetesResource, Manifest, helm_release, kubernetes_object
from infra.platform.gpu_operator_definitions import chart_definitions
from infra.platform.gpu_operator_values import CA_CONFIG_MAP, NAMESPACE
from infra.platform.kubectl import Kubectl
from infra.settings.gpu_chart import ChartSource

RELEASE = "gpu-operator"
OWN_NAMESPACE = OwnNamespace(
    NAMESPACE,
    "the GPU Operator",
    RELEASE,
    # The workers of the node feature discovery make one for each node, and are of the release.
    definitions=("nodefeatures.nfd.k8s-sigs.io",),
)


@dataclass(frozen=True)
class GpuOperatorArgs:
    """What the GPU Operator needs.

    Args:
        kubectl: the cluster.
        stack: name of the stack, for people.
        owner: identifies the stack's state; what carries another owner is never taken over.
        generation: another text when the cluster has become another one, in which every command
            has to run again.
        chart: where the chart comes from.
        version: version of the chart.
        values: what differs from the chart's defaults.
        ca_bundle: certificates (PEM) that the driver's container trusts; empty: the image's own.
        proxy_secret: the Secret with the addresses of proxies for the driver's container; None:
            there is none.
        mig_config: how the MIG manager divides the GPUs, such as `all-1g.10gb`; empty: they stay
            whole.
        gpus: how many GPUs the nodes together must offer before `up` goes on.
        timeout_seconds: longest time until they are offered.
    """

    kubectl: Kubectl
    stack: str
    owner: pulumi.Input[str]
    generation: pulumi.Input[str]
    chart: ChartSource
    version: str
    values: Mapping[str, Any]
    ca_bundle: str
    proxy_secret: Manifest | None
    mig_config: str
    gpus: int
    timeout_seconds: int


class GpuOperator(pulumi.ComponentResource):
    """The Helm release `gpu-operator` in the namespace `gpu-operator`.

    The order is: refuse an operator that somebody else has installed; make the namespace; note
    which CRDs are there; install the release and show what it waits for; wait until the GPUs are
    offered. `destroy` goes the other way: the command that has noted the CRDs removes the others,
    and what the operator wrote on nodes, when the release is gone.
    """

    release_name: pulumi.Output[str | None]
    """Name of the Helm release."""

    def __init__(
        self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:GpuOperator", name, {"version": args.version}, opts)
        guard = self._command(
            f"{name}-guard",
            "gpu-operator-guard.sh",
            args,
            {"OWNER": args.owner, "RELEASE": RELEASE},
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        self.namespace = self._namespace(name, args, guard)
        inside = pulumi.ResourceOptions(parent=self, depends_on=[self.namespace])
        after = self._before_the_release(name, args, inside)
        self.release = self._release(name, args, after)
        self._watch(name, args, after)
        self._await(name, args)
        self.release_name = self.release.field("name")
        self.register_outputs({"releaseName": self.release_name})

    def _namespace(
        self, name: str, args: GpuOperatorArgs, guard: pulumi.Resource
    ) -> pulumi.Resource:
        """A resource of its own, because Helm leaves a namespace behind that it has made."""
        about: Any = metadata(NAMESPACE, None, "gpu-operator", stack=args.stack, owner=args.owner)
        about["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"
        return kubernetes_object(
            f"{name}-namespace",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": about},
            pulumi.ResourceOptions(parent=self, depends_on=[guard]),
        )

    def _before_the_release(
        self, name: str, args: GpuOperatorArgs, inside: pulumi.ResourceOptions
    ) -> list[pulumi.Resource]:
        """What the release's pods use, and the note of what was in the cluster before them."""
        definitions = {"CRDS": " ".join(chart_definitions(args.version))}
        made: list[pulumi.Resource] = [
            self._command(f"{name}-cleanup", "gpu-operator-cleanup.sh", args, definitions, inside)
        ]
        if args.ca_bundle:
            trusted: Manifest = {"apiVersion": "v1", "kind": "ConfigMap"}
            trusted["metadata"] = metadata(
                CA_CONFIG_MAP, NAMESPACE, "gpu-operator", stack=args.stack, owner=args.owner
            )
            trusted["data"] = {"ca.crt": args.ca_bundle}
            made.append(kubernetes_object(f"{name}-ca", trusted, inside))
        if args.proxy_secret:
            about = metadata(
                args.proxy_secret["metadata"]["name"],
                NAMESPACE,
                "gpu-operator",
                stack=args.stack,
                owner=args.owner,
            )
            secret = {**args.proxy_secret, "metadata": about}
            made.append(kubernetes_object(f"{name}-proxy", secret, inside))
        return made

    def _release(
        self, name: str, args: GpuOperatorArgs, after: list[pulumi.Resource]
    ) -> KubernetesResource:
        limit, repository = args.timeout_seconds, args.chart.repository
        return helm_release(
            f"{name}-release",
            {
                "name": RELEASE,
                "namespace": NAMESPACE,
                "chart": args.chart.chart,
                "version": args.version,
                **({"repositoryOpts": {"repo": repository}} if repository else {}),
                "timeout": limit,
                "values": dict(args.values),
            },
            pulumi.ResourceOptions(
                parent=self,
                depends_on=after,
                custom_timeouts=pulumi.CustomTimeouts(
                    create=f"{limit}s", update=f"{limit}s", delete="10m"
                ),
            ),
        )

    def _watch(self, name: str, args: GpuOperatorArgs, after: list[pulumi.Resource]) -> None:
        """Show what the release waits for: Helm itself only says at the end that its time is up."""
        values = content_hash([args.version, args.values])
        variables = {"WAIT_FOR": "release", "RELEASE": RELEASE, "VALUES": values}
        self._patient_command(f"{name}-watch", args, variables, after)

    def _await(self, name: str, args: GpuOperatorArgs) -> None:
        """Helm is done in a minute; driver, toolkit and device plugin take several more."""
        status = self.release.field("status")
        variables: dict[str, pulumi.Input[str]] = {
            "WAIT_FOR": "gpus",
            "MIG_CONFIG": args.mig_config,
            # Another version or another revision is waited for anew.
            "RELEASE_VERSION": status.apply(lambda known: _text(known, "version")),
            "RELEASE_REVISION": status.apply(lambda known: _text(known, "revision")),
        }
        self._patient_command(f"{name}-await", args, variables, [self.release])

    def _patient_command(
        self,
        name: str,
        args: GpuOperatorArgs,
        variables: Mapping[str, pulumi.Input[str]],
        after: list[pulumi.Resource],
    ) -> None:
        """A command that ends by itself, with its reasons, when the operator's time is up."""
        limit = f"{args.timeout_seconds + 60}s"
        timeouts = pulumi.CustomTimeouts(create=limit, update=limit)
        counts = {"GPUS": str(args.gpus), "TIMEOUT_SECONDS": str(args.timeout_seconds)}
        self._command(
            name,
            "gpu-operator-await.sh",
            args,
            {**counts, **variables},
            pulumi.ResourceOptions(parent=self, depends_on=after, custom_timeouts=timeouts),
        )

    def _command(
        self,
        name: str,
        script: str,
        args: GpuOperatorArgs,
        variables: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
    ) -> pulumi.Resource:
        kubectl = args.kubectl
        given: dict[str, pulumi.Input[str]] = {
            "KUBECTL": kubectl.command,
            "NAMESPACE": NAMESPACE,
            "CLUSTER": args.generation,
            **variables,
        }
        return kubectl.runner.script(name, script, given, opts, as_root=kubectl.as_root)


def _text(status: Mapping[str, Any] | None, key: str) -> str:
    """A preview may know a release's status without the fields that Helm fills in later."""
    return str((status or {}).get(key) or "")
