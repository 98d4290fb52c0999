"""A webhook gets alerts about faults of real runs, and then hears that they are over.

Trainers are real processes on the CPU, with a real Prometheus with our rules, and a real
Alertmanager. The minutes of the rules are seconds here (`tests/monitoring/hurried.py`), and nothing
else of the rules is changed. `docs/monitoring.md` lists the alerts that cannot be caused this way.

These tests run as root, since they mount a small disk and make a control group. `make test-engines`
runs them; `test_alerts.py` checks the unchanged rules with every commit.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.monitoring.rules import rule_file
from infra.networks.profile import NetworkProfile
from tests.gate import Gate
from tests.monitoring.hurried import hurried
from tests.trainer.accidents import Accident
from tests.trainer.lab import Lab, checkpoints, free_port, last_step, wait_for
from tests.trainer.mirror.s3_server import KEY, SECRET, S3Server
from tests.trainer.monitoring.alertmanager import Alertmanager, Webhook
from tests.trainer.monitoring.pod import served, start_pod
from tests.trainer.monitoring.prometheus import Prometheus
from tests.trainer.monitoring.quota import quota
from tests.trainer.monitoring.told import Told
from tests.trainer.process_tree import ranks_below
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode
from trainer.watch.slow import Cause

ENDLESS = {"train__max_steps": 1_000_000, "train__decay_steps": 200}
# A pass of a step takes at least this long, so that a run leaves the processor to the others.
USUAL_SECONDS, SLOW_SECONDS = 0.1, 0.3
QUICK_SECONDS, STEADY_SECONDS = 0.02, 0.08
LIMIT_SECONDS = 300  # for what has to happen, on a machine that has much else to do
DISK_BYTES = 32 * 2**20
SAMPLES = 20  # readings, one in each second, for which nothing has to be told
# A user's own program whose loss is no number while a file exists.
OVERFLOWING = """
import math, pathlib, sys, time
for step in range(1, 1_000_000):
    loss = math.nan if pathlib.Path(sys.argv[1]).exists() else 1 + 1 / step
    print(f"step {step} loss {loss}", flush=True)
    time.sleep(0.1)
"""
# A stand-in for a program whose NCCL has found no EFA: it writes NCCL's lines. Once a
# file exists it ends, and its next start finds EFA.
FALLING_BACK = """
import os, pathlib, sys, time
from tests.trainer.transport.recorded import RECORDED
is_mended = pathlib.Path(sys.argv[1]).exists()
name = "EFA with GPUDirect" if is_mended else "EFA is not in the pod, so sockets"
path = os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))
with open(path, "w") as file:
    file.write("\\n".join(RECORDED[name][0]) + "\\n")
for step in range(1, 1_000_000):
    print(f"step {step}", flush=True)
    time.sleep(0.1)
    if pathlib.Path(sys.argv[1]).exists() != is_mended:
        sys.exit(1)
"""
EFA = NetworkProfile(name="toy-efa", transports=("efa",))


@pytest.fixture(scope="module")
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(module_lab: Lab, webhook: Webhook) -> Iterator[Prometheus]:
    """Yield a Prometheus with our rules, whose minutes are seconds here. It tells the webhook
    through Alertmanager.
    """
    alertmanager = Alertmanager(module_lab.root / "alertmanager", webhook)
    made = Prometheus(module_lab.root / "prometheus", alertmanager.port, rules=hurried(rule_file()))
    yield made
    made.close()
    alertmanager.close()


@pytest.fixture
def prometheus(server: Prometheus) -> Iterator[Prometheus]:
    """Yield this Prometheus without targets, and remove those of the test afterwards."""
    yield server
    server.forget_targets()


@pytest.fixture
def told(lab: Lab, prometheus: Prometheus, webhook: Webhook) -> Told:
    """Return the alerts of the run of this test, which has a name of its own."""
    return Told(prometheus, webhook, {"namespace": "disttrain", "run": run_name(lab)}, lab.logs)


@pytest.fixture
def settings(lab: Lab) -> Callable[..., RunConfig]:
    """Return a function that makes a run without an end, with changes of its settings."""

    def make(**changes: object) -> RunConfig:
        return lab.config(run_name=run_name(lab), **{**ENDLESS, **changes})

    return make


def program(lab: Lab, source: str, switch: Path, progress: str, run: str = "") -> RunConfig:
    """Return a run of a user's own program, which looks for the file `switch`."""
    command = [sys.executable, "-c", source, str(switch)]
    return RunConfig.from_mapping(
        {
            "run_name": run or run_name(lab),
            "data_root": str(lab.root),
            "program": {"command": command, "progress": progress},
        }
    )


