"""The real entrypoint with programs that stand in for NCCL: they write its lines into the file that
its variables name.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.status.progress import read_progress
from tests.ports import free_port
from tests.trainer.program.desk import LIMIT_SECONDS, Desk
from tests.trainer.transport.recorded import RECORDED
from trainer.events.event import event_file
from trainer.launch.exit_codes import ExitCode
from trainer.monitoring.endpoint import PORT_VARIABLE
from trainer.transport.asked import VARIABLE

WRITES = """
import os
path = os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))
with open(path, "w") as file:
    file.write("pod:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.4.51<0>\\n")
    file.write("pod:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\\n")
print("step 1", flush=True)
import pathlib, time
while not pathlib.Path(os.environ["SEEN"]).exists():
    time.sleep(0.05)
"""

SOCKETS = RECORDED["EFA is not in the pod, so sockets"][0]
EFA = RECORDED["EFA with GPUDirect"][0]
WRITES_RECORDED = """
import os, pathlib, time
with open(os.environ["STARTS"], "a") as file:
    file.write("start\\n")
path = os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))
pathlib.Path(path).write_text({sockets!r} if os.environ["RANK"] == "1" else {efa!r})
print("step 1", flush=True)
time.sleep(3600)
""".format(sockets="\n".join(SOCKETS) + "\n", efa="\n".join(EFA) + "\n")
PROGRESS = r"step (?P<step>\d+)"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.end_all()


def test_ranks_by_sockets_where_ib_was_asked_for_are_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that use sockets although InfiniBand was asked for are reported by one line of the log,
    by a metric and by an event. What NCCL prints stays out of the log.
    """
    monkeypatch.setenv(VARIABLE, "ib,roce")
    monkeypatch.setenv("SEEN", str(desk.root / "seen"))
    monkeypatch.setenv(PORT_VARIABLE, str(port := free_port()))
    config = desk.python(WRITES, progress=r"step (?P<step>\d+)")
    pod = desk.start(config, ranks=2)
    desk.wait_for("transport not as asked")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    assert 'node_rank="0",asked="ib,roce"} 0\n' in page
    for rank in range(2):
        assert f'rank="{rank}",library="nccl",transport="socket",device="eth0"' in page
    (desk.root / "seen").touch()
    assert pod.wait(LIMIT_SECONDS) == 0
    said = [line for line in desk.log().splitlines() if "transport" in line]
    assert len(said) == 1
    assert said[0].startswith(
        "[node 0] warning: transport not as asked: rank 0, 1 by NCCL over TCP sockets (eth0), and "
        "the network profile asks for InfiniBand or RoCE. Likely causes: (1) "
    )
    assert "NCCL INFO" not in desk.log()
    lines = event_file(config.run_dir, 0).read_text().split("\n")
    events = [json.loads(line) for line in lines if '"transport"' in line]
    assert [(e["transport"], e["asked"], e["as_asked"]) for e in events] == [
        ("socket", "ib,roce", False)
    ]


def test_own_nccl_debug_keeps_its_lines_in_the_log(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the user sets `NCCL_DEBUG`, no further NCCL variable is set, and NCCL prints into
    the log.
    """
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    config = desk.python("import os; print(sorted(n for n in os.environ if 'NCCL_D' in n))")
    assert desk.run(config) == 0
    assert "['NCCL_DEBUG']" in desk.log()


@pytest.mark.parametrize("nodes", [1, 2])
def test_policy_stop_fails_the_run_with_the_causes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    """With `train.transport_policy` set to stop, one rank that has sockets in place of EFA ends all
    pods as failed, and none of them tries again.
    """
    monkeypatch.setenv(VARIABLE, "efa")
    starts = desk.root / "starts"
    monkeypatch.setenv("STARTS", str(starts))
    config = desk.python(
        WRITES_RECORDED, progress=PROGRESS, train={"transport_policy": "stop", "max_restarts": 3}
    )
    port, ranks = free_port(), 2 // nodes
    pods = [desk.start(config, node, nodes, ranks, port) for node in range(nodes)]
    assert [pod.wait(LIMIT_SECONDS) for pod in pods] == [ExitCode.FATAL] * nodes
    assert starts.read_text().count("start") == 2, "each rank was started once"
    for node in range(nodes):
        last = desk.log(node).splitlines()[-1]
        begin = (
            rf"\[node {node}\] fatal: (node 1: )?transport not as asked: rank 1 by NCCL over TCP"
        )
        assert re.match(begin, last), desk.log(node)
        assert "the network profile asks for EFA. Likely causes: (1) the pod has no EFA dev" in last
        assert "; (2) " in last
        assert "; (3) " in last
        told = read_progress(f"2026-01-01T00:00:00Z {last}")
        assert "transport_policy is stop" in told.failed, "what `./disttrain status` shows"
    assert "starting again" not in desk.log()
