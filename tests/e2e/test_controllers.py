"""A platform that installs the controllers that its runs need, and takes them away whole.

The charts, the definitions and the programs are those of the projects, at the pinned versions. What
is missing is the registry that they come from: charts are read from the projects' modules.
"""

import json
from collections.abc import Iterator, Sequence

import pytest

from infra.controllers import CONTROLLERS, jobset
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, states, training_pods
from tests.e2e.controllers import chart_of, import_controller, settings_for, traces
from tests.e2e.engines import ALL
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for

pytestmark = pytest.mark.in_order

NAME = "e2e-controllers"
STEPS = 10
PODS = {"pods": "2", "processesPerPod": "1"}
THEIRS = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "theirs", "namespace": "default"},
    "spec": {"suspend": True, "replicatedJobs": []},
}


@pytest.fixture(scope="module")
def before(lab: Lab) -> dict[str, str]:
    """What the cluster has before any platform."""
    return traces(lab)


@pytest.fixture(scope="module")
def stack(lab: Lab, before: dict[str, str]) -> Iterator[Stack]:
    import_controller(lab, "jobset")
    settings = {**run_settings(NAME, STEPS), **PODS, "topology": "jobset"}
    made = lab.stack(NAME, "sandbox", {**settings, **settings_for("jobset")})
    yield made
    made.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)


def apply(lab: Lab, item: object) -> None:
    given = lab.scratch / "applied.json"
    given.write_text(json.dumps(item))
    lab.kubectl("apply", "-f", str(given), namespace="default")


def test_jobset_that_comes_with_the_platform_carries_out_the_run(
    lab: Lab, before: dict[str, str], stack: Stack
) -> None:
    """From a cluster that knows no JobSet, by one command: the run is trained to its end."""
    stack.preview()
    assert traces(lab) == before
    stack.up()
    assert f"CustomResourceDefinition/{jobset.KIND.definitions[0]}" in traces(lab)
    pods = lab.get("pod", namespace=jobset.KIND.namespace)["items"]
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert images == {f"{jobset.IMAGE}:{jobset.TAG}"}
    lab.wait_done(NAME)
    wait_for("the end of its pods", lambda: not training_pods(lab, stack), 120)
    (run,) = lab.get("jobset")["items"]
    assert run["status"]["terminalState"] == "Completed"


def test_second_up_and_refresh_change_nothing(stack: Stack) -> None:
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    stack.refresh()
    stack.preview("--expect-no-changes")


def test_controller_that_others_use_is_not_taken_away(lab: Lab, stack: Stack) -> None:
    """Neither by `destroy`, before which nothing is deleted, nor when it leaves the list."""
    apply(lab, THEIRS)
    there = lab.uids("jobset", "namespace", "deployment", "customresourcedefinition")
    try:
        with pytest.raises(PulumiFailedError) as refused:
            stack.destroy()
        said = " ".join(str(refused.value).split())
        assert "others use JobSet (JobSet default/theirs)" in said, said
        assert "It is left as it is" in said
        assert lab.uids("jobset", "namespace", "deployment", "customresourcedefinition") == there
        assert "theirs" in lab.kubectl("get", "jobset", "-o", "name", namespace="default")
        other = run_settings(NAME, STEPS, topology="none")
        stack.set_all({"topology": other["topology"], "controllers[0]": None})
        stack.set("controllerCharts.jobset", None)
        with pytest.raises(PulumiFailedError, match="others use JobSet"):
            stack.up()
        assert "theirs" in lab.kubectl("get", "jobset", "-o", "name", namespace="default")
        stack.set_all({"topology": "jobset", **settings_for("jobset")})
    finally:
        lab.kubectl("delete", "jobset", "theirs", namespace="default")


def test_another_stack_that_wants_it_is_told_that_it_is_there(lab: Lab, stack: Stack) -> None:
    """In the preview, before anything is made; it may use what is there."""
    settings = {"namespace": "e2e-second", "topology": "none", **settings_for("jobset")}
    settings["dataRoot"] = str(lab.cluster.data_root / "second")
    other = lab.stack("e2e-second-platform", "sandbox", settings)
    with pytest.raises(PulumiFailedError) as refused:
        other.preview()
    said = " ".join(str(refused.value).split())
    assert "controllers: 'jobset' cannot be used: JobSet is in the cluster already" in said, said
    assert f"stack {NAME} has installed it" in said
    assert "Take jobset out of controllers" in said


def test_destroy_leaves_nothing_of_the_controller(
    lab: Lab, before: dict[str, str], stack: Stack
) -> None:
    """Goal E10: no definition, no webhook, no role; the lists of before and after are equal."""
    stack.up()
    stack.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)
    assert NAMESPACE not in lab.kubectl("get", "namespaces", "-o", "name")


@pytest.fixture
def definition_of_others(lab: Lab) -> Iterator[None]:
    """JobSet's definition without a namespace of ours, as an administrator may have made it."""
    file = chart_of("jobset") / "crds" / "jobset.x-k8s.io_jobsets.yaml"
    lab.kubectl("create", "-f", str(file))
    yield
    lab.kubectl("delete", "-f", str(file))


def test_controller_of_somebody_else_is_refused_and_kept(
    lab: Lab, stack: Stack, definition_of_others: None
) -> None:
    there = traces(lab)
    with pytest.raises(PulumiFailedError) as refused:
        stack.preview()
    said = " ".join(str(refused.value).split())
    assert "JobSet is in the cluster already (CustomResourceDefinition jobsets." in said, said
    assert "this stack has not installed it" in said
    assert traces(lab) == there


# Kueue, whose program takes long to build and whose chart long to come up, by `make test-engines`.
KILLED = (("jobset", "kueue"),) if ALL else (("jobset",),)
QUEUE = {"queues.name": "gpus", "queues.quota.cpu": "300m", "queue": "gpus"}


@pytest.mark.parametrize("names", KILLED, ids="-".join)
def test_killed_controllers_go_with_a_run_that_they_carry_out(
    lab: Lab, before: dict[str, str], names: Sequence[str]
) -> None:
    """Goal E10 with the controllers ended first: nobody takes off finalizers, and their webhooks
    refuse every change. The run is in the middle of its training, in the platform's queue."""
    for name in names:
        import_controller(lab, name)
    settings = {**run_settings("e2e-killed", ENDLESS), **PODS, "topology": "jobset"}
    queue = QUEUE if "kueue" in names else {}
    made = lab.stack("e2e-killed", "sandbox", {**settings, **settings_for(*names), **queue})
    try:
        made.preview()
        made.up()
        assert states(lab, made)["e2e-killed"] == "stepping"
        assert bool(lab.get("workload")["items"] if queue else False) == bool(queue)
        assert set(changes(made.up("--expect-no-changes"))) == {"unchanged"}
        for name in names:
            inside = CONTROLLERS[name].namespace
            lab.kubectl("scale", "deployment", "--all", "--replicas=0", namespace=inside)
            wait_for(
                "the controller's end",
                lambda place=inside: not lab.get("pod", namespace=place)["items"],
                120,
            )
    finally:
        made.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)
