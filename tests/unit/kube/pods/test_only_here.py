"""Pods that need something of the machine that runs Pulumi, but could be placed on other
machines.
"""

from typing import Any

from infra.kube.pods.only_here import OnlyHere, only_here_problem
from infra.kube.pods.room import PodNeeds
from tests.unit.kube.volumes.zone_nodes import node

Json = dict[str, Any]
FOLDER = OnlyHere("storage: 'host-path'", "the data are in /data of this machine", "share it")


def test_folder_of_one_machine_is_refused_for_pods_elsewhere() -> None:
    """A folder of this machine is refused if the pods could be placed on another machine. Otherwise
    a pod there would wait forever for the folder. Nodes that the pods cannot use, and nodes that do
    not tell their boot id, do not count.
    """

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
        ([here, of("two", "")], anywhere, "boot-1"),  # a kubelet without a boot id
        ([here, there], anywhere, ""),
        ([there], anywhere, "boot-1"),  # Another check of `up` refuses this.
    ):
        assert only_here_problem(nodes, needs, FOLDER, boot) == ""
