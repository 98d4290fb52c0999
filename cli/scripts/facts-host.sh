#!/bin/sh
# Prints facts about this host, one on each line: `name=value`, or `name?reason` for a fact that
# cannot be found out. It changes nothing. Slow probes run side by side. Each has a limit of
# PROBE_SECONDS, and a run of nvidia-smi has a limit of SMI_SECONDS. No output contains a password.
# These variables may be empty: DATA_ROOT, DNS_NAMES, HTTP_PROXY_URL, HTTPS_PROXY_URL, HTTP_PROBE,
# HTTPS_PROBE, CTR, IMAGE, IMAGE_BUILDERS (names), CA_BUNDLE (the text of the bundle), ROOT_PROBLEM
# (why the script does not run as root), NODE_INTERFACE (the network interface that k3s is to use).
# K3S_SERVICE is k3s on servers of the cluster, and k3s-agent on other machines.
# Usage: facts-host.sh
set -u

: "${PROBE_SECONDS:?}" "${SMI_SECONDS:?}" "${HTTP_PROBE:=}" "${HTTPS_PROBE:=}"
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH
readonly K3S=/usr/local/bin/k3s SERVICE="${K3S_SERVICE:-k3s}"

# Each line is short and is written at once, so that the lines of probes that run side by side never
# mix.
fact() { printf '%s=%.900s\n' "$1" "$2"; }
unseen() { printf '%s?%.900s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
limited() { timeout -k 1 "$PROBE_SECONDS" "$@" </dev/null 2>&1; }
smi() { timeout -k 1 "$SMI_SECONDS" nvidia-smi "$@" --format=csv,noheader </dev/null 2>&1; }
one_line() { tr '\n\r\t' '   ' | cut -c 1-600; }

system() {
  # shellcheck disable=SC1091 # the host's own
  [ -r /etc/os-release ] && (
    . /etc/os-release
    fact os "${ID:-unknown}"
    fact os_like "${ID_LIKE:-}"
    fact os_version "${VERSION_ID:-}"
  )
  fact kernel "$(uname -r)"
  fact hostname "$(uname -n)"
  fact architecture "$(uname -m)"
  fact uid "$(id -u)"
  fact machine_id "$(cat /etc/machine-id 2>/dev/null)"
  [ -z "${ROOT_PROBLEM:-}" ] || fact root_problem "$ROOT_PROBLEM"
  if [ -d /run/systemd/system ]; then fact systemd yes; else fact systemd no; fi
  fact time "$(date +%s)"
  awk '/^(MemTotal|SwapTotal):/ { sub(":", "", $1); print $1 "_kib=" $2 }' /proc/meminfo
  if has mount.nfs; then fact mount_nfs yes; else fact mount_nfs no; fi
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    fact cgroup v2
    fact cgroup_controllers "$(cat /sys/fs/cgroup/cgroup.controllers)"
  else
    fact cgroup v1
    fact cgroup_controllers "$(awk '$4 == 1 { printf "%s ", $1 }' /proc/cgroups)"
  fi
}

# Prints a folder, or the nearest folder above it that exists. It uses no other program, because a
# program may fail.
nearest_folder() { # path
  place=$1
  until [ -d "${place:-/}" ]; do
    case $place in */*) place=${place%/*} ;; *) place=. ;; esac
  done
  echo "${place:-/}"
}

# disk.NAME=path|file system|total KiB|free KiB|inodes|free inodes|rw or ro
disk() { # name path
  place=$(nearest_folder "$2")
  sizes=$(df -Pk "$place" 2>/dev/null | awk 'NR == 2 { print $2 "|" $4 }')
  inodes=$(df -Pi "$place" 2>/dev/null | awk 'NR == 2 { print $2 "|" $4 }')
  mount=$(df -P "$place" 2>/dev/null | awk 'NR == 2 { print $6 }')
  mode=$(awk -v m="$mount" '$2 == m { split($4, o, ","); found = o[1] } END { print found }' \
    /proc/self/mounts)
  fact "disk.$1" "$2|$(stat -f -c %T "$place")|${sizes:-|}|${inodes:-|}|$mode"
}

disks() {
  disk data "$DATA_ROOT"
  case ${CTR:-} in
    ctr*) disk containerd /var/lib/containerd ;;
    *) disk containerd /var/lib/rancher/k3s ;;
  esac
  disk tmp /var/tmp
  disk programs /usr/local/bin
  disk settings /etc/rancher
  fact shm_kib "$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $2 }')"
  kind="absent"
  [ ! -e "$DATA_ROOT" ] || kind="file"
  [ ! -d "$DATA_ROOT" ] || kind="folder"
  [ ! -L "$DATA_ROOT" ] || kind="link"
  fact data_root "$kind"
  place=$(nearest_folder "$DATA_ROOT")
  fact data_source "$(stat -f -c %T "$place") $(df -P "$place" 2>/dev/null | awk 'NR == 2 { print $1 }')"
}

ports() {
  for port in 6443 10250; do
    hex=$(printf ':%04X' "$port")
    taken=$(awk -v p="$hex" '$4 == "0A" && substr($2, length($2) - 4) == p { n++ } END { print n + 0 }' \
      /proc/net/tcp /proc/net/tcp6 2>/dev/null)
    who=""
    [ "$taken" = 0 ] || ! has ss ||
      who=$(limited ss -H -ltnp "sport = :$port" | sed -n 's/.*users:(("\([^"]*\)".*/\1/p' | head -n 1)
    if [ "$taken" = 0 ]; then fact "port.$port" free; else fact "port.$port" "taken ${who:-unknown}"; fi
  done
}

guards() {
  if has systemctl && [ "$(limited systemctl is-active firewalld)" = active ]; then
    fact firewalld active
    fact firewalld_trusted "$(limited firewall-cmd --zone=trusted --list-sources | one_line)"
  else
    fact firewalld inactive
  fi
  if grep -qs '^ENABLED=yes' /etc/ufw/ufw.conf; then
    fact ufw active
    fact ufw_rules "$(grep -hs '^### tuple' /etc/ufw/user.rules | one_line)"
  else
    fact ufw inactive
  fi
  cloud_setup=disabled
  for unit in nm-cloud-setup.service nm-cloud-setup.timer; do
    ! has systemctl || [ "$(limited systemctl is-enabled "$unit")" != enabled ] || cloud_setup=enabled
  done
  fact nm_cloud_setup "$cloud_setup"
  case $(cat /sys/fs/selinux/enforce 2>/dev/null) in
    1) fact selinux enforcing ;;
    0) fact selinux permissive ;;
    *) fact selinux off ;;
  esac
  policy=no
  for module in /usr/share/selinux/packages/k3s.pp /var/lib/selinux/*/active/modules/*/k3s; do
    [ ! -e "$module" ] || policy=yes
  done
  fact selinux_k3s "$policy"
  if [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ]; then
    fact apparmor on
  else
    fact apparmor off
  fi
  if has apparmor_parser; then fact apparmor_parser yes; else fact apparmor_parser no; fi
}

