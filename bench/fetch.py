"""Measures `disttrain fetch` against scp: `python -m bench.fetch`, as root.

A pair is one fetch of a run with 256 MB over the API server and the kubelet of a new cluster of the
sandbox, and one `scp -r` of the same files from an sshd in the cluster's network. Both use the same
link and empty folders. All programs share this machine's cores. In one row the link has no limit,
and the cores are the limit. In the other row it is limited to 200 Mbit/s, and the cores are not the
limit. The table goes to docs/benchmarks.md. The figures leave out the start of the pod, Python's
start and `pulumi stack output` (a few seconds once for each fetch), and what the delay and loss of
a real network would add.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.clock import seconds_of
from bench.row import Row
from bench.runs import CHECKOUT
from bench.table import keep_results, when_and_load, with_where
from cli.fetch.bring import Bringer
from cli.fetch.folder import Folder
from cli.fetch.from_volume import program
from cli.fetch.pod_source import AUTO, PodSource
from cli.stack_outputs import VolumePlace
from cli.volume_pod import VolumePod, volume_pod
from infra.kube.api_server.access import Access
from sandbox.cache import locked
from sandbox.cluster import Cluster
from sandbox.cluster_commands import programs
from sandbox.namespaces import find_holder
from sandbox.network import NODE_LINK
from tests.kube.conftest import import_image
from tests.kube.lab import Lab
from tests.kube.python_image import PYTHON_IMAGE, python_image
from tests.kube.volume import give_to_pods, run_with_claim, runs_folder

RESULTS = CHECKOUT / "bench" / "fetch.json"
NAME, CLUSTER = "fetch", "bench-fetch"
HEADING = "## Results home"
SSH_PORT = 2222
BAR = 0.8
LIMIT = "200mbit"
PAIRS = {"": 7, LIMIT: 3}  # rate of the link (empty: no limit): how many pairs are measured
FILES = {"model-00000.bin": 86_000_000, "optimizer-00000.bin": 170_000_000}


@contextmanager
def cluster_with_image() -> Iterator[Cluster]:
    """A new cluster that has the pod's image; it is removed after the block."""
    with locked(f"{CLUSTER}-cluster"):
        cluster = Cluster(CLUSTER, programs())
        cluster.down(purge=True)
        cluster.up()
        try:
            import_image(cluster, python_image())
            yield cluster
        finally:
            cluster.down(purge=True)


@contextmanager
def pod_with_run(cluster: Cluster) -> Iterator[tuple[VolumePod, VolumePlace, Path]]:
    """A pod with a volume, the volume's place, and the folder of a run on it."""
    run = run_with_claim(Lab(cluster))
    folder = runs_folder(run) / NAME
    make_run(folder)
    give_to_pods(runs_folder(run))
    access = Access(kubeconfig_path=str(cluster.kubeconfig))
    claim = str(run.more["claim"])
    place = VolumePlace(access, run.namespace, run.owner, PYTHON_IMAGE, claim, "/data/runs", NAME)
    with volume_pod(place, NAME, program()) as pod:
        yield pod, place, folder


def make_run(folder: Path) -> None:
    """Make a run with one checkpoint of random bytes, which cannot be compressed."""
    directory = folder / "checkpoints" / "step-00000100"
    directory.mkdir(parents=True)
    (folder / "run.yaml").write_text("run_name: fetch\n")
    contents = {name: os.urandom(size) for name, size in FILES.items()}
    contents |= {"state.json": b"{}", "layout.json": b"{}"}
    entries: dict[str, dict[str, object]] = {}
    for name, content in contents.items():
        (directory / name).write_bytes(content)
        entries[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (directory / "manifest.json").write_text(json.dumps({"files": entries}))


@contextmanager
def sshd(scratch: Path, address: str, inside: list[str]) -> Iterator[list[str]]:
    """Run an sshd in the cluster's network, and give the beginning of an scp command to it."""
    for key in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(scratch / key)]
        subprocess.run(command, check=True)
    host_key = (scratch / "host.pub").read_text()
    (scratch / "known").write_text(f"[{address}]:{SSH_PORT} {host_key}")
    Path("/run/sshd").mkdir(exist_ok=True)
    options = {
        "Port": str(SSH_PORT),
        "ListenAddress": address,
        "HostKey": str(scratch / "host"),
        "AuthorizedKeysFile": str(scratch / "user.pub"),
        "PidFile": "none",
        "StrictModes": "no",
        "LogLevel": "ERROR",
        "Subsystem": "sftp internal-sftp",
    }
    words = [word for item in options.items() for word in ("-o", "=".join(item))]
    server = subprocess.Popen([*inside, "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", *words])
    known = f"UserKnownHostsFile={scratch / 'known'}"
    scp = ["scp", "-q", "-r", "-P", str(SSH_PORT), "-i", str(scratch / "user"), "-o", known]
    try:
        deadline = time.monotonic() + 20
        probe = [*scp, f"{address}:/etc/hostname", str(scratch)]
        while subprocess.run(probe, check=False, capture_output=True).returncode:
            assert time.monotonic() < deadline, "sshd does not answer"
            time.sleep(0.2)
        yield scp
    finally:
        server.terminate()
        server.wait()


