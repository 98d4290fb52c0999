"""One fault at a time: the doctor names it, the next `pulumi up` recovers with no step by hand.

A wrong checksum is the mirror's fault, and the host has none. test_doctor.py has more faults.
"""

import re
import signal

import pytest

from sandbox.stack import PulumiFailedError
from tests.node.lab import (
    VERSION,
    Lab,
    background_up,
    failure,
    wait_for,
)
from tests.node.rootfs import PASSWORD

UP = f"k3s {VERSION} is up, the node is Ready"


@pytest.mark.stand_in("its recorded calls")
def test_wrong_checksum_installs_nothing(lab: Lab) -> None:
    release = lab.mirror.folder / "k3s" / VERSION
    good = (release / "k3s").read_bytes()
    (release / "k3s").write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    stack = lab.stack()
    output = failure(stack)
    assert "sha256 of https://127.0.0.1:8443" in output
    assert "nothing of it was installed" in output
    assert not lab.host.exists("/usr/local/bin/k3s")
    assert lab.calls() == []
    assert lab.findings() == []
    (release / "k3s").write_bytes(good)
    assert UP in stack.up()


@pytest.mark.stand_in("its recorded calls")
def test_wrong_checksum_of_the_installer_runs_nothing(lab: Lab) -> None:
    stack = lab.stack(k3sInstallerSha256="0" * 64)
    output = failure(stack)
    assert "k3s' installer" in output
    assert f"not {'0' * 64}" in output
    assert not lab.host.exists("/usr/local/bin/k3s")
    assert lab.calls() == []
    assert lab.findings() == []
    stack.set("k3sInstallerSha256", None)
    assert UP in stack.up()


def test_wrong_sudo_password_is_named_and_nothing_is_touched(lab: Lab) -> None:
    stack = lab.stack("admin", sudoPassword="wrong-" + PASSWORD)
    output = failure(stack)
    assert "sudoPassword: sudo of this host refuses it for user admin" in output
    assert lab.differences() == []
    assert lab.findings(user="admin", sudo_password="wrong-" + PASSWORD) == ["root-access"]
    assert lab.findings(user="admin", sudo_password=PASSWORD) == []
    stack.set("sudoPassword", PASSWORD, secret=True)
    assert UP in stack.up()


@pytest.mark.stand_in("its recorded calls")
def test_changed_host_key_stops_before_anything_is_sent(lab: Lab) -> None:
    lab.host.new_host_key()
    try:
        stack = lab.stack()
        output = failure(stack)
        assert re.search("host key|host's key", output)
        assert lab.calls() == []
        found = lab.doctor()
        assert list(found) == ["connection"]
        assert found["connection"].evidence.endswith("the host's key is not the pinned one")
        stack.set("sshHostKey", lab.host.host_key)
        assert UP in stack.up()
        stack.destroy()
    finally:
        lab.restore_host_key()


def test_taken_port_is_named_with_its_owner(lab: Lab) -> None:
    lab.host.shell("systemd-run --unit=taker python3 -m http.server 6443")
    wait_for("the port", lambda: lab.host.try_shell("ss -ltn | grep -q :6443").returncode == 0)
    stack = lab.stack()
    output = failure(stack)
    assert "port 6443 of this host is taken by process" in output
    assert "http.server 6443" in output
    assert lab.differences() == []
    assert lab.findings() == ["port-6443"]
    lab.host.shell("systemctl stop taker")
    assert UP in stack.up()


def test_full_disk_is_named_before_anything_is_written(lab: Lab) -> None:
    stack = lab.stack()
    with lab.small_disk("/var/lib"):
        output = failure(stack)
        assert re.search(r"/var/lib has \d+ MiB free; k3s and its images need 512 MiB", output)
        assert lab.findings() == ["disk-data", "disk-containerd"]  # both lie there
    assert lab.differences() == []
    assert UP in stack.up()


def test_disk_that_fills_up_on_the_way_leaves_nothing_that_the_next_up_cannot_use(
    lab: Lab,
) -> None:
    lab.host.shell("mkdir /etc/rancher; mount -t tmpfs -o size=8k,mode=755 tmpfs /etc/rancher")
    lab.host.shell("head -c 8192 /dev/zero >/etc/rancher/ballast || true")
    stack = lab.stack()
    output = failure(stack)
    assert "/etc/rancher/disttrain cannot be written: is the disk full?" in output
    assert lab.findings() == ["disk-system"]
    lab.host.shell("umount /etc/rancher; rmdir /etc/rancher")
    assert UP in stack.up()


