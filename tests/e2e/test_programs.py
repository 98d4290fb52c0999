"""A user's own program in place of our trainer: the examples, in two pods of one rank each.

The tests build on each other in file order, with one stack whose setting `program` changes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.base_image import NAME as BASE
from sandbox.stack import PulumiFailedError, Stack
from sandbox.venvs import PROJECT
from tests.e2e.asking import AT_ONCE_SECONDS, changes, people_run, training_pods
from tests.e2e.lab import Lab, wait_for
from tests.kube.python_image import import_image, python_image

pytestmark = pytest.mark.in_order

PATTERN = r"step (?P<step>\d+)/(?P<total>\d+) loss (?P<loss>\S+)"
DDP, FSDP, TORCHRUN, FATAL = "e2e-ddp", "e2e-fsdp", "e2e-torchrun", "e2e-fatal"
ENDLESS = 1_000_000_000  # steps, because a fast machine makes thousands in a second
STEPS = 60
MORE_STEPS = 200  # how many steps follow after the kill and the stop
LIMIT_SECONDS = 300
OTHER_IMAGE = "e2e-other-image"
BUILT, NOT_BUILT = "e2e-built", "e2e-not-built"
PROGRAM_REPOSITORY = "localhost/disttrain/trainer-program"
IN_OTHER_IMAGE = """
import os, sys, time
from importlib.util import find_spec

seen = [name for name in ("torch", "yaml") if find_spec(name)]
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(f"rank {rank} of {size} sees of torch and yaml: {seen}")
# What NCCL would write, where it would; there is no GPU here.
with open(os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid())), "w") as file:
    file.write("pod:1:1 [0] NCCL INFO NET/IB : No device found.\\n")
    file.write("pod:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.42.0.7<0>\\n")
    file.write("pod:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0\\n")
for step in range(1, int(sys.argv[1]) + 1):
    print(f"step {step}/{sys.argv[1]} loss {1 / step:.4f}")
    time.sleep(0.05)
"""
PODS = 2


def set_program(stack: Stack, run_name: str, *command: str, **more: str) -> None:
    """Replace all settings of the stack's program, so that none of the program before is left."""
    stack.set("program", None)
    words = {f"program.command[{place}]": word for place, word in enumerate(command)}
    stack.set_all({"runName": run_name, **words, **{f"program.{k}": v for k, v in more.items()}})


def example(name: str) -> str:
    return str(PROJECT / "examples" / name)


@pytest.fixture(scope="module")
def stack(lab: Lab) -> Iterator[Stack]:
    """Yield a stack that is not up; afterwards no object of its run may be left."""
    ours = {"preset": None, "datasetFile": None}  # the template sets these, for our trainer
    settings = {"topology": "multi-pod", "pods": str(PODS), "processesPerPod": "1"}
    made = lab.stack("e2e-program", "sandbox", settings)
    made.set_all(ours)
    made.set("program.command[0]", "true")  # each test sets its own command
    yield made
    made.destroy()
    left = lab.uids("statefulset", "service", "pod")
    assert not [name for name in left if "train-" in name]


def run_status(lab: Lab, stack: Stack) -> dict[str, Any]:
    """Return what `./disttrain status` knows of the run."""
    found = json.loads(people_run(lab, stack, f"./disttrain status --stack {stack.name} --json"))
    (run,) = found["runs"]
    return run


def steps_of(lab: Lab, run_name: str) -> list[int]:
    """Return the steps in the run's metrics, in the order in which they were made."""
    path = lab.run_dir(run_name) / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line)["step"] for line in text.splitlines() if line.endswith("}")]


def logs(lab: Lab, run_name: str) -> str:
    """Return what all pods of the run have printed, also those that are gone."""
    files = sorted((lab.run_dir(run_name) / "logs").glob("node-*.log"))
    return "".join(file.read_text() for file in files)


def wait_for_logs(lab: Lab, run_name: str, words: str) -> None:
    """Wait until the words are in the run's logs.

    A thread of each pod writes its log to the volume, perhaps after the run is marked as done.
    """
    wait_for(f"{words!r} in the logs", lambda: words in logs(lab, run_name), LIMIT_SECONDS)


def assert_whole(lab: Lab, run_name: str, marker: Mapping[str, Any], steps: int) -> None:
    """Check that the run has made each step up to its last one, in this order and once."""
    assert marker["step"] == steps
    assert steps_of(lab, run_name) == list(range(1, steps + 1))


