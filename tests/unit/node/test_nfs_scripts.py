"""The scripts that set up NFS, on a stand-in for a machine; tests/node and tests/vm use real
ones.
"""

from itertools import permutations
from pathlib import Path

import pytest

from tests.unit.node.nfs_host import NfsHost

OTHERS = "/srv/home 10.0.0.0/8(rw)\n"


@pytest.fixture
def host(tmp_path: Path) -> NfsHost:
    return NfsHost(tmp_path)


@pytest.mark.parametrize(
    ("manager", "package"), [("dnf", "nfs-utils"), ("zypper", "nfs-kernel-server")]
)
def test_server_comes_and_goes_with_its_packages(
    tmp_path: Path, manager: str, package: str
) -> None:
    """The script installs the server through the proxy and serves exactly one folder to exactly one
    machine. When the server is removed, the machine is as before, and the data are still there.
    """
    host = NfsHost(tmp_path, manager)
    (host.data / "runs").write_text("a checkpoint")
    before = host.files()
    said = host.serve(HTTP_PROXY="http://proxy.example.com:3128")
    assert f"installing {package} by {manager}" in said
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.endswith(f"{package} via http://proxy.example.com:3128")
    assert host.served() == host.written() == ["10.1.2.3"]
    assert (tmp_path / "service/enabled").read_text() == "enabled\n"
    host.stop()
    assert host.files() == before
    assert host.served() == []


def test_first_machine_with_a_name_serves_itself_by_its_address(
    host: NfsHost, tmp_path: Path
) -> None:
    """The first machine serves itself at the address by which it reaches its own name. That may be
    its loopback address, from which it then mounts.
    """
    (tmp_path / "own-address").write_text("127.0.0.1")
    assert "is served by NFS at gpu01.lan" in host.serve(SERVER_ADDRESS="gpu01.lan")
    assert host.served() == host.written() == ["127.0.0.1"]


def test_second_run_changes_nothing_and_mends_what_is_lost(host: NfsHost, tmp_path: Path) -> None:
    """A second run changes nothing and installs nothing. If the server was stopped or its exports
    were taken back by hand, it starts them again.
    """
    host.serve()
    host.allow("gpu2", "10.1.2.4")
    before = host.files()
    host.serve()
    host.allow("gpu2", "10.1.2.4")
    assert host.files() == before
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    (tmp_path / "etab").write_text("")  # somebody has run exportfs -au
    (tmp_path / "service/active").unlink()
    host.serve()
    host.allow("gpu2", "10.1.2.4")
    assert host.served() == ["10.1.2.3", "10.1.2.4"]


def test_machines_come_and_go_one_by_one(host: NfsHost) -> None:
    """Each machine is added and taken back alone, also with another address, another name, or an
    IPv6 address. A machine that gets another address can use the former one until that is taken
    back.
    """
    host.serve()
    host.allow("gpu2", "10.1.2.4")
    host.allow("gpu3", "fd00::5")
    assert host.served() == host.written() == ["10.1.2.3", "10.1.2.4", "fd00::5"]
    host.allow("gpu3", "10.1.2.5")  # pods at the former address still save
    assert host.served() == host.written() == ["10.1.2.3", "10.1.2.4", "10.1.2.5", "fd00::5"]
    host.allow("gpu3", "fd00::5", "delete")
    assert host.served() == host.written() == ["10.1.2.3", "10.1.2.4", "10.1.2.5"]
    host.allow("gpu9", "10.1.2.5")  # gpu3 gets the name gpu9
    host.allow("gpu3", "10.1.2.5", "delete")
    assert host.served() == host.written() == ["10.1.2.3", "10.1.2.4", "10.1.2.5"]
    host.allow("gpu2", "10.1.2.4", "delete")
    assert host.served() == host.written() == ["10.1.2.3", "10.1.2.5"]
    host.stop()
    assert host.served() == []


