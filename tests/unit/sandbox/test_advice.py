"""What the sandbox advises if a component has ended."""

from sandbox.processes import advice


def test_limit_of_inotify_is_explained() -> None:
    """If the kubelet fails at the limit of inotify, the advice has the command that raises the
    limit. The kubelet's own message does not say which limit it is. Other errors get no advice.
    """
    kubelet = '"Failed to start cAdvisor" err="inotify_init: too many open files"'
    assert "sysctl -w fs.inotify.max_user_instances=1024" in advice(kubelet)
    assert advice("accept tcp: too many open files") == advice("the disk is full") == ""
