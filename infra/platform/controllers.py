"""A controller that the platform installs, by a chart or by manifests, and takes away whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pulumi

from infra.controllers import CONTROLLERS
from infra.controllers.kind import ControllerKind, PinnedChart
from infra.controllers.kube_prometheus_stack import CLAIM, with_claim
from infra.controllers.manifests import DEFINITION, STAGES, stage
from infra.dependencies import dependencies
from infra.kube.controllers.apply_definitions import packed
from infra.kube.controllers.controller import Controller as KnownController
from infra.kube_command import Connection, kube_command
from infra.labels import CONTROLLER_LABEL, OWNER_LABEL, STACK_LABEL, content_hash, metadata
from infra.objects import NO_AWAIT, Manifest, helm_release, kubernetes_object
from infra.settings.controllers import ControllerSettings
from infra.settings.monitoring import NumbersClaim

LIMIT_SECONDS = 600
"""For the pull of the controller's image and its start."""
CLASS_SECONDS = 60
"""For the storage class of a k3s that this stack has just installed."""
# Fields that only some controllers have. They are left out of the jobs of the others, which then do
# not change and do not run again.
_RARE = ("made_by_itself", "leaves", "parts", "needs")


@dataclass(frozen=True)
class ControllerArgs:
    """A controller.

    Args:
        settings: which one, and where it comes from.
        connection: the cluster.
        stack: name of the stack, for people.
        numbers_claim: what Prometheus gets for its numbers; None: nothing, as other controllers.
        objects: of its manifests, in their order; empty: it comes by its chart.
    """

    settings: ControllerSettings
    connection: Connection
    stack: str
    objects: Sequence[Manifest] = ()
    numbers_claim: NumbersClaim | None = None

    @property
    def kind(self) -> ControllerKind:
        """What is known of it."""
        return CONTROLLERS[self.settings.name]


def known(kind: ControllerKind) -> KnownController:
    """What the tasks on the cluster have to know of a kind of controller."""
    needed = CONTROLLERS[kind.needs] if kind.needs else None
    return KnownController(
        kind.name,
        kind.title,
        kind.namespace,
        kind.definitions,
        kind.setting,
        kind.way_out,
        made_by_itself=kind.made_by_itself,
        leaves=kind.leaves,
        needs=(needed.name, needed.definitions[0]) if needed else None,
    )


def as_job(kind: ControllerKind) -> dict[str, Any]:
    """The controller as a field of a job, with the Deployments that have to be available."""
    fields = asdict(known(kind))
    told = {key: value for key, value in fields.items() if value or key not in _RARE}
    return {**told, "awaited": list(kind.awaited)}


def release_fields(args: ControllerArgs) -> dict[str, Any]:
    """The inputs of the Helm release.

    Nothing waits in Helm, which would say nothing but that its time is up: `open-controller` waits
    and says what the pods say.
    """
    kind, chart, claim = args.kind, args.settings.chart, args.numbers_claim
    assert isinstance(kind.source, PinnedChart), kind.name
    values = dict(kind.source.values)
    if claim is not None:
        values = with_claim(values, claim.gib, claim.class_name)
    return {
        "name": kind.name,
        "namespace": kind.namespace,
        "chart": chart or kind.source.pinned,
        "version": kind.version,
        "skipAwait": True,
        "timeout": LIMIT_SECONDS,
        "values": values,
    }


def parts_of(objects: Iterable[Manifest]) -> list[tuple[str, str, str]]:
    """API version, kind and name of what lies in no namespace; definitions are known anyway."""
    return [
        (item["apiVersion"], item["kind"], item["metadata"]["name"])
        for item in objects
        if "namespace" not in item["metadata"] and item["kind"] != DEFINITION
    ]