kernel_parts() {
  for module in br_netfilter overlay; do
    if [ -d "/sys/module/$module" ] || grep -qsw "$module" /proc/filesystems ||
      { [ "$module" = br_netfilter ] && [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]; }; then
      fact "module.$module" loaded
    elif limited modprobe -n "$module" >/dev/null; then
      fact "module.$module" loadable
    else
      fact "module.$module" missing
    fi
  done
  fact ip_forward "$(cat /proc/sys/net/ipv4/ip_forward)"
  fact ip6_forward "$(cat /proc/sys/net/ipv6/conf/all/forwarding 2>/dev/null)"
}

# Prints whether the interface is up, down or absent, and a line for each of its addresses.
# Its exit status is 1 if the interface is absent.
named_interface() { # name
  limited ip link show dev "$1" >/dev/null || {
    fact interface absent
    fact interfaces "$(limited ip -o link | awk -F '[ :@]+' '{ print $2 }' | one_line)"
    return 1
  }
  if [ -n "$(limited ip -o link show dev "$1" up)" ]; then fact interface up; else fact interface down; fi
  limited ip -o addr show dev "$1" scope global |
    awk '{ split($4, a, "/"); print "interface_address=" a[1] }'
}

# Prints the device of the default route of IPv4, or of IPv6 if there is none of IPv4. k3s looks for
# the node's own address in the same order.
default_device() {
  for family in -4 -6; do
    found=$(limited ip "$family" route show default | sed -n '1s/^default .* dev \([^ ]*\).*/\1/p')
    [ -z "$found" ] || { echo "$found" && return; }
  done
}

own_address() { # device
  for family in -4 -6; do
    found=$(limited ip "$family" -o addr show dev "$1" scope global | awk '
      $3 ~ /^inet/ && !/ (temporary|deprecated|tentative) / { split($4, a, "/"); print a[1]; exit }')
    [ -z "$found" ] || { echo "$found" && return; }
  done
}

network() {
  if has ip; then
    { limited ip -4 route && limited ip -6 route; } | awk '{
      d = ""; for (i = 1; i < NF; i++) if ($i == "dev") d = $(i + 1)
      print "route=" $1 " " d
    }'
    limited ip -o addr | awk '{ split($4, a, "/"); print "address=" a[1] }'
    device=${NODE_INTERFACE:-}
    [ -z "$device" ] || named_interface "$device" || device=""
    [ -n "$device" ] ||
      device=$(default_device)
    [ -z "$device" ] || {
      fact device "$device"
      fact mtu "$(cat "/sys/class/net/$device/mtu" 2>/dev/null)"
      fact mac "$(cat "/sys/class/net/$device/address" 2>/dev/null)"
      fact link_speed "$(cat "/sys/class/net/$device/speed" 2>/dev/null)"
      # k3s takes the address of this device for the node's own.
      fact node_ip "$(own_address "$device")"
    }
  else
    awk 'NR > 1 && $2 == "00000000" && $8 == "00000000" { print "route=default " $1 }' /proc/net/route
    awk '$1 ~ /^0+$/ && $2 == "00" && $10 != "lo" { print "route=default " $10 }' /proc/net/ipv6_route 2>/dev/null
    unseen address "no ip command"
  fi
}

