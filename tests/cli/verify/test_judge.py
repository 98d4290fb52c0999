"""What `verify` calls good, wrong or not checked, for each thing that people check after a
launch.
"""

from dataclasses import replace
from typing import Any

import pytest

from cli.status.judge import RunStatus
from cli.status.progress import Progress
from cli.verify.evidence import Evidence
from cli.verify.gpu_results import has_code_for
from cli.verify.judge import judge
from trainer.transport.asked import line, reason_to_stop
from trainer.transport.lines import Transport, read_transport

TRAINING = RunStatus("dev", "ns", "Job t", 2, "training", progress=Progress(step=40, of=100))
FINISHED = replace(TRAINING, state="finished")
SAVING = replace(TRAINING, state="saving", detail="checkpoint step 40 is being written")
STOPPED = replace(TRAINING, state="stopped", detail="it has saved step 40")
STALLED = replace(TRAINING, state="stalled", detail="no step is reported any more")
GPU = {"name": "H100", "capability": "9.0", "busy_percent": 93, "memory_mib": 9000}
TORCH = {"devices": 2, "architectures": ["sm_80", "sm_90"], "version": "2.7.1", "nccl": "2.26.2"}
PROBE: dict[str, Any] = {
    "gpus": [GPU, GPU],
    "gpu_problem": "",
    "torch": TORCH,
    "torch_problem": "",
    "shared_memory_bytes": 8 << 30,
    "pinned_memory_bytes": -1,
    "interfaces": ["eth0", "lo"],
    "environment": {},
}
RDMA = {"DISTTRAIN_TRANSPORTS": "ib,roce"}
NCCL_LOG = """\
collectives nccl
pod:12:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
pod:12:12 [0] NCCL INFO ncclCommInitRank comm 0x7f rank 0 nranks 2 cudaDev 0 - Init COMPLETE
"""
CHECKPOINT = {"step": 40, "bytes": 1000, "files": 4, "age_seconds": 3.2, "problem": ""}
SMOKE_TEST = {
    "world_size": 2,
    "backend": "nccl",
    "all_reduce": [
        {"size_bytes": 4096, "seconds": 2e-5, "bus_bytes_per_second": 2.048e8},
        {"size_bytes": 256 << 20, "seconds": 2e-3, "bus_bytes_per_second": 1.342e11},
    ],
}
LOSSES = [(step, 4.0 - step / 100) for step in range(1, 41)]


