# shellcheck shell=sh disable=SC2034 # not every script that includes this uses every constant
# What all scripts about k3s have in common: where things are, and whose k3s this is.
# The service of a server; a script of an agent has said `k3s-agent` before. PLACE says what the host
# is in the cluster: the first machine (k3s), an agent (k3s-agent) or a further server (k3s-server).
: "${SERVICE:=k3s}" "${PLACE:=$SERVICE}"
readonly BINARY=/usr/local/bin/k3s
readonly UNINSTALLER="/usr/local/bin/$SERVICE-uninstall.sh" # k3s' installer makes it
readonly UNIT="/etc/systemd/system/$SERVICE.service"        # k3s' installer makes this too
readonly CONFIG=/etc/rancher/k3s/config.yaml
readonly REGISTRIES=/etc/rancher/k3s/registries.yaml
readonly KUBECONFIG_FILE=/etc/rancher/k3s/k3s.yaml
# k3s keeps this one for itself: it is there also where the other was removed, or is written elsewhere.
readonly ADMIN_KUBECONFIG_FILE=/var/lib/rancher/k3s/server/cred/admin.kubeconfig
readonly ENVIRONMENT="/etc/default/$SERVICE" # the unit reads it; k3s' installer never writes it
readonly REGISTRATION=/etc/rancher/k3s/config.yaml.d/disttrain.yaml # of a further machine
# Of a further machine, 0600: the token by which it joins. An agent has that of the agents.
readonly TOKEN_FILE=/etc/rancher/k3s/disttrain-token
readonly AGENT_SECRET_FILE=/etc/rancher/k3s/disttrain-agent-secret # of a server: the agents', 0600
readonly NO_RESTART="/run/systemd/system/$SERVICE.service.d" # of a server that leaves
readonly ETCD_DATA=/var/lib/rancher/k3s/server/db/etcd # of one of several servers
# Notes of what we installed, one `key value` a line. k3s' uninstaller leaves this file alone.
readonly OWNERSHIP_FILE=/etc/rancher/disttrain
# Lies among k3s' data, so that it goes with them: tells whether they are those that we noted.
readonly GENERATION_FILE=/var/lib/rancher/k3s/server/db/disttrain-generation
readonly LOCK=/run/disttrain-k3s.lock

case $PLACE in # what the first machine can do with a k3s of others, and a further one cannot
  k3s) USE_IT_AS_IT_IS="Or use its k3s as it is: pulumi config set k3sExisting adopt. " ;;
  *) USE_IT_AS_IT_IS="" ;;
esac
readonly AGENT_LABEL=disttrain.dev/agent # of Nodes that `nodes` of the settings has brought
readonly LABELS_MANAGER=disttrain-nodes  # in the Node's managedFields, of what is ours there

. ./lib/turn.sh

# kubectl's cache would go to the home of root otherwise. The lock is not for its children.
k3s_kubectl() {
  config=$KUBECONFIG_FILE
  [ -s "$config" ] || config=$ADMIN_KUBECONFIG_FILE
  KUBECONFIG=$config KUBECACHEDIR=/run/k3s/disttrain-kubectl "$BINARY" kubectl \
    --request-timeout=15s "$@" </dev/null 9>&-
}

is_active() { systemctl is-active --quiet "$SERVICE"; }

sha256_of() { sha256sum "$1" | cut -d ' ' -f 1; }

noted() { # key
  [ ! -e "$OWNERSHIP_FILE" ] || awk -v key="$1" '$1 == key { print $2 }' "$OWNERSHIP_FILE"
}

note() { # key value
  (umask 077 && { grep -v "^$1 " "$OWNERSHIP_FILE" || true && echo "$1 $2"; } \
    >"$OWNERSHIP_FILE.new")
  mv "$OWNERSHIP_FILE.new" "$OWNERSHIP_FILE"
}

noted_place() { # the first machine is not noted, as there were no further ones once
  place=$(noted service)
  echo "${place:-k3s}"
}

# Of all owners and this one: k3s is another's if the noted owner is not ours.
other_owner() {
  noted_owner=$(noted owner)
  [ -n "$noted_owner" ] && [ -n "${OWNER:-}" ] && [ "$noted_owner" != "$OWNER" ]
}

# Of one machine by two addresses: whether the k3s that is here has come by the other one, and so is
# not what HOST has left. One of an older version has no address noted.
came_by_other_address() {
  noted_host=$(noted host)
  [ -n "$noted_host" ] && [ -n "${HOST:-}" ] && [ "$noted_host" != "$HOST" ]
}

# Whether the settings say to use this k3s as it is, and this stack has not installed it.
is_adopted() {
  [ "${K3S_EXISTING:-}" = adopt ] &&
    { [ ! -e "$OWNERSHIP_FILE" ] || [ "$(noted owner)" != "${OWNER:-}" ]; }
}

installed_by_others() { [ ! -e "$OWNERSHIP_FILE" ] && { [ -e "$BINARY" ] || [ -e "$UNIT" ]; }; }

# With `k3sExisting: refuse` the k3s of the host has to be ours, or there has to be none.
refuse_k3s_of_others() {
  if other_owner; then
    fail "the k3s of this host belongs to another stack ($(noted stack)). Destroy that stack \
first. ${USE_IT_AS_IT_IS}If that stack is lost, remove the line 'owner' from $OWNERSHIP_FILE on this host"
  fi
  if [ -e "$OWNERSHIP_FILE" ] && [ "$(noted_place)" != "$PLACE" ]; then
    fail "this host is in the cluster already: $(noted_place) of this program runs here, and no \
host is the first machine and a further node. Take it out of sshHost or of nodes, run pulumi up, and then \
give it its other place. If it is to replace a first machine that is lost: docs/node.md, Several servers"
  fi
  if installed_by_others; then
    fail "a k3s that this program did not install is on this host. Remove it \
first. ${USE_IT_AS_IT_IS}"
  fi
}

is_ours() { [ -e "$OWNERSHIP_FILE" ] && ! other_owner; }

# One text for everything that we installed: it differs when a file is missing or was changed.
# The binary is judged by its size and its time, as it is too large to be read at each preview.
installed_files() {
  {
    stat -c '%n %s %Y' "$BINARY" "$UNINSTALLER" 2>/dev/null || true
    sha256sum "$UNIT" "$CONFIG" "$REGISTRIES" "$ENVIRONMENT" "$TOKEN_FILE" \
      "$AGENT_SECRET_FILE" 2>/dev/null || true
  } | sha256sum | cut -d ' ' -f 1
}

kubeconfig_sum() {
  if [ -s "$KUBECONFIG_FILE" ]; then sha256_of "$KUBECONFIG_FILE"; fi
}

# Whether k3s' data are those of the install that we noted: they were not wiped since.
has_noted_data() {
  [ -n "$(noted generation)" ] && [ "$(cat "$GENERATION_FILE" 2>/dev/null)" = "$(noted generation)" ]
}
