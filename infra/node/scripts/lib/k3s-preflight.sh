# shellcheck shell=sh
# Checks the host before anything of k3s is changed. Needs lib/k3s.sh and lib/k3s-files.sh.
readonly API_PORT=6443 ETCD_PORTS='2379 2380 2381 2382'
readonly MIN_FREE_MIB=512 # the binary, what it unpacks, and the new binary beside the old one

architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) fail "no k3s for $(uname -m); there is one for x86_64 and aarch64" ;;
  esac
}

preflight() {
  [ -d /run/systemd/system ] || fail "k3s is run by systemd, which is not this host's init"
  [ -n "${K3S_BUNDLE:-}" ] || command -v curl >/dev/null ||
    fail "curl is missing on this host: install it"
  for tool in sha256sum awk; do
    command -v "$tool" >/dev/null || fail "$tool is missing on this host: install it"
  done
  refuse_k3s_of_others
  host_name
  if [ ! -e "$OWNERSHIP_FILE" ] && [ -n "$(ls -A /var/lib/kubelet 2>/dev/null)" ]; then
    fail "/var/lib/kubelet is not empty: another Kubernetes is or was on this host; remove it first"
  fi
  refuse_files_of_others
  if owner=$(port_owner "$API_PORT"); then
    fail "port $API_PORT of this host is taken by $owner; k3s' API server needs it"
  fi
  has_etcd || return 0
  for port in $ETCD_PORTS; do
    if owner=$(port_owner "$port"); then
      fail "port $port of this host is taken by $owner; k3s' etcd needs it"
    fi
  done
}

# Checks the host name of the first machine. k3s makes the name of its node of it, in lower case. With a name
# that no node can have, k3s would run without a node.
host_name() {
  [ "$K3S_ROLE" = k3s ] || return 0
  name=$(uname -n | tr '[:upper:]' '[:lower:]')
  echo "$name" | grep -qxE '[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*' &&
    [ "${#name}" -le 63 ] && return
  fail "the host name $(uname -n) of this host cannot be the name of a node: Kubernetes takes letters, digits, \
- and . there, and at most 63 characters. Give the host another one: hostnamectl set-hostname NAME"
}

