"""Pods that fail one after the other are counted on the volume, whichever controller starts
them.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.program.desk import Desk
from trainer.launch.exit_codes import ExitCode
from trainer.launch.pod_failures import AFTER_FAILURE, PLACE, PodFailures
from trainer.launch.ports import free_port

REVISION = "one"
EMPTY = {"revision": REVISION, "failures": 0, "newest": "", "reason": "", "trains": False}
NO_RESTART = {"max_restarts": 0, "max_pod_failures": 2}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Yield a desk whose runs have a revision, as pods have. It ends all its processes
    afterwards.
    """
    made = Desk(tmp_path)
    made.revision = REVISION
    yield made
    made.end_all()


class Said(list[str]):
    """A list of everything that was said, which can be called to add a text."""

    def __call__(self, text: str) -> None:
        self.append(text)


def counted(folder: Path, *, revision: str = REVISION, writes: bool = True) -> PodFailures:
    """Return the count of failures as a pod that is started now finds it on the volume."""
    found = PodFailures(folder, revision, 1, writes, Said())
    found.start(lambda: "step-5")
    return found


def test_third_pod_without_progress_fails_for_good(desk: Desk) -> None:
    """A run fails for good when one pod more than `train.max_pod_failures` failed in a row. It
    stays failed: a pod that is made after that starts no rank.
    """
    config = desk.config("sh", "-c", "exit 3", train=NO_RESTART)
    codes = [desk.run(config) for _ in range(3)]
    assert codes == [ExitCode.RETRYABLE, ExitCode.RETRYABLE, ExitCode.FATAL]
    assert desk.run(config) == ExitCode.FATAL
    assert desk.log().count("round 1: ") == 3
    said = "fatal: 3 pods in a row failed without a newer checkpoint (train.max_pod_failures is 2)"
    assert desk.log().count(said) == 2
    assert "ended with exit code 3" in desk.log().splitlines()[-1]


def test_pods_of_changed_settings_are_counted_anew(desk: Desk) -> None:
    """Pods of another revision of the run are counted from zero, so that a mended run starts."""
    config = desk.config("sh", "-c", "exit 3", train={"max_restarts": 0, "max_pod_failures": 0})
    assert [desk.run(config), desk.run(config)] == [ExitCode.FATAL, ExitCode.FATAL]
    desk.revision = "two"
    mended = desk.config("true", train={"max_restarts": 0, "max_pod_failures": 0})
    assert desk.run(mended) == ExitCode.DONE


def test_start_by_a_user_is_never_counted(desk: Desk) -> None:
    """Starts outside of Kubernetes are not counted, because there only the user starts the run
    again.
    """
    desk.revision = ""
    config = desk.config("sh", "-c", "exit 3", train={"max_restarts": 0, "max_pod_failures": 0})
    assert [desk.run(config), desk.run(config)] == [ExitCode.RETRYABLE, ExitCode.RETRYABLE]
    assert not (config.run_dir / PLACE).exists()


GOES_FURTHER = """
    import os, pathlib
    folder = pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"])
    name = folder / str(len(list(folder.iterdir())))
    name.write_text("saved")
    raise SystemExit(1)
"""


def test_pods_that_bring_the_run_further_may_all_fail(desk: Desk) -> None:
    """Pods that each leave a newer checkpoint may fail as often as they like."""
    config = desk.python(GOES_FURTHER, train={"max_restarts": 0, "max_pod_failures": 1})
    assert [desk.run(config) for _ in range(4)] == [ExitCode.RETRYABLE] * 4


WAITS = """
    import time
    print("it trains", flush=True)
    time.sleep(600)
"""


def test_killed_pod_counts_and_a_preempted_one_does_not(desk: Desk) -> None:
    """A pod that is killed counts as a failure. A pod that is asked to go by SIGTERM, as by a
    preemption or a drained node, does not.
    """
    config = desk.python(WAITS, train={"max_restarts": 0, "max_pod_failures": 1})
    for times, (sign, code) in enumerate(
        [
            (signal.SIGTERM, ExitCode.PREEMPTED),
            (signal.SIGTERM, ExitCode.PREEMPTED),
            (signal.SIGKILL, -signal.SIGKILL),
            (signal.SIGKILL, -signal.SIGKILL),
        ],
        start=1,
    ):
        pod = desk.start(config)
        desk.wait_for("it trains", times=times)
        if sign == signal.SIGKILL:
            assert desk.kill(pod) == code, desk.log()
        else:
            os.kill(pod.pid, sign)
            assert pod.wait(60) == code, desk.log()
    assert desk.run(config) == ExitCode.FATAL
    assert "2 pods in a row failed" in desk.log()
    assert "it ended without a word" in desk.log()
    assert "(OOMKilled). If so, give each rank more memory (memoryLimitPerRank" in desk.log()


SAVES = """
    import os, pathlib, signal, time
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    print("it trains", flush=True)
    saved = pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"], "saved")
    while not saved.exists():
        time.sleep(0.05)
"""


def test_successor_of_saving_pod_counts_no_failure(desk: Desk) -> None:
    """A pod that was asked to go has not failed for a next pod that starts while this one still
    saves, as the launcher of an MPIJob does. Its end leaves the record of the next pod alone.
    """
    config = desk.python(SAVES, train={"max_restarts": 0, "max_pod_failures": 0})
    record = config.run_dir / PLACE
    pod = desk.start(config)
    desk.wait_for("it trains")
    assert json.loads(record.read_text())["trains"]
    os.kill(pod.pid, signal.SIGTERM)
    desk.wait("the record", lambda: not json.loads(record.read_text())["trains"])
    assert pod.poll() is None
    successor = counted(config.run_dir)
    assert successor.spent() is None
    successor.round_begins()
    (config.program_dir / "saved").touch()
    pod.wait(60)
    assert json.loads(record.read_text()) == {**EMPTY, "trains": True}


