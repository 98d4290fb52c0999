"""A platform with a run of one pod, a run of three pods of another stack on it, and `destroy`.

The tests build on each other in file order; each fixture is one `pulumi up`.
"""

import json
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from infra.run.dataset_job_name import dataset_job_name
from sandbox.follow import train_points
from sandbox.stack import PulumiFailedError, Stack
from tests.browser.browser import Browser, browser
from tests.e2e.asking import (
    AT_ONCE_SECONDS,
    changes,
    everything,
    people_run,
    states,
    training_pods,
    wait_for_first_checkpoint,
    weights,
)
from tests.e2e.dashboard import Dashboard
from tests.e2e.lab import ENDLESS, NAMESPACE, SPARES, Lab, run_settings, wait_for

pytestmark = pytest.mark.in_order

MAX_STEPS = 120
LONG = 500  # steps of a run that is killed on its way, and still has to reach its end
SINGLE_RUN, MULTI_RUN = "e2e-single", "e2e-multi"
MULTI_JOB = dataset_job_name("shakespeare-char", "e2e-multi", "", owns_platform=False)
PROXY = {
    "httpProxy": "http://proxy.corp.example:3128",
    "httpsProxy": "http://proxy.corp.example:3128",
    "noProxy": "git.corp.example",
}

# Any store that fsspec knows may be the mirror; this one is a folder on the volume.
MIRROR = {"run.checkpoint.mirror": "file:///data/mirror"}
STORE_KEY = "key-of-the-store-3141592653"


@pytest.fixture(scope="module")
def single(lab: Lab) -> Iterator[Stack]:
    """Yield a stack that owns its platform, and whose run of one pod is finished.

    A test destroys it. The fixture destroys it too, if that test was left out or failed.
    """
    settings = {**run_settings(SINGLE_RUN, MAX_STEPS, **SPARES), **PROXY, "podPolicy": "deny"}
    stack = lab.stack("e2e-single", "sandbox", settings)
    stack.preview()  # the cluster has nothing of ours yet
    stack.up()
    lab.wait_done(SINGLE_RUN)
    yield stack
    if json.loads(stack.export())["deployment"].get("resources"):
        with suppress(PulumiFailedError):  # `nothing_is_left` reports what is left then
            stack.destroy()


@pytest.fixture(scope="module")
def before_switch(lab: Lab, single: Stack) -> dict[str, str]:
    """Return the uids of all objects before the stack with three pods is up."""
    assert single
    return everything(lab)


@pytest.fixture(scope="module")
def multi(lab: Lab, before_switch: dict[str, str]) -> Iterator[Stack]:
    """Yield a stack with a finished run of three pods on the platform of the single-pod stack.

    That stack is still up. The mirror is removed at the end, because no `destroy` deletes it. A
    later test with `dataOnDestroy: purge` gives the data root back, and a data root with such a
    folder in it is then refused.
    """
    assert before_switch
    settings = {
        **run_settings(MULTI_RUN, MAX_STEPS),
        **MIRROR,
        "platform": "e2e-single",
        "verify": "before",
    }
    stack = lab.stack("e2e-multi", "sandbox-multipod", settings)
    stack.set("podSecrets.STORE_KEY", STORE_KEY, secret=True)
    stack.preview()
    stack.up()
    lab.wait_done(MULTI_RUN)
    yield stack
    shutil.rmtree(lab.cluster.data_root / "mirror")


def test_single_pod_dataset_job_is_complete(lab: Lab, single: Stack) -> None:
    assert single
    job = lab.get("job", "download-tiny-shakespeare")
    conditions = {c["type"]: c["status"] for c in job["status"]["conditions"]}
    assert conditions["Complete"] == "True"


def test_single_pod_trains_with_two_processes_and_the_loss_falls(lab: Lab, single: Stack) -> None:
    """One pod trains with two ranks that share the batch evenly, and the loss falls."""
    assert single
    log = lab.kubectl("logs", "job/train-singlepod")
    assert "1 node(s) x 2 rank(s)" in log
    assert "6+6 over 2 rank(s)" in log
    losses = lab.losses(SINGLE_RUN)
    assert sorted(losses) == list(range(1, MAX_STEPS + 1))
    assert losses[1] - losses[MAX_STEPS] >= 0.5, losses


