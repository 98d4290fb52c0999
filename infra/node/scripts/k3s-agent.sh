#!/bin/sh
# create, update: brings k3s to a version and a configuration, as an agent that joins a server. What
# is left of an agent that was broken off or damaged is completed. The last line of the output is
# `started=` with the time at which k3s was started, or with nothing if it went on running.
# prepare: the same on a machine without k3s, but for the token and the start.
# unprepare: takes away what prepare made, where create has not run since.
# clear: the same once more, at the end; where create has run, and delete has not, the output is
# `left=joined`.
# delete: takes away what create made, and nothing that it did not make.
# Whether the server has the node is seen there: k3s-member.sh.
# Needs: NODE (its name), K3S_VERSION, SERVER_URL. May be empty:
# - K3S_TOKEN: the agents' token, which create and update need;
# - NODE_INTERFACE: whose address is the node's own; else that of the default route;
# - TAINTS: of the Node, one a line; GPU_PODS: those that now run on the node; NODE_MISSING: 1 says that
#   the cluster has no such Node, which k3s makes only as it starts;
# - K3S_FORCE, K3S_SHA256, K3S_INSTALLER_SHA256, K3S_MIRROR, K3S_REGISTRIES, K3S_BUNDLE, K3S_IMAGES,
#   HTTP_PROXY, HTTPS_PROXY, NO_PROXY, PROXY_PREFIX, AUTHORITIES, OWNER, STACK: as in k3s-install.sh;
# - HOST: the address by which it is reached; noted, as a machine may have two;
# - REPAIR_ID: noted at the end, and read by k3s-agent-look.sh;
# - DRY_RUN: 1 only says what would change.
# Usage: k3s-agent.sh prepare|create|update|unprepare|clear|delete
set -eu
umask 022

: "${NODE:?}" "${K3S_VERSION:?}" "${SERVER_URL:?}"
SERVICE=k3s-agent

. ./lib/k3s.sh
. ./lib/k3s-preflight.sh
. ./lib/k3s-wanted.sh
. ./lib/k3s-download.sh
. ./lib/k3s-files.sh
. ./lib/k3s-setup.sh
. ./lib/k3s-remove.sh
. ./lib/k3s-further.sh
. ./lib/k3s-agent.sh

main() {
  case $1 in
    prepare | create | update | unprepare | clear | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