def run_name(lab: Lab) -> str:
    """Return a name for the run of this test, because Prometheus still knows the runs of earlier
    tests.
    """
    return f"r-{lab.root.name.replace('_', '-')}"


def usually(folder: Path, seconds: float, ranks: int = 1) -> list[Accident]:
    """Return accidents by which each rank takes at least this long for each pass of a step."""
    made = [Accident("slow forward", r, str(folder / "usual"), seconds) for r in range(ranks)]
    made[0].begin()
    return made


def wait_for_steps(lab: Lab, config: RunConfig, count: int = 3) -> None:
    """Wait until the run has made more than `count` steps."""
    wait_for("steps", lambda: last_step(config) > count, LIMIT_SECONDS, lab)


def test_pod_that_is_lost_and_comes_again(
    lab: Lab, prometheus: Prometheus, told: Told, settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """A pod that is lost with its ranks, as with its machine, gives alerts that end when it comes
    back. The discovery still finds its address.
    """
    config, port, address = settings(), free_port(), free_port()
    slow = usually(tmp_path, QUICK_SECONDS)
    start_pod(lab, prometheus, config, 0, 2, port, accidents=slow)
    lost = start_pod(lab, prometheus, config, 1, 2, port, serves=address)
    wait_for_steps(lab, config)
    assert prometheus.wait_for(f'count(disttrain_info{{run="{config.run_name}"}}) == 2')
    told.nothing_of("DisttrainRankLost", "DisttrainSilent")
    lost.kill()
    told.firing("DisttrainRankLost")
    told.firing("DisttrainSilent", instance=f"127.0.0.1:{address}")
    start_pod(lab, prometheus, config, 1, 2, port, serves=address)
    told.resolved("DisttrainRankLost", "DisttrainSilent")


def test_rank_that_hangs_and_goes_on(
    lab: Lab, prometheus: Prometheus, told: Told, settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """A rank that hangs gives an alert that ends when it goes on."""
    config = settings(train__timeout_seconds=600)
    accidents = usually(tmp_path, QUICK_SECONDS)
    pod = start_pod(lab, prometheus, config, 0, 1, free_port(), accidents=accidents)
    wait_for_steps(lab, config)
    told.nothing_of("DisttrainNoStep")
    (rank,) = ranks_below(pod.pid)
    os.kill(rank, signal.SIGSTOP)
    told.firing("DisttrainNoStep")
    os.kill(rank, signal.SIGCONT)
    told.resolved("DisttrainNoStep")


def test_loss_that_is_no_number_ends_the_run(
    lab: Lab, prometheus: Prometheus, told: Told, settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """A loss that is no number gives an alert. The run is tried once more, given up at the same
    step, and that gives another one.
    """
    broken = Accident("not a number", 0, str(tmp_path / "broken"))
    accidents = [*usually(tmp_path, QUICK_SECONDS), broken]
    config = settings(checkpoint__interval=50)
    pod = start_pod(lab, prometheus, config, 0, 1, free_port(), accidents=accidents)
    wait_for_steps(lab, config)
    seen = f'count_over_time(disttrain_divergences_total{{run="{config.run_name}"}}[1m]) > 2'
    assert prometheus.wait_for(seen)
    told.nothing_of("DisttrainDiverged", "DisttrainRunFailed")
    broken.begin()
    told.firing("DisttrainDiverged")
    told.firing("DisttrainRunFailed")
    assert pod.wait(120) == ExitCode.FATAL
    prometheus.forget_targets()  # the pod is gone
    told.resolved("DisttrainDiverged", "DisttrainRunFailed")


def test_loss_of_a_program_is_no_number_for_a_while(
    lab: Lab, prometheus: Prometheus, told: Told, webhook: Webhook, tmp_path: Path
) -> None:
    """A program whose loss is no number for a while gives an alert for that time, and a program
    that tells no loss gives none. With our trainer a run goes on after such a loss only in float16
    on a GPU, so the test uses programs.
    """
    switch, quiet = tmp_path / "overflows", f"{run_name(lab)}-quiet"
    config = program(lab, OVERFLOWING, switch, r"step (?P<step>\d+) loss (?P<loss>\S+)")
    without_loss = program(lab, OVERFLOWING, switch, r"step (?P<step>\d+)", quiet)
    start_pod(lab, prometheus, config, 0, 1, free_port())
    start_pod(lab, prometheus, without_loss, 1, 1, free_port())
    told_of_quiet = Told(prometheus, webhook, {"run": quiet}, lab.logs)
    assert prometheus.wait_for(f'disttrain_loss{{run="{config.run_name}"}} > 0'), lab.logs()
    told.nothing_of("DisttrainLossNotANumber")
    told_of_quiet.nothing_of("DisttrainLossNotANumber")
    switch.touch()
    told.firing("DisttrainLossNotANumber")
    switch.unlink()
    told.resolved("DisttrainLossNotANumber")
    readings = f'count_over_time(disttrain_step{{run="{quiet}"}}[1m]) >= {SAMPLES}'
    assert prometheus.wait_for(readings, LIMIT_SECONDS)
    told_of_quiet.was_silent("DisttrainLossNotANumber")


def test_transport_that_falls_back_until_it_is_mended(
    lab: Lab, prometheus: Prometheus, told: Told, tmp_path: Path
) -> None:
    """Two pods whose NCCL finds no EFA give an alert that ends when they find it after a
    restart.
    """
    switch = tmp_path / "mended"
    config, port = program(lab, FALLING_BACK, switch, r"step (?P<step>\d+)"), free_port()
    told.nothing_of("DisttrainTransportFallback")
    for node in range(2):
        start_pod(lab, prometheus, config, node, 2, port, network=EFA)
    told.firing("DisttrainTransportFallback")
    switch.touch()
    told.resolved("DisttrainTransportFallback")
    as_asked = f'disttrain_transport_as_asked{{run="{config.run_name}"}}'
    assert prometheus.wait_for(f"count({as_asked} == 1) == 2", LIMIT_SECONDS), lab.logs()
    told.nothing_of("DisttrainTransportFallback")
    assert prometheus.wait_for(f"min(count_over_time({as_asked}[5s])) >= 3", LIMIT_SECONDS)
    told.was_silent("DisttrainTransportFallback")


def test_data_that_are_garbled_for_a_while(
    lab: Lab, prometheus: Prometheus, told: Told, settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """A loss that has been low for some time and rises by more than half gives an alert that ends
    when the data are right again.
    """
    garbled = Accident("garbled data", 0, str(tmp_path / "garbled"))
    accidents = [*usually(tmp_path, QUICK_SECONDS), garbled]
    config = settings()
    start_pod(lab, prometheus, config, 0, 1, free_port(), accidents=accidents)
    wait_for_steps(lab, config)
    loss = f'disttrain_loss{{run="{config.run_name}"}}'
    low = f"{loss} offset 30s < 1.2 and avg_over_time({loss}[30s]) < 1.2"
    assert prometheus.wait_for(low, LIMIT_SECONDS), lab.logs()
    told.nothing_of("DisttrainLossSpike")
    garbled.begin()
    told.firing("DisttrainLossSpike")
    garbled.end()
    told.resolved("DisttrainLossSpike")


def test_checkpoints_that_cannot_be_written_for_a_while(
    lab: Lab, prometheus: Prometheus, told: Told, settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Two saves that fail give an alert that ends with the third save, which succeeds.

    A save is begun every 320 steps. So the newest checkpoint is more than 800 steps old for the
    last 160 steps before the third one, which take twice as long as the alert has to wait.
    """
    failing = Accident("failing checkpoint", 0, str(tmp_path / "failing"))
    accidents = [*usually(tmp_path, STEADY_SECONDS), failing]
    config = settings(checkpoint__interval=400, train__micro_batch_size=12)
    start_pod(lab, prometheus, config, 0, 1, free_port(), accidents=accidents)
    wait_for("a checkpoint", lambda: any(checkpoints(config).glob("step-*")), LIMIT_SECONDS, lab)
    told.nothing_of("DisttrainCheckpointOld")
    failing.begin()
    wait_for("two failures", lambda: "failure 2 in a row" in lab.logs(), LIMIT_SECONDS, lab)
    failing.end()
    told.firing("DisttrainCheckpointOld")
    told.resolved("DisttrainCheckpointOld")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on a file system of 32 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_volume_that_gets_full_and_then_has_no_room(
    lab: Lab,
    disk: Path,
    prometheus: Prometheus,
    told: Told,
    settings: Callable[..., RunConfig],
    tmp_path: Path,
) -> None:
    """An almost full volume gives an alert that ends when room is made. Without any room the next
    checkpoint ends the run, which gives another one.
    """
    filler = disk / "filler"
    config = settings(data_root=str(disk), checkpoint__interval=50)
    accidents = usually(tmp_path, USUAL_SECONDS)
    pod = start_pod(lab, prometheus, config, 0, 1, free_port(), accidents=accidents)
    wait_for("a checkpoint", lambda: any(checkpoints(config).glob("step-*")), LIMIT_SECONDS, lab)
    told.nothing_of("DisttrainVolumeFull", "DisttrainRunFailed")
    leave_free(disk, filler, DISK_BYTES // 20)
    told.firing("DisttrainVolumeFull")
    filler.unlink()
    told.resolved("DisttrainVolumeFull")
    leave_free(disk, filler, 0)
    told.firing("DisttrainRunFailed")
    assert pod.wait(120) == ExitCode.FATAL, lab.logs()
    prometheus.forget_targets()
    told.resolved("DisttrainRunFailed")


def leave_free(disk: Path, filler: Path, free_bytes: int) -> None:
    """Fill the disk with the file `filler`, except for `free_bytes`."""

    def is_filled() -> bool:
        found = os.statvfs(disk)
        with filler.open("wb") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - free_bytes)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return False  # the run has written something meanwhile
        return True

    while not is_filled():
        pass


def test_store_of_the_mirror_that_is_away_for_a_while(
    lab: Lab, prometheus: Prometheus, told: Told, settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """A mirror whose store cannot be reached gives an alert that ends when the store is back. The
    store is a real S3 server, with a gate before it.
    """
    store, bucket = S3Server(tmp_path / "s3"), f"bucket-{uuid.uuid4().hex}"
    gate = Gate(store.address)
    store.make_bucket(bucket)
    environment = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gate.port}",
    }
    config = settings(checkpoint__interval=20, checkpoint__mirror=f"s3://{bucket}")
    accidents = usually(tmp_path, USUAL_SECONDS)
    try:
        start_pod(lab, prometheus, config, 0, 1, free_port(), more=environment, accidents=accidents)
        run = f'run="{config.run_name}"'
        assert prometheus.wait_for(f"disttrain_mirror_step{{{run}}} > 0", LIMIT_SECONDS), lab.logs()
        told.nothing_of("DisttrainMirrorBehind")
        gate.close()
        told.firing("DisttrainMirrorBehind")
        gate.open()
        told.resolved("DisttrainMirrorBehind")
    finally:
        lab.end_all()
        gate.close()
        store.close()


def test_rank_that_is_slow_for_a_while(
    lab: Lab, prometheus: Prometheus, told: Told, settings: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """A slow rank gives an alert with its cause, which ends when the rank is fast again."""
    slow = Accident("slow forward", 1, str(tmp_path / "slow"), SLOW_SECONDS)
    accidents = [*usually(tmp_path, USUAL_SECONDS, ranks=2), slow]
    config = settings()
    start_pod(lab, prometheus, config, 0, 1, free_port(), ranks=2, accidents=accidents)
    wait_for_steps(lab, config)
    told.nothing_of("DisttrainSlowRank")
    slow.begin()
    told.firing("DisttrainSlowRank", rank="1", cause=str(Cause.COMPUTE))
    slow.end()
    told.resolved("DisttrainSlowRank")


def test_pod_that_is_throttled_for_a_while(
    lab: Lab, prometheus: Prometheus, told: Told, settings: Callable[..., RunConfig]
) -> None:
    """A pod whose control group has too little CPU time gives an alert that ends without
    the limit.
    """
    large = {"n_layer": 4, "n_head": 4, "n_embd": 64, "block_size": 64, "dropout": 0.0}
    config = settings(model={**large, "bias": True}, train__timeout_seconds=120)
    port, serves = free_port(), free_port()
    start_pod(lab, prometheus, config, 0, 2, port)
    with quota(f"disttrain-alerts-{uuid.uuid4().hex[:8]}") as group:
        try:
            lab.execute_entrypoint(
                config, 1, 2, 1, port, served(prometheus, 1, serves), group.wrapper
            )
            wait_for_steps(lab, config)
            told.nothing_of("DisttrainThrottled")
            group.limit(5_000)
            told.firing("DisttrainThrottled", rank="1")
            group.limit(None)
            told.resolved("DisttrainThrottled")
        finally:
            group.limit(None)
            lab.end_all()
