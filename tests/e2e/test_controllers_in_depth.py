"""A platform's controllers when somebody else has them already, uses them, or has ended them.

test_controllers.py describes where the controllers come from. `make test-engines` runs this file.
"""

import json
from collections.abc import Iterator

import pytest

from infra.controllers import CONTROLLERS
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, people_run, states, training_pods
from tests.e2e.controllers import (
    CHARTS,
    RegistryOfCharts,
    chart_of,
    import_controller,
    make_jobset_of_others,
    make_secret_of_others,
    settings_for,
    traces,
)
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for

pytestmark = pytest.mark.in_order

NAME = "e2e-controllers-alone"
PODS = {"pods": "2", "processesPerPod": "1", "topology": "jobset"}
QUEUE = {"queues.name": "gpus", "queues.quota.cpu": "300m", "queue": "gpus"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryOfCharts]:
    with RegistryOfCharts(tmp_path_factory.mktemp("charts")) as made:
        yield made


@pytest.fixture(scope="module")
def stack(lab: Lab, before: dict[str, str], registry: RegistryOfCharts) -> Iterator[Stack]:
    """Yield a platform with JobSet and without a run; the cluster must be as before afterwards."""
    import_controller(lab, "jobset")
    made = registry.stack(lab, NAME, {"topology": "none"})
    made.up()
    yield made
    made.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)


def test_second_up_and_refresh_change_nothing(stack: Stack) -> None:
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    stack.refresh()
    stack.preview("--expect-no-changes")


def test_chart_of_another_digest_is_not_installed(stack: Stack, registry: RegistryOfCharts) -> None:
    """The preview refuses a chart whose digest is not the one in the settings."""
    key = f"{CHARTS}.jobset"
    stack.set(key, f"{registry.settings[key][:-8]}{'0' * 8}")
    try:
        with pytest.raises(PulumiFailedError, match="chart reference digest mismatch"):
            stack.preview()
    finally:
        stack.set(key, registry.settings[key])


def test_another_stack_that_wants_it_is_told_that_it_is_there(lab: Lab, stack: Stack) -> None:
    """The preview of another stack that wants to install JobSet says which stack has installed it.

    The message also says how to use what is there.
    """
    assert stack
    folder = str(lab.cluster.data_root / "second")
    settings = {"namespace": "e2e-second", "topology": "none", "dataRoot": folder}
    other = lab.stack("e2e-second-platform", "sandbox", {**settings, **settings_for("jobset")})
    with pytest.raises(PulumiFailedError) as refused:
        other.preview()
    said = " ".join(str(refused.value).split())
    assert "controllers: 'jobset' cannot be used: JobSet is in the cluster already" in said, said
    assert f"stack {NAME} has installed it" in said
    assert "Take jobset out of controllers" in said


def test_controller_leaves_the_list_once_nobody_uses_it(
    lab: Lab, stack: Stack, registry: RegistryOfCharts
) -> None:
    """A controller that is no longer in the settings is removed, once nobody else uses it.

    The platform stays, and if the setting comes back, `up` installs the controller anew.
    """
    definition = CONTROLLERS["jobset"].definitions[0]
    with make_jobset_of_others(lab) as name:
        stack.set_all(dict.fromkeys(registry.settings, None))
        with pytest.raises(PulumiFailedError, match="others use JobSet"):
            stack.up()
        assert name in lab.kubectl("get", "jobset", "-o", "name", namespace="default")
    stack.up()
    assert f"CustomResourceDefinition/{definition}" not in traces(lab)
    stack.set_all(registry.settings)
    stack.up()
    assert f"CustomResourceDefinition/{definition}" in traces(lab)


def test_controller_without_its_namespace_is_installed_anew(lab: Lab, stack: Stack) -> None:
    """After somebody has deleted the controller's namespace, `refresh` and `up` install it again.

    Helm's record of the release was in that namespace.
    """
    namespace = CONTROLLERS["jobset"].namespace
    lab.kubectl("delete", "namespace", namespace)
    stack.refresh()
    stack.up()
    (deployment,) = lab.get("deployment", namespace=namespace)["items"]
    assert deployment["status"]["availableReplicas"] >= 1
    stack.preview("--expect-no-changes")