def test_ddp_example_steps_and_status_shows_them(lab: Lab, stack: Stack) -> None:
    """`up` ends when rank 0 has printed a step; status shows the step, the total and the loss."""
    words = ("python", "train.py", "--steps", str(ENDLESS))
    set_program(stack, DDP, *words, files=example("ddp"), progress=PATTERN)
    output = stack.up()
    assert f"rank 0 of the program has printed a step: {PODS} of {PODS} pods are ready" in output

    def trains() -> dict[str, Any]:
        """Return what status knows of the run, once the run has made a step lately."""
        seen = run_status(lab, stack)
        return seen if seen["state"] == "training" and seen["progress"]["step"] else {}

    run = wait_for("a step in status", trains, LIMIT_SECONDS)
    assert run["progress"]["of"] == ENDLESS
    assert 0 <= float(run["progress"]["loss"]) < 10
    line = rf"program +training +\d+/{ENDLESS} +\d+\.\d{{4}} "
    command = f"./disttrain status --stack {stack.name}"
    wait_for("its line", lambda: re.search(line, people_run(lab, stack, command)), LIMIT_SECONDS)
    assert stack.output("program") == f"python train.py --steps {ENDLESS}"


def test_second_up_of_a_program_changes_nothing(stack: Stack) -> None:
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}


def test_killed_pod_of_the_ddp_example_comes_back_and_resumes(lab: Lab, stack: Stack) -> None:
    """If a pod is killed, all ranks start again, and go on from the checkpoint that the program
    saved.
    """
    checkpoint = lab.run_dir(DDP) / "program" / "newest.pt"
    wait_for("the first checkpoint", checkpoint.exists, LIMIT_SECONDS, AT_ONCE_SECONDS)
    assert "continuing after step" not in logs(lab, DDP)
    lab.kubectl("delete", "pod", "train-multipod-1", "--grace-period=0", "--force")

    def both_have_resumed() -> bool:
        found = re.findall(r"rank (\d): continuing after step (\d+)", logs(lab, DDP))
        return {rank for rank, _ in found} == {"0", "1"}

    wait_for("both ranks to resume", both_have_resumed, LIMIT_SECONDS)
    rounds = re.findall(r" 0 - \[node 0\] round (\d+): ", logs(lab, DDP))
    assert rounds == ["1", "2"]
    assert len(training_pods(lab, stack)) == PODS


def test_stopped_ddp_example_resumes_and_ends_without_a_lost_step(lab: Lab, stack: Stack) -> None:
    """`stop` and another `up` lose no step of the program and make none twice."""
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    assert training_pods(lab, stack) == []
    assert run_status(lab, stack)["state"] == "stopped"
    assert not (lab.run_dir(DDP) / "done.json").exists()
    last = steps_of(lab, DDP)[-1] + MORE_STEPS
    command = ("python", "train.py", "--steps", str(last))
    set_program(stack, DDP, *command, files=example("ddp"), progress=PATTERN)
    stack.up()
    assert_whole(lab, DDP, lab.wait_done(DDP), last)
    finished = wait_for(
        "status to say that it is finished",
        lambda: (seen := run_status(lab, stack))["state"] == "finished" and seen,
        LIMIT_SECONDS,
    )
    assert f"step {last}" in finished["detail"]


def test_fetch_brings_what_the_program_has_saved(lab: Lab, stack: Stack, tmp_path: Path) -> None:
    people_run(
        lab, stack, f"./disttrain fetch --stack {stack.name} --checkpoint none --to {tmp_path}"
    )
    saved = (lab.run_dir(DDP) / "program" / "newest.pt").read_bytes()
    assert (tmp_path / "program" / "newest.pt").read_bytes() == saved


def test_commands_for_our_own_trainer_are_refused(lab: Lab, stack: Stack) -> None:
    """`sample` and `verify` need our own trainer, so they refuse a run of a user's program."""
    for command in ("sample", "verify"):
        with pytest.raises(AssertionError, match=f"{command}: it cannot be used for this run"):
            people_run(lab, stack, f"./disttrain {command} --stack {stack.name}")


def test_program_that_starts_its_ranks_itself_runs_once_in_each_pod(lab: Lab, stack: Stack) -> None:
    """With `program.per: node` the command runs once in each pod, and starts its ranks itself.

    torchrun finds the other pods by the variables that the launcher gives it.
    """
    stack.set("podEnvironment.STEPS", str(STEPS))
    more = {"per": "node", "files": example("ddp"), "progress": PATTERN}
    set_program(stack, TORCHRUN, "./torchrun.sh", **more)
    stack.up()
    assert_whole(lab, TORCHRUN, lab.wait_done(TORCHRUN), STEPS)
    for pod in range(PODS):
        wait_for_logs(lab, TORCHRUN, f"pod {pod} of {PODS} starts 1 rank(s)")


def test_fsdp_example_of_one_file_shards_over_the_pods(lab: Lab, stack: Stack) -> None:
    """In the FSDP example each rank writes its own part of the checkpoint."""
    command = ("python", "train.py", "--steps", str(STEPS))
    set_program(stack, FSDP, *command, files=example("fsdp/train.py"), progress=PATTERN)
    stack.up()
    assert_whole(lab, FSDP, lab.wait_done(FSDP), STEPS)
    newest = lab.run_dir(FSDP) / "program" / f"step-{STEPS:08d}"
    parts = {path.name for path in newest.glob("*.distcp")}
    assert parts == {f"__{rank}_0.distcp" for rank in range(PODS)}


