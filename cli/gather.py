"""Runs the gather scripts: one program for the host, sent over one connection, and others here."""

import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cli.agent_facts import agent_line
from cli.build_facts import build_lines, builders_on_node
from cli.check import PROBE_SECONDS
from cli.facts import Facts, parse_facts
from infra.node.doctor_plan import Plan, SshTarget
from infra.node.shell_program import assemble_program
from infra.node.ssh_files import ssh_command

SCRIPTS = Path(__file__).parent / "scripts"
HOST_SECONDS = 30  # for all questions together; each has PROBE_SECONDS
SSH_FAILED = 255  # exit status of ssh itself; other statuses are the remote command's
CLOCK_SLACK_SECONDS = 1
# Words in the message of ssh, and the fix for each.
SSH_FIXES = {
    "Host key verification failed": (
        "compare `ssh-keyscan HOST` with /etc/ssh/ssh_host_*_key.pub on the host; change "
        "sshHostKey (or known_hosts) only if you know that the host was installed again"
    ),
    "Permission denied": "correct the private key (sshPrivateKey, --identity) or user (sshUser)",
    "Connection refused": "start sshd on the host, or correct the port (sshPort)",
    "timed out": "check that the host is on and that no firewall keeps this machine out",
    "Could not resolve": "correct the host's name, or use its IP address",
}


class UnreachableError(Exception):
    """The host could not be examined; has the evidence and the fix."""

    def __init__(self, evidence: str, fix: str) -> None:
        super().__init__(evidence)
        self.evidence = evidence
        self.fix = fix


@dataclass(frozen=True)
class Gathered:
    """The facts, and the seconds that it took to gather them."""

    facts: Facts
    seconds: float


def gather(plan: Plan) -> Gathered:
    """Gather the facts of the host, of the cluster if the plan has one, and of the image build.

    Raises:
        UnreachableError: the host was not reached, or its answer is not complete.
    """
    start = time.monotonic()
    with ThreadPoolExecutor() as pool:
        host = pool.submit(_host_facts, plan)
        cluster = pool.submit(_cluster_lines, plan) if _has_own_kubectl(plan) else None
        build = pool.submit(build_lines, plan.expect)
        lines = [*host.result(), *(cluster.result() if cluster else []), *build.result()]
    lines.append(agent_line(needed=plan.ssh is not None))
    return Gathered(parse_facts(lines), time.monotonic() - start)


def host_program(plan: Plan) -> str:
    """The shell text for the host: variables, the script, and the cluster's part with k3s."""
    text = (SCRIPTS / "facts-host.sh").read_text()
    if plan.scope == "all" and plan.expect.provision:
        cluster = (SCRIPTS / "facts-cluster.sh").read_text()
        text = f"{text}\n[ -x /usr/local/bin/k3s ] || exit 0\n{cluster}"
    return assemble_program(text, host_variables(plan), "root-if-possible", plan.sudo_password)


def host_variables(plan: Plan) -> Mapping[str, str]:
    """The variables of facts-host.sh and, with k3s, of facts-cluster.sh."""
    expect = plan.expect
    fetches = expect.provision and expect.internet
    names = {urlsplit(expect.https_probe).hostname or ""} if fetches else set[str]()
    return {
        "PROBE_SECONDS": str(PROBE_SECONDS),
        "K3S_SERVICE": expect.service,
        "NODE_INTERFACE": expect.node_interface,
        "DATA_ROOT": expect.data_root,
        "DNS_NAMES": "" if expect.has_proxy else " ".join(sorted(names)),
        "HTTP_PROXY_URL": expect.http_proxy,
        "HTTPS_PROXY_URL": expect.https_proxy,
        "HTTP_PROBE": expect.http_probe,
        "HTTPS_PROBE": expect.https_probe if fetches or expect.has_proxy else "",
        "CA_BUNDLE": expect.ca_bundle,
        "CTR": plan.ctr,
        "IMAGE": expect.image if plan.scope == "all" else "",
        "IMAGE_BUILDERS": " ".join(builders_on_node(expect)),
        "KUBECTL": "/usr/local/bin/k3s kubectl",
        "KUBECONFIG_FILE": "/etc/rancher/k3s/k3s.yaml",
        "NAMESPACE": expect.namespace,
    }


def why_unreachable(target: SshTarget, stderr: str) -> UnreachableError:
    """The last line that ssh printed, with the fix for it."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip(" @\r")]
    evidence = f"{target.name}: {lines[-1] if lines else 'ssh ended without a message'}"
    if "IDENTIFICATION HAS CHANGED" in stderr:
        evidence = f"{target.name}: the host's key is not the pinned one"
    fix = next(
        (fix for words, fix in SSH_FIXES.items() if words in stderr),
        "run `ssh -v HOST` to see where it fails",
    )
    return UnreachableError(evidence, fix)


def clock_skew(before: float, remote: int, after: float) -> int:
    """Seconds by which the other clock differs at least, when read between two readings of ours."""
    early, late = before - CLOCK_SLACK_SECONDS - remote, remote - after - CLOCK_SLACK_SECONDS
    return round(max(early, late, 0))


def _host_facts(plan: Plan) -> list[str]:
    before = time.time()
    lines = _answer_of_host(plan, host_program(plan), "host_done")
    facts, after = parse_facts(lines), time.time()
    return [*lines, f"clock_skew={clock_skew(before, facts.number('time'), after)}"]


def ask_host(plan: Plan, program: str, done: str) -> Facts:
    """Run shell text on the host; `done` is the fact that it prints last.

    Raises:
        UnreachableError: the host was not reached, or its answer is not complete.
    """
    return parse_facts(_answer_of_host(plan, program, done))


def _answer_of_host(plan: Plan, program: str, done: str) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="disttrain-") as scratch:
        way = ssh_command(asdict(plan.ssh), Path(scratch), "-T") if plan.ssh else []
        command = [*way, "sh -s"] if way else ["sh", "-s"]
        lines, stderr, status = _run(command, program, plan)
    if plan.ssh and status == SSH_FAILED:
        raise why_unreachable(plan.ssh, stderr)
    if parse_facts(lines).get(done) != "yes":
        tail = stderr.strip().splitlines()[-1:] or ["no error text"]
        raise UnreachableError(
            f"{plan.host_name}: the answer is not complete (status {status}: {tail[0][:200]})",
            "run it again; if that does not help, check that the host's disk is not full",
        )
    return lines


def _has_own_kubectl(plan: Plan) -> bool:
    return plan.scope == "all" and bool(plan.kubeconfig)


def _cluster_lines(plan: Plan) -> list[str]:
    variables = {
        "PROBE_SECONDS": str(PROBE_SECONDS),
        "KUBECTL": plan.kubectl or shlex.join(["kubectl", "--kubeconfig", plan.kubeconfig]),
        "KUBECONFIG_FILE": plan.kubeconfig,
        "NAMESPACE": plan.expect.namespace,
    }
    script = (SCRIPTS / "facts-cluster.sh").read_text()
    lines, _, _ = _run(["sh", "-s"], assemble_program(script, variables), plan)
    return lines


def _run(command: list[str], program: str, plan: Plan) -> tuple[list[str], str, int]:
    try:
        done = subprocess.run(
            command,
            input=program,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=HOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(
            f"{plan.host_name}: no answer in {HOST_SECONDS} s",
            "check whether the machine is overloaded or one of its file systems (NFS) hangs",
        ) from None
    except FileNotFoundError:
        raise UnreachableError(
            f"there is no {command[0]} on this machine",
            f"install {command[0]} (openssh-client for ssh)",
        ) from None
    return done.stdout.splitlines(), done.stderr, done.returncode
