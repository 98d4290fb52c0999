"""The sections `train`, `eval` and `log` of a run."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config.option import ANY_LINE, option


@dataclass(frozen=True)
class TrainConfig:
    """The optimisation, and the processes that run it."""

    max_steps: int = option(5000, "optimiser updates of the whole run", at_least=1)
    global_batch_size: int = option(64, "sequences per update over all ranks", at_least=1)
    micro_batch_size: int = option(64, "most sequences in one forward pass of a rank", at_least=1)
    learning_rate: float = option(1e-3, "peak learning rate", above=0)
    min_lr: float = option(1e-4, "learning rate after the decay", at_least=0)
    warmup_steps: int = option(100, "updates of linear warm-up", at_least=0)
    decay_steps: int | None = option(
        None, "update at which min_lr is reached; none: max_steps", at_least=1
    )
    weight_decay: float = option(0.1, "AdamW weight decay of matrices", at_least=0)
    beta1: float = option(0.9, "AdamW beta1", at_least=0, below=1)
    beta2: float = option(0.99, "AdamW beta2", at_least=0, below=1)
    grad_clip: float = option(1.0, "largest gradient norm; 0 switches clipping off", at_least=0)
    dtype: str = option(
        "auto",
        "number format of the forward pass; auto: float32 on a CPU, bfloat16 on GPUs that have it, "
        "float16 on others",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    compile: str = option(
        "auto",
        "whether torch.compile compiles the model; auto: on a GPU, if a trial compilation succeeds",
        choices=("auto", "on", "off"),
    )
    keep_compiled: bool = option(
        False,
        "keep compiled code in the run's folder, so that a new pod has it; who may write there can "
        "then have the pods execute anything",
    )
    parallel: str = option(
        "ddp",
        "how ranks share the model: a whole copy each, or shards (FSDP2)",
        choices=("ddp", "fsdp"),
    )
    reduce_each_micro_step: bool = option(
        False,
        "with fsdp, add the gradients of all ranks after each micro-step: a rank then holds only "
        "its shard of them, and sends more",
    )
    activation_checkpointing: bool = option(
        False, "compute each block again in the backward pass: less memory, more time"
    )
    backend: str = option(
        "auto",
        "library by which ranks exchange tensors; auto: nccl on GPUs, else gloo",
        choices=("auto", "gloo", "nccl"),
    )
    device: str = option(
        "auto", "where to compute; auto: on a GPU if there is one", choices=("auto", "cpu", "cuda")
    )
    deterministic: bool = option(
        False, "only operations that give the same bits each time; slower on GPUs"
    )
    smoke_test: bool = option(
        False, "before the first step check every device, and measure the all-reduce of all ranks"
    )
    timeout_seconds: int = option(
        60,
        "longest time in which a rank waits for the others in one exchange of tensors",
        at_least=5,
    )
    start_timeout_seconds: int = option(
        300,
        "timeout_seconds until the first step is done: ranks start and compile at their own pace; "
        "later, how long the ranks wait if a volume gives one of them no training data",
        at_least=5,
    )
    rendezvous_timeout_seconds: int = option(
        600, "longest time in which a pod waits for the others before a start", at_least=5
    )
    initial_weights: str | None = option(
        None,
        "GPT-2 weights to start from: a safetensors file, an index of several, or its directory",
        form=ANY_LINE,
    )
    volume_timeout_seconds: int = option(
        90,
        "before each start of a run of several nodes, the longest wait for the volume to take a "
        "file, and for what other nodes have written there; 0: this is not checked",
        at_least=0,
    )
    max_restarts: int = option(
        10, "restarts in place without a newer checkpoint between them", at_least=0
    )
    max_pod_failures: int = option(
        6,
        "pods of node 0 that may fail one after the other without a newer checkpoint between them, "
        "each after max_restarts; then the run has failed for good. Counted on the volume, where a "
        "controller starts pods again",
        at_least=0,
    )
    spare_processes: bool = option(
        True,
        "keep one process for each rank that has imported torch: a restart takes seconds less, "
        "and each rank's pod needs about 300 MB more",
    )
    transport_policy: str = option(
        "warn",
        "what happens where ranks of several nodes reach each other by another transport than the "
        "network profile asks for, such as TCP in place of InfiniBand: warn (the log, the status "
        "and an alert say it), or stop (the run fails, with the likely causes)",
        choices=("warn", "stop"),
    )
    nodes_min: int = option(
        0, "fewest nodes (pods) with which training goes on; 0: all are needed", at_least=0
    )
    nodes_wait_seconds: int = option(
        60, "once nodes_min nodes are there, how long a start waits for the others", at_least=0
    )
    nodes_return_seconds: int = option(
        300, "how long fewer nodes train before they save and take a node back", at_least=1
    )


@dataclass(frozen=True)
class EvalConfig:
    """The evaluations on the validation split."""

    interval: int = option(250, "updates between two evaluations; 0: only at the end", at_least=0)
    batch_size: int = option(64, "sequences of one forward pass", at_least=1)
    max_tokens: int | None = option(
        None,
        "tokens that a pass during training predicts, evenly spread and always the same; none: "
        "all; the pass at the end of the run always takes all",
        at_least=1,
    )


@dataclass(frozen=True)
class LogConfig:
    """When a line is logged."""

    interval: int = option(10, "updates between two lines", at_least=1)
