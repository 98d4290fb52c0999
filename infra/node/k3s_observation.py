"""Asks a host about its k3s, so that `pulumi up` sees what has happened to k3s since the last `up`.

Pulumi's command provider cannot read what its commands have made. To the engine, a k3s that was
stopped or wiped by hand looks as it did after the last `up`. So each preview and each `up` first
asks the host. The answer gives two texts that are inputs of the command that installs k3s:

- The repair id stays the same as long as k3s is healthy. Otherwise it is a new one. Then the
  command runs again and repairs k3s, and the kubeconfig is fetched again.
- The generation id stays the same as long as k3s has the data of its installation. If they were
  wiped, it is a new one. Then the command is replaced, and with it everything that was in that
  cluster (infra/platform/cluster_generation.py).

k3s-install.sh records both on the host. This file uses only the standard library.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from infra.node.on_host import run_on_host
from infra.node.shell_program import assemble_program, script_text

OBSERVATION_SECONDS = 10


@dataclass(frozen=True)
class HostAccess:
    """How a command on this machine reaches the host.

    Args:
        ssh: the value that `ssh_command` takes; None: the host is this machine.
        sudo_password: the password for sudo, if sudo asks for one.
    """

    ssh: Mapping[str, Any] | None
    sudo_password: str = field(default="", repr=False)


@dataclass(frozen=True)
class K3sObservation:
    """What a host has said about its k3s, when it was asked.

    Args:
        repair_id: a text that differs from the one on the host if k3s has to be repaired.
        generation_id: a text that differs from the one on the host if k3s' data are gone.
        problem: why the host could not be asked; empty if it could.
        owner: identifies the platform that has installed k3s; empty: no platform has, or the owner
            is not recorded.
        role: the role of the host in a cluster of this program: k3s (the first machine),
            k3s-server or k3s-agent (further machines). It is empty if the host is in no such
            cluster, or if it was asked as a further machine.
        node: the node name of a further machine; empty if it is none, or if it is not recorded.
        machine: the machine-id and the address of a further machine, with a space between them;
            empty if one of the two is not known, or if the host was not asked as a further machine.
        host_setting: the value of the setting `host` with which k3s was installed, local or ssh;
            empty: it is not recorded.
        kubeconfig: checksum of the administrator's kubeconfig; empty: there is none. It differs in
            each cluster. It does not count when two observations are compared.
        authority: checksum of the certificate authority in that kubeconfig. It stays the same as
            long as the cluster exists. It does not count when two observations are compared.
    """

    repair_id: str
    generation_id: str
    problem: str = ""
    owner: str = ""
    role: str = ""
    node: str = ""
    machine: str = ""
    host_setting: str = ""
    kubeconfig: str = field(default="", compare=False)
    authority: str = field(default="", compare=False)


def observe_k3s(
    access: HostAccess,
    now: datetime | None = None,
    script: str = "k3s-look.sh",
    variables: Mapping[str, str] | None = None,
) -> K3sObservation:
    """Ask the host about its k3s. This takes some milliseconds there.

    It never raises: if the host does not answer within OBSERVATION_SECONDS, the reason is in
    `problem` of the result.

    Args:
        access: how the host is reached.
        now: the time from which new ids are made; None: the present time.
        script: k3s-look.sh, or k3s-agent-look.sh for a further machine.
        variables: the variables of the script.
    """
    new_id = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S.%fZ")
    program = assemble_program(script_text(script), variables or {}, "root", access.sudo_password)
    try:
        done = run_on_host(access.ssh, program, "look", OBSERVATION_SECONDS)
        done.check_returncode()
        facts = parse_facts(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return K3sObservation(new_id, new_id, problem=_words(error))
    return judge(facts, new_id)


def judge(facts: Mapping[str, str], new_id: str) -> K3sObservation:
    """Decide what the facts that the script has printed mean. This function is pure.

    Args:
        facts: the facts, from `parse_facts`.
        new_id: the id that is used if k3s has to be repaired or its data are gone.
    """
    if facts["state"] == "ours":
        healthy = facts["healthy"] == "yes" and facts["repair"]
        wiped = facts.get("noted_data", "yes") != "yes"  # An agent has no data.
        return K3sObservation(
            repair_id=facts["repair"] if healthy else new_id,
            generation_id=new_id if wiped else facts.get("generation", ""),
            owner=facts.get("owner", ""),
            role=facts.get("role", ""),
            kubeconfig=facts.get("kubeconfig", ""),
            authority=facts.get("authority", ""),
            node=facts.get("node", ""),
            machine=facts.get("machine", ""),
            host_setting=facts.get("way", ""),
        )
    if facts["state"] == "others":
        # This stack has recorded nothing about a k3s of others, and does not judge its data.
        kubeconfig = facts["kubeconfig"]
        return K3sObservation(
            repair_id=kubeconfig or new_id,
            generation_id="",
            kubeconfig=kubeconfig,
            authority=facts.get("authority", ""),
        )
    return K3sObservation(new_id, new_id, machine=facts.get("machine", ""))


def parse_facts(text: str) -> dict[str, str]:
    """Parse the `key=value` lines that the script has printed.

    Raises:
        ValueError: the answer is not complete.
    """
    pairs = [line.partition("=") for line in text.splitlines()]
    facts = {key: value for key, separator, value in pairs if separator}
    if facts.get("done") != "yes" or "state" not in facts:
        raise ValueError(f"the answer is not complete: {text[-200:]!r}")
    return facts


def _words(error: Exception) -> str:
    """The reason of an error, as one line for people."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer in {OBSERVATION_SECONDS} s"
    if isinstance(error, subprocess.CalledProcessError):
        stderr: str = error.stderr
        return (stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
    return str(error)