class Controller(pulumi.ComponentResource):
    """A Helm release, or the objects of manifests, in a namespace of its own.

    The order is: refuse a controller that somebody else has installed; make the namespace; install
    the chart, or make the objects; wait until the controller answers. `destroy` goes the other way:
    see that nobody else uses it or has anything in its namespace, and let what this stack has of
    its kinds end while it is there; take the controller away; take away the definitions and
    webhooks that are left; delete the namespace.
    """

    release_name: pulumi.Output[str]
    """Name of the controller, once it answers."""

    def __init__(
        self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        kind, connection = args.kind, args.connection
        super().__init__("disttrain:infra:Controller", name, {"version": kind.version}, opts)
        job, parts = {"controller": as_job(kind)}, parts_of(args.objects)
        claim = kube_command(
            f"{name}-claim",
            "claim-controller",
            connection,
            {"controller": {**job["controller"], "parts": parts}} if parts else job,
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        looked = [claim]
        if args.numbers_claim is not None:
            wanted = args.numbers_claim
            looked.append(
                kube_command(
                    f"{name}-storage",
                    "monitoring-claim",
                    connection,
                    {
                        "claim_namespace": kind.namespace,
                        "claim": CLAIM,
                        "class_name": wanted.class_name,
                        "gib": wanted.gib,
                        "class_seconds": 0 if connection.kubeconfig_is_path else CLASS_SECONDS,
                    },
                    pulumi.ResourceOptions(parent=self, depends_on=[claim]),
                )
            )
        about = metadata(
            kind.namespace, None, "controller", stack=args.stack, owner=connection.owner
        )
        namespace = kubernetes_object(
            f"{name}-namespace",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": about},
            pulumi.ResourceOptions(parent=self, depends_on=looked),
        )
        remains = kube_command(
            f"{name}-remains",
            "controller-remains",
            connection,
            job,
            pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
        )
        installed, identity = self._install(name, args, remains, *looked[1:])
        # What is installed is in the job, so that another version is waited for anew.
        answers = kube_command(
            f"{name}-open",
            "open-controller",
            connection,
            {**job, "probe": dict(kind.probe), "limit_seconds": LIMIT_SECONDS, **identity},
            pulumi.ResourceOptions(parent=self, depends_on=installed),
            limit_seconds=LIMIT_SECONDS,
        )
        self.release_name = answers.stdout.apply(lambda _: kind.name)
        self.register_outputs({"releaseName": self.release_name})

    def _install(
        self, name: str, args: ControllerArgs, *after: pulumi.Resource
    ) -> tuple[list[pulumi.Resource], Mapping[str, Any]]:
        """Install the controller.

        Returns:
            What the next steps wait for, and what the controller was made of.
        """
        if args.kind.files:
            made = self._make_objects(name, args, *after)
            return made, {"manifests": content_hash(args.objects)}
        fields = release_fields(args)
        opts = pulumi.ResourceOptions(parent=self, depends_on=[*after])
        return [helm_release(f"{name}-release", fields, opts)], {"release": fields}

    def _make_objects(
        self, name: str, args: ControllerArgs, *after: pulumi.Resource
    ) -> list[pulumi.Resource]:
        """Make the objects stage by stage; `destroy` removes them in the reverse order.

        The definitions are one command: see infra/kube/controllers/apply_definitions.py.
        """
        definitions = [item for item in args.objects if item["kind"] == DEFINITION]
        assert definitions, name
        known = kube_command(
            f"{name}-definitions",
            "apply-definitions",
            args.connection,
            {"definitions": packed(definitions)},
            pulumi.ResourceOptions(parent=self, depends_on=[*after]),
        )
        made: list[pulumi.Resource] = [*after, known]
        for number in range(1, STAGES):
            opts = pulumi.ResourceOptions(parent=self, depends_on=[*made])
            made += [
                kubernetes_object(_role(name, item), _ours(item, args), opts)
                for item in args.objects
                if stage(item) == number
            ]
        return made


def _role(name: str, manifest: Manifest) -> str:
    return f"{name}-{manifest['kind'].lower()}-{manifest['metadata']['name']}"


def _ours(manifest: Manifest, args: ControllerArgs) -> Manifest:
    """The object with the labels by which it is known to be of this stack.

    Nothing waits in the provider: `open-controller` waits and says what the pods say.
    """
    about = dict(manifest["metadata"])
    marks = {
        STACK_LABEL: args.stack,
        OWNER_LABEL: args.connection.owner,
        CONTROLLER_LABEL: args.kind.name,
    }
    about["labels"] = {**about.get("labels", {}), **marks}
    about["annotations"] = {**about.get("annotations", {}), **NO_AWAIT}
    return {**manifest, "metadata": about}
