"""`up` pushes the trainer image to a real registry with a login, and the kubelet pulls it from
there.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cli.status.snapshot import take_snapshot
from infra.deliveries.registry import PULL_SECRET
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for
from tests.e2e.trusted_registry import REPOSITORY, trusted_registry
from tests.registry.lab import LOGIN, Server

pytestmark = pytest.mark.in_order

RUN = "e2e-registry"
KINDS = ("configmap", "secret", "persistentvolumeclaim", "job", "statefulset", "pod")
OF_TRAINING = ("-l", "app.kubernetes.io/component=training")


@dataclass
class World:
    """A stack whose image goes by a registry that the cluster's containerd trusts."""

    lab: Lab
    server: Server
    stack: Stack


@pytest.fixture(scope="module")
def world(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with trusted_registry(lab, tmp_path_factory.mktemp("registry")) as registry:
        stack = registry.stack("e2e-registry", run_settings(RUN, ENDLESS))
        try:
            yield World(lab, registry.server, stack)
        finally:
            stack.destroy()


def tags(world: World) -> set[str]:
    return {tag.name for tag in world.server.tags(REPOSITORY).iterdir()}


def test_up_pushes_and_the_kubelet_pulls_by_the_secret(world: World) -> None:
    """`up` pushes the image to the registry, and the kubelet pulls it with the login in the pod's
    Secret.

    The registry refuses everybody without the login, and nothing else brings this image to the
    node. The password is neither in the output nor in the state.
    """
    lab, stack = world.lab, world.stack
    stack.preview()
    shown = stack.up()
    assert "is in the registry" in shown
    reference, digest = stack.output("image"), stack.output("imageDigest")
    (pod,) = lab.get("pods", *OF_TRAINING)["items"]
    assert pod["spec"]["imagePullSecrets"] == [{"name": PULL_SECRET}]
    assert pod["status"]["containerStatuses"][0]["image"] == reference
    assert pod["status"]["containerStatuses"][0]["imageID"].endswith(f"@{digest}")
    assert LOGIN.password not in shown + stack.export()
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}


def test_pod_that_pulls_while_the_registry_is_away_trains_once_it_is_back(world: World) -> None:
    """A pod that cannot pull its image while the registry is away trains by itself once it is back.

    Meanwhile status says that the pod waits for its image.
    """
    lab, stack = world.lab, world.stack
    stack.up()
    world.server.close()
    try:
        lab.ctr("images", "rm", stack.output("image"))
        lab.kubectl("delete", "pod", *OF_TRAINING, "--wait=false")
        api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))

        def told() -> bool:
            (run,) = take_snapshot(api, NAMESPACE).runs
            return run.state == "failing" and "ImagePull" in run.detail

        wait_for("status to say so", told, 300)
        made = max(lab.losses(RUN))  # only now the former pod, which still made steps, is gone
    finally:
        world.server.start()
    wait_for("steps after the last one", lambda: max(lab.losses(RUN)) > made, 300)


def test_image_lost_by_the_registry_is_pushed_again(world: World) -> None:
    """`up` pushes an image that the registry has lost.

    Registries may remove old tags by themselves. Otherwise the pods of the next start would not
    find their image.
    """
    stack = world.stack
    stack.up()
    there = tags(world)
    for tag in there:
        shutil.rmtree(world.server.tags(REPOSITORY) / tag)
    assert "image-push" in stack.preview()
    assert "is in the registry" in stack.up()
    assert tags(world) == there
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}


def test_refused_login_is_said_and_changes_nothing(world: World) -> None:
    """If the registry refuses the login, `up` fails and says so.

    Nothing is pushed, and no object in the cluster is made anew, so the run goes on with its pod.
    The former login stays in the pod's Secret. With the right login `up` then succeeds.
    """
    lab, stack = world.lab, world.stack
    stack.up()
    tag = next(tag for tag in tags(world) if not tag.startswith("deps-"))
    shutil.rmtree(world.server.tags(REPOSITORY) / tag)
    objects, there = lab.uids(*KINDS), tags(world)
    login = lab.get("secret", PULL_SECRET)["data"]
    stack.set("imageDeliveryOptions.password", "wrong", secret=True)
    try:
        with pytest.raises(PulumiFailedError, match="the user 'tests' may not do this"):
            stack.up()
        assert (lab.uids(*KINDS), tags(world)) == (objects, there)
        assert lab.get("secret", PULL_SECRET)["data"] == login
    finally:
        stack.set("imageDeliveryOptions.password", LOGIN.password, secret=True)
    assert "is in the registry" in stack.up()


def test_destroy_leaves_the_image_in_the_registry(world: World) -> None:
    """`destroy` leaves the image in the registry, because other clusters may pull it."""
    world.stack.up()
    there = tags(world)
    world.stack.destroy()
    assert tags(world) == there
    assert json.loads(world.stack.export())["deployment"].get("resources", []) == []
