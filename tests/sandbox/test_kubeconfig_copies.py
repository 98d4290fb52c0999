"""Pulumi's Kubernetes provider leaves copies of the kubeconfig, which `destroy` removes. The engine
is real.

The provider writes a copy as soon as it starts. Here an `up` is killed, with all that it has
started, when nothing is in the cluster yet. The API server is a stand-in without objects.
"""

import json
import os
import signal
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from sandbox.venvs import PROJECT
from tests.sandbox.command_lab import Stack, finish, session_members, wait_for
from tests.tls_api import kubeconfig_of, tls_api

PROGRAM = """
import sys
sys.path.insert(0, ".")
import pulumi_kubernetes as kubernetes
from infra.kube_command import Connection, kube_command

text = pulumi.Output.secret(KUBECONFIG)
owner = pulumi.Output.from_input("o")
connection = Connection(text, False, context="", namespace="n", stack="s", owner=owner)
before = []
if HAS_TASK:  # as infra/platform/cluster.py has it
    before = [kube_command("copies", "copies", connection, {}, pulumi.ResourceOptions())]
opts = pulumi.ResourceOptions(depends_on=before)
provider = kubernetes.Provider("provider", kubeconfig=text, opts=opts)
local.Command("k3s", create="until test -e $GO; do sleep 0.1; done",
              opts=pulumi.ResourceOptions(depends_on=[provider]))
"""


ANSWERS = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
}


class ApiServer(BaseHTTPRequestHandler):
    """A stand-in API server that answers what the provider asks when it starts."""

    def do_GET(self) -> None:
        found = ANSWERS.get(self.path.partition("?")[0])
        body = json.dumps(found or {"kind": "Status", "code": 404}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the requests out of the tests' output."""


def copies(folder: Path) -> list[Path]:
    """Return the copies of the kubeconfig in a folder."""
    return [*folder.glob("kubeconfig*")]


@pytest.mark.parametrize("has_task", [True, False])
def test_destroy_after_a_killed_first_up_removes_the_copies(stack: Stack, has_task: bool) -> None:
    """`destroy` after a killed first `up` removes the copies, because a task for this is in the
    state before the provider. Without such a task the copies stay, with the key in them.
    """
    temporary = stack.folder / "tmp"
    temporary.mkdir()
    stack.environment["TMPDIR"] = str(temporary)
    for name in (".venv", "infra"):
        (stack.folder / name).symlink_to(PROJECT / name)
    with tls_api(stack.folder, ApiServer) as gate:
        content = yaml.safe_dump(kubeconfig_of(gate, stack.folder))
        stack.program(PROGRAM, KUBECONFIG=content, HAS_TASK=has_task)
        engine = stack.start("up", "--yes")
        wait_for(lambda: bool(copies(temporary)), "the provider")
        wait_for(lambda: "::provider" in stack.state_text(), "the provider in the state")
        for pid in session_members(engine.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        engine.communicate()
        assert "client-key-data" in copies(temporary)[0].read_text()
        stack.run("cancel", "--yes")
        destroy = stack.start("destroy", "--yes")  # destroy may warn of what was being made
        said = finish(destroy)
        assert destroy.returncode == 0, said
    assert json.loads(stack.state_text())["checkpoint"]["latest"].get("resources", []) == []
    assert bool(copies(temporary)) == (not has_task)
