"""A controller that the platform installs by its chart, and takes away whole."""

from dataclasses import asdict, dataclass
from typing import Any

import pulumi

from infra.controllers import CONTROLLERS
from infra.controllers.kind import ControllerKind
from infra.controllers.kube_prometheus_stack import CLAIM, with_claim
from infra.dependencies import dependencies
from infra.kube.controllers import Controller as KnownController
from infra.kube_command import Connection, kube_command
from infra.labels import metadata
from infra.objects import helm_release, kubernetes_object
from infra.settings.controllers import ControllerSettings
from infra.settings.monitoring import NumbersClaim

LIMIT_SECONDS = 600
"""For the pull of the controller's image and its start."""
CLASS_SECONDS = 60
"""For the storage class of a k3s that this stack has just installed."""


@dataclass(frozen=True)
class ControllerArgs:
    """A controller.

    Args:
        settings: which one, and where its chart comes from.
        connection: the cluster.
        stack: name of the stack, for people.
        numbers_claim: what Prometheus gets for its numbers; None: nothing, as other controllers.
    """

    settings: ControllerSettings
    connection: Connection
    stack: str
    numbers_claim: NumbersClaim | None = None

    @property
    def kind(self) -> ControllerKind:
        """What is known of it."""
        return CONTROLLERS[self.settings.name]


def known(kind: ControllerKind) -> KnownController:
    """What the tasks on the cluster have to know."""
    return KnownController(
        kind.name, kind.title, kind.namespace, kind.definitions, kind.setting, kind.way_out
    )


def as_job(kind: ControllerKind) -> dict[str, Any]:
    """The same as a field of a job, and what of it has to be available."""
    return {**asdict(known(kind)), "awaited": list(kind.awaited)}


def release_fields(args: ControllerArgs) -> dict[str, Any]:
    """The inputs of the Helm release.

    Nothing waits in Helm, which would say nothing but that its time is up: `open-controller` waits
    and says what the pods say.
    """
    kind, chart, claim = args.kind, args.settings.chart, args.numbers_claim
    values = dict(kind.values)
    if claim is not None:
        values = with_claim(values, claim.gib, claim.class_name)
    return {
        "name": kind.name,
        "namespace": kind.namespace,
        "chart": chart or kind.pinned_chart,
        "version": kind.version,
        "skipAwait": True,
        "timeout": LIMIT_SECONDS,
        "values": values,
    }


class Controller(pulumi.ComponentResource):
    """A Helm release in a namespace of its own.

    The order is: refuse a controller that somebody else has installed; make the namespace; install
    the chart; wait until the controller answers. `destroy` goes the other way: see that nobody else
    uses it, and let what this stack has of its kinds end while it is there; uninstall the chart;
    take away the definitions and webhooks that are left; delete the namespace.
    """

    release_name: pulumi.Output[str]
    """Name of the Helm release, once the controller answers."""

    def __init__(
        self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        kind, connection = args.kind, args.connection
        super().__init__("disttrain:infra:Controller", name, {"version": kind.version}, opts)
        job = {"controller": as_job(kind)}
        claim = kube_command(
            f"{name}-claim",
            "claim-controller",
            connection,
            job,
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        looked = [claim]
        if args.numbers_claim is not None:
            wanted = args.numbers_claim
            looked.append(
                kube_command(
                    f"{name}-storage",
                    "monitoring-claim",
                    connection,
                    {
                        "claim_namespace": kind.namespace,
                        "claim": CLAIM,
                        "class_name": wanted.class_name,
                        "gib": wanted.gib,
                        "class_seconds": 0 if connection.kubeconfig_is_path else CLASS_SECONDS,
                    },
                    pulumi.ResourceOptions(parent=self, depends_on=[claim]),
                )
            )
        about = metadata(
            kind.namespace, None, "controller", stack=args.stack, owner=connection.owner
        )
        namespace = kubernetes_object(
            f"{name}-namespace",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": about},
            pulumi.ResourceOptions(parent=self, depends_on=looked),
        )
        remains = kube_command(
            f"{name}-remains",
            "controller-remains",
            connection,
            job,
            pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
        )
        release = helm_release(
            f"{name}-release",
            release_fields(args),
            pulumi.ResourceOptions(parent=self, depends_on=[remains, *looked[1:]]),
        )
        # The chart and its values are in the job, so that another version is waited for anew.
        answers = kube_command(
            f"{name}-open",
            "open-controller",
            connection,
            {
                **job,
                "probe": dict(kind.probe),
                "limit_seconds": LIMIT_SECONDS,
                "release": release_fields(args),
            },
            pulumi.ResourceOptions(parent=self, depends_on=[release]),
            limit_seconds=LIMIT_SECONDS,
        )
        self.release_name = answers.stdout.apply(lambda _: kind.name)
        self.register_outputs({"releaseName": self.release_name})
