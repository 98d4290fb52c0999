# shellcheck shell=sh
# What servers have in common, and what k3s tells of etcd's members. Needs lib/k3s.sh.
# k3s gives the Node of a member the label, and its leader the condition EtcdIsVoter: True for one that
# votes and answers.
readonly ETCD_LABEL=node-role.kubernetes.io/etcd

# Servers of one cluster have to agree in most of it, or k3s lets none join.
server_configuration() {
  echo "write-kubeconfig-mode: \"0600\""
  echo "cluster-cidr: \"$POD_CIDR\""
  echo "service-cidr: \"$SERVICE_CIDR\""
  echo "disable: [traefik, servicelb]"
  echo "agent-token-file: \"$AGENT_SECRET_FILE\""
  # A setting of servers alone; agents learn of it as they start.
  [ -z "${EMBEDDED_REGISTRY:-}" ] || echo "embedded-registry: true"
  chosen_interface
  [ -z "${TLS_SAN:-}" ] || echo "tls-san: [\"$(echo "$TLS_SAN" | sed 's/ /", "/g')\"]"
}

# A line for each member: its Node, whether it is Ready, and whether it votes (True, False or Unknown).
# One that etcd has let go is none, although its Node is there until k3s is gone from its machine: several
# servers may leave at the same time.
etcd_members() {
  nodes=$(k3s_kubectl get nodes -l "$ETCD_LABEL=true" -o \
    'jsonpath={range .items[*]}{.metadata.name} left={.metadata.annotations.etcd\.k3s\.cattle\.io/removed-node-name} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="EtcdIsVoter")].status}{"\n"}{end}') ||
    return 1
  echo "$nodes" | awk '$2 == "left=" { print $1, $3, $4 }'
}

is_voter() { # node
  etcd_members 2>/dev/null | awk -v node="$1" \
    '$1 == node && $2 == "True" && $3 == "True" { found = 1 } END { exit !found }'
}

# Of the members beside a node those that do not answer, in one line.
members_away() { # node
  etcd_members | awk -v node="$1" \
    '$1 != node && ($2 != "True" || $3 != "True") { away = away " " $1 } END { print substr(away, 2) }'
}
