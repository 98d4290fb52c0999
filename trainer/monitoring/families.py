"""The names of the metrics that a run offers to Prometheus, with their types and meanings.

docs/monitoring.md lists the same names; a test checks that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How Prometheus treats a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True)
class Family:
    """All samples of one name.

    Args:
        name: The name of the metric, with its unit at the end.
        help: What the metric is, in one sentence.
        kind: The type of the metric. A counter only grows, until its process is restarted.
    """

    name: str
    help: str
    kind: Kind = Kind.GAUGE


def _counter(name: str, text: str) -> Family:
    return Family(name, text, Kind.COUNTER)


# The metrics of each pod's program.
INFO = Family("disttrain_info", "Always 1; the labels say how the run is set up.")
START = Family(
    "disttrain_start_timestamp_seconds", "When this pod's program began, in seconds since 1970."
)
CONFIGURED = Family("disttrain_ranks_configured", "Ranks of the whole run, in all pods.")
ALIVE = Family("disttrain_ranks_alive", "Ranks of this pod whose process runs.")
STARTS = _counter("disttrain_starts_total", "How often this pod has started its ranks.")
RESTARTS = _counter(
    "disttrain_restarts_total", "How often this pod has started its ranks again after they ended."
)
DIVERGENCES = _counter(
    "disttrain_divergences_total",
    "How often ranks of this pod ended because loss or gradients were not finite.",
)
RANK_SECONDS = _counter(
    "disttrain_rank_seconds_total",
    "Seconds times ranks of this pod, by what they were for; on GPUs each rank has one.",
)
TRANSPORT = Family(
    "disttrain_transport_info",
    "Always 1, for each rank of this pod whose way to the other ranks is known; the labels say it.",
)
AS_ASKED = Family(
    "disttrain_transport_as_asked",
    "1 where all ranks of this pod have a transport that the network profile asks for, else 0; "
    "absent where it is not known or nothing is asked for.",
)
FINISHED = Family("disttrain_finished", "1 once the run has come to its last step, else 0.")
FAILED = Family("disttrain_failed", "1 once this pod has given up, else 0.")

# The metrics from the files of the run, which only node 0 offers.
STEP = Family("disttrain_step", "Updates made so far, as far as they are logged.")
MAX_STEPS = Family("disttrain_max_steps", "Updates of the whole run.")
LAST_STEP = Family(
    "disttrain_last_step_timestamp_seconds",
    "When the newest logged update was made, in seconds since 1970.",
)
LOSS = Family("disttrain_loss", "Training loss in nats per token; NaN where it was not finite.")
VALIDATION_LOSS = Family(
    "disttrain_validation_loss", "Validation loss in nats per token, of the newest evaluation."
)
LEARNING_RATE = Family("disttrain_learning_rate", "Learning rate of the newest logged update.")
GRADIENT_NORM = Family("disttrain_gradient_norm", "Norm of the gradients before clipping.")
TOKENS = Family("disttrain_tokens", "Tokens that the updates so far were made from.")
TOKENS_PER_SECOND = Family(
    "disttrain_tokens_per_second", "Of all ranks together, without evaluations and saves."
)
MFU = Family(
    "disttrain_mfu", "Share of the GPUs' peak FLOP/s that the model uses; absent if unknown."
)
STEP_SECONDS = Family(
    "disttrain_step_seconds", "Quantiles of the time of the last 200 updates of rank 0."
)
DATA_WAIT = Family(
    "disttrain_data_wait_ratio", "Share of the step time in which a rank waited for its batch."
)
SLOW_RANK = Family(
    "disttrain_slow_rank_ratio",
    "How many times as long as usual the slow rank needs for what the label cause says; absent "
    "while no rank is slow.",
)
PEAK_MEMORY = Family(
    "disttrain_peak_memory_bytes", "Most memory that a rank has used: on a GPU its tensors."
)
CHECKPOINT_STEP = Family("disttrain_checkpoint_step", "Step of the newest checkpoint; 0: none.")
CHECKPOINT_TIME = Family(
    "disttrain_checkpoint_timestamp_seconds",
    "When the newest checkpoint was put in place, in seconds since 1970; absent without one.",
)
CHECKPOINT_INTERVAL = Family(
    "disttrain_checkpoint_interval_steps", "Most updates that a kill may cost; absent if not set."
)
MIRROR_STEP = Family(
    "disttrain_mirror_step", "Step of the newest checkpoint that is whole in the mirror; 0: none."
)
MIRROR_PROBLEM = Family("disttrain_mirror_problem", "1 while the mirror cannot go on, else 0.")
VOLUME_FREE = Family("disttrain_volume_free_bytes", "Room that is left where the run writes.")
VOLUME_SIZE = Family("disttrain_volume_size_bytes", "Size of the file system the run writes to.")

FAMILIES: tuple[Family, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Family)
)
