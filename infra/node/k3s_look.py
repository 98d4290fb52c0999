"""A look at the k3s of the host, which lets `pulumi up` see what happened to it meanwhile.

Pulumi's command provider cannot read what its commands have made: to the engine a k3s that was
stopped or wiped by hand looks as it did after the last `up`. So each preview and each `up` first
asks the host, and the answer gives two texts that are inputs of the command that installs k3s:

- the repair id stays the same while k3s is healthy and is a new one otherwise, so that the command
  runs again and repairs k3s, and the kubeconfig is fetched again;
- the generation id stays the same while k3s has the data of its install and is a new one when they
  were wiped, so that the command is replaced, and with it all that was in that cluster
  (infra/platform/cluster_generation.py).

Both are noted on the host by k3s-install.sh. Standard library only.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from infra.node.on_host import run_on_host
from infra.node.shell_program import assemble_program, script_text

LOOK_SECONDS = 10


@dataclass(frozen=True)
class HostAccess:
    """How a command of this machine reaches the host.

    Args:
        ssh: see `ssh_command`; None: the host is this machine.
        sudo_password: for sudo, where it asks for one.
    """

    ssh: Mapping[str, Any] | None
    sudo_password: str = field(default="", repr=False)


@dataclass(frozen=True)
class K3sLook:
    """What the look has found.

    Args:
        repair_id: another one than noted on the host means that k3s has to be repaired.
        generation_id: another one than noted on the host means that k3s' data are gone.
        problem: why the host could not be asked; empty when it was.
        owner: identifies the platform that has installed k3s; empty: none has, or it is not noted.
        place: what the host is in the cluster of this program: k3s (the first machine), k3s-server
            or k3s-agent (a further one); empty: it is in none, or was asked as a further one.
        node: name of the node that a further one is; empty: it is none, or it is not noted.
        machine: the id and the address by which a further one is known, with a space between;
            empty: one of the two is not known, or it was not asked as a further one.
        way: how the program has reached the host to install k3s, local or ssh; empty: not noted.
        kubeconfig: checksum of the administrator's; empty: there is none. It is another one in each
            cluster, and two looks that differ in it alone have found the same.
        authority: checksum of the certificate authority that it names; the same for as long as the
            cluster lives. Like `kubeconfig` it is no part of what was found.
    """

    repair_id: str
    generation_id: str
    problem: str = ""
    owner: str = ""
    place: str = ""
    node: str = ""
    machine: str = ""
    way: str = ""
    kubeconfig: str = field(default="", compare=False)
    authority: str = field(default="", compare=False)


def look_at_k3s(
    access: HostAccess,
    now: datetime | None = None,
    script: str = "k3s-look.sh",
    variables: Mapping[str, str] | None = None,
) -> K3sLook:
    """Ask the host; takes some milliseconds there, at most LOOK_SECONDS, and never raises.

    Args:
        access: the way to the host.
        now: the time, from which new ids are made.
        script: k3s-look.sh, or k3s-agent-look.sh for a further machine.
        variables: of the script.
    """
    new_id = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S.%fZ")
    program = assemble_program(script_text(script), variables or {}, "root", access.sudo_password)
    try:
        done = run_on_host(access.ssh, program, "look", LOOK_SECONDS)
        done.check_returncode()
        facts = parse_facts(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return K3sLook(new_id, new_id, problem=_words(error))
    return judge(facts, new_id)


def judge(facts: Mapping[str, str], new_id: str) -> K3sLook:
    """The two ids that follow from what k3s-look.sh has printed."""
    if facts["state"] == "ours":
        healthy = facts["healthy"] == "yes" and facts["repair"]
        wiped = facts.get("noted_data", "yes") != "yes"  # an agent has no data
        return K3sLook(
            repair_id=facts["repair"] if healthy else new_id,
            generation_id=new_id if wiped else facts.get("generation", ""),
            owner=facts.get("owner", ""),
            place=facts.get("place", ""),
            kubeconfig=facts.get("kubeconfig", ""),
            authority=facts.get("authority", ""),
            node=facts.get("node", ""),
            machine=facts.get("machine", ""),
            way=facts.get("way", ""),
        )
    if facts["state"] == "others":
        # nothing is noted on a host that is not ours, and its data are not ours to judge
        kubeconfig = facts["kubeconfig"]
        return K3sLook(
            repair_id=kubeconfig or new_id,
            generation_id="",
            kubeconfig=kubeconfig,
            authority=facts.get("authority", ""),
        )
    return K3sLook(new_id, new_id, machine=facts.get("machine", ""))


def parse_facts(text: str) -> dict[str, str]:
    """The `key=value` lines of k3s-look.sh.

    Raises:
        ValueError: the answer is not complete.
    """
    pairs = [line.partition("=") for line in text.splitlines()]
    facts = {key: value for key, separator, value in pairs if separator}
    if facts.get("done") != "yes" or "state" not in facts:
        raise ValueError(f"the answer is not complete: {text[-200:]!r}")
    return facts


def _words(error: Exception) -> str:
    """The last line of what went wrong."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer in {LOOK_SECONDS} s"
    if isinstance(error, subprocess.CalledProcessError):
        stderr: str = error.stderr
        return (stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
    return str(error)
