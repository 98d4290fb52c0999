"""The hand-over on a real cluster: which run starts, which one saves and ends, which is refused."""

import signal
from pathlib import Path

import pytest

from infra.kube import names
from infra.kube.record import record_path
from infra.kube.runs.lock import COLLECTION, held
from tests.kube.accounts import user_of, wait_until_granted
from tests.kube.lab import Json, Lab, Run, wait_for


def pod_path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def hold(lab: Lab, pod: Json) -> None:
    """Add a finalizer to a pod, so that a hand-over that deletes its Job waits with the lock held.

    A hand-over that only suspends the Job would not wait: such a pod counts as ended as soon as its
    containers have ended.
    """
    finalizers = [*(pod["metadata"].get("finalizers") or []), "example.org/never"]
    assert lab.api.patch(pod_path(pod), {"metadata": {"finalizers": finalizers}})


def let_go(lab: Lab, pod: Json) -> None:
    lab.api.patch(pod_path(pod), {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
def test_replaced_run_is_suspended_and_its_next_up_resumes_it(lab: Lab, kind: str) -> None:
    namespace = lab.namespace()
    first, second = Run(lab, namespace, "dev", kind), Run(lab, namespace, "multipod", kind)
    first.up()
    status, output = second.hand_over()
    assert status == 0, output
    assert f"{kind} train-dev of stack dev, which trains is asked to save" in output
    assert first.is_suspended()
    assert first.live_pods() == []  # They have ended before the next run may begin.
    second.make()
    status, output = first.hand_over(request="again")
    assert status == 0, output
    assert f"{kind} train-dev was suspended and is resumed" in output
    assert not first.is_suspended()
    assert second.is_suspended()


def test_run_in_the_former_namespace_saves_first(lab: Lab) -> None:
    """When a stack's namespace changes, its run in the former namespace saves and ends first.

    Otherwise the old run would hold the GPUs of the only machine while the new one waits for them.
    Runs of other stacks go on.
    """
    former = Run(lab, lab.namespace(), "dev", gpus=2, gpus_total=8)
    former.up()
    stranger = Run(lab, former.namespace, "other", gpus=6, gpus_total=8)
    stranger.up()
    moved = Run(lab, lab.namespace(), "dev")
    moved.owner = former.owner
    status, output = moved.hand_over()
    assert status == 0, output
    assert f"Job train-dev of this stack in namespace {former.namespace} is asked to" in output
    assert former.is_suspended()
    assert former.live_pods() == []
    assert not stranger.is_suspended()
    assert lab.api.get(record_path(former.namespace, former.owner)) is None
    status, output = moved.hand_over(request="again")
    assert (status, "is asked to" in output) == (0, False)


def test_user_of_two_namespaces_ends_the_run_too(lab: Lab, tmp_path: Path) -> None:
    """A user who may not list the runs of all namespaces can still move a stack's run.

    Its former namespace is found in the list from the stack's outputs. A namespace in which these
    credentials may do nothing is named in the output.
    """
    former = Run(lab, lab.namespace(), "dev")
    former.up()
    moved, closed = Run(lab, lab.namespace(), "dev"), lab.namespace()
    moved.owner = former.owner
    somebody = user_of(lab, moved.namespace, tmp_path, "cluster-admin")
    user = f"--serviceaccount={moved.namespace}:viewer"
    role = ("--clusterrole=cluster-admin", user, "-n", former.namespace)
    lab.kubectl("create", "rolebinding", "viewer", *role)
    wait_until_granted(somebody, former.namespace)
    job = moved.job() | {"kubeconfig_path": somebody.access.kubeconfig_path}
    known = {"former_namespaces": [closed, former.namespace]}
    status, output = lab.run("hand-over", "create", job | known)
    assert status == 0, output
    assert f"the run of this stack was in namespace {closed}, and these credentials may" in output
    assert f"in namespace {former.namespace} is asked to save and ends" in output
    assert former.is_suspended()
    assert former.live_pods() == []
    assert lab.api.get(record_path(former.namespace, former.owner)) is None


def test_workload_of_the_name_that_goes_is_waited_for(lab: Lab) -> None:
    """`up` waits for a workload of the run's name that is just being deleted.

    `destroy` and the next `up` use different owners. Otherwise `up` would say that the workload
    belongs to another stack.
    """
    namespace = lab.namespace()
    before, again = Run(lab, namespace, "dev"), Run(lab, namespace, "dev")
    before.make()
    lab.api.patch(before.path, {"metadata": {"finalizers": ["example.org/never"]}})
    lab.api.delete(before.path, {"propagationPolicy": "Background"})
    task = lab.start("hand-over", "create", again.job())
    task.wait_for_words("Job train-dev, which has the name of this run and is being deleted, to be")
    lab.api.patch(before.path, {"metadata": {"finalizers": None}})
    status, output = task.end()
    assert status == 0, output
    assert "may start in namespace" in output


def test_refuse_names_the_run_and_the_ways_out_and_changes_nothing(lab: Lab) -> None:
    namespace = lab.namespace()
    first, second = Run(lab, namespace, "dev"), Run(lab, namespace, "other")
    before = first.up()
    status, output = second.hand_over(when_busy="refuse")
    assert status == 1
    for words in ("Job train-dev of stack dev", "destroy --stack dev", "whenBusy wait"):
        assert words in output
    after = first.get()
    assert after
    assert after["spec"] == before["spec"]
    assert lab.api.get(record_path(namespace, second.owner)) is None


def test_wait_lasts_until_the_other_run_is_suspended(lab: Lab) -> None:
    namespace = lab.namespace()
    first, second = Run(lab, namespace, "dev"), Run(lab, namespace, "other")
    first.up()
    task = lab.start("hand-over", "create", second.job(when_busy="wait"))
    task.wait_for_words("waiting for the end of Job train-dev of stack dev")
    assert not first.is_suspended()
    lab.api.patch(first.path, {"spec": {"suspend": True}})
    status, output = task.end()
    assert status == 0, output


def test_wait_is_over_when_any_run_has_left_enough_room(lab: Lab) -> None:
    """With `whenBusy: wait`, `up` starts as soon as any of the other runs has left enough GPUs.

    Otherwise it would wait for the first run alone, while the GPUs of another one stand idle.
    """
    namespace = lab.namespace()
    first = Run(lab, namespace, "dev", gpus=4, gpus_total=8)
    second = Run(lab, namespace, "other", gpus=4, gpus_total=8)
    first.up()
    second.up()
    third = Run(lab, namespace, "third", gpus=4, gpus_total=8)
    task = lab.start("hand-over", "create", third.job(when_busy="wait"))
    task.wait_for_words("waiting for room beside Job train-")
    lab.api.patch(second.path, {"spec": {"suspend": True}})
    status, output = task.end()
    assert status == 0, output
    assert not first.is_suspended()


def test_wait_has_a_limit(lab: Lab) -> None:
    namespace = lab.namespace()
    Run(lab, namespace, "dev").up()
    status, output = Run(lab, namespace, "other").hand_over(
        when_busy="wait", wait_timeout_seconds=1
    )
    assert status == 1
    assert "waited 1 s (whenBusyTimeoutSeconds)" in output or "waited 0 s" in output


def test_runs_that_fit_beside_each_other_are_left_alone(lab: Lab) -> None:
    namespace = lab.namespace()
    first = Run(lab, namespace, "dev", gpus=2, gpus_total=8)
    first.up()
    Run(lab, namespace, "other", gpus=6, gpus_total=8).up()
    assert not first.is_suspended()
    status, output = Run(lab, namespace, "third", gpus=7, gpus_total=8).hand_over()
    assert status == 0, output
    assert first.is_suspended()


def test_workload_of_another_owner_is_refused_and_kept(lab: Lab) -> None:
    """`up` refuses to replace the workload of somebody else's stack of the same name.

    The message says how to give this stack a name of its own (`instance`).
    """
    namespace = lab.namespace()
    mine, theirs = Run(lab, namespace, "dev"), Run(lab, namespace, "dev")
    theirs.make()
    status, output = mine.hand_over()
    assert status == 1
    assert "pulumi config set instance NAME" in output
    assert theirs.get()


def test_own_workload_of_another_revision_or_kind_is_ended_with_its_pods(lab: Lab) -> None:
    namespace = lab.namespace()
    run = Run(lab, namespace, "dev")
    run.up("r1")
    assert run.hand_over("r1")[0] == 0
    assert run.get()  # the same revision stays
    assert run.hand_over("r2")[0] == 0
    assert run.get() is None
    assert run.pods() == []
    run.up("r2")
    job_path = run.path
    run.kind, run.api_version, run.name = "StatefulSet", "apps/v1", "train-sets"
    assert run.hand_over("r3")[0] == 0
    assert lab.api.get(job_path) is None


def test_second_hand_over_waits_for_the_first_and_says_for_whom(lab: Lab) -> None:
    """A hand-over waits while another one holds the namespace's lock, and says who holds it.

    Otherwise two `pulumi up` at the same time could both give a run its place.
    """
    namespace = lab.namespace()
    run = Run(lab, namespace, "dev")
    with held(lab.api, namespace, "stack other (somebody@elsewhere)", 10):
        task = lab.start("hand-over", "create", run.job())
        task.wait_for_words("it is held by stack other (somebody@elsewhere)")
        assert lab.api.get(record_path(namespace, run.owner)) is None
    assert task.end()[0] == 0
    assert lab.api.get(record_path(namespace, run.owner))


@pytest.mark.slow
def test_lock_of_a_holder_that_was_killed_is_taken_over(lab: Lab) -> None:
    namespace = lab.namespace()
    first, second = Run(lab, namespace, "dev"), Run(lab, namespace, "other")
    first.make()
    pod = wait_for("a pod", first.pods)[0]
    hold(lab, pod)
    try:
        task = lab.start("hand-over", "create", first.job("r2"))
        task.wait_for_words("waiting for Job train-dev and its pods to end")
        task.process.kill()
        task.end()
    finally:
        let_go(lab, pod)
    status, output = second.hand_over()
    assert status == 0, output
    assert "it is held by stack dev" in output


def test_task_that_is_told_to_end_gives_the_lock_back(lab: Lab) -> None:
    namespace = lab.namespace()
    run = Run(lab, namespace, "dev")
    run.make()
    pod = wait_for("a pod", run.pods)[0]
    hold(lab, pod)
    try:
        task = lab.start("hand-over", "create", run.job("r2"))
        task.wait_for_words("waiting for Job train-dev and its pods to end")
        task.process.send_signal(signal.SIGTERM)
        assert task.end()[0] == 143
        lease = lab.api.get(f"{COLLECTION.format(namespace)}/{names.LOCK_NAME}")
        assert lease
        assert lease["spec"].get("holderIdentity", "") == ""
    finally:
        let_go(lab, pod)


def test_record_goes_with_destroy_and_guard_names_others_until_then(lab: Lab) -> None:
    """`destroy` of a platform is refused while another stack has a run there; its message names the
    stack.

    Otherwise `destroy` would remove the cluster under a run that trains.
    """
    namespace = lab.namespace()
    mine, theirs = Run(lab, namespace, "dev"), Run(lab, namespace, "multipod")
    assert theirs.hand_over()[0] == 0
    status, output = lab.run("destroy-guard", "delete", mine.job())
    assert status == 1
    assert "pulumi destroy --stack multipod" in output
    assert lab.run("destroy-guard", "delete", theirs.job())[0] == 0
    assert lab.run("hand-over", "delete", theirs.job())[0] == 0
    assert lab.run("destroy-guard", "delete", mine.job())[0] == 0
    assert lab.run("destroy-guard", "create", mine.job())[0] == 0


def test_run_whose_up_is_under_way_is_waited_for(lab: Lab) -> None:
    """`up` waits for another run that has its place and is about to make its workload."""
    namespace = lab.namespace()
    first, second = Run(lab, namespace, "dev"), Run(lab, namespace, "other")
    assert first.hand_over()[0] == 0  # The first run has its place and no workload yet.
    task = lab.start("hand-over", "create", second.job())
    task.wait_for_words("which is not there: either its `pulumi up` is just about to make it")
    first.make()
    status, output = task.end()
    assert status == 0, output
    wait_for("the first to be suspended", first.is_suspended)
