"""One story on one cluster: single-pod, then multi-pod on the same node, then destroy.

The tests build on each other in file order; each fixture is one `pulumi up`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.follow import train_points
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.lab import NAMESPACE, Lab, run_settings, wait_for

MAX_STEPS = 120
SINGLE_RUN, MULTI_RUN = "e2e-single", "e2e-multi"
PROXY = {
    "httpProxy": "http://proxy.corp.example:3128",
    "httpsProxy": "http://proxy.corp.example:3128",
    "noProxy": "git.corp.example",
}


def changes(output: str) -> dict[str, int]:
    """The counts under `Resources:` at the end of pulumi's output, such as `{"unchanged": 12}`."""
    summary = output[output.rindex("Resources:") :]
    return {kind: int(n) for n, kind in re.findall(r"(\d+) (\w+)", summary.split("Duration")[0])}


@pytest.fixture(scope="module")
def single(lab: Lab) -> Stack:
    settings = {**run_settings(SINGLE_RUN, MAX_STEPS), **PROXY}
    stack = lab.stack("e2e-single", "sandbox", settings)
    stack.up()
    lab.wait_done(SINGLE_RUN)
    return stack


@pytest.fixture(scope="module")
def before_switch(lab: Lab, single: Stack) -> dict[str, str]:
    """Uids of all objects while the single-pod stack is the one in force."""
    assert single
    return everything(lab)


@pytest.fixture(scope="module")
def multi(lab: Lab, before_switch: dict[str, str]) -> Stack:
    """`pulumi stack select` and `pulumi up`, with the single-pod stack still up."""
    assert before_switch
    settings = {**run_settings(MULTI_RUN, MAX_STEPS), **PROXY}
    stack = lab.stack("e2e-multi", "sandbox-multipod", settings)
    stack.up()
    lab.wait_done(MULTI_RUN)
    return stack


def everything(lab: Lab) -> dict[str, str]:
    """Uids of what the program makes, cluster-wide objects included."""
    found = lab.uids("namespace", "persistentvolume")
    ours = {name: uid for name, uid in found.items() if NAMESPACE in name}
    kinds = ("persistentvolumeclaim", "configmap", "job", "statefulset", "service")
    return ours | lab.uids(*kinds)


def test_single_pod_dataset_job_is_complete(lab: Lab, single: Stack) -> None:
    assert single
    job = lab.get("job", "download-tiny-shakespeare")
    conditions = {c["type"]: c["status"] for c in job["status"]["conditions"]}
    assert conditions["Complete"] == "True"


def test_single_pod_trains_with_two_processes_and_the_loss_falls(lab: Lab, single: Stack) -> None:
    assert single
    log = lab.kubectl("logs", "job/train-singlepod")
    assert "1 node(s) x 2 rank(s)" in log
    assert "6+6 over 2 rank(s)" in log
    losses = lab.losses(SINGLE_RUN)
    assert sorted(losses) == list(range(1, MAX_STEPS + 1))
    assert losses[1] - losses[MAX_STEPS] >= 0.5, losses


def test_checkpoint_lies_on_the_host_path(lab: Lab, single: Stack) -> None:
    assert single
    folder = lab.run_dir(SINGLE_RUN) / "checkpoints" / f"step-{MAX_STEPS:08d}"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest
    assert any(path.stat().st_size > 100_000 for path in folder.iterdir())


def test_second_up_changes_nothing(single: Stack) -> None:
    assert set(changes(single.up("--expect-no-changes"))) == {"unchanged"}


def test_preview_after_refresh_changes_nothing(single: Stack) -> None:
    single.refresh()
    single.preview("--expect-no-changes")


def test_outputs_name_where_things_are(lab: Lab, single: Stack) -> None:
    assert single.output("namespace") == NAMESPACE
    assert single.output("topology") == "single-pod"
    assert Path(single.output("hostRunPath")) == lab.run_dir(SINGLE_RUN)


def test_sample_command_of_the_outputs_writes_text(lab: Lab, single: Stack) -> None:
    text = lab.shell(single.output("sampleCommand"))
    assert len(text.strip()) > 40, text


def test_switching_the_stack_replaces_only_the_training(
    lab: Lab, before_switch: dict[str, str], multi: Stack
) -> None:
    assert multi
    after = everything(lab)
    gone = set(before_switch) - set(after)
    new = set(after) - set(before_switch)
    assert {name for name in gone if not name.startswith("ConfigMap/")} == {"Job/train-singlepod"}
    assert {name for name in new if not name.startswith("ConfigMap/")} == {
        "StatefulSet/train-multipod",
        "Service/train-mp-headless",
    }
    kept = {name: uid for name, uid in before_switch.items() if name in after}
    assert {name: after[name] for name in kept} == kept


