"""The sandbox's base image comes from the Debian mirror that this machine's apt uses."""

import pytest

from sandbox.base_image import DEFAULT_MIRROR, debian_mirror

DEB822 = """\
# written by the installer
Types: deb deb-src
URIs: https://mirror.example.com/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: https://mirror.example.com/d12
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        ([], DEFAULT_MIRROR),
        ([DEB822], "https://mirror.example.com/d12"),
        ([DEB822.replace("Suites: bookworm ", "Enabled: no\nSuites: bookworm ")], DEFAULT_MIRROR),
        (["deb http://a.example/os bookworm main\n"], "http://a.example/os"),
        (["deb [arch=amd64 trusted=yes] http://a.example/os bookworm main"], "http://a.example/os"),
        # another release of Debian, by the usual path
        (["deb http://a.example/debian/ trixie main"], "http://a.example/debian/"),
        # the release itself before another one
        (
            ["deb http://a.example/debian sid main", "deb http://b.example/x bookworm main"],
            "http://b.example/x",
        ),
        # not these: Ubuntu, sources only, comments, other components, other transports
        (["deb http://archive.ubuntu.com/ubuntu noble main universe"], DEFAULT_MIRROR),
        (["deb-src http://a.example/os bookworm main"], DEFAULT_MIRROR),
        (["# deb http://a.example/os bookworm main"], DEFAULT_MIRROR),
        (["deb http://a.example/os bookworm contrib"], DEFAULT_MIRROR),
        (["deb cdrom:[Debian]/ bookworm main"], DEFAULT_MIRROR),
    ],
)
def test_the_base_comes_from_the_mirror_that_apt_uses(sources: list[str], mirror: str) -> None:
    """The mirror is that of Debian's main part in apt's sources, in both of their formats. If there
    is none, it is Debian's own.
    """
    assert debian_mirror(sources) == mirror
