"""Lets a further machine join our k3s, or leave it: `python -m infra.node.agent ACTION`.

An action consists of steps on the machine and on the server, which is the first machine. Each step
is a script, and a step may need what an earlier one has printed. So the token, with which the
machine joins, goes only through the memory of this program, from the output of one script to the
standard input of another. It is in no argument, in no file of this machine, and in no log or state.

Standard input is JSON with these keys:

- `server` and `machine`: how each is reached: `ssh` (see `ssh_command`), `sudo_password`, and
  `gone`, which says whether the host is lost;
- `scripts`: the texts of the scripts `agent` and `look`, which run on the machine, and `member`,
  which runs on the server;
- `variables`: the variables of each of these scripts;
- `role`: with `server` the machine becomes one of several servers, which have the cluster's data.

This file uses only the standard library.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.kube.gone_cluster import VARIABLE, forgotten, is_given_up
from infra.node.on_host import CUT_OFF, run_on_host
from infra.node.shell_program import assemble_program, script_text

Name = Literal["agent", "look", "member"]
OF_THE_MACHINE = {"agent": "k3s-agent.sh", "server": "k3s-further-server.sh"}
STATE_SCRIPT = "k3s-agent-look.sh"
LEFT = "left=joined"  # The last line of the action `clear` if the machine has joined.
LEAVING = ("retire", "delete", "unprepare", "clear")  # Actions of a machine that leaves.


class StepError(Exception):
    """A step has failed. The text is what its script has printed."""


class ForgottenError(Exception):
    """A machine that has to leave does not answer, and the user has said to forget it then."""


def scripts(role: str) -> dict[Name, str]:
    """The texts of the scripts for a role.

    They are part of the job, so a change of a script changes the job.
    """
    files: dict[Name, str] = {
        "agent": OF_THE_MACHINE[role],
        "look": STATE_SCRIPT,
        "member": "k3s-member.sh",
    }
    return {name: script_text(file) for name, file in files.items()}


@dataclass(frozen=True)
class Job:
    """The job on standard input, which the head of this file describes."""

    server: Mapping[str, Any]
    machine: Mapping[str, Any]
    scripts: Mapping[Name, str]
    variables: Mapping[Name, Mapping[str, str]]
    role: str = "agent"  # Jobs in the state that older versions have made have no role.

    def on_server(self, action: str, **more: str) -> str:
        """Run a step of k3s-member.sh on the server, and return its output."""
        return self._run(self.server, "member", action, more)

    def on_machine(self, name: Name, action: str, **more: str) -> str:
        """Run a step on the machine, and return its output."""
        return self._run(self.machine, name, action, more)

    def _run(
        self, host: Mapping[str, Any], name: Name, action: str, more: Mapping[str, str]
    ) -> str:
        given = {**self.variables[name], **more}
        program = assemble_program(self.scripts[name], given, "root", host["sudo_password"])
        done = run_on_host(host["ssh"], program, action)
        if done.returncode == 0:
            return done.stdout
        if host["ssh"] and done.returncode == CUT_OFF:
            raise self._unreachable(host, action, done.stderr)
        # The output of `join` must not be shown, because it contains the token.
        raise StepError((done.stdout if action != "join" else "") + done.stderr)

    def _unreachable(self, host: Mapping[str, Any], action: str, ssh_said: str) -> Exception:
        """The error if ssh does not reach a host."""
        text = f"{ssh_said}{host['ssh']['host']} cannot be reached"
        if self._cluster_is_gone(action) and is_given_up():
            return ForgottenError(forgotten(text))
        way_out = self._way_out(action) if host is self.machine else ""
        return StepError(f"{text}. Try again when it can be{way_out}")

    def _cluster_is_gone(self, action: str) -> bool:
        return action in LEAVING and bool(self.server["gone"])

    def _way_out(self, action: str) -> str:
        """What a user can do if the machine is lost, as a text for people.

        A machine that leaves may have no item in `nodes` any more. Then the user has to put the
        item back. If the first machine is lost, there is no cluster that could forget the machine.
        """
        if self._cluster_is_gone(action):
            return (
                f". If it is lost for good, let the stack forget it: {VARIABLE}=true pulumi destroy"
            )
        remedy = "set `gone: true` in its item of nodes"
        if action in LEAVING:
            name, host = self.variables["agent"].get("NODE", ""), self.machine["ssh"]["host"]
            was = f"name: {name}, address: {host}"
            remedy = f"put it back into nodes as it was ({was}) with `gone: true`"
        return (
            f". If it is lost for good, {remedy}, and run pulumi up: the cluster then forgets it. "
            "After that it can be taken out of the list, and another machine can have its name"
        )


def prepare(job: Job) -> None:
    """Bring k3s to a machine that has none, without starting it: that needs the server's token.

    Raises:
        StepError: the machine does not answer, or the script has failed.
    """
    if not (job.server["gone"] or job.machine["gone"]):
        print(job.on_machine("agent", "prepare"), end="")


def unprepare(job: Job) -> None:
    """Remove what `prepare` brought, if the machine has never joined.

    Raises:
        StepError: the machine does not answer, or the script has failed.
    """
    if not job.machine["gone"]:
        print(job.on_machine("agent", "unprepare"), end="")


def clear(job: Job) -> None:
    """Remove what is still on the machine, when no other command of the machine is in the state.

    It is what `prepare` or `join` has made in an `up` that failed there, or was killed. If the
    machine has joined the cluster, it leaves it.

    Raises:
        StepError: a host does not answer, or a script has failed.
    """
    if job.machine["gone"]:
        return
    said = job.on_machine("agent", "clear")
    # The start-up files of the user's shell may have printed something before that line.
    if said.splitlines()[-1:] != [LEFT]:
        print(said, end="")
        return
    try:
        _leave_if_there(job)
    except StepError:
        # `pulumi destroy` may remove k3s from the server at the same time, and it may be gone now.
        _leave_if_there(job)


def _leave_if_there(job: Job) -> None:
    """Leave the cluster. If the server has no k3s any more, only remove k3s from the machine."""
    if job.server["gone"] or facts(job.on_server("look"))["there"] == "yes":
        leave(job)
    else:
        print(job.on_machine("agent", "delete"), end="")


def join(job: Job) -> None:
    """Bring k3s to the machine, and wait until the machine's node is Ready in the cluster.

    If the user has marked the machine as lost, it leaves the cluster instead.

    Raises:
        StepError: a host does not answer, or a script has failed. If the node does not become
            Ready, the text contains the last lines of k3s' log.
    """
    if job.server["gone"]:
        print("the server is gone, so nothing was done")
        return
    if job.machine["gone"]:
        leave(job)
        return
    found = facts(job.on_machine("look", "look"))
    given = facts(job.on_server("join", NEW_MACHINE=found["new_machine"]))
    variables = {"K3S_TOKEN": given["token"], "GPU_PODS": given["gpu_pods"]}
    if given.get("has_node") == "no":  # Scripts in older jobs do not print it.
        variables["NODE_MISSING"] = "1"
    if job.role == "server":
        variables["AGENT_SECRET"] = given["agent_secret"]
    *said, last = job.on_machine("agent", "create", **variables).splitlines()
    print("\n".join(said), flush=True)
    started = last.removeprefix("started=")
    assert started != last, last
    try:
        print(job.on_server("await", STARTED=started), end="")
    except StepError as error:
        log = job.on_machine("look", "log")
        raise StepError(f"{error}the last log lines of k3s on the machine:\n{log}") from None


def leave(job: Job) -> None:
    """Let the node's pods end, remove k3s from the machine, and delete the node in the cluster.

    A further server leaves etcd before k3s is removed from it, because etcd with two servers does
    not work while one of them is off. Hosts that are marked as lost are not asked. If the first
    machine is lost, its cluster and the node in it are lost too.

    Raises:
        StepError: a host does not answer, or a script has failed.
    """
    is_drained = not job.server["gone"] and not job.machine["gone"]
    if is_drained:
        print(job.on_server("drain"), end="")
    try:
        _leave_drained(job)
    except StepError as error:
        if not is_drained:
            raise
        node = job.variables["agent"].get("NODE", "")
        raise StepError(
            f"{str(error).rstrip()}\nNode {node} is drained and takes no new pods until it has "
            "left: pulumi up goes on with that. To keep the machine, put it back into nodes, run "
            f"pulumi up, and then: kubectl uncordon {node}"
        ) from None


def _leave_drained(job: Job) -> None:
    """The steps of `leave` after the drain. It raises the same errors."""
    if job.role == "server" and not (job.server["gone"] or job.machine["gone"]):
        print(job.on_machine("agent", "retire"), end="")
        print(job.on_server("leave"), end="")
    if not job.machine["gone"]:
        print(job.on_machine("agent", "delete"), end="")
    if not job.server["gone"]:
        print(job.on_server("forget"), end="")


ACTIONS: Mapping[str, Callable[[Job], None]] = {
    "prepare": prepare,
    "unprepare": unprepare,
    "clear": clear,
    "create": join,
    "delete": leave,
}


def facts(text: str) -> dict[str, str]:
    """Parse the `key=value` lines of a script that ends with `done=yes`.

    Raises:
        StepError: the answer is not complete.
    """
    pairs = [line.partition("=") for line in text.splitlines()]
    found = {key: value for key, separator, value in pairs if separator}
    if found.get("done") != "yes":
        raise StepError("the host's answer is not complete; run pulumi up again")
    return found


def main() -> int:
    """Run the action of the command line for the job on standard input.

    Returns:
        The exit status: 0, or 1 if a step has failed.
    """
    job = Job(**json.load(sys.stdin))
    try:
        ACTIONS[sys.argv[1]](job)
    except ForgottenError as forgotten_machine:
        print(forgotten_machine)
    except (StepError, subprocess.SubprocessError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
