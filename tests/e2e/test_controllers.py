"""A platform installs the controller that its run needs and one more, and `destroy` removes both.

The charts, manifests, definitions and programs are those of the projects, at the pinned versions.
They come from the projects' modules: a registry of the tests has JobSet's chart, by its digest, a
server behind a proxy has the MPI Operator's manifests, and the images around the programs are made
here. test_controllers_in_depth.py and test_controllers_by_manifests.py test more of this, also with
the other controllers.
"""

from collections.abc import Iterator

import pytest

from infra.controllers import jobset, mpi_operator
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import training_pods
from tests.e2e.controllers import (
    RegistryOfCharts,
    import_controller,
    make_jobset_of_others,
    traces,
)
from tests.e2e.lab import NAMESPACE, Lab, run_settings, wait_for
from tests.e2e.publisher import Publisher

pytestmark = pytest.mark.in_order

NAME = "e2e-controllers"
STEPS = 10
KINDS = ("jobset", "namespace", "deployment", "customresourcedefinition")


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    with Publisher(tmp_path_factory.mktemp("manifests"), mpi_operator.NAME) as made:
        yield made


@pytest.fixture(scope="module")
def stack(
    lab: Lab,
    before: dict[str, str],
    publisher: Publisher,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    """Yield a stack that installs JobSet and the MPI Operator, and whose run needs JobSet.

    JobSet's chart comes from a registry by its digest. The MPI Operator's manifests have pinned
    checksums.
    """
    for name in ("jobset", mpi_operator.NAME):
        import_controller(lab, name)
    settings = {**run_settings(NAME, STEPS), "pods": "2", "processesPerPod": "1"}
    settings |= {"topology": "jobset", "controllers[1]": mpi_operator.NAME}
    with RegistryOfCharts(tmp_path_factory.mktemp("charts")) as registry:
        made = registry.stack(lab, NAME, settings)
        publisher.lead(made, lab.cluster)
        yield made
        made.destroy()
    assert NAMESPACE not in lab.kubectl("get", "namespaces", "-o", "name")


def test_jobset_that_comes_with_the_platform_carries_out_the_run(
    lab: Lab, before: dict[str, str], stack: Stack
) -> None:
    """One `up` on a cluster that does not know JobSet installs it, and the run is trained to its
    end.

    The preview before that makes nothing.
    """
    stack.preview()
    assert traces(lab) == before
    stack.up()
    assert f"CustomResourceDefinition/{jobset.KIND.definitions[0]}" in traces(lab)
    pods = lab.get("pod", namespace=jobset.KIND.namespace)["items"]
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert images == {f"{jobset.IMAGE}:{jobset.TAG}"}
    lab.wait_done(NAME)
    wait_for("the end of its pods", lambda: not training_pods(lab, stack), 120)
    wait_for(
        "the end of its JobSet",
        lambda: lab.get("jobset")["items"][0]["status"].get("terminalState") == "Completed",
        120,
    )


def test_manifests_are_downloaded_once_and_become_the_operator(
    lab: Lab, publisher: Publisher
) -> None:
    """The preview downloads the manifests, and `up` does not download them again.

    When `up` has ended, the operator's pod runs.
    """
    assert [path.rpartition("/")[2] for path in publisher.requests] == ["mpi-operator.yaml"]
    kind = mpi_operator.KIND
    assert f"CustomResourceDefinition/{kind.definitions[0]}" in traces(lab)
    (deployment,) = lab.get("deployment", namespace=kind.namespace)["items"]
    assert deployment["status"]["availableReplicas"] == 1
    assert deployment["metadata"]["labels"]["disttrain.dev/owner"]


def test_controller_that_others_use_keeps_its_platform(lab: Lab, stack: Stack) -> None:
    """`destroy` refuses, and deletes nothing, while somebody else has a JobSet.

    Otherwise that JobSet would be deleted with the controller's definitions.
    """
    with make_jobset_of_others(lab) as name:
        there = lab.uids(*KINDS)
        with pytest.raises(PulumiFailedError) as refused:
            stack.destroy()
        said = " ".join(str(refused.value).split())
        assert f"others use JobSet (JobSet default/{name})" in said, said
        assert "It is left as it is. Let them delete these objects first" in said
        assert lab.uids(*KINDS) == there


def test_destroy_leaves_nothing_of_the_controller(
    lab: Lab, before: dict[str, str], stack: Stack
) -> None:
    """`destroy` leaves no definition, webhook or role of the controllers."""
    stack.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)
