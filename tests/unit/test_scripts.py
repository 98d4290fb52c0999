"""The scripts for the host, run for real; where they call kubectl, a stub answers."""

import os
import re
import stat
import subprocess
import time
from pathlib import Path

import pytest

from infra.shell_program import assemble_program
from tests.unit.run_script import SCRIPTS, run

KUBECTL_STUB = """#!/bin/sh
# Notes its arguments; answers with the file named after the first word of the request that fits.
echo "$*" >>"{folder}/calls"
case "$*" in
  *" logs "*) cat "{folder}/logs" ;;
  *"get pod -o name"*) echo pod/the-pod ;;
  *"go-template="*) cat "{folder}/look" ;;
  *"get namespace"*) cat "{folder}/namespace" ;;
  *" get pvc "*) cat "{folder}/claim" ;;
  *"get pv "*) cat "{folder}/volume" ;;
  *" get "*) cat "{folder}/found" ;;
esac
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder with a kubectl that answers from files in it."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL_STUB.format(folder=tmp_path))
    kubectl.chmod(0o755)
    for name in ("look", "logs", "namespace", "claim", "volume", "found", "calls"):
        (tmp_path / name).write_text("")
    return tmp_path


def wait(cluster: Path, kind: str = "StatefulSet", **changes: str) -> tuple[int, str]:
    variables = {
        "KUBECTL": str(cluster / "kubectl"),
        "NAMESPACE": "disttrain",
        "STACK": "dev",
        "KIND": kind,
        "NAME": "train",
        "REVISION": "r1",
        "PODS": "2",
        "TIMEOUT_SECONDS": "1",
    }
    done = run("await-training.sh", "create", **{**variables, **changes})
    return done.returncode, done.stdout + done.stderr


READY = "P|train-{}|Running|True|0|||\n"


def test_wait_ends_when_all_pods_are_ready(cluster: Path) -> None:
    (cluster / "look").write_text("W|train|\n" + READY.format(0) + READY.format(1))
    code, output = wait(cluster)
    assert code == 0, output
    assert "all ranks have stepped: 2 of 2 pods ready" in output


def test_wait_ends_when_the_job_has_finished(cluster: Path) -> None:
    (cluster / "look").write_text("W|train|Complete|\nP|train-x|Succeeded|False|0||0||\n")
    code, output = wait(cluster, "Job", PODS="1")
    assert code == 0, output
    assert "Job train has finished" in output


def test_wait_reports_a_failed_job_with_the_last_lines(cluster: Path) -> None:
    message = "PodFailurePolicy: Container trainer failed with exit code 78"
    (cluster / "look").write_text(f"W|train|Failed|{message}\nP|train-x|Failed|False|0||78||\n")
    (cluster / "logs").write_text("disk full: 12 bytes left\n")
    code, output = wait(cluster, "Job", PODS="1")
    assert code == 1
    assert f"training failed: Job train failed: {message}" in output
    assert "disk full: 12 bytes left" in output


def test_wait_gives_up_at_once_on_an_exit_code_that_no_retry_mends(cluster: Path) -> None:
    (cluster / "look").write_text("W|train|\nP|train-0|Running|False|1|||78|\n" + READY.format(1))
    start = time.monotonic()
    code, output = wait(cluster, TIMEOUT_SECONDS="30")
    assert code == 1
    assert "pod train-0 ended with exit code 78" in output
    assert time.monotonic() - start < 10


def test_wait_gives_up_on_a_pod_that_starts_again_and_again(cluster: Path) -> None:
    (cluster / "look").write_text("W|train|\nP|train-0|Running|False|3|CrashLoopBackOff||75|\n")
    code, output = wait(cluster)
    assert code == 1
    assert "pod train-0 was started 4 times" in output


def test_wait_is_bounded_and_says_what_for_and_why(cluster: Path) -> None:
    why = 'Unschedulable: "0/1 nodes are available: 1 Insufficient nvidia.com/gpu | no"'
    (cluster / "look").write_text(f"W|train|\nP|train-0|Pending||0||||{why}\n")
    code, output = wait(cluster)
    assert code == 1
    assert "waited 1 s (trainingTimeoutSeconds) for 2 ready pods of StatefulSet train" in output
    assert why in output


def test_wait_bears_an_image_that_cannot_be_had_only_for_a_while(cluster: Path) -> None:
    (cluster / "look").write_text('W|train|\nP|train-0|Pending|False|0|ErrImagePull|||"no host"\n')
    script = (SCRIPTS / "await-training.sh").read_text()
    quick = re.sub(r"STUCK_SECONDS=\d+", "STUCK_SECONDS=1", script)
    variables = {"KUBECTL": str(cluster / "kubectl"), "NAMESPACE": "n", "STACK": "s"}
    more = {"KIND": "Job", "NAME": "t", "REVISION": "r", "PODS": "1", "TIMEOUT_SECONDS": "30"}
    program = assemble_program(quick, variables | more, None, "")
    done = subprocess.run(
        ["/bin/sh", "-s", "--", "create"],
        input=program,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert 'training failed: pod train-0: ErrImagePull "no host"' in done.stdout


def test_wait_prints_no_line_longer_than_the_provider_can_take(cluster: Path) -> None:
    (cluster / "look").write_text(f"W|train|\nP|train-0|Pending||0||||{'x' * 70_000}\n")
    (cluster / "logs").write_text("y" * 70_000 + "\n")
    _, output = wait(cluster)
    assert max(len(line) for line in output.splitlines()) < 1000


def guard(cluster: Path, owner: str) -> subprocess.CompletedProcess[str]:
    (cluster / "namespace").write_text(owner)
    variables = {"KUBECTL": str(cluster / "kubectl"), "NAMESPACE": "disttrain", "STACK": "dev"}
    more = {"KIND": "Job", "NAME": "t", "REVISION": "r", "PODS": "1", "TIMEOUT_SECONDS": "30"}
    return run("await-training.sh", "delete", **variables, **more)


@pytest.mark.parametrize("owner", ["dev", ""])
def test_destroy_goes_on_when_no_other_stack_is_in_force(cluster: Path, owner: str) -> None:
    assert guard(cluster, owner).returncode == 0


def test_destroy_is_refused_while_another_stack_is_in_force(cluster: Path) -> None:
    done = guard(cluster, "multipod")
    assert done.returncode == 1
    assert "stack multipod is in force" in done.stderr
    assert "pulumi destroy --stack multipod" in done.stderr


def test_destroy_goes_on_when_the_cluster_is_gone(cluster: Path) -> None:
    (cluster / "kubectl").write_text("#!/bin/sh\necho 'connection refused' >&2\nexit 1\n")
    done = guard(cluster, "multipod")
    assert done.returncode == 0
    assert "connection refused" in done.stdout


def hand_over(cluster: Path) -> tuple[int, str, str]:
    done = run(
        "handover.sh",
        "create",
        KUBECTL=str(cluster / "kubectl"),
        NAMESPACE="disttrain",
        STACK="multipod",
        TRAINING_REVISION="t1",
        DATASET_REVISION="d1",
        VOLUME_NAME="volume-1",
        CLAIM_NAME="disttrain-pvc",
        GRACE_SECONDS="120",
    )
    return done.returncode, done.stdout + done.stderr, (cluster / "calls").read_text()


def test_handover_deletes_nothing_where_nothing_is(cluster: Path) -> None:
    code, output, calls = hand_over(cluster)
    assert code == 0, output
    assert " delete " not in calls


def test_handover_ends_other_trainings_and_waits_for_their_pods(cluster: Path) -> None:
    (cluster / "found").write_text("job.batch/train-singlepod\n")
    code, output, calls = hand_over(cluster)
    assert code == 0, output
    deletes = [line for line in calls.splitlines() if " delete " in line]
    assert len(deletes) == 3
    assert all("--cascade=foreground" in line and "--timeout=180s" in line for line in deletes)
    assert any("component=training,disttrain.dev/stack!=multipod" in line for line in deletes)
    assert any("component=training,disttrain.dev/revision!=t1" in line for line in deletes)
    assert any("component=dataset,disttrain.dev/revision!=d1" in line for line in deletes)


def test_handover_refuses_another_stacks_claim_on_another_volume(cluster: Path) -> None:
    (cluster / "claim").write_text("volume-2|dev")
    code, output, calls = hand_over(cluster)
    assert code == 1
    assert "belongs to stack dev" in output
    assert " delete " not in calls


@pytest.mark.parametrize("claim", ["volume-1|dev", "volume-2|multipod", ""])
def test_handover_takes_the_same_volume_and_its_own_claim(cluster: Path, claim: str) -> None:
    (cluster / "claim").write_text(claim)
    assert hand_over(cluster)[0] == 0


def test_handover_frees_a_volume_whose_claim_is_gone(cluster: Path) -> None:
    (cluster / "volume").write_text("Released")
    _, _, calls = hand_over(cluster)
    assert "patch pv volume-1 --type=json" in calls
    (cluster / "volume").write_text("Bound")
    (cluster / "calls").write_text("")
    assert "patch" not in hand_over(cluster)[2]


# --- scripts of the host ---


def test_data_root_is_made_for_the_trainers_user_and_never_removed(tmp_path: Path) -> None:
    root = tmp_path / "data"
    for _ in range(2):
        done = run("data-root.sh", "create", DATA_ROOT=str(root))
        assert done.returncode == 0, done.stderr
    for folder in (root, root / "datasets" / ".incoming", root / "runs"):
        info = folder.stat()
        assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (1000, 1000, 0o755)
    (root / "runs" / "checkpoint").write_text("precious")
    assert "kept" in run("data-root.sh", "delete", DATA_ROOT=str(root)).stdout
    assert (root / "runs" / "checkpoint").read_text() == "precious"


def test_data_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/etc")
    for name in ("file", "link"):
        done = run("data-root.sh", "create", DATA_ROOT=str(tmp_path / name))
        assert done.returncode == 1
        assert "is not a folder" in done.stderr


def test_data_set_file_is_copied_once_and_removed(tmp_path: Path) -> None:
    source, target = tmp_path / "text.txt", tmp_path / "data" / "it's here" / "abc"
    source.write_text("to be")
    paths = {"SOURCE": str(source), "TARGET": str(target)}
    assert "copied" in run("dataset-file.sh", "create", **paths).stdout
    assert target.read_text() == "to be"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert "is there" in run("dataset-file.sh", "create", **paths).stdout
    source.write_text("not to be")
    assert "copied" in run("dataset-file.sh", "create", **paths).stdout
    assert list(target.parent.iterdir()) == [target]
    assert run("dataset-file.sh", "delete", **paths).returncode == 0
    assert not target.exists()


def test_data_set_file_that_is_missing_is_named(tmp_path: Path) -> None:
    paths = {"SOURCE": str(tmp_path / "none"), "TARGET": str(tmp_path / "target")}
    done = run("dataset-file.sh", "create", **paths)
    assert done.returncode == 1
    assert f"{tmp_path}/none cannot be read" in done.stderr


def test_kubeconfig_script_names_what_is_missing() -> None:
    assert not Path("/etc/rancher/k3s/k3s.yaml").exists(), "this machine runs k3s"
    done = run("k3s-kubeconfig.sh", "create", SERVER_HOST="10.1.2.3")
    assert done.returncode == 1
    assert "/etc/rancher/k3s/k3s.yaml" in done.stderr


def test_k3s_that_is_not_ours_is_left_alone() -> None:
    assert not Path("/etc/rancher/disttrain").exists(), "this machine is a node"
    done = run(
        "k3s-install.sh",
        "delete",
        K3S_VERSION="v1.34.2+k3s1",
        POD_CIDR="10.42.0.0/16",
        SERVICE_CIDR="10.43.0.0/16",
        NAMESPACE="disttrain",
        GRACE_SECONDS="1",
    )
    assert done.returncode == 0
    assert "was not installed by this program" in done.stdout


@pytest.mark.parametrize("script", sorted(p.name for p in SCRIPTS.glob("*.sh")))
def test_scripts_name_no_action_that_they_do_not_know(script: str) -> None:
    if script == "as-root.sh":
        return  # a function for the others
    text = (SCRIPTS / script).read_text()
    names = re.findall(r'"\$\{(\w+):\?\}"', text)
    done = run(script, "explode", **dict.fromkeys(names, "x"))
    assert done.returncode == 2
    assert "unknown action explode" in done.stderr


def test_missing_variable_is_named() -> None:
    done = run("handover.sh", "create", KUBECTL="true", STACK="dev")
    assert done.returncode != 0
    assert "NAMESPACE" in done.stderr


# --- becoming root ---


def as_root(body: str, password: str, path: Path) -> subprocess.CompletedProcess[str]:
    wrapper = (SCRIPTS / "as-root.sh").read_text()
    program = assemble_program(body, {"VALUE": "it's 'quoted' $HOME"}, wrapper, password)
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run(
        ["/bin/sh", "-s", "--", "create"],
        input=program,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def fake_user(folder: Path) -> Path:
    """Programs `id` and `sudo` as an ordinary user with a password sees them."""
    (folder / "id").write_text("#!/bin/sh\necho 1000\n")
    (folder / "sudo").write_text(
        '#!/bin/sh\necho "sudo $*" >>"${0%/*}/calls"\n'
        'if [ "$1" = -A ]; then\n  [ "$("$SUDO_ASKPASS")" = "pass\'word" ] || exit 1\n'
        'fi\nshift\nunset SUDO_PASSWORD\nexec "$@"\n'
    )
    for name in ("id", "sudo"):
        (folder / name).chmod(0o755)
    return folder


BODY = 'echo "$1: $VALUE"; cat; true\n'


def test_script_gets_its_variables_as_root(tmp_path: Path) -> None:
    done = as_root(BODY, "", tmp_path)
    assert done.stdout.startswith("create: it's 'quoted' $HOME\n")


def test_sudo_gets_its_password_from_a_helper_and_never_by_argument(tmp_path: Path) -> None:
    done = as_root(BODY, "pass'word", fake_user(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("create: it's 'quoted' $HOME\n")
    assert (tmp_path / "calls").read_text() == "sudo -A true\nsudo -A sh -s -- create\n"


def test_wrong_sudo_password_fails_and_the_setting_is_named(tmp_path: Path) -> None:
    done = as_root(BODY, "wrong", fake_user(tmp_path))
    assert done.returncode != 0
    assert done.stdout == ""
    assert "sudoPassword: sudo of this host refuses it for user" in done.stderr


def test_without_a_password_sudo_must_not_ask(tmp_path: Path) -> None:
    assert as_root(BODY, "", fake_user(tmp_path)).returncode == 0
    assert (tmp_path / "calls").read_text() == "sudo -n true\nsudo -n sh -s -- create\n"


# --- every script's dry mode ---


@pytest.mark.parametrize("script", sorted(p.name for p in SCRIPTS.glob("*.sh")))
def test_script_has_a_dry_mode(script: str) -> None:
    text = (SCRIPTS / script).read_text()
    assert "DRY_RUN" in text or script == "as-root.sh"


def test_dry_data_root_changes_nothing_and_says_what_it_would(tmp_path: Path) -> None:
    root = tmp_path / "data"
    done = run("data-root.sh", "create", DATA_ROOT=str(root), DRY_RUN="1")
    assert f"would make or own: {root}/runs" in done.stdout
    assert not root.exists()


def test_dry_data_set_file_changes_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("text")
    paths = {"SOURCE": str(source), "TARGET": str(target), "DRY_RUN": "1"}
    assert run("dataset-file.sh", "create", **paths).stdout == f"would copy: {source} to {target}\n"
    assert not target.exists()
    target.write_text("text")
    assert run("dataset-file.sh", "delete", **paths).stdout == f"would remove: {target}\n"
    assert target.exists()


def test_file_that_was_sent_goes_when_it_is_in_its_place_and_may_be_missing_then(
    tmp_path: Path,
) -> None:
    source, target = tmp_path / "sent", tmp_path / "data" / "text"
    source.write_text("text")
    paths = {"SOURCE": str(source), "TARGET": str(target), "TRANSFERRED": "true"}
    assert run("dataset-file.sh", "create", **paths).returncode == 0
    assert not source.exists()
    # as after an `up` that was killed before it could note that
    assert run("dataset-file.sh", "create", **paths).stdout == f"{target} is there\n"
    assert target.read_text() == "text"
    source.write_text("text")
    assert run("dataset-file.sh", "create", **paths).returncode == 0
    assert not source.exists()
    target.unlink()
    assert "cannot be read" in run("dataset-file.sh", "create", **paths).stderr


def test_dry_handover_deletes_nothing(cluster: Path) -> None:
    (cluster / "found").write_text("job.batch/train-singlepod\n")
    (cluster / "volume").write_text("Released")
    names = ("NAMESPACE", "STACK", "TRAINING_REVISION", "DATASET_REVISION", "VOLUME_NAME")
    values = dict.fromkeys((*names, "CLAIM_NAME", "GRACE_SECONDS"), "x")
    kubectl = str(cluster / "kubectl")
    done = run("handover.sh", "create", **values, KUBECTL=kubectl, DRY_RUN="1")
    assert "would end: job.batch/train-singlepod" in done.stdout
    assert "would free: volume x" in done.stdout
    calls = (cluster / "calls").read_text()
    assert " delete " not in calls
    assert " patch " not in calls


@pytest.mark.parametrize("purge", ["", "/somewhere/else"])
def test_data_is_not_purged_unless_its_own_path_says_so(tmp_path: Path, purge: str) -> None:
    (tmp_path / "runs").mkdir()
    done = run("data-root.sh", "delete", DATA_ROOT=str(tmp_path), PURGE=purge)
    assert "are kept" in done.stdout
    assert (tmp_path / "runs").is_dir()


def test_purge_takes_only_what_is_ours(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "notes").touch()
    done = run("data-root.sh", "delete", DATA_ROOT=str(tmp_path), PURGE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
