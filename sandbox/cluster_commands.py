"""The commands of `python3 -m sandbox` for a cluster, such as up, down, status and logs."""

import argparse
import os
from pathlib import Path

from sandbox.cluster import Cluster
from sandbox.commands import Command
from sandbox.components import COMPONENTS, MIRROR, SYSTEM_PATH
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import start_controller, stop_controller
from sandbox.controllers.older import OLDER
from sandbox.fake_nodes import MOST_FAKE_NODES, set_fake_nodes
from sandbox.gpus import MOST_GPUS, offer_gpus
from sandbox.layout import STATE_ROOT
from sandbox.say import say
from sandbox.toolchain import bin_dir

NAME_VARIABLE = "DISTTRAIN_CLUSTER"
ALL_CONTROLLERS = {**CONTROLLERS, **OLDER}
EXIT_BROKEN = 1
EXIT_DOWN = 3  # `systemctl status` ends with 3 too


def programs() -> Path:
    """The folder `$DISTTRAIN_BIN`, or else the pinned programs' folder; missing ones are made."""
    given = os.environ.get("DISTTRAIN_BIN")
    return Path(given) if given else bin_dir()


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    usual = os.environ.get(NAME_VARIABLE, "default")
    parser.add_argument("--name", default=usual, help=f"name of the cluster (default: {usual})")
    parser.add_argument(
        "--state-root",
        type=Path,
        default=STATE_ROOT,
        help=f"folder with the state of all clusters (default: {STATE_ROOT})",
    )


def _cluster(arguments: argparse.Namespace, *, with_programs: bool = False) -> Cluster:
    folder = programs() if with_programs else None
    return Cluster(arguments.name, folder, arguments.state_root)


def _add_node_options(parser: argparse.ArgumentParser) -> None:
    _add_cluster_options(parser)
    parser.add_argument("--node", type=int, default=1, help="number of the node (default: 1)")


def _up_arguments(parser: argparse.ArgumentParser) -> None:
    _add_cluster_options(parser)
    parser.add_argument(
        "--nodes", type=int, help="number of nodes (default: as many as there are, or one)"
    )
    parser.add_argument(
        "--with",
        dest="controllers",
        action="append",
        choices=list(ALL_CONTROLLERS),
        default=[],
        metavar="CONTROLLER",
        help="also start this controller, which is built the first time; may be given several "
        f"times; one of {', '.join(ALL_CONTROLLERS)}",
    )


def _up(arguments: argparse.Namespace) -> None:
    cluster = _cluster(arguments, with_programs=True)
    cluster.up(arguments.nodes)
    say(f"kubeconfig {cluster.kubeconfig}")
    for name in arguments.controllers:
        start_controller(cluster, ALL_CONTROLLERS[name])


def _remove_arguments(parser: argparse.ArgumentParser) -> None:
    _add_cluster_options(parser)
    parser.add_argument(
        "controller",
        choices=list(ALL_CONTROLLERS),
        metavar="CONTROLLER",
        help=f"one of {', '.join(ALL_CONTROLLERS)}",
    )


def _remove(arguments: argparse.Namespace) -> None:
    cluster = _cluster(arguments, with_programs=True)
    if cluster.node_ip is None:
        raise RuntimeError(f"cluster {cluster.name} is down: run `up` first")
    stop_controller(cluster, ALL_CONTROLLERS[arguments.controller])


def _gpus_arguments(parser: argparse.ArgumentParser) -> None:
    _add_cluster_options(parser)
    parser.add_argument("count", type=int, help=f"number of GPUs, 0 to {MOST_GPUS}; 0 removes them")


def _gpus(arguments: argparse.Namespace) -> None:
    offer_gpus(_cluster(arguments, with_programs=True), arguments.count)
    say(f"cluster {arguments.name} offers {arguments.count} GPUs; none of them is real")


