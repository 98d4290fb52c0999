"""One of several servers in the stand-in of k3s: joins the others, and runs a real etcd member.

k3s keeps the cluster's objects in this etcd. Here the objects stay in the etcd of
tests/node/api_server.py, and this etcd knows nothing but its members: who they are, who votes, and
whether more than half are there. Without that majority the server does not answer, as k3s would not
(front.py). members.py reports the members' state, and lets them leave. It uses only the standard
library.
"""

import http.client
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import agent  # pyright: ignore # beside this file on the test host
from cluster import ETCD_PROGRAM, ask  # pyright: ignore # this one too

DATABASE = Path("/var/lib/rancher/k3s/server/db")
ETCD, SQLITE = DATABASE / "etcd", DATABASE / "state.db"
NAME, TOMBSTONE = ETCD / "name", ETCD / "tombstone"
TOKEN = Path("/var/lib/rancher/k3s/server/token")
CRITICAL = ("cluster-cidr", "service-cidr", "disable", "embedded-registry")
CLIENT_PORT, PEER_PORT = 2379, 2380
VOTE_SECONDS = 60


def is_asked_for(config: dict[str, Any]) -> bool:
    """Return whether this server has etcd. A server that had it keeps it, as with k3s."""
    return bool(ETCD.exists() or config.get("cluster-init") or config.get("server"))


def critical_settings() -> dict[str, Any]:
    """Return the settings in which all servers have to agree."""
    config = agent.configuration()
    return {key: config.get(key) for key in CRITICAL}


def etcd(host: str, path: str, body: dict[str, Any], seconds: float = 5) -> Any:
    """Return the answer of a member. Raise OSError if it does not answer, or refuses."""
    there = http.client.HTTPConnection(host, CLIENT_PORT, timeout=seconds)
    return ask(there, "POST", f"/v3/{path}", body)


def members() -> list[dict[str, Any]]:
    """Return the cluster's members as this machine's member knows them by itself."""
    return etcd("127.0.0.1", "cluster/member/list", {"linearizable": False})["members"]


def bootstrap(config: dict[str, Any], tls: Path) -> None:
    """Get the authority from the server that this machine joins, if it admits this machine.

    Raises:
        agent.RefusedError: the token is wrong, the settings differ from the server's, or another
            machine has this name.
    """
    if config.get("cluster-init"):
        raise agent.RefusedError("cluster-init and server cannot both be set")
    token = Path(config["token-file"]).read_text().strip()
    of_agents = token
    if secret := config.get("agent-token-file"):
        of_agents = f"{token.partition('::')[0]}::node:{Path(secret).read_text().strip()}"
    if agent.of_cluster(config, of_agents) != critical_settings():
        raise agent.RefusedError(
            "failed to validate server configuration: critical configuration value mismatch"
        )
    trusting = agent.trust(config["server"], token)
    headers = agent.login("server", token)
    pair = json.loads(agent.get(config["server"], trusting, "/v1-k3s/server-bootstrap", headers))
    tls.mkdir(parents=True, exist_ok=True)
    for name, text in pair.items():
        (tls / name).touch(mode=0o600)
        (tls / name).write_text(text)
    TOKEN.touch(mode=0o600)
    TOKEN.write_text(f"{token}\n")
    agent.join(config, of_agents)


def start(folder: Path, config: dict[str, Any], node: str, address: str) -> int:
    """Start etcd, wait until it votes, and return its process id. etcd ends with this process.

    Raises:
        OSError: etcd does not accept this member.
        agent.RefusedError: the server that this machine joins refuses it.
    """
    if TOMBSTONE.exists():  # the member was removed; a k3s that starts again joins as a new member
        ETCD.rename(DATABASE / f"etcd-old-{time.time_ns()}")
    options: list[str] = []
    if not (ETCD / "member").exists():
        ETCD.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not NAME.exists():
            NAME.write_text(f"{node}-{uuid.uuid4().hex[:8]}")
        cluster = added(config, node, address) if config.get("server") else []
        own = f"{NAME.read_text()}={peer(address)}"
        state = "existing" if config.get("server") else "new"
        options = ["--initial-cluster", ",".join([*cluster, own])]
        options += [
            "--initial-cluster-state",
            state,
            "--initial-advertise-peer-urls",
            peer(address),
        ]
        if SQLITE.exists():  # k3s moves its content into etcd
            SQLITE.rename(SQLITE.with_name("state.db.migrated"))
    client = f"http://{address}:{CLIENT_PORT}"
    command = [
        *("setpriv", "--pdeathsig", "KILL", folder / ETCD_PROGRAM, "--name", NAME.read_text()),
        *("--data-dir", ETCD, "--listen-peer-urls", peer(address)),
        *("--listen-client-urls", f"{client},http://127.0.0.1:{CLIENT_PORT}"),
        *("--advertise-client-urls", client, "--log-level", "error", *options),
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + VOTE_SECONDS
    while not votes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise OSError("etcd has ended, or was not made a voting member")
        time.sleep(0.2)
    return process.pid


def peer(address: str) -> str:
    """Return the URL at which other members reach the member at this address."""
    return f"http://{address}:{PEER_PORT}"


def added(config: dict[str, Any], node: str, address: str) -> list[str]:
    """Add this member to the cluster; it does not vote yet.

    Returns:
        `name=URL` of each other member.

    Raises:
        agent.RefusedError: another node of this name is a member.
        OSError: etcd does not answer or refuses.
    """
    token = Path(config["token-file"]).read_text().strip()
    trusting = agent.trust(config["server"], token)
    headers = agent.login("server", token)
    known = json.loads(agent.get(config["server"], trusting, "/db/info", headers))
    others = [each for each in known if each["peerURLs"] != [peer(address)]]
    if any(each.get("name", "").rpartition("-")[0] == node for each in known):
        NAME.unlink()
        raise agent.RefusedError(
            "duplicate node name found, please use a unique name for this node"
        )
    if len(others) == len(known):
        host = next(each for each in others if not each.get("isLearner"))["clientURLs"][0]
        there = host.removeprefix("http://").partition(":")[0]
        etcd(there, "cluster/member/add", {"peerURLs": [peer(address)], "isLearner": True}, 20)
    return [f"{each['name']}={each['peerURLs'][0]}" for each in others]


def votes() -> bool:
    """Return whether this member votes and can reach more than half of the members."""
    try:
        etcd("127.0.0.1", "kv/range", {"key": "YQ=="}, 2)  # a learner refuses this
    except OSError:
        return False
    return True


def main() -> None:
    """Print the members as JSON, for tests."""
    print(json.dumps(members()))


if __name__ == "__main__":
    sys.exit(main())
