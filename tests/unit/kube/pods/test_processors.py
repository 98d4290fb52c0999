"""Nodes with other processors than those for which the image of the pods is built."""

from infra.kube.pods.processors import processors_note, processors_problem
from infra.kube.pods.room import PodNeeds
from tests.unit.kube.pods.instances import Json, node

ANYWHERE = PodNeeds(1, {"cpu": "1"}, {}, [])


def of(name: str, kind: str, *taints: str) -> Json:
    made = node(name, {"kubernetes.io/arch": kind}, {}, *taints)
    made["status"]["nodeInfo"] = {"architecture": kind} if kind else {}
    return made


INTEL, ARM = of("gpu-a", "amd64"), of("cpu-a", "arm64")


def test_image_for_no_node_is_refused() -> None:
    """An image that would be built for processors which no usable node has is refused. Otherwise
    gigabytes would be built and pushed, and the pods would end with `exec format error`.
    """
    tainted = of("cpu-b", "arm64", "team=web:NoSchedule")
    assert processors_problem([INTEL, tainted], ANYWHERE, "arm64") == (
        "imageDelivery: the image would be built for the processors of this machine (arm64), and "
        "the nodes that the pods could use have others (amd64: gpu-a). Run Pulumi on a machine "
        "with processors of the kind amd64"
    )
    assert processors_problem([INTEL, ARM], ANYWHERE, "arm64") == ""
    assert processors_problem([INTEL], ANYWHERE, "") == ""  # The image is not built here.
    assert processors_problem([of("n", "")], ANYWHERE, "arm64") == ""


def test_nodes_of_two_kinds_are_said() -> None:
    """A note names the setting that keeps the pods on nodes of one kind of processor. The pods that
    prepare the data set ask for no GPU, so they could also be placed on a node of the other kind.
    """
    assert processors_note([INTEL, ARM], ANYWHERE) == (
        "the nodes that the pods could use have several kinds of processors (amd64: gpu-a; "
        "arm64: cpu-a), and the image is for one kind. On the others, pods end with exec format "
        "error. Set nodeSelector to kubernetes.io/arch: KIND"
    )
    chosen = PodNeeds(1, {}, {"kubernetes.io/arch": "amd64"}, [])
    assert processors_note([INTEL, ARM], chosen) == ""
    assert processors_note([INTEL, of("n", "")], ANYWHERE) == ""