def test_pod_that_waits_for_the_others_has_not_failed(desk: Desk) -> None:
    """A pod that gives up waiting for the other nodes does not count as a failure."""
    patience = {"rendezvous_timeout_seconds": 5, "max_pod_failures": 0}
    config = desk.config("true", train=patience)
    for _ in range(2):
        assert desk.start(config, nodes=2, port=free_port()).wait(60) == ExitCode.RETRYABLE
    assert not (config.run_dir / PLACE).exists()


def test_other_nodes_hear_that_the_run_has_failed(desk: Desk) -> None:
    """The other nodes of a run that has failed for good end at once, and do not wait for node 0
    until their time limit.
    """
    config = desk.config("sh", "-c", "exit 3", train={"max_restarts": 0, "max_pod_failures": 0})
    port = free_port()
    nodes = [desk.start(config, node, 2, port=port) for node in range(2)]
    assert nodes[0].wait(60) == ExitCode.FATAL, desk.log()
    nodes[1].wait(60)
    assert desk.start(config, 1, 2, port=port).wait(60) == ExitCode.FATAL, desk.log(1)


def test_own_trainers_pods_are_counted_by_its_checkpoints(tmp_path: Path) -> None:
    """For the project's own trainer, too, failures count from the last new checkpoint on, and those
    of another revision do not count.
    """
    first = counted(tmp_path)
    first.round_begins()
    first.failed("step-5", "a")
    assert counted(tmp_path).spent() is None
    second = counted(tmp_path)
    second.round_begins()
    second.failed("step-9", "b")
    assert json.loads((tmp_path / PLACE).read_text())["failures"] == 1
    third = counted(tmp_path)
    third.round_begins()
    third.failed("step-9", "c")
    assert "2 pods in a row" in str(counted(tmp_path, writes=False).spent())
    assert counted(tmp_path, revision="two").spent() is None


def test_checkpoint_with_a_digit_more_is_newer(tmp_path: Path) -> None:
    """A checkpoint of step 100,000,000 or later, whose name is longer, counts as newer than one of
    an earlier step. So a failure after it is the first one, and no restart without progress.
    """
    counted(tmp_path).failed("step-99999999", "a")
    said = Said()
    second = PodFailures(tmp_path, REVISION, 1, True, said)
    second.start(lambda: "step-100000000")
    assert said == []
    second.failed("step-100000000", "b")
    assert json.loads((tmp_path / PLACE).read_text())["failures"] == 1


def test_node_that_was_there_before_hears_of_the_last_failure(tmp_path: Path) -> None:
    """A node that already waits learns of the last failure, because it reads the count each time it
    asks and not only when it starts.
    """
    waits = counted(tmp_path, writes=False)
    assert waits.spent() is None
    first = counted(tmp_path)
    first.failed("step-5", "a")
    first.failed("step-5", "b")
    assert "2 pods in a row" in str(waits.spent())


def test_replaced_pod_leaves_the_count_of_its_successor(tmp_path: Path) -> None:
    """A pod whose machine has lost its network, but still has the volume, runs on while its
    successor counts. Neither its failure nor its end changes what the successor has written.
    """
    said = Said()
    replaced = PodFailures(tmp_path, REVISION, 5, True, said)
    replaced.start(str)
    replaced.round_begins()
    successor = counted(tmp_path)
    successor.round_begins()
    written = (tmp_path / PLACE).read_text()
    assert json.loads(written)["failures"] == 1
    replaced.failed("", "it has no network")
    replaced.round_begins()
    replaced.ended()
    assert (tmp_path / PLACE).read_text() == written
    assert len(said) == 1
    assert "another pod of node 0 has written" in said[0]
    successor.failed("step-5", "b")
    assert json.loads((tmp_path / PLACE).read_text())["failures"] == 2


def test_count_that_was_removed_is_written_again(tmp_path: Path) -> None:
    """A user may remove the file to begin anew, and the pod that runs then counts on in it."""
    first = counted(tmp_path)
    first.round_begins()
    (tmp_path / PLACE).unlink()
    first.failed("", "a")
    assert json.loads((tmp_path / PLACE).read_text())["failures"] == 1


@pytest.mark.parametrize(("newest", "is_said"), [("step-5", True), ("step-6", False)])
def test_restart_is_counted_aloud_only_without_progress(
    tmp_path: Path, newest: str, is_said: bool
) -> None:
    """A pod prints the failure before it, with its number, unless a newer checkpoint has come
    since.
    """
    counted(tmp_path).failed("step-5", "the disk was full")
    said = Said()
    PodFailures(tmp_path, REVISION, 1, True, said).start(lambda: newest)
    words = f"{AFTER_FAILURE}the disk was full (pod restart 1 of 1 without a newer checkpoint)"
    assert said == ([words] if is_said else [])


def test_volume_that_fails_ends_no_run(tmp_path: Path) -> None:
    """A count that cannot be read or written gives one warning, and what this pod has seen is
    counted all the same. A file that is no JSON counts as no failure.
    """
    (tmp_path / PLACE).mkdir()
    said = Said()
    found = PodFailures(tmp_path, REVISION, 0, True, said)
    found.start(str)
    found.round_begins()
    found.failed("", "a")
    assert "1 pod failed without" in str(found.spent())
    assert len(said) == 1
    assert "cannot be read" in said[0]
    (tmp_path / PLACE).rmdir()
    (tmp_path / PLACE).write_text("{")
    assert counted(tmp_path).spent() is None
