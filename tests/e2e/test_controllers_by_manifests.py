"""Each controller that a platform installs by its manifests, with a run that it carries out.

See test_controllers.py. `make test-engines` runs this file; without its variable it is not read.
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
    """A stack whose run needs a controller, which comes with it."""

    name: str
    stack: Stack
    publisher: Publisher

    @property
    def run(self) -> str:
        return run_name(self.name)


def run_name(name: str) -> str:
    return f"e2e-by-{name}"


def settings_of(name: str, steps: int, run: str) -> dict[str, str]:
    """What the controller needs comes before it, by its chart."""
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
    """From a cluster that does not know its kinds, by one command, to the end of the training."""
    kind = CONTROLLERS[brought.name]
    brought.stack.preview()
    assert traces(lab) == before
    brought.stack.up()
    there = traces(lab)
    assert {f"CustomResourceDefinition/{name}" for name in kind.definitions} <= there.keys()
    assert len(brought.publisher.requests) == len(kind.files), "downloaded once, by the preview"
    lab.wait_done(brought.run)


def test_second_up_and_refresh_change_nothing(brought: Brought) -> None:
    """Though the controller has written certificates, finalizers and defaults into its parts."""
    assert set(changes(brought.stack.up("--expect-no-changes"))) == {"unchanged"}
    brought.stack.refresh()
    brought.stack.preview("--expect-no-changes")


def test_file_that_is_another_one_is_refused(lab: Lab, brought: Brought) -> None:
    """The publisher has changed it, and nothing is kept here."""
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
    """Its namespace would be deleted with all that is in it. What the controller itself has made
    there, such as certificates and locks, is not taken for others'."""
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
    """Goal E10: no definition, no webhook, no role; the lists of before and after are equal."""
    brought.stack.destroy()
    wait_for("the cluster to be as before", lambda: traces(lab) == before, 60)


def test_killed_controller_goes_with_the_run_that_it_carries_out(
    lab: Lab, before: dict[str, str], brought: Brought
) -> None:
    """Goal E10 with the controller ended first: nobody takes off finalizers, and its webhooks
    refuse every change. The run is in the middle of its training."""
    run, kind = f"{brought.run}-killed", CONTROLLERS[brought.name]
    made = lab.stack(run, "sandbox", settings_of(brought.name, ENDLESS, run))
    brought.publisher.lead(made, lab.cluster)
    try:
        made.up()
        assert states(lab, made) == {run: "training"}
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
    """A Job's pod that is finished stays."""
    pods = lab.get("pod", namespace=namespace)["items"]
    return [p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Succeeded"]
