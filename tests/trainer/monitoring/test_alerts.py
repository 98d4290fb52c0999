"""From a fault to a webhook: a real run, Prometheus with our rules, and Alertmanager."""

from __future__ import annotations

import os
import signal
import time

from infra.monitoring.rules import RULES
from tests.trainer.lab import Lab, free_port, last_step, ranks_below, wait_for
from tests.trainer.monitoring.alertmanager import Alertmanager, Webhook
from tests.trainer.monitoring.pod import start_pod
from tests.trainer.monitoring.prometheus import Prometheus

NAME = "DisttrainRunFailed"


def test_killed_rank_of_a_run_without_restarts_reaches_the_webhook(lab: Lab) -> None:
    """With who it is and what to do; before the fault nothing is told."""
    webhook = Webhook()
    alertmanager = Alertmanager(lab.root / "alertmanager", webhook)
    prometheus = Prometheus(lab.root / "prometheus", alertmanager.port)
    try:
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
    finally:
        prometheus.close()
        alertmanager.close()
        webhook.close()
    rule = next(rule for rule in RULES if rule.name == NAME)
    alert = webhook.alerts[0]
    assert alert["status"] == "firing"
    assert alert["labels"] == {
        "alertname": NAME,
        "namespace": "disttrain",
        "run": "tiny",
        "severity": "critical",
    }
    assert alert["annotations"] == {
        "summary": "Run tiny was given up.",
        "runbook_url": rule.runbook,
    }
