#!/bin/sh
# Stands in for k3s' installer. It reads those documented variables that the project uses, and
# writes the unit, its environment file and an uninstaller, as k3s' installer does. It notes each
# call in /lab/calls.
set -eu

bin=${INSTALL_K3S_BIN_DIR:-/usr/local/bin}
role=${INSTALL_K3S_EXEC:-server}
case $role in
  agent) name=k3s-agent ;;
  *) name=k3s ;;
esac
unit=/etc/systemd/system/$name.service

echo "install.sh version=${INSTALL_K3S_VERSION:-} skip=${INSTALL_K3S_SKIP_DOWNLOAD:-} \
start=${INSTALL_K3S_SKIP_START:-} symlink=${INSTALL_K3S_SYMLINK:-} exec=${INSTALL_K3S_EXEC:-}" \
  >>/lab/calls
[ "${INSTALL_K3S_SKIP_DOWNLOAD:-}" = true ] || { echo "the stand-in downloads nothing" && exit 1; }
[ -x "$bin/k3s" ] || { echo "Executable k3s binary not found at $bin/k3s" && exit 1; }

systemctl disable "$name" >/dev/null 2>&1 || true
rm -f "$unit" "$unit.env"
[ ! -e /lab/installer-stops ] || { sleep 1000; exit 1; } # half-way through

cat >"$bin/$name-uninstall.sh" <<END
#!/bin/sh
echo $name-uninstall.sh >>/lab/calls
systemctl stop $name
systemctl disable $name
rm -f /etc/systemd/system/$name.service /etc/systemd/system/$name.service.env
systemctl daemon-reload
for cmd in kubectl crictl ctr; do
  [ ! -L "/usr/local/bin/\$cmd" ] || rm -f "/usr/local/bin/\$cmd"
done
rm -rf /etc/rancher/k3s /run/k3s /run/flannel /var/lib/rancher/k3s /var/lib/kubelet /var/lib/cni
rm -f /usr/local/bin/k3s /usr/local/bin/k3s-killall.sh /usr/local/bin/$name-uninstall.sh
END
printf '#!/bin/sh\nsystemctl stop %s\n' "$name" >"$bin/k3s-killall.sh"
chmod 755 "$bin/$name-uninstall.sh" "$bin/k3s-killall.sh"

(umask 077 && env | grep -Ei '^(K3S_|CONTAINERD_|(no|http|https)_proxy)' >"$unit.env" || true)
cat >"$unit" <<END
[Unit]
Description=Stand-in of k3s
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-$unit.env
KillMode=process
Delegate=yes
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStart=$bin/k3s $role
END
systemctl enable "$unit" >/dev/null 2>&1
systemctl daemon-reload
