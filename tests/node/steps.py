"""Lets a machine join and leave as `up` does (infra/node/agent.py), but without the engine."""

from typing import Any

from infra.node.agent import Job, join, scripts
from tests.node.host import Host
from tests.node.lan import NAMES, SERVER_ADDRESS, Lan
from tests.node.releases import VERSION

OWNER = "steps"


class Steps:
    """Installs k3s on the first machine, and makes the jobs for the further machines."""

    def __init__(self, lan: Lan) -> None:
        self.lan = lan

    def install(self, **variables: str) -> str:
        """Run on the first machine what `up` runs there, and return its output."""
        names = f"{SERVER_ADDRESS} {self.lan.lab.host.address}"
        return self.lan.lab.install_by_hand(TLS_SAN=names, OWNER=OWNER, **variables)

    def three_servers(self) -> None:
        """Make the first machine and both further ones servers of one cluster."""
        self.install(CLUSTER_INIT="1")
        for name in NAMES:
            join(self.job(name))

    def job(self, name: str, *, gone: bool = False, **variables: str) -> Job:
        """Return the job of a further machine as a server.

        `variables` are further variables of its script.
        """
        host = self.lan.machines[name].host
        of_machine = {
            "NODE": name,
            "K3S_VERSION": VERSION,
            "K3S_MIRROR": self.lan.lab.mirror.url,
            "SERVER_URL": f"https://{SERVER_ADDRESS}:6443",
            "POD_CIDR": "10.42.0.0/16",
            "SERVICE_CIDR": "10.43.0.0/16",
            "TLS_SAN": f"{SERVER_ADDRESS} {host.address}",
            "OWNER": OWNER,
            "REPAIR_ID": "of-steps",
            **variables,
        }
        member = {"NODE": name, "ROLE": "server", "GRACE_SECONDS": "1"}
        return Job(
            {**self._way(self.lan.lab.host), "gone": False},
            {**self._way(host), "gone": gone},
            scripts("server"),
            {"agent": of_machine, "look": {"ROLE": "server"}, "member": member},
            "server",
        )

    def _way(self, host: Host) -> dict[str, Any]:
        hop = {"host": host.address, "port": 22, "user": "root", "host_key": host.host_key}
        key = {"private_key": self.lan.lab.private_key, "jump": None}
        return {"ssh": {**hop, **key}, "sudo_password": ""}

    def votes(self, name: str) -> bool:
        """Return whether the machine's Node says that its member of etcd votes."""
        conditions = self.lan.members()[name]["status"]["conditions"]
        return any(c["type"] == "EtcdIsVoter" and c["status"] == "True" for c in conditions)

    def answers(self) -> bool:
        """Return whether the API server of the first machine answers."""
        asked = "KUBECACHEDIR=/run/k3s k3s kubectl get nodes"
        return self.lan.lab.host.try_shell(asked).returncode == 0
