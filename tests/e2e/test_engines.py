"""A run under each kind of workload that has a controller of its own, with that controller.

The tests are the same for all kinds; `tests.e2e.engines` describes the differences. The weights are
compared with those of a run of multi-pod on the same platform.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.status.snapshot import take_snapshot
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.names import RUN_CONFIG_PATH
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.controllers.kind import Controller
from sandbox.follow import train_points
from sandbox.stack import PulumiFailedError, Stack
from sandbox.venvs import PROJECT
from tests.e2e.asking import (
    changes,
    evict,
    people_run,
    states,
    training_pods,
    wait_for_first_checkpoint,
    weights,
)
from tests.e2e.engines import ENGINES, JOBSET, LWS, TRAINJOB, Engine
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for
from tests.e2e.rank_probe import (
    FILE,
    GREETING,
    MOUNTS,
    PROGRAM,
    WORDS,
    code_of_the_checkout,
    told_by_ranks,
)
from tests.in_depth import in_depth
from tests.kube.api_levels import rendered
from trainer.events.event import Name, event_file
from trainer.parallel.cores import threads_per_rank

STEPS = 600  # of a run that is killed on its way, and still has to reach its end
PODS = 3
NEEDED = ("jobset", "trainer", "training-operator", "mpi-operator", "volcano", "lws")
REFERENCE = "e2e-reference"
SHAPES = ((1, 3), (3, 1), (2, 2))  # pods, and ranks in each
STATEFUL_SET = "train-multipod"


@contextmanager
def only_meanwhile(lab: Lab, controllers: Sequence[Controller]) -> Iterator[None]:
    """Run these controllers during the block; nothing of them may be left afterwards."""
    kinds = ("customresourcedefinition", "clusterrole", "clusterrolebinding")
    hooks = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    before = lab.uids(*kinds, *hooks)
    with running(lab.cluster, controllers):
        yield
    assert lab.uids(*kinds, *hooks).keys() <= before.keys()


@contextmanager
def stack_of(lab: Lab, name: str, engines: Sequence[Engine]) -> Iterator[Stack]:
    """Yield a stack for runs of these kinds; no object of them may be left afterwards."""
    settings = {"pods": str(PODS), "processesPerPod": "1", "podPolicy": "deny"}
    made = lab.stack(name, "sandbox", settings)
    yield made
    made.destroy()
    workloads = [engine.typed for engine in engines]
    left = lab.uids(*workloads, "trainingruntime", "job", "service", "statefulset", "pod")
    assert not [name for name in left if "train-" in name]


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Lab]:
    """Yield the lab with the controllers of all kinds."""
    with only_meanwhile(lab, [CONTROLLERS[name] for name in NEEDED]):
        yield lab


@pytest.fixture(scope="module")
def stack(served: Lab) -> Iterator[Stack]:
    with stack_of(served, "e2e-engines", ENGINES) as made:
        yield made


@pytest.fixture(scope="module")
def reference(served: Lab, stack: Stack) -> dict[str, str]:
    """Return the weights at the end of a run as multi-pod, by file.

    The run's configuration is kept in a file in the lab's folder.
    """
    stack.set_all({"topology": "multi-pod", **run_settings(REFERENCE, STEPS)})
    stack.up()
    served.wait_done(REFERENCE)
    config = served.kubectl("exec", f"{STATEFUL_SET}-0", "--", "cat", RUN_CONFIG_PATH)
    (served.scratch / REFERENCE).write_text(config)
    return weights(served, REFERENCE, STEPS)


@pytest.fixture(scope="module")
def probing(served: Lab, stack: Stack, reference: dict[str, str]) -> Iterator[Stack]:
    """Yield a second stack on the platform of the first one, whose runs are `rank_probe`."""
    assert reference  # it has made the platform
    file = served.scratch / FILE
    file.write_text(PROGRAM)
    guest = {"platform": stack.name, "instance": "p"}
    made = served.stack(f"{stack.name}-ranks", "sandbox-multipod", guest)
    made.set_all({"preset": None, "datasetFile": None})  # the template sets these, for our trainer
    words = {
        f"program.command[{place}]": word for place, word in enumerate(("python", FILE, *WORDS))
    }
    made.set_all({**words, "program.files": str(file), "podEnvironment.GREETING": GREETING})
    yield made
    made.destroy()


@pytest.fixture(scope="module")
def configs() -> dict[str, Any]:
    """Return a dictionary for the configuration of the first run, to compare all others with it."""
    return {}


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.kind.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def workload(lab: Lab, engine: Engine) -> Any:
    return lab.get(engine.typed, engine.workload)


def ended(lab: Lab, engine: Engine, types: tuple[str, ...]) -> str:
    """Wait until the workload has one of these conditions, and return the condition with its
    reason.
    """
    what = f"the end of {engine.kind.kind} {engine.workload}"
    return wait_for(what, lambda: engine.condition(workload(lab, engine), types), 120)


def pod_of(lab: Lab, stack: Stack, engine: Engine, index: int) -> str:
    """Return the living pod of an index, as `pod/<name>`."""
    names = [pod.removeprefix("pod/") for pod in training_pods(lab, stack)]
    (name,) = (name for name in names if engine.is_pod(name, index))
    return f"pod/{name}"


def container_of(lab: Lab, pod: str) -> str:
    """Return the name that containerd has for the container of a pod."""
    (container,) = json.loads(lab.kubectl("get", pod, "-o", "json"))["status"]["containerStatuses"]
    return container["containerID"].removeprefix("containerd://")


def pod_starts(lab: Lab, run_name: str) -> list[int]:
    """Return how often the pod of each node was started, as the pods themselves have noted it."""
    files = [event_file(lab.run_dir(run_name), node) for node in range(PODS)]
    lines = [path.read_text().splitlines() if path.exists() else [] for path in files]
    return [sum(Name.POD_STARTED.value in line for line in node) for node in lines]


def test_definition_of_the_controller_knows_every_field(
    served: Lab, engine: Engine, tmp_path: Path
) -> None:
    """The API server knows every field of our objects, even if it is asked to be strict.

    Otherwise it would drop a field that the controller's definition lacks, without a message.
    """
    given = tmp_path / "manifest.json"
    strictly = ("create", "--dry-run=server", "--validate=strict", "-f", str(given))
    made = list[str]()
    try:
        for manifest in rendered(engine.kind.name, tmp_path):
            manifest["metadata"]["namespace"] = "default"
            name = object_name(manifest)
            given.write_text(json.dumps(manifest))
            assert f"{name} created" in served.kubectl(*strictly, namespace="default")
            if manifest["kind"] != engine.kind.kind:  # a TrainJob is refused without its runtime
                served.kubectl("create", "-f", str(given), namespace="default")
                made.append(name)
            manifest["spec"]["noSuchField"] = 1
            given.write_text(json.dumps(manifest))
            with pytest.raises(AssertionError, match=r'unknown field "spec.noSuchField"'):
                served.kubectl(*strictly, namespace="default")
    finally:
        for name in made:
            served.kubectl("delete", name, namespace="default")


def object_name(manifest: Any) -> str:
    """Return an object's name as kubectl prints it, as in `jobset.jobset.x-k8s.io/train-jobset`."""
    group = manifest["apiVersion"].partition("/")[0]
    return f"{manifest['kind'].lower()}.{group}/{manifest['metadata']['name']}"


