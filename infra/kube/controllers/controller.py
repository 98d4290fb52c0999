"""A controller that a platform has installed: its objects in the cluster, and whose they are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube.namespaces.owners import first_owner, has_made, is_of_release
from infra.kube.objects import Json, label, name_of, part, parts
from infra.kube.paths import API_SERVICES, DEFINITIONS, NAMESPACES, WEBHOOKS
from infra.kube.say import say


@dataclass(frozen=True)
class Controller:
    """What the tasks have to know of a controller.

    Args:
        name: in the setting `controllers`.
        title: what people call it.
        namespace: of its own; the owner's label on it says whose the controller is.
        definitions: names of its CustomResourceDefinitions.
        setting: key and value of the setting by which it is installed.
        way_out: what to do where the cluster has one of somebody else's.
        made_by_itself: kind and name (`Queue default`) of what it makes of its own kinds.
        leaves: kind and name (`Secret certificate`) of what its pods make in its namespace, and
            what is no part of another object.
        parts: API version, kind and name of each object of it that lies in no namespace, where it
            comes by manifests.
        needs: name and definition of the controller without which it does not start.
    """

    name: str
    title: str
    namespace: str
    definitions: tuple[str, ...]
    setting: str
    way_out: str
    made_by_itself: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    parts: tuple[tuple[str, str, str], ...] = ()
    needs: tuple[str, str] | None = None

    @property
    def path(self) -> str:
        """Path of its namespace at the API server."""
        return f"{NAMESPACES}/{self.namespace}"

    @property
    def own_namespace(self) -> OwnNamespace:
        """Its namespace, which goes with it; `refuse_use` looks at who uses its kinds."""
        return OwnNamespace(
            self.namespace, self.setting, self.name, self.leaves, definitions=self.definitions
        )


def parse_controller(given: Mapping[str, Any]) -> Controller:
    """The controller of a job. Raises KeyError: a field is missing.

    A job that an older checkout has recorded for `destroy` has no field after `definitions`.
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
    """Whether this stack has installed it; a namespace without its label was not made by it."""
    return has_made(api, owner, controller.namespace)


def definitions_there(api: Api, controller: Controller) -> list[Json]:
    """The controller's resource definitions that the cluster has."""
    found = (api.get(f"{DEFINITIONS}/{name}") for name in controller.definitions)
    return [item for item in found if item is not None]


def objects_there(api: Api, controller: Controller) -> Iterator[tuple[str, Json]]:
    """Path and object, with its kind, of all that there is of its kinds, in all namespaces."""
    for definition in definitions_there(api, controller):
        kind = part(definition, "spec", "names")["kind"]
        group, version = _collection(definition).split("/")[2:4]
        for item in api.list(_collection(definition)):
            known = {"apiVersion": f"{group}/{version}", "kind": kind}
            inside = str(part(item, "metadata").get("namespace") or "")
            yield f"{_collection(definition, inside)}/{name_of(item)}", {**known, **item}


def _collection(definition: Json, namespace: str = "") -> str:
    """The path of a definition's objects, in the version that they are stored in.

    In another version the API server would ask the controller to convert them, which may be gone.
    """
    spec = part(definition, "spec")
    stored = next(each for each in parts(spec, "versions") if each.get("storage"))
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{spec['group']}/{stored['name']}{inside}/{spec['names']['plural']}"


def used_by_others(api: Api, controller: Controller, owner: str) -> list[str]:
    """`JobSet team-a/bert` for each object of its kinds that is not a part of this stack.

    An object that something else has made counts as that: Kueue's Workload of a Job is the Job.
    What the controller's chart has made of its own kinds is a part of the controller.
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
    """Whether the controller makes an object as soon as it runs, for nobody in particular."""
    return f"{item['kind']} {name_of(item)}" in controller.made_by_itself


def foreign_parts(api: Api, controller: Controller, owner: str) -> list[str]:
    """`ClusterRole mpi-operator` for what has the name of a part of it, and not our label."""
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
    """Whether no pod of it can take off finalizers or answer for its webhooks."""
    path = f"/apis/apps/v1/namespaces/{controller.namespace}/deployments"
    found = api.list(path)
    return not found or any(not part(each, "status").get("availableReplicas") for each in found)


def free_of_webhooks(api: Api, controller: Controller) -> None:
    """Delete what leads the API server to the controller's Services.

    Where nothing answers there, every change of its kinds would be refused, and namespaces with
    anything in them could not end.
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
    """Let an object end without the controller; others' finalizers stay."""
    groups = {name.partition(".")[2] for name in controller.definitions}
    held = list[str](part(item, "metadata").get("finalizers") or [])
    kept = [each for each in held if each.partition("/")[0] not in groups]
    if kept != held:
        say(f"{controller.title} does not let {_named(item)} go: it is freed")
        api.patch(path, {"metadata": {"finalizers": kept}})


def _delete(api: Api, path: str) -> None:
    if api.delete(path, {}):
        say(f"{'/'.join(path.split('/')[-2:])} is taken away")
