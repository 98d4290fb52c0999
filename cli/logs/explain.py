"""Explains lines of NCCL, CUDA and the NVIDIA driver in a sentence. This module is pure.

The meanings of NCCL's errors are from the chapter "Troubleshooting" of NCCL's guide.
"""

import re

from cli.logs.line import without_middle
from infra.in_cluster.xids import meaning_of

XID = re.compile(r"NVRM: Xid \((?P<gpu>[^)]*)\): (?P<number>\d+)\b")

SENTENCES: tuple[tuple[str, str], ...] = (
    (
        r"Duplicate GPU detected",
        "two ranks use one GPU, which NCCL refuses: give each rank a GPU of its own",
    ),
    (
        r"NCCL WARN.*(?:shared memory segment|/dev/shm).*|No space left on device.*nccl-",
        "NCCL found no room in /dev/shm: raise the setting shmSize",
    ),
    (
        r"[Nn]o socket interface found|NCCL_SOCKET_IFNAME.*not found",
        "NCCL found no network interface that it may use: check NCCL_SOCKET_IFNAME",
    ),
    (
        r"(?:ibv_|fi_mr_reg|register memory).*Cannot allocate memory",
        "the pod may pin too little memory for its RDMA or EFA device: set LimitMEMLOCK=infinity "
        "for the container runtime of the node; see "
        "docs/clusters.md#a-faster-network-between-the-machines",
    ),
    (
        r"ibv_open_device failed|NET/IB : Unable to open device",
        "the pod sees an RDMA device that it was not given: let it ask for one by the setting "
        "network: rdma",
    ),
    (
        r"ibv_modify_qp failed with error No such device",
        "the RDMA device has no address in the pod: give the network card of the device to the "
        "pod by networkOptions.attachments",
    ),
    (
        r"Got completion from peer .* (?:with error|with status=) ?12\b",
        "an InfiniBand or RoCE message was sent again and again without an answer: the other rank "
        "is gone, or the link is broken",
    ),
    (
        r"remote process exited or there was a network error|ncclRemoteError",
        "another rank has ended, or the network to it broke: the reason is in that rank's lines",
    ),
    (
        r"NCCL.*(?:Connection closed by remote peer|Connection reset by peer|Broken pipe)"
        r"|(?:socketProgress|Call to (?:recv|send)).*(?:closed|reset|Broken pipe)",
        "the connection to another rank broke: look for what ended that rank",
    ),
    (
        r"Watchdog caught collective operation timeout",
        "this rank has waited in vain for the others in a collective operation: one of them hangs, "
        "is far behind, or has left",
    ),
    (
        r"unhandled system error|ncclSystemError",
        "a call to the operating system failed in NCCL, mostly of the network: the lines before it "
        "with NCCL WARN name the call; NCCL_DEBUG: INFO in podEnvironment shows them",
    ),
    (
        r"unhandled cuda error|ncclUnhandledCudaError",
        "a call to CUDA failed in NCCL: the lines before it with NCCL WARN name the call",
    ),
    (
        r"ncclInvalidUsage|NCCL.*invalid usage",
        "NCCL was used wrongly, such as by two ranks on one GPU or by ranks that do not do the "
        "same: the line Last error names it",
    ),
    (
        r"CUDA error: uncorrectable ECC error",
        "this GPU's memory has an error that ECC could not correct: reset the GPU, and have it "
        "checked if it comes back",
    ),
    (
        r"CUDA error: an illegal memory access|CUDA error: unspecified launch failure",
        "a kernel accessed memory that it has not got; the trace may name a later call, unless "
        "CUDA_LAUNCH_BLOCKING=1 is set",
    ),
    (
        r"CUDA error: device-side assert triggered",
        "a kernel found a value that cannot be, often an index out of range, such as a token that "
        "is not in the vocabulary",
    ),
)
_HINT = re.compile(
    "Xid|NCCL|nccl|CUDA|GPU|Watchdog|remote process|completion|interface|Call to|socketProgress"
)
_SENTENCES = tuple((re.compile(pattern), sentence) for pattern, sentence in SENTENCES)


def explain(text: str) -> str:
    """Return the sentence for a line; empty if there is none."""
    text = without_middle(text)
    if not _HINT.search(text):
        return ""  # one quick search is enough for nearly all lines
    if xid := XID.search(text):
        number = int(xid["number"])
        return f"Xid {number} of GPU {xid['gpu']}: {meaning_of(number)}"
    return next((sentence for pattern, sentence in _SENTENCES if pattern.search(text)), "")
