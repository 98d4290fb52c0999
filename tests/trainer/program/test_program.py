"""Programs under the real entrypoint, in real processes with signals, on loopback and without
torch.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.trainer.process_tree import processes_below
from tests.trainer.program.desk import LIMIT_SECONDS, Desk
from trainer.checkpoint.run_lock import RunLock
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode, RetryableError

PATTERN = r"step (?P<step>\d+)/(?P<total>\d+) loss (?P<loss>\S+)"


def marker(config: RunConfig) -> dict[str, Any]:
    """Return the content of the run's `done.json`."""
    return json.loads((config.run_dir / "done.json").read_text())


def printed(log: str) -> list[dict[str, str]]:
    """Return the variables that the processes have printed as JSON, by rank."""
    found = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda each: (each["NODE_RANK"], each.get("LOCAL_RANK", "")))


WITHOUT_PAUSES_OF_SECONDS = """
import runpy
from trainer.program import work
work.SAY_EVERY_SECONDS = float("inf")
runpy.run_module("trainer", run_name="__main__", alter_sys=True)
"""
TELL = "import json, os; print(json.dumps(dict(os.environ)))"


def test_each_rank_gets_the_variables_that_torchrun_sets(desk: Desk) -> None:
    config, port = desk.python(TELL), free_port()
    nodes = [desk.start(config, node, 2, 2, port) for node in range(2)]
    for node in range(2):
        desk.wait_for("run mine is finished", node)
        nodes[node].terminate()
    found = printed(desk.log(0)) + printed(desk.log(1))
    assert [(each["RANK"], each["LOCAL_RANK"], each["NODE_RANK"]) for each in found] == [
        ("0", "0", "0"),
        ("1", "1", "0"),
        ("2", "0", "1"),
        ("3", "1", "1"),
    ]
    for each in found:
        assert (each["WORLD_SIZE"], each["LOCAL_WORLD_SIZE"]) == ("4", "2")
        assert each["MASTER_ADDR"] == "127.0.0.1"
        assert each["TORCHELASTIC_RESTART_COUNT"] == "0"
        assert (each["GROUP_RANK"], each["GROUP_WORLD_SIZE"]) == (each["NODE_RANK"], "2")
        assert Path(each["DISTTRAIN_CHECKPOINT_DIR"]) == config.run_dir / "program"
        assert "DISTTRAIN_RUN_KEY" not in each
        assert each["PYTHONUNBUFFERED"] == "1"
    assert len({each["MASTER_PORT"] for each in found}) == 1


def test_program_for_each_node_finds_what_torchrun_reads(desk: Desk) -> None:
    """A program that starts the ranks of its node itself gets the variables that torchrun reads, a
    port of its own, and none of the variables of a rank.
    """
    config, port = desk.python(TELL, per="node"), free_port()
    nodes = [desk.start(config, node, 2, 3, port) for node in range(2)]
    for node in range(2):
        desk.wait_for("run mine is finished", node)
        nodes[node].terminate()
    found = printed(desk.log(0)) + printed(desk.log(1))
    assert [each["PET_NODE_RANK"] for each in found] == ["0", "1"]
    for each in found:
        assert (each["PET_NNODES"], each["PET_NPROC_PER_NODE"]) == ("2", "3")
        assert int(each["PET_MASTER_PORT"]) != port, "the launcher itself listens there"
        assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & each.keys()


COUNTS = """
    import os, pathlib, sys, time
    folder = pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"])
    saved = folder / "step"
    step = int(saved.read_text()) if saved.exists() else 0
    while step < 30:
        step += 1
        if os.environ["RANK"] == "0":
            print(f"step {step}/30 loss {1 / step}")
            if step % 10 == 0:
                (folder / "new").write_text(str(step))
                (folder / "new").replace(saved)  # the other rank may be reading it
        if step == 15 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            seen = pathlib.Path(os.environ["DISTTRAIN_RUN_DIR"], "metrics.jsonl")
            while not (saved.exists() and seen.exists() and seen.read_text()):
                time.sleep(0.01)  # otherwise no step might be seen, and rank 0 not have saved
            sys.exit(5)
"""


