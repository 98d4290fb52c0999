"""Installs a controller in the cluster, from a chart or manifests, and removes it completely."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pulumi

from infra.controllers import CONTROLLERS
from infra.controllers.kind import ControllerKind, PinnedChart
from infra.controllers.kube_prometheus_stack import CLAIM, with_claim
from infra.controllers.manifests import DEFINITION, STAGES, stage
from infra.dependencies import child_options
from infra.kube.controllers.apply_definitions import packed
from infra.kube.controllers.controller import Controller as ControllerForTasks
from infra.kube_command import Connection, kube_command
from infra.labels import CONTROLLER_LABEL, OWNER_LABEL, STACK_LABEL, content_hash, metadata
from infra.objects import NO_AWAIT, Manifest, helm_release, kubernetes_object, uid_of
from infra.settings.controllers import ControllerSettings
from infra.settings.monitoring import NumbersClaim

LIMIT_SECONDS = 600
"""How long the controller's image may take to be pulled, and the controller to start."""
CLASS_SECONDS = 60
"""How long a k3s that this stack has just installed may take to make its storage class."""
# Fields that only some controllers have. Where they are empty they are left out of the job. So the
# jobs that older versions have made do not change, and do not run again.
_RARE = ("made_by_itself", "leaves", "parts", "needs")


@dataclass(frozen=True)
class ControllerArgs:
    """A controller, and what it needs.

    Args:
        settings: say which controller it is, and where its files come from.
        connection: how the cluster is reached.
        stack: name of the stack, for people.
        objects: the objects of its manifests, in their order; empty: it is installed from a chart.
        numbers_claim: the claim in which Prometheus stores its numbers; None: there is none. Other
            controllers have none.
    """

    settings: ControllerSettings
    connection: Connection
    stack: str
    objects: Sequence[Manifest]
    numbers_claim: NumbersClaim | None

    @property
    def kind(self) -> ControllerKind:
        """The properties of this kind of controller."""
        return CONTROLLERS[self.settings.name]


def controller_for_tasks(kind: ControllerKind) -> ControllerForTasks:
    """What the tasks of infra.kube have to know about a kind of controller."""
    needed = CONTROLLERS[kind.needs] if kind.needs else None
    return ControllerForTasks(
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


def controller_field(kind: ControllerKind) -> dict[str, Any]:
    """The controller as a field of a job; `awaited` are the Deployments that must be available."""
    fields = asdict(controller_for_tasks(kind))
    told = {key: value for key, value in fields.items() if value or key not in _RARE}
    return {**told, "awaited": list(kind.awaited)}


def release_fields(args: ControllerArgs) -> dict[str, Any]:
    """The inputs of the Helm release.

    Helm itself does not wait, because it would only report at the end that its time is up. The task
    `open-controller` waits instead, and reports what the pods say.
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
    """API version, kind and name of each object that lies in no namespace.

    The definitions (CustomResourceDefinitions) are left out: the job names them already.
    """
    return [
        (item["apiVersion"], item["kind"], item["metadata"]["name"])
        for item in objects
        if "namespace" not in item["metadata"] and item["kind"] != DEFINITION
    ]


class Controller(pulumi.ComponentResource):
    """A controller, as a Helm release or as the objects of manifests, in a namespace of its own.

    `pulumi up` does this, in this order:

    1. refuse to go on if somebody else has installed the controller;
    2. make the namespace;
    3. install the chart, or make the objects;
    4. wait until the controller answers.

    `pulumi destroy` goes the other way:

    1. refuse to go on if others use the controller, or have objects in its namespace, and let this
       stack's objects of its kinds end while the controller is still there;
    2. remove the controller;
    3. remove the definitions and webhooks that are left;
    4. delete the namespace.
    """

    def __init__(
        self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        kind, connection = args.kind, args.connection
        super().__init__("disttrain:infra:Controller", name, {"version": kind.version}, opts)
        job, parts = {"controller": controller_field(kind)}, parts_of(args.objects)
        claim = kube_command(
            f"{name}-claim",
            "claim-controller",
            connection,
            {"controller": {**job["controller"], "parts": parts}} if parts else job,
            child_options(self, opts),
        )
        checked = [claim]
        if args.numbers_claim is not None:
            wanted = args.numbers_claim
            checked.append(
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
            pulumi.ResourceOptions(parent=self, depends_on=checked),
        )
        remains = kube_command(
            f"{name}-remains",
            "controller-remains",
            connection,
            job,
            pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
        )
        installed, identity = self._install(name, args, remains, *checked[1:])
        # The job names what is installed, so that the command waits again for another version, and
        # for one in a namespace that was made again.
        identity = {**identity, "namespace_uid": uid_of(namespace)}
        kube_command(
            f"{name}-open",
            "open-controller",
            connection,
            {**job, "probe": dict(kind.probe), "limit_seconds": LIMIT_SECONDS, **identity},
            pulumi.ResourceOptions(parent=self, depends_on=installed),
            limit_seconds=LIMIT_SECONDS,
        )
        self.register_outputs({})

    def _install(
        self, name: str, args: ControllerArgs, *after: pulumi.Resource
    ) -> tuple[list[pulumi.Resource], Mapping[str, Any]]:
        """Install the controller.

        Returns:
            The resources that the next step waits for, and fields of its job that change with what
            was installed.
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
        """Make the objects, stage by stage. `pulumi destroy` removes them in the reverse order.

        A single command makes all definitions: see infra/kube/controllers/apply_definitions.py.
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
    """The object with labels that say which stack has made it.

    An annotation keeps the provider from waiting for the object. The task `open-controller` waits
    instead, and reports what the pods say.
    """
    about = dict(manifest["metadata"])
    own_labels = {
        STACK_LABEL: args.stack,
        OWNER_LABEL: args.connection.owner,
        CONTROLLER_LABEL: args.kind.name,
    }
    about["labels"] = {**about.get("labels", {}), **own_labels}
    about["annotations"] = {**about.get("annotations", {}), **NO_AWAIT}
    return {**manifest, "metadata": about}
