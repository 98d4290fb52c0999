"""The way from a fault to a webhook, with a real run, Prometheus with our rules, and
Alertmanager.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from cli.status.progress import read_progress
from infra.monitoring.rules import RULES
from infra.networks import NETWORKS
from infra.networks.profile import NetworkProfile
from tests.trainer.lab import Lab, free_port, last_step, wait_for
from tests.trainer.monitoring.alertmanager import Alertmanager, Webhook
from tests.trainer.monitoring.pod import start_pod
from tests.trainer.monitoring.prometheus import Prometheus
from tests.trainer.process_tree import ranks_below
from trainer.config import RunConfig

FAILED, FALLBACK = "DisttrainRunFailed", "DisttrainTransportFallback"
# A stand-in for a program whose NCCL falls back: it writes the lines that NCCL would.
STAND_IN = """
import os, time
from tests.trainer.transport.recorded import RECORDED
assert os.environ["NCCL_DEBUG"] == "INFO"
path = os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))
lines, _ = RECORDED["EFA is not in the pod, so sockets"]
with open(path, "w") as file:
    file.write("\\n".join(lines) + "\\n")
for step in range(1_000_000):
    print(f"step {step}", flush=True)
    time.sleep(0.1)
"""
EFA = NetworkProfile(name="toy-efa", transports=("efa",))


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


@pytest.fixture
def prometheus(lab: Lab, webhook: Webhook) -> Iterator[Prometheus]:
    """Yield a Prometheus with our rules, which tells the webhook through Alertmanager."""
    alertmanager = Alertmanager(lab.root / "alertmanager", webhook)
    server = Prometheus(lab.root / "prometheus", alertmanager.port)
    yield server
    server.close()
    alertmanager.close()


def check_first(webhook: Webhook, name: str, severity: str, summary: str) -> None:
    """Assert that the webhook's first alert says what is wrong, with which run, and what to do."""
    rule = next(rule for rule in RULES if rule.name == name)
    alert = webhook.alerts[0]
    assert alert["status"] == "firing"
    assert alert["labels"] == {
        "alertname": name,
        "namespace": "disttrain",
        "run": "tiny",
        "severity": severity,
    }
    assert alert["annotations"] == {"summary": summary, "description": rule.description}


def test_killed_rank_of_a_run_without_restarts_reaches_the_webhook(
    lab: Lab, prometheus: Prometheus, webhook: Webhook
) -> None:
    """When a killed rank ends a run without restarts, the webhook gets an alert that names the run
    and says what to do. Before the fault it gets none.
    """
    config = lab.config(train__max_steps=1_000_000, train__max_restarts=0)
    pod = start_pod(lab, prometheus, config, 0, 1, free_port())
    wait_for("steps", lambda: last_step(config) > 5, 60, lab)
    assert prometheus.wait_for("count_over_time(disttrain_info[5m]) >= 5")
    assert webhook.alerts == []
    rank, *_ = ranks_below(pod.pid)
    os.kill(rank, signal.SIGKILL)
    since = time.monotonic()
    assert pod.wait(120) != 0
    wait_for("the webhook", lambda: bool(webhook.alerts), 90, lab)
    print(f"the webhook was told {time.monotonic() - since:.1f} s after the kill")
    check_first(webhook, FAILED, "critical", "Run tiny was given up.")


@pytest.mark.parametrize("profile", [EFA, NETWORKS["pod-tcp"]], ids=lambda each: each.name)
def test_nccl_that_falls_back_to_sockets_reaches_the_webhook(
    lab: Lab, prometheus: Prometheus, webhook: Webhook, profile: NetworkProfile
) -> None:
    """When the NCCL of two pods has found no EFA, the webhook gets an alert if EFA was asked for,
    and none with `pod-tcp`, which asks for sockets.
    """
    mapping = {
        "run_name": "tiny",
        "data_root": str(lab.root),
        "program": {
            "command": [sys.executable, "-c", STAND_IN],
            "progress": r"step (?P<step>\d+)",
        },
    }
    config, port = RunConfig.from_mapping(mapping), free_port()
    for node in range(2):
        start_pod(lab, prometheus, config, node, 2, port, network=profile)
    assert prometheus.wait_for("count(disttrain_transport_as_asked) == 2"), lab.logs()
    # On a busy machine Prometheus may miss a reading, and a query then finds nothing for a while.
    sockets = 'disttrain_transport_info{transport="socket",device="eth0",gpu_direct="no"}'
    assert prometheus.wait_for(f"count({sockets}) == 2")
    if profile is not EFA:
        assert prometheus.wait_for("min(disttrain_transport_as_asked) == 1")
        assert prometheus.wait_for("min(count_over_time(disttrain_transport_as_asked[1h])) >= 5")
        assert (prometheus.alerts(), webhook.alerts) == ([], [])
        assert "transport as asked: " in lab.node_log(0).read_text()
        return
    wait_for("the webhook", lambda: bool(webhook.alerts), 90, lab)
    summary = (
        "The ranks of run tiny do not use the transport that its network profile asks for; "
        "./disttrain status says the likely causes."
    )
    check_first(webhook, FALLBACK, "warning", summary)
    for node in range(2):
        lines = lab.node_log(node).read_text().splitlines()
        seen = read_progress("".join(f"2026-11-22T09:00:00Z {line}\n" for line in lines))
        assert "Likely causes: (1) the pod has no EFA device" in seen.transport
    assert "NCCL INFO" not in lab.node_log(0).read_text(), "the log stays as it was"