def test_checkpoint_lies_on_the_host_path(lab: Lab, single: Stack) -> None:
    """The last checkpoint, with its manifest and its weights, is in the folder on the host."""
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
    text = people_run(lab, single, single.output("sampleCommand"))
    assert len(text.strip()) > 40, text


@pytest.mark.slow
def test_sample_command_leaves_no_pod_when_its_output_is_cut(lab: Lab, single: Stack) -> None:
    """The sample command removes its pod even if `| head` ends it early.

    Otherwise the next sample and `destroy` would fail because of the pod.
    """
    people_run(lab, single, f"{single.output('sampleCommand')} | head -c 1")
    wait_for_pods_of_commands_to_go(lab)


def wait_for_pods_of_commands_to_go(lab: Lab) -> None:
    """Wait until no pod of a command is left; a command only asks for the end of its pod."""
    wait_for(
        "the pod to go",
        lambda: "disttrain.dev/task"
        not in lab.kubectl("get", "pod", "-o", "jsonpath={.items[*].metadata.labels}"),
        300,
    )


def test_second_stack_adds_its_run_and_touches_nothing_else(
    lab: Lab, before_switch: dict[str, str], multi: Stack
) -> None:
    """`up` of the second stack adds the objects of its run, and replaces or deletes no other
    object.
    """
    assert multi
    after = everything(lab)
    new = {name for name in set(after) - set(before_switch) if not name.startswith("ConfigMap/")}
    assert new == {
        f"Job/{MULTI_JOB}",
        "StatefulSet/train-multipod",
        "Service/train-mp-headless",
    }
    assert {name: after.get(name) for name in before_switch} == before_switch


def test_platform_with_another_stacks_run_is_not_destroyed(
    lab: Lab, single: Stack, multi: Stack
) -> None:
    """`destroy` of a platform on which another stack has a run is refused before anything is
    deleted.

    The message names the command that destroys the run.
    """
    assert multi
    before = everything(lab)
    with pytest.raises(PulumiFailedError, match=r"pulumi destroy --stack \S*e2e-multi"):
        single.destroy()
    assert everything(lab) == before
    assert set(changes(single.up("--expect-no-changes"))) == {"unchanged"}


def test_rank_i_runs_on_pod_i_and_meets_by_the_headless_name(lab: Lab, multi: Stack) -> None:
    """The pod of each index has the rank of that index, and all meet by the headless Service's
    name.
    """
    assert multi
    for rank in range(3):
        pod = lab.get("pod", f"train-multipod-{rank}")
        log = lab.kubectl("logs", f"train-multipod-{rank}")
        assert f"[node {rank}] round 1: 3 node(s) x 1 rank(s)" in log
        environment = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
        assert environment["PET_MASTER_ADDR"].startswith("train-multipod-0.train-mp-headless")
        assert environment["PET_NNODES"] == "3"


def test_both_topologies_end_with_the_same_loss(lab: Lab, multi: Stack) -> None:
    """A run of two ranks in one pod and a run of three pods end with the same loss."""
    assert multi
    single_losses, multi_losses = lab.losses(SINGLE_RUN), lab.losses(MULTI_RUN)
    assert sorted(single_losses) == sorted(multi_losses)
    last = single_losses[MAX_STEPS]
    assert multi_losses[MAX_STEPS] == pytest.approx(last, rel=1e-5)


def test_status_shows_the_node_and_how_far_runs_are(lab: Lab, single: Stack, multi: Stack) -> None:
    both = {"e2e-single": "finished", "e2e-multi": "finished"}
    # A pod says so only when all ranks have ended, which is after rank 0 has written the marker.
    wait_for("the end of both", lambda: states(lab, single) == both, 120)
    screen = people_run(lab, multi, f"./disttrain status --stack {multi.name}").splitlines()
    assert screen[0] == "1 node, Ready; no GPUs offered"
    assert re.match(
        rf"  storage: claim disttrain-pvc\S* of namespace {NAMESPACE} is Bound: \S+, "
        rf"folder {re.escape(str(lab.cluster.data_root))}$",
        screen[1],
    )
    assert screen[2].split()[:3] == ["STACK", "STATE", "STEP"]
    rows = [line.split()[:3] for line in screen if f"{MAX_STEPS}/{MAX_STEPS}" in line]
    assert sorted(rows) == [
        ["e2e-multi", "finished", f"{MAX_STEPS}/{MAX_STEPS}"],
        ["e2e-single", "finished", f"{MAX_STEPS}/{MAX_STEPS}"],
    ]


