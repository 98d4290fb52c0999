"""A stand-in for a machine, for the scripts that install k3s on a further machine and remove it.

The scripts run unchanged, except that the folders of the machine are below a folder of the test.
systemd and k3s' installer are short stand-ins; `tests/node` has hosts with a real systemd.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from infra.node.agent import OF_THE_MACHINE, facts
from infra.node.shell_program import script_text
from tests.unit.run_script import run_text

OF_A_MACHINE = re.compile(r"(?<![\w./}-])/(?=(?:etc|usr/local|var|run|root)/|usr/libexec\b)")
# Like systemd, it starts only services that have a unit.
SYSTEMCTL = """#!/bin/sh
for word in "$@"; do unit=$word; done
case $1 in
  is-active) [ -e ROOT/active ] ;;
  start) [ -e "ROOT/etc/systemd/system/$unit.service" ] && touch ROOT/active ;;
  stop | disable) rm -f ROOT/active ;;
  is-enabled) [ -e "ROOT/enabled-$unit" ] ;;
esac
"""
IP = """#!/bin/sh
[ ! -e ROOT/no-route ] || exit 0
[ ! -e ROOT/ipv6-alone ] || case $* in
  "-4 "*) exit 0 ;;
  "-6 route show default") echo "default via fe80::1 dev eth0 proto ra metric 1024" && exit ;;
  "-6 -o address show dev eth0 scope global")
    echo "2: eth0 inet6 fd00::77/64 scope global temporary dynamic"
    echo "2: eth0 inet6 fd00::4/64 scope global dynamic"
    exit ;;
esac
case $* in
  "-6 "*) ;;
  "link show dev eth1") ;;
  "-o address show dev eth1 up scope global") cat ROOT/eth1 ;;
  "-4 route show default") echo "default via 10.1.2.1 dev eth0 proto dhcp" ;;
  "-4 -o address show dev eth0 scope global") echo "2: eth0 inet 10.1.2.4/24 scope global" ;;
  *) echo "ip: $*" >&2; exit 1 ;;
esac
"""
K3S = """#!/bin/sh
[ ! -e ROOT/k3s-says ] || { cat ROOT/k3s-says >&2 && exit 1; }
[ -e ROOT/bare-node ] || echo '{"metadata":{"managedFields":[{"manager":"disttrain-nodes"}]}}'
"""
INSTALLER = """#!/bin/sh
name=k3s
[ "$INSTALL_K3S_EXEC" = server ] || name=k3s-agent
mkdir -p ROOT/etc/systemd/system
echo "a unit" >ROOT/etc/systemd/system/$name.service
printf '#!/bin/sh\\necho uninstalled >>ROOT/uninstalled\\n' >ROOT/usr/local/bin/$name-uninstall.sh
cat >ROOT/usr/local/bin/k3s-killall.sh <<'END'
#!/bin/sh
for folder in ROOT/run/k3s ROOT/var/lib/kubelet/pods; do
  while read -r _ path _; do
    case $path in $folder*) echo "$path" ;; esac
  done </proc/self/mounts | sort -r | xargs -r -n 1 sh -c 'umount -f "$0" && rm -rf "$0"'
