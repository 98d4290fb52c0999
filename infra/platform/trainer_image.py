"""Brings the trainer image, by the chosen delivery, to where pods can be started from it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pulumi

from infra.deliveries import DELIVERIES
from infra.deliveries.kind import DeliveryRequest, NodeTarget, Pull
from infra.dependencies import child_options
from infra.image.plan import ImagePlan
from infra.node.node_environment import host_text, node_text
from infra.platform.proxy import proxy_environment
from infra.platform.stack_state import StateResource
from infra.settings import PlatformSettings
from infra.settings.node import SshSettings
from infra.settings.program_image import RunsDelivery


@dataclass(frozen=True)
class TrainerImageArgs:
    """What the component needs.

    Args:
        delivery: name of the kind of delivery in `DELIVERIES`.
        request: the image, and where it is wanted.
    """

    delivery: str
    request: DeliveryRequest

    @property
    def pull(self) -> Pull:
        """How kubelets pull the image."""
        return DELIVERIES[self.delivery].pull(self.request)


COMPONENT = "disttrain:infra:TrainerImage"


class TrainerImage(pulumi.ComponentResource):
    """Makes sure that pods can use the image under its name.

    The name is known before anything is built, because the tag is a hash of what goes into the
    image.

    Args:
        name: prefix of the resources' names.
        args: the image and its delivery.
        opts: `depends_on` holds for each resource of the delivery.
    """

    reference: pulumi.Output[str]
    """Full name of the image, with its tag."""
    digest: pulumi.Output[str]
    """Digest of the image manifest from which pods are started."""

    def __init__(
        self, name: str, args: TrainerImageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(COMPONENT, name, {"reference": args.request.plan.reference}, opts)
        child = child_options(self, opts)
        delivered = DELIVERIES[args.delivery].deliver(name, args.request, child)
        self.reference = delivered.reference
        self.digest = delivered.digest
        self.register_outputs({"reference": self.reference, "digest": self.digest})


def to_build(args: Iterable[TrainerImageArgs], resources: Iterable[StateResource]) -> bool:
    """Whether `up` would build one of these images for processors like those of this machine.

    It builds none that a former `up` of the stack has delivered. This function is pure.

    Args:
        args: the images, with their deliveries.
        resources: the resources in the stack's state.
    """
    there = [each.outputs.get("reference") for each in resources if each.type == COMPONENT]
    return any(
        DELIVERIES[each.delivery].builds_for_this_machine
        and each.request.plan.reference not in there
        for each in args
    )


def trainer_image_args(
    settings: PlatformSettings, kubeconfig: pulumi.Input[str] = ""
) -> TrainerImageArgs:
    """The arguments of the component, from the settings of a platform.

    Args:
        settings: the settings of the platform.
        kubeconfig: the text of the kubeconfig of its k3s; empty where nothing is delivered.
    """
    image, host, bundle = settings.image, settings.host, settings.bundle
    request = DeliveryRequest(
        plan=image.plan,
        builder=image.builder,
        build_on=image.build_on,
        bundled_layout=bundle.layout(image.plan.deps_hash) if bundle else None,
        ctr=image.ctr,
        containerd_address=image.containerd_address,
        node=NodeTarget(
            access=node_text(settings) or "",
            shown=_shown(host.ssh) if host.ssh else "local",
            is_lost=settings.cluster.kind == "k3s" and host.gone,
        ),
        further=tuple(
            NodeTarget(node.name, host_text(node.host), _shown(node.ssh), settings.is_lost(node))
            for node in settings.nodes
        ),
        torch_index_login=image.torch_index_login.output if image.torch_index_login else "",
        proxies=proxy_environment(settings.proxy),
        authorities=settings.proxy.ca_bundle,
        namespace=settings.namespace,
        kubeconfig=kubeconfig,
        options=settings.delivery.options,
    )
    return TrainerImageArgs(settings.delivery.name, request)


def program_image_args(
    settings: PlatformSettings, plan: ImagePlan, kubeconfig: pulumi.Input[str] = ""
) -> TrainerImageArgs:
    """Arguments for the image of the user's own program. A bundle does not contain that image.

    The other arguments are those of `trainer_image_args`.
    """
    args = trainer_image_args(settings, kubeconfig)
    return replace(args, request=replace(args.request, plan=plan, bundled_layout=None))


def run_image_args(plan: ImagePlan, by_run: RunsDelivery, namespace: str) -> TrainerImageArgs:
    """Arguments for a stack that uses another stack's platform, and so reaches none of its nodes.

    A build and a push use the proxies of the shell that runs Pulumi.

    Args:
        plan: the plan of the image.
        by_run: how this stack delivers the image.
        namespace: namespace of the platform.
    """
    request = DeliveryRequest(
        plan=plan,
        builder=by_run.builder,
        authorities=by_run.ca_bundle,
        namespace=namespace,
        options=by_run.delivery.options,
        owner=by_run.owner,
    )
    return TrainerImageArgs(by_run.delivery.name, request)


def _shown(ssh: SshSettings) -> str:
    return f"{ssh.user}@{ssh.host}:{ssh.port}"
