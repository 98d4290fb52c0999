"""If the cluster does not answer, `status` reads the runs' own files on the machine with
the data.
"""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from cli.__main__ import main
from cli.stack_outputs import ClusterPlace
from cli.status.run_files import Found, RunFiles, as_json, as_text, read_run_files, require_run
from infra.kube.api_server.access import Access
from infra.node.doctor_plan import Plan
from infra.node.expectations import Expectations
from tests.cli.fetch.local_pod import add_checkpoint, make_run
from trainer.checkpoint import verified_words, words
from trainer.launch.run_log import log_path, record_of
from trainer.launch.said_again import said_again

RECORD = {"step": 797, "unix_time": 1000.0, "loss": 2.047, "tokens_per_second": 6900.4}


def plan_of(root: Path) -> Plan:
    """Return the plan of a look at this machine, whose data root is `root`."""
    return Plan(expect=Expectations(data_root=str(root)))


def a_run(root: Path) -> Path:
    """Make the run `dev` at step 797 of 4000, with two complete checkpoints and one that is being
    written.
    """
    run = make_run(root / "runs" / "dev", steps=(700,))
    add_checkpoint(run, 750)
    (add_checkpoint(run, 800) / "manifest.json").unlink()  # this checkpoint is still being written
    (run / "run.yaml").write_text(yaml.safe_dump({"train": {"max_steps": 4000}}))
    half = json.dumps({**RECORD, "step": 798})[:-20]
    (run / "metrics.jsonl").write_text(f"{json.dumps(RECORD)}\n{half}")
    return run


def test_files_tell_how_far_a_run_has_come(tmp_path: Path) -> None:
    """The files tell the step, the loss and the newest complete checkpoint of a run, read by the
    shell script that also runs over SSH. Half a line and half a checkpoint are left out.
    """
    run = a_run(tmp_path)
    (found,) = read_run_files(plan_of(tmp_path)).runs
    assert (found.name, found.step, found.of, found.is_done) == ("dev", 797, 4000, False)
    assert (found.loss, found.tokens_per_second) == (2.047, 6900.4)
    assert (found.saved_step, found.saved_seconds_ago is not None) == (750, True)
    assert found.stepped_seconds_ago is not None
    assert found.stepped_seconds_ago > 1e9  # RECORD is of 1970
    (run / "done.json").touch()
    assert read_run_files(plan_of(tmp_path)).runs[0].is_done


def test_newest_checkpoint_is_that_of_the_highest_step(tmp_path: Path) -> None:
    """Steps are compared as numbers: 100,000,000 has one digit more than 99,999,950 and would come
    before it as text. A checkpoint that is being written does not count, whatever the run's name.
    """
    run = make_run(tmp_path / "runs" / "step-1", steps=(99_999_950, 100_000_000))
    building = run / "checkpoints" / ".tmp-step-100000050-a"
    building.mkdir()
    (building / "manifest.json").touch()
    (found,) = read_run_files(plan_of(tmp_path)).runs
    assert found.saved_step == 100_000_000


BEGUN, WAITED = words.begun("step-00000800"), words.waited_for("step-00000800")
STEP = "step 797/4000 loss 2.0470 val_loss none tokens/s 6900 mfu 10% eta 5 min"
QUOTED = "rank 1 said: checkpoint step-00000800 is being written"
MANY_STEPS = [STEP] * 3000  # more than `status` reads of a log
LOST = "[node 0] training stopped: node 1 is gone; starting again at once"
NEXT = "[node 0] round 2: 2 node(s) x 1 rank(s), store at 10.0.0.1:29501"


def writes_log(run: Path, lines: Sequence[str], apart_seconds: float = 0.001) -> None:
    """Write the log of node 0 as the entrypoint does; its first line is 100 s old."""
    begin = datetime.now(UTC) - timedelta(seconds=100)
    path = log_path(run, 0)
    path.parent.mkdir(exist_ok=True)
    records = [
        record_of(
            begin + timedelta(seconds=at * apart_seconds),
            0,
            None if "[node" in line else 0,
            line.encode(),
        )
        for at, line in enumerate(lines)
    ]
    path.write_bytes(b"".join(records))


