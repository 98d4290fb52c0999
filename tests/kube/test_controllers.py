"""The removal of a controller that a platform has installed, on a real API server.

The API server has JobSet's own definition, but no controller runs. So all tests show a controller
that has ended: its webhooks do not answer, and nobody removes its finalizers.
"""

import uuid
from dataclasses import asdict, replace

import pytest

from infra.controllers import CONTROLLERS
from infra.kube.api_server.api import Api
from infra.kube.controllers import (
    apply_definitions,
    claim_controller,
    controller_remains,
    open_controller,
)
from infra.kube.controllers.controllers_findings import controllers_findings
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.names import OWNER_LABEL, STACK_LABEL
from infra.kube.objects import Json, part
from infra.kube.runs import destroy_guard
from infra.platform.controllers import controller_field, controller_for_tasks
from tests.kube.installed import DEFINITION, KIND, PATH, WEBHOOK, Installed, make_deployment
from tests.kube.lab import wait_for

FINALIZER = "jobset.x-k8s.io/held"


def test_controller_is_claimed_by_the_stack_that_made_its_namespace(installed: Installed) -> None:
    """Only the stack that has installed a controller may claim it; others are told whose it is."""
    claim_controller.create(installed.job(), installed.api)
    with pytest.raises(
        TaskError, match=r"JobSet is in the cluster already .*stack dev has installed"
    ):
        claim_controller.create(installed.job("somebody"), installed.api)
    wanted = [controller_for_tasks(KIND)]
    assert controllers_findings(installed.api, wanted, "dev").problems == []
    (problem,) = controllers_findings(installed.api, wanted, "other").problems
    assert "stack dev has installed it, so it is left as it is" in problem
    absent = replace(
        controller_for_tasks(KIND), namespace="no-such-system", definitions=("no.example.org",)
    )
    assert controllers_findings(installed.api, [absent], "dev").problems == []


def test_what_others_have_of_its_kinds_keeps_a_controller(installed: Installed) -> None:
    """A controller is not removed while others have objects of its kinds. The message names them.

    An object that is a part of an object of this stack counts as this stack's. An object whose
    owner is gone counts as nobody's.
    """
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
    """`up` makes a controller's definitions with labels of the stack, and changes them later.

    The task `controller-remains` deletes them when the controller is removed.
    """
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


def make_role_of_release(api: Api, collection: str, release: str, namespace: str) -> str:
    """Make a ClusterRole with the marks of Helm for a release's objects, and return its path."""
    name = f"of-release-{uuid.uuid4().hex[:8]}"
    notes = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    about = {"name": name, "labels": labels, "annotations": notes}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    api.create(collection, {**kind, "metadata": about})
    return f"{collection}/{name}"


def test_controller_without_its_namespace_stays_ours(installed: Installed) -> None:
    """A controller whose namespace somebody has deleted still belongs to the stack that installed
    it.

    Its definitions carry the owner too. So this stack can install the controller again, and can
    remove what is left of it, and other stacks cannot.
    """
    api, job, wanted = installed.api, installed.job(), [controller_for_tasks(KIND)]
    open_controller.label_definitions(api, wanted[0], job)
    api.delete(wanted[0].path, {})
    wait_for("the end of the namespace", lambda: api.get(wanted[0].path) is None)
    found = controllers_findings(api, wanted, "dev")
    assert found.problems == []
    assert "Run `pulumi refresh`, and then `pulumi up`" in found.notes[0]
    claim_controller.create(job, api)
    others = installed.job("somebody")
    with pytest.raises(TaskError, match="JobSet is in the cluster already"):
        claim_controller.create(others, api)
    (problem,) = controllers_findings(api, wanted, "other").problems
    assert "stack dev has installed it" in problem
    installed.cut_off()
    for task in (open_controller, controller_remains):
        task.delete(others, api)
    assert api.get(PATH)
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    of_release = make_role_of_release(api, roles, KIND.name, KIND.namespace)
    of_others = make_role_of_release(api, roles, KIND.name, "elsewhere")
    try:
        for task in (destroy_guard, open_controller, controller_remains):
            task.delete(job, api)
        assert api.get(PATH) is None
        assert api.get(WEBHOOK) is None
        assert api.get(of_release) is None
        assert api.get(of_others)
    finally:
        api.delete(of_others, {})


def test_parts_of_others_in_the_cluster_are_refused_by_name(installed: Installed) -> None:
    """A controller is not installed where a cluster-wide part of its name exists and is somebody
    else's.

    Otherwise Pulumi's engine would take such a part over without a message. A part with the owner
    of this stack is accepted, because an earlier `up` may have ended after making it.
    """
    api, roles = installed.api, "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    name = f"controller-part-{uuid.uuid4().hex[:8]}"
    part_of_it = ("rbac.authorization.k8s.io/v1", "ClusterRole", name)
    fields = {"controller": {**controller_field(KIND), "parts": [part_of_it]}}
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
    """An object that a controller makes by itself does not count as used by others.

    Volcano's queue `default` is such an object. It goes with the definition of its kind, not
    before.
    """
    path = installed.make("main")
    made = {**controller_field(KIND), "made_by_itself": ["JobSet main"]}
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
    """The preview and `up` refuse a controller when another controller that it needs is missing.

    A needed controller that the same stack installs before does not count as missing.
    """
    trainer = controller_for_tasks(CONTROLLERS["trainer"])
    assert controllers_findings(installed.api, [trainer], "dev").problems == []
    lost = replace(trainer, needs=("jobset", "nothings.jobset.x-k8s.io"))
    (problem,) = controllers_findings(installed.api, [lost], "dev").problems
    assert "needs jobset, and there is no CustomResourceDefinition nothings.jobset" in problem
    assert (
        controllers_findings(installed.api, [controller_for_tasks(KIND), lost], "dev").problems
        == []
    )
    job = replace(installed.job(), fields={"controller": asdict(lost)})
    with pytest.raises(TaskError, match="Add jobset to controllers"):
        claim_controller.create(job, installed.api)


def test_what_the_chart_has_made_is_of_the_controller(installed: Installed) -> None:
    """An object of the controller's Helm release belongs to the controller, and is deleted with it.

    Prometheus, which the chart of its operator makes, is such an object. An object of a release in
    another namespace is somebody else's, and keeps the controller.
    """
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
    """`up` waits until the objects for which a controller makes pods are available.

    The controller's own Deployment is available long before these pods.
    """
    api = installed.api
    given = {**controller_field(KIND), "awaited": ["JobSet"], "namespace": installed.namespace}
    job = replace(
        installed.job(), fields={"controller": given, "limit_seconds": 1, "probe": config_map()}
    )
    path = make_deployment(api, installed.namespace)
    wait_for("its pod", lambda: part(api.get(path) or {}, "status").get("availableReplicas"))
    path = installed.make("main", installed.owner)
    with pytest.raises(TaskError, match="JobSet main is not available"):
        open_controller.create(job, api)
    now = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Runs", "message": ""}
    condition = {"type": "Available", "status": "True", **now}
    api.patch(f"{path}/status", {"status": {"conditions": [condition]}})
    open_controller.create(job, api)


def config_map() -> Json:
    """Return an object that the API server accepts at once."""
    about = {"name": "tried", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about}


def test_controller_that_was_killed_goes_with_all_that_waits_for_it(installed: Installed) -> None:
    """A controller that does not run any more is removed with its webhooks and objects.

    Its webhooks refuse every change then, and nobody removes its finalizers, so the tasks do both.
    """
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
    """The removal of a controller leaves finalizers of other programs, and fails if they stay."""
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
