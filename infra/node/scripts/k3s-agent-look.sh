#!/bin/sh
# look: prints the state of k3s on this further machine, one `key=value` a line. It changes nothing.
# log: prints the last lines of k3s' log.
# May be empty: ROLE (`server` if this machine is a server and not an agent), DRY_RUN (1 makes no
# difference, because nothing is changed).
# Usage: k3s-agent-look.sh look|log
set -eu

case ${ROLE:-agent} in
  server) K3S_ROLE=k3s-server ;;
  *) SERVICE=k3s-agent ;;
esac
. ./lib/k3s.sh

# k3s makes this password at its first start, and the server remembers it. A machine without it is new.
readonly NODE_PASSWORD=/etc/rancher/node/password

# A server without its etcd data is a new member, even if everything else is there.
is_new_machine() { [ ! -s "$NODE_PASSWORD" ] || { [ "$K3S_ROLE" = k3s-server ] && [ ! -d "$ETCD_DATA" ]; }; }

# Whether the cluster has the Node, as k3s-member.sh has set it up. Somebody may have deleted it (kubectl
# delete node). The kubelet makes it again only when it starts, and then without our labels. So the Node
# also has to name the manager of our labels. A cluster that refuses the kubelet has no working Node: its
# certificate has ended, which k3s renews only when it starts. If the cluster does not answer, the Node
# counts as there.
has_node() {
  if said=$(own_node); then
    case $said in *"\"manager\":\"$LABELS_MANAGER\""*) ;; *) return 1 ;; esac
  else
    case $said in *NotFound* | *Unauthorized*) return 1 ;; esac
  fi
}

yes_no() { if "$@"; then echo yes; else echo no; fi; }

is_healthy() {
  [ "$(noted files)" = "$(installed_files)" ] && is_active && ! is_new_machine && has_node
}

# Prints the machine-id and the address that together identify this machine. The id alone is not enough,
# because a copied disk has the id of another machine. Prints nothing if one of the two is not known.
machine() {
  id=$(cat /etc/machine-id 2>/dev/null) || return 0
  command -v ip >/dev/null || return 0
  address=$(own_address -4)
  [ -n "$address" ] || address=$(own_address -6)
  [ -z "$id" ] || [ -z "$address" ] || echo "$id $address"
}

own_address() { # -4 or -6: of the interface of the default route
  device=$(ip "$1" route show default | awk '$1 == "default" { for (i = 2; i < NF; i++) if ($i == "dev") { print $(i + 1); exit } }')
  [ -z "$device" ] || ip "$1" -o address show dev "$device" scope global |
    awk '!/ (temporary|deprecated|tentative) / { split($4, a, "/"); print a[1]; exit }'
}

look() {
  if is_ours; then
    echo "state=ours"
    echo "healthy=$(yes_no is_healthy)"
    echo "repair=$(noted repair)"
    echo "node=$(noted node)"
  else
    echo "state=absent"
  fi
  echo "machine=$(machine)"
  echo "new_machine=$(yes_no is_new_machine)"
  echo "done=yes"
}

log() { journalctl --unit="$SERVICE" --lines=20 --no-pager --output=cat | cut -c 1-300; }

main() {
  case $1 in
    look | log) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
