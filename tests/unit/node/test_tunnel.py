"""The parts of the SSH tunnel that need no connection; tests/node opens real tunnels."""

import ast
import base64
import json
import os
import shlex
import socketserver
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from infra.node.ssh_files import known_hosts, ssh_command, ssh_config
from infra.node.tunnel import VARIABLE, credential, local_port
from infra.node.tunnel_kubeconfig import tunnel_program, tunnelled
from tests.unit.stacks import PROJECT

SPEC: dict[str, Any] = {
    "host": "10.1.2.3",
    "port": 22,
    "user": "admin",
    "host_key": "ssh-ed25519 AAAANODE",
    "private_key": "the-private-key",
    "jump": {"host": "gate", "port": 2222, "user": "me", "host_key": "ssh-ed25519 AAAAGATE"},
}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


K3S = "https://127.0.0.1:6443"
KUBECONFIG: dict[str, Any] = {
    "clusters": [
        {
            "name": "default",
            "cluster": {
                "server": K3S,
                "certificate-authority-data": encoded("the-authority"),
            },
        }
    ],
    "users": [
        {
            "name": "default",
            "user": {
                "client-certificate-data": encoded("the-certificate"),
                "client-key-data": encoded("the-key"),
            },
        }
    ],
    "current-context": "default",
}


def test_kubeconfig_keeps_its_authority_and_leads_to_the_tunnel() -> None:
    """The kubeconfig for the tunnel leads to the tunnel's port on this machine, and still checks
    the cluster's certificate.
    """
    config = tunnelled(KUBECONFIG, SPEC)
    cluster = config["clusters"][0]["cluster"]
    assert cluster["certificate-authority-data"] == encoded("the-authority")
    assert cluster["server"] == f"https://127.0.0.1:{local_port(SPEC)}"
    assert "insecure-skip-tls-verify" not in cluster


def test_plugin_gets_everything_by_its_environment() -> None:
    """The private key and the client's certificate reach the kubeconfig's plugin by one variable
    and not by arguments, which other users could see.
    """
    plugin = tunnelled(KUBECONFIG, SPEC)["users"][0]["user"]["exec"]
    assert "the-private-key" not in json.dumps([plugin["command"], plugin["args"]])
    values = {variable["name"]: variable["value"] for variable in plugin["env"]}
    assert set(values) == {VARIABLE}
    answer = json.loads(credential(json.loads(values[VARIABLE])))
    assert answer["status"]["clientCertificateData"] == "the-certificate"
    assert answer["status"]["clientKeyData"] == "the-key"
    assert answer["apiVersion"] == plugin["apiVersion"]


def test_kubeconfig_names_no_path_of_this_machine() -> None:
    """The kubeconfig contains no path of the machine or the checkout that made it, so that it can
    be used elsewhere.
    """
    text = json.dumps(tunnelled(KUBECONFIG, SPEC))
    assert str(PROJECT) not in text
    assert sys.executable not in text
    assert str(Path.home()) not in text


