# shellcheck shell=sh disable=SC2034 # not every script that includes this uses every constant
# What all scripts about k3s need: where its files are, and to whom the k3s of this host belongs.
# SERVICE is the name of k3s' systemd service. A script for an agent sets it to k3s-agent first. K3S_ROLE is
# the role of the host in the cluster: k3s (the first machine), k3s-agent (an agent) or k3s-server (a
# further server).
: "${SERVICE:=k3s}" "${K3S_ROLE:=$SERVICE}"
readonly BINARY=/usr/local/bin/k3s
readonly UNINSTALLER="/usr/local/bin/$SERVICE-uninstall.sh" # k3s' installer makes it
readonly UNIT="/etc/systemd/system/$SERVICE.service"        # k3s' installer makes this too
readonly LIMITS="$UNIT.d/disttrain.conf" # what systemd adds to the unit
readonly CONFIG=/etc/rancher/k3s/config.yaml
readonly REGISTRIES=/etc/rancher/k3s/registries.yaml
readonly KUBECONFIG_FILE=/etc/rancher/k3s/k3s.yaml
# k3s uses this kubeconfig itself. It exists even if the other one was removed, or is written elsewhere.
readonly ADMIN_KUBECONFIG_FILE=/var/lib/rancher/k3s/server/cred/admin.kubeconfig
readonly ENVIRONMENT="/etc/default/$SERVICE" # the unit reads it; k3s' installer never writes it
readonly SYSCONFIG="/etc/sysconfig/$SERVICE" # the unit reads it too; nothing of ours is there
readonly REGISTRATION=/etc/rancher/k3s/config.yaml.d/disttrain.yaml # of a further machine
# The token with which a further machine joins (mode 0600). An agent has the agents' token.
readonly TOKEN_FILE=/etc/rancher/k3s/disttrain-token
readonly AGENT_SECRET_FILE=/etc/rancher/k3s/disttrain-agent-secret # of a server: the agents', 0600
readonly NO_RESTART="/run/systemd/system/$SERVICE.service.d" # of a server that leaves
readonly ETCD_DATA=/var/lib/rancher/k3s/server/db/etcd # of one of several servers
readonly ADMIN_CERTIFICATE=/var/lib/rancher/k3s/server/tls/client-admin.crt
# Records what this program has installed, one `key value` a line. k3s' uninstaller does not delete this
# file.
readonly OWNERSHIP_FILE=/etc/rancher/disttrain
# This file is in the folder of k3s' data, so it disappears with them. It tells whether the data are
# still those of the recorded installation.
readonly GENERATION_FILE=/var/lib/rancher/k3s/server/db/disttrain-generation
readonly LOCK=/run/disttrain-k3s.lock

case $K3S_ROLE in # what the first machine can do with a k3s of others, and a further one cannot
  k3s) USE_IT_AS_IT_IS="Or use its k3s as it is: pulumi config set k3sExisting adopt. " ;;
  *) USE_IT_AS_IT_IS="" ;;
esac
readonly AGENT_LABEL=disttrain.dev/agent # of Nodes that `nodes` of the settings has brought
readonly LABELS_MANAGER=disttrain-nodes  # in the Node's managedFields, of what is ours there

. ./lib/turn.sh

# Runs kubectl. KUBECACHEDIR keeps its cache out of root's home, and 9>&- keeps the lock from being
# inherited.
k3s_kubectl() {
  config=$KUBECONFIG_FILE
  [ -s "$config" ] || config=$ADMIN_KUBECONFIG_FILE
  KUBECONFIG=$config KUBECACHEDIR=/run/k3s/disttrain-kubectl "$BINARY" kubectl \
    --request-timeout=15s "$@" </dev/null 9>&-
}

# Prints what the cluster answers the kubelet of a further machine about its own Node. k3s makes the
# kubeconfig for that when it joins.
own_node() {
  KUBECONFIG=/var/lib/rancher/k3s/agent/kubelet.kubeconfig "$BINARY" kubectl --request-timeout=3s \
    get --raw "/api/v1/nodes/$(noted node)" 2>&1 </dev/null 9>&-
}

# Whether the cluster refuses the certificates that k3s has made on this machine. They are valid for a year,
# and k3s renews them only when it starts. On the first machine only old ones are tried, so that the look at
# it stays quick.
certificates_have_ended() {
  if [ "$K3S_ROLE" = k3s ]; then
    [ -n "$(find "$ADMIN_CERTIFICATE" -mtime +300 2>/dev/null)" ] &&
      k3s_kubectl --request-timeout=3s get --raw /readyz 2>&1 |
      grep -q -e Unauthorized -e 'certificate has expired'
  else
    own_node | grep -q Unauthorized
  fi
}

