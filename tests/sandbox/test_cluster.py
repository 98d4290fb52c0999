"""The real cluster: started, used, broken, ended, on this machine."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import mountpoints
from sandbox.cluster import Cluster
from sandbox.components import PROGRAMS
from sandbox.layout import Layout
from sandbox.namespaces import KUBELET_SYSCTLS, MARK, Holder, find_holder
from sandbox.processes import ComponentEndedError
from sandbox.waiting import wait_until
from tests.node.host import HOST_LINKS, machine_lock
from tests.node.outbound import OUTBOUND_CHAINS

PODS = Path(__file__).parent / "pods.yaml"
CLUSTERS = ("first", "second", "third", "fourth")  # the names that these tests use
CLUSTER_LINKS = "dts-"  # the links' names begin so, see Layout.host_link
Machine = dict[str, set[str]]
IPTABLES_FRAME = (
    "#",
    "*",
    "COMMIT",
    ":INPUT",
    ":OUTPUT",
    ":FORWARD",
    ":PREROUTING",
    ":POSTROUTING",
)


class ClusterUser:
    """A cluster and the commands that the tests give it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def try_kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.cluster.kubectl, *arguments],
            env=self.cluster.environment(),
            capture_output=True,
            text=True,
            timeout=400,  # longer than what kubectl itself is told to wait
            check=False,
        )

    def kubectl(self, *arguments: str) -> str:
        done = self.try_kubectl(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ctr(self, *arguments: str) -> str:
        head = ["ctr", "--address", str(self.cluster.containerd_address), "--namespace", "k8s.io"]
        return subprocess.run(
            [*head, *arguments], capture_output=True, text=True, check=True
        ).stdout

    def run_pods(self) -> None:
        self.kubectl("apply", "-f", str(PODS))
        self.kubectl("-n", "probe", "rollout", "status", "statefulset/web", "--timeout=300s")

    def probe(self, pod: str, *arguments: str) -> str:
        return self.kubectl("-n", "probe", "exec", pod, "--", "/probe", *arguments)

    def fetch(self, pod: str, url: str) -> str:
        """What `url` answers in the pod; kube-proxy and DNS follow new pods a second later."""
        answer = ""

        def no_answer() -> str | None:
            nonlocal answer
            done = self.try_kubectl("-n", "probe", "exec", pod, "--", "/probe", "get", url)
            answer = done.stdout
            return done.stderr if done.returncode else None

        wait_until(f"an answer of {url}", no_answer, timeout_seconds=300)
        return answer

    def uid(self) -> str:
        """Tells one start of the cluster from another."""
        return self.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")

    def holder(self) -> Holder:
        holder = find_holder(self.cluster.layout)
        assert holder is not None
        return holder


def lines(*command: str) -> set[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def machine(state_root: Path) -> Machine:
    """All on this machine that a cluster below `state_root` could leave behind."""
    places = ("/var/log/pods", "/var/log/containers", "/run/containerd", "/run/netns")
    places += ("/opt/containerd", "/usr/libexec/kubernetes", "/etc/cni", "/etc/kubernetes")
    sysctls = (*KUBELET_SYSCTLS, "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max")
    with machine_lock():  # so that no other cluster is half-way up or down
        used_by_others = any(holder_of_others(state_root))
        return {
            "processes": {line for line in lines("ps", "-eo", "args") if str(state_root) in line},
            "mounts": lines("findmnt", "--raw", "--noheadings", "--output", "TARGET,FSTYPE"),
            "links": {line.split("@")[0] for line in lines("ip", "-oneline", "link")},
            "routes": lines("ip", "-4", "route", "show", "table", "all"),
            # `walk`, and not `glob`: groups of others come and go meanwhile
            "cgroups": {
                folder
                for folder, _, _ in os.walk("/sys/fs/cgroup")
                if "/disttrain-sandbox" in folder
            },
            "named network namespaces": lines("ip", "netns", "list"),
            "iptables": lines("iptables-save", "-t", "nat")
            | lines("iptables-save", "-t", "filter"),
            "sysctls": {
                f"{name}={path.read_text()}"
                for name in sysctls
                if (path := Path("/proc/sys") / name).exists()
            },
            "folders": {place for place in places if Path(place).exists()},
            # these stay while any cluster uses them
            "mount points": set()
            if used_by_others
            else {str(folder) for folder in mountpoints.FIXED if folder.exists()},
            "state": {str(path) for path in state_root.glob("*/*")},
        }


def holder_of_others(state_root: Path) -> Iterator[str]:
    """Folders of the clusters that run beside those of this test."""
    for command in lines("ps", "-eo", "args"):
        _, mark, folder = command.partition(f" {MARK} ")
        if mark and not Path(folder).is_relative_to(state_root):
            yield folder


def left_behind(before: Machine, after: Machine, state_root: Path) -> Machine:
    """What is new and can be a cluster's below `state_root`.

    Other workers make clusters, hosts and mounts at the same time. Theirs are known by their names:
    links by the begin of their names and by not being of our clusters, control groups by the
    cluster's identity, mounts by a temporary folder that is not ours.
    """
    new = {kind: after[kind] - before[kind] for kind in before}
    layouts = [Layout(name, state_root) for name in CLUSTERS]
    our_links = tuple(layout.host_link for layout in layouts)
    identities = tuple(layout.identity for layout in layouts)

    def is_of_others(kind: str, line: str) -> bool:
        if kind in ("links", "routes"):
            others = HOST_LINKS in line or CLUSTER_LINKS in line
            return others and not any(link in line for link in our_links)
        if kind == "cgroups":
            path = line.partition("/disttrain-sandbox/")[2]
            return path != "" and not path.startswith(identities)
        if kind == "mounts":
            return line.startswith(tempfile.gettempdir()) and str(state_root) not in line
        # the comments with times in the listing, and its frame, come with anybody's first rule
        return kind == "iptables" and (OUTBOUND_CHAINS in line or line.startswith(IPTABLES_FRAME))

    kept = {kind: {e for e in new[kind] if not is_of_others(kind, e)} for kind in new}
    return {kind: entries for kind, entries in kept.items() if entries}


@pytest.fixture(scope="module")
def state_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def before(state_root: Path) -> Machine:
    return machine(state_root)


@pytest.fixture(scope="module")
def user(before: Machine, state_root: Path, bin_dir: Path) -> Iterator[ClusterUser]:
    """The user of a cluster that is down at first, and at the end."""
    assert before["links"]  # was looked at before the cluster could change it
    cluster = Cluster("first", bin_dir, state_root)
    try:
        yield ClusterUser(cluster)
    finally:
        cluster.down(purge=True)


@pytest.fixture
def first(user: ClusterUser, probe_image: Path) -> ClusterUser:
    """The cluster with its two pods, mended if the test before broke it or took it down."""
    if user.cluster.status().state != "up":
        user.cluster.up()
        user.ctr("images", "import", str(probe_image))
    user.run_pods()
    return user


@pytest.fixture
def nothing_runs(user: ClusterUser) -> None:
    user.cluster.down(purge=True)


def test_up_returns_with_a_node_that_takes_pods(first: ClusterUser) -> None:
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
        seen.add(first.fetch("web-0", "http://any"))  # a pod reaches itself that way, too
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
    layout = first.cluster.layout
    assert layout.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert layout.run.stat().st_mode & 0o777 == 0o700
    assert "insecure" not in layout.kubeconfig.read_text()


def test_a_second_up_finds_it_running_and_changes_nothing(
    first: ClusterUser, capsys: pytest.CaptureFixture[str]
) -> None:
    uid, holder = first.uid(), first.holder()
    first.cluster.up()
    assert "is up already" in capsys.readouterr().out
    assert (first.uid(), first.holder()) == (uid, holder)


def test_two_clusters_live_side_by_side_and_end_apart(
    first: ClusterUser, state_root: Path, bin_dir: Path, probe_image: Path
) -> None:
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
    scheduler = first.cluster.layout.run / "kube-scheduler.pid"
    inside = scheduler.read_text().split()[0]
    subprocess.run(first.holder().enter("kill", "-9", inside), check=True)

    def not_seen() -> str | None:
        problems = first.cluster.status().problems
        return None if any("kube-scheduler does not run" in p for p in problems) else str(problems)

    wait_until("status to see it", not_seen, timeout_seconds=300)
    assert first.cluster.status().state == "broken"


def test_after_a_kill_of_everything_up_recovers_with_images_and_data(first: ClusterUser) -> None:
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
    root = first.cluster.layout.root
    (first.cluster.data_root / "checkpoint").write_text("kept")
    during = left_behind(before, machine(state_root), state_root)
    listed = lines("lsns", "--raw", "--noheadings", "--output", "NS", "--type", "net")
    assert {"processes", "links", "routes", "cgroups"} <= set(during)  # the lists do see it
    namespace = Path(f"/proc/{first.holder().pid}/ns/net").readlink().name[5:-1]  # net:[number]
    assert namespace in listed
    first.cluster.down()
    kept = {str(root / "containerd"), str(root / "data")}
    assert left_behind(before, machine(state_root), state_root) == {"state": kept}
    network_namespaces = lines("lsns", "--raw", "--noheadings", "--output", "NS", "--type", "net")
    assert namespace not in network_namespaces
    assert (root / "data" / "checkpoint").read_text() == "kept"
    first.cluster.down()  # twice is fine
    first.cluster.down(purge=True)
    assert left_behind(before, machine(state_root), state_root) == {}


@pytest.mark.usefixtures("nothing_runs")
def test_a_component_that_ends_at_start_shows_its_last_lines_and_all_is_cleaned(
    before: Machine, state_root: Path, bin_dir: Path, tmp_path: Path
) -> None:
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
    for program in PROGRAMS:
        shutil.copyfile("/bin/true", tmp_path / program)
    (tmp_path / "kubelet").unlink()
    cluster = Cluster("fourth", tmp_path, state_root)
    with pytest.raises(RuntimeError, match=f"{tmp_path} has no kubelet"):
        cluster.up()
    cluster.down(purge=True)
    assert left_behind(before, machine(state_root), state_root) == {}
