"""A kubeconfig has two contexts, and the current one leads to another cluster than the stack's.

Stacks keep to their own cluster all the same. Both clusters are real, and the other one has a
namespace of the same name, with an object in it. The tests build on each other in file order.
"""

import json
import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.cluster import Cluster
from sandbox.stack import PulumiFailedError, Stack
from sandbox.toolchain import bin_dir
from tests.e2e.asking import changes
from tests.e2e.lab import NAMESPACE, Lab, run_settings
from tests.gate import Gate

pytestmark = pytest.mark.in_order

OURS, THEIRS = "ours", "theirs"
RUN, STEPS = "e2e-other-context", 20
KINDS = "configmap,persistentvolumeclaim,job,statefulset"


@dataclass
class Kubeconfig:
    """A file with a context for each of the two clusters."""

    path: Path
    content: dict[str, Any]

    def use(self, context: str, server: str = "") -> None:
        """Do what `kubectl config use-context` does; `server` is another address of our cluster."""
        content = deepcopy(self.content)
        if server:
            (ours,) = [each for each in content["clusters"] if each["name"] == OURS]
            ours["cluster"]["server"] = server
        self.path.write_text(yaml.safe_dump({**content, "current-context": context}))

    def rename(self, name: str) -> None:
        """Do what `kubectl config rename-context` does to our context, which becomes the current
        one.
        """
        content = deepcopy(self.content)
        (ours,) = [each for each in content["contexts"] if each["name"] == OURS]
        ours["name"] = name
        self.path.write_text(yaml.safe_dump({**content, "current-context": name}))


def entries(kubeconfig: Path, name: str) -> dict[str, Any]:
    """Return the one cluster, user and context of a kubeconfig, under this name."""
    content = yaml.safe_load(kubeconfig.read_text())
    (cluster,), (user,) = content["clusters"], content["users"]
    context = {"name": name, "context": {"cluster": name, "user": name}}
    named = {"clusters": [{**cluster, "name": name}], "users": [{**user, "name": name}]}
    return {**named, "contexts": [context]}


