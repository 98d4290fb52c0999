"""The doctor: gathers facts about hosts and about the cluster, and runs checks over them."""
