"""`./disttrain logs` on a real cluster shows lines of pods that are there, and of pods that are
gone.

The pods write by the trainer's own code (trainer/launch/node_output.py), on a claim.
"""

import re
import shutil
import signal
from pathlib import Path

from infra.kube.errors import ApiError
from tests.kube.accounts import user_of
from tests.kube.lab import PROJECT, Lab, Run, wait_for
from tests.kube.python_image import PYTHON_IMAGE
from tests.kube.volume import cli, no_pods

ODD = "\N{REPLACEMENT CHARACTER}"  # shown in place of a byte that is not UTF-8
NODE = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, "/data/code")
from trainer.launch.node_output import NodeOutput

start, lost = sys.argv[1], sys.argv[2]
node = int(os.environ["POD_NAME"].rpartition("-")[2])
print("before the log", start, node, flush=True)
output = NodeOutput.of(node, Path("/data/runs/first"))
output.say("round 1: 2 node(s) x 2 rank(s)")
writes = []
for rank in (2 * node, 2 * node + 1):
    pipe = output.pipe(rank)
    writes.append(os.dup(pipe.write_end))
    pipe.start()
for number in range(20):
    for rank, end in enumerate(writes, 2 * node):
        os.write(end, b"start %s rank %d line %d \\xff\\n" % (start.encode(), rank, number))
if lost == "lost" and node == 1:
    os.write(writes[0], b"RuntimeError: CUDA error: uncorrectable ECC error encountered\\n")
    time.sleep(1)
if lost == "lost" and node == 0:
    time.sleep(3)
    os.write(writes[1], b"RuntimeError: [pair.cc:534] Connection closed by peer [10.1.0.9]:1\\n")
output.settle()
# The ticks of a pod that starts late would come after many of the other's.
here = Path("/data/runs/first/here")
here.mkdir(exist_ok=True)
(here / f"{start}-{node}").touch()
while not all((here / f"{start}-{each}").exists() for each in (0, 1)):
    time.sleep(0.05)
number = 0
while True:
    os.write(writes[0], b"start %s tick %d of %d\\n" % (start.encode(), number, node))
    number += 1
    time.sleep(0.5)
