"""What a controller has to be known by to run as a process beside the programs of a cluster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.tools.tool import Tool


@dataclass(frozen=True)
class Place:
    """What a controller's command line needs to know of the node that it runs on.

    Args:
        programs: folder with its program and with the files of its module.
        address: the node's address, on which the sandbox asks whether the controller is ready.
        certificates: folder with `tls.crt` and `tls.key` for its webhooks. It is where a
            controller looks for them that is told nothing, because its TMPDIR is above it.
        config: the file that `Controller.configuration` is written to.
        kubeconfig: its way to the API server, which the variable KUBECONFIG names too.
    """

    programs: Path
    address: str
    certificates: Path
    config: Path
    kubeconfig: Path


@dataclass(frozen=True)
class Program:
    """A further program of a controller.

    Args:
        name: of its log and of its process.
        health_port: where it answers on the node's address that it is ready.
        command: its arguments.
    """

    name: str
    health_port: int
    command: Callable[[Place], tuple[str, ...]]


@dataclass(frozen=True)
class Controller:
    """A controller that is started where it is asked for.

    Args:
        name: of the choice `--with`, of its log and of its process.
        title: what people call it.
        tool: its program, with the folder of its module that holds the manifests.
        manifests: folders of kustomizations in the tool's folder, or files of objects.
        roles: names of the ClusterRoles that it works with.
        health_port: where it answers on the node's address that it is ready.
        webhook_port: where it answers the API server on 127.0.0.1; 0: it has no webhooks.
        command: its arguments.
        configuration: what its configuration file holds; None: it reads no such file.
        probe: an object that the API server takes once definitions and webhooks are ready. It is
            only tried.
        objects: what else it needs in the cluster.
        variables: of its process, beside the usual ones.
        certificates: a folder where it waits for its certificates, whatever it is told. It is
            made on the machine, and has them in the node's namespaces alone.
        definitions: names of those of its definitions that are made; empty: all of them.
        more_rules: rules of rights that each of its roles lacks.
        health_path: of the addresses that say that its programs are ready.
        beside: further programs, which have its rights and its configuration file.
    """

    name: str
    title: str
    tool: Tool
    manifests: tuple[str, ...]
    roles: tuple[str, ...]
    health_port: int
    webhook_port: int
    command: Callable[[Place], tuple[str, ...]]
    configuration: Callable[[Place], Mapping[str, Any]] | None
    probe: Mapping[str, Any]
    objects: tuple[dict[str, Any], ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    certificates: str = ""
    definitions: tuple[str, ...] = ()
    more_rules: tuple[dict[str, Any], ...] = ()
    health_path: str = "/readyz"
    beside: tuple[Program, ...] = ()

    @property
    def programs(self) -> tuple[Program, ...]:
        """All of its programs; the first one has its name."""
        return (Program(self.name, self.health_port, self.command), *self.beside)

    @property
    def user(self) -> str:
        """Name of its certificate's user, and of what gives it its rights."""
        return f"{self.name}-controller"
