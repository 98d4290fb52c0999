"""Helpers for tests of a host with Debian's NFS server."""

from tests.node.host import Entry, Host
from tests.node.lab import different

# The paths that the packages' own scripts leave changed for ever: users, and files of systemd and
# debconf.
LEFT = (
    *("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid"),
    *("/var/lib/apt", "/var/lib/dpkg", "/var/log", "/var/cache", "/var/lib/ucf", "/etc/ld.so"),
)
UNIT = """[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/exportfs -r
ExecStart=/bin/sh -c 'echo 8 >/proc/fs/nfsd/threads; echo +4.1 >/proc/fs/nfsd/versions'
ExecStop=/bin/sh -c 'echo 0 >/proc/fs/nfsd/threads'
ExecStopPost=/usr/sbin/exportfs -au
[Install]
WantedBy=multi-user.target
"""


def lasting(before: dict[str, Entry], after: dict[str, Entry]) -> list[str]:
    """Return the paths that have changed, except those in `LEFT`."""
    return [path for path in different(before, after) if not path.startswith(LEFT)]


def installed(host: Host) -> set[str]:
    """Return the lines of dpkg about all packages that it knows: the state and the name of each."""
    return set(host.shell("dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n'").splitlines())