def test_verify_has_evidence_for_three_pods(lab: Lab, multi: Stack) -> None:
    """`./disttrain verify` shows evidence for all three pods and their network, volume and
    checkpoint.
    """
    screen = people_run(lab, multi, f"./disttrain verify --stack {multi.name}")
    for words in (
        "train-multipod-2 on ",
        "gloo by TCP over eth0",
        "the sums of 3 ranks by gloo were right: 4 KiB in ",
        "3 nodes see each other's new files: write and fsync at most ",
        f"finished: step {MAX_STEPS}",
        f"step {MAX_STEPS}, ",
        "have their sha256",
        f"verify: run {MULTI_RUN}: 14 checks in ",
    ):
        assert words in screen, screen
    wait_for_pods_of_commands_to_go(lab)


def test_each_node_has_a_smoke_test(lab: Lab, multi: Stack) -> None:
    """`./disttrain verify --nodes` computes something on each node."""
    screen = people_run(lab, multi, f"./disttrain verify --nodes --stack {multi.name}")
    assert re.search(
        r"^ok +node \S+ +no GPUs offered; torch 2\S+ computes on the CPU$", screen, re.M
    )
    assert f"verify: namespace {NAMESPACE}: 1 check in " in screen
    wait_for_pods_of_commands_to_go(lab)


def test_pods_offer_metrics_at_the_annotated_port(lab: Lab, multi: Stack) -> None:
    """Each pod shows its metrics at the port and path of its annotations, even after the run has
    finished.

    Only rank 0's pod shows the step. The test reads the metrics through the API server.
    """
    assert multi
    for rank in range(3):
        name = f"train-multipod-{rank}"
        marks = lab.get("pod", name)["metadata"]["annotations"]
        place = f"{name}:{marks['prometheus.io/port']}/proxy{marks['prometheus.io/path']}"
        text = lab.kubectl("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{place}")
        about = f'run="{MULTI_RUN}",node_rank="{rank}"'
        assert f"disttrain_finished{{{about}}} 1\n" in text
        assert f"disttrain_ranks_configured{{{about}}} 3\n" in text
        assert (f"disttrain_step{{{about}}} {MAX_STEPS}\n" in text) == (rank == 0)


def test_checkpoints_of_three_pods_reach_the_mirror(lab: Lab, multi: Stack) -> None:
    """The mirror gets the same files of a checkpoint as the volume, with the part of each rank."""
    assert multi
    checkpoint = Path(MULTI_RUN, "checkpoints", f"step-{MAX_STEPS:08d}")
    made, copied = lab.run_dir(MULTI_RUN).parent / checkpoint, lab.cluster.data_root / "mirror"
    wait_for("the copy's last file", (copied / checkpoint / "manifest.json").exists, 120)
    files = {path.name: path.read_bytes() for path in made.iterdir()}
    assert {path.name: path.read_bytes() for path in (copied / checkpoint).iterdir()} == files
    assert len([name for name in files if name.endswith(".bin")]) >= 3  # one part for each rank


def test_secret_variables_reach_the_pods_by_a_secret(lab: Lab, multi: Stack) -> None:
    """Variables in `podSecrets` reach the pods, and are in plain text neither in objects nor in the
    state.
    """
    for rank in range(3):
        pod = f"train-multipod-{rank}"
        assert lab.kubectl("exec", pod, "--", "printenv", "STORE_KEY").strip() == STORE_KEY
        assert STORE_KEY not in json.dumps(lab.get("pod", pod))
    assert STORE_KEY not in json.dumps(lab.get("statefulset", "train-multipod"))
    assert STORE_KEY not in multi.export()


def test_proxy_values_are_in_every_pod(lab: Lab, multi: Stack) -> None:
    """All containers of all pods get the proxy's settings, in upper and lower case.

    `noProxy` always has the cluster's own names and this machine's addresses.
    """
    assert multi
    pods = lab.get("pod")["items"]
    assert len(pods) >= 4  # three of the ranks and one of the data set
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


