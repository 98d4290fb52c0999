"""Older versions of controllers. A cluster has one version of each, and no setup builds the older
ones.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from sandbox.cluster import Cluster
from sandbox.controllers import CONTROLLERS, controller
from sandbox.controllers.controller import running, running_version, start_controller
from sandbox.controllers.kind import Controller
from sandbox.controllers.older import OLDER, OLDER_TRAINERS
from sandbox.tools.controllers import JOBSET, TRAINER

PINNED, OLD = CONTROLLERS["trainer"], OLDER["trainer-2.1"]
FOLDER = "/cache/tools/trainer-2.1.0-0123456789ab"


def cluster_that_runs(program: str | None) -> Cluster:
    """Return a stand-in for a cluster that is up, in which this program is Trainer's controller."""
    node = SimpleNamespace(link=object(), program={"trainer": program}.get)
    return cast(Cluster, SimpleNamespace(name="any", node=lambda _: node))


def test_older_versions_replace_the_pinned() -> None:
    assert list(OLDER) == ["jobset-0.10", "trainer-2.1", "jobset-0.11", "trainer-2.2"]
    for version, (jobset, trainer) in OLDER_TRAINERS.items():
        assert (jobset.name, trainer.name) == ("jobset", "trainer")
        assert version == trainer.tool.version != TRAINER
        assert jobset.tool.version != JOBSET


def test_setup_builds_no_older_version() -> None:
    """`setup` builds no older versions. Only the tests in depth need them, and `setup --for-tests`
    runs before the tests of each commit.
    """
    built = {each.tool.key for each in CONTROLLERS.values()}
    assert not built & {each.tool.key for each in OLDER.values()}


@pytest.mark.parametrize(
    ("program", "version"),
    [
        (f"{FOLDER}/trainer-controller-manager", "2.1.0"),
        ("/cache/tools/trainer-2.3.0-rc.0-0123456789ab/trainer-controller-manager", "2.3.0-rc.0"),
        ("/cache/tools/trainer-manifests/trainer-controller-manager", None),
        ("/cache/tools/training-operator-1.9.4-0123456789ab/training-operator.v1", None),
        ("sh", None),  # A shell starts Kueue's program.
        ("", None),
    ],
)
def test_version_is_told_by_path(program: str, version: str | None) -> None:
    """The version of a running controller is read from the path of its program. It is None if the
    path is not one of that controller.
    """
    assert running_version(program, "trainer") == version


def ended(cluster: Cluster, wanted: Controller) -> None:
    """End the controller."""
    controller.stop_controller(cluster, wanted)


def lent(cluster: Cluster, wanted: Controller) -> None:
    """Run JobSet's controller and this one while a block runs."""
    with running(cluster, [CONTROLLERS["jobset"], wanted]):
        pass


@pytest.mark.parametrize("act", [start_controller, ended, lent])
def test_another_running_version_is_refused(
    act: Callable[[Cluster, Controller], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller is refused if another version of it runs, before anything is built, made or
    deleted. The running version goes on.
    """

    done = list[str]()
    for name in ("tool_folder", "_objects", "_place", "_apply", "_delete"):
        monkeypatch.setattr(controller, name, lambda *_, name=name: done.append(name))
    with pytest.raises(RuntimeError, match="has one version at a time") as refused:
        act(cluster_that_runs(f"{FOLDER}/trainer-controller-manager"), PINNED)
    assert done == []
    said = str(refused.value)
    assert f"controller {TRAINER} cannot be started or ended: version 2.1.0 of it runs" in said
    for program in (f"{FOLDER}/trainer-controller-manager", "sh", None):
        controller.refuse_another_version(cluster_that_runs(program), OLD)
