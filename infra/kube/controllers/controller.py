"""Finds the objects of a controller that a platform installs, and to whom they belong."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube.namespaces.owners import first_owner, is_of_release
from infra.kube.objects import Json, label, name_of, part, parts
from infra.kube.paths import API_SERVICES, DEFINITIONS, NAMESPACES, WEBHOOKS
from infra.kube.say import say


@dataclass(frozen=True)
class Controller:
    """What the tasks have to know about a controller.

    Args:
        name: its name in the setting `controllers`.
        title: its name in messages.
        namespace: its own namespace. The owner's label on it tells to whom the controller belongs.
        definitions: the names of its CustomResourceDefinitions.
        setting: key and value of the setting by which it is installed.
        way_out: what to do if somebody else has installed it in the cluster.
        made_by_itself: kind and name (`Queue default`) of the objects of its own kinds that it
            makes itself.
        leaves: kind and name (`Secret certificate`) of the objects that its pods make in its
            namespace, and that no other object owns.
        parts: for a controller that is installed from manifests: API version, kind and name of
            each of its objects that is in no namespace.
        needs: name and definition of another controller without which it does not start.
    """

    name: str
    title: str
    namespace: str
    definitions: tuple[str, ...]
    setting: str
    way_out: str
    made_by_itself: tuple[str, ...]
    leaves: tuple[str, ...]
    parts: tuple[tuple[str, str, str], ...] = ()
    needs: tuple[str, str] | None = None

    @property
    def path(self) -> str:
        """The API server's path of the controller's namespace."""
        return f"{NAMESPACES}/{self.namespace}"

    @property
    def own_namespace(self) -> OwnNamespace:
        """The controller's namespace, which is deleted with it.

        Objects of the controller's kinds are left out here, because `refuse_use` looks at them.
        """
        return OwnNamespace(
            self.namespace, self.setting, self.name, self.leaves, definitions=self.definitions
        )


def parse_controller(given: Mapping[str, Any]) -> Controller:
    """Read the controller of a job. Raises KeyError: a field is missing.

    A job that an older version of this program has recorded for `destroy` has only the first four
    fields.
    """
    name, title, namespace = (str(given[field]) for field in ("name", "title", "namespace"))
    needs = [str(each) for each in given.get("needs") or ()]
    return Controller(
        name,
        title,
        namespace,
        definitions=tuple(str(each) for each in given["definitions"]),
        setting=str(given.get("setting", f"controllers: {name!r}")),
        way_out=str(given.get("way_out", "")),
        made_by_itself=tuple(str(each) for each in given.get("made_by_itself", ())),
        leaves=tuple(str(each) for each in given.get("leaves", ())),
        parts=tuple((str(a), str(b), str(c)) for a, b, c in given.get("parts", ())),
        needs=(needs[0], needs[1]) if needs else None,
    )


def is_ours(api: Api, controller: Controller, owner: str) -> bool:
    """Whether this stack has installed the controller, by the label of the namespace.

    If somebody has deleted the namespace by hand, the labels of the definitions tell.
    """
    namespace = api.get(controller.path)
    definitions = [] if namespace else definitions_there(api, controller)
    return label_of_stack(namespace, definitions, names.OWNER_LABEL) == owner


def label_of_stack(namespace: Json | None, definitions: Sequence[Json], key: str) -> str:
    """The label of a controller by which it belongs to a stack; empty: it has none.

    This function is pure.

    Args:
        namespace: the controller's namespace; None: it does not exist.
        definitions: those of the controller's definitions that exist. They count only without a
            namespace, and only if all of them have the same label.
        key: the label, such as OWNER_LABEL.
    """
    if namespace is not None:
        return label(namespace, key)
    found = {label(item, key) for item in definitions}
    return found.pop() if len(found) == 1 else ""


def definitions_there(api: Api, controller: Controller) -> list[Json]:
    """Those of the controller's CustomResourceDefinitions that the cluster has."""
    found = (api.get(f"{DEFINITIONS}/{name}") for name in controller.definitions)
    return [item for item in found if item is not None]


