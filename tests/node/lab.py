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
from infra.node.k3s_observation import HostAccess
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

# The folders and files of a checkout that the program and its commands need.
FOLDERS = ("infra", "cli", "trainer", "docker")
FILES = ("Pulumi.yaml", "__main__.py", "requirements.txt")
OWN_KINDS = Path(__file__).parent / "own_kinds.py"
# The settings of a platform without a run. No image is needed, because no pod is ever started.
PLATFORM: dict[str, Any] = {
    "topology": "none",
    "accelerator": "cpu",
    "torchIndexUrl": "",
    "imageDelivery": "by-somebody-else",
    "extensions": [OWN_KINDS.stem],
    # The doctor would report errors of OF_THE_MACHINE, which a test of hosts cannot mend.
    "doctor": "none",
}
ADDRESS_OF_K3S = "203.0.113.254"
"""The host's address at its default route, which k3s takes for its node."""
DATA_ROOT = "/var/lib/disttrain"
NAMESPACE = "disttrain"
OURS = f"{PART_OF_LABEL}=disttrain"
UP = f"k3s {VERSION} is up, the node is Ready"
# The doctor's checks of what the host shares with this machine: kernel, memory, clock. The host has
# control groups of version 2, but without controllers if the machine uses them in version 1.
OF_THE_MACHINE = ("kernel", "memory", "swap", "cgroup", "apparmor", "clock")
OF_THE_MACHINE += ("module-br_netfilter", "module-overlay")
LIMITS = "/etc/systemd/system/k3s.service.d/disttrain.conf"  # what systemd adds to k3s' unit
KUBECTL = "env KUBECACHEDIR=/run/k3s/disttrain-kubectl k3s kubectl"
SECRETS = ("sshPrivateKey", "sudoPassword", "httpProxy", "httpsProxy")


