"""Commands of a stack that act on its cluster by the Kubernetes API: programs of infra.kube."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_command import local

# Relative to the project's folder, where commands run: another checkout has its own.
PYTHON = ".venv/bin/python"


@dataclass(frozen=True)
class Connection:
    """How the programs reach the cluster, and for whom they act.

    Args:
        kubeconfig: its text, or its path on this machine.
        kubeconfig_is_path: which of the two.
        context: context of the kubeconfig; empty: its current one.
        namespace: Kubernetes namespace of the platform.
        stack: full name of this stack, for people.
        owner: identifies the state of this stack.
        is_gone: the cluster is lost with its host: nothing is asked or removed there any more.
        generation: another text when the cluster has become another one, in which every program
            has to run again.
    """

    kubeconfig: pulumi.Output[str]
    kubeconfig_is_path: bool
    context: str
    namespace: str
    stack: str
    owner: pulumi.Output[str]
    is_gone: bool = False
    generation: pulumi.Input[str] = ""

    @property
    def job(self) -> dict[str, Any]:
        """The fields that every program of infra.kube reads."""
        return {
            "kubeconfig_path" if self.kubeconfig_is_path else "kubeconfig": self.kubeconfig,
            "context": self.context,
            "namespace": self.namespace,
            "stack": self.stack,
            "owner": self.owner,
            "generation": self.generation,
        }


def kube_command(
    name: str,
    task: str,
    connection: Connection,
    job: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
    *,
    limit_seconds: int = 300,
    program: str = "infra.kube",
) -> local.Command:
    """Register a command that runs `python -m infra.kube <task> create`, and later `delete`.

    Args:
        name: name of the resource.
        task: program of infra.kube.
        connection: the cluster.
        job: further fields for the program; a change of any of them runs `create` again.
        opts: parent and dependencies.
        limit_seconds: the program ends by itself before; the engine gives up a minute later.
        program: another Python module that takes the same two words.
    """
    ours = pulumi.ResourceOptions(
        delete_before_replace=True,
        # A lost cluster: the command stays as it is in the state, and nothing is run.
        ignore_changes=["stdin"] if connection.is_gone else None,
        retain_on_delete=connection.is_gone or None,
        custom_timeouts=pulumi.CustomTimeouts(
            create=f"{limit_seconds + 60}s",
            update=f"{limit_seconds + 60}s",
            delete=f"{limit_seconds + 60}s",
        ),
    )
    words = f"{PYTHON} -m {program} {task}"
    return local.Command(
        name,
        create=f"{words} create",
        delete=f"{words} delete",
        # It holds the kubeconfig, so it goes by standard input and is a secret of the state.
        stdin=pulumi.Output.secret(pulumi.Output.json_dumps({**connection.job, **job})),
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions.merge(opts, ours),
    )