SWAPPED = (("gpu2", "10.1.2.5"), ("gpu3", "10.1.2.4"))
FORMER = (("gpu2", "10.1.2.4"), ("gpu3", "10.1.2.5"))


@pytest.mark.parametrize("creates", list(permutations(SWAPPED)))
def test_machines_that_swap_names_are_never_shut_out(
    host: NfsHost, creates: tuple[tuple[str, str], ...]
) -> None:
    """Machines that swap their names can use the folder at every moment. The engine makes the new
    permissions in any order, and deletes the former ones at the end.
    """
    host.serve()
    for node, client in FORMER:
        host.allow(node, client)
    both = ["10.1.2.3", "10.1.2.4", "10.1.2.5"]
    for node, client in creates:
        host.allow(node, client)
        assert host.served() == host.written() == both
    for node, client in FORMER:
        assert "stays, as it is no longer for" in host.allow(node, client, "delete")
        assert host.served() == host.written() == both
    for node, client in SWAPPED:
        host.allow(node, client, "delete")
    assert host.served() == host.written() == ["10.1.2.3"]


def test_host_that_is_reached_in_another_way_stays_what_it_was(host: NfsHost) -> None:
    """A host that is reached by its address and no longer by its name keeps its server and its
    client. To the engine these are two hosts, and it deletes what belongs to the former one.
    """
    before = host.files()
    by_name, by_address = {"HOST": "gpu01.lan"}, {"HOST": "10.1.2.3"}
    for way in (by_name, by_address):
        host.serve(**way)
        host.allow("gpu2", "10.1.2.4", **way)
    assert "stays, as it is no longer for" in host.allow("gpu2", "10.1.2.4", "delete", **by_name)
    assert "is reached at 10.1.2.3 by now, and keeps its" in host.stop(**by_name)
    assert host.served() == host.written() == ["10.1.2.3", "10.1.2.4"]
    host.stop(**by_address)
    assert (host.files(), host.served()) == (before, [])
    for way in (by_name, by_address):
        host.mount("gpu2", **way)
    assert "by now, and keeps its NFS client" in host.mount("gpu2", "delete", **by_name)
    assert "nfs-utils" in host.packages()
    host.mount("gpu2", "delete", **by_address)
    assert host.files() == before


def test_first_machine_that_becomes_a_further_one_can_still_mount(
    host: NfsHost, tmp_path: Path
) -> None:
    """A server stops on a machine that mounts from another one by now, but the packages stay until
    the client is removed too.
    """
    (tmp_path / "etc/exports").write_text("# kept for later\n")
    before = host.files()
    host.serve()
    host.mount("gpu1")
    assert "as this host mounts the data from another one by now" in host.stop()
    assert host.served() == []
    assert not (tmp_path / "service/active").exists()
    assert (tmp_path / "bin/mount.nfs").exists()
    assert "no NFS server of this host is of this program" in host.stop()
    host.mount("gpu1", "delete")
    assert host.files() == before


def test_further_machine_that_becomes_the_first_one_can_still_serve(host: NfsHost) -> None:
    """The removal of the client leaves the server on a machine that serves the folder by now."""
    before = host.files()
    host.mount("gpu2")
    host.serve()
    assert "as the host is the server by now" in host.mount("gpu2", "delete")
    assert host.served() == ["10.1.2.3"]
    host.stop()
    assert host.files() == before


def test_server_of_others_stays_as_it_was(host: NfsHost, tmp_path: Path) -> None:
    """A server that ran before, with exports of its own, needs no packages. It has its own exports
    alone again when this stack's are taken back.
    """
    host.install("nfs-utils")
    (tmp_path / "etc/exports").write_text(OTHERS)
    (tmp_path / "etc/exports.d").mkdir()
    (tmp_path / "service/enabled").write_text("enabled\n")
    (tmp_path / "service/active").write_text("active\n")
    (tmp_path / "proc/fs/nfsd/threads").write_text("8\n")
    before = host.files()
    host.serve()
    assert not (tmp_path / "calls").exists(), "nothing had to be installed"
    host.stop()
    assert host.files() == before


