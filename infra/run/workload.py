"""The training: the hand-over, the objects of the workload, and the wait until all ranks step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi
from pulumi_command import local

from infra.dependencies import child_options
from infra.kube.queues.await_queue import WAITS, queue_place
from infra.kube.runs.gone_pod import demanded
from infra.kube.runs.volume_line import VOLUME
from infra.kube_command import Connection, kube_command
from infra.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from infra.objects import KubernetesResource, kubernetes_object, uid_of
from infra.run.present_run import PresentRun
from infra.run.workload_hooks import (
    accepted_before_creation,
    hand_over_before_creation,
    replaced_is_gone_before_creation,
)
from infra.workloads.queue import in_its_queue
from infra.workloads.run import Run

HAND_OVER_SECONDS = 86400
"""The engine's time limit for a hand-over, in addition to the times of this run.

Only the task knows how long the pods of other stacks' runs may save, and it has a limit of its own
for each wait.
"""


@dataclass(frozen=True)
class WorkloadArgs:
    """What a training needs.

    Args:
        run: the run as a value.
        connection: how the tasks reach the cluster.
        gpus_total: the number of GPUs of the platform; 0 on CPU.
        when_busy: what to do when another run holds the platform.
        present: what the cluster said about the run when this command began.
        wait_seconds: the longest wait for another run to end, with `when_busy: wait`.
        training_timeout_seconds: the longest time until all ranks have stepped.
        pods_min: the smallest number of pods with which the training continues.
        platform_stack: the full name of the stack that owns the platform.
        ready_means: what messages say about a training whose pods are all ready; empty if all ranks
            have stepped then.
        former_namespaces: further namespaces in which the run may still be.
    """

    run: Run
    connection: Connection
    gpus_total: int
    when_busy: Literal["replace", "wait", "refuse"]
    present: pulumi.Output[PresentRun]
    wait_seconds: int
    training_timeout_seconds: int
    pods_min: int
    platform_stack: str
    ready_means: str
    former_namespaces: Sequence[str]


class Workload(pulumi.ComponentResource):
    """The objects that a kind of workload renders for a run.

    The hand-over comes first. It ends another run that holds the platform, or waits for its end,
    and it ends an older revision of this run. It waits until their pods have saved and are gone, so
    that two trainings never write to the folder of the same run.
    """

    workload_name: pulumi.Output[str]
    """The name of the Job, StatefulSet or other object."""
    uid: pulumi.Output[str]
    """The uid of that object."""
    volume_proof: pulumi.Output[str]
    """What the run's nodes have measured on the volume before the first step, or why that is not
    known."""
    queue_place: pulumi.Output[str]
    """What the run waited for in its queue, its place there, and who held the quota, and whether
    that was when this `up` began or when an `up` last waited for the run."""

    def __init__(
        self, name: str, args: WorkloadArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        run, kind = args.run, args.run.kind
        super().__init__("disttrain:infra:Workload", name, {"topology": kind.name}, opts)
        before = child_options(self, opts)
        if checks := self._checks(name, args, before):
            before = pulumi.ResourceOptions.merge(before, pulumi.ResourceOptions(depends_on=checks))
        hand_over = self._hand_over(name, args, before)
        workload = self._objects(name, run, hand_over)
        waited = self._await(name, args, workload)
        pods = run.world.pods
        self.volume_proof = waited.stdout.apply(lambda text: volume_proof(text, pods))
        queue = args.run.queue.get(QUEUE_LABEL, "")
        self.queue_place = pulumi.Output.all(waited.stdout, args.present.apply(_place_said)).apply(
            lambda texts: queue_place(texts[0], queue, texts[1])
        )
        self.uid = uid_of(workload)
        self.workload_name = pulumi.Output.from_input(run.workload_name)
        self.register_outputs(
            {
                "workloadName": self.workload_name,
                "uid": self.uid,
                "volumeProof": self.volume_proof,
                "queuePlace": self.queue_place,
            }
        )

    def _checks(
        self, name: str, args: WorkloadArgs, opts: pulumi.ResourceOptions
    ) -> list[pulumi.Resource]:
        """Register the checks that the cluster knows the kind of workload and the queue.

        They run before the hand-over. So no other run is suspended for a run that cannot start.
        """
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
            if level := args.run.placement.required_level:
                job["place"] = level
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
                "request": args.present.apply(lambda run: run.hand_over_request),
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

    def _objects(self, name: str, run: Run, hand_over: local.Command) -> KubernetesResource:
        """Register the objects that the kind renders, each after the one before.

        Returns:
            The workload, which is the last of them.
        """
        kind, rendered = run.kind, run.kind.render(run)
        assert rendered, f"{kind.name} renders no object"
        made_again = hand_over_before_creation(f"{name}-made-again", hand_over)
        of_workload = [replaced_is_gone_before_creation(f"{name}-replaced", hand_over)]
        if words := kind.refused_at_first:
            of_workload.append(accepted_before_creation(f"{name}-accepted", words, hand_over))
        *others, (role, manifest) = rendered
        after: list[pulumi.Resource] = [hand_over]
        for other_role, other in others:
            opts = pulumi.ResourceOptions(
                parent=self,
                depends_on=[*after],
                hooks=pulumi.ResourceHookBinding(before_create=[made_again]),
            )
            after.append(kubernetes_object(f"{name}-{other_role}", other, opts))
        ignored, replace_on = _ignored_and_replacing(run)
        return kubernetes_object(
            f"{name}-{role}",
            in_its_queue(run, manifest),
            pulumi.ResourceOptions(
                parent=self,
                depends_on=after,
                # Only the workload has pods, and they must be gone before the new ones start. The
                # objects that the workload names stay until it is gone: Trainer's webhook refuses
                # every change of a TrainJob without a runtime, and so also its end.
                delete_before_replace=True,
                replace_on_changes=replace_on,
                ignore_changes=ignored,
                hooks=pulumi.ResourceHookBinding(before_create=[made_again, *of_workload]),
            ),
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
                # If another run had replaced this one, `up` has to wait for this run's pods again.
                # If this run has failed, `up` has to report it. `request` changes in both cases.
                "request": args.present.apply(lambda run: run.hand_over_request),
                "timeout_seconds": args.training_timeout_seconds,
                **({"queue_seconds": queue_seconds} if queue_seconds else {}),
                **({"ready_means": args.ready_means} if args.ready_means else {}),
                # The wait may have to read on the volume how the run ended.
                **({"own": _own(run)} if run.ttl_seconds is not None else {}),
            },
            pulumi.ResourceOptions(parent=self, depends_on=[workload]),
            limit_seconds=args.training_timeout_seconds + queue_seconds,
        )


def _ignored_and_replacing(run: Run) -> tuple[list[str], list[str]]:
    """The fields of the workload whose changes the engine ignores, and those that replace it."""
    kind = run.kind
    ignored = list(kind.kept_in_previews) if pulumi.runtime.is_dry_run() else []
    replace_on = [] if ignored else list(kind.replace_on)
    if run.queue and kind.changed_by_kueue:
        ignored += kind.changed_by_kueue
        replace_on.append("metadata.labels")  # one of the labels is the revision
    return ignored, replace_on


def volume_proof(said: str, pods: int) -> str:
    """The text of the output `volumeProof`.

    Args:
        said: everything that the wait for the training has printed.
        pods: the number of pods of the run.
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


def _place_said(present: PresentRun) -> str:
    """Print what the run waits for in its queue, because no task does so in an unchanged `up`."""
    if WAITS in present.queue_place:
        pulumi.log.info(present.queue_place)
    return present.queue_place


def _ttl(run: Run) -> dict[str, object]:
    """Fields of the run's record for a workload that its controller removes after its end.

    They say how long after its end that is, and how a pod can read from the volume how it ended.
    """
    return {
        "seconds": run.ttl_seconds,
        "image": run.parts.image,
        "claim": run.parts.claim,
        "run_dir": run.run_dir,
        "placement": run.task_placement,
    }


def _own(run: Run) -> dict[str, object]:
    """What the pod gets that reads on the volume how the run ended (infra/kube/runs/gone_pod.py).

    The place where it may run is in the run's record.
    """
    return {
        "image": run.parts.image,
        "claim": run.parts.claim,
        "placement": demanded(run.task_placement),
    }


def _reference(run: Run) -> dict[str, str]:
    kind = run.kind
    return {"api_version": kind.api_version, "kind": kind.kind, "name": run.workload_name}
