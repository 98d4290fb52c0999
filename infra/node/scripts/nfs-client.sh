#!/bin/sh
# create: lets this host mount from an NFS server. If mount.nfs is missing, it installs the package of the
#   distribution. The last line of the output is `address=` with the address by which the server sees
#   this host.
# delete: removes what create has installed, if nothing is mounted by NFS any more, and if the host still
#   has this node name and address.
# Needs: NODE (name of the host's node), SERVER_ADDRESS. May be empty: HOST (the address by which this host
# is reached), REPAIR_ID (when it changes, the command runs again), HTTP_PROXY, HTTPS_PROXY and NO_PROXY
# (for downloading the package), DRY_RUN (1: only says what would change).
# Usage: nfs-client.sh create|delete
set -eu
umask 022

: "${NODE:?}" "${SERVER_ADDRESS:?}"

. ./lib/nfs.sh
. ./lib/packages.sh

readonly WHO="$NODE at ${HOST:-this host}"

create() {
  if dry; then
    command -v mount.nfs >/dev/null || echo "would install: an NFS client"
    return
  fi
  one_at_a_time
  mkdir -p "$NOTES"
  echo "$WHO" >"$NAME"
  command -v mount.nfs >/dev/null || install_package nfs-common nfs-utils nfs-client
  address=$(own_address)
  echo "address=$address"
}

delete() {
  if dry; then
    [ ! -s "$OURS" ] || echo "would remove: $(paste -sd ' ' "$OURS")"
    return
  fi
  [ -e "$NAME" ] || return 0
  one_at_a_time
  if [ "$(cat "$NAME")" != "$WHO" ]; then
    echo "this host is the node $(cat "$NAME") by now, and keeps its NFS client"
    return
  fi
  if [ -e "$SERVES" ]; then
    rm -f "$NAME"
    echo "the NFS client of this host stays, as the host is the server by now"
    return
  fi
  mounted=$(awk '$3 ~ /^nfs4?$/ { print $2; exit }' "$ROOT/proc/self/mounts")
  if [ -n "$mounted" ]; then
    echo "the NFS client of this host stays, as $mounted is mounted by it"
    return
  fi
  remove_nfs
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