def test_destroy_after_its_namespace_leaves_nothing(
    lab: Lab, before: dict[str, str], stack: Stack
) -> None:
    """After somebody has deleted the controller's namespace, `destroy` fails and advises `refresh`.

    After a `refresh`, `destroy` removes the rest.
    """
    namespace = CONTROLLERS["jobset"].namespace
    lab.kubectl("delete", "namespace", namespace)
    with pytest.raises(PulumiFailedError) as failed:
        stack.destroy()
    said = " ".join(str(failed.value).split())
    assert f"namespace {namespace}, in which this stack has installed JobSet, is not there" in said
    assert "Run `pulumi refresh`, and then `pulumi up` or `pulumi destroy`" in said
    stack.refresh()
    stack.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)
    stack.up()


def test_object_of_others_keeps_kueue(lab: Lab, stack: Stack) -> None:
    """`destroy` refuses, and deletes nothing, while others have an object in Kueue's namespace.

    Their object would be deleted with the namespace. Certificates that Kueue itself has made there
    do not count.
    """
    added = {"controllers[1]": "kueue", f"{CHARTS}.kueue": str(chart_of("kueue"))}
    import_controller(lab, "kueue")
    stack.set_all(added)
    try:
        stack.up()
        there = traces(lab)
        with make_secret_of_others(lab, CONTROLLERS["kueue"].namespace) as named:
            with pytest.raises(PulumiFailedError) as refused:
                stack.destroy()
            said = " ".join(str(refused.value).split())
            assert f"others have objects there ({named}), which would be deleted too" in said, said
            assert traces(lab) == there
    finally:
        stack.set_all(dict.fromkeys(added, None))


def test_killed_controllers_go_with_a_run_that_they_carry_out(
    lab: Lab, before: dict[str, str], stack: Stack
) -> None:
    """`destroy` leaves nothing even if the controllers have ended before, during a training.

    Then nobody removes the finalizers of their objects, and their webhooks refuse every change. The
    run is in the platform's queue. When it has lost a pod, which no controller replaces,
    `./disttrain status` names both controllers.
    """
    stack.destroy()
    names = ("jobset", "kueue")
    import_controller(lab, "kueue")
    settings = {**run_settings("e2e-killed", ENDLESS), **PODS, **QUEUE, **settings_for(*names)}
    made = lab.stack("e2e-killed", "sandbox", settings)
    try:
        made.preview()
        made.up()
        wait_for("the training", lambda: states(lab, made) == {"e2e-killed": "training"}, 60)
        (workload,) = lab.get("workload")["items"]
        assert workload["metadata"]["finalizers"]
        assert set(changes(made.up("--expect-no-changes"))) == {"unchanged"}
        for name in names:
            inside = CONTROLLERS[name].namespace
            lab.kubectl("scale", "deployment", "--all", "--replicas=0", namespace=inside)
            wait_for(
                "the controller's end",
                lambda place=inside: not lab.get("pod", namespace=place)["items"],
                120,
            )
        lab.kubectl("delete", training_pods(lab, made)[-1])
        words = [f"in namespace {CONTROLLERS[n].namespace} has no available pod" for n in names]
        wait_for(
            "the controllers' names in the status",
            lambda: all(text in detail_of_run(lab, made) for text in words),
            120,
        )
    finally:
        made.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)


def detail_of_run(lab: Lab, stack: Stack) -> str:
    """Return the reason that `./disttrain status` shows for the only run, also with status 1."""
    command = f"./disttrain status --stack {stack.name} --json || test $? = 1"
    (run,) = json.loads(people_run(lab, stack, command))["runs"]
    return run["detail"]


@pytest.fixture
def definition_of_others(lab: Lab) -> Iterator[None]:
    """Make JobSet's definition without a namespace of ours, as an administrator may have done."""
    file = chart_of("jobset") / "crds" / "jobset.x-k8s.io_jobsets.yaml"
    lab.kubectl("create", "-f", str(file))
    yield
    lab.kubectl("delete", "-f", str(file))


def test_controller_of_somebody_else_is_refused_and_kept(
    lab: Lab, stack: Stack, definition_of_others: None
) -> None:
    """The preview refuses to install a JobSet that somebody else has made, and changes nothing."""
    there = traces(lab)
    with pytest.raises(PulumiFailedError) as refused:
        stack.preview()
    said = " ".join(str(refused.value).split())
    assert "JobSet is in the cluster already (CustomResourceDefinition jobsets." in said, said
    assert "this stack has not installed it" in said
    assert traces(lab) == there
