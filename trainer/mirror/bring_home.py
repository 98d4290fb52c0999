"""`python -m trainer restore`: fetches a checkpoint from the mirror after the volume is lost."""

from __future__ import annotations

from pathlib import Path

from trainer.checkpoint import store
from trainer.checkpoint.durable import write_text
from trainer.config import RunConfig, dump_config
from trainer.launch.exit_codes import FatalError
from trainer.mirror.push import mirror_folder
from trainer.mirror.restore import restore


def bring_home(config: RunConfig) -> Path:
    """Fetch the newest checkpoint of the mirror whose files match its manifest.

    The checkpoint is put into the run's folder, `<data_root>/runs/<run_name>`, with the run's
    configuration, metrics and tokenizer, so that `export` and training can use them there.

    Returns:
        The folder of the checkpoint.

    Raises:
        FatalError: no mirror is set, the mirror holds no checkpoint that can be used, or the folder
            has checkpoints already.
        RetryableError: the mirror did not answer.
    """
    if not config.checkpoint.mirror:
        raise FatalError(
            "checkpoint.mirror: it is not set, so there is nothing to restore from. Set the "
            "address that the run has: --checkpoint.mirror=s3://bucket/prefix"
        )
    root = config.run_dir / "checkpoints"
    if present := sorted(path.name for path in root.glob("step-*")):
        raise FatalError(
            f"{root} holds {present[-1]} already, and nothing is written over it. Choose another "
            "--data_root"
        )
    root.mkdir(parents=True, exist_ok=True)
    step = restore(root, mirror_folder(config), print)
    if step is None:
        raise FatalError(
            f"the mirror {config.checkpoint.mirror} holds no checkpoint of run {config.run_name}. "
            "Look whether checkpoint.mirror and run_name are those of the run"
        )
    write_text(config.run_dir / "run.yaml", dump_config(config))
    return store.directory_of(root, step)