# NVIDIA's GPUs on the PCI bus, the drivers that the kernel has loaded, and the container runtime.
gpus() {
  for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" 2>/dev/null)" = 0x10de ] || continue
    case $(cat "$device/class") in 0x03*) fact gpu_pci "${device##*/} $(cat "$device/device")" ;; esac
  done
  fact driver "$(sed -n '1s/.* \([0-9][0-9]*\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)"
  if [ -d /sys/module/nouveau ]; then fact nouveau loaded; else fact nouveau absent; fi
  fact container_runtime "$(command -v nvidia-container-runtime)"
}

nvidia_smi() {
  has nvidia-smi || { fact nvidia_smi absent && return; }
  output=$(smi --query-gpu=name,mig.mode.current)
  status=$?
  fact nvidia_smi "$status"
  if [ "$status" = 0 ]; then
    printf '%s\n' "$output" | while read -r line; do fact gpu "$line"; done
    # Older drivers and smaller GPUs support neither of these queries, and print a text instead of
    # numbers.
    smi --query-gpu=index,ecc.errors.uncorrected.volatile.total |
      while read -r line; do fact gpu_ecc "$line"; done &
    smi --query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure |
      while read -r line; do fact gpu_rows "$line"; done
    wait
  else
    fact nvidia_smi_says "$(printf '%s' "$output" | one_line)"
  fi
}

# xid=the GPU's address on the PCI bus|number of the Xid|how often it occurred since the boot
kernel_log() {
  if log=$(limited dmesg); then
    printf '%s\n' "$log" | sed -n 's/.*NVRM: Xid (\([^) ]*\)): \([0-9][0-9]*\).*/\1|\2/p' |
      sort | uniq -c | head -n 50 | awk '{ print "xid=" $2 "|" $1 }'
  else
    unseen xid "dmesg cannot read the kernel's log"
  fi
}

k3s_parts() {
  binary=no unit=no data=no ours=no
  [ ! -e "$K3S" ] || binary=yes
  for file in "/etc/systemd/system/$SERVICE.service" "/usr/lib/systemd/system/$SERVICE.service"; do
    [ ! -e "$file" ] || unit=yes
  done
  kept=/var/lib/rancher/k3s/server/db
  [ "$SERVICE" = k3s ] || kept=/var/lib/rancher/k3s/agent
  [ ! -d "$kept" ] || data=yes
  [ ! -e /etc/rancher/disttrain ] || ours=yes # infra/node/scripts/k3s-install.sh
  fact k3s_binary "$binary"
  fact k3s_unit "$unit"
  fact k3s_data "$data"
  fact k3s_ours "$ours"
  fact k3s_version "$(awk '$1 == "version" { print $2 }' /etc/rancher/disttrain 2>/dev/null)"
  if has systemctl; then
    fact k3s_active "$(limited systemctl is-active "$SERVICE" | head -n 1)"
  else
    fact k3s_active unknown
  fi
  fact kubelet_mounts "$(awk '$2 ~ "^/(run/k3s|var/lib/kubelet)/" { n++ } END { print n + 0 }' \
    /proc/self/mounts)"
  for file in "/etc/default/$SERVICE" "/etc/sysconfig/$SERVICE" "/etc/systemd/system/$SERVICE.service.env"; do
    [ -r "$file" ] || continue
    sed -n 's/"//g; s|//[^/@]*@|//|; s/^\(CONTAINERD_\)\{0,1\}\([A-Za-z]*_\)\([Pp][Rr][Oo][Xx][Yy]\)=/k3s_env.\1\2\3=/p' \
      "$file" | cut -c 1-900
  done
}

