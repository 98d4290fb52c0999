"""The lab of the node tests: a test host, a mirror of k3s releases, stacks that install them."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from cli.check import Result
from cli.doctor import examine
from infra.bundled import STAGE
from infra.doctor_plan import Plan, SshTarget
from infra.expectations import Expectations
from infra.runner import SCRIPTS
from infra.shell_program import assemble_program
from infra.tunnel import is_open
from sandbox.stack import PulumiFailedError, Stack
from sandbox.venvs import PROJECT, ensure_venv
from tests.node.host import Entry, Host, make_key
from tests.node.mirror import Mirror
from tests.node.releases import OLD, VERSION, Source, session_source

PROGRAM = Path(__file__).parent / "program" / "__main__.py"
DATA_ROOT = "/var/lib/disttrain"
# The doctor's checks of what the host shares with this machine: kernel, memory, clock. Version 2 of
# control groups is mounted there, without controllers where the machine has them in version 1.
OF_THE_MACHINE = ("kernel", "memory", "swap", "cgroup", "apparmor", "clock")
OF_THE_MACHINE += ("module-br_netfilter", "module-overlay")
SECRETS = ("sshPrivateKey", "sudoPassword", "httpProxy", "httpsProxy")


class Lab:
    """One host for all tests; each test brings it back to how it was."""

    def __init__(
        self, scratch: Path, source: Source | None = None, shared: Path | None = None
    ) -> None:
        self.scratch = scratch
        self.host = Host("gpu-node", shared)
        # k3s wants a default route, if only to nowhere; a bridge, as not every kernel has dummies
        self.host.shell(
            "ip link add out0 type bridge && ip address add 203.0.113.254/31 dev out0 && "
            "ip link set out0 up && ip route add default via 203.0.113.255 dev out0"
        )
        mirror_folder = scratch / "mirror"
        mirror_folder.mkdir()
        target = ["nsenter", "--target", str(self.host.pid), "--net", "--"]
        self.mirror = Mirror(mirror_folder, target, (source or session_source()).fill)
        for version in (OLD, VERSION):
            self.mirror.release(version)
        self.host.shell(
            "cat >/usr/local/share/ca-certificates/mirror.crt; update-ca-certificates",
            self.mirror.certificate,
        )
        self.private_key, public_key = make_key(scratch)
        self.host.authorize(public_key)
        self.host.shell("su admin -c 'touch ~/.sudo_as_admin_successful'")  # sudo's own
        self.host_key = self.host.host_key
        self._first_host_key = self.host.key_pair()
        self.before = self.host.files()
        self._stacks = 0
        self.stacks: list[Stack] = []

    def stack(self, user: str = "root", **changes: str | bool) -> Stack:
        """A stack of the cluster-only program, for this host over SSH."""
        self._stacks += 1
        name = f"node{self._stacks}"
        project = self.scratch / name
        project.mkdir()
        content = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())
        content["runtime"]["options"]["virtualenv"] = str(ensure_venv(".venv"))
        (project / "Pulumi.yaml").write_text(yaml.safe_dump(content))
        (project / "__main__.py").write_text(PROGRAM.read_text())
        settings = project / f"Pulumi.{name}.yaml"
        wanted: dict[str, str | bool] = {
            "host": "ssh",
            "sshHost": self.host.address,
            "sshUser": user,
            "sshHostKey": self.host_key,
            "sshPrivateKey": self.private_key,
            "k3sVersion": VERSION,
            "k3sMirror": self.mirror.url,
            **changes,
        }
        plain = {f"disttrain:{k}": v for k, v in wanted.items() if k not in SECRETS}
        settings.write_text(yaml.safe_dump({"config": plain}))
        stack = Stack(name, self.scratch / "backend", settings, project)
        stack.environment["PYTHONPATH"] = str(PROJECT)
        for key in SECRETS:
            if key in wanted:
                stack.set(key, str(wanted[key]), secret=True)
        self.stacks.append(stack)
        return stack

    def pack(self, output: Path, *options: str, **changes: str | bool) -> subprocess.Popen[str]:
        """`python -m infra.bundle pack` where the mirror is reached, as a process that runs."""
        settings = {"k3sVersion": VERSION, "k3sMirror": self.mirror.url, **changes}
        file = self.scratch / "Pulumi.packed.yaml"
        plain = {f"disttrain:{key}": value for key, value in settings.items()}
        file.write_text(yaml.safe_dump({"config": plain}))
        return subprocess.Popen(
            [
                *("nsenter", "--target", str(self.host.pid), "--net", "--", sys.executable),
                *("-m", "infra.bundle", "pack", "--config-file", str(file)),
                *("--output", str(output), *options),
            ],
            cwd=PROJECT,
            env={**os.environ, "SSL_CERT_FILE": str(self.mirror.folder / "mirror.crt")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def install_by_hand(self, action: str = "create", **variables: str) -> str:
        """Output of k3s-install.sh, run on the host as `host: local` runs it."""
        given = {
            "K3S_VERSION": VERSION,
            "K3S_MIRROR": self.mirror.url,
            "TLS_SAN": self.host.address,
            "POD_CIDR": "10.42.0.0/16",
            "SERVICE_CIDR": "10.43.0.0/16",
            "NAMESPACE": "disttrain",
            "GRACE_SECONDS": "5",
            **variables,
        }
        script = (SCRIPTS / "k3s-install.sh").read_text()
        wrapper = (SCRIPTS / "as-root.sh").read_text()
        return self.host.shell(f"sh -s -- {action}", assemble_program(script, given, wrapper, ""))

    def remove_by_hand(self) -> None:
        """The way back of `install_by_hand`."""
        assert "k3s is removed" in self.install_by_hand("delete")

    def restore_host_key(self) -> None:
        """The key of the beginning."""
        self.host.set_host_key(self._first_host_key)

    def doctor(
        self, user: str = "root", sudo_password: str = "", **expected: str | bool
    ) -> dict[str, Result]:
        """What the doctor finds on the host over SSH, but for OF_THE_MACHINE."""
        mirror = {"https_probe": self.mirror.url, "k3s_version": VERSION}
        expect = Expectations(gpus=0, **{**mirror, **expected})  # pyright: ignore[reportArgumentType]
        target = SshTarget(
            self.host.address, user=user, private_key=self.private_key, host_key=self.host_key
        )
        plan = Plan(target, sudo_password, scope="host", expect=expect)
        found = (result for result in examine(plan).results if result.is_finding)
        return {result.id: result for result in found if result.id not in OF_THE_MACHINE}

    def findings(self, **given: Any) -> list[str]:
        """The ids alone."""
        return list(self.doctor(**given))

    @contextlib.contextmanager
    def small_disk(self, place: str, mib: int = 20) -> Iterator[None]:
        """A disk of its own for a folder, with what is in there; changes go with it."""
        disk, folder = f"/run/disk{place.replace('/', '-')}", self.host.exists(place)
        self.host.shell(
            f"mkdir -p {place} {disk}; mount -t tmpfs -o size={mib}m tmpfs {disk}; "
            f"mkdir {disk}/upper {disk}/work; mount -t overlay "
            f"-o lowerdir={place},upperdir={disk}/upper,workdir={disk}/work overlay {place}"
        )
        try:
            yield
        finally:
            self.host.shell(f"umount {place} {disk}; rmdir {disk}")
            if not folder:
                self.host.shell(f"rmdir {place}")

    def firewall(self, action: str) -> None:
        """Add (-I) or remove (-D) the rule that lets nobody outside to the API server."""
        rule = ("INPUT", "-i", "node0", "-p", "tcp", "--dport", "6443", "-j", "REJECT")
        subprocess.run(
            [*("nsenter", "--target", str(self.host.pid), "--net"), "iptables", action, *rule],
            check=True,
        )

    def end_tunnels(self, config: Mapping[str, Any]) -> None:
        """End the SSH sessions that carry tunnels, and wait for this kubeconfig's."""
        self.host.try_shell("pkill -KILL -x sleep")
        port = int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])
        wait_for("the tunnel to end", lambda: not is_open(port))

    def calls(self) -> list[str]:
        """What the stand-ins of k3s and of its installer were called with."""
        return self.host.shell("cat /lab/calls 2>/dev/null || true").splitlines()

    def differences(self) -> list[str]:
        """What of the host's file list is not as at first, data aside."""
        paths = different(self.before, self.host.files())
        return [path for path in paths if not f"{path}/".startswith(f"{DATA_ROOT}/")]

    def state(self, stack: Stack) -> str:
        """The state as it lies on the disk."""
        files = (self.scratch / "backend").rglob(f"stacks/disttrain/{stack.name}.json")
        return "".join(file.read_text() for file in files)

    def resources(self, stack: Stack) -> list[str]:
        """Names of what the state says is there."""
        deployment = json.loads(self.state(stack) or "{}").get("checkpoint", {}).get("latest") or {}
        return [resource["urn"] for resource in deployment.get("resources", ())]

    def clean(self) -> None:
        """For the next test: no stack, no k3s, no marks, nothing slow."""
        self.mirror.slow(False)
        self.host.try_shell("umount /etc/rancher; systemctl stop taker; systemctl start ssh")
        for version in (OLD, VERSION):
            self.mirror.release(version)
        self.host.shell("rm -rf /lab; mkdir /lab")
        (self.mirror.folder / "requests").unlink(missing_ok=True)
        for stack in self.stacks:
            if self.resources(stack):
                with contextlib.suppress(PulumiFailedError):
                    stack.destroy()
        self.stacks.clear()
        self.host.try_shell("pkill -KILL -x sleep")  # sessions of tunnels
        self.host.try_shell("[ ! -e /root/aside ] || mv /root/aside /etc/rancher/disttrain")
        self.install_by_hand("delete")  # what a failed test left
        self.host.shell(f"rm -rf /lab {DATA_ROOT} {STAGE}; mkdir /lab")

    def close(self) -> None:
        self.mirror.close()
        self.host.close()


