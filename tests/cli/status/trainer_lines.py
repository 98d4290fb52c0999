"""Log lines of the trainer, with the times that Kubernetes puts before them."""

START = """\
2026-11-22T06:40:00.000000001Z [node 0] waiting for node(s) 2 to join
2026-11-22T06:40:02.5Z [node 0] round 1: 3 node(s) x 1 rank(s), store at train-mp:29501
2026-11-22T06:40:09Z device cpu, CPU (as set)
"""
STEPS = """\
2026-11-22T06:40:11.123456789Z step 19/4000 loss 4.1028 val - lr 9.2e-04 tokens/s 8109 \
grad_norm 1.061 mfu n/a p50 76.0ms p95 147.2ms data 1.7% mem 575MiB eta 5m29s
2026-11-22T06:40:12Z checkpoint step-00000020 saved in 0.09 s
2026-11-22T06:40:13Z step 20/4000 loss 4.0912 val 4.0011 lr 9.2e-04 tokens/s 8740 \
grad_norm 1.152 mfu 41.2% p50 77.0ms p95 146.9ms data 5.8% mem 575MiB eta 5m28s
"""
