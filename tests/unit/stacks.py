"""Runs the real program with the settings of real stack files, against a recording engine."""

import asyncio
import atexit
import contextvars
import copy
import functools
import runpy
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc
import pulumi
import yaml
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict
from pulumi.runtime import mocks, rpc, set_all_config
from pulumi.runtime.proto.source_pb2 import StackTrace
from pulumi.runtime.settings import SETTINGS, configure, set_root_resource
from pulumi.runtime.stack import run_in_stack

from infra.kube.api_server.findings import Findings
from infra.kube.queues.platform_queues_seen import QueuesSeen
from infra.node.k3s_observation import K3sObservation
from infra.platform.stack_state import READ_RESOURCES
from infra.settings import project
from infra.settings.project import as_text, stack_file

PROJECT = Path(__file__).parents[2]
READ_STACK = "pulumi:pulumi:readStackOutputs"
PROJECT_FILE = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())
STACKS = ("dev", "multipod", "sandbox", "sandbox-multipod")
PLATFORM_OF = {"multipod": "dev", "sandbox-multipod": "sandbox"}
OBSERVATION = K3sObservation("repair-1", "generation-1")
IMPORT_REQUEST = ""  # the answer of a node's containerd that has the image
LONGEST_SECONDS = 300.0  # a program that has not ended by then fails its test
TEXT = "To be, or not to be, that is the question:\n" * 40


def nothing_lacks(*_: object) -> Findings:
    """Return what `up` finds in a cluster that has everything that the stack needs."""
    return Findings()


def kueue_is_there() -> QueuesSeen:
    """Return what the program would find in a cluster with Kueue."""
    return QueuesSeen("v1beta2", {"cpu": "16", "memory": "64Gi"})


ANSWER = DATASET = nothing_lacks  # some tests replace these functions
KUEUE = kueue_is_there