def test_failed_rank_starts_all_again_from_what_the_program_saved(desk: Desk) -> None:
    """When a rank fails, all ranks start again, and the steps, the curve and the events continue
    from what the program has saved.
    """
    config = desk.python(COUNTS, progress=PATTERN)
    assert desk.run(config, ranks=2) == ExitCode.DONE
    assert "training stopped: rank " in desk.log()
    assert "ended with exit code 5; starting again at once (restart 1 of 3 without" in desk.log()
    assert (marker(config)["step"], marker(config)["loss"]) == (30, pytest.approx(1 / 30))
    lines = (config.run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 31))
    assert re.search(r"\[node 0\] program: step 30/30 loss 0\.0333", desk.log())
    events = (config.run_dir / "events" / "node-00000.jsonl").read_text()
    names = re.findall(r'"event":"(\w+)"', events)
    assert names.count("round_ended") == 2
    told = [json.loads(line) for line in events.splitlines() if line]
    assert [each["step"] for each in told if each["event"] == "restored"] == [0, 10]
    assert "finished" in names
    # A report while they are ended would say that they train again. (Ranks that have all ended
    # before the launcher looks are not ended by it.)
    first_round = names[: names.index("round_ended")]
    assert "report" in first_round
    assert (
        "failing" not in first_round or "report" not in first_round[first_round.index("failing") :]
    )


def test_restarts_without_a_newer_file_are_given_up(desk: Desk) -> None:
    """A program that fails again and again and saves nothing new is given up after
    `train.max_restarts`.
    """
    config = desk.config("sh", "-c", "exit 3", train={"max_restarts": 2})
    assert desk.run(config) == ExitCode.RETRYABLE
    assert desk.log().count("round ") == 3
    assert "3 starts in a row failed without a newer checkpoint" in desk.log()
    assert not (config.run_dir / "done.json").exists()


FAILS_AT_STEP_9 = """
    import os, pathlib
    for step in range(1, 10):
        print(f"step {step}/30 loss 1", flush=True)
    pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"], "log").write_text("")
    raise SystemExit(1)
"""


def test_starts_that_come_to_the_same_step_are_given_up(desk: Desk) -> None:
    """Starts that come to the same step each time are given up, although each writes into the
    program's folder.
    """
    config = desk.python(FAILS_AT_STEP_9, progress=PATTERN, train={"max_restarts": 1})
    assert desk.run(config) == ExitCode.RETRYABLE
    assert desk.log().count("round ") == 2


FAILS_SOONER_EACH_TIME = """
    import os, pathlib
    counted = pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"], "starts")
    starts = len(counted.read_text()) if counted.exists() else 0
    counted.write_text("." * (starts + 1))
    for step in (20, 3) if starts == 0 else (10,):
        print(f"step {step}/30 loss 1", flush=True)
    raise SystemExit(1)
"""


def test_steps_that_go_down_again_are_no_progress(desk: Desk) -> None:
    """Only a higher step than the highest one so far is progress, as some programs count anew in
    each epoch.
    """
    config = desk.python(FAILS_SOONER_EACH_TIME, progress=PATTERN, train={"max_restarts": 2})
    assert desk.run(config) == ExitCode.RETRYABLE
    assert desk.log().count("round ") == 3


def test_program_holds_the_right_to_write_its_run(desk: Desk) -> None:
    """While a program runs, no other process can write its run, as two stacks may have one
    `runName` by mistake.
    """
    config = desk.config("sh", "-c", "echo it runs now; sleep 600")
    desk.start(config)
    desk.wait_for("it runs now")
    with pytest.raises(RetryableError, match="another process writes this run"):
        RunLock(config.run_dir, wait_seconds=0).acquire()


