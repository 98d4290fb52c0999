"""What a host with the k3s of another stack says, before anything is changed there."""

import subprocess
from pathlib import Path

import pytest

from infra.node.shell_program import script_text

RECORD = "/etc/rancher/disttrain"
HINT = "If it is yours, put the run onto its platform: pulumi config set platform dev."


@pytest.mark.parametrize(
    ("service", "stack", "has_hint"),
    [
        ("k3s", "organization/disttrain/wide", True),
        ("k3s", "", True),
        ("k3s", "organization/disttrain/dev", False),
        ("k3s-agent", "organization/disttrain/wide", False),
    ],
    ids=["second stack", "script that knows no stack", "same name elsewhere", "further machine"],
)
def test_second_stack_learns_of_the_setting_platform(
    service: str, stack: str, has_hint: bool, tmp_path: Path
) -> None:
    """A user's second stack that makes a platform of its own on the same host learns how it uses
    the first one's. A stack of the same name is in another backend, so the setting would not help.
    """
    record = tmp_path / "disttrain"
    record.write_text("owner 11111111\nstack organization/disttrain/dev\n")
    script = script_text("lib/k3s.sh").replace(RECORD, str(record))
    script = f"set -eu\n{script}"
    script += '\nfail() { echo "$1"; exit 1; }\nrefuse_k3s_of_others\n'
    variables = {"SERVICE": service, "OWNER": "22222222", "STACK": stack, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", script], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "belongs to another stack (organization/disttrain/dev). " in done.stdout
    assert (HINT in done.stdout) == has_hint