# Refuses files of k3s' settings that this program did not make. When k3s is removed, all such files except
# SYSCONFIG are removed too, and some are overwritten before. Our own files are written after the ownership
# file, so there is nothing to refuse once that file exists.
refuse_files_of_others() {
  [ ! -e "$OWNERSHIP_FILE" ] || return 0
  for file in "${CONFIG%/*}"/* "${CONFIG%/*}"/.[!.]* "$ENVIRONMENT" "$UNIT.env" "$UNIT.d" "$SYSCONFIG"; do
    effect="k3s would be installed over it, and it would be removed with k3s"
    [ "$file" != "$SYSCONFIG" ] || effect="k3s would take its options from there as well"
    [ ! -e "$file" ] && [ ! -L "$file" ] || fail "$file is on this host already, and is not of this program: \
$effect. Take what is in it over into the settings \
(registries: k3sRegistries; proxies: httpProxy, httpsProxy, noProxy; networks: podCidr, serviceCidr, \
nodeInterface), move it to another folder, and run pulumi up again"
  done
}

# Whether this host is or becomes one of several servers, which keep the cluster's data in k3s' etcd.
has_etcd() { [ "$K3S_ROLE" = k3s-server ] || [ -n "${CLUSTER_INIT:-}" ]; }

# Prints which process listens on a port. Fails if none does, or if it is k3s itself, as a server or as
# an agent with the embedded registry.
port_owner() { # port
  hex=$(printf '%04X' "$1")
  inode=$(awk -v port=":$hex" '$4 == "0A" && $2 ~ port "$" { print $10; exit }' \
    /proc/net/tcp /proc/net/tcp6 2>/dev/null)
  [ -n "$inode" ] || return 1
  # k3s is checked first, so that not all open files of the host have to be searched.
  if is_active; then
    k3s_pid=$(systemctl show --property=MainPID --value "$SERVICE")
    ! holds_socket "$inode" "$k3s_pid" || return 1
  fi
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    if holds_socket "$inode" "$pid"; then
      if grep -qs "$SERVICE\.service" "/proc/$pid/cgroup"; then return 1; fi
      echo "process $pid ($(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c 1-80))"
      return
    fi
  done
  echo "a process that cannot be named"
}

holds_socket() { # inode pid; one `ls` for each process, not one `readlink` for each open file
  # shellcheck disable=SC2010 # file descriptors have no odd names
  ls -l "/proc/$2/fd" 2>/dev/null | grep -q "socket:\[$1\]"
}

free_space() { # for what is not there yet
  for folder in /var/lib/rancher/k3s "${BINARY%/*}"; do
    need=$MIN_FREE_MIB
    case $folder in /var/lib/*) need=$((need + $(images_mib))) ;; esac
    while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
    free=$(df -Pm "$folder" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$need" ] ||
      fail "$folder has $free MiB free; k3s and its images need $need MiB"
  done
}

# The disk space in MiB for a bundle's images: the copy, and about twice as much for what k3s unpacks.
images_mib() {
  echo "${K3S_IMAGES:-}" | while read -r sum name; do
    [ -z "$sum" ] || [ -e "$(image_file "$sum" "$name")" ] || wc -c <"$K3S_BUNDLE/$name"
  done | awk '{ bytes += $1 } END { print int(3 * bytes / 1048576) }'
}

policy_missing() { # SELinux needs the package of k3s' own rules
  [ -x "$(command -v getenforce)" ] && [ "$(getenforce)" != Disabled ] &&
    ! has_policy
}

# Checks the network interface that the settings name. k3s itself would only look for it when it starts,
# and would only write into its log that it is missing.
named_interface() {
  [ -n "${NODE_INTERFACE:-}" ] && command -v ip >/dev/null || return 0
  ip link show dev "$NODE_INTERFACE" >/dev/null 2>&1 ||
    fail "this host has no network interface $NODE_INTERFACE. It is set by nodeInterface, and \
for a further machine by \`interface\` in its item of nodes"
  addresses=$(ip -o address show dev "$NODE_INTERFACE" up scope global)
  [ -n "$addresses" ] ||
    fail "the network interface $NODE_INTERFACE of this host is off, or has no address"
  several=$(echo "$addresses" |
    awk '$3 == "inet" { split($4, a, "/"); print a[1] }' | paste -sd ' ')
  case $several in
    *' '*) fail "the network interface $NODE_INTERFACE of this host has several IPv4 addresses \
($several), and k3s does not start on one that has more than one. Leave one of them there, or name another \
interface: by nodeInterface, and for a further machine by \`interface\` in its item of nodes" ;;
  esac
  [ -n "${INTERFACE_ADDRESS:-}" ] || return 0
  there=$(echo "$addresses" | awk '{ split($4, a, "/"); print a[1] }')
  echo "$there" | grep -qxF "$INTERFACE_ADDRESS" ||
    fail "nodeAddress is $INTERFACE_ADDRESS, and the network interface $NODE_INTERFACE \
(nodeInterface) of this host has $(echo "$there" | paste -sd ' ')"
}

# Checks that the host has a default route. k3s finds its own address by it, even if it leads nowhere.
default_route() {
  awk '$2 == "00000000" && $8 == "00000000" { found = 1 } END { exit !found }' /proc/net/route ||
    awk '$1 ~ /^0+$/ && $2 == "00" && $10 != "lo" { found = 1 } END { exit !found }' \
      /proc/net/ipv6_route 2>/dev/null ||
    fail "this host has no default route, and k3s does not start without one. One that leads \
nowhere is enough: ip link add dummy0 type dummy && ip addr add 203.0.113.254/31 dev dummy0 && \
ip link set dummy0 up && ip route add default via 203.0.113.255 dev dummy0 (docs/airgap.md)"
}