@pytest.mark.parametrize(
    ("lines", "step", "holds"),
    [
        ([NEXT, STEP, BEGUN], 800, False),
        ([NEXT, BEGUN, *MANY_STEPS[:99], WAITED], 800, True),
        ([BEGUN, WAITED, STEP], 800, False),
        ([BEGUN, *MANY_STEPS, WAITED], 800, True),
        ([BEGUN, words.saved("step-00000800", 3.2), STEP], None, False),
        ([BEGUN, f"warning: {words.failed(800)}: no space left on device"], None, False),
        ([BEGUN, WAITED, LOST], None, False),
        ([BEGUN, LOST, NEXT, STEP], None, False),
        ([words.begun("step-00000750"), WAITED.replace("800", "750")], None, False),
        ([STEP, QUOTED], None, False),
        ([BEGUN, QUOTED, QUOTED], 800, False),
    ],
    ids=[
        "begun", "waits", "waited", "long ago", "saved", "failed", "lost", "next start",
        "in its place", "no line of a save", "beside such lines",
    ],
)  # fmt: skip
def test_files_tell_of_a_save_under_way(
    tmp_path: Path, lines: list[str], step: int | None, *, holds: bool
) -> None:
    """The run's log on the volume tells of a save that is under way, and whether training waits for
    it, as `status` reads it of a pod's log.
    """
    run = a_run(tmp_path)
    writes_log(run, lines)
    (found,) = read_run_files(plan_of(tmp_path)).runs
    assert (found.saving_step, found.saving_holds) == (step, holds)
    assert (found.saving_seconds_ago is None) == (step is None)
    if found.saving_seconds_ago is not None:
        assert 90 < found.saving_seconds_ago < 900
    (run / "done.json").touch()
    assert read_run_files(plan_of(tmp_path)).runs[0].saving_step is None


STARTED = verified_words.continued(700, "step-00000700")
COPIED = f"[mirror] {verified_words.copied(750, 1_234_567, 0.5)}"
LONG_AGO = datetime(2026, 11, 22, 6, 40, 9, tzinfo=UTC)
AGAIN = f"[node 0] {said_again(LONG_AGO, COPIED)}"


@pytest.mark.parametrize(
    ("lines", "step", "by"),
    [
        ([NEXT, STEP], None, ""),
        ([STARTED, NEXT, STEP], 700, verified_words.BY_START),
        ([STARTED, STEP, COPIED, STEP, STEP], 750, verified_words.BY_MIRROR),
        ([COPIED, STARTED, STEP], 700, verified_words.BY_START),
        ([COPIED, *MANY_STEPS, AGAIN, STEP], 750, verified_words.BY_MIRROR),
    ],
    ids=["never", "by a start", "by the mirror", "an older one", "said again"],
)
def test_files_tell_which_checkpoint_was_verified(
    tmp_path: Path, lines: list[str], step: int | None, by: str
) -> None:
    """The run's log on the volume tells which checkpoint was verified, also of a run that
    is over.
    """
    run = a_run(tmp_path)
    writes_log(run, lines)
    (run / "done.json").touch()
    (found,) = read_run_files(plan_of(tmp_path)).runs
    assert (found.verified_step, found.verified_by) == (step, by)
    if lines[-2:] == [AGAIN, STEP]:
        age = (datetime.now(UTC) - LONG_AGO).total_seconds()
        assert found.verified_seconds_ago == pytest.approx(age, abs=60)
    said = as_text(Found([found]), plan_of(tmp_path), "no route").splitlines()
    assert [line.split(",")[0] for line in said[4:]] == (
        [] if step is None else [f"  verified: step {step}"]
    )


