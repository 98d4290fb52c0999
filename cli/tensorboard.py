"""`disttrain tensorboard`: shows TensorBoard of all runs on the volume in a local browser."""

import argparse
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

from cli.endings import end_in_order
from cli.port_option import add_port, check_port, port_to_have
from cli.stack_option import add_stack_of_platform
from cli.stack_outputs import VolumePlace, volume_place
from cli.stack_pod import pod_is_running, stack_pod, why_it_ended
from infra.kube.api_server.api import Api
from infra.kube.api_server.port_forward import LOOPBACK, check_right, forwarded
from infra.kube.errors import TaskError
from infra.kube.files.task_pod import TaskPod, running

PORT = 6006
LIMIT_SECONDS = 12 * 3600  # the pod ends after this time, even if this program was killed
START_SECONDS = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `disttrain tensorboard`."""
    add_stack_of_platform(parser)
    add_port(parser, PORT)


def run(arguments: argparse.Namespace) -> int:
    """Show TensorBoard until Ctrl-C or another signal ends the command.

    Raises:
        ValueError: the stack is not up, or the port is taken.
        TaskError: the pod does not start, does not answer, or has ended.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    end_in_order()
    check_port(arguments.port)  # first, so that no pod is started in vain
    place = volume_place(arguments.stack)
    return serve(Api(place.access), place, arguments.port)


def board_pod(place: VolumePlace) -> TaskPod:
    """Describe the pod that serves TensorBoard; it can change nothing on the volume.

    TensorBoard has no password, so it listens where only connections that the API server forwards
    come from: inside of the pod.
    """
    options = ("--logdir", place.runs_path, "--port", str(PORT), "--host", LOOPBACK)
    return stack_pod(
        place,
        "tensorboard",
        ("tensorboard", *options),
        deadline_seconds=LIMIT_SECONDS,
        environment={"HOME": "/tmp"},
    )


def serve(api: Api, place: VolumePlace, local_port: int) -> int:
    """Start the pod, forward the port, and wait.

    Raises TaskError once the pod has ended.
    """
    with ExitStack() as stack:
        path = stack.enter_context(running(api, board_pod(place)))
        if not pod_is_running(api, path):  # No port of such a pod can be forwarded.
            raise TaskError(_ended(api, path))
        check_right(api, path, PORT)
        with port_to_have(local_port):
            port = stack.enter_context(forwarded(place.access, path, PORT, local_port))
        address = f"http://{LOOPBACK}:{port}/"
        wait_until_it_answers(api, path, address)
        print(f"TensorBoard is at {address}; Ctrl-C ends it", flush=True)
        while pod_is_running(api, path):
            time.sleep(2)
        raise TaskError(_ended(api, path))


def wait_until_it_answers(api: Api, path: str, address: str) -> None:
    """Wait until TensorBoard answers.

    Raises TaskError if the pod has ended, or if TensorBoard does not answer in START_SECONDS.
    """
    end = time.monotonic() + START_SECONDS
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with direct.open(address, timeout=10):
                return
        except (urllib.error.URLError, OSError) as reason:
            if not pod_is_running(api, path):
                raise TaskError(_ended(api, path)) from None
            if time.monotonic() > end:
                raise TaskError(
                    f"waited {START_SECONDS} s for TensorBoard to answer ({reason})"
                ) from None
        time.sleep(0.5)


def _ended(api: Api, path: str) -> str:
    """Return the text of the error about a pod that does not run any more."""
    return (
        f"the pod of TensorBoard has ended: {why_it_ended(api.get(path))}. Run ./disttrain "
        "tensorboard again; what it shows is still on the volume"
    )
