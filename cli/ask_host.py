"""Runs a shell program on the host, over SSH or on this machine, and reads the facts it prints."""

import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path

from cli.check import SMI_SECONDS
from cli.facts import Facts, parse_facts
from infra.kube.say import last_line
from infra.node.doctor_plan import Plan, SshTarget
from infra.node.ssh_files import ssh_command

SCRIPTS = Path(__file__).parent / "scripts"
HOST_SECONDS = 30 + 2 * SMI_SECONDS
"""Time limit of a whole program. Each probe has PROBE_SECONDS; nvidia-smi runs twice in a row."""
SSH_FAILED = 255  # ssh itself has failed; any other exit status is the remote command's
# Words that occur in error messages of ssh, and the fix for each.
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
    """The host could not be examined; the attributes give the evidence and the fix."""

    def __init__(self, evidence: str, fix: str) -> None:
        super().__init__(evidence)
        self.evidence = evidence
        self.fix = fix


def ask_host(plan: Plan, program: str, done: str) -> Facts:
    """Run a shell program on the host, and return the facts that it prints.

    Args:
        plan: says how the host is reached.
        program: the text of the shell program.
        done: the name of the fact that the program prints last, with the value `yes`.

    Raises:
        UnreachableError: the host was not reached, or its answer is not complete.
    """
    return parse_facts(answer_of_host(plan, program, done))


def answer_of_host(plan: Plan, program: str, done: str) -> list[str]:
    """Run a shell program on the host, and return the lines that it prints.

    The arguments and the errors are those of `ask_host`.
    """
    with tempfile.TemporaryDirectory(prefix="disttrain-") as scratch:
        way = ssh_command(asdict(plan.ssh), Path(scratch), "-T") if plan.ssh else []
        command = [*way, "sh -s"] if way else ["sh", "-s"]
        lines, stderr, status = run_program(command, program, plan)
    if plan.ssh and status == SSH_FAILED:
        raise why_unreachable(plan.ssh, stderr)
    if parse_facts(lines).get(done) != "yes":
        said = last_line(stderr)[:200]
        raise UnreachableError(
            f"{plan.host_name}: the answer is not complete (status {status}: {said})",
            "run it again; if that does not help, check that the host's disk is not full",
        )
    return lines


def run_program(command: list[str], program: str, plan: Plan) -> tuple[list[str], str, int]:
    """Run a command of this machine, with a shell program as its standard input.

    Args:
        command: the command and its arguments.
        program: the text of the shell program.
        plan: gives the host's name for the error text.

    Returns:
        The lines that it printed, its standard error, and its exit status.

    Raises:
        UnreachableError: the command is not on this machine, or gave no answer in time.
    """
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


def why_unreachable(target: SshTarget, stderr: str) -> UnreachableError:
    """Return an error with the last line that ssh printed, and with a fix for it."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip(" @\r")]
    evidence = f"{target.name}: {lines[-1] if lines else 'ssh ended without a message'}"
    if "IDENTIFICATION HAS CHANGED" in stderr:
        evidence = f"{target.name}: the host's key is not the pinned one"
    fix = next(
        (fix for words, fix in SSH_FIXES.items() if words in stderr),
        "run `ssh -v HOST` to see where it fails",
    )
    return UnreachableError(evidence, fix)