def objects_there(api: Api, controller: Controller) -> Iterator[tuple[str, Json]]:
    """All objects of the controller's kinds in the cluster.

    Yields:
        The path of the object, and the object with its `apiVersion` and `kind`.
    """
    for definition in definitions_there(api, controller):
        kind = part(definition, "spec", "names")["kind"]
        group, version = _collection(definition).split("/")[2:4]
        for item in api.list(_collection(definition)):
            known = {"apiVersion": f"{group}/{version}", "kind": kind}
            inside = str(part(item, "metadata").get("namespace") or "")
            yield f"{_collection(definition, inside)}/{name_of(item)}", {**known, **item}


def _collection(definition: Json, namespace: str = "") -> str:
    """The path of a definition's objects, in the version in which they are stored.

    For another version, the API server would ask the controller to convert the objects, but the
    controller may be gone.
    """
    spec = part(definition, "spec")
    stored = next(each for each in parts(spec, "versions") if each.get("storage"))
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{spec['group']}/{stored['name']}{inside}/{spec['names']['plural']}"


def used_by_others(api: Api, controller: Controller, owner: str) -> list[str]:
    """The objects of the controller's kinds that others have made, such as `JobSet team-a/bert`.

    For an object with an owner, its first owner is named: for a Workload that Kueue has made for a
    Job, the Job. Objects that the controller or its chart has made do not count.
    """
    found = set[str]()
    for _, item in objects_there(api, controller):
        top = first_owner(api, item)
        if top is None or label(top, names.OWNER_LABEL) == owner:
            continue
        if is_of_chart(top, controller) or is_made_by_itself(top, controller):
            continue
        found.add(_named(top))
    return sorted(found)


def is_made_by_itself(item: Json, controller: Controller) -> bool:
    """Whether the controller itself makes this object when it starts, and for no user."""
    return f"{item['kind']} {name_of(item)}" in controller.made_by_itself


def foreign_parts(api: Api, controller: Controller, owner: str) -> list[str]:
    """The objects with the name of a cluster-wide part of the controller, but not with our label.

    Each is named as in `ClusterRole mpi-operator`.
    """
    found: list[str] = []
    for api_version, kind, name in controller.parts:
        item = api.get(api.path(api_version, kind, "", name))
        if item is not None and label(item, names.OWNER_LABEL) != owner:
            found.append(f"{kind} {name}")
    return found


def is_of_chart(item: Json, controller: Controller) -> bool:
    """Whether Helm has made an object as a part of the controller's own release."""
    return is_of_release(item, controller.name, controller.namespace)


def _named(item: Json) -> str:
    namespace = part(item, "metadata").get("namespace")
    where = f"{namespace}/" if namespace else ""
    return f"{item['kind']} {where}{name_of(item)}"


def does_not_answer(api: Api, controller: Controller) -> bool:
    """Whether the controller has no Deployment, or one without an available pod.

    Then perhaps nothing removes the controller's finalizers or answers for its webhooks.
    """
    path = f"/apis/apps/v1/namespaces/{controller.namespace}/deployments"
    found = api.list(path)
    return not found or any(not part(each, "status").get("availableReplicas") for each in found)


def free_of_webhooks(api: Api, controller: Controller) -> None:
    """Delete the webhooks and APIServices that lead to the controller's Services.

    If no Service answers, the API server refuses every change of objects of the controller's kinds,
    and cannot delete namespaces with objects in them.
    """
    for collection in WEBHOOKS:
        for item in api.list(collection):
            leads = [part(hook, "clientConfig", "service") for hook in parts(item, "webhooks")]
            if leads and all(to.get("namespace") == controller.namespace for to in leads):
                _delete(api, f"{collection}/{name_of(item)}")
    for item in api.list(API_SERVICES):
        if part(item, "spec", "service").get("namespace") == controller.namespace:
            _delete(api, f"{API_SERVICES}/{name_of(item)}")


def take_finalizers_off(api: Api, controller: Controller, path: str, item: Json) -> None:
    """Remove the controller's finalizers from an object, so that it can end without the controller.

    Finalizers of others stay.
    """
    groups = {name.partition(".")[2] for name in controller.definitions}
    held = list[str](part(item, "metadata").get("finalizers") or [])
    kept = [each for each in held if each.partition("/")[0] not in groups]
    if kept != held:
        say(f"{controller.title} does not let {_named(item)} go: it is freed")
        api.patch(path, {"metadata": {"finalizers": kept}})


def _delete(api: Api, path: str) -> None:
    if api.delete(path, {}):
        say(f"{'/'.join(path.split('/')[-2:])} is taken away")