@pytest.mark.slow
def test_finished_stateful_set_is_not_restarted(lab: Lab, multi: Stack) -> None:
    """The pods of a finished run stay ready, and their containers are not restarted."""
    assert multi
    first = restarts(lab)
    wait_for("three ready pods", lambda: ready_pods(lab) == 3, 300)
    pauses = iter(range(40))  # for 20 s, because a crash loop restarts a container within 10 s
    wait_for("the end of the look", lambda: next(pauses, None) is None or None, 300)
    assert restarts(lab) == first
    assert ready_pods(lab) == 3


def restarts(lab: Lab) -> dict[str, int]:
    """Return how often the container of each pod of the second stack was restarted, by the pod's
    name.
    """
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


@pytest.mark.slow
def test_image_that_vanished_is_seen_by_up_and_imported_again(
    lab: Lab, single: Stack, multi: Stack
) -> None:
    """The preview sees that the image is no longer on the node, and `up` imports it again."""
    assert multi
    image = single.output("image")
    lab.ctr("images", "rm", "--sync", image)
    with pytest.raises(PulumiFailedError, match="image-ensure"):
        single.preview("--expect-no-changes")
    output = single.up()
    assert f"{image} is not in containerd's namespace 'k8s.io'" in output
    assert changes(output).keys() == {"updated", "unchanged"}
    assert changes(output)["updated"] == 1
    assert image in lab.ctr("images", "ls", "-q").split()
    assert set(changes(single.up("--expect-no-changes"))) == {"unchanged"}


@pytest.mark.slow
def test_killed_pod_comes_back_and_the_run_finishes_from_its_checkpoint(
    lab: Lab, multi: Stack
) -> None:
    """A pod that was killed comes back, and the run goes on from a checkpoint and leaves no step
    out.
    """
    run_name, steps = "e2e-killed", LONG
    multi.set_all(run_settings(run_name, steps))
    multi.up()
    old = lab.get("pod", "train-multipod-1")["metadata"]["uid"]
    wait_for_first_checkpoint(lab, run_name)
    lab.kubectl("delete", "pod", "train-multipod-1", "--grace-period=0", "--force", "--wait=false")
    assert not (lab.run_dir(run_name) / "done.json").exists(), "killed too late to prove anything"
    lab.wait_done(run_name)
    assert lab.get("pod", "train-multipod-1")["metadata"]["uid"] != old
    assert sorted(lab.losses(run_name)) == list(range(1, steps + 1))
    log = lab.kubectl("logs", "train-multipod-0")
    resumed = re.search(r"continuing after step (\d+)", log)
    assert resumed, log[-3000:]
    assert int(resumed[1]) > 0


@pytest.mark.slow
def test_indexed_job_trains_the_same_bits_and_ends_by_itself(lab: Lab, multi: Stack) -> None:
    """An indexed Job of which a pod is killed has the same weights as the StatefulSet of the test
    before.

    Unlike the pods of a StatefulSet, those of the Job end when the run is finished.
    """
    run_name, steps = "e2e-indexed", LONG
    multi.set_all({"topology": "indexed-job", **run_settings(run_name, steps)})
    multi.up()
    assert not {"StatefulSet/train-multipod", "Service/train-mp-headless"} & set(everything(lab))
    old = next(pod for pod in training_pods(lab, multi) if "train-indexed-1-" in pod)
    wait_for_first_checkpoint(lab, run_name)
    lab.kubectl("delete", old, "--grace-period=0", "--force", "--wait=false")
    assert not (lab.run_dir(run_name) / "done.json").exists(), "killed too late to prove anything"
    lab.wait_done(run_name)
    assert sorted(lab.losses(run_name)) == list(range(1, steps + 1))
    assert weights(lab, run_name, steps) == weights(lab, "e2e-killed", steps) != {}

    def is_complete() -> bool:
        conditions = lab.get("job", "train-indexed")["status"].get("conditions", [])
        return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

    wait_for("the Job to be complete", is_complete, 120)
    assert training_pods(lab, multi) == []  # otherwise one would hold its GPUs
    assert states(lab, multi)["e2e-multi"] == "finished"
    assert set(changes(multi.up("--expect-no-changes"))) == {"unchanged"}


