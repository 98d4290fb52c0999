"""The commands of `python -m sandbox` for a cluster: up, down, status, exec and logs."""

import argparse
import os
from pathlib import Path

from sandbox.cluster import Cluster
from sandbox.commands import Command
from sandbox.components import COMPONENTS, SYSTEM_PATH
from sandbox.layout import STATE_ROOT
from sandbox.say import say
from sandbox.toolchain import bin_dir

EXIT_BROKEN = 1
EXIT_DOWN = 3  # as of `systemctl status`


def programs() -> Path:
    """The folder `$DISTTRAIN_BIN`, else that of the pinned programs, which are fetched or built."""
    given = os.environ.get("DISTTRAIN_BIN")
    return Path(given) if given else bin_dir()


def _which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="default", help="name of the cluster")
    parser.add_argument(
        "--state-root", type=Path, default=STATE_ROOT, help="folder of all clusters"
    )


def _cluster(arguments: argparse.Namespace, *, with_programs: bool = False) -> Cluster:
    folder = programs() if with_programs else None
    return Cluster(arguments.name, folder, arguments.state_root)


def _up(arguments: argparse.Namespace) -> None:
    _cluster(arguments, with_programs=True).up()


def _down_arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument(
        "--purge", action="store_true", help="also remove the data and the imported images"
    )


def _down(arguments: argparse.Namespace) -> None:
    _cluster(arguments).down(purge=arguments.purge)


def _status(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments)
    status = cluster.status()
    say(f"cluster {status.name}: {status.state}")
    for problem in status.problems:
        say(f"- {problem}")
    if status.state == "up":
        say(f"node       {status.node_ip}")
        say(f"kubeconfig {cluster.kubeconfig}")
        say(f"containerd {cluster.containerd_address}")
        say(f"data       {cluster.data_root}")
    return {"up": 0, "broken": EXIT_BROKEN, "down": EXIT_DOWN}[status.state]


def _exec_arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="command and arguments (default: sh)"
    )


def _exec(arguments: argparse.Namespace) -> None:
    cluster = _cluster(arguments, with_programs=True)
    command = [part for part in arguments.command if part != "--"] or ["sh"]
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{cluster.bin_dir}:{SYSTEM_PATH}",
    }
    inside = cluster.enter(*command)
    os.execvpe(inside[0], inside, environment)


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument("component", help=", ".join(COMPONENTS))
    parser.add_argument("--lines", type=int, default=40, help="how many of the last ones")
    parser.add_argument("--follow", action="store_true", help="wait for more")


def _logs(arguments: argparse.Namespace) -> None:
    log = _cluster(arguments).log(arguments.component)
    follow = ["-F"] if arguments.follow else []
    command = ["tail", f"--lines={arguments.lines}", *follow, str(log)]
    os.execvp(command[0], command)


CLUSTER_COMMANDS = {
    "up": Command("start the one-node Kubernetes; fine when it runs already", _up, _which),
    "down": Command("end it and remove it; data and images stay", _down, _down_arguments),
    "status": Command("what runs and what does not (exit 0 up, 1 broken, 3 down)", _status, _which),
    "exec": Command("run a command inside, as on the node", _exec, _exec_arguments),
    "logs": Command("last lines of a component's log", _logs, _logs_arguments),
}
