"""The pod that watches a machine: what it reads, what it tells, and what it does. The API server
and nvidia-smi are stand-ins.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from infra.in_cluster.api import Api, clock_ahead
from infra.in_cluster.health_cordon import ANNOTATION, Mark
from infra.in_cluster.health_findings import HANGS, Finding, Smi
from infra.in_cluster.health_sources import (
    SmiWatch,
    active_links,
    disk_state,
    kernel_lines,
    link_states,
)
from infra.in_cluster.node_health import PATIENCE_SECONDS, Place, Sources, Watch
from tests.unit.in_cluster.kernel_lines import CLEAN, LOST
from tests.unit.in_cluster.server import Json, Server, api_of, serving

XID = Finding("xid-79 A at 5", "GPU A reported Xid 79", is_unusable=True)
SMI = Finding("smi hangs", "nvidia-smi hangs", is_unusable=True)


PODS = "/api/v1/namespaces/team/pods"
NODE = "/api/v1/nodes/here"


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a stand-in for the API server with the watched node and its pods."""
    pods: list[Json] = [
        {"metadata": {"name": "trains"}, "status": {"phase": "Running"}},
        {"metadata": {"name": "ends", "deletionTimestamp": "now"}},
        {"metadata": {"name": "ended"}, "status": {"phase": "Failed"}},
    ]
    node: Json = {"metadata": {"resourceVersion": "7"}, "spec": {}}
    with serving(Server({NODE: node, PODS: {"items": pods}})) as made:
        yield made


@pytest.fixture
def api(server: Server, tmp_path: Path) -> Api:
    """Return the API as the pod uses it."""
    return api_of(server, tmp_path)


def watch(api: Api, cordons: bool = True) -> Watch:
    """Return the watch of the machine."""
    return Watch(api, Place("here", "watch-1", cordons))


def told(server: Server) -> list[Json]:
    """Return the conditions that the watch has told, in their order."""
    return [body["status"]["conditions"][0] for _, path, body in server.done if "status" in path]


def acts(server: Server) -> list[tuple[str, Json]]:
    """Return the path and the body of each other change that the watch has made."""
    return [(path.rpartition("v1/")[2], b) for _, path, b in server.done if "status" not in path]


def test_unusable_machine_is_cordoned_and_its_training_is_asked_to_save(
    server: Server, api: Api
) -> None:
    """An unusable machine is cordoned and marked, and its training, which then saves and ends, is
    evicted. The watch tells it as a condition.
    """
    watch(api).look([XID], [], 0)
    (node, change), (pod, eviction) = acts(server)
    assert node == "nodes/here"
    assert change["spec"] == {"unschedulable": True}
    assert change["metadata"]["resourceVersion"] == "7"
    mark = Mark.from_text(change["metadata"]["annotations"][ANNOTATION])
    assert mark == Mark(True, "GPU A reported Xid 79")
    assert pod == "namespaces/team/pods/trains/eviction"
    assert eviction["kind"] == "Eviction"
    (condition,) = told(server)
    assert (condition["status"], condition["reason"]) == ("False", "Unusable")
    assert api.clock_ahead_seconds == 0
    assert server.queries[-1].endswith("component%3Dtraining&fieldSelector=spec.nodeName%3Dhere")


def test_without_the_right_to_cordon_it_only_tells(server: Server, api: Api) -> None:
    """With `nodeHealth: report`, the watch only tells what it finds. The token of its pod may not
    even read the node then.
    """
    watch(api, cordons=False).look([XID], [], 0)
    assert acts(server) == []
    assert [condition["message"] for condition in told(server)] == ["GPU A reported Xid 79"]


def test_state_counts_once_it_lasts(server: Server, api: Api) -> None:
    """A bad state makes the machine unusable only if it lasts. It is told as over when it is
    over.
    """
    one = watch(api)
    one.look([], [SMI], 0)
    assert [condition["status"] for condition in told(server)] == ["True"]
    one.look([], [SMI], PATIENCE_SECONDS)
    assert [condition["status"] for condition in told(server)] == ["True", "False"]
    assert len(acts(server)) == 2
    one.look([], [], PATIENCE_SECONDS + 1)
    assert told(server)[-1]["reason"] == "NothingFound"


def test_same_words_are_told_once_a_minute(server: Server, api: Api) -> None:
    """The same condition is told once a minute at most."""
    one = watch(api)
    for now in (0, 5, 59, 60, 65):
        one.look([], [], now)
    assert len(told(server)) == 2