def test_lost_pod_starts_the_ranks_again_and_the_weights_are_the_same(
    served: Lab, stack: Stack, reference: dict[str, str], engine: Engine
) -> None:
    """If a pod is killed, the run starts its ranks again and ends with the same weights as
    multi-pod.

    Under kinds whose controller replaces all pods at once every pod starts again, and else only the
    killed one. At the end no pod holds a GPU, unless the kind's pods stay. The next `up` changes
    nothing.
    """
    lab, run_name = served, f"e2e-{engine.kind.name}"
    stack.set_all({"topology": engine.kind.name, **run_settings(run_name, STEPS)})
    stack.up()
    killed = [container_of(lab, pod_of(lab, stack, engine, index)) for index in engine.killed]
    wait_for_first_checkpoint(lab, run_name)
    # At once and without a warning, as the kernel does when memory is short.
    for container in killed:
        lab.ctr("tasks", "kill", "--all", "--signal", "SIGKILL", container)
    assert not (lab.run_dir(run_name) / "done.json").exists(), "killed too late to prove anything"
    lab.wait_done(run_name)
    again = range(PODS) if engine.gang else engine.killed
    assert pod_starts(lab, run_name) == [2 if index in again else 1 for index in range(PODS)]
    assert sorted(lab.losses(run_name)) == list(range(1, STEPS + 1))
    assert weights(lab, run_name, STEPS) == reference != {}
    if engine.ends:
        assert ended(lab, engine, engine.kind.done)
        # The MPI Operator ends its workers only after that. A pod that stayed would hold its GPUs.
        wait_for("the end of its pods", lambda: not training_pods(lab, stack), 120)
    else:
        assert len(training_pods(lab, stack)) == PODS
    # A pod says so only when all ranks have ended, which is after rank 0 has written the marker.
    wait_for("its end", lambda: states(lab, stack)[stack.name] == "finished", 120)
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    stack.refresh()
    stack.preview("--expect-no-changes")


