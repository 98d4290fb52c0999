"""The configuration of a run: its options, their allowed values, and how it is read.

Each section has a file. Nothing heavy such as torch is imported, so that the Pulumi program can
check a run while it plans.
"""

from trainer.config.checkpoint import CheckpointConfig
from trainer.config.dataset import DatasetConfig, SourceUrl
from trainer.config.load import (
    PRESETS_DIR,
    dump_config,
    load_config,
    load_mapping,
    preset_names,
    preset_path,
)
from trainer.config.model import ModelConfig
from trainer.config.problem import ConfigError
from trainer.config.program import LAUNCH_OPTIONS, ProgramConfig
from trainer.config.run import RunConfig
from trainer.config.train import EvalConfig, LogConfig, TrainConfig

__all__ = [
    "LAUNCH_OPTIONS",
    "PRESETS_DIR",
    "CheckpointConfig",
    "ConfigError",
    "DatasetConfig",
    "EvalConfig",
    "LogConfig",
    "ModelConfig",
    "ProgramConfig",
    "RunConfig",
    "SourceUrl",
    "TrainConfig",
    "dump_config",
    "load_config",
    "load_mapping",
    "preset_names",
    "preset_path",
]