def test_save_is_its_own_run_s_and_as_old_as_its_begin(tmp_path: Path) -> None:
    """Of two runs on one machine only the one that saves is shown as saving. The save is as old as
    its beginning, although training waited for it only later.
    """
    writes_log(a_run(tmp_path), [BEGUN, WAITED], apart_seconds=60)
    writes_log(make_run(tmp_path / "runs" / "other", steps=(10,)), [STEP])
    found = {run.name: run for run in read_run_files(plan_of(tmp_path)).runs}
    assert (found["dev"].saving_step, found["other"].saving_step) == (800, None)
    assert found["dev"].saving_seconds_ago is not None
    assert 90 < found["dev"].saving_seconds_ago < 900


def test_run_that_has_not_begun_has_a_line_too(tmp_path: Path) -> None:
    """A run whose folder is still empty is listed, and a file beside it is not."""
    (tmp_path / "runs" / "new").mkdir(parents=True)
    (tmp_path / "runs" / "a-file").touch()
    assert read_run_files(plan_of(tmp_path)).runs == [
        RunFiles("new", None, None, None, None, None, None, None, is_done=False)
    ]


def test_machine_without_the_data_is_said(tmp_path: Path) -> None:
    """A machine without the data is named as such. With a file server for a storage, the machine
    has none.
    """
    with pytest.raises(ValueError, match=f"local has no folder {tmp_path}/runs"):
        read_run_files(plan_of(tmp_path))


RUNS = [
    RunFiles("dev", 797, 4000, 2.047, 6900.4, 12.0, 750, 40.0, is_done=False),
    RunFiles("wide", 60, None, 2.6, None, 7200.0, None, None, is_done=True),
    RunFiles("held", 90, None, 2.5, None, 70.0, None, None, False, 90, 70.0, saving_holds=True),
    RunFiles("dead", 90, None, 2.5, None, 9000.0, None, None, False, 90, 9000.0),
]
TEXT = """\
the cluster was not seen: no route
from the runs' own files (local, /var/lib/disttrain/runs); whether their pods live is not known:
RUN   STEP      LOSS    TOKENS/S  LAST STEP  SAVED
dev   797/4000  2.0470  6900      12 s ago   step 750, 40 s ago
wide  60        2.6000  -         finished   -
held  90        2.5000  -         70 s ago   -; saving step 90 for 70 s, and training waits for it
dead  90        2.5000  -         2 h ago    -; the save of step 90, begun 2 h ago, has not ended"""


def test_what_was_not_seen_stands_first() -> None:
    """The text begins with the reason why the cluster was not seen, and JSON has it too."""
    assert as_text(Found(RUNS), plan_of(Path("/var/lib/disttrain")), "no route") == TEXT
    found = json.loads(as_json(Found(RUNS), "no route"))
    assert found["cluster_unseen"] == "no route"
    assert [run["step"] for run in found["run_files"]] == [797, 60, 90, 90]
    assert [run["saving_holds"] for run in found["run_files"]] == [False, False, True, False]
    assert as_text(Found([]), plan_of(Path("/d")), "no route").endswith("there is no run yet")


@pytest.fixture
def unreachable() -> Iterator[Access]:
    """Yield the access to an API server that is away: its port is taken, and nobody listens
    there.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{taken.getsockname()[1]}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        yield Access(kubeconfig=yaml.safe_dump(config))


@pytest.mark.parametrize("patience_seconds", [0.0, 1.0])
def test_status_reads_the_files_where_the_api_server_is_away(
    tmp_path: Path,
    unreachable: Access,
    patience_seconds: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If the API server is away, `status` says so first, shows the runs' files and ends with 2. If
    the files cannot be read either, both reasons are given.
    """
    a_run(tmp_path)
    place = ClusterPlace(unreachable, "disttrain")
    with (
        patch("cli.status.command.cluster_place", return_value=place),
        patch("cli.status.command.PATIENCE_SECONDS", patience_seconds),
        patch("cli.stack_plan.plan_of_stack", return_value=plan_of(tmp_path)) as planned,
    ):
        assert main(["status", "--stack", "dev"]) == 2
        planned.assert_called_with("dev", asks_cluster=False)
        said = capsys.readouterr().out.splitlines()
        assert said[0].startswith("the cluster was not seen: ")
        assert said[3].split()[:2] == ["dev", "797/4000"]
        (tmp_path / "runs").rename(tmp_path / "away")
        assert main(["status", "--stack", "dev"]) == 2
    error = capsys.readouterr().err
    assert "could not be asked" in error
    assert "could not be read either: local has no folder" in error


