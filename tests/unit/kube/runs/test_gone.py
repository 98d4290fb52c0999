"""How a run ended whose workload was removed after its `ttlSecondsAfterFinished`, and what `up`
does then.

The API server is a stand-in here. The program that reads the folder of the run is the real one.
"""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from infra.kube.errors import ApiError, TaskError
from infra.kube.record import parse_record
from infra.kube.runs import await_ready, gone_program
from infra.kube.runs import hand_over_request as asking
from infra.kube.runs.gone import NoPodError, gone_words, how_ended
from infra.kube.runs.steer import find_workload
from infra.kube.workload import Workload
from infra.run.workload import volume_proof
from tests.cli.records import NOW, RECORD
from tests.unit.kube.runs.gone_run import ASKER, AWAIT, GONE, TTL, Server, api_of, hand_over_of, job

DONE = "run dev is finished: all 40 steps are done"
ROUND = "round 1: 1 node(s) x 2 rank(s), store at 127.0.0.1:29500"
FATAL = "fatal: the loss is nan at step 7"
STOPPED = "stopped by a signal; the next start continues from the last checkpoint"


def folder(tmp_path: Path, *nodes: list[str], done: bool = False) -> Path:
    """Return the folder of a run with these lines of its nodes. The first word of each line is its
    second. Each log ends with a line of a rank, which is no word of the node. `done`: the folder
    has the marker of a finished run.
    """
    logs = tmp_path / "logs"
    logs.mkdir(parents=True)
    for node, lines in enumerate(nodes):
        texts = list[str]()
        for line in lines:
            second, _, said = line.partition(" ")
            texts.append(f"2026-11-22T07:00:{second}.000000Z {node} - [node {node}] {said}")
        texts.append(f"2026-11-22T07:00:59.000000Z {node} 0 fatal: a rank's own line")
        (logs / f"node-{node:05d}.log").write_text("\n".join(texts) + "\n")
    if done:
        (tmp_path / "done.json").write_text("{}")
    return tmp_path


