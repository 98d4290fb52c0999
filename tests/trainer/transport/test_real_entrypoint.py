"""The real entrypoint with programs that write what NCCL would, where its variables say."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.trainer.program.desk import LIMIT_SECONDS, Desk
from trainer.events.event import event_file
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


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.end_all()


def test_ranks_by_sockets_where_ib_was_asked_for_are_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log by one line, to Prometheus, and as an event; what NCCL prints stays out of the
    log."""
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
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    config = desk.python("import os; print(sorted(n for n in os.environ if 'NCCL_D' in n))")
    assert desk.run(config) == 0
    assert "['NCCL_DEBUG']" in desk.log()
