"""What `disttrain status` shows of a real cluster, with all rights and with a viewer's."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pulumi
import pytest

from cli.status.clocks import NOISE_SECONDS, ahead_by_age, ahead_when_told, clocks_ahead
from cli.status.silence import LEASES
from cli.status.snapshot import take_snapshot
from cli.status.storage import Claim
from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.runs.steer import find_record, note_saved_step, resume, stop
from infra.platform.viewers import ViewersArgs, viewer_role
from tests.kube.accounts import user_of
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.python_image import PYTHON_IMAGE
from tests.kube.volume import configure, run_with_claim

VALID_SECONDS = 20  # half of the usual time, so that the test ends sooner
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def role_for_viewers(namespace: str) -> dict[str, Any]:
    """Return the platform's role for viewers, made without the Pulumi program around it."""
    return viewer_role(ViewersArgs(namespace, "dev", cast(pulumi.Output[str], "me")))


def test_a_viewer_of_one_namespace_sees_its_runs_and_what_is_not_shown(
    lab: Lab, tmp_path: Path
) -> None:
    namespace, elsewhere = lab.namespace(), lab.namespace()
    run = Run(lab, namespace, "dev")
    run.up()
    assert Run(lab, elsewhere, "theirs").hand_over()[0] == 0
    found = {(r.namespace, r.stack): r.state for r in take_snapshot(lab.api, namespace).runs}
    assert found[namespace, "dev"] == "starting"  # its pods never print a step
    assert found[elsewhere, "theirs"] == "starting"  # its `up` is under way
    assert take_snapshot(lab.api, namespace).platform.nodes == 1
    somebody = user_of(lab, namespace, tmp_path, "view")
    seen = take_snapshot(somebody, namespace)
    assert [(r.stack, r.state) for r in seen.runs] == [("dev", "starting")]
    assert f"runs in other namespaces than {namespace}" in seen.unseen
    assert seen.platform.nodes is None
    assert "forbidden" in seen.platform.unseen


def test_viewer_of_one_namespace_finds_a_run_by_its_name(lab: Lab, tmp_path: Path) -> None:
    """A user with the role `view` can ask for a run by its own name or by its stack.

    The run's own name is in its configuration, which the role may read.
    """
    namespace = lab.namespace()
    run = Run(lab, namespace, "dev")
    assert run.hand_over()[0] == 0
    configure(lab, run, "wide")
    somebody = user_of(lab, namespace, tmp_path, "view")
    for wanted in ("wide", "dev"):
        assert [r.stack for r in take_snapshot(somebody, namespace, wanted=wanted).runs] == ["dev"]
    missing = take_snapshot(somebody, namespace, wanted="narrow").missing
    assert "The runs there: wide (stack dev); not seen: runs in other namespaces" in missing


def test_viewers_role_of_the_platform_shows_all_and_changes_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    namespace = lab.namespace()
    run = Run(lab, namespace, "dev")
    run.up()
    role = role_for_viewers(namespace)
    name = role["metadata"]["name"]
    lab.api.create(ROLES, {**role, "metadata": {"name": name}})
    try:
        somebody = user_of(lab, namespace, tmp_path, name, "clusterrolebinding")
        seen, all_of_it = take_snapshot(somebody, namespace), take_snapshot(lab.api, namespace)
        assert (seen.platform, seen.unseen) == (all_of_it.platform, "")
        assert [r.stack for r in seen.runs] == [r.stack for r in all_of_it.runs]
        for path in (run.path, f"/api/v1/namespaces/{namespace}/secrets"):
            with pytest.raises(ApiError, match="forbidden"):
                somebody.patch(path, {}) if path == run.path else somebody.list(path)
    finally:
        lab.kubectl("delete", "clusterrolebinding", f"viewer-{namespace}")
        lab.kubectl("delete", "clusterrole", name)


