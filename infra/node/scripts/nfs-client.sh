#!/bin/sh
# create: sees to it that this host can mount from an NFS server, by the package of the distribution
#   where mount.nfs is missing. The last line of the output is `address=`, by which the server sees it.
# delete: removes what create has installed, where nothing is mounted by NFS any more, and the host is
#   still this node and reached in this way.
# Needs: NODE (name of its node), SERVER_ADDRESS. May be empty: HOST (how this host is reached);
# REPAIR_ID (with another one this runs again);
# HTTP_PROXY, HTTPS_PROXY, NO_PROXY, for the package; DRY_RUN (1: only says what would change).
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
