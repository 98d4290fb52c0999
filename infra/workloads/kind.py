"""What a kind of workload is: how the pods of a run come about in Kubernetes."""

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
        api_version: of the workload object, such as `batch/v1`.
        kind: of the workload object, such as `Job`.
        object_name: name of the workload object, before the run's `instance` is added.
        several_pods: whether the setting `pods` counts; otherwise there is one pod.
        render: role in the stack and manifest of each object, in the order of creation; the last
            one is the workload. The pod template must be `run.template`.
        rendezvous: variables by which the ranks find each other.
        suspend: merge patch for the workload that ends its pods, which save first. Or, for a kind
            whose controller carries out commands, `command` and the `phases` that it leads to.
        resume: merge patch that undoes `suspend`, or the command that does.
        done: types of the workload's conditions that mean success.
        failed: types of the workload's conditions that mean failure.
        queued: whether a queue of Kueue can hold it back, by the field that suspends it.
        no_ttl_because: why the setting `ttlSecondsAfterFinished` cannot be used with it, as the end
            of the sentence "topology is ..., and ...". Empty: `render` sets `run.ttl`, by which the
            controller removes the workload some time after its end.
        replace_on: paths of the workload whose change makes a new workload.
        kept_in_previews: paths of the workload that a preview leaves as they are, so that it shows
            an update where `pulumi up` makes a new workload. For kinds whose controller refuses
            what the provider does in a preview: it tries the new workload out on the old one.
        changed_by_kueue: paths of the workload that Kueue changes when a run in a queue gets its
            place, as by the tolerations of its flavor. In a queue they are left as they are while
            the workload is the same one; with another revision it is another one. Empty: nothing of
            the workload changes in its place.
        longest_instance: how many characters the setting `instance` may have.
        refused_at_first: words in refusals of a workload by controllers that have not seen the
            objects that `render` names before it, in which `{name}` is the name of the workload;
            `pulumi up` waits while it is refused so. Empty: no controller looks at them before the
            workload is made.
        otherwise: why the kind cannot be used on a cluster that does not serve `api_version` with
            `kind`, and what to do then; empty: every cluster serves it.
        container: name of the pods' container; a controller may know it by its name alone.
        options: dataclass of the keys that `topologyOptions` may hold.
        queue_of_its_own: name of the queue of the kind's own controller that a run stands in;
            empty: it has none.
        programs: what commands do with objects beside the workload: API group, plural name and
            verbs.
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
        """What asks for this kind, for messages."""
        return f"topology: {self.name!r}"