def cut(lab: Lab) -> None:
    """End every SSH connection of the host, as a lost line would for its server."""
    lab.host.shell("pkill -KILL -f '^sshd: (root|admin|deploy)'")


def test_connection_cut_in_the_middle_of_the_download(lab: Lab) -> None:
    lab.mirror.slow(True)
    stack = lab.stack()
    with background_up(stack) as process:
        wait_for("the download", lambda: any(r.endswith("/k3s") for r in lab.mirror.requests))
        cut(lab)
        process.wait(timeout=60)
        assert process.returncode != 0
    lab.mirror.slow(False)
    assert lab.findings() == []  # the line is there again, and the host as it was
    assert UP in stack.up()


@pytest.mark.stand_in("its switches")
def test_connection_cut_in_the_middle_of_the_installer(lab: Lab) -> None:
    lab.host.shell("touch /lab/installer-stops")
    stack = lab.stack()
    with background_up(stack) as process:
        wait_for("the installer", lambda: any("install.sh" in call for call in lab.calls()))
        cut(lab)
        process.wait(timeout=60)
        assert process.returncode != 0
    assert not lab.host.exists("/etc/systemd/system/k3s.service")
    # what still hangs on the host is ended, as by a restart of it
    lab.host.shell("rm /lab/installer-stops; pkill -KILL -x sleep")
    assert lab.findings() == ["k3s-complete"]
    assert UP in stack.up()


def test_kill_9_of_pulumi_while_it_installs(lab: Lab) -> None:
    lab.mirror.slow(True)
    stack = lab.stack()
    with background_up(stack) as process:
        wait_for("the download", lambda: any(r.endswith("/k3s") for r in lab.mirror.requests))
        process.send_signal(signal.SIGKILL)
    lab.mirror.slow(False)
    assert lab.findings() == []
    assert UP in stack.up()
    stack.destroy()
    assert lab.differences() == []


@pytest.mark.parametrize(
    ("damage", "check_id"),
    [
        ("rm /etc/systemd/system/k3s.service", "k3s-complete"),
        ("truncate -s 1000 /usr/local/bin/k3s", "k3s-running"),
        ("rm /etc/rancher/k3s/config.yaml", "k3s-running"),
        ("echo ExecStart=/bin/false >>/etc/systemd/system/k3s.service", "k3s-running"),
        (
            "sed -i '/^installed/d' /etc/rancher/disttrain; rm /usr/local/bin/k3s-uninstall.sh",
            "k3s-running",
        ),
    ],
)
def test_half_installed_k3s_is_completed(lab: Lab, damage: str, check_id: str) -> None:
    """As left by an install that was broken off: by the script itself, which an `up` would run."""
    lab.install_by_hand()
    lab.host.shell(f"systemctl stop k3s; {damage}")
    assert lab.findings() == [check_id]
    assert UP in lab.install_by_hand()
    assert "would change: nothing" in lab.install_by_hand(DRY_RUN="1")
    lab.remove_by_hand()
    assert lab.differences() == []


@pytest.mark.stand_in("its switches")
def test_k3s_that_does_not_start_is_reported_with_its_last_lines(lab: Lab) -> None:
    lab.host.shell("touch /lab/fail-to-start")
    stack = lab.stack()
    output = failure(stack)
    assert "the stand-in was told to fail" in output
    assert "k3s did not start" in output
    assert lab.findings() == ["k3s-running"]
    lab.host.shell("rm /lab/fail-to-start")
    assert UP in stack.up()


def test_destroy_goes_through_when_k3s_is_gone_already(lab: Lab) -> None:
    stack = lab.stack()
    stack.up()
    lab.host.shell("/usr/local/bin/k3s-uninstall.sh")
    assert lab.findings() == []  # as before an `up`
    stack.destroy()
    assert lab.differences() == []


def test_unreachable_host_is_an_error_that_ends(lab: Lab) -> None:
    stack = lab.stack()
    stack.up()
    lab.host.shell("systemctl stop ssh.socket ssh 2>/dev/null; true")
    try:
        with pytest.raises(PulumiFailedError, match="refused"):
            stack.destroy()
        assert lab.findings() == ["connection"]
    finally:
        lab.host.shell("systemctl start ssh")
    stack.destroy()
    assert lab.differences() == []
