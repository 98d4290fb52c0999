#!/bin/sh
# create: brings k3s to a version and a configuration, or adopts a k3s that is there already.
# update: does the same for a k3s that an earlier create has made, and also repairs it.
# delete: removes what create has made, and nothing else.
# The sha256 of binary and installer are compared before anything of them is used. A second create
# changes nothing. If a create was interrupted, the next one completes it.
# Needs: K3S_VERSION, POD_CIDR, SERVICE_CIDR, NAMESPACE, GRACE_SECONDS. May be empty:
# - K3S_EXISTING: refuse or adopt; K3S_FORCE: true lets k3s change while pods with GPUs run;
# - K3S_SHA256, K3S_INSTALLER_SHA256, K3S_MIRROR, K3S_REGISTRIES (the text of the file), TLS_SAN (names
#   with blanks between them);
# - EMBEDDED_REGISTRY: true lets the nodes give each other the images of K3S_REGISTRIES' mirrors;
# - CLUSTER_INIT: 1 keeps the cluster's data in etcd, so that further servers can join;
# - NODE_INTERFACE: the network interface whose address the node has; else that of the default route;
# - INTERFACE_ADDRESS: an address that this interface has to have;
# - K3S_BUNDLE: a folder on this host with all files of k3s; both checksums have to be given then;
# - K3S_IMAGES: lines `sha256 name` of archives in that folder, which k3s has to import;
# - HTTP_PROXY, HTTPS_PROXY, NO_PROXY, PROXY_PREFIX: the environment of k3s;
# - AUTHORITIES: checksum of the authorities that ca-certificates.sh has brought to the host;
# - OWNER: identifies the platform; STACK: its stack; recorded, so that no other stack takes k3s over;
# - WAY: the setting host, local or ssh; recorded, so that a change of it for this host is noticed;
# - HOST: the address by which it is reached; recorded for k3s-left.sh, as a machine may have two;
# - REPAIR_ID, GENERATION_ID: are recorded at the end, for k3s-look.sh;
# - DRY_RUN: with 1 the script only says what would change.
# Usage: k3s-install.sh create|update|delete
set -eu
umask 022

: "${K3S_VERSION:?}" "${POD_CIDR:?}" "${SERVICE_CIDR:?}" "${NAMESPACE:?}" "${GRACE_SECONDS:?}"

. ./lib/k3s.sh
. ./lib/other-runs.sh
. ./lib/k3s-preflight.sh
. ./lib/k3s-wanted.sh
. ./lib/k3s-download.sh
. ./lib/k3s-files.sh
. ./lib/k3s-setup.sh
. ./lib/k3s-remove.sh
. ./lib/k3s-etcd.sh
. ./lib/k3s-server.sh

main() {
  case $1 in
    create | update | delete) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