def test_plain_torchrun_ends_with_the_same_bits(served: Lab, reference: dict[str, str]) -> None:
    """Plain torchrun on this machine, without pods and our launcher, ends with the same weights."""
    run_name = "e2e-torchrun-alone"
    folder = served.cluster.data_root
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={PODS}", "-m", "trainer", "train"),
            *("--config", str(served.scratch / REFERENCE)),
            *(f"--data_root={folder}", f"--run_name={run_name}"),
        ],
        cwd=PROJECT,
        env={**os.environ, "OMP_NUM_THREADS": str(threads_per_rank(1, PODS))},  # as in the pods
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert weights(served, run_name, STEPS) == reference != {}


def test_single_pod_ends_with_the_same_bits(
    served: Lab, stack: Stack, reference: dict[str, str]
) -> None:
    """As many ranks in one pod end with the same weights as those in several pods."""
    run_name = "e2e-single-pod-alone"
    shape = {"pods": None, "processesPerPod": str(PODS)}
    stack.set_all({"topology": "single-pod", **run_settings(run_name, STEPS), **shape})
    try:
        stack.up()
        served.wait_done(run_name)
        assert weights(served, run_name, STEPS) == reference != {}
    finally:
        stack.set_all({"pods": str(PODS), "processesPerPod": "1"})


PLACES = [
    ("single-pod", 1, 3),
    *((name, 2, 2) for name in ("multi-pod", "indexed-job")),
    *((each.kind.name, 2, 2) for each in ENGINES),
    *(
        in_depth(name, *shape)
        for name in ("multi-pod", "indexed-job", *(each.kind.name for each in ENGINES))
        for shape in SHAPES[:2]
    ),
]


@pytest.mark.parametrize(("topology", "pods", "per_pod"), PLACES)
def test_each_rank_is_where_it_should_be(
    served: Lab, probing: Stack, configs: dict[str, Any], topology: str, pods: int, per_pod: int
) -> None:
    """Under each kind a rank has its number, meeting point, arguments, mounts, code and
    configuration.

    The ranks themselves report all this from their pods.
    """
    run_name = f"e2e-ranks-{topology}-{pods}x{per_pod}"
    shape = {"pods": str(pods), "processesPerPod": str(per_pod)}
    probing.set_all({"topology": topology, "runName": run_name, **shape})
    probing.up()
    served.wait_done(run_name)
    told = told_by_ranks(served.run_dir(run_name))
    same = [rank.pop("same") for rank in told]
    world = pods * per_pod
    assert told == [
        {
            "rank": rank,
            "world": world,
            "local_rank": rank % per_pod,
            "local_world": per_pod,
            "node": rank // per_pod,
            "met": list(range(1, world)),
        }
        for rank in range(world)
    ]
    config = yaml.safe_load(same[0].pop("config"))
    assert config.pop("run_name") == run_name
    for other in same[1:]:
        assert yaml.safe_load(other.pop("config")) == {**config, "run_name": run_name}
    assert config == configs.setdefault("first", config)
    expected = {
        "arguments": [FILE, *WORDS],
        "folder": "/program",
        "user": 1000,
        "greeting": GREETING,
        "mounts": MOUNTS,
        "code": code_of_the_checkout(),
    }
    assert same == [expected] * world