def plugin_says(
    folder: Path, host: str, path: str = os.environ["PATH"], server: str = K3S
) -> subprocess.CompletedProcess[str]:
    """Run the plugin of a host's kubeconfig in a folder, with these folders of programs.

    `server` is the address of the API server in the kubeconfig that k3s has written.
    """
    (named,) = KUBECONFIG["clusters"]
    clusters = [{**named, "cluster": {**named["cluster"], "server": server}}]
    config = tunnelled({**KUBECONFIG, "clusters": clusters}, {**SPEC, "host": host})
    plugin = config["users"][0]["user"]["exec"]
    environment = {variable["name"]: variable["value"] for variable in plugin["env"]}
    return subprocess.run(
        [plugin["command"], *plugin["args"]],
        cwd=folder,
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


class Answers(socketserver.BaseRequestHandler):
    """Answers each connection, as the API server does through a tunnel."""

    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")


class Ends(socketserver.BaseRequestHandler):
    """Ends each connection, as ssh does if the host cannot or must not make it."""


class Server(socketserver.ThreadingTCPServer):
    """A server whose port can be used again at once."""

    allow_reuse_address = True


@contextmanager
def tunnel(host: str, handler: type[socketserver.BaseRequestHandler]) -> Iterator[None]:
    """Have a stand-in for the tunnel to a host at its port."""
    with Server(("127.0.0.1", local_port({**SPEC, "host": host})), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


def test_plugin_works_in_any_folder_without_the_checkout(tmp_path: Path) -> None:
    """The kubeconfig's plugin works in any folder and without this project's files. If its port is
    open already, it starts no ssh.
    """
    with tunnel("10.1.2.3", Answers):
        done = plugin_says(tmp_path, "10.1.2.3")
    assert json.loads(done.stdout)["status"]["clientCertificateData"] == "the-certificate"


@pytest.mark.parametrize(
    ("host", "says", "is_forbidden"),
    [
        ("10.1.2.4", "channel 0: open failed: administratively prohibited: open failed", True),
        ("10.1.2.5", "channel 0: open failed: connect failed: Connection refused", False),
    ],
)
def test_host_that_forbids_tunnels_is_named(
    tmp_path: Path, host: str, says: str, is_forbidden: bool
) -> None:
    """If the host's SSH server forbids tunnels, the plugin says so and what to do. Clients would
    only say that the connection ended. An API server that does not run is no error of the plugin,
    as its clients try again.
    """
    (tmp_path / "ssh").write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    with tunnel(host, Ends):
        done = plugin_says(tmp_path, host, f"{tmp_path}:{os.environ['PATH']}")
    assert ("AllowTcpForwarding" in done.stderr) is is_forbidden
    assert (done.returncode != 0) is is_forbidden
    assert ("the-certificate" in done.stdout) is not is_forbidden


@pytest.mark.parametrize(
    ("server", "port"), [("https://10.1.2.7:6444", 6444), (K3S, 6443), ("https://gpu01", 443)]
)
def test_tunnel_leads_to_configured_port(tmp_path: Path, server: str, port: int) -> None:
    """The tunnel leads to the port on which the API server listens by k3s' own kubeconfig. An
    adopted k3s may have another one than 6443 (`https-listen-port`).
    """
    (tmp_path / "ssh").write_text(f"#!/bin/sh\necho $* >>{tmp_path}/asked\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    plugin_says(tmp_path, "10.1.2.7", path, server)  # opens a tunnel
    with tunnel("10.1.2.7", Ends):
        plugin_says(tmp_path, "10.1.2.7", path, server)  # asks why it ends connections
    opened, asked = (tmp_path / "asked").read_text().splitlines()
    own = local_port({**SPEC, "host": "10.1.2.7"})
    assert f"-L 127.0.0.1:{own}:127.0.0.1:{port} " in opened
    assert f"-W 127.0.0.1:{port} " in asked


def test_host_that_does_not_answer_holds_up_nobody(tmp_path: Path) -> None:
    """The plugin does not wait for a host that does not say why a connection ended."""
    (tmp_path / "ssh").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "ssh").chmod(0o755)
    with tunnel("10.1.2.6", Ends):
        done = plugin_says(tmp_path, "10.1.2.6", f"{tmp_path}:{os.environ['PATH']}")
    assert "the-certificate" in done.stdout


def test_program_of_the_tunnel_runs_on_older_pythons() -> None:
    """The plugin's program is valid for Python 3.9 and imports nothing of this project. The user's
    own python3 runs it, which may be older than Pulumi's.
    """
    ast.parse(tunnel_program(), feature_version=(3, 9))
    assert "datetime.UTC" not in tunnel_program()
    assert "from infra" not in tunnel_program()


def test_port_is_the_same_each_time_and_below_those_that_clients_get() -> None:
    """A tunnel always gets the same port, from 20000 to 29999, below the ports that the system
    gives to clients.
    """
    ports = {local_port(SPEC) for _ in range(3)}
    assert len(ports) == 1
    assert all(20000 <= local_port({**SPEC, "host": f"10.0.0.{i}"}) < 30000 for i in range(100))


def test_same_address_behind_another_jump_host_has_another_port() -> None:
    """The same address may be one machine behind one jump host, and another one behind another. If
    both tunnels had one port, the clients of one cluster would reach the other one.
    """
    other = {**SPEC["jump"], "host": "door"}
    specs = [SPEC, {**SPEC, "jump": other}, {**SPEC, "jump": {**other, "port": 22}}]
    ports = {local_port(spec) for spec in (*specs, {**SPEC, "jump": None})}
    assert len(ports) == 4


def test_both_keys_are_pinned_and_checked(tmp_path: Path) -> None:
    """ssh checks the keys of both the host and the jump host against the keys of the settings."""
    text = ssh_config(SPEC, tmp_path)
    assert text.count("StrictHostKeyChecking yes") == 2
    assert f"ProxyCommand ssh -F {tmp_path}/config -W [%h]:%p jump" in text
    assert known_hosts(SPEC) == "node ssh-ed25519 AAAANODE\njump ssh-ed25519 AAAAGATE\n"


def test_jump_host_is_reached_from_a_folder_with_a_space_in_its_name(tmp_path: Path) -> None:
    """The jump host is reached if the path of ssh's configuration contains a space. A shell reads
    ssh's ProxyCommand, so the path must be quoted there.
    """
    folder = tmp_path / "a b"
    folder.mkdir()
    options = understood(ssh_command(SPEC, folder))
    assert shlex.split(options["proxycommand"])[:3] == ["ssh", "-F", f"{folder}/config"]
    assert options["userknownhostsfile"] == f"{folder}/known_hosts"


def test_without_a_jump_host_or_a_key_neither_is_named(tmp_path: Path) -> None:
    text = ssh_config({**SPEC, "jump": None, "private_key": None}, tmp_path)
    assert "ProxyCommand" not in text
    assert "IdentityFile" not in text


def test_private_key_is_in_no_file_that_could_stay(tmp_path: Path) -> None:
    """The private key is in no file on disk and on no command line, so that a program that is
    killed leaves no key in /tmp. ssh reads it from a file in memory, of which there is only one.
    """
    command = ssh_command(SPEC, tmp_path, "-T")
    assert command == ["ssh", "-F", f"{tmp_path}/config", "-T", "node"]
    assert not [path for path in tmp_path.iterdir() if "the-private-key" in path.read_text()]
    key = Path(understood(command)["identityfile"])
    assert key.read_text() == "the-private-key\n"
    assert key.stat().st_mode & 0o777 == 0o600
    assert ssh_command(SPEC, tmp_path, "-T") == command
    assert understood(command)["identityfile"] == str(key), "each call took a descriptor more"


def test_private_key_is_in_a_private_file_on_other_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On systems other than Linux, which have no files in memory, the private key is in a file that
    only the user can read.
    """
    monkeypatch.delattr(os, "memfd_create")
    command = ssh_command({**SPEC, "private_key": "another-key"}, tmp_path)
    key = Path(understood(command)["identityfile"])
    assert key == tmp_path / "key"
    assert key.read_text() == "another-key\n"
    assert key.stat().st_mode & 0o777 == 0o600


def understood(command: list[str]) -> dict[str, str]:
    """Return the settings as OpenSSH's client understands them."""
    done = subprocess.run([*command, "-G"], capture_output=True, text=True, check=True)
    pairs = (line.partition(" ") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs}


def test_client_trusts_the_pinned_key_alone(tmp_path: Path) -> None:
    """ssh trusts only the key of the settings, and reads no other file of known hosts."""
    options = understood(ssh_command(SPEC, tmp_path))
    assert options["hostname"] == "10.1.2.3"
    assert options["stricthostkeychecking"] == "true"
    assert options["userknownhostsfile"] == f"{tmp_path}/known_hosts"
    assert options["globalknownhostsfile"] == "/dev/null"


def test_users_own_configuration_forwards_nothing_to_a_host(tmp_path: Path) -> None:
    """Without a key in the settings, ssh reads the user's configuration. Of it, the doctor needs no
    agent on the host, where root could use it, and no forwarded port, which may be taken.
    """
    theirs = tmp_path / "theirs"
    forwards = "ForwardAgent yes\nForwardX11 yes\nLocalForward 8888 localhost:8888\n"
    theirs.write_text(f"{forwards}Compression yes\n")
    hop = {**SPEC, "host_key": "", "private_key": None, "jump": None}
    text = ssh_config(hop, tmp_path)
    assert "~/.ssh/config" in text
    config = tmp_path / "config"
    config.write_text(text.replace("~/.ssh/config", str(theirs)))
    options = understood(["ssh", "-F", str(config), SPEC["host"]])
    assert options["compression"] == "yes", "the user's configuration was not read"
    assert (options["forwardagent"], options["forwardx11"]) == ("no", "no")
    assert "localforward" not in options


def test_without_a_pinned_key_the_users_known_hosts_decide(tmp_path: Path) -> None:
    """Without a key in the settings, ssh checks the host against the user's own known hosts, and
    uses the identity file of the settings.
    """
    spec = {**SPEC, "host_key": "", "user": "", "identity_file": "/a b/key", "private_key": None}
    command = ssh_command({**spec, "jump": None}, tmp_path)
    assert command[-1] == "10.1.2.3"
    options = understood(command)
    assert options["stricthostkeychecking"] == "true"
    assert "known_hosts" in options["userknownhostsfile"]
    assert str(tmp_path) not in options["userknownhostsfile"]
    assert options["identityfile"] == "/a b/key"
    assert "hostkeyalias" not in options