def pod(name: str = "t-0", ready: str = "True", image: str = "sha256:a", gpus: int = 2) -> Any:
    """Return a pod of the run on the node n1."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": limits}}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"imageID": image}],
        },
    }


VOLUME_CHECK = {
    "at": 1.0,
    "nodes": [
        {
            "node": node,
            "write_seconds": 0.003 + node / 1000,
            "rename_seconds": 0.002 - node / 1000,
            "visible_seconds": 0.03 - node / 100,
            "file_system": "nfs4 from server:/x",
        }
        for node in (0, 1)
    ],
}

GOOD = Evidence(
    status=TRAINING,
    world_size=2,
    pods=[pod()],
    probes={"t-0": PROBE},
    log=NCCL_LOG,
    losses=LOSSES,
    checkpoint=CHECKPOINT,
    smoke_test=SMOKE_TEST,
    volume_check=VOLUME_CHECK,
)


def with_probe(**changes: Any) -> Evidence:
    """Return the evidence of a good run, with these changes of what its pod has answered."""
    return replace(GOOD, probes={"t-0": {**PROBE, **changes}})


def on_cpu(**changes: Any) -> Evidence:
    """Return the evidence of a good run of two pods on the CPU, with these changes of their
    answers.
    """
    probe = {**PROBE, "gpus": [], "environment": {"GLOO_SOCKET_IFNAME": "eth0"}, **changes}
    pods = [pod("a", gpus=0), pod("b", gpus=0)]
    return replace(GOOD, pods=pods, probes={"a": probe, "b": probe}, log="collectives gloo")


SOCKET = NCCL_LOG.replace("NET/IB/0/GDRDMA", "NET/Socket/0")
EFA = (
    "pod:12:12 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n"
    + NCCL_LOG.replace("NET/IB/", "NET/AWS Libfabric/")
)


EFA_FOUND = {0: read_transport(EFA.splitlines())}


def said_by_node(asked: tuple[str, ...]) -> str:
    """Return the line about the transport that the entrypoint of node 0 prints."""
    return f"[node 0] {line(EFA_FOUND, asked)}\n"


CASES = {
    "pods run": (GOOD, "pods-run", "ok", "t-0 on n1"),
    "a pod is not ready": (
        replace(GOOD, pods=[pod(ready="False")]),
        "pods-run",
        "error",
        "t-0 Running",
    ),
    "no pods": (replace(GOOD, pods=[]), "pods-run", "error", "there are no pods"),
    "finished": (
        replace(GOOD, pods=[], status=FINISHED),
        "pods-run",
        "not applicable",
        "there are no pods",
    ),
    "one image": (GOOD, "one-image", "ok", "sha256:a"),
    "two images": (
        replace(GOOD, pods=[pod(), pod("t-1", image="sha256:b")]),
        "one-image",
        "error",
        "the pods run 2 images",
    ),
    "gpus": (GOOD, "gpus-seen", "ok", "2 x H100"),
    "a gpu is missing": (
        with_probe(gpus=[GPU]),
        "gpus-seen",
        "error",
        "t-0 asks for 2 GPUs, nvidia-smi sees 1, torch 2",
    ),
    "torch sees none": (
        with_probe(torch={**TORCH, "devices": 0}),
        "gpus-seen",
        "error",
        "nvidia-smi sees 2, torch 0",
    ),
    "no nvidia-smi": (
        with_probe(gpus=[], gpu_problem="there is no nvidia-smi"),
        "gpus-seen",
        "error",
        "there is no nvidia-smi",
    ),
    "cut off": (
        replace(GOOD, probes={}, unseen={"t-0": "the connection was cut"}),
        "gpus-seen",
        "not checked",
        "t-0: the connection was cut",
    ),
    "cpu": (on_cpu(), "gpus-seen", "not applicable", "the run asks for no GPUs"),
    "code": (GOOD, "gpu-code", "ok", "H100 (9.0)"),
    "code for no GPU": (
        with_probe(gpus=[], gpu_problem="there is no nvidia-smi"),
        "gpu-code",
        "not checked",
        "no GPU was seen",
    ),
    "no code": (
        with_probe(torch={**TORCH, "architectures": ["sm_70", "sm_80"]}),
        "gpu-code",
        "error",
        "torch was built for sm_70, sm_80, not for sm_90",
    ),
    "busy": (GOOD, "gpus-busy", "ok", "93 %"),
    "idle": (
        with_probe(gpus=[GPU, {**GPU, "busy_percent": 3}]),
        "gpus-busy",
        "warning",
        "busy for 3 % to 93 %",
    ),
    "idle after the end": (
        replace(with_probe(gpus=[{**GPU, "busy_percent": 0}]), status=FINISHED),
        "gpus-busy",
        "not applicable",
        "the run is finished",
    ),
    "small shared memory": (
        with_probe(shared_memory_bytes=64 << 20),
        "shared-memory",
        "warning",
        "64 MiB",
    ),
    "shared memory": (GOOD, "shared-memory", "ok", "8,192 MiB"),
    "infiniband": (GOOD, "transport", "ok", "InfiniBand or RoCE, with GPUDirect; 2 ranks"),
    "tcp": (replace(GOOD, log=SOCKET), "transport", "ok", "NCCL over TCP sockets; 2 ranks joined"),
    "efa": (replace(GOOD, log=EFA), "transport", "ok", "NCCL over EFA, with GPUDirect; 2 ranks"),
    "as asked by NCCL's lines": (
        replace(with_probe(environment={"DISTTRAIN_TRANSPORTS": "socket"}), log=SOCKET),
        "transport",
        "ok",
        "NCCL over TCP sockets",
    ),
    "not as asked by NCCL's lines": (
        replace(with_probe(environment={"DISTTRAIN_TRANSPORTS": "efa"}), log=SOCKET),
        "transport",
        "error",
        "NCCL over TCP sockets, and the network profile asks for EFA. Likely causes: (1) the pod",
    ),
    "as asked by the node": (
        replace(GOOD, log=said_by_node(("efa",))),
        "transport",
        "ok",
        "rank 0 by NCCL over EFA, with GPUDirect",
    ),
    "not as asked by the node": (
        replace(GOOD, log=said_by_node(("ib",))),
        "transport",
        "error",
        "rank 0 by NCCL over EFA, with GPUDirect, and the network profile asks for InfiniBand. L",
    ),
    "ended by the policy stop": (
        replace(GOOD, log=f"[node 0] fatal: {reason_to_stop(line(EFA_FOUND, ('ib',)))}\n"),
        "transport",
        "error",
        "rank 0 by NCCL over EFA, with GPUDirect, and the network profile asks for InfiniBand. L",
    ),
    "not known by the node": (
        replace(GOOD, log=f"[node 0] {line({1: Transport()}, ('ib',))}\n"),
        "transport",
        "not checked",
        "rank 1: NCCL has written no line that says it",
    ),
    "the node's newest word counts": (
        replace(GOOD, log=said_by_node(("ib",)) + said_by_node(("efa",))),
        "transport",
        "ok",
        "rank 0 by NCCL over EFA",
    ),
    "a rank is missing": (
        replace(GOOD, world_size=3),
        "transport",
        "error",
        "NCCL has joined 2 ranks, and the run has 3",
    ),
    "quiet nccl": (
        replace(GOOD, log="collectives nccl\n"),
        "transport",
        "not checked",
        "NCCL has said nothing about its transport",
    ),
    "all-reduce": (
        GOOD,
        "all-reduce",
        "ok",
        "2 ranks by nccl were right: 4 KiB in 0.02 ms (0.205 GB/s), 256 MiB in 2 ms (134 GB/s)",
    ),
    "all-reduce not measured": (
        replace(GOOD, smoke_test=None),
        "all-reduce",
        "not applicable",
        "pulumi config set verify before",
    ),
    "all-reduce of one rank": (
        replace(GOOD, world_size=1),
        "all-reduce",
        "not applicable",
        "one rank",
    ),
    "all-reduce not seen": (
        replace(GOOD, volume_problem="no room for a pod"),
        "all-reduce",
        "not checked",
        "no room for a pod",
    ),
    "shared volume": (
        on_cpu(),
        "shared-volume",
        "ok",
        "2 nodes see each other's new files: write and fsync at most 4 ms (node 1), rename at most "
        "2 ms (node 0), seen by the others after at most 30 ms (node 0); nfs4 from server:/x",
    ),
    "shared volume of one pod": (GOOD, "shared-volume", "not applicable", "one pod"),
    "shared volume not measured": (
        replace(on_cpu(), volume_check=None),
        "shared-volume",
        "not applicable",
        "run.train.volume_timeout_seconds 0",
    ),
    "shared volume not seen": (
        replace(on_cpu(), volume_problem="no room for a pod"),
        "shared-volume",
        "not checked",
        "no room for a pod",
    ),
    "gloo": (on_cpu(), "transport", "ok", "gloo by TCP over eth0"),
    "gloo's interface is not there": (
        on_cpu(interfaces=["lo", "net1"]),
        "transport",
        "error",
        "has no interface eth0: lo, net1",
    ),
    "no pod is left": (
        replace(GOOD, pods=[], probes={}, log="", status=FINISHED),
        "transport",
        "not applicable",
        "no pod runs",
    ),
    "no pod is there": (
        replace(GOOD, pods=[], probes={}, log=""),
        "shared-memory",
        "not checked",
        "no pod runs",
    ),
    "steps": (GOOD, "steps", "ok", "training, step 40 of 100"),
    "pods of a stopped run": (
        replace(GOOD, pods=[], probes={}, log="", status=STOPPED),
        "pods-run",
        "not applicable",
        "there are no pods: the run is stopped",
    ),
    "saving": (replace(GOOD, status=SAVING), "steps", "ok", "saving: checkpoint step 40"),
    "stalled": (replace(GOOD, status=STALLED), "steps", "error", "no step is reported any more"),
    "the loss falls": (GOOD, "loss-falls", "ok", "mean 3.9550 of the first 8 records, 3.6350"),
    "the loss rises": (
        replace(GOOD, losses=[(n, float(n)) for n in range(20)]),
        "loss-falls",
        "warning",
        "mean 1.5000",
    ),
    "the loss is no number": (
        replace(GOOD, losses=[(n, float("nan") if n > 15 else 3.0) for n in range(20)]),
        "loss-falls",
        "warning",
        "nan",
    ),
    "nothing to pin": (GOOD, "pinned-memory", "not applicable", "asks for no RDMA or EFA device"),
    "memory is pinned": (with_probe(environment=RDMA), "pinned-memory", "ok", "as much memory as"),
    "memory for some buffers": (
        with_probe(environment=RDMA, pinned_memory_bytes=8 << 20),
        "pinned-memory",
        "warning",
        "t-0 may pin 8 MiB of memory",
    ),
    "EFA pins memory too": (
        with_probe(environment={"DISTTRAIN_TRANSPORTS": "efa"}, pinned_memory_bytes=65536),
        "pinned-memory",
        "warning",
        "t-0 may pin 64 KiB of memory",
    ),
    "no pod to ask about pinned memory": (
        replace(GOOD, probes={}, unseen={"t-0": "no exec"}),
        "pinned-memory",
        "not checked",
        "t-0: no exec",
    ),
    "variables": (
        with_probe(environment={"NCCL_P2P_DISABLE": "0", "NCCL_DEBUG": "INFO", **RDMA}),
        "variables",
        "ok",
        "no variable is set that",
    ),
    "no NVLink": (
        with_probe(environment={"NCCL_P2P_DISABLE": "1"}),
        "variables",
        "warning",
        "NCCL_P2P_DISABLE=1: the GPUs of a machine do not use NVLink or PCIe directly",
    ),
    "kernels that wait": (
        with_probe(environment={"CUDA_LAUNCH_BLOCKING": "1"}),
        "variables",
        "warning",
        "CUDA_LAUNCH_BLOCKING=1: ",
    ),
    "NCCL does not choose": (
        with_probe(environment={"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}),
        "variables",
        "warning",
        "NCCL_PROTO=Simple: NCCL, or the tuner of its plugin, does not choose",
    ),
    "no pod to ask about variables": (
        replace(GOOD, probes={}, unseen={"t-0": "no exec"}),
        "variables",
        "not checked",
        "t-0: no exec",
    ),
    "too few losses": (replace(GOOD, losses=LOSSES[:4]), "loss-falls", "not checked", "4 losses"),
    "checkpoint": (GOOD, "checkpoint", "ok", "step 40, 3 s old: 4 files of 1,000 bytes"),
    "no checkpoint": (replace(GOOD, checkpoint=None), "checkpoint", "not checked", "none yet"),
    "damaged checkpoint": (
        replace(GOOD, checkpoint={"step": 40, "problem": "layout.json is missing"}),
        "checkpoint",
        "error",
        "step 40: layout.json is missing",
    ),
    "the volume was not read": (
        replace(GOOD, volume_problem="no room for a pod"),
        "checkpoint",
        "not checked",
        "no room for a pod",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_evidence_has_its_result_and_its_words(case: str) -> None:
    """Each piece of evidence is called ok, wrong or not checked, with words about what was seen.
    What is wrong has a fix.
    """
    seen, id, status, words = CASES[case]
    (found,) = [result for result in judge(seen) if result.id == id]
    assert found.status == status, found
    assert words in found.evidence
    if status in ("error", "warning"):
        assert found.fix


@pytest.mark.parametrize(("run", "fix"), [(STOPPED, "resume"), (STALLED, "logs")])
def test_run_that_does_not_step_has_its_remedy(run: RunStatus, fix: str) -> None:
    """The fix for a run without steps depends on the reason: a run that somebody has stopped is
    resumed, and a stalled one needs a look at its logs.
    """
    (found,) = [each for each in judge(replace(GOOD, status=run)) if each.id == "steps"]
    assert (found.status, found.fix) == ("error", f"./disttrain {fix}")


def test_all_is_well_with_a_good_run() -> None:
    found = {result.id: result.status for result in judge(GOOD)}
    assert found.pop("shared-volume") == "not applicable"  # the run has one pod
    assert found.pop("pinned-memory") == "not applicable"
    assert set(found.values()) == {"ok"}


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        (90, ["sm_80", "sm_90"], True),
        (86, ["sm_80"], True),  # the same major version, and an older minor one
        (80, ["sm_86"], False),
        (90, ["sm_80"], False),
        (120, ["sm_90", "compute_90"], True),  # PTX is compiled for newer GPUs
        (70, ["sm_80", "compute_80"], False),
        (90, ["sm_90a"], True),
        (90, [], False),
    ],
)
def test_torch_needs_code_for_the_gpu(capability: int, built: list[str], runs: bool) -> None:
    """PyTorch runs on a GPU only if it was built for the GPU's architecture, an older minor version
    of it, or has PTX of an older one.
    """
    assert has_code_for(capability, built) == runs
