"""The data volume: the objects of the chosen kind of storage, with the claim that pods mount."""

import json
from dataclasses import dataclass

import pulumi
from pulumi_command import local

from infra.dependencies import dependencies
from infra.kube.names import PURGES_ANNOTATION
from infra.kube_command import Connection, kube_command
from infra.labels import metadata
from infra.objects import Manifest, kubernetes_object
from infra.storages.kind import Storage
from infra.task_in_hook import run_in_hook

COMPONENT = "storage"


@dataclass(frozen=True)
class DataVolumeArgs:
    """What the volume needs.

    Args:
        storage: the storage of the chosen kind, with its objects.
        stack: name of the stack.
        connection: how the cluster is reached, and who owns the volume.
        namespace_uid: the uid of the namespace. If it changes, the claim is a new one too.
        keeps_claim: whether `pulumi destroy` leaves the claim in the cluster. The next `up` uses it
            again.
        purges: what `pulumi destroy` has to purge: `folder`, `claim`, or nothing. It is written on
            the claim as an annotation.
        has_data_folder: whether the stack registers a command of the data folder, see
            `has_data_folder` of host.py. If it does not, this `up` deletes the command of an
            earlier `up`, and that may purge the folder.
    """

    storage: Storage
    stack: str
    connection: Connection
    namespace_uid: pulumi.Output[str]
    keeps_claim: bool
    purges: str
    has_data_folder: bool


class DataVolume(pulumi.ComponentResource):
    """The volume's objects, and the tasks that come before them.

    Deleting this component does not touch the data.
    """

    def __init__(
        self, name: str, args: DataVolumeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:DataVolume", name, {}, opts)
        storage, after = args.storage, dependencies(opts)
        asked = {
            "claim": storage.claim,
            "namespace_uid": args.namespace_uid,
            **({} if args.has_data_folder else {"has_data_folder": False}),
        }

        def options(*, kept: bool = False) -> pulumi.ResourceOptions:
            return pulumi.ResourceOptions(
                parent=self, depends_on=[*after], retain_on_delete=kept or None
            )

        def run_first(role: str, task: str, **more: object) -> local.Command:
            job = {**asked, **more}
            command = kube_command(f"{name}-{role}", task, args.connection, job, options())
            after.append(command)
            return command

        freed = None
        if storage.volume:
            freeing = run_first("look", "free-volume", volume=storage.volume)
            freed = _freed_before_claim(f"{name}-volume-freed", freeing)
        if storage.data_go_with_claim:
            run_first(
                "keep",
                "keep-claim",
                class_name=storage.class_name,
                access_mode=storage.access_mode,
                size=storage.size,
                kept=args.keeps_claim,
            )
        elif not storage.objects:
            run_first("use", "use-claim")
        for role, manifest in storage.objects:
            opts = options(kept=args.keeps_claim)
            if manifest["kind"] == "PersistentVolumeClaim":
                opts.hooks = freed
            after.append(kubernetes_object(f"{name}-{role}", labelled(manifest, args), opts))
        self.register_outputs({})


def labelled(manifest: Manifest, args: DataVolumeArgs) -> Manifest:
    """The manifest with the labels of this stack. A claim also says what is purged with it."""
    given = manifest["metadata"]
    ours = metadata(given["name"], None, COMPONENT, stack=args.stack, owner=args.connection.owner)
    more = {"labels": {**ours["labels"], **given.get("labels", {})}}
    if args.purges and manifest["kind"] == "PersistentVolumeClaim":
        more["annotations"] = {**given.get("annotations", {}), PURGES_ANNOTATION: args.purges}
    return {**manifest, "metadata": {**ours, **given, **more}}


def _freed_before_claim(name: str, freeing: local.Command) -> pulumi.ResourceHookBinding:
    """Make the hook of the claim, which frees the claim's volume.

    A volume stays reserved for the claim that it was bound to, by that claim's uid. If somebody has
    deleted the claim, the engine makes it again after `pulumi refresh`. Then the command of the
    task `free-volume` has run in an earlier `up`, and does not run again, because its job has not
    changed. So the hook runs the task once more. It also runs before an update of the claim, by
    which the engine tries once more to get a claim bound that an earlier `up` has made.

    Args:
        name: name of the hook, which no other hook of the stack has.
        freeing: the command of the task `free-volume`, whose standard input the hook uses again.

    Raises:
        RuntimeError: raised by the hook if the task fails. The claim is not made then.
    """

    async def before_claim(_: pulumi.ResourceHookArgs) -> None:
        await run_in_hook("free-volume", json.loads(await freeing.stdin.future() or "{}"))

    hook = pulumi.ResourceHook(name, before_claim)
    return pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])
