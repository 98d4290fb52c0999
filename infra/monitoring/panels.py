"""The panels of the dashboard, with their titles and their queries. All functions are pure.

A test sends each query to a real Prometheus that has scraped a real training, and expects a result.
So no panel can use a metric that does not exist.
"""

from dataclasses import dataclass

RUN = '{namespace=~"$namespace", run=~"$run"}'
MFU = f"disttrain_mfu{RUN}"


@dataclass(frozen=True)
class Panel:
    """One panel.

    Args:
        title: what the panel shows, in a few words.
        unit: Grafana's name of the unit of the numbers.
        queries: pairs of a PromQL expression and the legend of its lines.
        is_number: whether the panel shows one number instead of lines over time.
        about: a description for the reader; empty if the title is enough.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    is_number: bool = False
    about: str = ""


def of_gpus(metric: str) -> str:
    """The PromQL of a DCGM metric for the GPUs of the run's pods, with run and node rank.

    If Prometheus keeps its own labels `pod` and `namespace`, as with the GPU Operator, those of the
    exporter are called `exported_pod` and `exported_namespace`. The expression works in both cases.
    """
    named = metric
    for label in ("namespace", "pod"):
        named = f'label_replace({named}, "{label}", "$1", "exported_{label}", "(.+)")'
    return f"{named} * on (namespace, pod) group_left (run, node_rank) disttrain_info{RUN}"


_GPU = "{{run}} node {{node_rank}} GPU {{gpu}}"

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Run",
        (
            Panel("Step", "none", ((f"disttrain_step{RUN}", "{{run}}"),), is_number=True),
            Panel(
                "Done",
                "percentunit",
                ((f"disttrain_step{RUN} / disttrain_max_steps{RUN}", "{{run}}"),),
                is_number=True,
            ),
            Panel(
                "Since the last step",
                "s",
                ((f"time() - disttrain_last_step_timestamp_seconds{RUN}", "{{run}}"),),
                is_number=True,
            ),
            Panel(
                "Ranks alive",
                "none",
                (
                    (f"sum by (namespace, run) (disttrain_ranks_alive{RUN})", "{{run}}"),
                    (
                        f"max by (namespace, run) (disttrain_ranks_configured{RUN})",
                        "{{run}} wanted",
                    ),
                ),
                is_number=True,
            ),
        ),
    ),
    (
        "Training",
        (
            Panel(
                "Loss",
                "none",
                (
                    (f"disttrain_loss{RUN}", "{{run}}"),
                    (f"disttrain_validation_loss{RUN}", "{{run}} validation"),
                ),
                about="In nats per token.",
            ),
            Panel("Tokens per second", "none", ((f"disttrain_tokens_per_second{RUN}", "{{run}}"),)),
            Panel(
                "Share of the GPUs' peak (MFU)",
                "percentunit",
                ((MFU, "{{run}}"),),
                about="Absent where the peak of the GPU is not known.",
            ),
            Panel("Gradient norm", "none", ((f"disttrain_gradient_norm{RUN}", "{{run}}"),)),
            Panel("Learning rate", "none", ((f"disttrain_learning_rate{RUN}", "{{run}}"),)),
            Panel(
                "Time of a step", "s", ((f"disttrain_step_seconds{RUN}", "{{run}} {{quantile}}"),)
            ),
            Panel(
                "Wait for data", "percentunit", ((f"disttrain_data_wait_ratio{RUN}", "{{run}}"),)
            ),
            Panel("Memory of a rank", "bytes", ((f"disttrain_peak_memory_bytes{RUN}", "{{run}}"),)),
        ),
    ),
    (
        "Safety",
        (
            Panel(
                "Age of the newest checkpoint",
                "s",
                ((f"time() - disttrain_checkpoint_timestamp_seconds{RUN}", "{{run}}"),),
            ),
            Panel(
                "Steps after the newest checkpoint",
                "none",
                ((f"disttrain_step{RUN} - disttrain_checkpoint_step{RUN}", "{{run}}"),),
                about="What a kill would cost now.",
            ),
            Panel(
                "Transport as asked",
                "none",
                (
                    (
                        f"min by (namespace, run) (disttrain_transport_as_asked{RUN})",
                        "{{run}}",
                    ),
                ),
                about="1: all ranks have a transport that the network profile asks for.",
            ),
            Panel(
                "Starts of the ranks",
                "none",
                ((f"sum by (namespace, run) (disttrain_starts_total{RUN})", "{{run}}"),),
            ),
            Panel(
                "What the ranks' time was for",
                "percentunit",
                (
                    (
                        "sum by (run, state) "
                        f"(rate(disttrain_rank_seconds_total{RUN}[$__rate_interval])) "
                        "/ on (run) group_left sum by (run) "
                        f"(rate(disttrain_rank_seconds_total{RUN}[$__rate_interval]))",
                        "{{run}} {{state}}",
                    ),
                ),
            ),
            Panel(
                "Room on the volume",
                "bytes",
                ((f"disttrain_volume_free_bytes{RUN}", "{{run}}"),),
            ),
        ),
    ),
    (
        "GPUs",
        (
            Panel("Busy", "percent", ((of_gpus("DCGM_FI_DEV_GPU_UTIL"), _GPU),)),
            Panel("Memory used", "decmbytes", ((of_gpus("DCGM_FI_DEV_FB_USED"), _GPU),)),
            Panel("Power", "watt", ((of_gpus("DCGM_FI_DEV_POWER_USAGE"), _GPU),)),
            Panel("Temperature", "celsius", ((of_gpus("DCGM_FI_DEV_GPU_TEMP"), _GPU),)),
            Panel(
                "Last Xid error",
                "none",
                ((of_gpus("DCGM_FI_DEV_XID_ERRORS"), _GPU),),
                about="0: none.",
            ),
        ),
    ),
)
PANELS = tuple(panel for _, row in ROWS for panel in row)