done
rm -rf ROOT/var/lib/cni
END
chmod 755 ROOT/usr/local/bin/*.sh
"""


class RefusedError(Exception):
    """A script has failed; the text is its error output."""


class K3sHost:
    """A further machine without k3s.

    Args:
        folder: the folder for all files.
        role: the role of the machine in the cluster, `agent` or `server`.
    """

    def __init__(self, folder: Path, role: str = "agent") -> None:
        self.root, self.role = folder / "root", role
        self._bundle, self._bin = folder / "bundle", folder / "bin"
        self._mounts = ""
        self._loses_power = False
        for made in ("run/systemd/system", "usr/local/bin", "etc", "var/lib", "root"):
            (self.root / made).mkdir(parents=True)
        (self.root / "route").write_text("eth0 00000000 0 0 0 0 0 00000000\n")
        self._write(self._bin / "systemctl", SYSTEMCTL)
        self._write(self._bin / "ip", IP)
        for name in ("k3s", "k3s-arm64"):
            self._write(self._bundle / "k3s" / name, K3S)
        self._write(self._bundle / "k3s/install.sh", INSTALLER)

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("ROOT", str(self.root)))
        path.chmod(0o755)

    def _run(self, script: str, action: str, given: Mapping[str, str]) -> str:
        return self._run_text(script_text(script), action, given)

    def _run_text(self, text: str, action: str, given: Mapping[str, str]) -> str:
        text = OF_A_MACHINE.sub(f"{self.root}/", text)
        text = text.replace("/proc/net/route", str(self.root / "route"))
        path = f"{self._bin}:{os.environ['PATH']}"
        done = run_text(text, action, given, "user", {"PATH": path}, self._mounts)
        if done.returncode == 1:
            raise RefusedError(done.stderr)
        assert done.returncode == 0 or self.is_cut(done), done.stdout + done.stderr
        return done.stdout

    def is_cut(self, done: subprocess.CompletedProcess[str]) -> bool:
        """Whether the script ended because the power failed, or because it was killed."""
        return done.returncode == -signal.SIGKILL and self._loses_power

    def run(self, action: str, node: str, **more: str) -> str:
        """Run an action of this role's script for the node of this name; return its output.

        Raises:
            RefusedError: the script has failed.
        """
        given = {
            "NODE": node,
            "K3S_VERSION": "v1.34.2+k3s1",
            "K3S_BUNDLE": str(self._bundle),
            "K3S_SHA256": _sum(self._bundle / "k3s/k3s"),
            "K3S_INSTALLER_SHA256": _sum(self._bundle / "k3s/install.sh"),
            "K3S_TOKEN": "a-token",
            "AGENT_SECRET": "a-secret",
            "SERVER_URL": "https://10.1.2.3:6443",
            "POD_CIDR": "10.42.0.0/16",
            "SERVICE_CIDR": "10.43.0.0/16",
            "OWNER": "owner-1",
            "STACK": "dev",
            "REPAIR_ID": "repair-1",
            **more,
        }
        return self._run(OF_THE_MACHINE[self.role], action, given)

    def update_first(self, action: str = "update", **more: str) -> str:
        """Return what an update of a first machine would change, by the output of a dry run.

        Args:
            action: `update`, or `create` as for a cluster that begins anew.
            more: further variables of the script.

        Raises:
            RefusedError: the script has failed.
        """
        given = {
            "K3S_VERSION": "v1.34.2+k3s1",
            "POD_CIDR": "10.42.0.0/16",
            "SERVICE_CIDR": "10.43.0.0/16",
            "NAMESPACE": "disttrain",
            "GRACE_SECONDS": "1",
            "OWNER": "owner-1",
            "DRY_RUN": "1",
            **more,
        }
        return self._run("k3s-install.sh", action, given)

    def has_first_k3s(self) -> None:
        """Make what a first machine has on which k3s has been up and runs."""
        shutil.copy(self._bundle / "k3s/k3s", self.root / "usr/local/bin/k3s")
        (self.root / "active").touch()
        data = self.root / "var/lib/rancher/k3s/server/db/disttrain-generation"
        data.parent.mkdir(parents=True)
        data.write_text("one\n")
        record = self.root / "etc/rancher/disttrain"
        record.parent.mkdir(parents=True)
        record.write_text("owner owner-1\ngeneration one\nrepair one\n")
        record.write_text(f"{record.read_text()}files {self.ask_first('installed_files')}\n")

    def ask_first(self, call: str = "look") -> str:
        """Return what this function of the look at a first machine prints."""
        text = script_text("k3s-look.sh").replace('main "$@"', call)
        return self._run_text(text, "look", {}).strip()

    def clear_first(self, **more: str) -> str:
        """Remove what an interrupted install of a first machine has left; return the output."""
        given = {"NAMESPACE": "disttrain", "GRACE_SECONDS": "1", "OWNER": "owner-1", **more}
        return self._run("k3s-left.sh", "delete", given)

    def look(self) -> Mapping[str, str]:
        """Return the facts that the machine reports about its k3s."""
        return facts(self._run("k3s-agent-look.sh", "look", {"ROLE": self.role}))

    def has_mounts(self, command: str) -> None:
        """From now on, this command, which mounts something, runs before each script."""
        self._mounts = command.replace("ROOT", str(self.root))

    def removes_k3s_by(self, command: str) -> None:
        """From now on, k3s' uninstaller runs this command. Usually it only notes that it ran."""
        name = "k3s" if self.role == "server" else "k3s-agent"
        self._write(self.root / f"usr/local/bin/{name}-uninstall.sh", f"#!/bin/sh\n{command}\n")

    def has_program(self, name: str, text: str) -> None:
        """From now on, the machine has this program, a script for `sh`."""
        self._write(self._bin / name, f"#!/bin/sh\n{text}\n")

    def installs_k3s_by(self, command: str) -> dict[str, str]:
        """Let k3s' installer run this command first.

        Returns:
            The variables with which k3s comes from a mirror, as a bundle has no packages.
        """
        self._write(self._bundle / "k3s/install.sh", f"#!/bin/sh\n{command}\n{INSTALLER}")
        mirror = self._bundle.parent / "mirror"
        mirror.mkdir(exist_ok=True)
        (mirror / "v1.34.2%2Bk3s1").symlink_to(self._bundle / "k3s")
        return {"K3S_BUNDLE": "", "K3S_MIRROR": str(mirror)}

    def stands_without_route(self) -> None:
        """From now on, the machine has no default route."""
        (self.root / "no-route").touch()

    def is_cut_off_at(self, folder: str) -> None:
        """From now on, the power fails when this folder is removed, until `is_back`."""
        self._loses_power = True
        real = shutil.which("rm")
        text = f"""#!/bin/sh
case "$*" in *ROOT{folder}) kill -KILL $PPID && exit ;; esac
exec {real} "$@"
"""
        self._write(self._bin / "rm", text)

    def is_cut_off_in_installer(self) -> None:
        """From now on, the power fails when k3s' installer begins, until `is_back`."""
        self._loses_power = True
        self._write(self._bundle / "k3s/install.sh", "#!/bin/sh\nkill -KILL $PPID\n")

    def is_cut_off_in_uninstaller(self) -> None:
        """From now on, the power fails when k3s' uninstaller begins, until `is_back`."""
        self._loses_power = True
        self.removes_k3s_by("kill -KILL $PPID")

    def is_cut_off_at_stop(self) -> None:
        """From now on, a script is killed when it stops k3s, which runs on, until `is_back`."""
        self._loses_power = True
        text = SYSTEMCTL.replace("  stop |", "  stop) kill -KILL $PPID ;;\n ")
        self._write(self._bin / "systemctl", text)

    def is_back(self) -> None:
        """From now on, the power does not fail, and no script is killed."""
        self._loses_power = False
        self._write(self._bin / "systemctl", SYSTEMCTL)
        (self._bin / "rm").unlink(missing_ok=True)
        self._write(self._bundle / "k3s/install.sh", INSTALLER)

    def has_ipv6_alone(self) -> None:
        """From now on, the machine has no IPv4 address."""
        (self.root / "ipv6-alone").touch()

    def has_joined(self) -> None:
        """Make the files that k3s makes on a machine that has joined the cluster."""
        for made in ("etc/rancher/node/password", "var/lib/rancher/k3s/server/db/etcd/name"):
            (self.root / made).parent.mkdir(parents=True, exist_ok=True)
            (self.root / made).write_text("made")

    def asks_in_vain(self, answer: str) -> None:
        """From now on, `k3s kubectl` fails with this answer of the cluster."""
        (self.root / "k3s-says").write_text(f"{answer}\n")

    def has_bare_node(self) -> None:
        """From now on, the machine's Node is as the kubelet has made it, without the labels of this
        program.
        """
        (self.root / "bare-node").touch()

    def has_interface(self, *addresses: str) -> None:
        """From now on, the machine has the network interface eth1 with these addresses."""
        lines = [f"3: eth1 {'inet6' if ':' in a else 'inet'} {a} scope global\n" for a in addresses]
        (self.root / "eth1").write_text("".join(lines))

    @property
    def runs(self) -> bool:
        """Whether k3s runs."""
        return (self.root / "active").exists()

    @property
    def was_uninstalled(self) -> bool:
        """Whether k3s' uninstaller has run."""
        return (self.root / "uninstalled").exists()


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
