"""Faults, one after the other: `up` and the doctor name each, and the next `pulumi up` succeeds.

Nothing has to be done by hand except ending the fault. The doctor names no wrong checksum, because
that is a fault of the mirror and not of the host. test_doctor.py has more faults.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from sandbox.stack import Stack
from tests.in_depth import in_depth
from tests.node.lab import UP, VERSION, Lab, background_up, failure, wait_for
from tests.node.rootfs import PASSWORD

# A context in which the fault is there. An `up` in it must fail.
Presence = Callable[[Lab, Stack], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """A fault that stops `up`.

    Args:
        presence: a context in which the fault is there.
        said: a pattern of what `up` says then.
        findings: the ids that the doctor names then.
        password: the password for sudo that the doctor gets.
        before_install: whether `up` must have written nothing to the host but the data folder.
    """

    presence: Presence
    said: str
    findings: tuple[str, ...] = ()
    password: str = PASSWORD
    before_install: bool = True


@contextlib.contextmanager
def wrong_sudo_password(lab: Lab, stack: Stack) -> Iterator[None]:
    del lab
    stack.set("sudoPassword", f"wrong-{PASSWORD}", secret=True)
    yield
    stack.set("sudoPassword", PASSWORD, secret=True)


@contextlib.contextmanager
def taken_port(lab: Lab, stack: Stack) -> Iterator[None]:
    del stack
    lab.take_port(6443)
    yield
    lab.host.shell("systemctl stop taker")


@contextlib.contextmanager
def small_disk(lab: Lab, stack: Stack) -> Iterator[None]:
    del stack
    with lab.small_disk("/var/lib"):
        yield


@contextlib.contextmanager
def wrong_binary(lab: Lab, stack: Stack) -> Iterator[None]:
    del stack
    binary = lab.mirror.folder / "k3s" / VERSION / "k3s"
    good = binary.read_bytes()
    binary.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    yield
    binary.write_bytes(good)


@contextlib.contextmanager
def wrong_installer(lab: Lab, stack: Stack) -> Iterator[None]:
    del lab
    stack.set("k3sInstallerSha256", "0" * 64)
    yield
    stack.set("k3sInstallerSha256", None)


@contextlib.contextmanager
def full_disk(lab: Lab, stack: Stack) -> Iterator[None]:
    """Let the disk be full when the script writes its first note to it."""
    del stack
    lab.host.shell("mkdir -p /etc/rancher; mount -t tmpfs -o size=8k,mode=755 tmpfs /etc/rancher")
    lab.host.shell("head -c 8192 /dev/zero >/etc/rancher/ballast || true")
    yield
    lab.host.shell("umount /etc/rancher; rmdir /etc/rancher")


@contextlib.contextmanager
def another_host_key(lab: Lab, stack: Stack) -> Iterator[None]:
    lab.host.new_host_key()
    yield
    lab.host_key = lab.host.host_key  # as after a new installation of the host
    stack.set("sshHostKey", lab.host_key)


FAULTS = {
    "wrong sudo password": Fault(
        wrong_sudo_password,
        "sudoPassword: sudo of this host refuses it for user admin",
        ("root-access",),
        f"wrong-{PASSWORD}",
    ),
    "taken port": Fault(
        taken_port,
        r"port 6443 of this host is taken by process \d+ \(.*http.server 6443",
        ("port-6443",),
    ),
    "small disk": Fault(
        small_disk,
        r"/var/lib has \d+ MiB free; k3s and its images need 512 MiB",
        ("disk-data", "disk-containerd"),  # Both lie on this disk.
    ),
    "disk that fills up": Fault(
        full_disk,
        "/etc/rancher/disttrain cannot be written: is the disk full?",
        ("disk-system",),
    ),
    "wrong checksum of the binary": Fault(
        wrong_binary,
        r"sha256 of https://127\.0\.0\.1:8443.* nothing of it was installed",
        before_install=False,
    ),
    "wrong checksum of the installer": Fault(
        wrong_installer,
        f"k3s' installer.* not {'0' * 64}; nothing of it was installed",
        before_install=False,
    ),
    # This has to be the last fault, because each later `up` uses the new key.
    "another host key": Fault(
        another_host_key, "host key|host's key", ("connection",), before_install=False
    ),
}


@pytest.mark.slow
def test_faults_are_named_before_k3s_is_touched_and_the_next_up_gets_past_them(lab: Lab) -> None:
    """`up` stops at each fault before it touches k3s, and names it; so does the doctor.

    Each `up` gets past the fault before it, and stops at the next one. The last one succeeds.
    """
    stack = lab.stack("admin", sudoPassword=PASSWORD)
    try:
        for name, fault in FAULTS.items():
            with fault.presence(lab, stack):
                output = re.sub(r"\s+", " ", failure(stack))
                assert re.search(fault.said, output), f"{name}: {output}"
                found = lab.doctor(user="admin", sudo_password=fault.password)
                assert tuple(found) == fault.findings, (name, found)
            assert lab.calls() == [], name
            assert not lab.host.exists("/usr/local/bin/k3s"), name
            assert lab.findings(user="admin", sudo_password=PASSWORD) == [], name
            assert not fault.before_install or lab.differences() == [], name
        assert UP in stack.up()
    finally:
        lab.restore_host_key()


def cut(lab: Lab) -> None:
    """End every SSH connection of the host, as if its line were cut."""
    lab.host.shell("pkill -KILL -f '^sshd: (root|admin|deploy)'")


@pytest.mark.slow
@pytest.mark.parametrize("way", [in_depth("cut"), "kill -9"])
def test_up_that_was_cut_or_killed_is_finished_by_the_next(lab: Lab, way: str) -> None:
    """An `up` whose connection was cut, or that was killed, is finished by the next `up`.

    The script of the first `up` may still run on the host while the second `up` is there.
    """
    stack = lab.stack()
    lab.mirror.slow(True)
    with background_up(stack) as process:
        wait_for("the download", lambda: any(r.endswith("/k3s") for r in lab.mirror.requests))
        if way == "cut":
            cut(lab)
            process.wait(timeout=300)
            assert process.returncode != 0
        else:
            process.send_signal(signal.SIGKILL)
    lab.mirror.slow(False)
    assert UP in stack.up()  # `up` waits for the script that still runs on the host.
    stack.destroy()
    assert lab.differences() == []


K3S_IS_THERE = "test -e /usr/local/bin/k3s"
K3S_RUNS = "systemctl is-active --quiet k3s"


@pytest.mark.slow
@pytest.mark.parametrize(
    "begun", ["test -e /etc/rancher/disttrain", in_depth(K3S_IS_THERE), in_depth(K3S_RUNS)]
)
def test_destroy_takes_what_a_killed_first_up_has_left(lab: Lab, begun: str) -> None:
    """`destroy` removes a k3s whose installation was killed on the way.

    Pulumi's engine does not know of such a k3s, and so does not delete it by itself.
    """
    stack = lab.stack()
    with up_that_has(lab, stack, begun) as process:
        process.send_signal(signal.SIGKILL)
    assert lab.differences() != []
    stack.destroy()
    assert lab.differences() == []


@pytest.mark.in_depth
@pytest.mark.parametrize("begun", ["test -e /etc/rancher/disttrain", K3S_IS_THERE, K3S_RUNS])
def test_destroy_takes_what_ctrl_c_has_left(lab: Lab, begun: str) -> None:
    """`destroy` removes what a first `up` has left that was ended with Ctrl-C.

    The terminal sends the signal to all processes, and Pulumi waits for the command that it runs.
    """
    stack = lab.stack()
    with up_that_has(lab, stack, begun) as process:
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=300) != 0
    assert lab.differences() != []
    stack.destroy()
    assert lab.differences() == []


@contextlib.contextmanager
def up_that_has(lab: Lab, stack: Stack, begun: str) -> Iterator[subprocess.Popen[str]]:
    """Run a first `up`, and yield it as soon as the command `begun` succeeds on the host."""
    with background_up(stack) as process:
        wait_for(begun, lambda: lab.host.try_shell(begun).returncode == 0)
        assert process.poll() is None
        yield process


@pytest.mark.slow
@pytest.mark.stand_in("its switches")
def test_destroy_takes_a_k3s_that_did_not_start(lab: Lab) -> None:
    """`destroy` removes a k3s that did not start.

    `up` has failed then, so its command is not in Pulumi's state.
    """
    stack = lab.stack()
    lab.host.shell("touch /lab/fail-to-start")
    assert "k3s did not start" in failure(stack)
    assert lab.host.exists("/usr/local/bin/k3s")
    stack.destroy()
    assert lab.differences() == []


@pytest.mark.in_depth
@pytest.mark.stand_in("its switches")
def test_k3s_whose_install_or_start_breaks_off_is_completed(lab: Lab) -> None:
    """The next `up` completes a k3s whose installer was cut off, or that did not start.

    The doctor names each of the two states.
    """
    lab.host.shell("touch /lab/installer-stops")
    stack = lab.stack()
    with background_up(stack) as process:
        # The installer notes its call first. When it sleeps, it is half done.
        sleeps = "pgrep --full --exact 'sleep 1000'"
        wait_for("the installer", lambda: lab.host.try_shell(sleeps).returncode == 0)
        cut(lab)
        process.wait(timeout=300)
        assert process.returncode != 0
    assert not lab.host.exists("/etc/systemd/system/k3s.service")
    # This ends what still hangs on the host, as a restart would.
    lab.host.shell("rm /lab/installer-stops; pkill -KILL -x sleep")
    assert lab.findings() == ["k3s-complete"]
    lab.host.shell("touch /lab/fail-to-start")
    output = failure(stack)
    assert "the stand-in was told to fail" in output  # the last lines of k3s' log
    assert "k3s did not start" in output
    assert lab.findings() == ["k3s-running"]
    lab.host.shell("rm /lab/fail-to-start")
    assert UP in stack.up()


@pytest.mark.parametrize(
    ("damage", "check_id"),
    [
        ("rm /etc/systemd/system/k3s.service", "k3s-complete"),
        in_depth("truncate -s 1000 /usr/local/bin/k3s", "k3s-running"),
        in_depth("rm /etc/rancher/k3s/config.yaml", "k3s-running"),
        in_depth("echo ExecStart=/bin/false >>/etc/systemd/system/k3s.service", "k3s-running"),
        in_depth(
            "sed -i '/^installed/d' /etc/rancher/disttrain; rm /usr/local/bin/k3s-uninstall.sh",
            "k3s-running",
        ),
    ],
)
def test_half_installed_k3s_is_completed(lab: Lab, damage: str, check_id: str) -> None:
    """The script that `up` runs completes a k3s that a cut installation has left; the doctor names
    it.
    """
    lab.install_by_hand()
    lab.host.shell(f"systemctl stop k3s; {damage}")
    assert lab.findings() == [check_id]
    assert UP in lab.install_by_hand()
    assert "would change: nothing" in lab.install_by_hand(DRY_RUN="1")
    lab.remove_by_hand()
    assert lab.differences() == []
