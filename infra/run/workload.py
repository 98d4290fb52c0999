"""The training: hand-over, the objects of the chosen kind, and the wait until all ranks step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi
from pulumi_command import local

from infra.dependencies import dependencies
from infra.kube.queues.await_queue import queue_place
from infra.kube.runs.volume_line import VOLUME
from infra.kube_command import Connection, kube_command
from infra.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from infra.objects import KubernetesResource, kubernetes_object, uid_of
from infra.run.accepted import accepted_before_creation
from infra.run.made_again import hand_over_before_creation
from infra.run.replaced import replaced_is_gone_before_creation
from infra.workloads.queue import in_its_queue
from infra.workloads.run import Run

HAND_OVER_SECONDS = 86400
"""How long the engine lets a hand-over wait for others, beside the times of this run. How long the
pods of other stacks' runs may save is known to the task alone, which has a limit for each wait."""


@dataclass(frozen=True)
class WorkloadArgs:
    """What a training needs.

    Args:
        run: the run as a value.
        connection: the cluster.
        gpus_total: GPUs of the platform; 0 on CPU.
        when_busy: what to do when another run holds the platform.
        request: changes when this run is to be taken up again, because another one replaced it.
        wait_seconds: longest wait for another run to end, with `when_busy: wait`.
        training_timeout_seconds: longest time until all ranks have stepped.
        pods_min: with so many pods the training goes on.
        platform_stack: full name of the stack that owns the platform.
        ready_means: what it says of a training that all of its pods are ready.
        former_namespaces: in which the run may still be.
    """

    run: Run
    connection: Connection
    gpus_total: int
    when_busy: Literal["replace", "wait", "refuse"]
    request: pulumi.Output[str]
    wait_seconds: int
    training_timeout_seconds: int
    pods_min: int
    platform_stack: str
    ready_means: str = ""
    former_namespaces: Sequence[str] = ()