"""


def begin(lab: Lab, run: Run, start: str, lost: str = "") -> None:
    """Start two pods that write to the claim; wait until 20 lines of each rank and a tick are
    there, and the API server has them too.

    With `lost`, both pods also write errors, of which the first is on rank 2.
    """
    folder = Path(str(run.more["folder"]))
    if not (folder / "code").exists():
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / "trainer", folder / "code" / "trainer", ignore=ignore)
    claim = {"claimName": run.more["claim"]}
    run.pod = {"volumes": [{"name": "data", "persistentVolumeClaim": claim}]}
    name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    run.make(
        start,
        image=PYTHON_IMAGE,
        command=["python3", "-c", NODE, start, lost],
        args=[],
        env=[name],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )
    for node in (0, 1):
        path = folder / "runs" / "first" / "logs" / f"node-{node:05d}.log"
        tick = f"start {start} tick 0 of {node}".encode()
        wait_for(f"the ticks of node {node}", lambda p=path, t=tick: p.exists() and _has(p, t))
    wait_for("the API server to have them too", lambda: newest_lines_are_ticks(lab, run))


def _has(path: Path, text: bytes) -> bool:
    return text in path.read_bytes()


def newest_lines_are_ticks(lab: Lab, run: Run) -> bool:
    """Return whether the API server, too, has the ticks of both pods.

    What a pod prints reaches the API server some time after it is on the volume.
    """
    logs = [f"{pod['metadata']['name']}/log" for pod in run.pods()]
    pods = f"/api/v1/namespaces/{run.namespace}/pods"
    try:
        newest = [lab.api.text(f"{pods}/{log}", {"tailLines": "1"}) for log in logs]
    except ApiError:  # The API server may not know yet that a container has started.
        return False
    return len(newest) == 2 and all(" tick " in line for line in newest)


def end(lab: Lab, run: Run) -> None:
    """Delete the workload, and wait until its pods and their logs at the API server are gone."""
    lab.api.delete(run.path, {"propagationPolicy": "Foreground"})
    wait_for("the pods to be gone", lambda: run.get() is None and run.pods() == [])


def logs(lab: Lab, run: Run, folder: Path, *options: str) -> tuple[int, list[str]]:
    """Run `./disttrain logs` to its end, and return its exit status and the lines of its output."""
    with cli(lab, run, folder, "logs", *options) as process:
        output = process.communicate(timeout=120)[0].decode()
    return process.returncode, output.splitlines()


def lines_of(output: list[str], start: str) -> list[str]:
    """Return the numbered lines that the ranks of this start have written."""
    return [line for line in output if re.search(rf"\] start {start} rank \d line", line)]


def assert_each_once(output: list[str], start: str) -> None:
    """Check that the output has each of the 20 lines of all four ranks exactly once."""
    expected = {
        f"[node {rank // 2} rank {rank}] start {start} rank {rank} line {number} {ODD}"
        for rank in range(4)
        for number in range(20)
    }
    found = lines_of(output, start)
    assert len(found) == len(expected)
    assert set(found) == expected


def test_lines_of_deleted_pods_are_shown_in_order_with_ranks(
    lab: Lab, claim: Run, tmp_path: Path
) -> None:
    run = Run(lab, claim.namespace, "dev", "StatefulSet", **claim.more)
    begin(lab, run, "one", "lost")
    end(lab, run)
    begin(lab, run, "two")
    status, output = logs(lab, run, tmp_path, "--no-follow")
    assert status == 0, output
    assert_each_once(output, "one")
    assert_each_once(output, "two")
    first, second = lines_of(output, "one"), lines_of(output, "two")
    assert output.index(first[-1]) < output.index(second[0])
    # These lines were printed before the log began. The API server has them of living pods only.
    assert "[node 0] before the log two 0" in output
    assert "[node 0] before the log one 0" not in output
    ticks = [line for line in output if " tick " in line]
    assert len(ticks) == len(set(ticks))

    end(lab, run)
    status, output = logs(lab, run, tmp_path, "--rank", "1,2", "--grep", "line 1[0-4] ")
    assert status == 0, output
    found = [line for line in output if "] start" in line]
    assert len(found) == 2 * 2 * 5
    assert {line.split("]")[0] for line in found} == {"[node 0 rank 1", "[node 1 rank 2"}
    status, output = logs(lab, run, tmp_path, "--no-follow", "--tail", "3")
    assert status == 0, output
    assert len([line for line in output if "] start two tick" in line]) == 3
    status, output = logs(lab, run, tmp_path, "--first-error")
    assert status == 0, output
    assert "The cause is on rank 2 on node 1:" in output
    assert "  RuntimeError: CUDA error: uncorrectable ECC error encountered" in output
    wait_for("the pods of the reading to be gone", lambda: no_pods(lab, run))


def test_what_living_pods_print_is_followed_and_shown_once(
    lab: Lab, claim: Run, tmp_path: Path
) -> None:
    run = Run(lab, claim.namespace, "dev", "StatefulSet", **claim.more)
    begin(lab, run, "one")
    with cli(lab, run, tmp_path, "logs") as process:
        assert process.stdout
        output: list[str] = []
        while not any("tick 25 of 0" in line for line in output):
            output.append(process.stdout.readline().decode().rstrip("\n"))
            assert output[-1], "\n".join(output)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert_each_once(output, "one")
    ticks = [line for line in output if " tick " in line and " of 0" in line]
    assert ticks == [f"[node 0 rank 0] start one tick {number} of 0" for number in range(26)]
    wait_for("the pod of the reading to be gone", lambda: no_pods(lab, run))


def test_who_may_start_no_pod_sees_what_the_api_has(lab: Lab, claim: Run, tmp_path: Path) -> None:
    run = Run(lab, claim.namespace, "dev", "StatefulSet", **claim.more)
    begin(lab, run, "one")
    user_of(lab, run.namespace, tmp_path, "view")
    process = cli(lab, run, tmp_path, "logs", "--no-follow", kubeconfig=tmp_path / "kubeconfig")
    with process:
        output = process.communicate(timeout=120)[0].decode().splitlines()
    assert process.returncode == 0, output
    sentences = [line for line in output if "the logs on the volume cannot be read" in line]
    assert len(sentences) == 1
    assert "forbidden" in sentences[0]
    assert f"[node 1] start one rank 3 line 19 {ODD}" in output
    found = [line for line in output if " line 19 " in line]
    assert len(found) == len(set(found)) == 4