WITHOUT_A_WAIT_FOR_THE_LOCK = """
import functools, runpy
from trainer.program import work
work.RunLock = functools.partial(work.RunLock, wait_seconds=0)
runpy.run_module("trainer", run_name="__main__", alter_sys=True)
"""


def test_why_a_node_cannot_start_its_ranks_is_said_on_all_nodes(desk: Desk) -> None:
    """If a node cannot start its ranks, the others say its reason. Otherwise, where two stacks use
    one run name, only the log of the pod that ends would tell what to do.
    """
    config, port = desk.config("sleep", "1000"), free_port()
    lock = RunLock(config.run_dir)
    lock.acquire()
    desk.trainer = [sys.executable, "-c", WITHOUT_A_WAIT_FOR_THE_LOCK]
    first, _ = (desk.start(config, node, nodes=2, port=port) for node in range(2))
    assert first.wait(LIMIT_SECONDS) == ExitCode.RETRYABLE
    desk.wait_for("training stopped: node 0: another process writes this run", 1)
    lock.release()


def test_exit_code_78_ends_the_run_without_a_retry(desk: Desk) -> None:
    config = desk.config("sh", "-c", "echo no data; exit 78")
    assert desk.run(config, ranks=2) == ExitCode.FATAL
    assert desk.log().count("round ") == 1
    # Both end so, and either may be the first that is seen.
    assert re.search(r"fatal: rank [01] ended with exit code 78", desk.log()), desk.log()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("no-such-program", "No such file or directory"),
        ("/etc/passwd", "Permission denied"),  # nobody may execute it
        ("/etc/passwd/train", "Not a directory"),
    ],
)
def test_command_that_cannot_be_started_is_fatal_and_named(
    desk: Desk, command: str, why: str
) -> None:
    assert desk.run(desk.config(command)) == ExitCode.FATAL
    assert f"program.command: {command!r} cannot be started ({why})" in desk.log()


def test_script_without_an_interpreter_is_fatal_and_named(desk: Desk) -> None:
    script = desk.root / "start"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    assert desk.run(desk.config(str(script))) == ExitCode.FATAL
    assert "cannot be started (Exec format error)" in desk.log()
    assert "a script needs a first line such as #!/bin/sh" in desk.log()


@pytest.mark.parametrize("first_line", ["#!/bin/no-such-shell", "#!/bin/sh\r"])
def test_script_whose_interpreter_is_missing_is_explained(desk: Desk, first_line: str) -> None:
    """A script whose first line names a program that is not there, such as bash in a small image,
    or one with the line ends of Windows, gets the system's error of a file that is not there.
    """
    script = desk.root / "start.sh"
    script.write_bytes(f"{first_line}\necho hello\n".encode())
    script.chmod(0o755)
    assert desk.run(desk.config(str(script))) == ExitCode.FATAL
    assert "cannot be started (No such file or directory)" in desk.log()
    assert (
        "a script needs a first line such as #!/bin/sh, which names a program that the image has "
        "(and no carriage returns)"
    ) in desk.log()


FAILS_TEN_STEPS_LATER = """
    import os, pathlib, sys, time
    run = pathlib.Path(os.environ["DISTTRAIN_RUN_DIR"])
    if os.environ["RANK"] == "1":
        time.sleep(3600)
    saved = run.parent / "step"  # not in DISTTRAIN_CHECKPOINT_DIR
    first = int(saved.read_text()) if saved.exists() else 0
    for step in range(first + 1, first + 11):
        print(f"step {step}/1000 loss 1")
    saved.write_text(str(step))
    curve = run / "metrics.jsonl"
    while not (curve.exists() and f'"step": {step},' in curve.read_text()):
        time.sleep(0.01)
    sys.exit(1)
"""


