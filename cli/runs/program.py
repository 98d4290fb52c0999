"""The program of `runs` that is sent to a pod, as one text."""

from cli.joined_program import joined
from cli.runs import pod_alive, pod_curves, pod_deletion, pod_metrics, pod_program

PROGRAM = joined(pod_program, pod_alive, pod_metrics, pod_curves, pod_deletion)