class Lab:
    """A host that all tests of a session share. Each test restores its first state."""

    def __init__(
        self,
        scratch: Path,
        source: Source | None = None,
        shared: Path | None = None,
        also: Sequence[Path] = (),
    ) -> None:
        """Boot the host.

        Args:
            scratch: the folder for all files of the lab.
            source: where k3s' files come from; None: what this session has chosen.
            shared: a folder with the way to a cluster behind k3s; None: the stand-in of k3s gets
                an API server of the lab's own.
            also: further folders and files of this machine that the host has.
        """
        self.scratch = scratch
        source = source or session_source()
        # Only the stand-in needs an API server: k3s itself has one, and `shared` leads to another.
        self.api = None if shared or source.publisher else ApiServer(scratch / "cluster")
        behind = self.api.folder if self.api else shared
        self.host = Host("gpu-node", *([behind] if behind else []), *also)
        # k3s needs a default route, even one that leads nowhere. It goes to a bridge, because not
        # every kernel has dummy interfaces.
        self.host.shell(
            f"ip link add out0 type bridge && ip address add {ADDRESS_OF_K3S}/31 dev out0 && "
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
        self.host.shell("su admin -c 'touch ~/.sudo_as_admin_successful'")  # as sudo would
        self.host_key = self.host.host_key
        self._first_host_key = self.host.key_pair()
        self._empty_notes()
        self.before = self.host.files()
        self._program = copy_program(PROJECT, scratch / "program")
        self._stacks = 0

    def checkout(self, name: str) -> Path:
        """Make a new folder that serves as a checkout of the project."""
        project = self.scratch / name
        project.mkdir()
        (project / ".venv").symlink_to(PROJECT / ".venv")
        for folder in FOLDERS:
            (project / folder).symlink_to(self._program / folder)
        for file in (*(self._program / name for name in FILES), OWN_KINDS):
            shutil.copy(file, project)
        return project

    def remove_checkout(self, name: str) -> None:
        """Remove a folder that `checkout` has made."""
        shutil.rmtree(self.scratch / name)

    def stack(self, user: str = "root", **changes: Any) -> Stack:
        """Return a stack of the project's program that makes a platform on this host, over SSH."""
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
        """Return a new stack that trains on the platform of another stack, whose name is given."""
        return self.new_stack({"platform": platform, "preset": "shakespeare-char-cpu"})

    def new_stack(self, wanted: Mapping[str, Any]) -> Stack:
        """Return a new stack with these settings, in a checkout of its own."""
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
        """Start `python -m infra.airgap pack` in the host's network, which has the mirror."""
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
        """The way to the host, in the form that `observe_k3s` takes."""
        hop = {"host": self.host.address, "port": 22, "user": "root", "host_key": self.host_key}
        return HostAccess({**hop, "private_key": self.private_key, "jump": None})

    def install_by_hand(self, action: str = "create", **variables: str) -> str:
        """Return the output of k3s-install.sh, run on the host as `host: local` runs it."""
        done = self.try_install(action, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def try_install(
        self, action: str = "create", text: str = "", environment: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run k3s-install.sh as `install_by_hand` does, but it may fail.

        Args:
            action: create, update or delete.
            text: a text that replaces the script; empty: the script itself.
            environment: `NAME=value` words for the shell that runs the program.
            variables: further variables of the script.
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
        """Remove k3s by the script that `install_by_hand` runs."""
        assert "k3s is removed" in self.install_by_hand("delete")

    def restore_host_key(self) -> None:
        """Give the host its first SSH host key again."""
        self.host.set_host_key(self._first_host_key)
        self.host_key = self.host.host_key

    def doctor(
        self, user: str = "root", sudo_password: str = "", **expected: str | bool
    ) -> dict[str, Result]:
        """Return the doctor's findings on the host over SSH by id, without those of OF_THE_MACHINE.

        The doctor takes the mirror for the release host of k3s.
        """
        mirror = {"https_probe": self.mirror.url, "k3s_version": VERSION}
        expect = Expectations(gpus=0, **{**mirror, **expected})  # pyright: ignore[reportArgumentType]
        target = SshTarget(
            self.host.address, user=user, private_key=self.private_key, host_key=self.host_key
        )
        plan = Plan(target, sudo_password, scope="host", expect=expect)
        found = (result for result in examine(plan).results if result.is_finding)
        return {result.id: result for result in found if result.id not in OF_THE_MACHINE}

    def findings(self, **given: Any) -> list[str]:
        """Return the ids of the doctor's findings."""
        return list(self.doctor(**given))

    @contextlib.contextmanager
    def small_disk(self, place: str, mib: int = 20) -> Iterator[None]:
        """Give a folder a small disk of its own during the block.

        The folder's content stays visible. Changes to it are lost after the block.
        """
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
        """Let a Python server listen at a port, until the unit `taker` is stopped."""
        self.host.shell(f"systemd-run --unit=taker python3 -m http.server {number}")
        listens = f"ss -ltn | grep -q :{number}"
        wait_for("the port", lambda: self.host.try_shell(listens).returncode == 0)

    def firewall(self, action: str) -> None:
        """Add (-I) or remove (-D) the rule that blocks the API server's port for other machines."""
        rule = ("INPUT", "-i", "node0", "-p", "tcp", "--dport", "6443", "-j", "REJECT")
        subprocess.run(
            [*("nsenter", "--target", str(self.host.pid), "--net"), "iptables", action, *rule],
            check=True,
        )

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of k3s' own kubectl, run on the host as the project's scripts do."""
        return self.host.shell(f"{KUBECTL} {shlex.join(arguments)}", stdin)

    def try_kubectl(self, *arguments: str) -> str:
        """Return the output of k3s' own kubectl; empty if it fails, as without k3s."""
        return self.host.try_shell(f"{KUBECTL} {shlex.join(arguments)}").stdout

    def objects(self) -> dict[str, str]:
        """Return the uids of the objects that the program has made in the cluster.

        The keys are `kind/name`.
        """
        wanted = ("namespaces,pv,pvc,configmaps,secrets", "--all-namespaces", "--output=json")
        found = json.loads(self.kubectl("get", *wanted, f"--selector={OURS}"))
        return {
            f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["uid"]
            for item in found["items"]
        }

    def put_run(self, owner: str, stack: str, name: str, namespace: str = NAMESPACE) -> None:
        """Make the record by which other stacks know of a run (infra/kube/record.py)."""
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
        """Delete the record of a run; its namespace stays."""
        self.kubectl("delete", "configmap", name, "--namespace", NAMESPACE)

    def end_tunnels(self, config: Mapping[str, Any]) -> None:
        """End all SSH sessions of tunnels, and wait for the end of this kubeconfig's tunnel."""
        self.host.try_shell("pkill -KILL -x sleep")
        port = int(config["clusters"][0]["cluster"]["server"].rpartition(":")[2])
        wait_for("the tunnel to end", lambda: not is_open(port))

    def calls(self) -> list[str]:
        """Return the command lines of all calls of the stand-ins of k3s and of its installer."""
        return self.host.shell("cat /lab/calls 2>/dev/null || true").splitlines()

    def pinned_memory_limit(self) -> str:
        """Return how many bytes of memory systemd lets k3s and its containers pin."""
        return self.host.shell("systemctl show --property=LimitMEMLOCK --value k3s").strip()

    def differences(self) -> list[str]:
        """Return the paths of the host that differ from its first state, except for the data."""
        paths = different(self.before, self.host.files())
        return [path for path in paths if not f"{path}/".startswith(f"{DATA_ROOT}/")]

    def state(self, stack: Stack) -> str:
        """Return the text of the stack's state file; empty if there is none."""
        files = (self.scratch / "backend").rglob(f"stacks/disttrain/{stack.name}.json")
        return "".join(file.read_text() for file in files)

    def resources(self, stack: Stack) -> list[str]:
        """Return the URNs of the state's resources, sorted, as an `up` may change their order."""
        deployment = json.loads(self.state(stack) or "{}").get("checkpoint", {}).get("latest") or {}
        return sorted(resource["urn"] for resource in deployment.get("resources", ()))

    def clean(self) -> None:
        """Restore the host for the next test: without k3s, without marks, with a fast mirror.

        The states of the tests' stacks stay, but nobody uses them any more.
        """
        self.mirror.slow(False)
        self.host.try_shell("umount /etc/rancher; systemctl stop taker; systemctl start ssh")
        for version in (OLD, VERSION):
            self.mirror.release(version)
        self._empty_notes()
        (self.mirror.folder / "requests").unlink(missing_ok=True)
        self.host.try_shell("pkill -KILL -x sleep")  # the sessions of tunnels
        self.host.try_shell("[ ! -e /root/aside ] || mv /root/aside /etc/rancher/disttrain")
        # Without data, k3s has no other stacks' runs, which would prevent its removal.
        self.host.try_shell("systemctl stop k3s; rm -rf /var/lib/rancher/k3s/server/db")
        self.install_by_hand("delete")  # a failed test may have left k3s
        self.host.shell(f"rm -rf {DATA_ROOT} {STAGE} {STAGE}.holder")
        self._empty_notes()

    def _empty_notes(self) -> None:
        """Empty the stand-in's folder /lab, except for the way to its API server."""
        self.host.shell("rm -rf /lab; mkdir /lab")
        if self.api:
            self.host.shell(f"ln -s {self.api.folder} /lab/cluster")

    def close(self) -> None:
        """End the mirror, the host and the API server."""
        self.mirror.close()
        self.host.close()
        if self.api:
            self.api.close()


def copy_program(source: Path, target: Path) -> Path:
    """Copy the program, so that it stays the same while somebody edits the source.

    The scripts are inputs of the engine's commands. If one were edited between two `up` of a test,
    the second `up` would change what the first has made.
    """
    for folder in FOLDERS:
        shutil.copytree(source / folder, target / folder)
    for file in FILES:
        shutil.copy2(source / file, target)
    return target


def different(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[str]:
    """Return the paths that were made, removed or changed."""
    return sorted(
        path
        for path in before.keys() | after.keys()
        if path not in before or path not in after or before[path].lasting != after[path].lasting
    )


def rewritten(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[str]:
    """Return the paths that were written, even if the content is the same."""
    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))


def failure(stack: Stack) -> str:
    """Return the output of an `up` that must fail."""
    try:
        output = stack.up()
    except PulumiFailedError as error:
        return str(error)
    raise AssertionError(f"pulumi up should have failed:\n{output}")


def counts(output: str) -> dict[str, int]:
    """Return the counts in `pulumi`'s summary, such as {"created": 3}."""
    summary = output.rpartition("Resources:")[2]  # the first summary is the preview's
    found = re.findall(r"^\s+[+\-~ ]*(\d+) (\w+)", summary, re.MULTILINE)
    return {what: int(number) for number, what in found}


def kubeconfig(stack: Stack) -> dict[str, Any]:
    """Return the stack's output `kubeconfig`, decoded."""
    return yaml.safe_load(stack.output("kubeconfig"))


def kubectl(lab: Lab, config: Mapping[str, Any], *arguments: str) -> str:
    """Return the output of the sandbox's kubectl, run on this machine with this kubeconfig."""
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
    """Return the version of k3s that the first Node reports."""
    version = "jsonpath={.items[0].status.nodeInfo.kubeletVersion}"
    return kubectl(lab, config, "get", "nodes", "-o", version)


class CommandLines(threading.Thread):
    """Collects all command lines of this machine's processes, the test host's included."""

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
    """Run `pulumi up` as a process that a test may kill; `output_file` has its output."""
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
    """Kill all processes of a session, because a killed engine leaves its plugins running."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader_pid:  # the session; the state is the first field
                os.kill(int(folder.name), signal.SIGKILL)


def output_file(stack: Stack) -> Path:
    """Return the file with the output of the last `background_up`."""
    return stack.settings_file.with_suffix(".output")


def wait_for(what: str, ask: Any, limit_seconds: float = 300) -> None:
    """Wait until `ask` gives a true answer. If it gives none in time, the test fails and names
    `what`.

    `what` is a noun that says what was waited for.
    """
    deadline = time.monotonic() + limit_seconds
    while not ask():
        assert time.monotonic() < deadline, f"waited {limit_seconds} s for {what}"
        time.sleep(0.1)