def test_somebody_who_uncordons_is_not_overruled(server: Server, api: Api) -> None:
    """A machine that somebody uncordons is not cordoned again for the same fault, which is told as
    accepted. When the fault is over, the mark goes.
    """
    mark = Mark(True, "GPU A reported Xid 79")
    server.objects[NODE]["metadata"]["annotations"] = {ANNOTATION: mark.to_text()}
    watch(api).look([XID], [], 0)
    ((_, change),) = acts(server)
    assert "spec" not in change
    accepted = change["metadata"]["annotations"][ANNOTATION]
    assert Mark.from_text(accepted) == Mark(accepted=(XID.key,))
    assert [condition["reason"] for condition in told(server)] == ["Reported"]
    assert told(server)[0]["message"].endswith("(accepted by uncordon)")
    server.objects[NODE]["metadata"]["annotations"] = {ANNOTATION: accepted}
    watch(api).look([XID], [], 0)
    assert len(acts(server)) == 1
    watch(api).look([], [], 0)
    assert acts(server)[-1][1]["metadata"]["annotations"] == {ANNOTATION: None}


def test_ended_fault_is_no_uncordon(
    server: Server, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log says that a node was uncordoned only if somebody did so, and not when an accepted
    fault is over.
    """
    mark = Mark(True, "GPU A reported Xid 79", ("smi hangs",))
    about = {"resourceVersion": "7", "annotations": {ANNOTATION: mark.to_text()}}
    server.objects[NODE] = {"metadata": about, "spec": {"unschedulable": True}}
    watch(api).look([XID], [], 0)
    (_, change), _ = acts(server)
    kept = change["metadata"]["annotations"][ANNOTATION]
    assert Mark.from_text(kept) == Mark(True, "GPU A reported Xid 79")
    assert "uncordoned" not in capsys.readouterr().out
    server.objects[NODE]["spec"] = {}
    watch(api).look([XID], [], 0)
    assert "here was uncordoned" in capsys.readouterr().out


@pytest.mark.parametrize("code", [404, 409, 429])
def test_pod_that_cannot_be_evicted_now_is_no_trouble(server: Server, api: Api, code: int) -> None:
    """A pod that is gone or cannot be evicted now is no error; the machine is cordoned all the
    same.
    """
    server.refuses = {"eviction": code}
    watch(api).look([XID], [], 0)
    assert [path for path, _ in acts(server)] == ["nodes/here"]


def test_node_that_has_changed_meanwhile_is_looked_at_again(server: Server, api: Api) -> None:
    """If the node has changed since it was read, nothing is done in this look, because somebody
    else may have cordoned it. Its training is not evicted either.
    """
    server.refuses = {"here": 409}
    watch(api).look([XID], [], 0)
    assert acts(server) == []


def test_node_is_cordoned_where_telling_is_refused(server: Server, api: Api) -> None:
    """A machine is cordoned and its training evicted even if the condition cannot be told."""
    server.refuses = {"status": 403}
    with pytest.raises(OSError, match="403"):
        watch(api).look([XID], [], 0)
    assert len(acts(server)) == 2


def test_machine_is_told_of_where_cordoning_is_refused(server: Server, api: Api) -> None:
    """The condition is told even if the machine cannot be cordoned."""
    server.refuses = {"here": 403}
    with pytest.raises(OSError, match="403"):
        watch(api).look([XID], [], 0)
    assert [condition["reason"] for condition in told(server)] == ["Unusable"]


def test_log_is_searched_once_and_what_was_found_is_kept(tmp_path: Path) -> None:
    """A fault that was found stays although its line leaves the kernel's log, which has only the
    newest lines. The same line in two looks is one fault, and a log that cannot be read is told.
    """
    log = tmp_path / "log"
    with closing(Sources(tmp_path, log)) as sources:
        log.write_text("\n".join([*CLEAN, LOST]))
        (old,) = sources.kernel()
        assert not old.is_unusable
        again = LOST.replace("99.5", "120.5")
        log.write_text("\n".join([LOST, *CLEAN, again]))
        (new,) = sources.kernel()
        assert new.is_unusable
        log.write_text(CLEAN[-1])
        assert sources.kernel() == [new]
        log.write_text("<6>a line without a time")
        assert [finding.key for finding in sources.kernel()] == [new.key, "kernel-times"]
        log.unlink()
        (unseen,) = sources.kernel()
        assert "cannot be read" in unseen.text
        assert sources.states(0, 20.0)[-1].key == "clock"


def test_answer_that_was_cut_is_as_good_as_none(server: Server, api: Api) -> None:
    """An answer of the API server that was cut off is an error like no answer. Otherwise the
    program would end, and count what came before as old when it starts again.
    """
    server.cuts_answers = True
    with pytest.raises(OSError, match="not whole"):
        api.ask("GET", "nodes/here")


def test_clock_is_ahead_or_behind_by_what_is_certain() -> None:
    """A clock counts as wrong only by what is certain. The time of a slow answer, and the part of a
    second that the server leaves out, are no difference.
    """
    assert clock_ahead(100.9, 100, 100.9) == 0
    assert clock_ahead(100.0, 108, 109.0) == 0
    assert clock_ahead(100.0, 108, 103.0) == -5
    assert clock_ahead(112.0, 101, 120.0) == 10


def command(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Put a stand-in for nvidia-smi with these lines on PATH."""
    file = folder / "nvidia-smi"
    file.write_text("\n".join(["#!/bin/sh", *lines]))
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def answer(smi: SmiWatch, is_right: Callable[[Smi], bool]) -> Smi:
    """Ask until the answer is right, for at most 60 s; return it."""
    deadline = time.monotonic() + 60
    while (found := smi.poll(time.monotonic())) is None or not is_right(found):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_both_questions_are_asked_of_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch asks nvidia-smi for the GPUs and for their remapped rows."""
    command(tmp_path, monkeypatch, 'case $1 in *rows*) echo "A, 1, 0";; *) echo "A, 0";; esac')
    with closing(SmiWatch(50, 3600)) as asked:
        smi = answer(asked, lambda smi: True)
    assert (smi.status, smi.gpus, smi.rows) == (0, "A, 0\n", "A, 1, 0\n")


def test_gpus_that_know_no_remapped_rows_are_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs without remapped rows, for which nvidia-smi fails, are no fault."""
    command(tmp_path, monkeypatch, 'case $1 in *rows*) exit 2;; *) echo "A, [N/A]";; esac')
    with closing(SmiWatch(50, 3600)) as asked:
        assert answer(asked, lambda smi: True) == Smi(0, "A, [N/A]\n")


def test_nvidia_smi_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An nvidia-smi that hangs is ended at the limit and told as such, and is asked again later."""
    command(tmp_path, monkeypatch, "exec sleep 600")
    with closing(SmiWatch(limit_seconds=1, pause_seconds=0)) as asked:
        assert answer(asked, lambda smi: smi.status == HANGS) == Smi(HANGS, "")
        command(tmp_path, monkeypatch, "echo broken; exit 9")
        assert answer(asked, lambda smi: smi.status != HANGS).status == 9


def test_late_look_is_no_hanging_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An nvidia-smi that ended in time does not count as hanging, however late the watch looks at
    it.
    """
    command(tmp_path, monkeypatch, 'echo "A, 0"')
    start = subprocess.Popen[bytes]

    def ended(*args: Any, **named: Any) -> subprocess.Popen[bytes]:
        process = start(*args, **named)
        process.wait()
        return process

    monkeypatch.setattr(subprocess, "Popen", ended)
    with closing(SmiWatch(60, 3600)) as asked:
        answers = [asked.poll(now) for now in (0, 80, 160)]
    assert answers[-1] == Smi(0, "A, 0\n", "A, 0\n")


def test_machine_without_nvidia_smi_has_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without nvidia-smi has no answer, which is no fault."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with closing(SmiWatch(50, 0)) as asked:
        assert asked.poll(0) is None


def test_links_disks_and_a_log_are_read(tmp_path: Path) -> None:
    """Links, disks and the kernel's log are read, also if they are missing or contain bytes that
    are no text.
    """
    for port, state in (("mlx5_0/ports/1", "4: ACTIVE\n"), ("mlx5_1/ports/1", "1: DOWN\n")):
        (tmp_path / port).mkdir(parents=True)
        (tmp_path / port / "state").write_text(state)
    states = link_states(tmp_path)
    assert states == {"mlx5_0/1": "4: ACTIVE", "mlx5_1/1": "1: DOWN"}
    assert active_links(states) == {"mlx5_0/1"}
    assert link_states(tmp_path / "none") == {}
    free, error = disk_state(tmp_path)
    assert (0 <= free <= 1, error) == (True, 0)
    assert disk_state(tmp_path / "none")[1] != 0
    log = tmp_path / "log"
    log.write_bytes(b"<6>[ 1.0] one\n<6>[ 2.0] \xff\n")
    assert len(kernel_lines(log)) == 2
