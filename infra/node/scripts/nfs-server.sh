#!/bin/sh
# create: lets this host serve the data folder by NFS 4, at first only to itself; nfs-export.sh adds the
#   other machines. If the server is missing, it installs the package of the distribution.
# delete: takes back all exports of this stack, stops a server that create has started, and removes what
#   create has installed. These stay: the data, what was there before, what others use now, and the server
#   if this host has another address in the settings now.
# Needs: DATA_ROOT, SERVER_ADDRESS (the address of this host, as the others reach it). May be empty: OWNER,
# STACK, HOST (the address by which this host is reached), REPAIR_ID (when it changes, the command runs
# again), HTTP_PROXY, HTTPS_PROXY and NO_PROXY (for downloading the package), DRY_RUN (1: only says what would
# change).
# Usage: nfs-server.sh create|delete
set -eu
umask 022

: "${DATA_ROOT:?}" "${SERVER_ADDRESS:?}"

. ./lib/nfs.sh
. ./lib/packages.sh

readonly OWN_EXPORT="$EXPORTS/disttrain.exports"
readonly UNIT=nfs-server # so it is called in every distribution

# Refuses a folder in which something is mounted. The other machines would not see what is mounted there.
# They would see the folder below it, and fill that one.
refuse_mounts_below() {
  below=$(awk -v root="$DATA_ROOT/" 'index($2, root) == 1 { print $2; exit }' "$ROOT/proc/self/mounts")
  [ -z "$below" ] || fail "dataRoot: $DATA_ROOT cannot be served by NFS, as something is mounted in \
it ($below), which the other machines would not see. Mount that disk at $DATA_ROOT itself"
}

refuse_same_folder() {
  others=$(exports_of_others | awk -v folder="$DATA_ROOT" '$2 == folder { print $1; exit }')
  [ -z "$others" ] || fail "dataRoot: $DATA_ROOT is exported already, by $others of this host, which \
this program did not make. Set another dataRoot, or storage: nfs with this server and this path, or \
take the folder out of that file"
}

is_active() { systemctl is-active --quiet "$UNIT"; }

# Refuses to start a stopped server if others have exports. Its start would also serve these, which nobody
# has wanted so far.
refuse_to_start_for_others() {
  others=$(exports_of_others | cut -d ' ' -f 1 | sort -u | paste -sd ' ' -)
  [ -z "$others" ] || fail "the NFS server of this host is off, and its start would also serve what \
$others names, which is not ours. Start it yourself (systemctl start $UNIT), or empty that file"
}

has_server() { command -v exportfs >/dev/null && command -v rpc.nfsd >/dev/null; }

note_before() {
  {
    echo "service $(systemctl is-enabled "$UNIT" 2>/dev/null)"
    echo "server $(systemctl is-active "$UNIT" 2>/dev/null)"
    for path in "$ROOT/etc/exports" "$EXPORTS"; do [ ! -e "$path" ] || echo "$path there"; done
  } >"$BEFORE.new"
  sync "$BEFORE.new" # see lib/k3s.sh
  mv "$BEFORE.new" "$BEFORE"
}

prepare() {
  [ -e "$BEFORE" ] || is_active || refuse_to_start_for_others
  mkdir -p "$NOTES"
  [ -e "$BEFORE" ] || note_before # first: delete may stop a server only if it knows what was before
  echo "${HOST:-this host}" >"$SERVES"
  has_server || install_package nfs-kernel-server nfs-utils nfs-kernel-server
  mkdir -p "$EXPORTS"
}

start() {
  systemctl enable --quiet "$UNIT" 9>&-
  is_active || systemctl start "$UNIT" 2>"$NOTES/says" 9>&- || true
  [ "$(cat "$NFSD/threads" 2>/dev/null || echo 0)" -gt 0 ] || {
    cat "$NOTES/says" >&2 2>/dev/null || true
    journalctl --unit="$UNIT" --unit=proc-fs-nfsd.mount --no-pager --output=cat --lines=10 2>/dev/null |
      cut -c 1-300 >&2 || true
    fail "the NFS server of this host ($UNIT) does not start: the lines above say why. Its kernel \
has to have the module nfsd, which containers and some small kernels lack. Mend it, or set storage to \
another kind"
  }
  grep -q '+4\.1' "$NFSD/versions" ||
    fail "the NFS server of this host does not speak version 4.1 ($(cat "$NFSD/versions")): set \
vers4.1=y in the section [nfsd] of /etc/nfs.conf there, restart $UNIT, and run pulumi up again"
  rm -f "$NOTES/says"
}

create() {
  if dry; then
    has_server || echo "would install: an NFS server"
    [ -e "$OWN_EXPORT" ] || echo "would write: $OWN_EXPORT"
    is_active || echo "would start: $UNIT"
    return
  fi
  one_at_a_time
  [ -d "$DATA_ROOT" ] || fail "dataRoot: $DATA_ROOT is not there"
  refuse_mounts_below
  refuse_same_folder
  prepare
  address=$(own_address)
  set_export "$OWN_EXPORT" "$address" "this host"
  start
  is_served "$address" || fail "the NFS server of this host runs, and does not serve $DATA_ROOT to \
$address, itself: look with exportfs -s what it serves"
  echo "$DATA_ROOT is served by NFS at $SERVER_ADDRESS"
}

# Stops the server, unless others have added exports of their own to it.
leave_server() {
  [ -e "$BEFORE" ] || return 0 # create ended before it changed the server
  others=$(exports_of_others | cut -d ' ' -f 1 | sort -u | paste -sd ' ' -)
  if [ -n "$others" ] && ! was server active; then
    echo "the NFS server of this host stays, as $others names folders that are not ours"
    stays=yes
    return
  fi
  was service enabled || systemctl disable --quiet "$UNIT" 2>/dev/null || true
  was server active || systemctl stop "$UNIT" 2>/dev/null || true
  was "$EXPORTS" there || rmdir "$EXPORTS" 2>/dev/null || true
}

delete() {
  if [ ! -e "$SERVES" ]; then
    echo "no NFS server of this host is of this program"
    return
  elif [ "$(cat "$SERVES")" != "${HOST:-this host}" ]; then
    echo "this host is reached at $(cat "$SERVES") by now, and keeps its NFS server"
    return
  elif dry; then
    for file in "$EXPORTS"/disttrain*.exports; do [ ! -e "$file" ] || echo "would take back: $file"; done
    return
  fi
  one_at_a_time
  for file in "$OWN_EXPORT" "$EXPORTS"/disttrain-*.exports; do remove_export "$file"; done
  if [ -e "$OWN_EXPORT" ]; then return; fi # of another stack, whose server it is by now
  leave_server
  if [ -e "$NAME" ]; then
    rm -f "$SERVES"
    echo "the packages stay, as this host mounts the data from another one by now"
  elif [ -z "${stays:-}" ]; then
    remove_nfs
  else
    rm -rf "$NOTES"
  fi
  echo "$DATA_ROOT is no longer served by NFS; the data are kept"
}

main() {
  case $1 in
    create | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