def test_rank_i_runs_on_pod_i_and_meets_by_the_headless_name(lab: Lab, multi: Stack) -> None:
    assert multi
    for rank in range(3):
        pod = lab.get("pod", f"train-multipod-{rank}")
        log = lab.kubectl("logs", f"train-multipod-{rank}")
        assert f"[node {rank}] round 1: torchrun with 3 node(s) x 1 rank(s)" in log
        environment = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
        assert environment["PET_MASTER_ADDR"].startswith("train-multipod-0.train-mp-headless")
        assert environment["PET_NNODES"] == "3"


def test_both_topologies_end_with_the_same_loss(lab: Lab, multi: Stack) -> None:
    assert multi
    single_losses, multi_losses = lab.losses(SINGLE_RUN), lab.losses(MULTI_RUN)
    assert sorted(single_losses) == sorted(multi_losses)
    last = single_losses[MAX_STEPS]
    assert multi_losses[MAX_STEPS] == pytest.approx(last, rel=1e-5)


def test_proxy_values_are_in_every_pod(lab: Lab, multi: Stack) -> None:
    assert multi
    pods = lab.get("pod")["items"]
    assert len(pods) >= 4  # three ranks and the dataset's
    for pod in pods:
        for container in pod["spec"]["containers"]:
            assert {"configMapRef": {"name": "proxy-config"}} in container["envFrom"], pod
    for rank in range(3):
        environment = lab.kubectl("exec", f"train-multipod-{rank}", "--", "env")
        values = dict(line.split("=", 1) for line in environment.splitlines() if "=" in line)
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
            assert values[name] == PROXY["httpProxy"]
        for name in ("NO_PROXY", "no_proxy"):
            parts = values[name].split(",")
            assert {".svc", ".cluster.local", "127.0.0.1", "localhost", PROXY["noProxy"]} <= set(
                parts
            )


def test_finished_stateful_set_is_not_restarted(lab: Lab, multi: Stack) -> None:
    assert multi
    first = restarts(lab)
    wait_for("three ready pods", lambda: ready_pods(lab) == 3, 60)
    pauses = iter(range(40))  # 20 s of looking: a crash loop restarts within 10
    wait_for("the end of the look", lambda: next(pauses, None) is None or None, 60)
    assert restarts(lab) == first
    assert ready_pods(lab) == 3


def restarts(lab: Lab) -> dict[str, int]:
    return {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"]
        for pod in lab.get("pod")["items"]
        if pod["metadata"]["name"].startswith("train-multipod")
    }


def ready_pods(lab: Lab) -> int:
    return lab.get("statefulset", "train-multipod")["status"].get("readyReplicas", 0)


def test_second_up_on_multi_pod_changes_nothing(multi: Stack) -> None:
    assert set(changes(multi.up("--expect-no-changes"))) == {"unchanged"}
    multi.preview("--expect-no-changes")


def test_image_that_vanished_is_seen_by_up_and_imported_again(lab: Lab, multi: Stack) -> None:
    image = multi.output("image")
    lab.ctr("images", "rm", "--sync", image)
    with pytest.raises(PulumiFailedError, match="image-ensure"):
        multi.preview("--expect-no-changes")
    output = multi.up()
    assert f"{image} is not in containerd's namespace 'k8s.io'" in output
    assert changes(output).keys() == {"updated", "unchanged"}
    assert changes(output)["updated"] == 1
    assert image in lab.ctr("images", "ls", "-q").split()
    assert set(changes(multi.up("--expect-no-changes"))) == {"unchanged"}


def test_killed_pod_comes_back_and_the_run_finishes_from_its_checkpoint(
    lab: Lab, multi: Stack
) -> None:
    run_name, steps = "e2e-killed", 500
    for key, value in run_settings(run_name, steps).items():
        multi.set(key, value)
    multi.up()
    checkpoints = lab.run_dir(run_name) / "checkpoints"
    wait_for("the first checkpoint", lambda: list(checkpoints.glob("step-*")), 120)
    old = lab.get("pod", "train-multipod-1")["metadata"]["uid"]
    lab.kubectl("delete", "pod", "train-multipod-1", "--grace-period=0", "--force", "--wait=false")
    assert not (lab.run_dir(run_name) / "done.json").exists(), "killed too late to prove anything"
    lab.wait_done(run_name)
    assert lab.get("pod", "train-multipod-1")["metadata"]["uid"] != old
    assert sorted(lab.losses(run_name)) == list(range(1, steps + 1))
    log = lab.kubectl("logs", "train-multipod-0")
    resumed = re.search(r"continuing after step (\d+)", log)
    assert resumed, log[-3000:]
    assert int(resumed[1]) > 0


