"""Decides whether a log line names the cause of a failed start, or only a consequence.

When one rank ends, the connections of all other ranks break, and each of them prints an error too.
Such lines are consequences, and count only if there are no others. This module is pure.
"""

import re
from enum import IntEnum

from cli.logs.line import without_middle


class Weight(IntEnum):
    """How likely it is that a line names the cause. A smaller value is more likely."""

    CAUSE = 0
    SUSPECT = 1
    """A sign of the cause, such as a hang that was noticed, or the summary of a node."""
    VICTIM = 2
    """A consequence: the line is of a rank or node that lost its connection to another one."""
    NOTHING = 3


VICTIM = re.compile(
    r"Connection closed by (?:remote )?peer"
    r"|Connection reset by (?:remote )?peer"
    r"|Broken pipe"
    r"|Connection refused"
    r"|remote process exited or there was a network error"
    r"|ncclRemoteError"
    r"|[Pp]eer is gone|hung up|NCCL communicator was aborted"
    r"|Socket (?:unexpectedly )?closed"
    r"|failed to recv, got 0 bytes"
    r"|Application timeout caused pair closure"
    r"|Timed out waiting \d+ ?ms for (?:recv|send) operation"
    r"|has waited for \d+ s in .*, longer than train\.timeout_seconds"
    r"|Got completion from peer "
    r"|TCPStore|Failed to check the \"should dump\" flag"
    r"|see its reason|stopped while a peer was leaving"
    r"|the connection to node \d+ was lost|lost the connection"
    r"|DistBackendError: NCCL error in: .*(?:internal error|unhandled system error)"
    r"|ncclInternalError|ncclSystemError"
    r"|To avoid data inconsistency, we are taking the entire process down"
    r"|Some NCCL operations have failed or timed out"
    r"|NVRM: Xid \([^)]*\): (?:43|45|63)\b"
)
SUSPECT = re.compile(
    r"Watchdog caught collective operation timeout"
    r"|Process group watchdog thread terminated"
    r"|\brank \d+ was ended by SIG(?:ABRT|TERM)\b"
    # The line of the rank itself is before it, on its own node.
    r"|\blocal rank \d+ (?:was|ended) "
    r"|exited without a status file \(killed\?\)"  # written by earlier versions
    r"|Fatal Python error: Aborted"
    r"|terminate called after throwing"
    r"|gave up after \d+ s: waiting for node\(s\)"
    r"|no step for \d+ s: "
    r"|starts in a row failed without a newer checkpoint"
)
CAUSE = re.compile(
    r"NVRM: Xid \([^)]*\): \d+\b"
    r"|\brank \d+ was (?:killed by SIGKILL|ended by SIG\w+|ended by signal \d+)"
    r"|\brank \d+ ended by itself with exit status \d+"
    r"|Out of memory: Killed process|oom-kill:|OOMKilled|Memory cgroup out of memory"
    r"|CUDA out of memory|CUDA error: |HIP error: "
    r"|Cuda failure '|NCCL WARN Cuda failure"
    r"|NCCL WARN .*(?:No space left|Error while creating shared memory)"
    # Not ibv_open_device: without the device, NCCL goes on by TCP.
    r"|Call to ibv_(?:reg|create|modify)\w* failed"
    r"|Duplicate GPU detected|[Nn]o socket interface found"
    r"|No space left on device|Disk quota exceeded|Read-only file system|Input/output error"
    r"|Fatal Python error: (?:Segmentation fault|Bus error)"
    r"|Segmentation fault \(core dumped\)|^Bus error|\(Bus error\)"
    r"|step \d+ diverged: "
    r"|gave up after \d+ s: waiting for the DNS name"
    r"|gave up after \d+ s: waiting for node 0 at"
    r"|Name or service not known|Temporary failure in name resolution"
    # Written by `python -m`. In other lines, the same words may come from a program that goes on
    # without the module.
    r"|^\S*python\S*: .*No module named "
)
# A line such as `ValueError: ...` at the end of a traceback. torch may put `[rank0]:` before it.
EXCEPTION = re.compile(
    r"(?:\[rank\d+\]: ?)?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)(?::|$)"
)
RANK_REASON = re.compile(r"rank \d+: ")  # trainer/launch/worker.py
NODE_REASON = re.compile(
    r"\[node \d+\] (?:fatal|giving up for now|training stopped|round \d+ is lost): (?P<reason>.*)"
)
# From trainer/launch/coordinator.py: a whole node is lost, and so cannot write why.
NODE_LOST = re.compile(r"\[node \d+\] round \d+ is lost: node (?P<node>\d+) ")
# After such a warning, the trainer, its nodes and its mirror go on. An end has its own line.
WARNING = re.compile(r"(?:\[(?:node \d+|mirror)\] )?warning: ")
TRACEBACK = re.compile(r"(?:\[rank\d+\]: ?)?Traceback \(most recent call last\):")


def weigh(text: str) -> Weight:
    """Return how likely one line names the cause. Of a traceback only the last line counts."""
    text = without_middle(text)
    if WARNING.match(text):
        return Weight.NOTHING
    if NODE_LOST.match(text):
        return Weight.SUSPECT
    node = NODE_REASON.match(text)
    reason = node["reason"] if node else text
    if VICTIM.search(reason):
        return Weight.VICTIM
    if SUSPECT.search(text):
        return Weight.SUSPECT
    if CAUSE.search(reason):
        return Weight.CAUSE
    if node and reason.startswith("stopped by a signal"):
        return Weight.NOTHING
    if node:
        return Weight.CAUSE if text.split("] ", 1)[1].startswith("fatal: ") else Weight.SUSPECT
    if EXCEPTION.match(text) or RANK_REASON.match(text):
        return Weight.CAUSE
    return Weight.NOTHING