@pytest.mark.parametrize("cut", ["by this version", "by a former one"])
def test_server_of_others_survives_a_cut(host: NfsHost, tmp_path: Path, cut: str) -> None:
    """A server that ran before still runs after `pulumi destroy`, even if the first `up` was cut
    off before it noted that the server was there.
    """
    host.install("nfs-utils")
    (tmp_path / "service/enabled").write_text("enabled\n")
    (tmp_path / "service/active").write_text("active\n")
    before = host.files()
    notes = tmp_path / "var/lib/disttrain-nfs"
    (notes / "before.new").mkdir(parents=True)  # the note cannot be written, as on a full disk
    if cut == "by this version":
        assert host.run("nfs-server.sh").returncode != 0
    else:
        (notes / "server").write_text("this host\n")
    (notes / "before.new").rmdir()
    host.stop()
    if notes.exists():
        notes.rmdir()
    assert host.files() == before


def test_server_that_was_off_is_off_again(host: NfsHost, tmp_path: Path) -> None:
    """A server that was installed but off is off again after the stack has gone."""
    host.install("nfs-utils")
    before = host.files()
    host.serve()
    assert (tmp_path / "service/active").exists()
    host.stop()
    assert host.files() == before


def test_server_that_others_use_by_now_stays(host: NfsHost, tmp_path: Path) -> None:
    """A server that this program has installed stays if an administrator has put a folder of his
    own on it. Only this stack's folder is taken back.
    """
    host.serve()
    (tmp_path / "etc/exports.d/home.exports").write_text(OTHERS)
    said = host.stop()
    assert "stays, as" in said
    assert "home.exports" in said
    assert "nfs-utils" in host.packages()
    assert (tmp_path / "service/active").exists()
    assert host.served() == []


def test_package_that_others_need_by_now_stays(host: NfsHost, tmp_path: Path) -> None:
    """A package that this program has installed stays if another package needs it by now."""
    host.serve()
    (tmp_path / "packages/ypbind").touch()
    (tmp_path / "needs/ypbind").write_text("rpcbind")
    assert "these packages stay, as others need them" in host.stop()
    assert {"rpcbind", "ypbind"} <= set(host.packages())


def test_packages_removed_by_hand_are_gone(host: NfsHost) -> None:
    """The removal succeeds if somebody has already removed the packages. Otherwise `pulumi destroy`
    would fail at each try without a reason.
    """
    before = host.files()
    host.mount("gpu2")
    host.uninstall("nfs-utils", "rpcbind")
    assert "packages stay" not in host.mount("gpu2", "delete")
    assert host.files() == before


def test_package_that_was_there_before_stays(host: NfsHost) -> None:
    """A package that was there before is not removed with the server."""
    host.install("rpcbind")
    host.serve()
    host.stop()
    assert host.packages() == ["bash", "rpcbind"]


REFUSALS = {
    "same folder": ("etc/exports.d/old.exports", "{data} *(ro)\n", "is exported already, by"),
    "would serve others": ("etc/exports", OTHERS, "its start would also serve what"),
    "file of others": ("etc/exports.d/disttrain.exports", "/a b(ro)\n", "was not made by this"),
    "other stack": (
        "etc/exports.d/disttrain.exports",
        "# made by disttrain: this host (stack other) owner two\n/a b(ro)\n",
        "belongs to another stack",
    ),
    "disk below": ("proc/self/mounts", "/dev/sdb {data}/runs ext4 rw 0 0\n", "is mounted in it"),
    "no repository": ("no-repository", "", "dnf cannot install nfs-utils"),
    "no kernel module": ("no-kernel-module", "", "does not start: the lines above say why"),
    "old version": ("proc/fs/nfsd/versions", "+2 +3 -4\n", "does not speak version 4.1"),
}


