"""Names that others have to find; the first ones are those of the original set-up."""

CLAIM = "disttrain-pvc"
PROXY_CONFIG = "proxy-config"
DATASET_JOB = "download-tiny-shakespeare"
SINGLE_POD_JOB = "train-singlepod"
MULTI_POD_SET = "train-multipod"
HEADLESS_SERVICE = "train-mp-headless"
MASTER_PORT = 29500
RUN_CONFIG_PATH = "/etc/disttrain/run.yaml"
READY_FILE = "/tmp/disttrain/ready"  # kept by the entrypoint (trainer/status_files.py)
