#!/bin/sh
# create, update: bring k3s to a version and a configuration, as an agent that joins a server. They also
#   complete an installation that was interrupted, and repair a damaged one. The last line of the output
#   is `started=` with the time at which k3s was started, or with nothing if k3s went on running.
# prepare: does the same on a machine without k3s, but without the token, and does not start k3s.
# unprepare: removes what prepare has made, if create has not run since.
# clear: does the same at the very end. If create has run and delete has not, it prints `left=joined`.
# delete: removes what create has made, and nothing else.
# k3s-member.sh sees on the server whether the node is in the cluster.
# Needs: NODE (name of the node), K3S_VERSION, SERVER_URL. May be empty:
# - K3S_TOKEN: the agents' token, which create and update need;
# - NODE_INTERFACE: the network interface whose address the node has; else that of the default route;
# - TAINTS: the taints of the Node, one a line; GPU_PODS: pods with GPUs that run on the node now;
#   NODE_MISSING: 1 if the cluster has no such Node, which k3s makes only when it starts;
# - K3S_FORCE, K3S_SHA256, K3S_INSTALLER_SHA256, K3S_MIRROR, K3S_REGISTRIES, K3S_BUNDLE, K3S_IMAGES,
#   HTTP_PROXY, HTTPS_PROXY, NO_PROXY, PROXY_PREFIX, AUTHORITIES, OWNER, STACK: as in k3s-install.sh;
# - HOST: the address by which the machine is reached; it is recorded, as a machine may have two;
# - REPAIR_ID: is recorded at the end, for k3s-agent-look.sh;
# - DRY_RUN: with 1 the script only says what would change.
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