def raw_settings(stack: str, changes: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return the settings as texts by key: the defaults of `Pulumi.yaml`, changed by the stack's
    file, changed by `changes`, in which None removes a key.
    """
    merged: dict[str, object] = {**project.raw_settings(stack_file(stack))[0], **(changes or {})}
    return {key: as_text(value) for key, value in merged.items() if value is not None}


def files_of_this_machine(stack: str, scratch: Path) -> dict[str, object]:
    """Write the files that the sandbox's stacks need into `scratch`; return the settings that name
    them.
    """
    if not stack.startswith("sandbox"):
        return {}
    kubeconfig, text = scratch / "kubeconfig", scratch / "input.txt"
    names = {"cluster": "c", "user": "u"}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "contexts": [{"name": "c", "context": names}],
                "clusters": [{"name": "c", "cluster": {"server": "https://198.18.0.2:6443"}}],
                "current-context": "c",
            }
        )
    )
    text.write_text(TEXT)
    files: dict[str, object] = {"datasetFile": str(text)}
    return files if PLATFORM_OF.get(stack) else {"kubeconfig": str(kubeconfig), **files}


SIGNATURE = "4dabf18193072939515e22adb298388d"  # marks special values in Pulumi's protocol
SECRET = "1b47061264138c4ac30d75fd1eb44270"


@dataclass
class Registered:
    """A resource as it was registered; `wire` still shows which inputs are secret."""

    type: str
    name: str
    urn: str
    parent: str
    inputs: dict[str, Any]
    wire: dict[str, Any]
    request: Any

    @property
    def program(self) -> str:
        """The script that the command runs, which it gets by standard input."""
        return self.inputs["stdin"]


@dataclass
class Deployment:
    """Everything that the program has registered with the engine."""

    resources: list[Registered] = field(default_factory=list)
    component_outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    hooks: dict[str, pulumi.ResourceHook] = field(default_factory=dict)

    def of_type(self, type_: str) -> list[Registered]:
        return [resource for resource in self.resources if resource.type == type_]

    def one(self, name: str) -> Registered:
        found = [resource for resource in self.resources if resource.name == name]
        assert len(found) == 1, (name, [(r.type, r.name) for r in self.resources])
        return found[0]

    @property
    def outputs(self) -> dict[str, Any]:
        return self.component_outputs["Stack"]


class UnknownStackError(grpc.RpcError):
    """The engine's error for a request about a stack that its backend does not have."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNKNOWN

    def details(self) -> str:
        return 'unknown stack "organization/disttrain/dev"'


class RecordingMonitor(mocks.MockMonitor):
    """A stand-in for the engine: it records what is registered, and answers with the inputs."""

    def __init__(
        self,
        referenced: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(Echo(referenced, state))
        self._referenced = referenced
        self.deployment = Deployment()

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        with own_event_loop():
            response = super().RegisterResource(request)
        if request.type != "pulumi:pulumi:Stack":
            self.deployment.resources.append(
                Registered(
                    type=request.type,
                    name=request.name,
                    urn=response.urn,
                    parent=request.parent,
                    inputs=plain(rpc.deserialize_properties(request.object)),
                    wire=MessageToDict(request.object),
                    request=request,
                )
            )
        return response

    def Invoke(self, request: Any) -> Any:  # noqa: N802
        if request.tok == READ_STACK and self._referenced is None:
            raise UnknownStackError
        with own_event_loop():
            return super().Invoke(request)

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        with own_event_loop():
            return super().ReadResource(request)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        outputs = plain(rpc.deserialize_properties(request.outputs))
        name = "Stack" if "pulumi:pulumi:Stack::" in request.urn else request.urn
        self.deployment.component_outputs[name] = outputs
        return empty_pb2.Empty()


class Hooks:
    """A stand-in for the server by which the engine would call the program's hooks."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def register_resource_hook(self, hook: pulumi.ResourceHook) -> None:
        self._deployment.hooks[hook.name] = hook


class Echo(mocks.Mocks):
    """A stand-in for the providers: resources have their inputs as outputs, and values that a
    provider would add.

    `referenced` has the outputs of a referenced stack; it is None if there is no such stack.
    `state` has the resources in the stack's own state, in the form of `state_of`.
    """

    def __init__(
        self, referenced: Mapping[str, Any] | None, state: Mapping[str, Any] | None = None
    ) -> None:
        self._referenced = referenced
        self._state = state

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        state = dict(args.inputs)
        if args.typ == "pulumi:pulumi:StackReference":
            outputs = dict(self._referenced or {})
            return args.name, {**state, "outputs": outputs, "secretOutputNames": ["kubeconfig"]}
        if args.typ.startswith("command:"):
            state |= {"stdout": '{"digest": "sha256:0123"}', "stderr": ""}
        if args.typ == "kubernetes:helm.sh/v3:Release":
            state["status"] = {"version": args.inputs["version"], "revision": 1}
        if "metadata" in state:
            known = {"uid": f"uid-of-{args.name}", "resourceVersion": "17"}
            state["metadata"] = {**state["metadata"], **known}
        return f"{args.name}-id", state

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        if args.token == READ_STACK:
            return {}, []
        if args.token == READ_RESOURCES:
            return {"outputs": dict(self._state or {})}, []
        raise AssertionError(f"unexpected call of {args.token}")


def plain(value: Any) -> Any:
    """Return the value without the marks of secret values."""
    if isinstance(value, Mapping):
        if value.get(SIGNATURE) == SECRET:
            return plain(value["value"])
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def without_secrets(value: Any) -> Any:
    """Return the value as the state would have it in plain text, with `[secret]` for secret
    values.
    """
    if isinstance(value, Mapping):
        if value.get(SIGNATURE) == SECRET:
            return "[secret]"
        return {key: without_secrets(item) for key, item in value.items()}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def deploy(
    stack: str,
    scratch: Path,
    changes: Mapping[str, object] | None = None,
    secret_keys: Iterable[str] = (),
    before: Deployment | None = None,
) -> Deployment:
    """Run the real program with the stack's real settings and `changes`; return what it has
    registered.

    `before` is what the previous `up` has registered: it makes the stack's state. Each exception of
    the program is passed on. If the program refuses the stack (RunError), it must have registered
    nothing, or the test fails.
    """
    settings = raw_settings(stack, {**files_of_this_machine(stack, scratch), **(changes or {})})
    platform = settings["platform"]
    referenced = copy.deepcopy(outputs_of(platform)) if platform in STACKS else None
    monitor = RecordingMonitor(referenced, state_of(before) if before else None)
    run_with(monitor, stack, settings, secret_keys)
    return monitor.deployment


def state_of(deployment: Deployment) -> dict[str, Any]:
    """Return the deployment's resources by URN as the engine would have them in the stack's state,
    with the outputs that `Echo` makes.
    """
    echo, found = Echo(None), dict[str, Any]()
    for each in deployment.resources:
        given = mocks.MockResourceArgs(typ=each.type, name=each.name, inputs=each.inputs)
        outputs = deployment.component_outputs.get(each.urn) or echo.new_resource(given)[1]
        found[each.urn] = {"type": each.type, "outputs": outputs}
    return found


@functools.cache
def outputs_of(platform: str) -> dict[str, Any]:
    """Return the outputs of a stack with the settings of its file. They are made once for all
    tests.

    A run on that platform reads its kubeconfig, so the files stay until all tests have ended.
    """
    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)
    return deploy(platform, Path(scratch.name)).outputs


def run_with(
    monitor: RecordingMonitor,
    stack: str,
    settings: Mapping[str, str],
    secret_keys: Iterable[str] = (),
) -> None:
    """Run the program with these settings against `monitor`, which records what it registers."""
    set_root_resource(None)  # pyright: ignore[reportArgumentType]  # as before any program
    # The SDK waits for every output of the process. An output that a test has made outside of a
    # program belongs to an event loop that never runs, so the SDK would wait for it forever.
    SETTINGS.outputs.clear()  # pyright: ignore[reportAttributeAccessIssue]
    features = set(monitor.GetDeploymentInfo(empty_pb2.Empty()).supportedFeatures)
    configure(
        mocks.MockSettings(
            monitor=monitor,
            monitor_features=features,
            engine=mocks.MockEngine(None),
            callbacks=Hooks(monitor.deployment),
            project="disttrain",
            stack=stack,
            dry_run=False,
            organization=None,
        )
    )
    set_all_config(
        {f"disttrain:{key}": value for key, value in settings.items()},
        [f"disttrain:{key}" for key in secret_keys],
    )
    # Stand-ins answer for the host with k3s, for the containerd or registry that is asked for the
    # image, and for the cluster that is asked about the run.
    with (
        patch("infra.platform.k3s_state.observe_k3s", return_value=OBSERVATION),
        patch("infra.deliveries.import_.ask_node", return_value=IMPORT_REQUEST),
        patch("infra.deliveries.registry.ask_registry", return_value=IMPORT_REQUEST),
        patch("infra.run.present_run.hand_over_request", return_value=""),
        patch("infra.preflight.ask", side_effect=lambda *asked: ANSWER(*asked)),
        patch("infra.preflight.ask_about_dataset", side_effect=lambda *asked: DATASET(*asked)),
        patch("infra.platform.queues.read_queues", side_effect=lambda *_, **__: KUEUE()),
        # The SDK sends the frames of the call stack with each resource. No test reads them, and
        # collecting them takes a sixth of the time.
        patch("pulumi.runtime.resource._get_stack_trace", StackTrace),
        ThreadPoolExecutor(1) as thread,
        same_constants(),
        refuses_before_it_registers(monitor),
    ):
        thread.submit(contextvars.copy_context().run, run_to_the_end).result()


@contextmanager
def refuses_before_it_registers(monitor: RecordingMonitor) -> Iterator[None]:
    """Fail if the program refuses a stack of which it has already registered a resource.

    Otherwise `pulumi up` would make a part of the stack and then fail. The owner's identity may be
    there, because some refusals depend on it: it is a random text in the state, and nothing on a
    machine or in a cluster.
    """
    try:
        yield
    except pulumi.RunError:
        names = {each.name for each in monitor.deployment.resources} - {"owner", "owner-identity"}
        assert names == set(), "registered before the program refused the stack"
        raise


@contextmanager
def same_constants() -> Iterator[None]:
    """Fail if the program changes one of its own constants, and so manifests made from it."""
    before = constants()
    yield
    after = constants()
    changed = [name for name, text in before.items() if after[name] != text]
    assert changed == [], f"the program has changed its constants {changed}"


def constants() -> dict[str, str]:
    """Return the contents of the program's mutable constants as texts, by their names."""
    return {
        f"{module}.{name}": repr(value)
        for module, loaded in [*sys.modules.items()]
        if module.startswith("infra.")
        for name, value in [*vars(loaded).items()]
        if name.isupper() and isinstance(value, dict | list | set)
    }


def run_to_the_end() -> None:
    with own_event_loop() as loop:
        loop.run_until_complete(asyncio.wait_for(run_in_stack(run_main), LONGEST_SECONDS))


def run_main() -> None:
    runpy.run_path(str(PROJECT / "__main__.py"))


@contextmanager
def own_event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield an event loop of this thread and close it afterwards; Pulumi would leave its own loop
    open.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()
