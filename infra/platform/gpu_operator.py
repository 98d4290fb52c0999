"""Installs NVIDIA's GPU Operator from its Helm chart, waits for it, and removes it completely."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import child_options
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.labels import content_hash, metadata
from infra.node.runner import Script
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
    # The workers of the node feature discovery make such an object for each node. They are part of
    # the release, so these objects are not other people's.
    definitions=("nodefeatures.nfd.k8s-sigs.io",),
)


@dataclass(frozen=True)
class GpuOperatorArgs:
    """What the GPU Operator needs.

    Args:
        kubectl: how the scripts call kubectl for the cluster.
        stack: name of the stack, for people.
        owner: identifies the stack's state. An operator of another owner is never taken over.
        generation: a text that changes when the cluster has become another one. Then every command
            runs again.
        chart: where the chart comes from.
        version: version of the chart.
        values: the values that differ from the chart's defaults.
        ca_bundle: certificates (PEM) that the driver's container trusts; empty: only those of its
            image.
        proxy_secret: the Secret with the addresses of proxies for the driver's container; None:
            there is none.
        mig_config: how the MIG manager divides the GPUs, such as `all-1g.10gb`; empty: they stay
            whole.
        gpus: how many GPUs the nodes together must offer before `up` goes on.
        timeout_seconds: how long that may take.
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

    `pulumi up` does this, in this order:

    1. refuse to go on if somebody else has installed an operator;
    2. make the namespace;
    3. record which CRDs are there already;
    4. install the release, and show meanwhile what it waits for;
    5. wait until the nodes offer the GPUs.

    `pulumi destroy` goes the other way. When the release is gone, the command that has recorded the
    CRDs removes those that came with the operator, and what the operator wrote on nodes.
    """

    def __init__(
        self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:GpuOperator", name, {"version": args.version}, opts)
        guard = self._command(
            f"{name}-guard",
            "gpu-operator-guard.sh",
            args,
            {"OWNER": args.owner, "RELEASE": RELEASE, **_driver(args)},
            child_options(self, opts),
        )
        self.namespace = self._namespace(name, args, guard)
        inside = pulumi.ResourceOptions(parent=self, depends_on=[self.namespace])
        after = self._before_the_release(name, args, inside)
        self.release = self._release(name, args, after)
        self._watch(name, args, after)
        self._await(name, args)
        self.register_outputs({})

    def _namespace(
        self, name: str, args: GpuOperatorArgs, guard: pulumi.Resource
    ) -> pulumi.Resource:
        """Register the namespace, because Helm would not delete a namespace that it has made."""
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
        """Register what the release's pods use, and the record of the CRDs that exist already."""
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
        """Show what the release waits for. Helm only reports at the end that its time is up."""
        values = content_hash([args.version, args.values])
        variables = {"WAIT_FOR": "release", "RELEASE": RELEASE, "VALUES": values}
        self._patient_command(f"{name}-watch", args, variables, after)

    def _await(self, name: str, args: GpuOperatorArgs) -> None:
        """Wait until the GPUs are offered.

        Helm takes about a minute. The driver, the toolkit and the device plugin then need several
        more.
        """
        status = self.release.field("status")
        variables: dict[str, pulumi.Input[str]] = {
            "WAIT_FOR": "gpus",
            "MIG_CONFIG": args.mig_config,
            # The command waits again for another version or another revision.
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
        """Register a waiting command. Its script ends with a reason when the time is up.

        The engine's own limit is a minute longer, so that the script ends first.
        """
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
        return kubectl.runner.run(name, Script(script, given, as_root=kubectl.as_root), opts)


def _driver(args: GpuOperatorArgs) -> Mapping[str, str]:
    """Variables that say which driver's container the release brings; none if it brings none.

    If the user says what the operator does with pods that use a driver which it replaces, that
    holds, and there are none either.
    """
    driver: Mapping[str, Any] = args.values["driver"]
    if not driver["enabled"] or "upgradePolicy" in driver:
        return {}
    version = str(driver.get("version") or "")
    return {"DRIVER_CHART": args.version, **({"DRIVER_VERSION": version} if version else {})}


def _text(status: Mapping[str, Any] | None, key: str) -> str:
    """A field of the status; empty in a preview, in which Helm has not filled it in yet."""
    return str((status or {}).get(key) or "")