def test_topology_setting_inside_one_stack_replaces_only_the_training(
    lab: Lab, multi: Stack
) -> None:
    before = everything(lab)
    for key, value in {"topology": "single-pod", "processesPerPod": "3"}.items():
        multi.set(key, value)
    multi.up()
    after = everything(lab)
    assert "Job/train-singlepod" in after
    assert not {"StatefulSet/train-multipod", "Service/train-mp-headless"} & set(after)
    assert {n: u for n, u in after.items() if n in before} == {
        n: u for n, u in before.items() if n in after
    }


def test_deleted_single_pod_saves_comes_back_and_loses_no_step(lab: Lab, multi: Stack) -> None:
    run_name, steps = "e2e-deleted", 500  # the stack is single-pod by now
    for key, value in run_settings(run_name, steps).items():
        multi.set(key, value)
    multi.up()
    (old,) = training_pods(lab)
    wait_for("some steps", lambda: len(lab.losses(run_name)) > 20, 120)
    lab.kubectl("delete", old, "--wait=false")
    assert not (lab.run_dir(run_name) / "done.json").exists(), "deleted too late to prove anything"
    lab.wait_done(run_name)
    (new,) = training_pods(lab)
    assert new != old
    assert re.search(r"continuing after step \d+", lab.kubectl("logs", new))
    written = [point["step"] for point in train_points(lab.run_dir(run_name))]
    assert written == list(range(1, steps + 1))  # none lost, none done twice


def training_pods(lab: Lab) -> list[str]:
    names = lab.kubectl(
        *("get", "pod", "-l", "app.kubernetes.io/component=training"),
        *("--field-selector=status.phase!=Failed", "-o", "name"),
    )
    return names.split()


def test_destroy_leaves_no_object_and_keeps_the_data(lab: Lab, single: Stack, multi: Stack) -> None:
    multi.destroy()
    single.destroy()
    found = set(lab.uids("namespace", "persistentvolume"))
    assert not {name for name in found if NAMESPACE in name}
    assert json.loads(multi.export())["deployment"].get("resources", []) == []
    assert (lab.run_dir(SINGLE_RUN) / "metrics.jsonl").exists()
    assert (lab.run_dir(MULTI_RUN) / "done.json").exists()
    assert list(lab.cluster.data_root.glob("datasets/*/train.bin"))


def test_up_after_destroy_binds_the_volume_again_and_resumes_the_run(
    lab: Lab, single: Stack
) -> None:
    metrics = lab.run_dir(SINGLE_RUN) / "metrics.jsonl"
    before = metrics.read_text()
    further = MAX_STEPS + 20
    single.set("run.train.max_steps", str(further))
    single.up()
    claim = lab.get("persistentvolumeclaim", "disttrain-pvc")
    assert claim["status"]["phase"] == "Bound"
    marker = lab.run_dir(SINGLE_RUN) / "done.json"
    wait_for(f"step {further}", lambda: json.loads(marker.read_text())["step"] == further, 300)
    assert f"continuing after step {MAX_STEPS} from step-" in lab.kubectl(
        "logs", "job/train-singlepod"
    )
    assert metrics.read_text().startswith(before)  # nothing was trained twice
    assert [point["step"] for point in train_points(lab.run_dir(SINGLE_RUN))] == list(
        range(1, further + 1)
    )
    single.destroy()


@pytest.fixture
def wrong_checksum(lab: Lab) -> Iterator[Stack]:
    settings = {**run_settings("e2e-wrong", 10), "datasetSha256": "0" * 64}
    stack = lab.stack("e2e-wrong", "sandbox", {**settings, "datasetName": "wrong-checksum"})
    yield stack
    stack.destroy()


def test_wrong_dataset_checksum_fails_up_with_the_reason(lab: Lab, wrong_checksum: Stack) -> None:
    with pytest.raises(PulumiFailedError) as failure:
        wrong_checksum.up()
    assert "sha256" in str(failure.value)
    assert "0" * 64 in str(failure.value)
    assert not (lab.cluster.data_root / "datasets" / "wrong-checksum").exists()
