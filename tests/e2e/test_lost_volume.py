"""A run whose cluster is gone comes home from its mirror, by the stack's own settings alone.

The store is a real S3 server on this machine (versitygw). Its credentials are in the stack's file,
encrypted by Pulumi, and nowhere in the environment.
"""

import hashlib
import ipaddress
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.stack import Stack
from sandbox.venvs import PROJECT, ensure_venv
from tests.cli.fetch.local_pod import contents
from tests.cli.fetch.mirrored import mirrored_contents
from tests.e2e.lab import NAMESPACE, Lab, run_settings, wait_for
from tests.trainer.mirror.s3_server import KEY, SECRET, S3Server

RUN, STEPS, BUCKET = "e2e-lost", 60, "results"
NOT_COPIED = (".git", ".venv*", "build", "shared", "__pycache__", ".*_cache")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of its own, as `fetch` looks for the stack's file and for libraries there."""
    folder = tmp_path_factory.mktemp("user") / "disttrain"
    shutil.copytree(PROJECT, folder, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    (folder / ".venv").symlink_to(ensure_venv(".venv"))
    libraries = folder / "build" / f"mirror-py{sysconfig.get_python_version()}"
    libraries.parent.mkdir()
    libraries.symlink_to(sysconfig.get_path("purelib"))  # in place of `pip install --target`
    return folder


@pytest.fixture(scope="module")
def address(lab: Lab) -> str:
    """This machine's end of the link to the cluster.

    This machine knows no way back to pods, so their packets get the node's address, as elsewhere
    those do that leave a cluster. The rule goes with the cluster.
    """
    assert lab.cluster.node_ip
    found = str(ipaddress.ip_address(lab.cluster.node_ip) - 1)
    rule = ("POSTROUTING", "--destination", found, "--jump", "MASQUERADE")
    subprocess.run(lab.cluster.enter("iptables", "--table", "nat", "--append", *rule), check=True)
    return found


@pytest.fixture(scope="module")
def store(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"), address)
    server.make_bucket(BUCKET)
    yield server
    server.close()


@pytest.fixture(scope="module")
def stack(lab: Lab, checkout: Path, address: str, store: S3Server) -> Iterator[Stack]:
    """A stack whose run is finished, and wholly in its mirror. It is lost, and never destroyed."""
    file = checkout / "Pulumi.e2e-lost.yaml"
    shutil.copy(checkout / "Pulumi.sandbox.yaml", file)
    made = Stack("e2e-lost", lab.scratch / "lost-backend", file, checkout)
    for name in [name for name in made.environment if name.startswith("AWS_")]:
        del made.environment[name]
    made.set_all(
        {
            **run_settings(RUN, STEPS),
            "datasetFile": str(lab.text),
            "kubeconfig": str(lab.cluster.kubeconfig),
            "containerdAddress": str(lab.cluster.containerd_address),
            "dataRoot": str(lab.cluster.data_root),
            "run.checkpoint.mirror": f"s3://{BUCKET}/runs",
            "podEnvironment.AWS_REGION": "us-east-1",
            "podEnvironment.AWS_ENDPOINT_URL": f"http://{address}:{store.address[1]}",
        }
    )
    made.set("podSecrets.AWS_ACCESS_KEY_ID", KEY, secret=True)
    made.set("podSecrets.AWS_SECRET_ACCESS_KEY", SECRET, secret=True)
    assert SECRET not in file.read_text()
    made.up()
    lab.wait_done(RUN)
    pods = ("get", "pod", "-l", "app.kubernetes.io/component=training", "-o")
    phase = (*pods, "jsonpath={.items[*].status.phase}")
    wait_for("the pod to end, after its mirror", lambda: lab.kubectl(*phase) == "Succeeded", 300)
    yield made
    (lab.cluster.data_root / ".disttrain").write_text("")  # as the error of the next stack says


def on_the_volume(lab: Lab) -> dict[str, str]:
    """The sha256 of each file that `fetch` has to bring from the mirror."""
    run = lab.run_dir(RUN)
    newest = max(path.name for path in (run / "checkpoints").glob("step-*"))
    assert newest.endswith(f"{STEPS}")
    wanted = {
        name: content
        for name, content in mirrored_contents(run).items()
        if not name.startswith("checkpoints/") or name.split("/")[1] == newest
    }
    assert len(wanted) > 4
    return sha256_of(wanted)


def sha256_of(contents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def fetched(stack: Stack, folder: Path) -> tuple[dict[str, str], str]:
    """The sha256 of what `./disttrain fetch` brings to that folder, and what it says."""
    done = subprocess.run(
        ["./disttrain", "fetch", "--stack", stack.name, "--to", str(folder)],
        cwd=stack.project,
        env=stack.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert SECRET not in done.stdout
    return sha256_of(contents(folder)), done.stdout


@contextmanager
def address_stays(address: str) -> Iterator[None]:
    """Keep this machine's address, which goes with the link to a cluster that is down.

    A store is elsewhere than the cluster as a rule, and stays where it was.
    """
    change = ("dev", "lo")
    subprocess.run(["ip", "address", "add", f"{address}/32", *change], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "address", "del", f"{address}/32", *change], check=True)


@pytest.mark.timeout(1800)
def test_run_comes_from_its_mirror_when_its_cluster_is_gone(
    lab: Lab, stack: Stack, address: str, tmp_path: Path
) -> None:
    """First its namespace is deleted, with the claim and the run in it, then the cluster taken
    down. `fetch` is typed without a word of the mirror."""
    wanted = on_the_volume(lab)
    assert not any(name.startswith("AWS_") for name in stack.environment)
    claim = stack.output("claim")
    lab.kubectl("delete", "namespace", NAMESPACE)
    found, said = fetched(stack, tmp_path / "namespace")
    assert found == wanted, said
    reason = f"the volume cannot be read: claim {claim} of namespace disttrain is not there"
    assert reason in said
    lab.cluster.down()
    with address_stays(address):
        found, said = fetched(stack, tmp_path / "cluster")
    assert found == wanted, said
    mirror = f"the run is fetched from its mirror s3://{BUCKET}/runs"
    assert mirror in said
    assert f"run {RUN} with checkpoint step {STEPS}" in said
    lab.cluster.up()  # for the next file
