"""The commands of `python3 -m sandbox` for the project: setup, the demos, env and clean-cache."""

import argparse
import shutil

from sandbox import demo, demo_local, setup
from sandbox.cache import cache_dir, remove_tree
from sandbox.cluster import Cluster
from sandbox.commands import Command
from sandbox.layout import STATE_ROOT
from sandbox.say import say

LOST_AND_FOUND = "lost+found"


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stack",
        choices=demo.STACKS,
        default=demo.STACKS[0],
        help="sandbox: train in one pod (default); sandbox-multipod: train in several pods",
    )


def _demo(arguments: argparse.Namespace) -> None:
    demo.up(arguments.stack)


def _demo_down(_: argparse.Namespace) -> None:
    demo.down()


def _demo_local_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--preset",
        default=demo_local.DEFAULT_PRESET,
        help="name of a file in trainer/presets (default: %(default)s)",
    )
    add(
        "--processes",
        type=int,
        default=0,
        help="number of ranks (default: one for each GPU, or 2 on the CPU)",
    )
    add(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="",
        help="where the ranks train (default: where the preset says)",
    )
    add(
        "--steps",
        type=int,
        default=0,
        help="number of steps (default: 300 for the default preset, else the preset's number)",
    )


def _demo_local(arguments: argparse.Namespace) -> None:
    demo_local.run(
        demo_local.Options(arguments.preset, arguments.processes, arguments.device, arguments.steps)
    )


def _env(_: argparse.Namespace) -> None:
    demo.print_environment()


def _clean_cache(_: argparse.Namespace) -> None:
    """Empty the cache, and the image stores of the clusters that are down.

    Either folder may be a disk of its own, with the file system's folder `lost+found` in it.
    """
    say(f"emptying {cache_dir()}")
    for path in cache_dir().iterdir():
        if path.is_dir() and not path.is_symlink():
            if path.name != LOST_AND_FOUND:
                remove_tree(path)
        else:
            path.unlink()
    for root in sorted(STATE_ROOT.glob("*")):
        if root.name == LOST_AND_FOUND:
            continue
        cluster = Cluster(root.name, None)
        if cluster.status().state == "down":
            for layout in (cluster.layout, *cluster.layout.further_nodes()):
                say(f"removing {layout.containerd_store}")
                shutil.rmtree(layout.containerd_store, ignore_errors=True)


PROJECT_COMMANDS = {
    "setup": Command(
        "install missing packages, virtual environments and tools", setup.run, setup.add_arguments
    ),
    "demo": Command("start a cluster, `pulumi up`, train, print a sample", _demo, _demo_arguments),
    "demo-down": Command("`pulumi destroy`, and stop the cluster; the data stays", _demo_down),
    "demo-local": Command(
        "the same training on this machine, without a cluster", _demo_local, _demo_local_arguments
    ),
    "env": Command(
        "print `export` lines, with which a shell runs pulumi and kubectl on the demo", _env
    ),
    "clean-cache": Command("empty the cache of tools, virtualenvs and images", _clean_cache),
}