def measure(scratch: Path) -> dict[str, list[tuple[float, float]]]:
    """For each rate of the link: pairs of the seconds that fetch and scp took."""
    with cluster_with_image() as cluster:
        holder = find_holder(cluster.layout)
        assert holder
        assert cluster.node_ip
        inside = ["nsenter", "--target", str(holder.pid), "--net", "--"]
        with (
            sshd(scratch, cluster.node_ip, inside) as scp,
            pod_with_run(cluster) as (pod, place, source),
        ):
            copy = [*scp, f"{cluster.node_ip}:{source}", str(scratch / "copied")]

            def by_fetch() -> None:
                path, folder = f"{place.runs_path}/{NAME}", Folder(scratch / "fetched", NAME)
                Bringer(PodSource(pod, AUTO, print), path, folder, "latest", 4, print).bring()

            def by_scp() -> None:
                subprocess.run(copy, check=True)

            one_pair(scratch, by_fetch, by_scp)  # fills the page cache
            found: dict[str, list[tuple[float, float]]] = {}
            for rate, count in PAIRS.items():
                if rate:
                    shape = f"tc qdisc add dev {NODE_LINK} root tbf burst 256kb latency 100ms rate"
                    subprocess.run([*inside, *shape.split(), rate], check=True)
                # fetch and scp take turns at being first
                pairs = [one_pair(scratch, by_fetch, by_scp, i % 2 == 0) for i in range(count)]
                found[rate] = pairs
            return found


def one_pair(
    scratch: Path,
    by_fetch: Callable[[], None],
    by_scp: Callable[[], None],
    fetch_is_first: bool = True,
) -> tuple[float, float]:
    """Seconds that fetch and scp take, one after the other. The files they bring are removed."""
    order = (by_fetch, by_scp) if fetch_is_first else (by_scp, by_fetch)
    seconds = {action: seconds_of(action) for action in order}
    for folder in ("fetched", "copied"):
        brought = next((scratch / folder).rglob("model-00000.bin"))
        assert brought.stat().st_size == FILES["model-00000.bin"]
        shutil.rmtree(scratch / folder)
    print(f"{seconds[by_fetch]:.2f} s fetch, {seconds[by_scp]:.2f} s scp", file=sys.stderr)
    return seconds[by_fetch], seconds[by_scp]


def row(rate: str, found: list[tuple[float, float]]) -> Row:
    """The row of one rate of the link."""
    ratios = sorted(scp / fetch for fetch, scp in found)
    ratio = statistics.median(ratios)
    total = sum(FILES.values()) / 1e6
    ours, theirs = (total / statistics.median(pair[i] for pair in found) for i in (0, 1))
    link = f"a link of {rate.removesuffix('mbit')} Mbit/s" if rate else "a link without a limit"
    return Row(
        f"256 MB by `fetch` with 4 streams against `scp -r`, {link}",
        f">= {BAR:.2f}x",
        f"{ratio:.2f}x ({len(ratios)} pairs: {ratios[0]:.2f} to {ratios[-1]:.2f}); "
        f"{ours:,.0f} against {theirs:,.0f} MB/s",
        ratio >= BAR,
    )


def main() -> int:
    """Measure all rows, and return 1 if a bar is not met."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(Path(scratch))
    rows = [row(rate, pairs) for rate, pairs in found.items()]
    keep_results(RESULTS, HEADING, [NAME], NAME, with_where(rows, when_and_load(load)))
    for each in rows:
        print(each.measured)
    return int(not all(each.met for each in rows))


if __name__ == "__main__":
    sys.exit(main())