def test_folder_of_the_volume_is_shown_to_whoever_may_read_volumes(
    lab: Lab, tmp_path: Path
) -> None:
    """`status` shows the folder of the volume; without the right to read volumes, the volume's
    name.
    """
    run = run_with_claim(lab)
    name = str(run.more["claim"])
    claim = f"/api/v1/namespaces/{run.namespace}/persistentvolumeclaims/{name}"
    lab.api.patch(claim, {"metadata": {"labels": {names.COMPONENT_LABEL: "storage"}}})
    assert run.hand_over()[0] == 0
    role = role_for_viewers(run.namespace)
    role_name = role["metadata"]["name"]
    lab.api.create(ROLES, {**role, "metadata": {"name": role_name}})
    try:
        viewer = user_of(lab, run.namespace, tmp_path, role_name, "clusterrolebinding")

        def is_seen(source: str) -> bool:
            claims = take_snapshot(viewer, run.namespace).platform.claims
            return Claim(run.namespace, name, "Bound", "1Gi", "", source) in claims

        assert is_seen(f"folder {run.more['folder']}")
        rules = [
            {**rule, "resources": [r for r in rule["resources"] if r != "persistentvolumes"]}
            for rule in role["rules"]
        ]
        lab.api.patch(f"{ROLES}/{role_name}", {"rules": rules})
        wait_for("the volume to be unseen", lambda: is_seen(f"volume {name}"))
    finally:
        lab.kubectl("delete", "clusterrolebinding", f"viewer-{run.namespace}")
        lab.kubectl("delete", "clusterrole", role_name)


class Kubelet:
    """A stand-in of a kubelet: makes a node, and reports by a clock that is a year behind."""

    def __init__(self, lab: Lab) -> None:
        self.api, self.name = lab.api, "made-by-hand"
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}}
        lab.api.create("/api/v1/nodes", node)
        self.path = f"{LEASES}/{self.name}"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": VALID_SECONDS}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        lab.api.create(LEASES, {**lease, "metadata": {"name": self.name}})
        self.renewals = 0

    def renew(self) -> None:
        self.renewals += 1
        time = f"2025-11-23T08:00:00.{self.renewals:06}Z"
        self.api.patch(self.path, {"spec": {"renewTime": time}})

    def end(self) -> None:
        self.api.delete(self.path, {})
        self.api.delete(f"/api/v1/nodes/{self.name}", {})


@pytest.fixture
def kubelet(lab: Lab) -> Iterator[Kubelet]:
    made = Kubelet(lab)
    yield made
    made.end()


def test_node_that_stops_to_report_is_silent_until_it_reports_again(
    lab: Lab, kubelet: Kubelet, tmp_path: Path
) -> None:
    """`status` tells of a node that has stopped to report, by the clock of the API server.

    The wrong clock of the node itself is told, and does not matter. A user who may not read the
    leases is told nothing of silent nodes, and sees all else.
    """
    namespace = lab.namespace()
    role = role_for_viewers(namespace)
    name = role["metadata"]["name"]
    lab.api.create(ROLES, {**role, "metadata": {"name": name}})
    try:
        viewer = user_of(lab, namespace, tmp_path, name, "clusterrolebinding")

        def silent(api: Api) -> Mapping[str, float]:
            return take_snapshot(api, namespace).platform.silent

        def reports() -> bool:
            kubelet.renew()
            return not silent(lab.api)

        wait_for("its report", reports)
        (clock,) = [
            f for f in take_snapshot(viewer, namespace).platform.findings if f.node == kubelet.name
        ]
        assert re.match(r"the clock is \d{8} s behind the API server's; the times here", clock.text)
        wait_for("its silence", lambda: silent(lab.api))
        assert kubelet.name in wait_for("the same for a viewer", lambda: silent(viewer))
        rules = [rule for rule in role["rules"] if "leases" not in rule["resources"]]
        lab.api.patch(f"{ROLES}/{name}", {"rules": rules})
        wait_for("nothing without the right", lambda: not silent(viewer))
        wait_for("its silence for others", lambda: silent(lab.api))
        assert not silent(viewer)
        assert take_snapshot(viewer, namespace).platform.nodes == 2
        wait_for("its next report", reports)
    finally:
        lab.kubectl("delete", "clusterrolebinding", f"viewer-{namespace}")
        lab.kubectl("delete", "clusterrole", name)


