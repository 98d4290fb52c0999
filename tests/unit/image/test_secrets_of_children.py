"""What the programs that `python3 -m infra.image` starts get to see of its secrets."""

import json
import subprocess
from typing import Any

import pytest

from infra.image import __main__ as program
from infra.image.containerd import Containerd
from infra.node.node_variable import VARIABLE

SECRET = "hunter2"


def test_programs_that_build_get_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that says how the node is reached, which holds the SSH key and sudo's password,
    is not passed on to builders and other programs. The password still reaches the node.
    """
    seen: list[str] = []

    def build(_: Any, containerd: Containerd) -> int:
        assert containerd.node is not None
        assert containerd.node.sudo_password == SECRET
        seen.append(subprocess.run(["env"], capture_output=True, text=True, check=True).stdout)
        return 0

    monkeypatch.setenv(VARIABLE, json.dumps({"ssh": None, "sudo_password": SECRET}))
    monkeypatch.setitem(program.ACTIONS, "ensure", build)
    assert program.main(["ensure", "--repository", "localhost/disttrain/trainer"]) == 0
    assert len(seen) == 1
    assert SECRET not in seen[0]