@pytest.mark.slow
def test_topology_setting_inside_one_stack_replaces_only_the_training(
    lab: Lab, multi: Stack
) -> None:
    """If a stack's `topology` changes, `up` replaces the training and touches nothing else.

    Two runs of the same topology need different names (`instance`), and `up` says so.
    """
    before = everything(lab)
    of_the_old = {"Job/train-indexed", "Service/train-indexed-headless"}
    assert of_the_old <= set(before)
    multi.set_all({"topology": "single-pod", "processesPerPod": "3"})
    with pytest.raises(PulumiFailedError, match="pulumi config set instance"):
        multi.up()  # refused: the other stack has a Job of that name
    multi.set("instance", "b")
    multi.up()
    after = everything(lab)
    assert "Job/train-singlepod-b" in after
    assert not of_the_old & set(after)
    assert {n: u for n, u in after.items() if n in before} == {
        n: u for n, u in before.items() if n in after
    }


@pytest.mark.slow
def test_deleted_single_pod_saves_comes_back_and_loses_no_step(lab: Lab, multi: Stack) -> None:
    """A pod that is deleted saves first; the next one loses no step and makes none twice."""
    run_name, steps = "e2e-deleted", LONG  # the stack's topology is single-pod by now
    multi.set_all(run_settings(run_name, steps))
    multi.up()
    (old,) = training_pods(lab, multi)
    wait_for("some steps", lambda: len(lab.losses(run_name)) > 20, 120, AT_ONCE_SECONDS)
    lab.kubectl("delete", old, "--wait=false")
    assert not (lab.run_dir(run_name) / "done.json").exists(), "deleted too late to prove anything"
    lab.wait_done(run_name)
    # The new pod ends soon after the marker, perhaps before it is asked for.
    (new,) = (pod for pod in training_pods(lab, multi, also_ended=True) if pod != old)
    assert re.search(r"continuing after step \d+", lab.kubectl("logs", new))
    written = [point["step"] for point in train_points(lab.run_dir(run_name))]
    assert written == list(range(1, steps + 1))  # none lost, none done twice


def test_run_that_is_replaced_saves_and_its_next_up_resumes_it(
    lab: Lab, single: Stack, multi: Stack
) -> None:
    """`up` of another run lets the first run save and suspends it, and its own `up` resumes it.

    This is `whenBusy: replace`, the default. With `whenBusy: refuse` the other run is refused.
    """
    name = "e2e-replaced"
    single.set_all(run_settings(name, ENDLESS))
    single.up()
    wait_for("some steps", lambda: len(lab.losses(name)) > 20, 120)
    # It is called saving while it waits for a save, and quiet if no step came for some seconds.
    wait_for("the training", lambda: states(lab, single)["e2e-single"] == "training", 120)
    multi.set_all(run_settings("e2e-second", 40))
    multi.set("whenBusy", "refuse")
    with pytest.raises(PulumiFailedError, match="whenBusy"):
        multi.up()
    assert training_pods(lab, single)
    multi.set("whenBusy", None)
    output = multi.up()
    assert "is asked to save, and is suspended" in output
    assert training_pods(lab, single) == []
    saved = max(lab.losses(name))
    assert states(lab, single)["e2e-single"] == "suspended"
    lab.wait_done("e2e-second")
    output = single.up()
    assert "was suspended and is resumed" in output
    wait_for("further steps", lambda: max(lab.losses(name)) > saved, 120)
    written = [point["step"] for point in train_points(lab.run_dir(name))]
    assert written == list(range(1, len(written) + 1))  # none lost, none done twice
    assert set(changes(single.up("--expect-no-changes"))) == {"unchanged"}


