"""Further test hosts beside the lab's host, and a network between them.

Each host has its own link to this machine. The traffic between k3s' machines goes over a bridge in
the first host's network namespace, which is like the switch of a rack.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infra.node.doctor_plan import Machine, Plan, SshTarget
from infra.node.expectations import FIRST_NODE, Expectations
from infra.node.shell_program import assemble_program, script_text
from sandbox.stack import Stack
from tests.node.host import Entry, Host
from tests.node.lab import Lab, different, wait_for
from tests.node.releases import VERSION

SERVER_ADDRESS = "192.0.2.1"  # reserved for documentation, so no network uses it
BRIDGE = "lan0"
NAMES = ("gpu-two", "gpu-three")
AGENT = {"NODE": "by-hand", "K3S_VERSION": VERSION, "SERVER_URL": f"https://{SERVER_ADDRESS}:6443"}
SCRIPTS = {
    "k3s-agent.sh": AGENT,
    "k3s-further-server.sh": {**AGENT, "POD_CIDR": "10.42.0.0/16", "SERVICE_CIDR": "10.43.0.0/16"},
}


@dataclass
class LanMachine:
    """A further host, and the list of its files at first."""

    host: Host
    before: dict[str, Entry]

    def differences(self) -> list[str]:
        """Return the paths of the host that differ from its first state."""
        return different(self.before, self.host.files())

    def node(self) -> str:
        """Return the host's name in the cluster. If it is in no cluster, it is the host name."""
        noted = "awk '$1 == \"node\" { print $2 }' /etc/rancher/disttrain 2>/dev/null || true"
        return self.host.shell(noted).strip() or self.host.name

    def log(self) -> str:
        """Return the log of k3s on the host, as an agent and as a server."""
        return self.host.shell("journalctl --unit=k3s-agent --unit=k3s --no-pager --output=cat")


