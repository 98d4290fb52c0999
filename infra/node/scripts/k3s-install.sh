#!/bin/sh
# create: brings k3s to a version and a configuration, or takes a k3s that is there as it is.
# update: the same for a k3s that an earlier create has made; also repairs it.
# delete: takes away what create made, and nothing that it did not make.
# Binary and installer are checked against their sha256 before anything of them is used; a second
# create changes nothing; a create that was broken off is finished by the next.
# Needs: K3S_VERSION, POD_CIDR, SERVICE_CIDR, NAMESPACE, GRACE_SECONDS. May be empty:
# - K3S_EXISTING: refuse or adopt; K3S_FORCE: true changes k3s under running pods with GPUs;
# - K3S_SHA256, K3S_INSTALLER_SHA256, K3S_MIRROR, K3S_REGISTRIES (text), TLS_SAN (several, with
#   blanks between them);
# - EMBEDDED_REGISTRY: true lets the nodes give each other the images of K3S_REGISTRIES' mirrors;
# - CLUSTER_INIT: 1 keeps the cluster's data in etcd, so that further servers can join;
# - NODE_INTERFACE: whose address is the node's own; else that of the default route;
# - INTERFACE_ADDRESS: an address that this interface has to have;
# - K3S_BUNDLE: a folder on this host, from which everything is taken; both sums are given then;
# - K3S_IMAGES: lines `sha256 name`, archives in that folder which k3s is to import;
# - HTTP_PROXY, HTTPS_PROXY, NO_PROXY, PROXY_PREFIX: the environment of k3s;
# - AUTHORITIES: checksum of those that ca-certificates.sh has brought to the host;
# - OWNER: which platform this is, STACK: its stack; noted, so that no other stack takes it over;
# - WAY: how this host is reached, local or ssh; noted, so that it is known again by the other way;
# - HOST: the address by which it is reached; noted for k3s-left.sh, as a machine may have two;
# - REPAIR_ID, GENERATION_ID: noted at the end, and read by k3s-look.sh;
# - DRY_RUN: 1 only says what would change.
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
