"""What only the machine has that runs Pulumi, and pods that could be placed on others."""

from typing import Any

from infra.kube.pods.only_here import OnlyHere, only_here_problem
from infra.kube.pods.room import PodNeeds
from tests.unit.kube.volumes.zone_nodes import node

Json = dict[str, Any]
FOLDER = OnlyHere("storage: 'host-path'", "the data are in /data of this machine", "share it")


def test_folder_of_one_machine_is_refused_for_pods_elsewhere() -> None:
    """A pod there waited for ever, as the folder is not made on a machine that has none."""

    def of(name: str, boot: str, *taints: Json, **labels: str) -> Json:
        made = node(name, **{"kubernetes.io/hostname": name, **labels})
        made["spec"]["taints"] = [*taints]
        made["status"]["nodeInfo"] = {"bootID": boot}
        return made

    here, there = of("one", "boot-1"), of("two", "boot-2")
    anywhere = PodNeeds(1, {"cpu": "1"}, {}, [])
    said = only_here_problem([here, there], anywhere, FOLDER, "boot-1")
    assert said == (
        "storage: 'host-path' cannot be used: the data are in /data of this machine, and the pods "
        "could also be placed on two. Set nodeSelector to kubernetes.io/hostname: one, or share it"
    )
    pinned = PodNeeds(1, {"cpu": "1"}, {"kubernetes.io/hostname": "one"}, [])
    control_plane = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    for nodes, needs, boot in (
        ([here], anywhere, "boot-1"),
        ([here, there], pinned, "boot-1"),
        ([here, of("two", "boot-2", control_plane)], anywhere, "boot-1"),
        ([here, of("two", "")], anywhere, "boot-1"),  # a kubelet that does not say it
        ([here, there], anywhere, ""),
        ([there], anywhere, "boot-1"),  # another cluster, which `up` refuses in other words
    ):
        assert only_here_problem(nodes, needs, FOLDER, boot) == ""