other_kubernetes() {
  for process in /proc/[0-9]*; do
    { read -r name <"$process/comm"; } 2>/dev/null || continue
    case $name in kubelet | kube-apiserver | rke2 | k0s) ;; *) continue ;; esac
    # A process in a container or a sandbox has another PID namespace, and does not disturb k3s.
    [ "$(readlink "$process/ns/pid")" != "$(readlink /proc/self/ns/pid)" ] ||
      fact kubernetes "process $name (${process#/proc/})"
  done
  for path in /etc/kubernetes/manifests /etc/kubernetes/kubelet.conf /var/snap/microk8s \
    /usr/local/bin/rke2 /usr/local/bin/k0s /usr/local/bin/minikube; do
    [ ! -e "$path" ] || fact kubernetes "$path"
  done
  for socket in /run/containerd/containerd.sock /run/k3s/containerd/containerd.sock; do
    [ ! -S "$socket" ] || fact containerd "$socket"
  done
  pods=$(find /run/containerd/io.containerd.runtime.v2.task/k8s.io -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
  fact containerd_pods "$((pods))"
}

clock() {
  has timedatectl || { unseen clock_synchronised "no timedatectl" && return; }
  if output=$(limited timedatectl show --property=NTPSynchronized --value); then
    fact clock_synchronised "$output"
  else
    unseen clock_synchronised "$(printf '%s' "$output" | one_line)"
  fi
}

# Prints the name servers in each of the files in which k3s looks for those of the pods, in this order.
name_servers() {
  for file in /etc/resolv.conf /run/systemd/resolve/resolv.conf; do
    found=$(awk '$1 == "nameserver" { printf "%s ", $2 }' "$file" 2>/dev/null)
    [ -z "$found" ] || fact name_servers "$found"
  done
}

resolve() { # name
  if limited getent hosts "$1" >/dev/null; then fact "dns.$1" found; else fact "dns.$1" "not found"; fi
}

# Prints the certificate authorities of the system and of caBundle. A curl with --cacert may trust no
# others.
authorities() {
  for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
    /etc/ssl/ca-bundle.pem; do
    [ ! -r "$file" ] || { cat "$file" && echo && break; }
  done
  printf '%s\n' "$CA_BUNDLE"
}

# via.NAME=curl's exit status|HTTP status of CONNECT|HTTP status of the answer. The proxy is passed
# in the environment, because all users of the host could read its password on a command line.
fetch() { # name proxy url
  has curl || { unseen "via.$1" "no curl" && return; }
  bundle=""
  [ -z "${CA_BUNDLE:-}" ] || bundle=$(mktemp) && [ -z "$bundle" ] || authorities >"$bundle"
  answer=$(http_proxy=$2 https_proxy=$2 no_proxy='' NO_PROXY='' HTTPS_PROXY='' ALL_PROXY='' \
    curl ${bundle:+--cacert "$bundle"} --silent --head --output /dev/null --max-time "$PROBE_SECONDS" \
    --write-out '%{http_connect}|%{http_code}' "$3" </dev/null 2>/dev/null)
  status=$?
  [ -z "$bundle" ] || rm -f "$bundle"
  fact "via.$1" "$status|$answer"
}

image() {
  # shellcheck disable=SC2086 # CTR is a command and its arguments
  if output=$(limited $CTR images ls -q "name==$IMAGE"); then
    if [ "$output" = "$IMAGE" ]; then fact image present; else fact image absent; fi
  else
    unseen image "$(printf '%s' "$output" | tail -n 1 | one_line)"
  fi
}

# Prints the first of IMAGE_BUILDERS that works here. `info` fails in a client without its engine.
image_builder() {
  silent=""
  for builder in $IMAGE_BUILDERS; do
    has "$builder" || continue
    limited "$builder" info >/dev/null
    case $? in
      0) fact image_builder "$builder" && return ;;
      124 | 137) silent=$builder ;;
    esac
  done
  if [ -n "$silent" ]; then
    unseen image_builder "\`$silent info\` gave no answer in $PROBE_SECONDS s"
  else
    fact image_builder none
  fi
}

main() {
  DATA_ROOT=${DATA_ROOT:-/var/lib/disttrain}
  nvidia_smi &
  kernel_log &
  clock &
  for name in ${DNS_NAMES:-}; do resolve "$name" & done
  [ -z "${HTTP_PROXY_URL:-}" ] || fetch http "$HTTP_PROXY_URL" "$HTTP_PROBE" &
  [ -z "${HTTPS_PROXY_URL:-}" ] || fetch https "$HTTPS_PROXY_URL" "$HTTPS_PROBE" &
  [ -n "${HTTP_PROXY_URL:-}${HTTPS_PROXY_URL:-}" ] || [ -z "${HTTPS_PROBE:-}" ] ||
    fetch direct "" "$HTTPS_PROBE" &
  [ -z "${IMAGE:-}" ] || image &
  [ -z "${IMAGE_BUILDERS:-}" ] || image_builder &
  guards &
  system
  disks
  ports
  kernel_parts
  network
  name_servers
  gpus
  k3s_parts
  other_kubernetes
  wait
  fact host_done yes
}

main
