"""Joining and leaving as `up` does it for one machine (infra/node/agent.py), without the engine."""

from typing import Any

from infra.node.agent import Job, join, scripts
from tests.node.host import Host
from tests.node.lan import NAMES, SERVER_ADDRESS, Lan
from tests.node.releases import VERSION

OWNER = "steps"


class Steps:
    """A first machine with k3s, and jobs for the further ones."""

    def __init__(self, lan: Lan) -> None:
        self.lan = lan

    def install(self, **variables: str) -> str:
        """What `up` runs on the first machine; returns its output."""
        names = f"{SERVER_ADDRESS} {self.lan.lab.host.address}"
        return self.lan.lab.install_by_hand(TLS_SAN=names, OWNER=OWNER, **variables)

    def three_servers(self) -> None:
        """The first machine and both further ones."""
        self.install(CLUSTER_INIT="1")
        for name in NAMES:
            join(self.job(name))

    def job(self, name: str, *, gone: bool = False, **variables: str) -> Job:
        """For a further machine as a server; `variables` are more ones of its script."""
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
        """What k3s says of the member, by its Node."""
        conditions = self.lan.members()[name]["status"]["conditions"]
        return any(c["type"] == "EtcdIsVoter" and c["status"] == "True" for c in conditions)

    def answers(self) -> bool:
        """Whether the API of the first machine does."""
        asked = "KUBECACHEDIR=/run/k3s k3s kubectl get nodes"
        return self.lan.lab.host.try_shell(asked).returncode == 0