# Prints how long to wait for pods to end: a minute more than GRACE_SECONDS, or than the longest time that
# this program's pods have. With a mirror they have more, and so may those of other stacks.
end_limit() { # options of kubectl that choose the pods
  longest=$({
    echo "$GRACE_SECONDS"
    k3s_kubectl get pods "$@" -l app.kubernetes.io/part-of=disttrain \
      -o 'jsonpath={range .items[*]}{.spec.terminationGracePeriodSeconds}{"\n"}{end}'
  } | sort -n | tail -n 1)
  echo "$((longest + 60))s"
}

is_active() { systemctl is-active --quiet "$SERVICE"; }

sha256_of() { sha256sum "$1" | cut -d ' ' -f 1; }

noted() { # key
  [ ! -e "$OWNERSHIP_FILE" ] || awk -v key="$1" '$1 == key { print $2 }' "$OWNERSHIP_FILE"
}

# `sync` comes before each `mv` of a file that nothing compares later. Otherwise some file systems, such as
# XFS, may show an empty file of that name after a power loss.
note() { # key value
  (umask 077 && { grep -v "^$1 " "$OWNERSHIP_FILE" || true && echo "$1 $2"; } \
    >"$OWNERSHIP_FILE.new")
  sync "$OWNERSHIP_FILE.new"
  mv "$OWNERSHIP_FILE.new" "$OWNERSHIP_FILE"
}

noted_role() { # the first machine is not noted, as there were no further ones once
  role=$(noted service)
  echo "${role:-k3s}"
}

# Whether k3s belongs to another stack: its recorded owner is not this one.
other_owner() {
  noted_owner=$(noted owner)
  [ -n "$noted_owner" ] && [ -n "${OWNER:-}" ] && [ "$noted_owner" != "$OWNER" ]
}

# Two addresses may lead to the same machine. Tells whether the k3s on this host was installed by another
# address than HOST. Then it is not what an `up` with the address HOST has left. Older versions have not
# recorded the address.
came_by_other_address() {
  noted_host=$(noted host)
  [ -n "$noted_host" ] && [ -n "${HOST:-}" ] && [ "$noted_host" != "$HOST" ]
}

# Whether the settings say to use this k3s as it is (adopt), and this stack has not installed it.
is_adopted() {
  [ "${K3S_EXISTING:-}" = adopt ] &&
    { [ ! -e "$OWNERSHIP_FILE" ] || [ "$(noted owner)" != "${OWNER:-}" ]; }
}

installed_by_others() { [ ! -e "$OWNERSHIP_FILE" ] && { [ -e "$BINARY" ] || [ -e "$UNIT" ]; }; }

# What a user can do who makes a platform where that of another stack of theirs is. Not every script knows
# the own STACK. One of the same name is in another backend of Pulumi, where `platform` does not find it.
use_that_platform() {
  other=$(noted stack) own=${STACK:-}
  other=${other##*/} own=${own##*/}
  [ "$K3S_ROLE" != k3s ] || [ "$other" = "$own" ] || [ -z "$other" ] ||
    printf '%s' "If it is yours, put the run onto its platform: pulumi config set platform $other. "
}

# With `k3sExisting: refuse`, the k3s of the host has to be this stack's, or there has to be none.
refuse_k3s_of_others() {
  if other_owner; then
    fail "the k3s of this host belongs to another stack ($(noted stack)). $(use_that_platform)To \
install k3s here, destroy that stack first. ${USE_IT_AS_IT_IS}If that stack is lost, remove the line 'owner' \
from $OWNERSHIP_FILE on this host"
  fi
  if [ -e "$OWNERSHIP_FILE" ] && [ "$(noted_role)" != "$K3S_ROLE" ]; then
    fail "this host is in the cluster already: $(noted_role) of this program runs here, and no \
host is the first machine and a further node. Take it out of sshHost or of nodes, run pulumi up, and then \
give it the other role. If it is to replace a first machine that is lost: docs/node.md, Several servers"
  fi
  if installed_by_others; then
    fail "a k3s that this program did not install is on this host. Remove it \
first. ${USE_IT_AS_IT_IS}"
  fi
}

is_ours() { [ -e "$OWNERSHIP_FILE" ] && ! other_owner; }

# Prints a checksum over everything that this program has installed. It changes if a file is missing or
# was changed. Of the binary and the uninstaller only size and time count: the binary is too large to be
# read at each preview.
installed_files() {
  {
    stat -c '%n %s %Y' "$BINARY" "$UNINSTALLER" 2>/dev/null || true
    sha256sum "$UNIT" "$LIMITS" "$CONFIG" "$REGISTRIES" "$ENVIRONMENT" "$TOKEN_FILE" \
      "$AGENT_SECRET_FILE" 2>/dev/null || true
  } | sha256sum | cut -d ' ' -f 1
}

kubeconfig_sum() {
  if [ -s "$KUBECONFIG_FILE" ]; then sha256_of "$KUBECONFIG_FILE"; fi
}

# Whether k3s' data are those of the recorded installation, so that they were not wiped since then.
has_noted_data() {
  [ -n "$(noted generation)" ] && [ "$(cat "$GENERATION_FILE" 2>/dev/null)" = "$(noted generation)" ]
}
