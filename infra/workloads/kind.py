"""Defines a kind of workload: the Kubernetes objects that create the pods of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from infra.names import TRAINER_CONTAINER
from infra.objects import Manifest
from infra.registry import NoOptions

if TYPE_CHECKING:
    from infra.workloads.run import Run


@dataclass(frozen=True)
class WorkloadKind:
    """One choice of the setting `topology`.

    Args:
        name: the value of the setting.
        api_version: the API version of the workload object, such as `batch/v1`.
        kind: the Kubernetes kind of the workload object, such as `Job`.
        object_name: the name of the workload object, before the run's `instance` is added.
        several_pods: whether the setting `pods` is used; otherwise there is one pod.
        render: returns a name for the stack and the manifest of each object, in the order of
            creation. The last object is the workload. The pod template must be `run.template`.
        rendezvous: returns the environment variables by which the ranks find each other.
        suspend: returns a merge patch for the workload that ends its pods, which save first. If the
            kind's controller carries out commands instead, it returns the `command`, and the
            `phases` to which the command leads.
        resume: returns the merge patch, or the command, that undoes `suspend`.
        done: the types of the workload's conditions that mean success.
        failed: the types of the workload's conditions that mean failure.
        queued: whether a queue of Kueue can hold the workload back, through the field that suspends
            the workload.
        no_ttl_because: why the setting `ttlSecondsAfterFinished` cannot be used with this kind, as
            the end of the sentence "topology is ..., and ...". Empty if `render` sets `run.ttl`, by
            which the controller removes the workload some time after its end.
        replace_on: fields of the workload. If one of them changes, the engine replaces the
            workload by a new one.
        kept_in_previews: fields of the workload whose change a preview ignores, so that it shows an
            update where `pulumi up` makes a new workload. They are for kinds whose controller
            refuses the provider's dry run of the new workload on the old one.
        changed_by_kueue: fields of the workload that Kueue changes when it admits a run, for
            example because its flavor has tolerations. For a run in a queue, the engine ignores
            changes of these fields, and replaces the workload if its revision changes. Empty if
            Kueue changes no field of this kind's workload.
        longest_instance: the largest number of characters that the setting `instance` may have.
        child_ending: the ending of an object's name that can make it the name of another run's
            object, as a regular expression. The controller makes an object whose name is the
            workload's name with this ending added. An object of the same kind that belongs to
            another run could have that name too, so an `instance` with this ending is refused.
            Empty if this cannot happen.
        refused_at_first: parts of the messages by which a controller refuses a workload because it
            has not yet seen the other objects that `render` makes; `{name}` stands for the name of
            the workload. `pulumi up` waits as long as the workload is refused for such a reason.
            Empty if no controller checks these objects before the workload is made.
        otherwise: why the kind cannot be used on a cluster that does not serve `api_version` with
            `kind`, and what to do then; empty if every cluster serves it.
        container: the name of the pods' container. Some controllers require a certain name.
        options: the dataclass whose fields are the keys that `topologyOptions` may have.
        queue_of_its_own: returns the name of the run's queue, if the kind's own controller has
            queues; otherwise an empty text.
        programs: the rights that programs need for objects other than the workload: API group,
            plural name and verbs.
    """

    name: str
    api_version: str
    kind: str
    object_name: str
    several_pods: bool
    render: Callable[[Run], list[tuple[str, Manifest]]]
    rendezvous: Callable[[Run], Mapping[str, str]]
    suspend: Callable[[Run], dict[str, Any]]
    resume: Callable[[Run], dict[str, Any]]
    done: tuple[str, ...] = ("Complete",)
    failed: tuple[str, ...] = ("Failed",)
    replace_on: tuple[str, ...] = field(default=())
    kept_in_previews: tuple[str, ...] = ()
    changed_by_kueue: tuple[str, ...] = ()
    longest_instance: int = 30
    child_ending: str = ""
    refused_at_first: tuple[str, ...] = ()
    otherwise: str = ""
    container: str = TRAINER_CONTAINER
    queued: bool = False
    no_ttl_because: str = "this topology sets no time after which its workload is removed"
    options: type = NoOptions
    queue_of_its_own: Callable[[Run], str] = field(default=lambda run: "")
    programs: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    @property
    def setting(self) -> str:
        """The setting that chooses this kind, as messages show it."""
        return f"topology: {self.name!r}"