@pytest.mark.slow
def test_stopped_run_has_saved_and_goes_on_where_it_was(lab: Lab, single: Stack) -> None:
    """`stop` lets a run save, `resume` brings it back at that step, and `extend` gives it more
    steps.

    `verify: after`, `shell` and `verify --restart` work on the run too. No step is lost or made
    twice.
    """
    name, steps = "e2e-stopped", ENDLESS
    single.set_all({**run_settings(name, steps), "verify": "after"})
    shown = single.up()
    assert "every rank has stepped: train-singlepod-" in shown, shown
    assert f"verify: run {name}: 14 checks in " in shown, shown
    wait_for("some steps", lambda: len(lab.losses(name)) > 20, 120)
    beside = "--rank 1 -- sh -c 'echo rank $RANK of $WORLD_SIZE'"
    said = people_run(lab, single, f"./disttrain shell --stack {single.name} {beside}")
    assert said == "rank 1 of 2\n"
    said = people_run(lab, single, f"./disttrain stop --stack {single.name}")
    saved = max(lab.losses(name))
    assert f"it has saved step {saved}." in said
    assert training_pods(lab, single) == []
    assert states(lab, single)["e2e-single"] == "stopped"
    shown = people_run(lab, single, f"./disttrain status --stack {single.name}")
    assert f"it has saved step {saved}; ./disttrain resume brings it back" in shown
    again = people_run(lab, single, f"./disttrain stop --stack {single.name}")
    assert again == "Job train-singlepod is stopped already\n"
    people_run(lab, single, f"./disttrain resume --stack {single.name}")
    wait_for("further steps", lambda: max(lab.losses(name)) > saved, 120)
    # The step is on the volume before the kubelet has seen it and called the pod ready.
    lab.kubectl("wait", "--for=condition=Ready", "--timeout=120s", *training_pods(lab, single))
    found = json.loads(
        people_run(lab, single, f"./disttrain verify --restart --json --stack {single.name}")
    )
    assert "was deleted at step" in found["checks"][-1]["evidence"]
    longer = f"--steps {steps + 1000} --config-file {single.settings_file} --yes"
    people_run(lab, single, f"./disttrain extend --stack {single.name} {longer}")
    assert single.output("maxSteps") == str(steps + 1000)
    before = max(lab.losses(name))
    wait_for("steps after it", lambda: max(lab.losses(name)) > before, 120)
    written = [point["step"] for point in train_points(lab.run_dir(name))]
    assert written == list(range(1, len(written) + 1))  # none lost, none done twice


@pytest.mark.slow
def test_dashboard_shows_a_living_run_and_leaves_no_pod(
    lab: Lab, single: Stack, tmp_path: Path
) -> None:
    """In a browser, the dashboard's page shows a run that trains, and updates by itself.

    The page loads nothing from other hosts. One pod serves all its requests, and is gone
    afterwards.
    """
    name = "shakespeare"
    rare = {
        "run.checkpoint.interval": "400"
    }  # otherwise the removal of an old checkpoint may end a sample
    often = {"run.eval.interval": "100", "run.eval.max_tokens": "4096"}
    single.set_all({**run_settings(name, ENDLESS, **SPARES), **often, **rare})
    single.up()
    wait_for("a checkpoint", lambda: list((lab.run_dir(name) / "checkpoints").glob("step-*")), 120)
    with Dashboard(single, tmp_path) as page, browser() as seen:
        seen.open(page.address)
        seen.wait("the run", lambda: f"{name}\n● training" in seen.text("#run .title"), 120)
        first = step_shown(seen)
        assert first in lab.losses(name)
        seen.wait("a run that only the volume has", lambda: SINGLE_RUN in seen.text("#runs"))
        seen.wait("further steps", lambda: step_shown(seen) > first)
        seen.wait("the speed", lambda: seen.label("#speed-chart"))
        seen.wait("validation", lambda: "validation" in seen.label("#loss-chart"), 120)
        end = re.search(r"to ([\d,]+)\. At the end: training (\S+)", seen.label("#loss-chart"))
        assert end
        assert lab.losses(name)[int(end[1].replace(",", ""))] == pytest.approx(float(end[2]), 1e-3)
        (pod,) = training_pods(lab, single)
        seen.wait("two ranks", lambda: seen.text("#ranks tbody").count("● Ready") == 2)
        assert seen.text("#ranks tbody").count(pod.removeprefix("pod/")) == 2
        seen.wait("goodput", lambda: "went into steps that count" in seen.text("#goodput"))
        step = re.compile(rf"rank 0\s+step \d+/{ENDLESS}")
        seen.wait("its lines", lambda: step.search(seen.text("#lines")))
        seen.click("#write")
        seen.wait("a sample", lambda: len(seen.text("#sample pre")) > 100, 300)
        seen.open(f"{page.address}#run=volume.{SINGLE_RUN}")
        seen.wait("the other run", lambda: f"{SINGLE_RUN}\n✓ finished" in seen.text("#run .title"))
        seen.wait("its curve", lambda: f"to {MAX_STEPS}" in seen.label("#loss-chart"))
        seen.wait("its ranks", lambda: "The run has no pods now." in seen.text("#ranks"))
        assert seen.complaints() == []
        assert seen.hosts() == {page.address.split("/")[2]}
        pods = ("get", "pod", "-l", "disttrain.dev/task=dashboard", "-o", "name")
        assert len(lab.kubectl(*pods).split()) == 1  # one pod for all requests
        assert page.end() == 143, page.said()
        wait_for("its pod to be gone", lambda: not lab.kubectl(*pods), 300)


