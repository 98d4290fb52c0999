"""A controller that a platform has installed, when it goes: on a real API server, with JobSet's own
definition.

No controller runs here. So everything is asked of a controller that has ended, whose webhooks lead
nowhere and whose finalizers nobody takes off.
"""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest
import yaml

from infra.controllers import CONTROLLERS
from infra.kube import (
    apply_definitions,
    claim_controller,
    controller_remains,
    destroy_guard,
    open_controller,
)
from infra.kube.api import Api
from infra.kube.controllers import DEFINITIONS, WEBHOOKS
from infra.kube.controllers_look import controllers_findings
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.job import Job
from infra.kube.names import OWNER_LABEL, STACK_LABEL
from infra.kube.objects import Json, part
from infra.platform.controllers import as_job, known
from sandbox.toolchain import JOBSET_CHART, tool_folder
from tests.kube.lab import PROBE_IMAGE, Lab, wait_for

KIND = CONTROLLERS["jobset"]
FINALIZER = "jobset.x-k8s.io/held"
(DEFINITION,) = KIND.definitions
PATH = f"{DEFINITIONS}/{DEFINITION}"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
WEBHOOK = f"{WEBHOOKS[1]}/jobset-of-tests"


@dataclass
class Installed:
    """What a platform's JobSet has left in the cluster, and whose it is."""

    lab: Lab
    owner: str
    namespace: str  # of the platform

    def __post_init__(self) -> None:
        self.api = Api(self.lab.access())

    def job(self, owner: str = "", **fields: Any) -> Job:
        given = {"controller": as_job(KIND), "controllers": [as_job(KIND)], **fields}
        return Job(self.lab.access(), self.namespace, owner or self.owner, "dev", given)

    def make(self, name: str, owner: str = "", **about: Any) -> str:
        """A JobSet; returns its path."""
        labels = {OWNER_LABEL: owner} if owner else {}
        path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{self.namespace}/jobsets"
        body = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name, "labels": labels, **about},
            "spec": {"replicatedJobs": []},
        }
        self.api.create(path, body)
        return f"{path}/{name}"

    def cut_off(self) -> None:
        """A webhook to a Service behind which nothing answers."""
        to = {"service": {"namespace": KIND.namespace, "name": "nobody", "path": "/"}}
        rule = {
            "apiGroups": ["jobset.x-k8s.io"],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["jobsets"],
        }
        hook = {
            "name": "held.jobset.x-k8s.io",
            "clientConfig": to,
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
        }
        collection, _, name = WEBHOOK.rpartition("/")
        kind = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
        }
        self.api.create(collection, {**kind, "metadata": {"name": name}, "webhooks": [hook]})


def _jobsets(lab: Lab) -> list[Json] | None:
    """None where the API server does not know the kind yet, or no longer."""
    try:
        return lab.api.list(JOBSETS)
    except ApiError:
        return None


def _is_gone(lab: Lab, path: str) -> bool:
    """Frees every JobSet, which would otherwise hold its namespace and its definition."""
    for item in _jobsets(lab) or []:
        about = item["metadata"]
        held = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{about['namespace']}/jobsets"
        with suppress(ApiError):  # its kind may go in the meantime, which is as good
            lab.api.patch(f"{held}/{about['name']}", {"metadata": {"finalizers": None}})
    return lab.api.get(path) is None


@pytest.fixture
def installed(lab: Lab) -> Iterator[Installed]:
    """JobSet's definition, and its namespace with the label of a stack."""
    made = Installed(lab, str(uuid.uuid4()), lab.namespace())
    definition = yaml.safe_load(
        (tool_folder(JOBSET_CHART) / "jobset" / "crds" / "jobset.x-k8s.io_jobsets.yaml").read_text()
    )
    labels = {OWNER_LABEL: made.owner, STACK_LABEL: "dev"}
    place = {"name": KIND.namespace, "labels": labels}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": place}
    try:
        lab.api.create("/api/v1/namespaces", body)
        lab.api.create(DEFINITIONS, definition)
        wait_for("JobSet's kind", lambda: _jobsets(lab) is not None)
        yield made
    finally:
        # The API server forgets a kind some time after its definition has gone.
        paths = (WEBHOOK, PATH, f"/api/v1/namespaces/{KIND.namespace}")
        for path in paths:
            lab.api.delete(path, {})
        for path in paths:
            wait_for(f"the end of {path}", lambda path=path: _is_gone(lab, path))


def test_controller_is_claimed_by_the_stack_that_made_its_namespace(installed: Installed) -> None:
    claim_controller.create(installed.job(), installed.api)
    with pytest.raises(
        TaskError, match=r"JobSet is in the cluster already .*stack dev has installed"
    ):
        claim_controller.create(installed.job("somebody"), installed.api)
    wanted = [known(KIND)]
    assert controllers_findings(installed.api, wanted, "dev").problems == []
    (problem,) = controllers_findings(installed.api, wanted, "other").problems
    assert "stack dev has installed it, so it is left as it is" in problem
    absent = replace(known(KIND), namespace="no-such-system", definitions=("no.example.org",))
    assert controllers_findings(installed.api, [absent], "dev").problems == []


