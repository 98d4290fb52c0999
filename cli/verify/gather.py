"""Gathers the evidence for `disttrain verify`.

It reads from the cluster, runs a program in each training pod, and starts one pod that reads the
volume.
"""

import queue
import threading
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

from cli.pod_answer import ask_by_pod, ask_in_pod
from cli.stack_outputs import RunPlace
from cli.stack_pod import stack_pod
from cli.status.platform_status import gpus_of
from cli.status.snapshot import see_run
from cli.verify import pod_probe, run_probe
from cli.verify.evidence import Evidence
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.objects import Json, container_of, is_running, name_of
from infra.kube.paths import log_path, pod_path
from infra.kube.runs.steer import find_record

MOST_AT_ONCE = 8  # a pod needs about ten seconds, most of them for torch and for nvidia-smi
LIMIT_SECONDS = 3600  # the sha256 of a large checkpoint on a slow disk takes long
FIRST_BYTES = 1 << 20  # of the log: at its beginning, NCCL and the trainer write what they use


def gather(api: Api, place: RunPlace) -> Evidence:
    """Ask the cluster, each running pod, and the volume.

    Raises:
        ApiError: the cluster refuses.
        TaskError: there is no such run.
        UnreachableError: the cluster does not answer.
        ValueError: the run's record cannot be read.
    """
    record = find_record(api, place.namespace, place.owner)
    status, pods = see_run(api, record)
    alive = [pod for pod in pods if is_running(pod)]
    probes, unseen = _ask_pods(place, alive)
    volume, problem = _ask_volume(api, place)
    return Evidence(
        status=status,
        world_size=place.world_size,
        pods=pods,
        probes=probes,
        unseen=unseen,
        log=_first_lines(api, place, alive[0]) if alive else "",
        losses=[(int(step), float(loss)) for step, loss in volume.get("losses", [])],
        checkpoint=volume.get("checkpoint"),
        smoke_test=volume.get("smoke_test"),
        volume_check=volume.get("volume_check"),
        volume_problem=problem,
    )


def _ask_pods(
    place: RunPlace, pods: Sequence[Json]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Ask the pods, MOST_AT_ONCE at a time.

    Returns:
        By the name of the pod, in the order of the pods: the answers, and why there is none.
    """
    left: queue.SimpleQueue[Json] = queue.SimpleQueue()
    for pod in pods:
        left.put(pod)
    probes, unseen = dict[str, dict[str, Any]](), dict[str, str]()

    def work() -> None:
        api = Api(place.access)  # each thread needs its own connections
        with suppress(queue.Empty):
            while True:
                pod = left.get_nowait()
                try:
                    probes[name_of(pod)] = _ask_pod(api, place.namespace, pod)
                except (ApiError, TaskError, UnreachableError, ValueError) as reason:
                    unseen[name_of(pod)] = str(reason)

    count = min(MOST_AT_ONCE, len(pods))
    # After Ctrl-C, the command does not wait for daemon threads, as it would for those of a pool.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [name_of(pod) for pod in pods]
    answers = {name: probes[name] for name in names if name in probes}
    return answers, {name: unseen[name] for name in names if name in unseen}


def _ask_pod(api: Api, namespace: str, pod: Json) -> dict[str, Any]:
    program = Path(pod_probe.__file__).read_text()
    failed = "the pod could not be examined"
    return ask_in_pod(api, namespace, pod, program, str(gpus_of(pod)), failed=failed)


def _ask_volume(api: Api, place: RunPlace) -> tuple[dict[str, Any], str]:
    """Return the answer of run_probe.py about the run's folder; or an empty one, and why."""
    pod = stack_pod(
        place,
        "verify",
        ("python3", "-c", Path(run_probe.__file__).read_text(), place.run_path),
        deadline_seconds=LIMIT_SECONDS,
    )
    try:
        with redirect_stdout(StringIO()):  # messages about the pod's start are no result
            return ask_by_pod(api, pod, failed="the run's folder could not be read")
    except (ApiError, TaskError, UnreachableError) as reason:
        return {}, f"no pod could read the volume: {reason}"


def _first_lines(api: Api, place: RunPlace, pod: Json) -> str:
    query = {"container": container_of(pod), "limitBytes": str(FIRST_BYTES)}
    try:
        return api.text(log_path(pod_path(place.namespace, name_of(pod))), query)
    except (ApiError, UnreachableError):
        return ""  # the checks that need the log report that they have not seen it
