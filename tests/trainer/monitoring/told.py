"""Waits for the alerts of one run, pod or queue at a webhook behind Prometheus and Alertmanager."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from infra.monitoring.rules import RULES
from tests.trainer.monitoring.alertmanager import Webhook
from tests.trainer.monitoring.prometheus import Prometheus

SECONDS = 300.0  # the longest wait, on a busy machine too
_LABEL = re.compile(r"{{ \$labels\.(\w+) }}")


class Told:
    """The alerts with certain labels, from before a fault to its end.

    Tests with promtool (tests/monitoring) check that no alert comes without a fault. Here, with
    rules whose minutes are seconds, a busy machine may already be a fault.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        webhook: Webhook,
        of: Mapping[str, str],
        logs: Callable[[], str] = str,
    ) -> None:
        """`of` are the labels of the alerts. `logs` gives a text for the error of a failed wait."""
        self._prometheus, self._webhook, self._of_what, self._logs = prometheus, webhook, of, logs
        self._known: dict[str, int] = {}

    def nothing_of(self, *names: str) -> None:
        """Wait until these alerts neither pend nor fire. Only later messages count from then on."""
        for name in names:
            labels = {"alertname": name, **self._of_what}
            pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
            assert self._prometheus.wait_for(f"absent(ALERTS{{{pairs}}})", SECONDS), (
                f"{name} does not end"
            )
            self._known[name] = len(self._webhook.alerts)

    def firing(self, name: str, **labels: str) -> None:
        """Wait until the webhook gets the firing alert, and check its labels and annotations."""
        self._wait(name, "firing")
        alert = self._found(name, "firing")[0]
        rule = next(rule for rule in RULES if rule.name == name)
        wanted = {"severity": rule.severity, **labels}
        assert alert["labels"].items() >= wanted.items()
        summary, description = (
            _LABEL.sub(lambda found: alert["labels"][found[1]], text)
            for text in (rule.summary, rule.description)
        )
        assert alert["annotations"] == {"summary": summary, "description": description}

    def resolved(self, *names: str) -> None:
        """Wait until the webhook hears that these alerts are resolved."""
        for name in names:
            self._wait(name, "resolved")

    def was_silent(self, *names: str) -> None:
        """Assert that none of these alerts has fired or is pending since `nothing_of`."""
        for name in names:
            assert self._found(name, "firing") == []
            labels = [alert["labels"] for alert in self._prometheus.get("alerts")["alerts"]]
            assert name not in [found["alertname"] for found in labels if self._is_ours(found)]

    def _wait(self, name: str, status: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not self._found(name, status):
            assert time.monotonic() < deadline, (
                f"waited {SECONDS:g} s for {name} {status}\n{self._logs()}"
            )
            time.sleep(0.05)

    def _found(self, name: str, status: str) -> list[dict[str, Any]]:
        """Return the messages about an alert with this status since `nothing_of`."""
        return [
            alert
            for alert in self._webhook.alerts[self._known[name] :]
            if (alert["status"], alert["labels"]["alertname"]) == (status, name)
            and self._is_ours(alert["labels"])
        ]

    def _is_ours(self, labels: Mapping[str, str]) -> bool:
        return labels.items() >= self._of_what.items()
