# shellcheck shell=sh
# The configuration that all servers share, and what k3s tells about etcd's members. Needs lib/k3s.sh.
# k3s gives the Node of each member this label. Its leader also sets the condition EtcdIsVoter there, which
# is True for a member that votes and answers.
readonly ETCD_LABEL=node-role.kubernetes.io/etcd

# Servers of a cluster have to agree in most of these lines. Otherwise k3s does not let them join.
server_configuration() {
  echo "write-kubeconfig-mode: \"0600\""
  echo "cluster-cidr: \"$POD_CIDR\""
  echo "service-cidr: \"$SERVICE_CIDR\""
  echo "disable: [traefik, servicelb]"
  echo "agent-token-file: \"$AGENT_SECRET_FILE\""
  # Only servers have this setting. Agents ask a server for it when they start.
  [ -z "${EMBEDDED_REGISTRY:-}" ] || echo "embedded-registry: true"
  chosen_interface
  [ -z "${TLS_SAN:-}" ] || echo "tls-san: [\"$(echo "$TLS_SAN" | sed 's/ /", "/g')\"]"
}

# Prints a line for each member of etcd: its Node, whether it is Ready, and whether it votes (True, False
# or Unknown). A server that has left etcd is left out, although its Node exists until k3s is removed from
# its machine. That matters because several servers may leave at the same time.
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

# Reads the lines of etcd_members, and prints, in one line, the members other than this node that do not
# answer.
members_away() { # node
  awk -v node="$1" \
    '$1 != node && ($2 != "True" || $3 != "True") { away = away " " $1 } END { print substr(away, 2) }'
}