@pytest.fixture(scope="module")
def their_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a running cluster that belongs to somebody else."""
    name = f"their-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    cluster = Cluster(name, bin_dir())
    cluster.down(purge=True)
    cluster.up()
    try:
        made = Lab(cluster, tmp_path_factory.mktemp("theirs"), Path())
        made.kubectl("create", "namespace", NAMESPACE)
        made.kubectl("create", "configmap", "proxy-config", "--from-literal=whose=theirs")
        yield made
    finally:
        cluster.down(purge=True)


@pytest.fixture(scope="module")
def kubeconfig(lab: Lab, their_cluster: Lab) -> Kubeconfig:
    first = entries(lab.cluster.kubeconfig, OURS)
    second = entries(their_cluster.cluster.kubeconfig, THEIRS)
    both = {key: first[key] + second[key] for key in first}
    made = Kubeconfig(lab.scratch / "both", {"apiVersion": "v1", "kind": "Config", **both})
    made.use(OURS)
    return made


@pytest.fixture(scope="module")
def platform(lab: Lab, kubeconfig: Kubeconfig) -> Iterator[Stack]:
    """Yield a platform that was made while our context was current; no setting names it."""
    stack = lab.stack("e2e-two-clusters", "sandbox", {"topology": "none"})
    stack.set("kubeconfig", str(kubeconfig.path))
    stack.up()
    yield stack
    stack.destroy()


@pytest.fixture(scope="module")
def run(lab: Lab, platform: Stack) -> Iterator[Stack]:
    settings = {**run_settings(RUN, STEPS), "platform": platform.name, "topology": "indexed-job"}
    stack = lab.stack("e2e-two-clusters-run", "sandbox-multipod", settings)
    yield stack
    stack.destroy()


def said(error: pytest.ExceptionInfo[PulumiFailedError]) -> str:
    return " ".join(str(error.value).split())


def test_platform_is_not_made_in_another_cluster(
    lab: Lab, their_cluster: Lab, kubeconfig: Kubeconfig, platform: Stack
) -> None:
    """If the current context leads to another cluster, `up` and its preview refuse.

    `refresh` looks where the objects are, and finds all of them. Neither cluster changes.
    """
    before, theirs = lab.uids(KINDS), their_cluster.uids(KINDS)
    kubeconfig.use(THEIRS)
    for command in (platform.preview, platform.up):
        with pytest.raises(PulumiFailedError) as refused:
            command()
        assert "leads to another cluster than the one in which this stack's objects are" in said(
            refused
        )
    assert set(changes(platform.refresh())) == {"unchanged"}
    assert (lab.uids(KINDS), their_cluster.uids(KINDS)) == (before, theirs)


def test_run_trains_where_its_platform_is(
    lab: Lab, their_cluster: Lab, kubeconfig: Kubeconfig, run: Stack
) -> None:
    """A run is made in the cluster of its platform, even if the current context leads to another
    one.
    """
    theirs = their_cluster.uids(KINDS)
    kubeconfig.use(THEIRS)
    run.preview()
    run.up()
    lab.wait_done(RUN)
    assert set(changes(run.up("--expect-no-changes"))) == {"unchanged"}
    assert their_cluster.uids(KINDS) == theirs


def test_another_address_of_the_same_cluster_changes_nothing_in_it(
    lab: Lab, kubeconfig: Kubeconfig, platform: Stack, run: Stack
) -> None:
    """If the kubeconfig names another address of the same cluster, no object is made, deleted or
    replaced.

    The same holds for the way back. The run is refused until the platform's `up` has seen that this
    is the same cluster.
    """
    before = lab.uids(KINDS)
    assert lab.cluster.node_ip
    gate = Gate((lab.cluster.node_ip, 6443))
    try:
        for server in (f"https://127.0.0.1:{gate.port}", ""):
            kubeconfig.use(OURS, server)
            with pytest.raises(PulumiFailedError) as refused:
                run.up()
            assert f"run `pulumi up --stack {platform.name}` first" in said(refused)
            platform.preview()
            output = platform.up()
            assert "lead to the former cluster in another way" in " ".join(output.split())
            assert not {"created", "deleted", "replaced"} & changes(output).keys()
            run.preview()
            assert not {"created", "deleted", "replaced"} & changes(run.up()).keys()
            assert lab.uids(KINDS) == before
    finally:
        gate.close()


def test_up_notes_the_new_name_of_a_context(
    lab: Lab, kubeconfig: Kubeconfig, platform: Stack, run: Stack
) -> None:
    """After a context was renamed, `up` of each stack works and notes the new name.

    Before that `destroy` fails and deletes nothing, because it has the former name, which leads
    nowhere.
    """
    before = lab.uids(KINDS)
    for former, name in ((OURS, "renamed"), ("renamed", OURS)):
        kubeconfig.rename(name)
        for stack in (run, platform):
            with pytest.raises(PulumiFailedError) as failed:
                stack.destroy()
            assert f"no context '{former}'" in said(failed)
            assert "Nothing was deleted" in said(failed) or stack is platform
        assert lab.uids(KINDS) == before
        for stack in (platform, run):
            stack.preview()
            assert not {"created", "deleted", "replaced"} & changes(stack.up()).keys()
        assert lab.uids(KINDS) == before


def test_destroy_deletes_nothing_in_another_cluster(
    lab: Lab, their_cluster: Lab, kubeconfig: Kubeconfig, platform: Stack, run: Stack
) -> None:
    """`destroy` deletes the stack's own objects, even if the current context leads to another
    cluster.

    Otherwise it would delete the objects of the same names in that cluster.
    """
    theirs = their_cluster.uids(f"{KINDS},namespace")
    kubeconfig.use(THEIRS)
    for stack in (run, platform):
        stack.destroy()
        assert json.loads(stack.export())["deployment"].get("resources", []) == []
    assert lab.left() == []
    assert their_cluster.uids(f"{KINDS},namespace") == theirs