@pytest.mark.in_depth
@pytest.mark.parametrize("engine", [JOBSET, TRAINJOB], ids=lambda engine: engine.kind.name)
def test_evicted_pod_starts_all_pods_anew(served: Lab, stack: Stack, engine: Engine) -> None:
    """If a pod is evicted, JobSet makes another Job at once, and no step is lost or made twice.

    The former Job would wait 10 s for its new pod, and each time twice as long (kubernetes#130881).
    """
    lab, run_name = served, f"e2e-{engine.kind.name}-evicted"
    stack.set_all({"topology": engine.kind.name, **run_settings(run_name, ENDLESS)})
    stack.up()
    wait_for_first_checkpoint(lab, run_name)
    for _ in range(2):
        jobs, restarts = lab.uids("job"), restarts_of(lab, engine)
        evict(lab, pod_of(lab, stack, engine, 1).removeprefix("pod/"))
        wait_for("another Job", lambda jobs=jobs: new_job(lab, jobs), 120)
        saved = max(lab.losses(run_name))  # by now all former pods have gone
        wait_for("steps", lambda saved=saved: max(lab.losses(run_name)) > saved, 120)
        assert restarts_of(lab, engine) == restarts + 1
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    written = [point["step"] for point in train_points(lab.run_dir(run_name))]
    assert written == list(range(1, max(written) + 1))


def restarts_of(lab: Lab, engine: Engine) -> int:
    """Return how often JobSet's controller has made all pods anew."""
    return lab.get("jobset", engine.workload)["status"].get("restarts", 0)


def new_job(lab: Lab, before: dict[str, str]) -> bool:
    """Return whether there is a Job that was not there before."""
    return not set(lab.uids("job").values()) <= set(before.values())


@pytest.mark.in_depth
def test_evicted_leader_ends_its_workers_too(served: Lab, stack: Stack) -> None:
    """If the leader of a LeaderWorkerSet is evicted, all pods are replaced; a worker is replaced
    alone.

    The workers' StatefulSet belongs to the leader's pod. No step is lost or made twice.
    """
    lab, run_name = served, "e2e-lws-evicted"
    stack.set_all({"topology": LWS.kind.name, **run_settings(run_name, ENDLESS)})
    stack.up()
    wait_for_first_checkpoint(lab, run_name)
    for index, new in ((1, {1}), (0, {0, 1, 2})):
        before = uids_of(lab, LWS)
        evict(lab, LWS.pods(index))
        wait_for("other pods", lambda before=before, new=new: replaced(lab, before) == new, 120)
        saved = max(lab.losses(run_name))
        wait_for("steps", lambda saved=saved: max(lab.losses(run_name)) > saved, 120)
        assert replaced(lab, before) == new
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    written = [point["step"] for point in train_points(lab.run_dir(run_name))]
    assert written == list(range(1, max(written) + 1))


def uids_of(lab: Lab, engine: Engine) -> dict[int, str]:
    """Return the uids of the pods that there are, by their indexes."""
    found = lab.uids("pod")
    names = {index: f"Pod/{engine.pods(index)}" for index in range(PODS)}
    return {index: found[name] for index, name in names.items() if name in found}


def replaced(lab: Lab, before: dict[int, str]) -> set[int]:
    """Return the indexes whose pods are others than before."""
    return {index for index, uid in uids_of(lab, LWS).items() if uid != before[index]}