def test_higher_step_is_progress_on_all_nodes(desk: Desk) -> None:
    """A higher step counts as progress on all nodes, although only node 0 sees the steps. Otherwise
    another node would give up after a few failures in all of its time.
    """
    config = desk.python(FAILS_TEN_STEPS_LATER, progress=PATTERN, train={"max_restarts": 1})
    port = free_port()
    nodes = [desk.start(config, node, 2, 1, port) for node in range(2)]
    desk.wait("round 5", lambda: "round 5: 2 node" in desk.log(1) or nodes[1].poll() is not None)
    assert "giving up" not in desk.log(1), desk.log(1)
    assert "restart 1 of 1 without" in desk.log(1)
    stop_all(nodes)


SAVES_AND_ENDS_WITH_0 = """
    import os, pathlib, signal, sys, time
    def stop(number, frame):
        pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"], "saved").touch()
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    print("step 1/2 loss 1")
    time.sleep(3600)
"""


def test_program_that_saves_and_ends_with_0_is_stopped_and_not_finished(desk: Desk) -> None:
    """A program that saves on SIGTERM and ends with 0 counts as stopped and not as finished."""
    config = desk.python(SAVES_AND_ENDS_WITH_0, progress=PATTERN)
    entrypoint = desk.start(config)
    desk.wait_for("program: step 1/2")
    entrypoint.terminate()
    assert entrypoint.wait(LIMIT_SECONDS) == ExitCode.PREEMPTED
    assert (config.run_dir / "program" / "saved").exists()
    assert not (config.run_dir / "done.json").exists()


SAVES_WHEN_IT_MAY = """
    import os, pathlib, signal, sys, time
    folder = pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"])
    def stop(number, frame):
        (folder / "asked").touch()
        while not (folder / "may-end").exists():
            time.sleep(0.01)
        (folder / "saved").touch()
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    print("step 1/2 loss 1")
    time.sleep(3600)
"""


def test_program_below_a_shell_has_its_time_to_save(desk: Desk) -> None:
    """A program below a shell has its time to save, although SIGTERM ends the shell at once.
    Otherwise the program would be killed in the middle of its save.
    """
    path = desk.root / "below.py"
    path.write_text(textwrap.dedent(SAVES_WHEN_IT_MAY))
    config = desk.config("sh", "-c", f"{sys.executable} {path}; true", progress=PATTERN)
    entrypoint = desk.start(config)
    desk.wait_for("program: step 1/2")
    (shell,) = processes_below(entrypoint.pid)[1:2]
    entrypoint.terminate()
    folder = config.run_dir / "program"
    desk.wait("the program to be asked", (folder / "asked").exists)
    desk.wait("the end of the shell", lambda: not is_alive(shell))
    (folder / "may-end").touch()
    assert entrypoint.wait(LIMIT_SECONDS) == ExitCode.PREEMPTED
    assert (folder / "saved").exists()
    assert not (config.run_dir / "done.json").exists()


def is_alive(pid: int) -> bool:
    """Return whether the process runs, which a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids_in(log: str, word: str) -> list[int]:
    """Return the numbers that follow this word in the log."""
    return [int(pid) for pid in re.findall(rf"{word} (\d+)", log)]


def test_nothing_that_the_program_has_started_outlives_its_round(desk: Desk) -> None:
    """At the end of a round every process that the program has started is ended, even one that has
    left the group of its rank. Otherwise it would hold the GPUs.
    """
    command = "setsid sleep 3600 & echo child $!; sleep 3600 & echo child $!; exit 78"
    assert desk.run(desk.config("sh", "-c", command)) == ExitCode.FATAL
    children = pids_in(desk.log(), "child")
    assert len(children) == 2
    try:
        desk.wait("the children to end", lambda: not any(map(is_alive, children)))
    finally:
        for child in filter(is_alive, children):
            os.kill(child, signal.SIGKILL)


def test_killed_rank_of_one_node_starts_the_ranks_of_all_again(desk: Desk) -> None:
    """When a rank of one node is killed, the ranks of all nodes are ended and started again."""
    config = desk.config("sh", "-c", "echo pid $$; exec sleep 3600")
    port = free_port()
    nodes = [desk.start(config, node, 2, 1, port) for node in range(2)]
    for node in range(2):
        desk.wait_for(r"pid \d+", node)
    first = [pids_in(desk.log(node), "pid")[0] for node in range(2)]
    os.kill(first[1], signal.SIGKILL)
    for node in range(2):
        desk.wait_for(r"pid \d+", node, times=2)
    assert not any(map(is_alive, first))
    assert "rank 1 was killed by SIGKILL" in desk.log(1)
    stop_all(nodes)


STEPS_UNTIL_ASKED = """
    import os, pathlib, signal, sys, time
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(CODE))
    saved = pathlib.Path(os.environ["DISTTRAIN_CHECKPOINT_DIR"], "step-" + os.environ["RANK"])
    step = int(saved.read_text()) if saved.exists() else 0
    while True:
        step += 1
        new = saved.with_suffix(".new")
        new.write_text(str(step))
        new.replace(saved)
        print(f"step {step}/1000000 loss 1")
        time.sleep(0.01)