@pytest.mark.parametrize("name", list(REFUSALS))
def test_what_cannot_be_is_refused_with_a_way_out(host: NfsHost, tmp_path: Path, name: str) -> None:
    """What makes a server impossible is refused with a reason that contains no password, before
    the folder is served to anybody else, and files of others stay as they are. When it is mended,
    the next run succeeds.
    """
    file, text, words = REFUSALS[name]
    path = tmp_path / file
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.format(data=host.data))
    if name in ("file of others", "would serve others"):
        host.install("nfs-utils")
    if name == "file of others":
        (tmp_path / "service/active").write_text("active\n")
    done = host.run("nfs-server.sh")
    assert done.returncode == 1
    assert words in done.stderr, done.stderr
    assert "secret" not in done.stderr.replace("[secret]", "")
    assert path.read_text() == text.format(data=host.data)
    # The server has to be started before its last two faults can be seen.
    served = ["10.1.2.3"] if name in ("no kernel module", "old version") else []
    assert host.served() == served
    path.unlink() if before is None else path.write_text(before)
    if name == "file of others":
        (tmp_path / "service/active").unlink()
    host.serve()
    host.stop()
    assert host.served() == []


def test_client_comes_and_goes_and_says_its_address(host: NfsHost, tmp_path: Path) -> None:
    """The client's script installs the package and prints the machine's address. The package stays
    while the machine needs it under another name or while something is mounted, and then goes.
    """
    before = host.files()
    (tmp_path / "own-address").write_text("10.1.2.4")
    said = host.well(host.run("nfs-client.sh", NODE="gpu2"))
    assert said.splitlines()[-1] == "address=10.1.2.4"
    assert "nfs-utils" in host.packages()
    # the machine gets another name: it still needs its client
    host.well(host.run("nfs-client.sh", NODE="gpu9"))
    assert "keeps its NFS client" in host.well(host.run("nfs-client.sh", "delete", NODE="gpu2"))
    mounts = tmp_path / "proc/self/mounts"
    mounts.write_text("10.1.2.3:/data /mnt nfs4 rw 0 0\n")
    assert "/mnt is mounted" in host.well(host.run("nfs-client.sh", "delete", NODE="gpu9"))
    mounts.write_text("")
    host.well(host.run("nfs-client.sh", "delete", NODE="gpu9"))
    assert host.files() == before


def test_client_that_cannot_find_the_server_says_so(host: NfsHost) -> None:
    done = host.run("nfs-client.sh", NODE="gpu2", SERVER_ADDRESS="nowhere")
    assert done.returncode == 1
    assert "does not know the name nowhere (the setting nodeAddress)" in done.stderr


def test_dry_run_says_what_would_change_and_changes_nothing(host: NfsHost) -> None:
    before = host.files()
    said = host.serve(DRY_RUN="1")
    assert "would install: an NFS server" in said
    assert "disttrain.exports" in said
    assert host.files() == before
    host.serve()
    host.allow("gpu2", "10.1.2.4")
    before = host.files()
    said = host.stop(DRY_RUN="1")
    assert [line.rpartition("/")[2] for line in said.splitlines()] == [
        "disttrain-10.1.2.4.exports",
        "disttrain.exports",
    ]
    assert host.files() == before


def test_removal_that_was_cut_off_is_gone_on_with(host: NfsHost, tmp_path: Path) -> None:
    """A removal of the server that was cut off is completed by the next one. Otherwise the next
    `pulumi destroy` would say that the server is not of this program, and leave the packages.
    """
    before = host.files()
    host.serve()
    (tmp_path / "bin/rpm").rename(tmp_path / "rpm")  # the removal fails, as where the power goes
    assert host.run("nfs-server.sh", "delete").returncode != 0
    (tmp_path / "rpm").rename(tmp_path / "bin/rpm")
    host.stop()
    assert host.files() == before
