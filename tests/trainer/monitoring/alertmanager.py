"""A real Alertmanager on loopback, and a webhook that keeps the alerts that it gets."""

from __future__ import annotations

import json
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sandbox.toolchain import tool_folder
from sandbox.tools.services import ALERTMANAGER_SERVER
from tests.loopback import LoopbackServer
from tests.ports import free_port


class Webhook(LoopbackServer):
    """A webhook that keeps the alerts that it gets, in their order."""

    def __init__(self) -> None:
        alerts: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                alerts.extend(json.loads(self.rfile.read(length))["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.alerts = alerts
        super().__init__(ThreadingHTTPServer, Handler)


class Alertmanager:
    """The running Alertmanager, which sends alerts to a webhook at once."""

    def __init__(self, folder: Path, webhook: Webhook) -> None:
        folder.mkdir()
        self.port = free_port()
        configuration = {
            "route": {
                "receiver": "test",
                "group_by": ["alertname", "run"],
                "group_wait": "0s",
                "group_interval": "1s",
            },
            "receivers": [
                {
                    "name": "test",
                    "webhook_configs": [{"url": f"http://127.0.0.1:{webhook.port}/"}],
                }
            ],
        }
        (folder / "alertmanager.json").write_text(json.dumps(configuration))
        with (folder / "alertmanager.log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    str(tool_folder(ALERTMANAGER_SERVER) / "alertmanager"),
                    *("--config.file", "alertmanager.json", "--storage.path", "data"),
                    *("--web.listen-address", f"127.0.0.1:{self.port}"),
                    "--cluster.listen-address=",
                ],
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)
