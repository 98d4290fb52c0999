"""What the sandbox has to know of a controller to run it as a process beside a cluster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.tools.tool import Tool


@dataclass(frozen=True)
class Place:
    """What a controller's command line needs to know of the node that it runs on.

    Args:
        programs: folder with the controller's program and with the files of its module.
        address: the node's address, on which the sandbox asks whether the controller is ready.
        certificates: folder with `tls.crt` and `tls.key` for the webhooks. A controller without
            an option for it looks there by default, because its TMPDIR is above this folder.
        config: the file to which `Controller.configuration` is written.
        kubeconfig: the kubeconfig for the controller, which the variable KUBECONFIG names too.
    """

    programs: Path
    address: str
    certificates: Path
    config: Path
    kubeconfig: Path


@dataclass(frozen=True)
class Program:
    """A program of a controller.

    Args:
        name: the name of the program's log and of its process.
        health_port: the port of the node's address at which it answers whether it is ready.
        command: a function that gives its command line.
    """

    name: str
    health_port: int
    command: Callable[[Place], tuple[str, ...]]


@dataclass(frozen=True)
class Controller:
    """A controller that a cluster of the sandbox can have.

    Args:
        name: the name for the option `--with`, of the controller's log and of its process.
        title: the name for people.
        tool: the controller's program, with the folder of its module that holds the manifests.
        manifests: folders of kustomizations in the tool's folder, or files of objects.
        roles: names of the ClusterRoles that the controller needs.
        health_port: the port of the node's address at which it answers whether it is ready.
        webhook_port: the port of 127.0.0.1 at which it answers the API server; 0: it has no
            webhooks.
        command: a function that gives its command line.
        configuration: a function that gives the content of its configuration file; None: it reads
            no such file.
        probe: an object that the API server accepts once definitions and webhooks are ready. It is
            sent as a dry run, so it is never made.
        objects: further objects that the controller needs in the cluster.
        variables: environment variables of its process, beside the usual ones.
        certificates: a folder whose path is fixed in the program, and in which it waits for its
            certificates. The folder is made on the machine; the certificates are visible in it
            only in the node's namespaces. Empty: there is no such folder.
        definitions: names of the resource definitions to make; empty: all of the manifests'.
        more_rules: rules (RBAC) that are added to each of its roles, because they lack them.
        health_path: the HTTP path at which its programs answer whether they are ready.
        beside: further programs, which have the same rights and configuration file.
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
        """All programs of the controller; the first one has the controller's name."""
        return (Program(self.name, self.health_port, self.command), *self.beside)

    @property
    def user(self) -> str:
        """Name of the certificate's user; the names of its role bindings begin with it."""
        return f"{self.name}-controller"
