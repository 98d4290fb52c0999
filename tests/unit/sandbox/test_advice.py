"""What the sandbox advises if a component has ended."""

from sandbox.processes import advice


def test_limit_of_inotify_is_explained() -> None:
    """The kubelet's own words do not say which limit it is, or how it is raised."""
    kubelet = '"Failed to start cAdvisor" err="inotify_init: too many open files"'
    assert "sysctl -w fs.inotify.max_user_instances=1024" in advice(kubelet)
    assert advice("accept tcp: too many open files") == advice("the disk is full") == ""
