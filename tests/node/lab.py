"""The lab of the node tests: a test host, a mirror of k3s releases, stacks that install them."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cli.check import Result
from cli.doctor.command import examine
from infra.kube.names import OWNER_LABEL, PART_OF_LABEL, RECORD_LABEL, RUN_RECORD, STACK_ANNOTATION
from infra.node.doctor_plan import Plan, SshTarget
from infra.node.expectations import Expectations
from infra.node.k3s_look import HostAccess
from infra.node.shell_program import assemble_program, script_text
from infra.node.tunnel import is_open
from infra.platform.airgap_files import STAGE
from sandbox.cluster_commands import programs
from sandbox.stack import PulumiFailedError, Stack
from sandbox.venvs import PROJECT
from tests.node.api_server import ApiServer
from tests.node.host import Entry, Host, make_key
from tests.node.mirror import Mirror
from tests.node.releases import OLD, VERSION, Source, session_source

# What a checkout has, as far as the program and its commands need it: folders, and files.
FOLDERS = ("infra", "cli", "trainer", "docker")
FILES = ("Pulumi.yaml", "__main__.py", "requirements.txt")
OWN_KINDS = Path(__file__).parent / "own_kinds.py"
# A platform without a run on it. Its image is nobody's business here: no pod is ever started.
PLATFORM: dict[str, Any] = {
    "topology": "none",
    "accelerator": "cpu",
    "torchIndexUrl": "",
    "imageDelivery": "by-somebody-else",
    "extensions": [OWN_KINDS.stem],
    # errors on this machine are those of OF_THE_MACHINE, which a test of hosts cannot mend
    "doctor": "none",
}
DATA_ROOT = "/var/lib/disttrain"
NAMESPACE = "disttrain"
OURS = f"{PART_OF_LABEL}=disttrain"
UP = f"k3s {VERSION} is up, the node is Ready"
# The doctor's checks of what the host shares with this machine: kernel, memory, clock. Version 2 of
# control groups is mounted there, without controllers where the machine has them in version 1.
OF_THE_MACHINE = ("kernel", "memory", "swap", "cgroup", "apparmor", "clock")
OF_THE_MACHINE += ("module-br_netfilter", "module-overlay")
KUBECTL = "env KUBECACHEDIR=/run/k3s/disttrain-kubectl k3s kubectl"
SECRETS = ("sshPrivateKey", "sudoPassword", "httpProxy", "httpsProxy")


class Lab:
    """One host for all tests; each test brings it back to how it was."""

    def __init__(
        self,
        scratch: Path,
        source: Source | None = None,
        shared: Path | None = None,
        also: Sequence[Path] = (),
    ) -> None:
        """Boot it.

        Args:
            scratch: everything of it lies below.
            source: of k3s.
            shared: what k3s has behind it in place of an API server of the lab's own.
            also: what the host sees of this machine besides that.
        """
        self.scratch = scratch
        source = source or session_source()
        # behind the stand-in; k3s itself has its own, and `shared` brings another one
        self.api = None if shared or source.publisher else ApiServer(scratch / "cluster")
        behind = self.api.folder if self.api else shared
        self.host = Host("gpu-node", *([behind] if behind else []), *also)
        # k3s wants a default route, if only to nowhere; a bridge, as not every kernel has dummies
        self.host.shell(
            "ip link add out0 type bridge && ip address add 203.0.113.254/31 dev out0 && "
            "ip link set out0 up && ip route add default via 203.0.113.255 dev out0"
        )
        mirror_folder = scratch / "mirror"
        mirror_folder.mkdir()
        target = ["nsenter", "--target", str(self.host.pid), "--net", "--"]
        self.mirror = Mirror(mirror_folder, target, source.fill)
        for version in (OLD, VERSION):
            self.mirror.release(version)
        self.host.shell(
            "cat >/usr/local/share/ca-certificates/mirror.crt; update-ca-certificates",
            self.mirror.certificate,
        )
        self.private_key, self.public_key = make_key(scratch)
        self.host.authorize(self.public_key)
        self.host.shell("su admin -c 'touch ~/.sudo_as_admin_successful'")  # sudo's own
        self.host_key = self.host.host_key
        self._first_host_key = self.host.key_pair()
        self._empty_notes()
        self.before = self.host.files()
        self._program = copy_program(PROJECT, scratch / "program")
        self._stacks = 0

    def checkout(self, name: str) -> Path:
        """A new folder that is as good as a checkout of the project."""
        project = self.scratch / name
        project.mkdir()
        (project / ".venv").symlink_to(PROJECT / ".venv")
        for folder in FOLDERS:
            (project / folder).symlink_to(self._program / folder)
        for file in (*(self._program / name for name in FILES), OWN_KINDS):
            shutil.copy(file, project)
        return project

    def remove_checkout(self, name: str) -> None:
        """The way back of `checkout`."""
        shutil.rmtree(self.scratch / name)

    def stack(self, user: str = "root", **changes: Any) -> Stack:
        """A stack of the project's program that makes a platform on this host, over SSH."""
        return self.new_stack(
            {
                **PLATFORM,
                "host": "ssh",
                "sshHost": self.host.address,
                "sshUser": user,
                "sshHostKey": self.host_key,
                "sshPrivateKey": self.private_key,
                "k3sVersion": VERSION,
                "k3sMirror": self.mirror.url,
                **changes,
            }
        )

    def run_stack(self, platform: str) -> Stack:
        """A stack of a run on the platform of another stack."""
        return self.new_stack({"platform": platform, "preset": "shakespeare-char-cpu"})

    def new_stack(self, wanted: Mapping[str, Any]) -> Stack:
        """In a checkout of its own."""
        self._stacks += 1
        name = f"node{self._stacks}"
        project = self.checkout(name)
        settings = project / f"Pulumi.{name}.yaml"
        plain = {f"disttrain:{k}": v for k, v in wanted.items() if k not in SECRETS}
        settings.write_text(yaml.safe_dump({"config": plain}))
        stack = Stack(name, self.scratch / "backend", settings, project)
        for key in SECRETS:
            if key in wanted:
                stack.set(key, str(wanted[key]), secret=True)
        return stack

    def pack(self, output: Path, *options: str, **changes: str | bool) -> subprocess.Popen[str]:
        """`python -m infra.airgap pack` where the mirror is reached, as a process that runs."""
        settings = {"k3sVersion": VERSION, "k3sMirror": self.mirror.url, **changes}
        file = self.scratch / "Pulumi.packed.yaml"
        plain = {f"disttrain:{key}": value for key, value in settings.items()}
        file.write_text(yaml.safe_dump({"config": plain}))
        return subprocess.Popen(
            [
                *("nsenter", "--target", str(self.host.pid), "--net", "--", sys.executable),
                *("-m", "infra.airgap", "pack", "--config-file", str(file)),
                *("--output", str(output), *options),
            ],
            cwd=PROJECT,
            env={**os.environ, "SSL_CERT_FILE": str(self.mirror.folder / "mirror.crt")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def access(self) -> HostAccess:
        """The way to the host, as the program's look at k3s takes it."""
        hop = {"host": self.host.address, "port": 22, "user": "root", "host_key": self.host_key}
        return HostAccess({**hop, "private_key": self.private_key, "jump": None})

    def install_by_hand(self, action: str = "create", **variables: str) -> str:
        """Output of k3s-install.sh, run on the host as `host: local` runs it."""
        done = self.try_install(action, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def try_install(
        self, action: str = "create", text: str = "", environment: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """As `install_by_hand`, and it may fail.

        Args:
            action: create, update or delete.
            text: another text of the script.
            environment: `NAME=value` words for the shell that the program is sent to.
            variables: of the script.
        """
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
        program = assemble_program(text or script_text("k3s-install.sh"), given, "root")
        return self.host.try_shell(f"{environment} sh -s -- {action}", program)

    def remove_by_hand(self) -> None:
        """The way back of `install_by_hand`."""
        assert "k3s is removed" in self.install_by_hand("delete")

    def restore_host_key(self) -> None:
        """The key of the beginning."""
        self.host.set_host_key(self._first_host_key)
        self.host_key = self.host.host_key

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

    def take_port(self, number: int) -> None:
        """Let a Python listen there, until the unit `taker` is stopped."""
        self.host.shell(f"systemd-run --unit=taker python3 -m http.server {number}")
        listens = f"ss -ltn | grep -q :{number}"
        wait_for("the port", lambda: self.host.try_shell(listens).returncode == 0)

    def firewall(self, action: str) -> None:
        """Add (-I) or remove (-D) the rule that lets nobody outside to the API server."""
        rule = ("INPUT", "-i", "node0", "-p", "tcp", "--dport", "6443", "-j", "REJECT")
        subprocess.run(
            [*("nsenter", "--target", str(self.host.pid), "--net"), "iptables", action, *rule],
            check=True,
        )

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Output of k3s' own kubectl, run on the host as the project's scripts run it."""
        return self.host.shell(f"{KUBECTL} {shlex.join(arguments)}", stdin)

    def try_kubectl(self, *arguments: str) -> str:
        """The same; empty where it fails, as without a k3s."""
        return self.host.try_shell(f"{KUBECTL} {shlex.join(arguments)}").stdout

    def objects(self) -> dict[str, str]:
        """`{kind/name: uid}` of what the program has made in the cluster."""
        wanted = ("namespaces,pv,pvc,configmaps,secrets", "--all-namespaces", "--output=json")
        found = json.loads(self.kubectl("get", *wanted, f"--selector={OURS}"))
        return {
            f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["uid"]
            for item in found["items"]
        }

    def put_run(self, owner: str, stack: str, name: str, namespace: str = NAMESPACE) -> None:
        """Put the record on the cluster by which others know of a run (infra/kube/record.py)."""
        labels = {RECORD_LABEL: RUN_RECORD, OWNER_LABEL: owner}
        annotations = {STACK_ANNOTATION: stack}
        record = {"namespace": namespace, "labels": labels, "annotations": annotations}
        items = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **record}},
        ]
        many = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.kubectl("apply", "--server-side", "--field-manager=tests", "-f", "-", stdin=many)

    def take_run(self, name: str) -> None:
        """Take the record away again; its namespace stays."""
        self.kubectl("delete", "configmap", name, "--namespace", NAMESPACE)

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
        """Names of what the state says is there, sorted: an `up` may change their order."""
        deployment = json.loads(self.state(stack) or "{}").get("checkpoint", {}).get("latest") or {}
        return sorted(resource["urn"] for resource in deployment.get("resources", ()))

    def clean(self) -> None:
        """For the next test: no k3s, no marks, nothing slow. What a stack was is only forgotten."""
        self.mirror.slow(False)
        self.host.try_shell("umount /etc/rancher; systemctl stop taker; systemctl start ssh")
        for version in (OLD, VERSION):
            self.mirror.release(version)
        self._empty_notes()
        (self.mirror.folder / "requests").unlink(missing_ok=True)
        self.host.try_shell("pkill -KILL -x sleep")  # sessions of tunnels
        self.host.try_shell("[ ! -e /root/aside ] || mv /root/aside /etc/rancher/disttrain")
        # a k3s without data has no runs of others, which would keep it from being removed
        self.host.try_shell("systemctl stop k3s; rm -rf /var/lib/rancher/k3s/server/db")
        self.install_by_hand("delete")  # what a failed test left
        self.host.shell(f"rm -rf {DATA_ROOT} {STAGE} {STAGE}.holder")
        self._empty_notes()

    def _empty_notes(self) -> None:
        """The folder of the stand-in has nothing but the way to its API server."""
        self.host.shell("rm -rf /lab; mkdir /lab")
        if self.api:
            self.host.shell(f"ln -s {self.api.folder} /lab/cluster")

    def close(self) -> None:
        self.mirror.close()
        self.host.close()
        if self.api:
            self.api.close()


def copy_program(source: Path, target: Path) -> Path:
    """A copy of the program, which stays as it is while somebody goes on writing in the source.

    The scripts are inputs of commands: where one is edited between two `up` of a test, the second
    one changes what the first has made.
    """
    for folder in FOLDERS:
        shutil.copytree(source / folder, target / folder)
    for file in FILES:
        shutil.copy2(source / file, target)
    return target


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
    summary = output.rpartition("Resources:")[2]  # the first one is of the preview
    found = re.findall(r"^\s+[+\-~ ]*(\d+) (\w+)", summary, re.MULTILINE)
    return {what: int(number) for number, what in found}


def kubeconfig(stack: Stack) -> dict[str, Any]:
    """The stack's output."""
    return yaml.safe_load(stack.output("kubeconfig"))


def kubectl(lab: Lab, config: Mapping[str, Any], *arguments: str) -> str:
    """Output of the real kubectl of this machine, with that kubeconfig."""
    file = lab.scratch / "kubeconfig"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(dict(config)))
    options = (f"--kubeconfig={file}", "--cache-dir", str(lab.scratch))
    done = subprocess.run(
        [str(programs() / "kubectl"), *options, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    file.unlink()
    assert done.returncode == 0, done.stderr
    return done.stdout


def running_version(lab: Lab, config: Mapping[str, Any]) -> str:
    """Which k3s is the node, by the API."""
    version = "jsonpath={.items[0].status.nodeInfo.kubeletVersion}"
    return kubectl(lab, config, "get", "nodes", "-o", version)


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
                *("pulumi", "--non-interactive", "--color=never", "up", "--yes"),
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


def wait_for(what: str, ask: Any, limit_seconds: float = 300) -> None:
    deadline = time.monotonic() + limit_seconds
    while not ask():
        assert time.monotonic() < deadline, f"waited {limit_seconds} s for {what}"
        time.sleep(0.1)
