"""Labels, annotations and names by which the tasks of infra.kube find objects in the cluster."""

# The tasks use these as `names.OWNER_LABEL` and so on, like the names below.
from infra.names import COMPONENT_LABEL as COMPONENT_LABEL
from infra.names import OWNER_LABEL as OWNER_LABEL
from infra.names import REVISION_LABEL as REVISION_LABEL
from infra.names import STACK_LABEL as STACK_LABEL
from infra.names import TRAINING as TRAINING

PART_OF_LABEL = "app.kubernetes.io/part-of"
RECORD_LABEL = "disttrain.dev/record"
TASK_LABEL = "disttrain.dev/task"
STACK_ANNOTATION = "disttrain.dev/stack"
SUSPENDED_BY_ANNOTATION = "disttrain.dev/suspended-by"
# On a workload that names a queue, while it is suspended by its own field and not by Kueue, because
# Kueue does not watch it.
WITHOUT_KUEUE_ANNOTATION = "disttrain.dev/suspended-without-kueue"
HOW_ENDED_ANNOTATION = "disttrain.dev/how-ended"
SAVED_STEP_ANNOTATION = "disttrain.dev/saved-step"
MAY_GO_ANNOTATION = "disttrain.dev/may-be-deleted"
PURGES_ANNOTATION = "disttrain.dev/purges"  # on a claim: what `pulumi destroy` purges
PURGES_FOLDER, PURGES_CLAIM = "folder", "claim"

PROJECT = "disttrain"
RUN_RECORD = "run"
LOCK_NAME = "disttrain-hand-over"


def short(owner: str) -> str:
    """The first eight characters of an owner's uuid, for the names of objects."""
    return owner[:8]


def training_selector(owner: str, revision: str = "") -> str:
    """The label selector for the pods of one stack's training.

    If `revision` is given, it selects only the pods of that revision.
    """
    parts = [f"{COMPONENT_LABEL}={TRAINING}", f"{OWNER_LABEL}={owner}"]
    if revision:
        parts.append(f"{REVISION_LABEL}={revision}")
    return ",".join(parts)