@pytest.fixture(scope="module")
def other_image(lab: Lab) -> Iterator[str]:
    """Yield the name of an image on the node with a Python, but with neither torch nor our code."""
    name = "localhost/mine/program:1"
    import_image(lab.cluster, python_image(name, ("/bin/sh", "/usr/bin/test")))
    yield name
    lab.ctr("images", "rm", name)


def test_program_in_an_image_of_ones_own_runs_the_same(
    lab: Lab, stack: Stack, other_image: str, tmp_path: Path
) -> None:
    """A program in an image of its own is started by the launcher of the trainer image.

    The program sees none of our packages. Its network profile asks for InfiniBand, and NCCL (a
    stand-in writes its log) has found none: status says so.
    """
    file = tmp_path / "mine.py"
    file.write_text(IN_OTHER_IMAGE)
    command = ("python3", file.name, str(STEPS))
    more = {"files": str(file), "progress": PATTERN, "image": other_image}
    set_program(stack, OTHER_IMAGE, *command, **more)
    stack.set_all({"network": "toy-net", "extensions[0]": "tests.e2e.toy_kinds"})
    stack.up()
    assert_whole(lab, OTHER_IMAGE, lab.wait_done(OTHER_IMAGE), STEPS)
    for rank in range(PODS):
        wait_for_logs(lab, OTHER_IMAGE, f"rank {rank} of {PODS} sees of torch and yaml: []")
    said = run_status(lab, stack)["progress"]["transport"]
    assert "by NCCL over TCP sockets (eth0), and the network profile asks for InfiniBand" in said
    assert "(1) the pod has no RDMA device" in said
    assert "(NCCL says: NET/IB : No device found.)" in said
    images = lab.get("pod", "train-multipod-1")["spec"]
    assert [each["image"] for each in images["containers"]] == [other_image]
    assert [each["image"] for each in images["initContainers"]] == [stack.output("image")]


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """Return a folder with a Dockerfile, as users have it beside their program."""
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nCOPY train.py words /opt/mine/\n")
    (tmp_path / "train.py").write_text(
        "import json, os, sys\n"
        "print('it says', open('/opt/mine/words').read())\n"
        "place = os.environ['DISTTRAIN_CHECKPOINT_DIR'] + '/log.jsonl'\n"
        "for step in range(1, int(sys.argv[1]) + 1):\n"
        "    if os.environ['RANK'] == '0':\n"
        "        with open(place, 'a') as log:\n"
        "            log.write(json.dumps({'step': step, 'loss': 1 / step}) + '\\n')\n"
    )
    (tmp_path / "words").write_text("what the folder says")
    return tmp_path


def program_images(lab: Lab) -> set[str]:
    """Return the names of programs' images on the node, without those by digest."""
    names = lab.ctr("images", "ls", "--quiet").split()
    return {name for name in names if PROGRAM_REPOSITORY in name and "@" not in name}


def test_program_is_built_from_a_dockerfile_of_ones_own(
    lab: Lab, stack: Stack, own_folder: Path
) -> None:
    """`up` builds the image of `program.build` and brings it to the node, as it does the trainer's
    image.

    The program's steps are read from a file. A build that fails is reported with its words. Without
    the setting the image is removed.
    """
    command = ("python3", "/opt/mine/train.py", str(STEPS))
    more = {"build": str(own_folder), "progress_file": "log.jsonl"}
    set_program(stack, BUILT, *command, **more)
    assert "the program has written a step to log.jsonl: " in stack.up()
    assert_whole(lab, BUILT, lab.wait_done(BUILT), STEPS)
    wait_for_logs(lab, BUILT, "it says what the folder says")
    image = lab.get("pod", "train-multipod-1")["spec"]["containers"][0]["image"]
    assert image.startswith(f"{PROGRAM_REPOSITORY}:")
    assert image in program_images(lab)
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    (own_folder / "Dockerfile").write_text(f"FROM {BASE}\nRUN echo no such package >&2; exit 3\n")
    with pytest.raises(PulumiFailedError) as failure:
        stack.up()
    assert "no such package" in str(failure.value)
    set_program(stack, NOT_BUILT, "python3", "-c", "print('done')")
    stack.up()
    assert program_images(lab) == set()


def test_fatal_exit_of_a_program_fails_the_up_with_its_reason(lab: Lab, stack: Stack) -> None:
    """If a program ends with exit code 78, `up` fails with the program's last words and does not
    retry.
    """
    set_program(stack, FATAL, "sh", "-c", "echo the data are not there; exit 78")
    with pytest.raises(PulumiFailedError) as failure:
        stack.up()
    assert "the data are not there" in str(failure.value)
    assert "ended with exit code 78: by that the program says that no retry helps" in str(
        failure.value
    )
    assert not (lab.run_dir(FATAL) / "done.json").exists()
