"""Names in the folder of a run that several parts of the trainer write and read. Pure."""

CHECKPOINTS_DIR = "checkpoints"
METRICS_FILE = "metrics.jsonl"