def test_status_reads_the_files_where_the_kubeconfig_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the stack's kubeconfig is gone or cannot be used, `status` reads the runs' files too, and
    says how to name another kubeconfig.

    A kubeconfig that a user names on the command line is the user's own mistake, and no file is
    read.
    """
    a_run(tmp_path)
    gone = tmp_path / "gone"
    settings = {"cluster": "existing", "kubeconfig": str(gone), "dataRoot": str(tmp_path)}
    file = tmp_path / "Pulumi.dev.yaml"
    config = {f"disttrain:{key}": value for key, value in settings.items()}
    file.write_text(yaml.safe_dump({"config": config}))
    with (
        patch(
            "cli.status.command.cluster_place",
            return_value=ClusterPlace(Access(kubeconfig_path=str(gone)), "mine"),
        ),
        patch("cli.stack_plan.stack_file", return_value=file),
    ):
        for content, reason in ((None, "cannot be read"), ("clusters: []", "cannot be used")):
            if content is not None:
                gone.write_text(content)
            assert main(["status", "--stack", "dev"]) == 2
            said = capsys.readouterr().out.splitlines()
            assert said[0].startswith("the cluster was not seen: ")
            assert reason in said[0]
            assert said[0].endswith("./disttrain status --kubeconfig FILE --namespace mine")
            assert said[3].split()[:2] == ["dev", "797/4000"]
        (tmp_path / "runs").rename(tmp_path / "away")
        assert main(["status", "--stack", "dev"]) == 2
        error = capsys.readouterr().err
        assert "cannot be used" in error
        assert "could not be read either: local has no folder" in error
        gone.unlink()
        assert main(["status", "--kubeconfig", str(gone)]) == 2
    said = capsys.readouterr()
    assert f"kubeconfig {gone} cannot be read" in said.err
    assert not said.out


def test_one_run_can_be_asked_for_without_the_cluster(tmp_path: Path) -> None:
    """Without the cluster, `status RUN` takes the name of the run's folder, because the files know
    no stack.
    """
    for name in ("wide", "narrow"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    found = read_run_files(plan_of(tmp_path), "narrow")
    assert [run.name for run in found.runs] == ["narrow"]
    require_run("narrow", found, "no answer")
    with pytest.raises(ValueError, match=r"'dev' is no folder .*: (wide, narrow|narrow, wide)$"):
        require_run("dev", read_run_files(plan_of(tmp_path), "dev"), "no answer")


def test_runs_beyond_the_newest_are_counted(tmp_path: Path) -> None:
    """Of hundreds of run folders the newest 50 are read and the others counted. Any other one can
    be asked for by its name.
    """
    for number in range(53):
        folder = tmp_path / "runs" / f"run-{number}"
        folder.mkdir(parents=True)
        os.utime(folder, (1000 + number, 1000 + number))
    found = read_run_files(plan_of(tmp_path))
    assert [run.name for run in found.runs] == [f"run-{number}" for number in range(52, 2, -1)]
    assert found.others == ["run-2", "run-1", "run-0"]
    last = "3 more runs were not read: ./disttrain status RUN reads the one of that name"
    assert as_text(found, plan_of(tmp_path), "no route").splitlines()[-1] == last
    assert json.loads(as_json(found, "no route"))["not_read"] == found.others
    assert [run.name for run in read_run_files(plan_of(tmp_path), "run-0").runs] == ["run-0"]


def test_hole_in_a_metrics_file_hides_no_record(tmp_path: Path) -> None:
    """Zeros in a metrics file do not hide the other records. A machine that lost its power may
    leave zeros where the last records were.
    """
    run = a_run(tmp_path)
    (run / "metrics.jsonl").write_bytes(bytes(100) + b"\n" + json.dumps(RECORD).encode() + b"\n")
    assert read_run_files(plan_of(tmp_path)).runs[0].step == 797