class Lan:
    """The lab's host and further hosts on one network. The caller closes it before the lab.

    Args:
        lab: the lab whose host is the first machine.
        names: the names of the further machines.
    """

    def __init__(self, lab: Lab, names: Sequence[str] = NAMES) -> None:
        assert lab.api, "the stand-in of k3s alone has agents here"
        self.lab = lab
        enter_server = ("nsenter", "--target", str(lab.host.pid), "--net", "ip")
        for words in (
            ("link", "add", BRIDGE, "type", "bridge"),
            ("address", "add", f"{SERVER_ADDRESS}/24", "dev", BRIDGE),
            ("link", "set", BRIDGE, "up"),
        ):
            _run(*enter_server, *words)
        self.machines: dict[str, LanMachine] = {}
        self._ports: list[str] = []
        try:
            for number, name in enumerate(names, start=2):
                self._add(name, number, enter_server)
        except BaseException:
            self.close()
            raise

    def _add(self, name: str, number: int, enter_server: tuple[str, ...]) -> None:
        lab = self.lab
        assert lab.api
        host = Host(name, lab.api.folder)
        self.machines[name] = LanMachine(host, {})
        port = f"port{number}"
        veth = ("type", "veth", "peer", "name", BRIDGE, "netns", str(host.pid))
        _run(*enter_server, "link", "add", port, *veth)
        self._ports.append(port)
        _run(*enter_server, "link", "set", port, "master", BRIDGE, "up")
        host.shell(
            f"ip address add 192.0.2.{number}/24 dev {BRIDGE}; ip link set {BRIDGE} up; "
            f"ip route add default via {SERVER_ADDRESS}; mkdir -p /lab; "
            f"ln -s {lab.api.folder} /lab/cluster"
        )
        lab.mirror.serve_in(["nsenter", "--target", str(host.pid), "--net", "--"])
        host.shell(
            "cat >/usr/local/share/ca-certificates/mirror.crt; update-ca-certificates",
            lab.mirror.certificate,
        )
        host.authorize(lab.public_key)
        self.machines[name].before = host.files()

    def settings(self, *names: str, **more: Any) -> list[dict[str, Any]]:
        """Return the setting `nodes` with these machines; each gets the fields `more`."""
        hosts = [self.machines[name].host for name in names]
        return [
            {"name": host.name, "address": host.address, "host_key": host.host_key, **more}
            for host in hosts
        ]

    def stack(self, *names: str, **changes: Any) -> Stack:
        """Return a stack with a platform on the lab's host and these machines."""
        nodes = {"nodes": self.settings(*names), "nodeAddress": SERVER_ADDRESS}
        return self.lab.stack(**{**nodes, "storageOptions": {"shared": True}, **changes})

    def doctor_plan(self, *servers: str) -> Plan:
        """Return the doctor's plan for all hosts before k3s is installed.

        `servers` are further machines that are to be servers too.
        """
        key = self.lab.private_key
        hosts = {name: machine.host for name, machine in self.machines.items()}
        targets = {
            name: SshTarget(host.address, user="root", private_key=key, host_key=host.host_key)
            for name, host in hosts.items()
        }
        server = SshTarget(
            self.lab.host.address, user="root", private_key=key, host_key=self.lab.host_key
        )
        return Plan(
            server,
            scope="host",
            expect=Expectations(
                gpus=0,
                several=True,
                node_address=SERVER_ADDRESS,
                node_interface=BRIDGE,  # its default route leads elsewhere
                nfs=FIRST_NODE,
                embedded_registry=True,
                https_probe=self.lab.mirror.url,  # k3s' release host, which no test host reaches
            ),
            machines=tuple(
                Machine(name, target, is_server=name in servers) for name, target in targets.items()
            ),
        )

    def members(self) -> dict[str, dict[str, Any]]:
        """Return the cluster's Node objects, by name."""
        found = json.loads(self.lab.kubectl("get", "nodes", "--output=json"))
        return {item["metadata"]["name"]: item for item in found["items"]}

    def etcd(self, at: str = "") -> dict[str, bool]:
        """Return whether each member of etcd votes, by the name of its node.

        It comes from the etcd of the first machine, or of the further machine `at`.
        """
        host = self.machines[at].host if at else self.lab.host
        asked = host.shell("python3 -B /lab/cluster/member.py")
        return {
            each["name"].rpartition("-")[0]: not each.get("isLearner") for each in json.loads(asked)
        }

    def passwords(self) -> list[str]:
        """Return the names of the machines whose passwords the server knows."""
        wanted = ("get", "secrets", "--namespace", "kube-system", "--output=name")
        names = [line.removeprefix("secret/") for line in self.lab.kubectl(*wanted).split()]
        end = ".node-password.k3s"
        return sorted(name.removesuffix(end) for name in names if name.endswith(end))

    def reinstall(self, name: str) -> None:
        """Remove everything of k3s from a machine, as if it were installed from scratch."""
        host = self.machines[name].host
        left = "/etc/rancher /etc/default/k3s* /var/lib/rancher /var/log/containers /var/log/pods"
        # k3s' uninstaller leaves these folders.
        left += " /usr/libexec/kubernetes /etc/systemd/system/k3s*.service.d"
        host.shell(
            "for name in k3s-agent k3s; do program=/usr/local/bin/$name-uninstall.sh; "
            f"[ ! -x $program ] || $program; done; rm -rf {left}"
        )

    def clean(self) -> None:
        """Remove k3s from all machines, for the next test."""
        for machine in self.machines.values():
            machine.host.shell("systemctl start ssh; pkill -KILL -x sleep || true")
            for script, variables in SCRIPTS.items():
                as_it_is = {**variables, "NODE": machine.node()}
                program = assemble_program(script_text(script), as_it_is, "root")
                machine.host.shell("sh -s -- delete", program)
            machine.host.shell("rm -f /lab/calls /lab/fail-to-start")

    def close(self) -> None:
        """End all machines.

        The links are deleted first. The kernel would delete them only some time after a host's end.
        """
        enter_server = ("nsenter", "--target", str(self.lab.host.pid), "--net", "ip")
        for port in self._ports:
            _run(*enter_server, "link", "del", port)
        for machine in self.machines.values():
            machine.host.close()
        _run(*enter_server, "link", "del", BRIDGE)


def lose(host: Host) -> None:
    """End all SSH connections to a machine and its sshd, as if its line were cut."""
    host.shell(
        "systemctl stop ssh.socket ssh 2>/dev/null; "
        "pkill -KILL -f '^sshd: (root|admin|deploy)' || true"
    )


def switch_off(host: Host) -> None:
    """Kill a machine's k3s and its sshd, as if it had lost its power."""
    host.shell("touch /lab/fail-to-start; systemctl kill --signal=KILL k3s")
    lose(host)


def switch_on(host: Host) -> None:
    """Start k3s and sshd again after `switch_off`, as a boot does."""
    host.shell("rm -f /lab/fail-to-start; systemctl start --no-block k3s 2>/dev/null || true")
    find_again(host)


def other_address(host: Host) -> str:
    """Give the machine a second address, by which settings may name it like another machine."""
    address = ".".join(["100", "127", *host.address.split(".")[2:]])
    host.shell(f"ip address replace {address}/32 dev lo")
    _run("ip", "route", "replace", address, "via", host.address)  # ends with the link
    return address


def find_again(host: Host) -> None:
    """Start sshd again after `lose`."""
    host.shell("systemctl start ssh")
    active = "systemctl is-active --quiet ssh"
    wait_for("sshd", lambda: host.try_shell(active).returncode == 0)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