def ended(run: Path) -> tuple[str, str]:
    """Return the state and the words that the program in the pod prints."""
    program = Path(gone_program.__file__).read_text()
    command = [sys.executable, "-c", program, str(run)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found["state"], found["words"]


@pytest.mark.parametrize(
    ("nodes", "state", "words"),
    [
        ([["01 " + ROUND, "02 " + DONE]], "finished", "all 40 steps are done"),
        ([["01 " + ROUND, "02 " + FATAL]], "failed", "the loss is nan at step 7"),
        ([["01 " + ROUND, "02 giving up for now: no peers"]], "failed", "no peers"),
        # The run was tried again, made longer, or stopped.
        ([["01 " + FATAL, "02 " + ROUND]], "", ""),
        ([["01 " + DONE, "02 " + ROUND]], "", ""),
        ([["01 " + ROUND, "02 " + STOPPED]], "", ""),
        # The fatal error of another node ended all nodes.
        ([["01 " + ROUND, "03 " + STOPPED], ["01 " + ROUND, "02 " + FATAL]], "failed", "the loss"),
        # The second log is of a node that the run no longer has.
        ([["05 " + ROUND, "06 " + STOPPED], ["01 " + ROUND, "02 " + FATAL]], "", ""),
    ],
)
def test_logs_of_the_nodes_say_how_a_run_ended(
    tmp_path: Path, nodes: list[list[str]], state: str, words: str
) -> None:
    """The logs of the nodes say whether a run has finished or failed, and why. A run that went on
    after that has not ended.
    """
    found = ended(folder(tmp_path, *nodes, done=DONE in str(nodes)))
    assert (found[0], found[1][: len(words)]) == (state, words)


def test_marker_alone_counts_where_no_log_could_be_written(tmp_path: Path) -> None:
    """A run without logs has finished if its folder has the marker `done.json`."""
    assert ended(folder(tmp_path / "full", done=True)) == ("finished", "")
    assert ended(tmp_path / "nothing") == ("", "")


def test_only_the_end_of_a_long_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the end of a log is read. A log may have gigabytes, and the pod has little memory."""
    path = folder(tmp_path, [f"01 {FATAL}", f"02 {ROUND}"]) / "logs" / "node-00000.log"
    end = len(path.read_text().splitlines()[-1]) + 1
    monkeypatch.setattr(gone_program, "LOG_BYTES", path.stat().st_size)
    assert [text for _, text in gone_program.own_lines(path)] == [FATAL, ROUND]
    monkeypatch.setattr(gone_program, "LOG_BYTES", end)
    assert gone_program.own_lines(path) == []


def test_first_look_reads_the_volume_and_notes_the_answer() -> None:
    """The first question about the end of a run starts a pod that reads the volume, with the image
    and the placement of the run. The answer is noted in the record, so the second question starts
    no pod.
    """
    server = Server(GONE, "finished", "all 40 steps are done")
    api = api_of(server)
    assert how_ended(api, server.now(), ASKER) == "finished: all 40 steps are done"
    (pod,) = server.pods
    assert pod["spec"]["nodeSelector"] == {"disk": "big"}
    (container,) = pod["spec"]["containers"]
    assert (container["image"], container["command"][-1]) == ("image", "/data/runs/dev")
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data", "readOnly": True}]
    assert how_ended(api, server.now(), ASKER) == "finished: all 40 steps are done"
    assert len(server.pods) == 1


def test_record_chooses_no_rights_for_the_pod() -> None:
    """The record of a run gives the pod that reads the volume no more rights. People who may change
    the ConfigMap may have no right to start such pods.
    """
    wanted = {"runAsUser": 0, "runAsNonRoot": False, "fsGroup": 1000}
    more = {"hostNetwork": True, "serviceAccountName": "admin", "volumes": []}
    more["resources"] = {"limits": {"memory": "4Gi", "nvidia.com/gpu": "8"}, "requests": {"a": "1"}}
    placement = {**TTL.placement, **more, "securityContext": wanted}
    server = Server(replace(GONE, ttl=replace(TTL, placement=placement)), "finished")
    how_ended(api_of(server), server.now(), ASKER)
    spec = server.pods[0]["spec"]
    assert not {"hostNetwork", "serviceAccountName"} & spec.keys()
    assert len(spec["volumes"]) == 1
    security = spec["securityContext"]
    assert (security["runAsUser"], security["runAsNonRoot"]) == (1000, True)
    assert security["fsGroup"] == 1000
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "4Gi"}


def test_end_that_nobody_has_written_is_not_noted() -> None:
    server = Server(GONE, "")
    assert how_ended(api_of(server), server.now(), ASKER) == ""
    assert server.now().how_ended == ""


def test_end_before_the_runs_own_up_is_that_of_another_workload() -> None:
    """An end that is older than the run's last `up` does not count, for example if the run was made
    longer and its pods never started. A few seconds are tolerated, because the clocks of nodes may
    differ.
    """
    server = Server(GONE, "finished", "all 40 steps", at=GONE.since - timedelta(minutes=1))
    assert how_ended(api_of(server), server.now(), ASKER) == ""
    server = Server(GONE, "finished", "all 40 steps", at=GONE.since - timedelta(seconds=5))
    assert how_ended(api_of(server), server.now(), ASKER)  # within the difference of clocks


def test_pod_without_a_line_is_an_error_and_no_end() -> None:
    server = Server(GONE, "finished")
    server.said = ""
    with pytest.raises(TaskError, match="has printed no line"):
        how_ended(api_of(server), server.now(), ASKER)


def test_pod_that_fails_on_the_volume_is_an_error_with_its_words() -> None:
    server = Server(GONE, "finished")
    server.phase, server.said = "Failed", "OSError: Stale file handle"
    with pytest.raises(TaskError, match="how the run ended: OSError: Stale file handle") as raised:
        how_ended(api_of(server), server.now(), ASKER)
    assert not isinstance(raised.value, NoPodError)  # another run's folder may be readable


def test_pod_that_does_not_start_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no pod starts on the volume, none will for the other runs on it."""
    monkeypatch.setattr("infra.kube.runs.gone.START_SECONDS", 0)
    server = Server(GONE, "finished")
    server.phase = "Pending"
    with pytest.raises(NoPodError, match="waited 0 s for pod disttrain-how-ended"):
        how_ended(api_of(server), server.now(), ASKER)


def test_answer_counts_where_the_record_may_not_be_changed() -> None:
    """A user who may not change the record still gets the answer, and each question reads the
    volume again. Any other refusal of the change is an error.
    """
    server = Server(GONE, "finished", "all done")
    server.note_status = 403
    api = api_of(server)
    assert [how_ended(api, server.now(), ASKER) for _ in range(2)] == ["finished: all done"] * 2
    assert len(server.pods) == 2
    server.note_status = 422
    with pytest.raises(ApiError):
        how_ended(api, server.now(), ASKER)


def test_workload_without_such_a_time_starts_no_pod() -> None:
    """A run without `ttlSecondsAfterFinished` starts no pod, because its workload does not go by
    itself.
    """
    server = Server(replace(GONE, ttl=None), "finished")
    assert how_ended(api_of(server), server.now(), ASKER) == ""
    assert server.pods == []


def test_up_ends_well_where_a_finished_run_has_gone(capsys: pytest.CaptureFixture[str]) -> None:
    """`up` ends well if the run finishes and its workload is removed while `up` waits."""
    server = Server(GONE, "finished", "all 40 steps are done")
    await_ready.create(job(**{**AWAIT, "pods": 2}), api_of(server))
    said = capsys.readouterr().out
    assert "./disttrain verify reads it from the volume" in volume_proof(said, 2)
    assert (
        "the run has finished: all 40 steps are done; Job train-indexed was removed 3600 s" in said
    )


def test_up_fails_where_a_failed_run_has_gone_and_says_the_way_on() -> None:
    server = Server(GONE, "failed", "the loss is nan")
    with pytest.raises(TaskError) as failure:
        await_ready.create(job(**AWAIT), api_of(server))
    said = str(failure.value)
    assert "training failed: the loss is nan; Job train-indexed was removed 3600 s after" in said
    assert said.endswith("`pulumi up` make it again from its last checkpoint")
    assert "kubectl" not in said  # there is nothing to delete


def test_deleted_workload_is_made_after_a_refresh() -> None:
    """The error about a workload that somebody has deleted names `pulumi refresh`. Without it, the
    engine would believe that the workload exists and would not make it.
    """
    server = Server(replace(GONE, ttl=None), "")
    with pytest.raises(TaskError) as failure:
        await_ready.create(job(**AWAIT), api_of(server))
    said = str(failure.value)
    assert said.startswith("training failed: Job train-indexed is gone: somebody has deleted it. ")
    assert said.endswith("`pulumi refresh` and then `pulumi up` make it again")
    assert "kubectl" not in said


def test_up_fails_where_somebody_has_deleted_a_run_that_trained() -> None:
    server = Server(GONE, "")
    with pytest.raises(TaskError, match="no log of the run says that it had ended: somebody has"):
        await_ready.create(job(**AWAIT), api_of(server))


def test_up_that_cannot_read_the_volume_says_what_to_do() -> None:
    server = Server(GONE, "finished")
    server.said = ""
    with pytest.raises(TaskError) as failure:
        await_ready.create(job(**AWAIT), api_of(server))
    said = str(failure.value)
    assert "was not seen: the pod that reads how the run ended has printed no line" in said
    assert said.endswith("`pulumi refresh` and then `pulumi up` make it again")


def test_end_is_forgotten_once_there_is_a_workload_again() -> None:
    """The noted end of a run is removed when its workload exists again. Otherwise a run that is
    tried again and finishes would still count as failed.
    """
    server = Server(replace(GONE, how_ended="failed: nan"), "")
    complete = {"type": "Complete", "status": "True"}
    server.workload = {"metadata": {"uid": "u1"}, "status": {"conditions": [complete]}}
    await_ready.create(job(**AWAIT), api_of(server))
    assert server.now().how_ended == ""


def test_second_up_hands_nothing_over_once_the_end_is_noted() -> None:
    """The engine sees no change of a finished run whose end is noted. If the run has failed or its
    end is not noted, the hand-over runs again.
    """
    finished = Server(replace(GONE, how_ended="finished: all done"), "finished")
    request = asking._request  # pyright: ignore[reportPrivateUsage]
    assert request(api_of(finished), GONE.namespace, GONE.owner) == GONE.request
    for before in ("", "failed: nan"):
        server = Server(replace(GONE, how_ended=before), "")
        assert request(api_of(server), GONE.namespace, GONE.owner) == "record 7"


def test_finished_run_that_has_gone_suspends_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """A finished run whose workload is gone suspends no other run, because a new workload would end
    at once. A new `ttlSecondsAfterFinished` is noted in its record.
    """
    server = Server(GONE, "finished", "all done")
    hand_over_of(server)
    assert "no other run has to make room" in capsys.readouterr().out
    assert (server.now().request, server.now().how_ended) == ("again", "finished: all done")
    assert server.now().since == GONE.since
    hand_over_of(server, ttl={**vars(TTL), "seconds": 7200})
    assert server.now().ttl == replace(TTL, seconds=7200)


def test_words_about_a_workload_without_that_time_stay() -> None:
    """The words about a workload without `ttlSecondsAfterFinished` say that somebody has deleted
    it.
    """
    words = gone_words(replace(GONE, ttl=None))
    assert words.startswith("Job train-indexed is not there: somebody has deleted it. ")


def test_stop_and_resume_say_that_it_has_finished() -> None:
    """`./disttrain stop` and `resume` say that a run has finished if its workload was removed after
    that.
    """
    server = Server(GONE, "finished", "all 40 steps are done")
    with pytest.raises(TaskError) as failure:
        find_workload(api_of(server), server.now(), ASKER)
    assert "all 40 steps are done; Job train-indexed was removed 3600 s after that" in str(
        failure.value
    )


def test_stop_advises_where_the_kind_has_gone() -> None:
    """`./disttrain stop` says that the workload is gone if the cluster no longer has its kind, for
    example because an administrator has removed JobSet. Otherwise the user would see only a 404.
    """
    of_jobset = Workload("jobset.x-k8s.io/v1alpha2", "JobSet", "train-jobset")
    server = Server(replace(GONE, workload=of_jobset, ttl=None), "")
    with pytest.raises(TaskError, match="JobSet train-jobset is not there: somebody has deleted"):
        find_workload(api_of(server), server.now(), ASKER)


def test_time_survives_the_way_to_the_record_and_back() -> None:
    """A record with `ttlSecondsAfterFinished` is the same after it was written and read again."""
    found = parse_record(GONE.to_object(GONE.namespace))
    assert found == GONE
    assert "ttl" not in RECORD.to_object(RECORD.namespace)["data"]
    assert found.since <= NOW
