#!/bin/sh
# create, update: brings k3s to a version and a configuration, as a further server that joins the first
# machine. What is left of one that was broken off or damaged is completed. The last line of the
# output is `started=` with the time at which k3s was started, or with nothing if it went on running.
# prepare, unprepare, clear: as of k3s-agent.sh.
# retire: k3s is not started again when it ends, until the next create.
# delete: takes away what create made, and nothing that it did not make. The server has to have left
# etcd before, see k3s-member.sh.
# Needs: NODE (its name), K3S_VERSION, SERVER_URL, POD_CIDR, SERVICE_CIDR. May be empty:
# - K3S_TOKEN: the servers' token, and AGENT_SECRET, the agents'; create and update need both;
# - TLS_SAN, EMBEDDED_REGISTRY: as in k3s-install.sh;
# - all that k3s-agent.sh names, DRY_RUN (1 only says what would change) among it.
# Usage: k3s-further-server.sh prepare|create|update|unprepare|clear|retire|delete
set -eu
umask 022

: "${NODE:?}" "${K3S_VERSION:?}" "${SERVER_URL:?}" "${POD_CIDR:?}" "${SERVICE_CIDR:?}"
PLACE=k3s-server

. ./lib/k3s.sh
. ./lib/k3s-preflight.sh
. ./lib/k3s-wanted.sh
. ./lib/k3s-download.sh
. ./lib/k3s-files.sh
. ./lib/k3s-setup.sh
. ./lib/k3s-remove.sh
. ./lib/k3s-etcd.sh
. ./lib/k3s-further.sh
. ./lib/k3s-further-server.sh

main() {
  case $1 in
    prepare | create | update | unprepare | clear | retire | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
