"""What a webhook behind a real Prometheus and Alertmanager is told of one run."""

from __future__ import annotations

import re
from typing import Any

from infra.monitoring.rules import RULES
from tests.trainer.lab import Lab, wait_for
from tests.trainer.monitoring.alertmanager import Webhook
from tests.trainer.monitoring.prometheus import Prometheus

SECONDS = 300.0  # on a machine that has much else to do
_LABEL = re.compile(r"{{ \$labels\.(\w+) }}")


class Told:
    """The alerts of one run, from before a fault to its end.

    Whether an alert comes without a fault is asked of promtool (tests/monitoring): with rules whose
    minutes are seconds, a busy machine may be a fault.
    """

    def __init__(self, lab: Lab, prometheus: Prometheus, webhook: Webhook, run: str) -> None:
        self._lab, self._prometheus, self._webhook, self._run = lab, prometheus, webhook, run
        self._known: dict[str, int] = {}

    def nothing_of(self, *names: str) -> None:
        """Wait until these alerts are neither pending nor firing; what is told counts from then."""
        for name in names:
            query = f'absent(ALERTS{{alertname="{name}",run="{self._run}"}})'
            assert self._prometheus.wait_for(query, SECONDS), f"{name} does not end"
            self._known[name] = len(self._webhook.alerts)

    def firing(self, name: str, **labels: str) -> None:
        """Wait until the webhook is told of it: what is wrong, with whom, and what to do."""
        self._wait(name, "firing")
        alert = self._of(name, "firing")[0]
        rule = next(rule for rule in RULES if rule.name == name)
        wanted = {"namespace": "disttrain", "severity": rule.severity, **labels}
        assert alert["labels"].items() >= wanted.items()
        summary = _LABEL.sub(lambda found: alert["labels"][found[1]], rule.summary)
        assert alert["annotations"] == {"summary": summary, "runbook_url": rule.runbook}

    def resolved(self, *names: str) -> None:
        """Wait until the webhook is told that they are over."""
        for name in names:
            self._wait(name, "resolved")

    def _wait(self, name: str, status: str) -> None:
        wait_for(f"{name} {status}", lambda: bool(self._of(name, status)), SECONDS, self._lab)

    def _of(self, name: str, status: str) -> list[dict[str, Any]]:
        """Told of since `nothing_of`."""
        return [
            alert
            for alert in self._webhook.alerts[self._known[name] :]
            if (alert["status"], alert["labels"]["alertname"], alert["labels"].get("run"))
            == (status, name, self._run)
        ]
