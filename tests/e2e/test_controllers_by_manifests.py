"""A platform installs each controller that comes by manifests, and it carries out a run.

test_controllers.py describes where the manifests come from. `make test-engines` runs this file.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from infra.controllers import CONTROLLERS
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, states
from tests.e2e.controllers import (
    PROGRAMS,
    import_controller,
    make_secret_of_others,
    settings_for,
    traces,
)
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from tests.e2e.publisher import Publisher

pytestmark = pytest.mark.in_order

STEPS = 10
TOPOLOGIES = {
    "mpi-operator": "mpijob",
    "training-operator": "pytorchjob",
    "trainer": "trainjob",
    "volcano": "volcano",
    "lws": "lws",
}
assert TOPOLOGIES.keys() == PROGRAMS.keys()


@dataclass(frozen=True)
class Brought:
    """A stack that installs the controller of this name, and whose run needs it."""

    name: str
    stack: Stack
    publisher: Publisher

    @property
    def run(self) -> str:
        return run_name(self.name)


def run_name(name: str) -> str:
    return f"e2e-by-{name}"


def settings_of(name: str, steps: int, run: str) -> dict[str, str]:
    """Return settings of a run and of its controller, after what the controller itself needs."""
    needs = CONTROLLERS[name].needs
    names = [needs, name] if needs else [name]
    pods = {"pods": "2", "processesPerPod": "1", "topology": TOPOLOGIES[name]}
    return {**run_settings(run, steps), **pods, **settings_for(*names)}


@pytest.fixture(scope="module", params=list(TOPOLOGIES))
def brought(
    request: pytest.FixtureRequest,
    lab: Lab,
    before: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Brought]:
    """Yield a stack that is not up, for each controller; at the end the cluster is as before."""
    name = str(request.param)
    needs = CONTROLLERS[name].needs
    for each in (name, needs) if needs else (name,):
        import_controller(lab, each)
    run = run_name(name)
    stack = lab.stack(run, "sandbox", settings_of(name, STEPS, run))
    with Publisher(tmp_path_factory.mktemp("manifests"), name) as publisher:
        publisher.lead(stack, lab.cluster)
        yield Brought(name, stack, publisher)
        stack.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)


def test_controller_that_comes_carries_out_the_run(
    lab: Lab, before: dict[str, str], brought: Brought
) -> None:
    """One `up` on a cluster without the controller installs it, and the run is trained to its end.

    The preview makes nothing. It downloads the manifests, and `up` does not download them again.
    """
    kind = CONTROLLERS[brought.name]
    brought.stack.preview()
    assert traces(lab) == before
    brought.stack.up()
    there = traces(lab)
    assert {f"CustomResourceDefinition/{name}" for name in kind.definitions} <= there.keys()
    assert len(brought.publisher.requests) == len(kind.files), "downloaded once, by the preview"
    lab.wait_done(brought.run)


def test_second_up_and_refresh_change_nothing(brought: Brought) -> None:
    """A second `up` and a `refresh` change nothing.

    The controller has written certificates, finalizers and defaults into its objects by then.
    """
    assert set(changes(brought.stack.up("--expect-no-changes"))) == {"unchanged"}
    brought.stack.refresh()
    brought.stack.preview("--expect-no-changes")


def test_file_that_is_another_one_is_refused(lab: Lab, brought: Brought) -> None:
    """The preview refuses a manifest whose content has changed, and names both checksums."""
    there = traces(lab)
    path, right = brought.publisher.change_last()
    try:
        with pytest.raises(PulumiFailedError) as refused:
            brought.stack.preview()
        said = "".join(str(refused.value).split())
        assert f"{path}:sha256is" in said, said
        assert f",not{right}" in said, said
    finally:
        brought.publisher.change_back()
    assert traces(lab) == there


def test_object_of_others_keeps_the_controller(lab: Lab, brought: Brought) -> None:
    """`destroy` refuses, and deletes nothing, while others have an object in its namespace.

    Their object would be deleted with the controller's namespace. Certificates and locks that the
    controller itself has made there do not count.
    """
    namespace = CONTROLLERS[brought.name].namespace
    there = traces(lab)
    with make_secret_of_others(lab, namespace) as named:
        with pytest.raises(PulumiFailedError) as refused:
            brought.stack.destroy()
        said = " ".join(str(refused.value).split())
        assert f"others have objects there ({named}), which would be deleted too" in said, said
        assert traces(lab) == there
    assert set(changes(brought.stack.up("--expect-no-changes"))) == {"unchanged"}


def test_destroy_leaves_nothing_of_the_controller(
    lab: Lab, before: dict[str, str], brought: Brought
) -> None:
    """`destroy` leaves no definition, webhook or role of the controller."""
    brought.stack.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)


def test_killed_controller_goes_with_the_run_that_it_carries_out(
    lab: Lab, before: dict[str, str], brought: Brought
) -> None:
    """`destroy` leaves nothing even if the controller has ended before, during a training.

    Then nobody removes the finalizers of its objects, and its webhooks refuse every change.
    """
    run, kind = f"{brought.run}-killed", CONTROLLERS[brought.name]
    made = lab.stack(run, "sandbox", settings_of(brought.name, ENDLESS, run))
    brought.publisher.lead(made, lab.cluster)
    try:
        made.up()
        wait_for("the training", lambda: states(lab, made) == {run: "training"}, 60)
        lab.kubectl("scale", "deployment", "--all", "--replicas=0", namespace=kind.namespace)
        wait_for(
            "the controller's end",
            lambda: not _pods_of_deployments(lab, kind.namespace),
            120,
        )
    finally:
        made.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)


def _pods_of_deployments(lab: Lab, namespace: str) -> list[str]:
    """Return the names of the pods in the namespace, without finished pods of Jobs, which stay."""
    pods = lab.get("pod", namespace=namespace)["items"]
    return [p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Succeeded"]