def test_what_others_have_of_its_kinds_keeps_a_controller(installed: Installed) -> None:
    """What is a part of something of ours is ours; what has lost its owner is nobody's."""
    lab, namespace = installed.lab, installed.namespace
    about = {"name": "of-a-map", "labels": {OWNER_LABEL: installed.owner}}
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    ours = lab.api.create(maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "of-a-map"}
    uid = ours["metadata"]["uid"]
    installed.make("ours", installed.owner)
    installed.make("part-of-ours", ownerReferences=[{**reference, "uid": uid}])
    gone = {**reference, "name": "gone", "uid": str(uuid.uuid4())}
    installed.make("of-nobody", ownerReferences=[gone], finalizers=[FINALIZER])
    destroy_guard.delete(installed.job(), installed.api)
    theirs = installed.make("theirs", "somebody-else")
    for task in (destroy_guard, open_controller, controller_remains):
        with pytest.raises(TaskError, match=rf"others use JobSet \(JobSet {namespace}/theirs\)"):
            task.delete(installed.job(), installed.api)
    assert installed.api.get(theirs)
    assert installed.api.get(theirs.replace("theirs", "ours"))
    assert installed.api.get(PATH)
    installed.make("by-hand")
    with pytest.raises(TaskError, match=f"JobSet {namespace}/by-hand, JobSet {namespace}/theirs"):
        open_controller.delete(installed.job(), installed.api)


def test_definitions_are_made_with_their_owner_and_changed_by_the_next_version(
    installed: Installed,
) -> None:
    """Which may lack what the one before had; they are taken away by the task that was before."""
    api = installed.api
    definition = api.get(PATH) or {}
    given = {key: definition[key] for key in ("apiVersion", "kind", "spec")}
    given["metadata"] = {"name": DEFINITION, "labels": {"theirs": "kept"}}
    about = given["metadata"]
    for labels in ({"theirs": "kept"}, {"theirs": "changed"}):
        about["labels"] = labels
        fields = {"definitions": apply_definitions.packed([given])}
        apply_definitions.create(replace(installed.job(), fields=fields), api)
        made = (api.get(PATH) or {})["metadata"]["labels"]
        assert made == {**labels, OWNER_LABEL: installed.owner, STACK_LABEL: "dev"}
    controller_remains.delete(installed.job(), api)
    assert api.get(PATH) is None


def test_parts_of_others_in_the_cluster_are_refused_by_name(installed: Installed) -> None:
    """The engine would take them over without a word; those of ours are of an `up` that ended."""
    api, roles = installed.api, "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    name = f"controller-part-{uuid.uuid4().hex[:8]}"
    part_of_it = ("rbac.authorization.k8s.io/v1", "ClusterRole", name)
    fields = {"controller": {**as_job(KIND), "parts": [part_of_it]}}
    job = replace(installed.job(), fields=fields)
    claim_controller.create(job, api)
    body = {"apiVersion": part_of_it[0], "kind": "ClusterRole", "metadata": {"name": name}}
    api.create(roles, body)
    try:
        with pytest.raises(TaskError, match=rf"parts of the names ClusterRole {name}, which are"):
            claim_controller.create(job, api)
        labels = {"labels": {OWNER_LABEL: installed.owner}}
        api.patch(f"{roles}/{name}", {"metadata": labels})
        claim_controller.create(job, api)
    finally:
        api.delete(f"{roles}/{name}", {})


