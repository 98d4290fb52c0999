"""`./disttrain fetch` brings a run from its mirror when its cluster is gone.

The stack's own settings are enough for this. The store is a real S3 server on this machine
(versitygw). Its credentials are in the stack's file, encrypted by Pulumi, and not in the
environment.
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
from trainer.checkpoint.store import all_steps, directory_of

RUN, STEPS, BUCKET = "e2e-lost", 60, "results"
NOT_COPIED = (".git", ".venv*", "build", "shared", "__pycache__", ".*_cache")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout of its own, because `fetch` looks there for the stack's file and for
    libraries.
    """
    folder = tmp_path_factory.mktemp("user") / "disttrain"
    shutil.copytree(PROJECT, folder, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    (folder / ".venv").symlink_to(ensure_venv(".venv"))
    libraries = folder / "build" / f"mirror-py{sysconfig.get_python_version()}"
    libraries.parent.mkdir()
    libraries.symlink_to(sysconfig.get_path("purelib"))  # in place of `pip install --target`
    return folder


@pytest.fixture(scope="module")
def address(lab: Lab) -> str:
    """Return this machine's address on the link to the cluster, which pods can reach.

    This machine has no route back to pods. Therefore their packets get the node's address, as
    packets that leave a real cluster usually do. The rule for this is gone when the cluster is
    down.
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
    """Yield a stack whose run is finished and wholly in its mirror.

    The test loses the stack's cluster, so the stack is never destroyed.
    """
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
    # Otherwise the next stack is refused, because the folder's marker still names this stack.
    (lab.cluster.data_root / ".disttrain").write_text("")


def on_the_volume(lab: Lab) -> dict[str, str]:
    """Return the sha256 of each file that `fetch` has to bring from the mirror."""
    run = lab.run_dir(RUN)
    assert all_steps(run / "checkpoints")[0] == STEPS
    newest = directory_of(run / "checkpoints", STEPS).name
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
    """Return the sha256 of what `./disttrain fetch` brings to that folder, and what the command
    says.
    """
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
    """Keep this machine's address, which otherwise vanishes with the link to a cluster that is
    down.

    A real store is seldom in the cluster, so it keeps its address.
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
    """`fetch` brings the run from its mirror when its namespace is gone, and when the cluster is
    down.

    The namespace is deleted first, with the claim in it, and then the cluster is taken down. The
    command line does not mention the mirror, and `fetch` says why it reads the mirror.
    """
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
    lab.cluster.up()  # for the next test file
