"""Pulumi commands that run the programs of infra.kube.

These programs act on the stack's cluster through the Kubernetes API.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_command import local

# The path is relative to the project's folder, in which commands run. So the recorded commands are
# the same in every checkout.
PYTHON = ".venv/bin/python"


@dataclass(frozen=True)
class Connection:
    """How the programs of infra.kube reach the cluster, and for which stack they act.

    Args:
        kubeconfig: the kubeconfig's text, or its path on this machine.
        kubeconfig_is_path: whether `kubeconfig` is a path.
        context: the context of the kubeconfig; empty for its current context.
        namespace: the Kubernetes namespace of the platform.
        stack: the full name of this stack, for messages.
        owner: the random identity of this stack's state (component `Owner`).
        is_gone: whether the cluster is lost together with its host. Then no program sends requests
            to the cluster or removes anything there.
        generation: a text that changes when the cluster was replaced by a new one, in which every
            program has to run again.
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
        """The fields of a job that every program of infra.kube reads."""
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
        name: the name of the resource.
        task: the program of infra.kube.
        connection: how the program reaches the cluster.
        job: further fields for the program; if one of them changes, `create` runs again.
        opts: parent and dependencies.
        limit_seconds: the time within which the program ends by itself. The engine gives up one
            minute later.
        program: the Python module to run. A module other than infra.kube has to take the same two
            arguments.
    """
    ours = pulumi.ResourceOptions(
        delete_before_replace=True,
        # If the cluster is lost, the command stays unchanged in the state, and nothing is run.
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
        # The job contains the kubeconfig, so it is sent on standard input and is a secret in the
        # stack's state.
        stdin=pulumi.Output.secret(pulumi.Output.json_dumps({**connection.job, **job})),
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions.merge(opts, ours),
    )
