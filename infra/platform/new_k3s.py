"""Says what a k3s that `pulumi up` is about to install will lack for the stack's run."""

from infra.controllers import CONTROLLERS
from infra.kinds import WORKLOADS
from infra.settings import PlatformSettings, RunSettings
from infra.settings.controllers import KUEUE
from infra.settings.setting_error import problem_text


def missing_controllers(platform: PlatformSettings, run: RunSettings | None) -> list[str]:
    """Return a problem for each setting that needs a controller which no setting installs.

    A new k3s has none of them. `pulumi up` would find out only when it makes the run's objects,
    after it has installed k3s, the GPU Operator and the image. A user who installs the controller
    by other means makes the platform alone first.

    Args:
        platform: the settings of the platform, whose k3s is not there yet.
        run: the settings of the run; None if this stack makes a platform alone.
    """
    installed = {each.name for each in platform.controllers}
    needed = dict[str, tuple[str, str]]()
    if run:
        topology = run.compute.topology.name
        version = WORKLOADS[topology].api_version
        for name, controller in CONTROLLERS.items():
            if {version, version.partition("/")[0]} & set(controller.groups):
                needed[name] = ("topology", topology)
        if run.queue.name:
            needed[KUEUE] = ("queue", run.queue.name)
    if platform.queues:
        needed[KUEUE] = ("queues.name", platform.queues.name)
    missing = {name: setting for name, setting in needed.items() if name not in installed}
    return [
        problem_text(
            key,
            repr(value),
            f"it needs {CONTROLLERS[name].title}, which a new k3s does not have",
            f"Add {name} to controllers (`pulumi config set --path 'controllers[{index}]' {name}`)"
            ", or make the platform alone first (topology: none, and no queues) and install it "
            "there",
        )
        for index, (name, (key, value)) in enumerate(missing.items(), len(installed))
    ]


def missing_objects(platform: PlatformSettings, run: RunSettings | None) -> list[str]:
    """Return a problem for each object that the settings name and that a new k3s cannot have.

    In a new k3s nobody else can have made them. `pulumi up` would find out only after it has
    installed k3s.

    Args:
        platform: the settings of the platform, whose k3s is not there yet.
        run: the settings of the run; None if this stack makes a platform alone.
    """
    namespace, found = platform.namespace_settings, list[str]()
    if namespace.exists and namespace.name != "default":
        reason = f"a new k3s has no namespace {namespace.name}"
        hint = "Remove it, so that this stack makes it: `pulumi config rm namespaceExisting`"
        found.append(problem_text("namespaceExisting", "'use'", reason, hint))
    return [*found, *(_missing_queues(platform, run) if run else [])]


def _missing_queues(platform: PlatformSettings, run: RunSettings) -> list[str]:
    """Return a problem for the run's queue and for its priority, unless the platform makes them."""
    made, name, priority = platform.queues, run.queue.name, run.queue.priority
    queues, priorities = ([made.name], [*made.priorities]) if made else ([], [])
    classes = "WorkloadPriorityClass"
    wanted = (
        ("queue", name, "LocalQueue", queues, f"queues.name {name}"),
        ("queuePriority", priority, classes, priorities, f"queues.priorities.{priority} 1000"),
    )
    return [
        problem_text(
            key,
            repr(value),
            f"a new k3s has no {kind}, and queues makes {', '.join(there) or 'none'}",
            f"Let the platform make it (`pulumi config set --path {setting}`), or make the "
            f"platform first (`pulumi config set topology none`; `pulumi up`), then the {kind}",
        )
        for key, value, kind, there, setting in wanted
        if value and value not in there
    ]
