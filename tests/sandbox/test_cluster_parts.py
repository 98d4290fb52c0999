"""The parts of the sandbox's cluster that can be tested without a cluster."""

import io
import json
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import preflight
from sandbox.__main__ import main
from sandbox.api import missing_node_condition
from sandbox.cgroups import hierarchies, make_cgroup, missing_controllers, remove_cgroup
from sandbox.cluster import Cluster
from sandbox.cluster_commands import NAME_VARIABLE
from sandbox.components import CNI_FOLDERS, PROGRAMS
from sandbox.controllers import CONTROLLERS
from sandbox.image_archive import image_archive
from sandbox.kubeconfig import write_kubeconfig
from sandbox.layout import STATE_ROOT, Layout
from sandbox.network import POOL, free_subnet
from sandbox.pki import Certificate, make_pki
from sandbox.waiting import wait_until


@pytest.mark.parametrize("name", ["", "Up", "a_b", "-a", "a-", "a/b", "..", "a" * 31, "a\n"])
def test_a_bad_name_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(ValueError, match=r"cluster name .*: use 1 to 30 of a-z, 0-9 and '-'"):
        Layout(name)


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("state", "give an absolute path"),
        ("/run/state", "not below /run"),
        ("/var/log", "not below"),
        ("/" + "x" * 90, "too long"),
    ],
)
def test_a_state_folder_that_cannot_work_is_refused(folder: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Layout("default", Path(folder))


@given(name=st.from_regex(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", fullmatch=True))
def test_every_good_name_gives_host_wide_names_that_fit(name: str) -> None:
    layout = Layout(name)
    assert len(layout.host_link) <= 15  # IFNAMSIZ
    assert len(layout.node_name) <= 63  # a DNS label
    assert layout.root == STATE_ROOT / name


def test_equal_names_below_different_folders_do_not_collide() -> None:
    one, other = Layout("default", Path("/srv/a")), Layout("default", Path("/srv/b"))
    assert one.host_link != other.host_link
    assert one.cgroup != other.cgroup


def covered(network: IPv4Network, routes: list[IPv4Network]) -> bool:
    """Whether a network overlaps one of the routes."""
    return any(network.overlaps(route) for route in routes)


# At most twenty routes, none wider than /20, so that they cannot use up the pool.
routes_near_the_pool = st.lists(
    st.builds(
        lambda offset, length: IPv4Network((int(POOL[0]) + offset, length), strict=False),
        st.one_of(st.integers(-64, 64), st.integers(-(2**17), 2**18)),
        st.integers(20, 32),
    ),
    max_size=20,
)


@given(routes=routes_near_the_pool)
def test_the_subnet_is_the_first_free_one_of_the_pool(routes: list[IPv4Network]) -> None:
    """A cluster gets the first /30 of the pool that no route of this machine uses."""
    subnet = free_subnet(routes)
    assert subnet.subnet_of(POOL)
    assert subnet.prefixlen == 30
    assert not covered(subnet, routes)
    before = int(subnet[0]) - 4
    if before >= int(POOL[0]):
        assert covered(IPv4Network((before, 30)), routes)


def test_a_used_up_pool_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"no free /30 in 198\.18\.0\.0/15"):
        free_subnet([IPv4Network("198.0.0.0/8")])


def test_default_routes_do_not_count_as_taken() -> None:
    """A default route, also one in two halves, does not make the whole pool count as used."""
    halves = [IPv4Network(text) for text in ("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1")]
    assert free_subnet(halves) == IPv4Network("198.18.0.0/30")


def test_a_wait_names_what_it_waited_for_the_limit_and_the_last_answer() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0\.05 s for the moon: it is day"):
        wait_until("the moon", lambda: "it is day", timeout_seconds=0.05)


def test_a_wait_ends_as_soon_as_nothing_is_missing() -> None:
    answers = iter(["no", None])
    wait_until("it", lambda: next(answers), timeout_seconds=5)
    assert next(answers, "used up") == "used up"


def openssl(*arguments: str | Path) -> str:
    """Run openssl, and return what it prints."""
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_certificates_are_signed_for_their_names_and_their_use_alone(tmp_path: Path) -> None:
    """A certificate is valid for its names and its use, and not for the other use. Keys can be read
    only by their owner.
    """
    pki = tmp_path / "run" / "pki"
    server = Certificate(
        "api", "api", "serverAuth", alternative_names=("DNS:kubernetes", "IP:10.96.0.1")
    )
    make_pki(pki, [server, Certificate("node", "system:node:n", group="system:nodes")])
    ca = pki / "ca.crt"
    openssl("verify", "-CAfile", ca, "-purpose", "sslserver", "-x509_strict", pki / "api.crt")
    openssl("verify", "-CAfile", ca, "-verify_ip", "10.96.0.1", pki / "api.crt")
    openssl("verify", "-CAfile", ca, "-verify_hostname", "kubernetes", pki / "api.crt")
    openssl("verify", "-CAfile", ca, "-purpose", "sslclient", pki / "node.crt")
    for purpose, file in (("sslclient", "api"), ("sslserver", "node"), ("any", "ca")):
        if file == "ca":
            assert "CA:TRUE" in openssl("x509", "-in", ca, "-noout", "-ext", "basicConstraints")
            continue
        with pytest.raises(subprocess.CalledProcessError):
            openssl("verify", "-CAfile", ca, "-purpose", purpose, pki / f"{file}.crt")
    subject = openssl("x509", "-in", pki / "node.crt", "-noout", "-subject")
    assert subject.strip() == "subject=O = system:nodes, CN = system:node:n"
    for key in pki.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(pki.stat().st_mode) == 0o700


def test_a_kubeconfig_carries_its_authority_and_replaces_a_readable_one(tmp_path: Path) -> None:
    """A kubeconfig holds the cluster's authority and can be read only by its owner, also where it
    replaces a file that everybody could read.
    """
    for file in ("ca.crt", "admin.crt", "admin.key"):
        (tmp_path / file).write_text(file)
    path = tmp_path / "kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    write_kubeconfig(
        path, server="https://198.18.0.2:6443", name="x", pki=tmp_path, certificate="admin"
    )
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"] == {
        "server": "https://198.18.0.2:6443",
        "certificate-authority-data": "Y2EuY3J0",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_image_is_reproducible_and_runs_the_program(tmp_path: Path) -> None:
    """The archive of an image depends only on the program's content and the image's name."""
    program = tmp_path / "hello"
    program.write_bytes(b"\x7fELF hello")
    archive = image_archive(program, "localhost/x:1")
    os.utime(program, (1, 1))
    assert image_archive(program, "localhost/x:1") == archive
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:

        def blob(digest: str) -> bytes:
            file = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert file is not None
            return file.read()

        index_file = tar.extractfile("index.json")
        assert index_file is not None
        (entry,) = json.load(index_file)["manifests"]
        assert entry["annotations"] == {"io.containerd.image.name": "localhost/x:1"}
        manifest = json.loads(blob(entry["digest"]))
        config = json.loads(blob(manifest["config"]["digest"]))
        assert config["config"]["Entrypoint"] == ["/hello"]
        with tarfile.open(fileobj=io.BytesIO(blob(manifest["layers"][0]["digest"]))) as layer:
            (member,) = layer.getmembers()
            assert (member.name, member.mode, member.mtime) == ("hello", 0o755, 0)


def node(ready: str, *taints: str) -> str:
    """Return a node as `kubectl get node -o json` shows it."""
    condition = {"type": "Ready", "status": ready, "message": "no CNI"}
    spec = {"taints": [{"key": taint} for taint in taints]} if taints else {}
    return json.dumps({"spec": spec, "status": {"conditions": [condition]}})


def test_a_node_counts_when_it_is_ready_and_takes_pods() -> None:
    assert missing_node_condition(node("True")) is None
    assert missing_node_condition(node("False")) == "no CNI"
    assert missing_node_condition(node("True", "not-ready")) == (
        "the node has the taints ['not-ready']"
    )
    assert missing_node_condition('{"spec": {}, "status": {}}') is not None


@pytest.fixture
def cgroup() -> Iterator[str]:
    """Yield the name of a control group, and remove the group afterwards."""
    name = f"/disttrain-sandbox-test-{os.getpid()}/a"
    yield name
    remove_cgroup(name)


def test_the_control_group_is_made_in_every_hierarchy_and_removed_with_its_parents(
    cgroup: str,
) -> None:
    """A cluster's control group is made in every hierarchy of this machine, and removed with the
    groups above and below it.
    """
    paths = [hierarchy / cgroup.strip("/") for hierarchy in hierarchies()]
    make_cgroup(cgroup)
    make_cgroup(cgroup)  # making it again is fine
    assert all(path.is_dir() for path in paths)
    for path in paths:  # a process can be in it: its cpuset is filled
        (path / "pod").mkdir()
    remove_cgroup(cgroup)
    assert not any(path.parent.exists() for path in paths)


def test_version_2_passes_on_the_controllers_that_are_there_and_not_yet_passed_on(
    tmp_path: Path,
) -> None:
    """With cgroup v2, a new group gets the controllers that exist, and the missing ones are
    named.
    """
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpu memory io\n")
        (folder / "cgroup.subtree_control").write_text("memory\n")
    make_cgroup("/a/b", tmp_path)
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        assert (folder / "cgroup.subtree_control").read_text() == "+cpu"
    assert missing_controllers(tmp_path) == ["cpuset", "pids"]


def test_version_1_fills_the_new_cpuset_and_finds_joined_controllers(tmp_path: Path) -> None:
    """With cgroup v1, a new group's cpuset gets the CPUs of the group above, and controllers that
    share a folder are found.
    """
    for folder in ("cpu,cpuacct", "cpuset", "cpuset/a", "memory"):
        (tmp_path / folder).mkdir()
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    for file, value in (("cpuset.cpus", "0-3"), ("cpuset.mems", "0")):
        (tmp_path / "cpuset" / file).write_text(value)
        (tmp_path / "cpuset" / "a" / file).write_text("")
    make_cgroup("/a", tmp_path)
    assert (tmp_path / "cpuset" / "a" / "cpuset.cpus").read_text() == "0-3"
    assert (tmp_path / "cpu,cpuacct" / "a").is_dir()
    assert missing_controllers(tmp_path) == ["pids"]


def test_another_user_is_told_to_be_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user who is not root is told to be root, and nothing is changed."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    cluster = Cluster("default", None, tmp_path)
    for act in (cluster.up, cluster.down, cluster.status, cluster.enter):
        with pytest.raises(RuntimeError, match="run it as root"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_every_missing_program_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All missing programs are named at once, those of Debian with the package to install."""
    monkeypatch.setattr(preflight, "SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr("sandbox.components.CNI_FOLDERS", (tmp_path,))
    found = preflight.problems(Layout("x", tmp_path), tmp_path)
    assert "runc is not installed: apt-get install runc" in found
    assert "ip is not installed: apt-get install iproute2" in found
    assert any("apt-get install containernetworking-plugins" in text for text in found)
    assert sum(f"{tmp_path} has no" in text for text in found) == len(PROGRAMS)
    assert CNI_FOLDERS[0] == Path("/usr/lib/cni")  # where Debian's package puts them


def test_no_two_controllers_listen_at_one_port() -> None:
    """Each controller has ports of its own. They are processes of one node, and any of them may run
    beside the others.
    """
    all_of_them = CONTROLLERS.values()
    ports = [program.health_port for each in all_of_them for program in each.programs]
    ports += [each.webhook_port for each in all_of_them if each.webhook_port]
    assert sorted(ports) == sorted(set(ports))


def test_the_command_line_says_what_is_wrong_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong name of a cluster or a component is refused in one line."""
    assert main(["status", "--name", "Bad"]) == 1
    assert capsys.readouterr().err.startswith("error: the cluster name 'Bad' is not possible")
    assert main(["logs", "--name", "x", "cube"]) == 1
    assert "no component 'cube'; name one of etcd, containerd" in capsys.readouterr().err


def test_the_cluster_may_be_named_once_for_a_shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of the shell can name the cluster, and `--name` overrides it."""
    monkeypatch.setenv(NAME_VARIABLE, "of-the-shell")
    with TemporaryDirectory() as root:  # `tmp_path` can be too long for the path of a socket
        assert main(["status", "--state-root", root]) == 3
        assert capsys.readouterr().out == "cluster of-the-shell: down\n"
        assert main(["status", "--state-root", root, "--name", "named"]) == 3
        assert capsys.readouterr().out == "cluster named: down\n"


@pytest.mark.parametrize("count", ["-1", "65"])
def test_a_number_of_gpus_that_cannot_be_is_refused(
    count: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gpus", "--name", "nobody", "--state-root", str(tmp_path), "--", count]) == 1
    assert f"{count} GPUs are not possible: use 0 to 64" in capsys.readouterr().err


def test_what_needs_a_cluster_says_that_it_is_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands that need a running cluster say that it is down, and what to run first."""
    for words in (["gpus", "2"], ["remove", "kueue"]):
        assert main([*words, "--name", "nobody", "--state-root", str(tmp_path)]) == 1
        assert "cluster nobody is down: run `up` first" in capsys.readouterr().err


def test_status_of_a_cluster_that_is_not_there_is_down_with_exit_status_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--name", "nobody", "--state-root", str(tmp_path)]) == 3
    assert capsys.readouterr().out == "cluster nobody: down\n"
