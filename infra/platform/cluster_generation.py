"""A mark that is replaced when the cluster becomes another one, and what is replaced with it."""

from collections.abc import Sequence

import pulumi
from pulumi_command import local

from infra.kube_command import PYTHON


class ClusterGeneration:
    """Lets one `pulumi up` make anew what lay in a cluster that was wiped or is on another host.

    The engine believes that the objects are still there. It replaces them because they name the
    mark in `replace_with`, and deletes them first. If they also name, in `deleted_with`, a command
    that is replaced together with the mark, no cluster is asked to delete them. Otherwise the
    engine looks for them in the new cluster, and does not find them there.

    The mark cannot be the command that installs the cluster. The engine skips the deletion of what
    goes with a resource only if it deletes that resource because of another one.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
        *,
        is_unknown: bool = False,
    ) -> None:
        """Register the mark.

        Args:
            name: of the resource.
            parts: texts that tell one cluster from the next. Another one means that the cluster is
                another one, with nothing of ours in it.
            opts: parent and dependencies.
            is_unknown: the texts cannot be had now; the cluster is taken for the one of before.
        """
        ours = pulumi.ResourceOptions(
            delete_before_replace=True, ignore_changes=["triggers"] if is_unknown else None
        )
        self._mark = local.Command(
            name,
            create=f"{PYTHON} -c pass",
            triggers=[*parts],
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions.merge(opts, ours),
        )

    @property
    def identity(self) -> pulumi.Output[str]:
        """Another text for each cluster; unknown in a preview that replaces the mark."""
        return self._mark.id

    @property
    def options(self) -> pulumi.ResourceOptions:
        """Options of components whose Kubernetes objects are replaced with the mark."""
        return pulumi.ResourceOptions(transformations=[self._replaced_with_mark])

    def _replaced_with_mark(
        self, args: pulumi.ResourceTransformationArgs
    ) -> pulumi.ResourceTransformationResult | None:
        if not args.type_.startswith("kubernetes:"):
            return None
        with_mark = pulumi.ResourceOptions(replace_with=[self._mark])
        return pulumi.ResourceTransformationResult(
            args.props, pulumi.ResourceOptions.merge(args.opts, with_mark)
        )