def _fake_nodes_arguments(parser: argparse.ArgumentParser) -> None:
    _add_cluster_options(parser)
    parser.add_argument(
        "count", type=int, help=f"number of nodes, 0 to {MOST_FAKE_NODES}; 0 removes them"
    )


def _fake_nodes(arguments: argparse.Namespace) -> None:
    set_fake_nodes(_cluster(arguments, with_programs=True), arguments.count)
    say(f"cluster {arguments.name} has {arguments.count} nodes that do not exist")


def _down_arguments(parser: argparse.ArgumentParser) -> None:
    _add_cluster_options(parser)
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
        for name, address in status.nodes.items():
            say(f"node       {address}" + (f" {name}" if len(status.nodes) > 1 else ""))
        say(f"kubeconfig {cluster.kubeconfig}")
        say(f"containerd {cluster.containerd_address}")
        say(f"data       {cluster.data_root}")
    return {"up": 0, "broken": EXIT_BROKEN, "down": EXIT_DOWN}[status.state]


def _exec_arguments(parser: argparse.ArgumentParser) -> None:
    _add_node_options(parser)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="[--] COMMAND ...",
        help="command and its arguments (default: sh)",
    )


def _exec(arguments: argparse.Namespace) -> None:
    cluster = _cluster(arguments, with_programs=True)
    words = arguments.command
    command = (words[1:] if words[:1] == ["--"] else words) or ["sh"]
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{cluster.bin_dir}:{SYSTEM_PATH}",
    }
    inside = cluster.enter(*command, number=arguments.node)
    os.execvpe(inside[0], inside, environment)


def _link_arguments(parser: argparse.ArgumentParser) -> None:
    _add_cluster_options(parser)
    parser.add_argument("--node", type=int, required=True, help="number of the node, from 2 on")
    act = parser.add_mutually_exclusive_group(required=True)
    act.add_argument("--cut", action="store_true", help="drop all packets in both directions")
    act.add_argument("--rate", help="limit the rate in both directions, such as 10mbit")
    act.add_argument("--mend", action="store_true", help="restore the link, without a limit")


def _link(arguments: argparse.Namespace) -> None:
    link = _cluster(arguments).peer_link(arguments.node)
    if arguments.cut:
        link.cut()
    elif arguments.rate:
        link.set_rate(arguments.rate)
    else:
        link.mend()
        link.set_rate(None)


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    _add_node_options(parser)
    names = ", ".join((*COMPONENTS, MIRROR, *CONTROLLERS))
    parser.add_argument("component", metavar="COMPONENT", help=f"one of {names}")
    parser.add_argument("--lines", type=int, default=40, help="number of lines (default: 40)")
    parser.add_argument("--follow", action="store_true", help="wait for new lines")


def _logs(arguments: argparse.Namespace) -> None:
    log = _cluster(arguments).log(arguments.component, arguments.node)
    follow = ["-F"] if arguments.follow else []
    command = ["tail", f"--lines={arguments.lines}", *follow, str(log)]
    os.execvp(command[0], command)


CLUSTER_COMMANDS = {
    "up": Command("start a cluster; does nothing if it is up", _up, _up_arguments),
    "down": Command("stop and remove a cluster; data and images stay", _down, _down_arguments),
    "remove": Command(
        "stop a controller that `up --with` has started, and delete all objects of its kinds",
        _remove,
        _remove_arguments,
    ),
    "gpus": Command("let a device plugin offer GPUs that do not exist", _gpus, _gpus_arguments),
    "fake-nodes": Command(
        "add nodes that do not exist, to test a large cluster", _fake_nodes, _fake_nodes_arguments
    ),
    "status": Command(
        "show what runs (exit status 0 up, 1 broken, 3 down)", _status, _add_cluster_options
    ),
    "exec": Command("run a command on a node, or a shell", _exec, _exec_arguments),
    "link": Command(
        "cut, slow down or restore the link between a node and the others", _link, _link_arguments
    ),
    "logs": Command("show the last lines of a component's log", _logs, _logs_arguments),
}
