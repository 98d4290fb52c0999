"""`fetch` brings two gigabytes over connections that are cut three times, with the same sha256.

A real API server serves them: by its proxy to pods, by exec streams, and through the SSH tunnel of
a cluster that is reached by port 22 alone, where each cut ends the tunnel itself.
"""

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from infra.node.tunnel_kubeconfig import tunnelled
from sandbox.namespaces import find_holder
from tests.cli.servers import make_key
from tests.gate import Gate
from tests.kube.gate import through
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.volume import cli, give_to_pods, no_pods, runs_folder

TOTAL_BYTES = 2_000_000_000
SIZES = {"model-00000.bin": TOTAL_BYTES // 3, "optimizer-00000.bin": TOTAL_BYTES * 2 // 3}
CUTS = [300_000_000, 900_000_000, 1_600_000_000]
BLOCK_BYTES = 1 << 20
SSH_PORT = 2222
LIMIT_SECONDS = 900


def write_file(path: Path, size: int) -> str:
    """Write a file of this size and return its sha256.

    Each block differs from all others, so that a block in another's place changes the sha256.
    """
    digest, block = hashlib.sha256(), hashlib.shake_256(path.name.encode()).digest(BLOCK_BYTES)
    with path.open("wb") as file:
        for number in range(-(-size // BLOCK_BYTES)):
            part = (number.to_bytes(8, "big") + block[8:])[: size - number * BLOCK_BYTES]
            file.write(part)
            digest.update(part)
    return digest.hexdigest()


def make_large_run(run: Path) -> dict[str, str]:
    """Make a run with one checkpoint, and return the sha256 of its large files by their names."""
    directory = run / "checkpoints" / "step-00000100"
    directory.mkdir(parents=True)
    (run / "run.yaml").write_text("run_name: first\n")
    hashes = {name: write_file(directory / name, size) for name, size in SIZES.items()}
    small = {"layout.json": b"{}", "state.json": b'{"step": 100, "val_loss": null}'}
    for name, content in small.items():
        (directory / name).write_bytes(content)
    all_hashes = hashes | {name: hashlib.sha256(text).hexdigest() for name, text in small.items()}
    entries = {
        name: {"bytes": (directory / name).stat().st_size, "sha256": sha256}
        for name, sha256 in all_hashes.items()
    }
    (directory / "manifest.json").write_text(json.dumps({"files": entries}))
    return hashes


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def sshd_on_the_node(lab: Lab, folder: Path) -> Iterator[str]:
    """Run sshd in the network of the cluster's node, and yield its public host key.

    The server ends afterwards, with all that it has started.
    """
    Path("/run/sshd").mkdir(exist_ok=True)
    holder = find_holder(lab.cluster.layout)
    assert holder
    host_key = make_key(folder / "host_key")
    (folder / "authorized").write_text(make_key(folder / "identity") + "\n")
    (folder / "sshd_config").write_text(
        f"ListenAddress {lab.cluster.node_ip}\nPort {SSH_PORT}\nHostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPidFile none\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
    )
    inside = ["nsenter", "--target", str(holder.pid), "--net", "--"]
    alone = ["unshare", "--pid", "--fork", "--kill-child"]
    command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")]
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen([*inside, *alone, *command], stdout=log, stderr=log)
    try:
        said = folder / "sshd.log"
        wait_for("sshd", lambda: "Server listening" in said.read_text() or server.poll())
        assert server.poll() is None, said.read_text()
        yield host_key
    finally:
        server.kill()
        server.wait()


def through_ssh(lab: Lab, gate: Gate, folder: Path, host_key: str) -> Path:
    """Return the path of a kubeconfig whose credential plugin opens an SSH tunnel.

    The tunnel goes through the gate, which stands before sshd.
    """
    content = yaml.safe_load(lab.cluster.kubeconfig.read_text())
    spec = {
        "host": "127.0.0.1",
        "port": gate.port,
        "user": "root",
        "host_key": host_key,
        "private_key": (folder / "identity").read_text(),
        "jump": None,
    }
    made = tunnelled(content, spec)
    made["clusters"][0]["cluster"]["tls-server-name"] = lab.cluster.node_ip
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(made))
    return path


def fetch_it(lab: Lab, claim: Run, gate: Gate, folder: Path, kubeconfig: Path, by: str) -> None:
    """Fetch the run while the gate cuts the connections, and check that what arrives is what was
    sent.
    """
    hashes = make_large_run(runs_folder(claim) / "first")
    give_to_pods(runs_folder(claim))
    gate.cuts_down, here = list(CUTS), folder / "here"
    begin = time.monotonic()
    words = ("fetch", "--to", str(here), "--by", by)
    process = cli(lab, claim, folder, *words, kubeconfig=kubeconfig)
    output = process.communicate(timeout=LIMIT_SECONDS)[0].decode()
    assert process.returncode == 0, output
    print(f"{time.monotonic() - begin:.1f} s\n{output}")
    assert gate.cuts_down == []
    assert output.count("it continues with what has arrived") >= len(CUTS), output
    directory = here / "checkpoints" / "step-00000100"
    assert {name: sha256_of(directory / name) for name in SIZES} == hashes
    assert not list(here.rglob("*.partial-*"))
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))


@pytest.mark.parametrize("by", ["auto", "exec"])
def test_two_gigabytes_survive_three_cuts(
    lab: Lab, claim: Run, gate: Gate, tmp_path: Path, by: str
) -> None:
    fetch_it(lab, claim, gate, tmp_path, through(lab, gate, tmp_path), by)


def test_two_gigabytes_survive_three_cuts_of_ssh(lab: Lab, claim: Run, tmp_path: Path) -> None:
    """A fetch over SSH goes on after each cut: the kubeconfig's plugin opens the next tunnel."""
    assert lab.cluster.node_ip
    with sshd_on_the_node(lab, tmp_path) as host_key:
        gate = Gate((lab.cluster.node_ip, SSH_PORT))
        try:
            kubeconfig = through_ssh(lab, gate, tmp_path, host_key)
            fetch_it(lab, claim, gate, tmp_path, kubeconfig, "auto")
        finally:
            gate.close()