class Workload(pulumi.ComponentResource):
    """The objects that a kind of workload renders for a run.

    The hand-over comes first: it ends or waits for another run that holds the platform, and an
    older revision of this one. It waits until their pods have saved and are gone, so that two
    trainings never write the same run.
    """

    workload_name: pulumi.Output[str]
    """Name of the Job, StatefulSet or other object."""
    uid: pulumi.Output[str]
    """Identifies that object."""
    volume_proof: pulumi.Output[str]
    """What its nodes have measured on the volume before the first step, or why it is not known."""
    queue_place: pulumi.Output[str]
    """What it waited for in its queue when `up` ended, at which place, and who held the quota."""

    def __init__(
        self, name: str, args: WorkloadArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        run, kind = args.run, args.run.kind
        super().__init__("disttrain:infra:Workload", name, {"topology": kind.name}, opts)
        before = pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts))
        look = self._look(name, args, before)
        if look:
            before = pulumi.ResourceOptions.merge(before, pulumi.ResourceOptions(depends_on=look))
        hand_over = self._hand_over(name, args, before)
        after: list[pulumi.Resource] = [hand_over]
        made_again = hand_over_before_creation(f"{name}-made-again", hand_over)
        of_workload = [replaced_is_gone_before_creation(f"{name}-replaced", hand_over)]
        if words := kind.refused_at_first:
            of_workload.append(accepted_before_creation(f"{name}-accepted", words, hand_over))
        rendered = kind.render(run)
        assert rendered, f"{kind.name} renders no object"
        made: list[KubernetesResource] = []
        kept = list(kind.kept_in_previews) if pulumi.runtime.is_dry_run() else []
        replace_on = [] if kept else list(kind.replace_on)
        if run.queue and kind.changed_by_kueue:
            kept += kind.changed_by_kueue
            replace_on.append("metadata.labels")  # the revision is among them
        for role, manifest in rendered:
            is_workload = manifest is rendered[-1][1]
            resource = kubernetes_object(
                f"{name}-{role}",
                in_its_queue(run, manifest) if is_workload else manifest,
                pulumi.ResourceOptions(
                    parent=self,
                    depends_on=[*after],
                    # Only the workload has pods, which must have gone before the new ones come.
                    # What it names stays until it has gone: Trainer's webhook refuses each change
                    # of a TrainJob without a runtime, and so its end.
                    delete_before_replace=is_workload or None,
                    replace_on_changes=replace_on if is_workload else None,
                    ignore_changes=kept if is_workload else None,
                    hooks=pulumi.ResourceHookBinding(
                        before_create=[made_again, *(of_workload if is_workload else [])]
                    ),
                ),
            )
            made.append(resource)
            after.append(resource)
        waited = self._await(name, args, made[-1])
        pods = run.world.pods
        self.volume_proof = waited.stdout.apply(lambda text: volume_proof(text, pods))
        queue = args.run.queue.get(QUEUE_LABEL, "")
        self.queue_place = waited.stdout.apply(lambda text: queue_place(text, queue))
        self.uid = uid_of(made[-1])
        self.workload_name = pulumi.Output.from_input(run.workload_name)
        self.register_outputs(
            {
                "workloadName": self.workload_name,
                "uid": self.uid,
                "volumeProof": self.volume_proof,
                "queuePlace": self.queue_place,
            }
        )

    def _look(
        self, name: str, args: WorkloadArgs, opts: pulumi.ResourceOptions
    ) -> list[pulumi.Resource]:
        """Refuses a cluster that does not know the kind or the queue, before another run makes
        place for it."""
        kind, queue = args.run.kind, args.run.queue
        found: list[pulumi.Resource] = []
        if kind.otherwise:
            job = {
                "group_version": kind.api_version,
                "served_kind": kind.kind,
                "setting": kind.setting,
                "otherwise": kind.otherwise,
            }
            found.append(kube_command(f"{name}-look", "served", args.connection, job, opts))
        if queue:
            job = {"queue": queue[QUEUE_LABEL], "priority": queue.get(QUEUE_PRIORITY_LABEL, "")}
            if place := args.run.placement.one_place:
                job["place"] = place
            found.append(kube_command(f"{name}-queue", "queue", args.connection, job, opts))
        if own_queue := kind.queue_of_its_own(args.run):
            after = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=found))
            job = {"volcano_queue": own_queue}
            found.append(kube_command(f"{name}-queue", "queue", args.connection, job, after))
        return found

    def _hand_over(
        self, name: str, args: WorkloadArgs, opts: pulumi.ResourceOptions
    ) -> local.Command:
        run, kind = args.run, args.run.kind
        return kube_command(
            f"{name}-hand-over",
            "hand-over",
            args.connection,
            {
                "workload": _reference(run),
                "run": run.name,
                "revision": run.revision,
                "gpus": run.world.gpus,
                "gpus_total": args.gpus_total,
                "suspend": kind.suspend(run),
                "resume": kind.resume(run),
                "done": list(kind.done),
                "failed": list(kind.failed),
                "when_busy": args.when_busy,
                "request": args.request,
                "grace_seconds": run.grace_seconds,
                "wait_timeout_seconds": args.wait_seconds,
                "platform_stack": args.platform_stack,
                **(
                    {"former_namespaces": list(former)}
                    if (former := args.former_namespaces)
                    else {}
                ),
                **({"queue": run.queue[QUEUE_LABEL]} if run.queue else {}),
                **({"ttl": _ttl(run)} if run.ttl_seconds is not None else {}),
            },
            opts,
            limit_seconds=HAND_OVER_SECONDS + run.grace_seconds + args.wait_seconds,
        )

    def _await(self, name: str, args: WorkloadArgs, workload: KubernetesResource) -> local.Command:
        run, kind = args.run, args.run.kind
        queue_seconds = args.wait_seconds if run.queue else 0
        return kube_command(
            f"{name}-await",
            "await",
            args.connection,
            {
                "workload": _reference(run),
                "uid": uid_of(workload),
                "revision": run.revision,
                "pods": run.world.pods,
                "pods_min": args.pods_min,
                "done": list(kind.done),
                "failed": list(kind.failed),
                # After another run had replaced this one, its pods have to be waited for again, and
                # after this one has failed, `up` has to say so.
                "request": args.request,
                "timeout_seconds": args.training_timeout_seconds,
                **({"queue_seconds": queue_seconds} if queue_seconds else {}),
                **({"ready_means": args.ready_means} if args.ready_means else {}),
            },
            pulumi.ResourceOptions(parent=self, depends_on=[workload]),
            limit_seconds=args.training_timeout_seconds + queue_seconds,
        )


def volume_proof(said: str, pods: int) -> str:
    """What the output `volumeProof` says.

    Args:
        said: all that the wait for the training has printed.
        pods: of the run.
    """
    if pods == 1:
        return "one pod writes to the volume, so nothing was compared between nodes"
    lines = [line for line in said.splitlines() if line.startswith(VOLUME)]
    if lines:
        return lines[-1].removeprefix(VOLUME)
    return (
        "not known yet: pulumi up did not wait for the first step; once the run trains, "
        "./disttrain verify shows it"
    )


def _ttl(run: Run) -> dict[str, object]:
    """For the run's record: when its workload goes, and how its end is read from the volume."""
    return {
        "seconds": run.ttl_seconds,
        "image": run.parts.image,
        "claim": run.parts.claim,
        "run_dir": run.run_dir,
        "placement": run.task_placement,
    }


def _reference(run: Run) -> dict[str, str]:
    kind = run.kind
    return {"api_version": kind.api_version, "kind": kind.kind, "name": run.workload_name}