def test_kubelet_tells_the_age_of_the_last_line(lab: Lab) -> None:
    """How far a node's clock is ahead is found from the age of a log line, a lease or a condition.

    The node has the API server's clock here, so each of the three finds no difference.
    """
    run = Run(lab, lab.namespace(), "dev")
    program = "import time; print('begun', flush=True); time.sleep(3600)"
    run.make(image=PYTHON_IMAGE, command=["python3", "-c", program], args=[])
    (pod,) = wait_for("its pod", run.pods)
    path = f"/api/v1/namespaces/{run.namespace}/pods/{pod['metadata']['name']}/log"
    asked: list[int] = []

    def ask(seconds: int) -> str:
        asked.append(seconds)
        query = {"tailLines": "1", "timestamps": "true", "sinceSeconds": str(seconds)}
        return lab.api.text(path, query)

    def has_begun() -> bool:
        try:
            return ask(3600).endswith("begun\n")
        except ApiError:  # The container is not there yet.
            return False

    wait_for("its line", has_begun)
    assert ahead_by_age(ask, lab.api.now, 3600) == 0.0
    wait_for("a line of some seconds ago", lambda: not ask(2))
    assert ahead_by_age(ask, lab.api.now, 3600) == 0.0
    assert ahead_by_age(ask, lab.api.now, 1) is None
    assert min(asked) == 1
    found = clocks_ahead(lab.api.list(LEASES))
    assert 0.0 in found.values()

    def ready() -> dict[str, Any]:
        """Return the condition of the pod, once it is true."""
        (pod,) = run.pods()
        told = [each for each in pod["status"]["conditions"] if each["type"] == "Ready"]
        return {"pod": pod, **told[0]} if told and told[0]["status"] == "True" else {}

    pod = wait_for("a ready pod", ready)["pod"]
    assert abs(ahead_when_told(pod)) <= NOISE_SECONDS


def test_fatal_error_of_a_pod_is_over_when_another_has_its_place(lab: Lab) -> None:
    """`status` does not show a run as failed once a controller has started a new pod for a failed
    one.
    """
    namespace = lab.namespace()
    run = Run(lab, namespace, "dev")
    fatal = {
        "name": "trainer",
        "image": PYTHON_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", "raise SystemExit(78)"],
    }
    labels = {names.OWNER_LABEL: run.owner, names.COMPONENT_LABEL: names.TRAINING}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-dev-before", "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [fatal]},
    }
    assert run.hand_over()[0] == 0
    lab.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    wait_for("the end of that pod", lambda: run.pods() and not run.live_pods())
    run.make()

    def states() -> set[str]:
        return {r.state for r in take_snapshot(lab.api, namespace).runs if r.namespace == namespace}

    wait_for("the run to start again", lambda: states() == {"starting"})


def test_reason_of_missing_pods_is_the_controllers_own(lab: Lab) -> None:
    """If a controller cannot make the pods, `status` and `up` show the reason from its event.

    Some controllers write the reason nowhere else.
    """
    run = Run(lab, lab.namespace(), "dev")
    quota = lab.quota(run.namespace, "none", {"pods": "0"})
    assert run.hand_over()[0] == 0
    run.make()

    def told() -> str:
        runs = take_snapshot(lab.api, run.namespace).runs
        (seen,) = [each for each in runs if each.namespace == run.namespace]
        assert seen.state == "waiting"
        return seen.detail

    wait_for("the Job's words", lambda: "FailedCreate" in told())
    assert told().startswith("no pod yet; FailedCreate: ")
    assert "exceeded quota: none" in told()
    task = lab.start("await", "create", run.await_job())
    task.wait_for_words("exceeded quota: none")
    lab.api.delete(quota, {})
    assert task.end()[0] == 0  # The Job's controller tries again, and then the run trains.


def test_what_a_stopped_run_has_saved_is_known_until_it_is_stopped_again(lab: Lab) -> None:
    """`status` shows the step that a stopped run has saved, until the run is stopped the next time.

    A later stop of which nobody could read the log must not show the step of the stop before.
    """
    run = Run(lab, lab.namespace(), "dev")
    run.up()

    def told() -> tuple[str, str]:
        runs = take_snapshot(lab.api, run.namespace).runs
        (seen,) = [each for each in runs if each.namespace == run.namespace]
        return seen.state, seen.detail

    record = find_record(lab.api, run.namespace, run.owner)
    assert stop(lab.api, record) == ""
    note_saved_step(lab.api, record, 120)
    goes_on = "./disttrain resume brings it back"
    assert told() == ("stopped", f"it has saved step 120; {goes_on}")
    assert stop(lab.api, record) == "Job train-dev is stopped already"
    assert told() == ("stopped", f"it has saved step 120; {goes_on}")
    assert resume(lab.api, record, "refuse", 300) == ""
    again = find_record(lab.api, run.namespace, run.owner)
    assert stop(lab.api, again) == ""
    assert told() == ("stopped", goes_on)
