"""Joins a further machine to our k3s and takes it away: `python -m infra.node.agent ACTION`.

One step follows the other, on the machine and on the server, and what a step says goes to the next
one. So the token, which the machine shows to the server, goes through the memory of this program
from one standard input to another, and stands in no argument, file of this machine, log or state.

Standard input is JSON: `server` and `machine` are the ways there (`ssh` as `ssh_command` takes it,
`sudo_password`, and whether the host is `gone`), `scripts` the texts and `variables` what they are
given, for each of `agent` (which is run on the machine), `look` and `member`. With `role` server
the machine becomes one of several servers, which have the cluster's data. Standard library only.
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
LOOK = "k3s-agent-look.sh"
LEFT = "left=joined"  # last line of k3s-agent.sh, of a k3s that the engine does not know of
LEAVING = ("retire", "delete", "unprepare", "clear")  # steps for a machine that leaves the cluster


class StepError(Exception):
    """A step has failed; the text is what its script said."""


class ForgottenError(Exception):
    """A machine that should leave does not answer, and the user has said to forget it then."""


def scripts(role: str) -> dict[Name, str]:
    """The texts as they are now: a change of them is a change of the job."""
    files: dict[Name, str] = {
        "agent": OF_THE_MACHINE[role],
        "look": LOOK,
        "member": "k3s-member.sh",
    }
    return {name: script_text(file) for name, file in files.items()}


@dataclass(frozen=True)
class Job:
    """What is to be done; see the head of this file."""

    server: Mapping[str, Any]
    machine: Mapping[str, Any]
    scripts: Mapping[Name, str]
    variables: Mapping[Name, Mapping[str, str]]
    role: str = "agent"  # a job that an older version has recorded does not say it

    def on_server(self, action: str, **more: str) -> str:
        """Output of a step of k3s-member.sh."""
        return self._run(self.server, "member", action, more)

    def on_machine(self, name: Name, action: str, **more: str) -> str:
        """Output of a step on the machine."""
        return self._run(self.machine, name, action, more)

    def _run(self, way: Mapping[str, Any], name: Name, action: str, more: Mapping[str, str]) -> str:
        given = {**self.variables[name], **more}
        program = assemble_program(self.scripts[name], given, "root", way["sudo_password"])
        done = run_on_host(way["ssh"], program, action)
        if done.returncode == 0:
            return done.stdout
        if way["ssh"] and done.returncode == CUT_OFF:
            raise self._unreachable(way, action, done.stderr)
        # not the output of `join`: the secrets are in it
        raise StepError((done.stdout if action != "join" else "") + done.stderr)

    def _unreachable(self, way: Mapping[str, Any], action: str, ssh_said: str) -> Exception:
        """What to say where ssh does not get through."""
        text = f"{ssh_said}{way['ssh']['host']} cannot be reached"
        if self._cluster_is_gone(action) and is_given_up():
            return ForgottenError(forgotten(text))
        way_out = self._way_out(action) if way is self.machine else ""
        return StepError(f"{text}. Try again when it can be{way_out}")

    def _cluster_is_gone(self, action: str) -> bool:
        return action in LEAVING and bool(self.server["gone"])

    def _way_out(self, action: str) -> str:
        """What a user can do where the machine is lost.

        A machine that leaves may have no item in `nodes` any more. Then the user has to put back
        the item that it had. Without the first machine there is no cluster that could forget it.
        """
        if self._cluster_is_gone(action):
            return (
                f". If it is lost for good, let the stack forget it: {VARIABLE}=true pulumi destroy"
            )
        mark = "set `gone: true` at its place in nodes"
        if action in LEAVING:
            name, host = self.variables["agent"].get("NODE", ""), self.machine["ssh"]["host"]
            was = f"name: {name}, address: {host}"
            mark = f"put it back into nodes as it was ({was}) with `gone: true`"
        return (
            f". If it is lost for good, {mark}, and run pulumi up: the cluster then forgets it. "
            "After that it can be taken out of the list, and another machine can have its name"
        )


def prepare(job: Job) -> None:
    """Bring k3s to a machine that has none, and do not start it: that needs the server's token.

    Raises:
        StepError: the machine does not answer, or the script has failed.
    """
    if not (job.server["gone"] or job.machine["gone"]):
        print(job.on_machine("agent", "prepare"), end="")


def unprepare(job: Job) -> None:
    """Take that away where the machine has never joined. Raises StepError, as `prepare`."""
    if not job.machine["gone"]:
        print(job.on_machine("agent", "unprepare"), end="")


def clear(job: Job) -> None:
    """Take away what is still on the machine when nothing of it is in the state any more.

    That is what `prepare` or `join` has made in an `up` that has failed there, or was killed. A
    machine that has joined leaves the cluster.

    Raises:
        StepError: as `leave`.
    """
    if job.machine["gone"]:
        return
    said = job.on_machine("agent", "clear")
    # the start-up files of the user's shell may have said something before
    if said.splitlines()[-1:] != [LEFT]:
        print(said, end="")
        return
    try:
        _leave_if_there(job)
    except StepError:
        # `pulumi destroy` takes k3s from the server at the same time, and it may be gone by now.
        _leave_if_there(job)


def _leave_if_there(job: Job) -> None:
    """Leave the cluster, or take k3s from the machine alone where the server has none any more."""
    if job.server["gone"] or facts(job.on_server("look"))["there"] == "yes":
        leave(job)
    else:
        print(job.on_machine("agent", "delete"), end="")


def join(job: Job) -> None:
    """Bring k3s to the machine, and wait until the server has its node.

    Raises:
        StepError: with the last lines of k3s' log where the node does not come up.
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
    if given.get("has_node") == "no":  # a job of an older version does not ask for it
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
    """Let the node's pods end, take k3s from the machine, and let the server forget the node.

    A server leaves etcd before k3s is taken from it: etcd with two servers does not work while one
    of them is off. A host that is gone is not asked. If the server is gone, the node is gone too.

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
    """The steps after the drain. Raises StepError, as `leave`."""
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
    """The `key=value` lines of a script whose last line is `done=yes`.

    Raises:
        StepError: the answer is not complete.
    """
    pairs = [line.partition("=") for line in text.splitlines()]
    found = {key: value for key, separator, value in pairs if separator}
    if found.get("done") != "yes":
        raise StepError("the host's answer is not complete; run pulumi up again")
    return found


def main() -> int:
    """Returns the exit status."""
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