"""


@pytest.mark.parametrize("code", [143, 1])
def test_evicted_pod_counts_for_nothing_on_other_nodes(desk: Desk, code: int) -> None:
    """A pod that was evicted and has saved counts as no restart on the other nodes. Otherwise a run
    without further restarts would be given up. torchrun ends with 1 then.
    """
    program = STEPS_UNTIL_ASKED.replace("CODE", str(code))
    config = desk.python(program, progress=PATTERN, train={"max_restarts": 0})
    port = free_port()
    nodes = [desk.start(config, node, 2, 1, port) for node in range(2)]
    for times in (1, 2):
        wait_for_steps(desk, times)
        desk.wait_for(f"round {times}: 2 node", 1)
        nodes[1].terminate()
        assert nodes[1].wait(LIMIT_SECONDS) == ExitCode.PREEMPTED
        nodes[1] = desk.start(config, 1, 2, 1, port)
        desk.wait_for(f"round {times + 1}: 2 node")
    assert "(restart" not in desk.log()
    wait_for_steps(desk, 3)
    desk.wait_for("round 3: 2 node", 1)
    stop_all(nodes[::-1])  # node 0 has seen steps, so the end of node 1 ends nothing but the round


def wait_for_steps(desk: Desk, number: int) -> None:
    """Wait until node 0 has seen a step of the round `number`.

    A round without a step is no progress, and a run without further restarts is given up then.
    """
    desk.wait_for(rf"(?s)\[node 0\] round {number}: .*?\[node 0\] program: step")


def stop_all(nodes: Sequence[subprocess.Popen[str]]) -> None:
    """Stop the entrypoints, and assert that each ends as preempted."""
    for node in nodes:
        node.terminate()
    codes = [node.wait(LIMIT_SECONDS) for node in nodes]
    assert codes == [ExitCode.PREEMPTED] * len(nodes)


@pytest.mark.parametrize("program", ["while sleep 0.2; do echo works; done", "sleep 1000"])
def test_run_without_a_pattern_says_that_its_steps_are_not_seen(desk: Desk, program: str) -> None:
    """A run whose steps cannot be seen prints a line that says this, and its pod becomes ready,
    also if the program prints nothing. Otherwise `./disttrain status` would call it `starting` for
    ever.
    """
    config = desk.config("sh", "-c", program)
    entrypoint = desk.start(config)
    desk.wait_for("program: it runs; its steps are not seen, because neither program.progress nor ")
    desk.wait("the pod to be ready", (desk.root / "ready-0" / "ready").exists)
    stop_all([entrypoint])


def test_step_is_said_at_least_every_hundred_lines(desk: Desk) -> None:
    """The last step is printed again after at most a hundred further lines of the program, because
    `./disttrain status` reads only a pod's last 200 lines. The pauses after which it is printed
    anyway are switched off here.
    """
    desk.trainer = [sys.executable, "-c", WITHOUT_PAUSES_OF_SECONDS]
    many = "for line in $(seq 100); do echo line $line; done"
    said = f"until grep -q 'program: step 1/9' {desk.root}/node-0.log; do sleep 0.1; done"
    program = f"echo step 1/9 loss 3; {said}; echo step 2/9 loss 2; {many}; sleep 1000"
    entrypoint = desk.start(desk.config("sh", "-c", program, progress=PATTERN))
    desk.wait_for("program: step 2/9 loss 2")
    stop_all([entrypoint])


HAS_A_PROGRESS_BAR = r"""
    import sys, time
    for step in range(1, 1_000_000):
        sys.stderr.write(f"\rstep {step}/1000000 loss 1")
        sys.stderr.flush()
        time.sleep(0.01)
