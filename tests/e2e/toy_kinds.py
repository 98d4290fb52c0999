"""An extension as a user would write it: a workload, a storage, a network and a delivery kind.

The setting `extensions: ["tests.e2e.toy_kinds"]` imports it. Nothing else in the project knows it.
"""

from dataclasses import dataclass, replace

import pulumi
from pulumi_command import local

from infra.deliveries import DELIVERIES
from infra.deliveries.kind import Delivered, DeliveryKind, DeliveryRequest, Pull
from infra.networks import NETWORKS
from infra.networks.profile import NetworkProfile
from infra.storages import STORAGES, host_path
from infra.storages.kind import Storage, StorageKind, StorageRequest
from infra.workloads import WORKLOADS, single_pod
from infra.workloads.run import Run


@dataclass(frozen=True)
class ToyJobOptions:
    """Options of the toy workload, in the setting `topologyOptions`."""

    deadlineSeconds: int  # noqa: N815 - as the stack's settings name it


def render(run: Run) -> list[tuple[str, dict[str, object]]]:
    """Return the Job of single-pod, with a deadline."""
    ((role, job),) = single_pod.render(run)
    deadline = {"activeDeadlineSeconds": run.kind_options.deadlineSeconds}
    return [(role, {**job, "spec": {**job["spec"], **deadline}})]


def labelled_folder(request: StorageRequest) -> Storage:
    """Return the folder of the storage host-path, in a volume of another name."""
    made = host_path.host_path(request)
    (_, volume), (_, claim) = made.objects
    name = f"toy-{made.volume}"
    volume = {**volume, "metadata": {**volume["metadata"], "name": name}}
    return replace(
        made,
        identity=f"toy-{made.identity}",
        volume=name,
        objects=(("volume", volume), ("claim", claim)),
    )


def deliver(name: str, request: DeliveryRequest, opts: pulumi.ResourceOptions) -> Delivered:
    """Deliver nothing, because the image is already on the node."""
    command = local.Command(f"{name}-toy", create="echo sha256:toy", opts=opts)
    return Delivered(pulumi.Output.from_input(request.plan.reference), command.stdout)


WORKLOADS.register(
    replace(
        single_pod.KIND,
        name="toy-job",
        object_name="train-toy",
        render=render,
        options=ToyJobOptions,
    )
)
STORAGES.register(StorageKind(name="toy-folder", make=labelled_folder))
NETWORKS.register(
    NetworkProfile(name="toy-net", environment={"TOY_NETWORK": "1"}, transports=("ib", "roce"))
)
DELIVERIES.register(
    DeliveryKind(name="toy-present", deliver=deliver, pull=lambda request: Pull("Never"))
)
