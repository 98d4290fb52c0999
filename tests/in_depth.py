"""Chooses which tests a run leaves to longer runs. DISTTRAIN_TESTS names one of three depths.

- `quick` (`make test`) tests each promise in the way in which it breaks most easily. It leaves out
  the tests with the mark `slow` or `in_depth`.
- `commit` (`.ci/run`) also runs the `slow` tests, such as those of each kind of workload with its
  controller, of several machines, and of the storages. Every commit has to pass them.
- `all` runs every test. `make test-engines` runs those with the mark `in_depth`, which test the
  same promises in further ways and take hours.

A file all of whose tests have one of the marks is named here, so that pytest does not even read it.
"""

import os

import pytest
from _pytest.mark.structures import ParameterSet

VARIABLE = "DISTTRAIN_TESTS"
QUICK, COMMIT, ALL = "quick", "commit", "all"
SLOW, IN_DEPTH = "slow", "in_depth"
LEFT_OUT = {QUICK: (SLOW, IN_DEPTH), COMMIT: (IN_DEPTH,), ALL: ()}
DEPTH = os.environ.get(VARIABLE) or QUICK
if DEPTH not in LEFT_OUT:
    raise ValueError(
        f"{VARIABLE} is {DEPTH!r}, which is no depth of the tests: set it to one of "
        f"{', '.join(LEFT_OUT)}, or leave it away for `{QUICK}`"
    )

# The paths are relative to the folder of this file.
FILES = {
    SLOW: (
        "e2e/test_controllers.py",
        "e2e/test_engines.py",
        "e2e/test_extensions.py",
        "e2e/test_gpu_operator.py",
        "e2e/test_labs.py",
        "e2e/test_missing_controller.py",
        "e2e/test_one_namespace.py",
        "e2e/test_programs.py",
        "e2e/test_registry.py",
        "e2e/test_several_nodes.py",
        "e2e/test_status_under_kills.py",
        "e2e/test_two_people.py",
        "kube/test_api_levels.py",
        "kube/test_controllers.py",
        "kube/test_controller_namespaces.py",
        "kube/test_dataset_progress.py",
        "kube/test_fetch.py",
        "kube/test_logs.py",
        "kube/test_node_health.py",
        "kube/test_own_namespaces.py",
        "kube/test_push.py",
        "kube/test_runs.py",
        "node/test_bundle.py",
        "node/test_doctor_of_several.py",
        "node/test_mirror.py",
        "node/test_nodes.py",
        "node/test_proxy.py",
        "node/test_servers.py",
        "node/test_states.py",
        "sandbox/test_copy_to_remote.py",
        "sandbox/test_image_over_ssh.py",
        "trainer/launch/test_hang.py",
        "trainer/program/test_examples.py",
        "trainer/test_notebook.py",
        "trainer/test_slurm.py",
        "trainer/watch/test_slow_rank.py",
    ),
    IN_DEPTH: (
        "e2e/test_beside_first_up.py",
        "e2e/test_busy_trainer.py",
        "e2e/test_changed_workloads.py",
        "e2e/test_controller_outage.py",
        "e2e/test_controllers_by_manifests.py",
        "e2e/test_controllers_in_depth.py",
        "e2e/test_destroy_of_lost_machine.py",
        "e2e/test_failed_runs.py",
        "e2e/test_full_quota.py",
        "e2e/test_gone_workloads.py",
        "e2e/test_hand_over_in_depth.py",
        "e2e/test_held_in_queue.py",
        "e2e/test_kubeflow_library.py",
        "e2e/test_lost_node_in_topology.py",
        "e2e/test_lost_node_of_each_kind.py",
        "e2e/test_lost_volume.py",
        "e2e/test_monitoring_installed.py",
        "e2e/test_new_cluster.py",
        "e2e/test_older_trainers.py",
        "e2e/test_one_run_at_a_time.py",
        "e2e/test_other_context.py",
        "e2e/test_other_volume.py",
        "e2e/test_over_ssh.py",
        "e2e/test_playbook.py",
        "e2e/test_policy_pack.py",
        "e2e/test_preempted_jobset.py",
        "e2e/test_program_by_registry.py",
        "e2e/test_queue.py",
        "e2e/test_second_network.py",
        "e2e/test_slurm_image.py",
        "e2e/test_unready_dataset.py",
        "e2e/test_without_queue.py",
        "kube/test_alerts_in_depth.py",
        "kube/test_fetch_large.py",
        "kube/test_rules_of_owner.py",
        "node/test_changed_roles.py",
        "node/test_destroy_matrix.py",
        "node/test_killed_with_machines.py",
        "node/test_mirror_in_depth.py",
        "node/test_nfs_of_stack.py",
        "node/test_nfs_server.py",
        "node/test_other_host.py",
        "node/test_renamed_nodes.py",
        "node/test_server_steps.py",
        "node/test_servers_in_depth.py",
        "sandbox/test_command_over_ssh.py",
        "sandbox/test_command_provider.py",
        "sandbox/test_demo_local.py",
        "sandbox/test_kubeconfig_copies.py",
        "sandbox/test_refused_hook.py",
        "trainer/checkpoint/test_faulty_volume.py",
        "trainer/launch/test_dead_link.py",
        "trainer/monitoring/test_alerts_in_depth.py",
        "trainer/watch/test_clean_steps.py",
        "trainer/watch/test_slow_by_kernel.py",
        "vm/test_nfs.py",
        "vm/test_nfs_first_node.py",
    ),
}


def left_out(depth: str) -> list[str]:
    """Return the files that a run of this depth leaves out."""
    return [file for mark in LEFT_OUT[depth] for file in FILES[mark]]


def slow(*values: object) -> ParameterSet:
    """Return one set of values of a test's parameters that `make test` leaves to `.ci/run`."""
    return pytest.param(*values, marks=pytest.mark.slow)


def in_depth(*values: object) -> ParameterSet:
    """Return one set of values of a test's parameters that is left to `make test-engines`."""
    return pytest.param(*values, marks=pytest.mark.in_depth)