def different(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[str]:
    """Paths that came, went or changed."""
    return sorted(
        path
        for path in before.keys() | after.keys()
        if path not in before or path not in after or before[path].lasting != after[path].lasting
    )


def rewritten(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[str]:
    """Paths that were written to, if only with what was there."""
    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))


def failure(stack: Stack) -> str:
    """The output of an `up` that must fail."""
    try:
        output = stack.up()
    except PulumiFailedError as error:
        return str(error)
    raise AssertionError(f"pulumi up should have failed:\n{output}")


def counts(output: str) -> dict[str, int]:
    """What `pulumi` says it did: {"created": 3, ...}."""
    summary = output.partition("Resources:")[2]
    found = re.findall(r"^\s+[+\-~ ]*(\d+) (\w+)", summary, re.MULTILINE)
    return {what: int(number) for number, what in found}


def kubeconfig(stack: Stack) -> dict[str, Any]:
    """The stack's output."""
    return yaml.safe_load(stack.output("kubeconfig"))


class CommandLines(threading.Thread):
    """Collects every command line on the machine, and so on the test host, while it runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.02):
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    self.seen.add((process / "cmdline").read_bytes())

    def __enter__(self) -> "CommandLines":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


@contextlib.contextmanager
def background_up(stack: Stack) -> Iterator[subprocess.Popen[str]]:
    """`pulumi up` as a process of its own, to be killed; its output is in `output_file`."""
    stack.release_locks()
    with output_file(stack).open("w") as output:
        process = subprocess.Popen(
            [
                *("pulumi", "--non-interactive", "--color=never", "up", "--yes", "--skip-preview"),
                *("--stack", stack.name, "--config-file", str(stack.settings_file)),
            ],
            cwd=stack.project,
            env=stack.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end_session(process.pid)
        process.wait()


def end_session(leader_pid: int) -> None:
    """Kill what a process and its children started: a killed engine leaves its plugins behind."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader_pid:  # the session; the state is the first field
                os.kill(int(folder.name), signal.SIGKILL)


def output_file(stack: Stack) -> Path:
    """What the last `background_up` has written so far."""
    return stack.settings_file.with_suffix(".output")


def wait_for(what: str, ask: Any, limit_seconds: float = 60) -> None:
    deadline = time.monotonic() + limit_seconds
    while not ask():
        assert time.monotonic() < deadline, f"waited {limit_seconds} s for {what}"
        time.sleep(0.1)
