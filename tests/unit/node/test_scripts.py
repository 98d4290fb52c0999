"""What holds for every script that runs on a host, and what scripts do on a machine without k3s."""

import os
import re
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from infra.node.shell_program import SCRIPTS, script_text
from tests.unit.run_script import ALL_SCRIPTS, required_variables, run, run_text


@pytest.mark.parametrize("script", ALL_SCRIPTS)
def test_scripts_name_no_action_that_they_do_not_know(script: str) -> None:
    """A script refuses an action that it does not know with exit status 2."""
    done = run(script, "explode", **required_variables(script))
    assert done.returncode == 2
    assert "unknown action explode" in done.stderr


def always_required(script: str) -> list[str]:
    """Return the variables that the script requires for each of its actions."""
    always = re.findall(r"^(: .*)$", script_text(script), re.MULTILINE)
    return re.findall(r'"\$\{(\w+):\?\}"', "\n".join(always))


@pytest.mark.parametrize(
    ("script", "name"),
    [(script, name) for script in ALL_SCRIPTS for name in always_required(script)],
)
def test_missing_variable_is_named(script: str, name: str) -> None:
    """A script that lacks a required variable fails and names the variable."""
    given = required_variables(script)
    done = run(script, "explode", **{key: given[key] for key in given if key != name})
    assert done.returncode != 0
    assert name in done.stderr


@pytest.mark.parametrize("script", ALL_SCRIPTS)
def test_header_says_what_a_dry_run_does(script: str) -> None:
    """The comment at the head of each script mentions DRY_RUN. tests/node/test_dry_mode.py tries
    the dry runs.
    """
    lines = (SCRIPTS / script).read_text().splitlines()
    header = [line for line in lines[:25] if line.startswith("#")]
    assert "DRY_RUN" in "\n".join(header)


def test_kubeconfig_script_names_what_is_missing() -> None:
    """On a machine without k3s, the script that reads the kubeconfig fails and names the missing
    file.
    """
    assert not Path("/etc/rancher/k3s/k3s.yaml").exists(), "this machine runs k3s"
    done = run("k3s-kubeconfig.sh", "create", SERVER_HOST="10.1.2.3")
    assert done.returncode == 1
    assert "/etc/rancher/k3s/k3s.yaml" in done.stderr


def test_k3s_that_is_not_ours_is_left_alone() -> None:
    """The removal of k3s does nothing on a machine where this program has not installed k3s."""
    assert not Path("/etc/rancher/disttrain").exists(), "this machine is a node"
    done = run("k3s-install.sh", "delete", **required_variables("k3s-install.sh"))
    assert done.returncode == 0
    assert "was not installed by this program" in done.stdout


def test_holder_of_a_port_is_found_with_one_process_for_each_process(tmp_path: Path) -> None:
    """The script that finds out which process has a port starts at most one `ls` for each process,
    and no `readlink` for each open file of the host.
    """
    for name in ("ls", "readlink"):
        program = tmp_path / name
        program.write_text(
            f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\nexec {shutil.which(name)} "$@"\n'
        )
        program.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as many:
        for _ in range(50):
            many.enter_context(Path(os.devnull).open())
        port = server.getsockname()[1]
        libraries = script_text("lib/k3s.sh") + script_text("lib/k3s-preflight.sh")
        text = f"{libraries}\nport_owner {port}\n"
        done = run_text(text, "", {}, "user", {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert f"process {os.getpid()} " in done.stdout, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sorted(set(calls)) == sorted(calls)
    assert not [call for call in calls if call.startswith("readlink")]


def test_ports_of_etcd_are_all_asked() -> None:
    """The check of free ports includes 2381 and 2382 of the loopback device, which the etcd of k3s
    needs besides 2379 and 2380.
    """
    libraries = script_text("lib/k3s.sh") + script_text("lib/k3s-preflight.sh")
    text = f"{libraries}\nprintf '%s' \"$ETCD_PORTS\"\n"
    done = run_text(text, "", {}, "user", {"PATH": os.environ["PATH"]})
    assert done.stdout.split() == ["2379", "2380", "2381", "2382"], done.stderr
