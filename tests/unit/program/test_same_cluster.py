"""Settings that lead to the same cluster in another way, or to another cluster.

For the engine, another identifier of the cluster is another cluster. For the same cluster it would
make the whole platform once more, which changes nothing there, and then delete it there by its
names.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from pulumi import RunError

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.node.k3s_observation import K3sObservation
from infra.platform.facts import facts_from_text
from infra.platform.former_cluster import COMPONENT, LEADS_TO
from tests.unit import stacks
from tests.unit.kube.server import ApiServer, Json, api_of
from tests.unit.settings.reading import SSH
from tests.unit.stacks import (
    Deployment,
    RecordingMonitor,
    deploy,
    files_of_this_machine,
    raw_settings,
    run_with,
    state_of,
)

ADDRESS, OTHER_ADDRESS = "198.18.0.2", "api.example.org"


@dataclass
class Cluster(ApiServer):
    """A stand-in for a cluster that has objects with these uids, each by its path.

    Args:
        uids: the uids of the objects; empty: it is another cluster than the stack's.
        problem: the error with which it answers instead; None: it answers.
        asked: the paths that were asked for.
    """

    uids: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: Exception | None = None
    asked: list[str] = field(default_factory=list[str])

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        del query, body
        assert method == "GET"
        self.asked.append(path)
        if self.problem:
            raise self.problem
        uid = self.uids.get(path)
        return {"metadata": {"uid": uid}} if uid else None


OURS = {"/api/v1/namespaces/disttrain/configmaps/proxy-config": "uid-of-proxy-config-map"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Cluster], None]:
    """Return a function that puts a cluster behind every kubeconfig."""

    def put(cluster: Cluster) -> None:
        @contextmanager
        def look(access: Access, seconds: float) -> Iterator[Api]:
            del access, seconds
            yield api_of(cluster)

        monkeypatch.setattr("infra.platform.known_cluster.read_only_api", look)

    return put


@pytest.fixture
def moved(tmp_path: Path) -> dict[str, object]:
    """Return the setting of the same kubeconfig with its server at another address."""
    folder = tmp_path / "moved"
    folder.mkdir()
    path = Path(str(files_of_this_machine("sandbox", folder)["kubeconfig"]))
    path.write_text(path.read_text().replace(ADDRESS, OTHER_ADDRESS))
    return {"kubeconfig": str(path)}


def identifier(deployment: Deployment) -> str:
    """Return the text by which the engine knows the cluster."""
    return deployment.one("cluster-provider").inputs["clusterIdentifier"]


def of_earlier_version(deployment: Deployment) -> Deployment:
    """Return what an `up` of an earlier version has left, which did not note where the settings led
    to.
    """
    older = deepcopy(deployment.component_outputs)
    for outputs in older.values():
        outputs.pop(LEADS_TO, None)
    return Deployment(deployment.resources, older)


@pytest.mark.parametrize("version", [lambda it: it, of_earlier_version], ids=["same", "earlier"])
def test_unchanged_address_asks_no_cluster(
    version: Callable[[Deployment], Deployment], tmp_path: Path, asked: Callable[[Cluster], None]
) -> None:
    """If the address has not changed, no cluster is asked and the identifier stays, also at the
    first `up` with a new version.
    """
    asked(cluster := Cluster(problem=UnreachableError("it must not be asked")))
    before = deploy("sandbox", tmp_path)
    after = deploy("sandbox", tmp_path, before=version(before))
    assert (
        identifier(after)
        == identifier(before)
        == f"disttrain-sandbox-existing-https://{ADDRESS}:6443"
    )
    assert cluster.asked == []


@pytest.mark.parametrize("version", [lambda it: it, of_earlier_version], ids=["same", "earlier"])
def test_same_cluster_elsewhere_stays_the_same(
    version: Callable[[Deployment], Deployment],
    tmp_path: Path,
    moved: dict[str, object],
    asked: Callable[[Cluster], None],
) -> None:
    """A cluster at another address that has this stack's objects keeps its identifier, for this
    stack and for runs of other stacks. It is asked only once.
    """
    before = deploy("sandbox", tmp_path)
    asked(Cluster(OURS))
    after = deploy("sandbox", tmp_path, moved, before=version(before))
    assert identifier(after) == identifier(before)
    assert facts_from_text(after.outputs["platform"])[0].cluster_identifier == identifier(before)
    asked(cluster := Cluster(problem=UnreachableError("it must not be asked again")))
    again = deploy("sandbox", tmp_path, moved, before=after)
    assert identifier(again) == identifier(before)
    assert cluster.asked == []


def test_another_name_of_context_stays_the_same(
    tmp_path: Path, asked: Callable[[Cluster], None]
) -> None:
    """Naming the context that was the current one keeps the identifier. A user whose current
    context changes should name it.
    """
    before = deploy("sandbox", tmp_path)
    asked(Cluster(OURS))
    after = deploy("sandbox", tmp_path, {"kubeContext": "c"}, before=before)
    assert identifier(after) == identifier(before)


@pytest.mark.parametrize("uids", [{}, dict.fromkeys(OURS, "of-a-stack-of-the-same-name")])
def test_another_cluster_is_refused(
    uids: dict[str, str],
    tmp_path: Path,
    moved: dict[str, object],
    asked: Callable[[Cluster], None],
) -> None:
    """A kubeconfig that leads to another cluster, such as by another current context, is refused
    with the ways out, before anything is registered (`deploy` checks it).
    """
    before = deploy("sandbox", tmp_path)
    asked(Cluster(uids))
    with pytest.raises(RunError) as refused:
        deploy("sandbox", tmp_path, moved, before=before)
    reason, *ways = str(refused.value).splitlines()
    assert reason.startswith(f"kubeconfig: '{moved['kubeconfig']}' with kubeContext: '' (the curr")
    assert "cannot be used: this leads to another cluster than the one in which" in reason
    assert reason.endswith("Nothing was changed.")
    text = "\n".join(ways)
    assert f"  pulumi config set kubeconfig {tmp_path / 'kubeconfig'}\n" in text
    assert "  pulumi config set kubeContext c\n" in text
    assert "run `pulumi destroy`" in text
    assert "docs/clusters.md (Another address or another cluster)" in text


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (UnreachableError("no route to host"), "(no route to host)"),
        (ApiError(403, "no"), "these credentials may look at none of this stack's objects"),
    ],
    ids=["silent", "forbidden"],
)
def test_cluster_that_cannot_be_seen_is_refused(
    problem: Exception,
    words: str,
    tmp_path: Path,
    moved: dict[str, object],
    asked: Callable[[Cluster], None],
) -> None:
    """If the cluster at another address cannot be asked, `up` is refused, because it may be another
    one.
    """
    before = deploy("sandbox", tmp_path)
    asked(Cluster(problem=problem))
    with pytest.raises(RunError, match="it is not known whether the cluster is the one") as refused:
        deploy("sandbox", tmp_path, moved, before=before)
    assert words in str(refused.value)


def test_current_context_is_kept_for_what_comes_later(tmp_path: Path) -> None:
    """The current context is noted in the provider and in the commands. `destroy` and `refresh` do
    not run the program, and would otherwise delete by names in the cluster that is the current one
    by then.
    """
    made = deploy("sandbox", tmp_path)
    assert made.one("cluster-provider").inputs["context"] == "c"
    commands = [each for each in made.of_type("command:local:Command") if "stdin" in each.inputs]
    contexts = [json.loads(each.inputs["stdin"]).get("context") for each in commands]
    assert contexts.count("c") >= 5
    assert not [each for each in contexts if each == ""]
    assert made.outputs["kubeContext"] == "c"


def on_platform(platform: Deployment, tmp_path: Path) -> Deployment:
    """Return what a run of the stack `sandbox-multipod` registers on this platform."""
    monitor = RecordingMonitor(dict(platform.outputs))
    files = {"datasetFile": str(tmp_path / "input.txt")}
    run_with(monitor, "sandbox-multipod", raw_settings("sandbox-multipod", files))
    return monitor.deployment


def test_run_is_made_in_its_platforms_cluster_alone(tmp_path: Path) -> None:
    """A run on another stack's platform uses the context of that platform, and is refused if the
    context leads to another server by now. Otherwise its objects would be made in another cluster,
    beside others of the same names.
    """
    platform = deploy("sandbox", tmp_path)
    path = tmp_path / "kubeconfig"
    content = path.read_text()
    with_another = yaml.safe_load(content.replace(ADDRESS, OTHER_ADDRESS))
    both = yaml.safe_load(content)
    for section in ("clusters", "contexts"):
        for each in with_another[section]:
            both[section].append({**each, "name": "theirs"})
    both["contexts"][-1]["context"]["cluster"] = "theirs"
    path.write_text(yaml.safe_dump({**both, "current-context": "theirs"}))
    made = on_platform(platform, tmp_path)
    assert made.one("cluster-provider").inputs["context"] == "c"
    path.write_text(content.replace(ADDRESS, OTHER_ADDRESS))
    with pytest.raises(RunError) as refused:
        on_platform(platform, tmp_path)
    assert str(refused.value) == (
        f"platform: 'sandbox' cannot be used: its cluster was at https://{ADDRESS}:6443, and the "
        f"kubeconfig {path} with context c leads to https://{OTHER_ADDRESS}:6443 by now. Nothing "
        "was changed. If it is the same cluster, run `pulumi up --stack sandbox` first, which "
        "makes sure of that; else let that context lead to the former cluster"
    )
    path.unlink()
    with pytest.raises(RunError, match="run `pulumi up --stack sandbox` first") as refused:
        on_platform(platform, tmp_path)
    assert "it cannot be read" in str(refused.value)


def test_stack_without_objects_may_change_its_cluster(
    tmp_path: Path, moved: dict[str, object], asked: Callable[[Cluster], None]
) -> None:
    """A stack without objects in a cluster may lead to another one, as after a first `up` that
    failed before it made something.
    """
    before = deploy("sandbox", tmp_path)
    none = [each for each in before.resources if not each.type.startswith("kubernetes:")]
    asked(Cluster())
    left = Deployment(none, before.component_outputs)
    assert OTHER_ADDRESS in identifier(deploy("sandbox", tmp_path, moved, before=left))


KUBECONFIG = "clusters:\n- cluster:\n    certificate-authority-data: {}\n"


def adopted(deployment: Deployment, authority: str) -> Deployment:
    """Return the deployment with a kubeconfig of this authority, as the host has given it."""
    resources = deepcopy(deployment.resources)
    (provider,) = [each for each in resources if each.name == "cluster-provider"]
    provider.inputs["kubeconfig"] = KUBECONFIG.format(authority)
    return Deployment(resources, deployment.component_outputs)


@pytest.mark.parametrize(("authority", "is_same"), [("QUJD", True), ("REVG", False)])
def test_adopted_k3s_is_known_by_its_authority(
    authority: str, is_same: bool, tmp_path: Path
) -> None:
    """An adopted k3s at another `sshHost` is the same cluster if it has the same authority, and
    another one if not.
    """
    adopt = {**SSH, "k3sExisting": "adopt"}
    before = adopted(deploy("dev", tmp_path, adopt), "QUJD")
    look = K3sObservation("r", "", authority=sha256(f"{authority}\n".encode()).hexdigest())
    with patch.object(stacks, "OBSERVATION", look):
        after = deploy("dev", tmp_path, {**adopt, "sshHost": "other"}, before=before)
    assert identifier(before) == "disttrain-dev-k3s-node"
    assert (identifier(after) == identifier(before)) is is_same


def test_adopted_k3s_that_is_silent_is_refused(tmp_path: Path) -> None:
    """If an adopted k3s at another `sshHost` does not answer, `up` is refused."""
    adopt = {**SSH, "k3sExisting": "adopt"}
    before = adopted(deploy("dev", tmp_path, adopt), "QUJD")
    silent = patch.object(
        stacks, "OBSERVATION", K3sObservation("r", "", problem="no answer in 10 s")
    )
    with silent, pytest.raises(RunError, match="sshHost: 'other' cannot be used") as refused:
        deploy("dev", tmp_path, {**adopt, "sshHost": "other"}, before=before)
    assert "(no answer in 10 s)" in str(refused.value)


def test_own_k3s_moves_without_question(tmp_path: Path) -> None:
    """A k3s of this stack may move to another host without being asked. Its identifier says only
    whether it is behind SSH, and what is in it goes with it.
    """
    before = deploy("dev", tmp_path, SSH)
    after = deploy("dev", tmp_path, {**SSH, "sshHost": "other"}, before=before)
    assert identifier(after) == identifier(before)
    assert "other" not in identifier(deploy("dev", tmp_path, before=before))
    (component,) = before.of_type(COMPONENT)
    assert before.component_outputs[component.urn][LEADS_TO] == identifier(before)


def renamed(stack: str, before: Deployment, settings: Mapping[str, str]) -> Deployment:
    """Return what the program registers after `pulumi stack rename` of the stack."""
    monitor = RecordingMonitor(None, state_of(before))
    run_with(monitor, stack, settings)
    return monitor.deployment


@pytest.mark.parametrize("way", [{}, SSH, {**SSH, "k3sExisting": "adopt"}])
def test_renamed_stack_keeps_its_k3s(way: dict[str, object], tmp_path: Path) -> None:
    """After `pulumi stack rename` the k3s is the same cluster, also at a later `up`. Otherwise the
    engine would make each object again and then delete it by its name, such as the namespace with
    the training in it.
    """
    before = deploy("dev", tmp_path, way)
    settings = raw_settings("dev", way)
    once = renamed("production", before, settings)
    again = renamed("production", once, settings)
    assert identifier(before) == identifier(once) == identifier(again)


def test_renamed_stack_asks_no_existing_cluster(
    tmp_path: Path, asked: Callable[[Cluster], None]
) -> None:
    """After `pulumi stack rename` an existing cluster at the same address need not answer."""
    asked(Cluster(problem=UnreachableError("it must not be asked")))
    before = deploy("sandbox", tmp_path)
    settings = raw_settings("sandbox", files_of_this_machine("sandbox", tmp_path))
    assert identifier(renamed("production", before, settings)) == identifier(before)


def test_renamed_stack_may_move_to_ssh(tmp_path: Path) -> None:
    """Another value of `host` is another cluster for a renamed stack, too."""
    before = deploy("dev", tmp_path)
    after = renamed("production", before, raw_settings("dev", SSH))
    assert identifier(after) == "disttrain-production-k3s-ssh"


def test_name_of_context_is_no_k3s(tmp_path: Path) -> None:
    """A k3s that takes the place of an existing cluster is another cluster, whatever the context in
    the kubeconfig was called.
    """
    files = files_of_this_machine("sandbox", tmp_path)
    path = Path(str(files["kubeconfig"]))
    path.write_text(path.read_text().replace("name: c\n", "name: k3s-localhost\n"))
    content = yaml.safe_load(path.read_text())
    content["contexts"][0]["context"]["cluster"] = "k3s-localhost"
    path.write_text(yaml.safe_dump(content))
    monitor = RecordingMonitor()
    run_with(monitor, "dev", raw_settings("sandbox", {**files, "kubeContext": "k3s-localhost"}))
    assert identifier(monitor.deployment).endswith(":6443-k3s-localhost")
    after = deploy("dev", tmp_path, before=monitor.deployment)
    assert identifier(after) == "disttrain-dev-k3s-localhost"
