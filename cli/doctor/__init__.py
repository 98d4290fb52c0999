"""The doctor: gathers facts of hosts and of the cluster, and judges them by checks."""
