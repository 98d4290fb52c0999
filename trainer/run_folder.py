"""Names in the folder of a run that several parts of the trainer write and read. Pure."""

CHECKPOINTS_DIR = "checkpoints"
METRICS_FILE = "metrics.jsonl"
TOKENIZER_FILE = "tokenizer.json"
"""As in the folder of a data set, whose tokenizer.json the run keeps a copy of."""
