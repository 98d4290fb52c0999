"""The sandbox's real cluster is started, used, broken and ended on this machine."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cluster import Cluster
from sandbox.components import PROGRAMS
from sandbox.processes import ComponentEndedError
from sandbox.waiting import wait_until
from tests.sandbox.cluster_lab import ClusterUser, Machine, left_behind, lines, machine


@pytest.fixture(scope="module")
def user(before: Machine, state_root: Path, bin_dir: Path) -> Iterator[ClusterUser]:
    """Yield the user of a cluster that is down at first, and is removed afterwards."""
    assert before["links"]  # the machine was looked at before the cluster could change it
    cluster = Cluster("first", bin_dir, state_root)
    try:
        yield ClusterUser(cluster)
    finally:
        cluster.down(purge=True)


@pytest.fixture
def first(user: ClusterUser, probe_image: Path) -> ClusterUser:
    """Return the cluster with its two pods, mended if the test before broke it or took it down."""
    if user.cluster.status().state != "up":
        user.cluster.up()
        user.ctr("images", "import", str(probe_image))
    user.run_pods()
    return user


@pytest.fixture
def nothing_runs(user: ClusterUser) -> None:
    """Take the cluster down with its data."""
    user.cluster.down(purge=True)


def test_up_returns_with_a_node_that_takes_pods(first: ClusterUser) -> None:
    """`up` returns when the node is ready and takes pods."""
    (node,) = json.loads(first.kubectl("get", "nodes", "-o", "json"))["items"]
    conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert "taints" not in node["spec"]
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.34.2"
    addresses = [a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"]
    assert addresses == [first.cluster.node_ip]


def test_pods_of_a_statefulset_find_each_other_by_name(first: ClusterUser) -> None:
    assert first.fetch("web-0", "http://web-1.web:8080") == "web-1"
    full = "http://web-0.web.probe.svc.cluster.local:8080"
    assert first.fetch("web-1", full) == "web-0"
    pod_ip = first.kubectl("-n", "probe", "get", "pod", "web-1", "-o", "jsonpath={.status.podIP}")
    assert first.probe("web-0", "lookup", "web-1.web") == pod_ip


def test_a_pod_that_came_back_is_found_at_its_new_address(first: ClusterUser) -> None:
    first.kubectl("-n", "probe", "delete", "pod", "web-1")
    first.kubectl("-n", "probe", "rollout", "status", "statefulset/web", "--timeout=300s")
    assert first.fetch("web-0", "http://web-1.web:8080") == "web-1"


def test_a_service_leads_to_its_pods_from_inside_and_from_the_host(first: ClusterUser) -> None:
    seen: set[str] = set()

    def not_seen() -> str | None:
        # A pod can reach itself through the service too.
        seen.add(first.fetch("web-0", "http://any"))
        return None if seen == {"web-0", "web-1"} else f"only {seen}"

    wait_until("both pods to answer", not_seen, timeout_seconds=300)
    url = f"http://{first.cluster.node_ip}:30080"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as response:
        assert response.read().decode() in {"web-0", "web-1"}


def test_kubectl_shows_logs_and_executes_in_pods(first: ClusterUser) -> None:
    assert first.kubectl("-n", "probe", "logs", "web-0") == "web-0 serves on :8080\n"
    refused = first.try_kubectl("-n", "probe", "exec", "web-0", "--", "/probe", "nonsense")
    assert refused.returncode == 1
    assert "usage: probe" in refused.stderr


@pytest.mark.parametrize("port", [6443, 10250], ids=["API server", "kubelet"])
def test_without_a_certificate_the_answer_is_401(first: ClusterUser, port: int) -> None:
    context = ssl.create_default_context(cafile=str(first.cluster.layout.pki / "ca.crt"))
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open(f"https://{first.cluster.node_ip}:{port}/pods", timeout=30)
    with refused.value as answer:
        assert answer.code == 401


def test_components_may_do_no_more_than_their_role(first: ClusterUser) -> None:
    """The certificate of a component does not allow it to make a namespace."""
    kubectl, run = first.cluster.kubectl[0], first.cluster.layout.run
    for user in ("coredns", "kube-proxy", "kube-scheduler", "kubelet-client"):
        done = subprocess.run(
            [kubectl, f"--kubeconfig={run}/{user}.kubeconfig", "create", "namespace", "theirs"],
            env=first.cluster.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert "Forbidden" in done.stderr


def test_secrets_on_disk_are_for_root_alone(first: ClusterUser) -> None:
    """Only root can read the kubeconfig and the folder with the keys, and the kubeconfig switches
    no check off.
    """
    layout = first.cluster.layout
    assert layout.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert layout.run.stat().st_mode & 0o777 == 0o700
    assert "insecure" not in layout.kubeconfig.read_text()


def test_a_second_up_finds_it_running_and_changes_nothing(
    first: ClusterUser, capsys: pytest.CaptureFixture[str]
) -> None:
    """`up` of a running cluster changes nothing, and says so without mentioning the kubeconfig,
    which people who only try `make demo` would not know.
    """
    uid, holder = first.uid(), first.holder()
    first.cluster.up()
    said = capsys.readouterr().out
    assert "is up already" in said
    assert "kubeconfig" not in said  # `make demo` shows these lines to people who just try it
    assert (first.uid(), first.holder()) == (uid, holder)


@pytest.mark.slow
def test_two_clusters_live_side_by_side_and_end_apart(
    first: ClusterUser, state_root: Path, bin_dir: Path, probe_image: Path
) -> None:
    """Two clusters run on one machine with the same pods, names and ports, and the end of one
    leaves the other as it is.
    """
    second = ClusterUser(Cluster("second", bin_dir, state_root))
    try:
        second.cluster.up()
        assert second.cluster.node_ip != first.cluster.node_ip
        assert second.uid() != first.uid()
        assert "probe" not in second.kubectl("get", "namespaces", "-o", "name")
        second.ctr("images", "import", str(probe_image))
        second.run_pods()  # the same names, addresses and node port as in the first
        assert second.fetch("web-0", "http://web-1.web:8080") == "web-1"
    finally:
        second.cluster.down(purge=True)
    assert second.cluster.status().state == "down"
    assert first.cluster.status().state == "up"
    assert first.fetch("web-0", "http://web-1.web:8080") == "web-1"


def test_status_names_a_component_that_has_ended(first: ClusterUser) -> None:
    """`status` calls a cluster broken whose component has ended, and names the component."""
    scheduler = first.cluster.layout.run / "kube-scheduler.pid"
    inside = scheduler.read_text().split()[0]
    subprocess.run(first.holder().enter("kill", "-9", inside), check=True)

    def not_seen() -> str | None:
        problems = first.cluster.status().problems
        return None if any("kube-scheduler does not run" in p for p in problems) else str(problems)

    wait_until("status to see it", not_seen, timeout_seconds=300)
    assert first.cluster.status().state == "broken"


@pytest.mark.slow
def test_after_a_kill_of_everything_up_recovers_with_images_and_data(first: ClusterUser) -> None:
    """After all processes of a cluster were killed, `up` makes an empty cluster with the images and
    data of before.
    """
    uid = first.uid()
    (first.cluster.data_root / "checkpoint").write_text("kept")
    holder = first.holder()
    os.kill(holder.pid, signal.SIGKILL)
    wait_until("the end", lambda: "alive" if holder.is_alive() else None, timeout_seconds=300)
    assert first.cluster.status().state == "broken"
    first.cluster.up()
    assert first.cluster.status().state == "up"
    assert first.uid() != uid  # a new, empty cluster
    first.run_pods()  # imagePullPolicy: Never, so the image was kept
    assert first.fetch("web-0", "http://any") in {"web-0", "web-1"}
    assert (first.cluster.data_root / "checkpoint").read_text() == "kept"


def test_down_leaves_nothing_but_data_and_images(
    first: ClusterUser, before: Machine, state_root: Path
) -> None:
    """`down` leaves only data and images on this machine, and `down` with purge leaves nothing."""
    root = first.cluster.layout.root
    (first.cluster.data_root / "checkpoint").write_text("kept")
    during = left_behind(before, machine(state_root), state_root)
    listed = lines("lsns", "--raw", "--noheadings", "--output", "NS", "--type", "net")
    # The lists do show a running cluster.
    assert {"processes", "links", "routes", "cgroups"} <= set(during)
    namespace = Path(f"/proc/{first.holder().pid}/ns/net").readlink().name[5:-1]  # net:[number]
    assert namespace in listed
    first.cluster.down()
    kept = {str(root / "containerd"), str(root / "data")}
    assert left_behind(before, machine(state_root), state_root) == {"state": kept}
    network_namespaces = lines("lsns", "--raw", "--noheadings", "--output", "NS", "--type", "net")
    assert namespace not in network_namespaces
    assert (root / "data" / "checkpoint").read_text() == "kept"
    first.cluster.down()  # a second `down` is fine
    first.cluster.down(purge=True)
    assert left_behind(before, machine(state_root), state_root) == {}


@pytest.mark.usefixtures("nothing_runs")
def test_a_component_that_ends_at_start_shows_its_last_lines_and_all_is_cleaned(
    before: Machine, state_root: Path, bin_dir: Path, tmp_path: Path
) -> None:
    """If a component ends at its start, `up` fails with the component's last lines and leaves
    nothing on this machine.
    """
    for program in PROGRAMS:
        (tmp_path / program).symlink_to(bin_dir / program)
    (tmp_path / "etcd").unlink()
    (tmp_path / "etcd").write_text("#!/bin/sh\necho the disk is full\nexit 1\n")
    (tmp_path / "etcd").chmod(0o755)
    cluster = Cluster("third", tmp_path, state_root)
    try:
        with pytest.raises(
            ComponentEndedError, match=r"etcd has ended.*etcd\.log:\nthe disk is full"
        ):
            cluster.up()
        assert cluster.status().state == "down"
        assert cluster.log("etcd").read_text() == "the disk is full\n"
    finally:
        cluster.down(purge=True)
    assert left_behind(before, machine(state_root), state_root) == {}


@pytest.mark.usefixtures("nothing_runs")
def test_a_missing_program_is_named_before_anything_is_made(
    before: Machine, state_root: Path, bin_dir: Path, tmp_path: Path
) -> None:
    """If a program is missing, `up` names it before it changes anything on this machine."""
    for program in PROGRAMS:
        shutil.copyfile("/bin/true", tmp_path / program)
    (tmp_path / "kubelet").unlink()
    cluster = Cluster("fourth", tmp_path, state_root)
    with pytest.raises(RuntimeError, match=f"{tmp_path} has no kubelet"):
        cluster.up()
    cluster.down(purge=True)
    assert left_behind(before, machine(state_root), state_root) == {}