@pytest.mark.in_depth
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.kind.name)
def test_stopped_run_goes_on_where_it_was_and_hands_over(
    served: Lab, stack: Stack, engine: Engine
) -> None:
    """`stop` and `resume` work under each kind, and the run goes on when the stack changes to
    multi-pod.

    Before that every pod has the rank of its index, and finds the first pod by its name.
    """
    lab, kind, run_name = served, engine.kind, f"e2e-{engine.kind.name}-stopped"
    stack.set_all({"topology": kind.name, **run_settings(run_name, ENDLESS)})
    stack.up()
    assert f"StatefulSet/{STATEFUL_SET}" not in lab.uids("statefulset")
    for index in range(PODS):
        pod = pod_of(lab, stack, engine, index)
        variables = lab.kubectl("exec", pod, "--", "env").splitlines()
        assert f"{engine.index_variable}={index}" in variables
        assert f"PET_MASTER_ADDR={engine.master}" in variables
        # A controller may set these a second time; then both values have to agree.
        sizes = {name for name in variables if name.startswith(("PET_NNODES=", "PET_NPROC_"))}
        assert sizes == {f"PET_NNODES={PODS}", "PET_NPROC_PER_NODE=1"}
        said = f"[node {index}] round 1: {PODS} node(s) x 1 rank(s)"
        assert said in lab.kubectl("logs", pod)
    said = people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    saved = max(lab.losses(run_name))
    assert f"it has saved step {saved}." in said
    assert training_pods(lab, stack) == []
    assert states(lab, stack)[stack.name] == "stopped"
    people_run(lab, stack, f"./disttrain resume --stack {stack.name}")
    wait_for("further steps", lambda: max(lab.losses(run_name)) > saved, 120)
    stack.set("topology", "multi-pod")
    output = stack.up()
    assert f"{kind.kind} {engine.workload} of this stack is ended" in output
    assert f"{kind.kind}/{engine.workload}" not in lab.uids(engine.typed)
    saved = max(lab.losses(run_name))
    wait_for("steps of multi-pod", lambda: max(lab.losses(run_name)) > saved, 120)


@pytest.mark.in_depth
def test_finished_run_of_one_pod_holds(served: Lab, stack: Stack) -> None:
    """Under `lws` a pod whose run has finished waits until it is told to end.

    Otherwise a LeaderWorkerSet would start its only pod again and again.
    """
    lab, run_name = served, "e2e-lws-alone"
    shape = {"pods": "1", "processesPerPod": str(PODS)}
    stack.set_all({"topology": LWS.kind.name, **run_settings(run_name, 20), **shape})
    try:
        stack.up()
        lab.wait_done(run_name)
        wait_for("a pod that holds", lambda: "holding until SIGTERM" in logs(lab, LWS), 120)
        assert pod_starts(lab, run_name) == [1, 0, 0]
        assert states(lab, stack)[stack.name] == "finished"
        assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
        people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
        assert training_pods(lab, stack) == []  # otherwise one would hold its GPUs
    finally:
        stack.set_all({"pods": str(PODS), "processesPerPod": "1"})


def logs(lab: Lab, engine: Engine) -> str:
    """Return the log of node 0's pod; empty if there is no such pod."""
    name = engine.pods(0)
    return lab.kubectl("logs", name) if f"Pod/{name}" in lab.uids("pod") else ""


@pytest.mark.in_depth
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.kind.name)
def test_fatal_error_fails_the_workload_without_a_retry(
    served: Lab, stack: Stack, engine: Engine
) -> None:
    """A fatal error, such as weights that do not exist, fails `up` and the workload without a
    retry.

    Under a kind whose workload never ends, the pods start again, and status says `failing`.
    """
    lab, run_name = served, f"e2e-{engine.kind.name}-fatal"
    fatal = {"run.train.initial_weights": "/data/no-such-weights"}
    given = {"topology": engine.kind.name, **run_settings(run_name, 10), **fatal}
    stack.set_all({**given, **engine.no_retry})
    try:
        with pytest.raises(PulumiFailedError) as failure:
            stack.up()
    finally:
        for key in (*fatal, *engine.no_retry):
            stack.set(key, None)
    said = failure.value.args[0]
    assert "training failed" in said, said
    assert "/data/no-such-weights" in said, said  # the last words of the rank
    if engine.ends:
        assert engine.failed_reason in ended(lab, engine, engine.kind.failed)
        wait_for("the end of its pods", lambda: not training_pods(lab, stack), 120)
        starts = pod_starts(lab, run_name)
        assert max(starts[index] for index in engine.heard) == 1
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    # The finished run of `probing` may be there too.
    runs = {run.stack.rpartition("/")[2]: run for run in take_snapshot(api, NAMESPACE).runs}
    run = runs[stack.name]
    state = "failed" if engine.ends else "failing"
    assert (run.state, "/data/no-such-weights" in run.detail) == (state, True)
