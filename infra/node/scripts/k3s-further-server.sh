#!/bin/sh
# create, update: bring k3s to a version and a configuration, as a further server that joins the first
#   machine. They also complete an installation that was interrupted, and repair a damaged one. The last
#   line of the output is `started=` with the time at which k3s was started, or with nothing if k3s went
#   on running.
# prepare, unprepare, clear: as in k3s-agent.sh.
# retire: keeps systemd from starting k3s again when it ends, until the next create.
# delete: removes what create has made, and nothing else. The server has to leave etcd before, see
#   k3s-member.sh.
# Needs: NODE (name of the node), K3S_VERSION, SERVER_URL, POD_CIDR, SERVICE_CIDR. May be empty:
# - K3S_TOKEN: the servers' token; AGENT_SECRET: the agents' secret; create and update need both;
# - TLS_SAN, EMBEDDED_REGISTRY: as in k3s-install.sh;
# - all other variables of k3s-agent.sh, also DRY_RUN (with 1 the script only says what would change).
# Usage: k3s-further-server.sh prepare|create|update|unprepare|clear|retire|delete
set -eu
umask 022

: "${NODE:?}" "${K3S_VERSION:?}" "${SERVER_URL:?}" "${POD_CIDR:?}" "${SERVICE_CIDR:?}"
K3S_ROLE=k3s-server

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
