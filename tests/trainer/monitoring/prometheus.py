"""A real Prometheus on loopback, which reads all metrics each second."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.monitoring.rules import rule_file
from sandbox.toolchain import tool_folder
from sandbox.tools.services import PROMETHEUS_SERVER
from tests.ports import free_port


class Prometheus:
    """The running Prometheus with rules; tests add and remove its targets."""

    def __init__(
        self,
        folder: Path,
        alertmanager_port: int | None = None,
        rules: Mapping[str, Any] | None = None,
        more: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Start the server.

        Args:
            folder: a new folder for its files.
            alertmanager_port: the port of an Alertmanager that gets its alerts; None: none does.
            rules: the content of its rule file; None: our rules.
            more: further scrape jobs, in the form of its configuration.
        """
        folder.mkdir()
        self._folder, self._port = folder, free_port()
        self._targets: list[dict[str, Any]] = []
        self._write_targets()
        (folder / "rules.json").write_text(json.dumps(rules or rule_file()))
        configuration: dict[str, Any] = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": ["rules.json"],
            "scrape_configs": [
                {
                    "job_name": "pods",
                    "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
                },
                *more,
            ],
        }
        if alertmanager_port is not None:
            targets = [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]
            configuration["alerting"] = {"alertmanagers": [{"static_configs": targets}]}
        (folder / "prometheus.json").write_text(json.dumps(configuration))
        self._log = folder / "prometheus.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    str(tool_folder(PROMETHEUS_SERVER) / "prometheus"),
                    *("--config.file", "prometheus.json", "--storage.tsdb.path", "data"),
                    *("--web.listen-address", f"127.0.0.1:{self._port}"),
                ],
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_ready()

    def add_target(self, port: int, labels: Mapping[str, str]) -> None:
        """Read this port of loopback, with the labels that discovery would give."""
        target = {"targets": [f"127.0.0.1:{port}"], "labels": dict(labels)}
        if target not in self._targets:
            self._targets.append(target)
            self._write_targets()

    def forget_targets(self) -> None:
        """Remove all targets, as if all pods were deleted."""
        self._targets.clear()
        self._write_targets()

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query, a vector."""
        return self.get("query", query=expression)["result"]

    def get(self, path: str, **words: str) -> Any:
        """Return the data in the answer to a request of the HTTP API."""
        query = urllib.parse.urlencode(words)
        address = f"http://127.0.0.1:{self._port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(address, timeout=20) as answer:
            return json.loads(answer.read())["data"]

    def wait_for(self, expression: str, seconds: float = 90) -> list[dict[str, Any]]:
        """Return the first result of a query that is not empty; empty if none comes within
        `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not (found := self.ask(expression)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def alerts(self) -> Sequence[str]:
        """Return the names of the alerts that fire."""
        return [
            alert["labels"]["alertname"]
            for alert in self.get("alerts")["alerts"]
            if alert["state"] == "firing"
        ]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _write_targets(self) -> None:
        (new := self._folder / "targets.new").write_text(json.dumps(self._targets))
        new.rename(self._folder / "targets.json")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5):
                    return
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.05)
