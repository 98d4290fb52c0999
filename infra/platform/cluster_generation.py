"""Replaces all objects of a stack when their cluster has become another cluster."""

from collections.abc import Sequence

import pulumi
from pulumi_command import local

from infra.kube_command import PYTHON


class ClusterGeneration:
    """Lets one `pulumi up` make all objects anew in a cluster that replaces another.

    That happens when k3s was wiped, or has moved to another host. The engine believes that the
    objects are still there. This class registers a command that does nothing, the generation
    command, which the engine replaces when the cluster is another one. The engine replaces the
    objects with it, because they name it in `replace_with`, and deletes the old ones first. If they
    also name, in `deleted_with`, a command that is replaced together with the generation command,
    the engine asks no cluster to delete them. Otherwise it looks for them in the new cluster, and
    does not find them there.

    The command that installs the cluster cannot be the generation command itself. The engine skips
    the deletion of the objects that name a resource in `deleted_with` only if it deletes that
    resource because of another resource.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
        *,
        is_unknown: bool = False,
    ) -> None:
        """Register the generation command.

        Args:
            name: name of the resource.
            parts: texts that identify the cluster. If one of them changes, the cluster is another
                one, with no objects of this stack in it.
            opts: parent and dependencies of the resource.
            is_unknown: whether the texts are not known now, because the host does not answer. Then
                the cluster counts as the same as before.
        """
        ours = pulumi.ResourceOptions(
            delete_before_replace=True, ignore_changes=["triggers"] if is_unknown else None
        )
        self._command = local.Command(
            name,
            create=f"{PYTHON} -c pass",
            triggers=[*parts],
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions.merge(opts, ours),
        )

    @property
    def identity(self) -> pulumi.Output[str]:
        """A text that differs for each cluster; unknown in a preview that replaces the command."""
        return self._command.id

    @property
    def options(self) -> pulumi.ResourceOptions:
        """Options for components whose Kubernetes objects are replaced with the command."""
        return pulumi.ResourceOptions(transformations=[self._replaced_with_command])

    def _replaced_with_command(
        self, args: pulumi.ResourceTransformationArgs
    ) -> pulumi.ResourceTransformationResult | None:
        if not args.type_.startswith("kubernetes:"):
            return None
        with_command = pulumi.ResourceOptions(replace_with=[self._command])
        return pulumi.ResourceTransformationResult(
            args.props, pulumi.ResourceOptions.merge(args.opts, with_command)
        )