def test_what_a_controller_makes_by_itself_is_used_by_nobody(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Volcano's queue `default`, which its webhook keeps: it goes with the definition."""
    path = installed.make("main")
    made = {**as_job(KIND), "made_by_itself": ["JobSet main"]}
    job = replace(installed.job(), fields={"controller": made, "controllers": [made]})
    destroy_guard.delete(job, installed.api)
    with monkeypatch.context() as alive:
        alive.setattr(open_controller, "does_not_answer", lambda *_: False)  # pyright: ignore[reportUnknownLambdaType]
        open_controller.delete(job, installed.api)
    assert installed.api.get(path)
    theirs = installed.make("theirs")
    with pytest.raises(TaskError, match=rf"\(JobSet {installed.namespace}/theirs\)"):
        open_controller.delete(job, installed.api)
    installed.api.delete(theirs, {})
    controller_remains.delete(job, installed.api)
    assert installed.api.get(PATH) is None


def test_controller_without_the_one_that_it_needs_is_refused(installed: Installed) -> None:
    """In the preview and in `up`; one that the same stack installs before it is not missed."""
    trainer = known(CONTROLLERS["trainer"])
    assert controllers_findings(installed.api, [trainer], "dev").problems == []
    lost = replace(trainer, needs=("jobset", "nothings.jobset.x-k8s.io"))
    (problem,) = controllers_findings(installed.api, [lost], "dev").problems
    assert "needs jobset, and there is no CustomResourceDefinition nothings.jobset" in problem
    assert controllers_findings(installed.api, [known(KIND), lost], "dev").problems == []
    job = replace(installed.job(), fields={"controller": asdict(lost)})
    with pytest.raises(TaskError, match="Add jobset to controllers"):
        claim_controller.create(job, installed.api)


def test_what_the_chart_has_made_is_of_the_controller(installed: Installed) -> None:
    """As Prometheus is, which its own operator's chart makes; another release is somebody's."""
    release = {
        "meta.helm.sh/release-name": KIND.name,
        "meta.helm.sh/release-namespace": KIND.namespace,
    }
    path = installed.make("of-the-chart", annotations=release)
    destroy_guard.delete(installed.job(), installed.api)
    open_controller.delete(installed.job(), installed.api)
    assert installed.api.get(path) is None
    installed.make("theirs", annotations={**release, "meta.helm.sh/release-namespace": "theirs"})
    with pytest.raises(
        TaskError, match=rf"others use JobSet \(JobSet {installed.namespace}/theirs"
    ):
        open_controller.delete(installed.job(), installed.api)


def test_what_a_controller_has_to_run_is_waited_for(installed: Installed) -> None:
    """Its Deployment is available long before the pods that it makes itself."""
    api = installed.api
    given = {**as_job(KIND), "awaited": ["JobSet"], "namespace": installed.namespace}
    job = replace(
        installed.job(), fields={"controller": given, "limit_seconds": 1, "probe": config_map()}
    )
    make_deployment(api, installed.namespace)
    path = f"/apis/apps/v1/namespaces/{installed.namespace}/deployments/tests"
    wait_for("its pod", lambda: part(api.get(path) or {}, "status").get("availableReplicas"))
    path = installed.make("main", installed.owner)
    with pytest.raises(TaskError, match="JobSet main is not available"):
        open_controller.create(job, api)
    now = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Runs", "message": ""}
    condition = {"type": "Available", "status": "True", **now}
    api.patch(f"{path}/status", {"status": {"conditions": [condition]}})
    open_controller.create(job, api)


def make_deployment(api: Api, namespace: str) -> None:
    """One with a pod that runs and does nothing."""
    labels = {"app": "tests"}
    container = {
        "name": "main",
        "image": PROBE_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["serve", ":8080"],
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": spec}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "tests"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    api.create(path, body)


def config_map() -> Json:
    """What the API server takes at once."""
    about = {"name": "tried", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about}


def test_controller_that_was_killed_goes_with_all_that_waits_for_it(installed: Installed) -> None:
    """Goal E10: nobody takes off its finalizers, and its webhooks refuse every change."""
    path = installed.make("held", installed.owner, finalizers=[FINALIZER])
    installed.cut_off()
    wait_for("the webhook to refuse", lambda: _is_refused(installed, path))
    installed.api.patience_seconds = 60
    destroy_guard.delete(installed.job(), installed.api)
    assert installed.api.get(WEBHOOK) is None
    open_controller.delete(installed.job(), installed.api)
    assert installed.api.get(path) is None
    controller_remains.delete(installed.job(), installed.api)
    assert installed.api.get(PATH) is None


def _is_refused(installed: Installed, path: str) -> bool:
    installed.api.patience_seconds = 0
    try:
        installed.api.patch(path, {"metadata": {"annotations": {"asked": str(uuid.uuid4())}}})
    except (ApiError, UnreachableError):
        return True
    return False


def test_object_without_others_finalizers_is_not_freed(installed: Installed) -> None:
    """A finalizer of another program is that program's to take off."""
    path = installed.make("held", installed.owner, finalizers=[FINALIZER, "example.org/theirs"])
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(open_controller, "END_SECONDS", 3)
        with pytest.raises(TaskError, match="to be gone; still there: JobSet held"):
            open_controller.delete(installed.job(), installed.api)
    left: Json = installed.api.get(path) or {}
    assert left["metadata"]["finalizers"] == ["example.org/theirs"]
    assert installed.api.get(PATH)


def test_controller_of_another_stack_is_left_as_it_is(installed: Installed) -> None:
    path = installed.make("theirs", installed.owner)
    installed.cut_off()
    for task in (destroy_guard, open_controller, controller_remains):
        task.delete(installed.job("somebody-else"), installed.api)
    assert installed.api.get(path)
    assert installed.api.get(WEBHOOK)
    assert installed.api.get(PATH)