"""


def test_progress_bar_is_read_while_it_runs(desk: Desk) -> None:
    """The steps of a progress bar are read while it runs. It ends its line only with its last step,
    which may be hours later.
    """
    entrypoint = desk.start(desk.python(HAS_A_PROGRESS_BAR, progress=PATTERN))
    desk.wait_for(r"\[node 0\] program: step \d+/1000000 loss 1")
    stop_all([entrypoint])


PRINTS_A_LONG_LINE = """
    import time
    print("x" * 1_000_000)
    print("step 1/9 loss 3")
    time.sleep(3600)
"""


def test_long_line_does_not_hold_up_the_launcher(desk: Desk) -> None:
    """A very long line does not hold up the launcher, even with a pattern that begins with
    anything. Otherwise the search could take hours, in which SIGTERM has no effect.
    """
    entrypoint = desk.start(desk.python(PRINTS_A_LONG_LINE, progress=f".*{PATTERN}"))
    desk.wait_for("program: step 1/9 loss 3")
    stop_all([entrypoint])


def test_finished_program_is_not_started_again(desk: Desk) -> None:
    """A program that has ended with 0 is not started again."""
    config = desk.config("sh", "-c", "echo it runs now")
    assert [desk.run(config) for _ in range(2)] == [ExitCode.DONE] * 2
    assert desk.log().count("it runs now") == 1
    assert "the program has ended with exit code 0; its steps were not seen" in desk.log()


def test_volume_that_fails_between_two_rounds_ends_the_pod_in_words(desk: Desk) -> None:
    """A volume that fails between two rounds ends the pod with one line and a code that may be
    tried again, and does not count as a failure of the pod.
    """
    desk.revision = "one"
    text = "import os; os.mkdir(os.environ['DISTTRAIN_RUN_DIR'] + '/done.json'); os._exit(1)"
    config = desk.config(sys.executable, "-c", text)  # the marker of the end cannot be read now
    assert desk.run(config) == ExitCode.RETRYABLE
    last = desk.log().splitlines()[-1]
    place = config.run_dir / "done.json"
    assert last == f"[node 0] giving up for now: [Errno 21] Is a directory: '{place}'"
    assert not json.loads((config.run_dir / "pod_failures.json").read_text())["trains"]


FINISHES_AND_CANNOT_BE_MARKED = """
    import os

    run_dir, entrypoint = os.environ["DISTTRAIN_RUN_DIR"], os.getppid()
    os.makedirs(f"{run_dir}/.done.json.{entrypoint}.tmp", exist_ok=True)
"""


def test_end_that_cannot_be_recorded_is_no_reason_to_start_again_and_again(desk: Desk) -> None:
    """If the end of a program cannot be recorded, as on a full volume, the pod ends with the
    reason. Otherwise the nodes would start the program again at once, without end.
    """
    config, port = desk.python(FINISHES_AND_CANNOT_BE_MARKED), free_port()
    first, _ = (desk.start(config, node, nodes=2, port=port) for node in range(2))
    assert first.wait(LIMIT_SECONDS) == ExitCode.RETRYABLE
    assert "giving up for now: the coordinator failed: " in desk.log()
    assert "Is a directory" in desk.log().splitlines()[-1]
    assert desk.log().count("[node 0] round ") == 1
