"""Names of files and folders in a run's folder that several parts of the trainer use."""

CHECKPOINTS_DIR = "checkpoints"
METRICS_FILE = "metrics.jsonl"
TOKENIZER_FILE = "tokenizer.json"
"""The run's copy of the tokenizer.json of its data set. Both files have this name."""