@pytest.mark.in_depth
def test_tensorboard_shows_all_runs_and_leaves_no_pod(lab: Lab, single: Stack) -> None:
    """`./disttrain tensorboard` shows all runs, also one that is over, and its pod is gone
    afterwards.
    """
    command = ["./disttrain", "tensorboard", "--stack", single.name, "--port", "0"]
    pods = ("get", "pod", "-l", "disttrain.dev/task=tensorboard", "-o", "name")
    with subprocess.Popen(
        command, cwd=single.project, env=single.environment, stdout=subprocess.PIPE, text=True
    ) as board:
        assert board.stdout
        said = list[str]()
        while not said or re.match(r"\d+ s: waiting for pod ", said[-1]):
            said.append(board.stdout.readline())
        print("".join(said))
        address = r"TensorBoard is at (http://127.0.0.1:\d+/); Ctrl-C ends it\n"
        found = re.fullmatch(address, said[-1])
        assert found, said
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def has_run() -> bool:
            with direct.open(f"{found[1]}data/runs", timeout=60) as answer:
                return f"{SINGLE_RUN}/tensorboard" in json.loads(answer.read())

        try:
            wait_for("the run that is over", has_run, 120)
            assert len(lab.kubectl(*pods).split()) == 1
        finally:  # also after a failure, because leaving the block waits for the command's end
            board.send_signal(signal.SIGINT)
        assert board.wait(120) == 130
    wait_for("its pod to be gone", lambda: not lab.kubectl(*pods), 300)


def step_shown(seen: Browser) -> int:
    """Return the step that the page shows in the head of the run."""
    return int(seen.text("#numbers dd b").replace(",", ""))


def test_destroy_leaves_no_object_and_keeps_the_data(lab: Lab, single: Stack, multi: Stack) -> None:
    """`destroy` of both stacks deletes all their objects, and keeps the runs and data sets on the
    host.
    """
    multi.destroy()
    single.destroy()
    found = set(lab.uids("namespace", "persistentvolume"))
    assert not {name for name in found if NAMESPACE in name}
    assert json.loads(multi.export())["deployment"].get("resources", []) == []
    assert (lab.run_dir(SINGLE_RUN) / "metrics.jsonl").exists()
    assert (lab.run_dir(MULTI_RUN) / "done.json").exists()
    assert list(lab.cluster.data_root.glob("datasets/*/train.bin"))


@pytest.mark.slow
def test_up_after_destroy_binds_the_volume_again_and_resumes_the_run(
    lab: Lab, single: Stack
) -> None:
    """After `destroy`, `up` with more steps binds the volume again and resumes the run after its
    last step.
    """
    metrics = lab.run_dir(SINGLE_RUN) / "metrics.jsonl"
    before = metrics.read_text()
    further = MAX_STEPS + 20
    single.set_all(run_settings(SINGLE_RUN, further))
    single.up()
    assert lab.claim()["status"]["phase"] == "Bound"
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
def too_little_text(lab: Lab) -> Iterator[Stack]:
    settings = {**run_settings("e2e-wrong", 10), "datasetOptions.val_tokens": str(10**9)}
    stack = lab.stack("e2e-wrong", "sandbox", {**settings, "datasetName": "too-little-text"})
    yield stack
    stack.destroy()


@pytest.mark.slow
def test_wrong_dataset_fails_up_with_the_reason(lab: Lab, too_little_text: Stack) -> None:
    """If a data set cannot be prepared, `up` fails with the reason and leaves no data set."""
    with pytest.raises(PulumiFailedError) as failure:
        too_little_text.up()
    assert "val_tokens" in str(failure.value)
    assert f"{10**9:,}" in str(failure.value)
    assert not (lab.cluster.data_root / "datasets" / "too-little-text").exists()
