# shellcheck shell=sh
# k3s as the server on the first machine: its configuration, when it counts as up, and what happens before
# it is removed. Needs the other files that k3s-install.sh includes.
readonly READY_SECONDS=300
readonly K3S_EXEC=server
readonly AGENT_TOKEN=/var/lib/rancher/k3s/server/agent-token # k3s makes it of the secret

# With cluster-init, a k3s that has kept its data in SQLite moves them to etcd, so that further servers
# can join. Once it has etcd, it keeps using etcd, with or without this line. The line stays then, so
# that k3s is not restarted when the last further server leaves.
configuration() {
  server_configuration
  if [ -n "${CLUSTER_INIT:-}" ] || [ -d "$ETCD_DATA" ]; then echo "cluster-init: true"; fi
}

# Only the secret has to be written here. k3s writes the kubeconfig itself when it starts.
put_files_of_role() { [ -s "$AGENT_SECRET_FILE" ] || put "$AGENT_SECRET_FILE" "$(agent_secret)"; }

# Prints the secret with which agents join. k3s also makes a token of its own, but with that a machine
# could become a server, and read the keys of the cluster. If the file with the secret was lost, the
# secret is read from k3s' data, so that the machines that have it do not need another one.
agent_secret() {
  kept=$(sed -n 's/^K10[0-9a-f]*::node://p' "$AGENT_TOKEN" 2>/dev/null) || true
  if [ -n "$kept" ]; then
    echo "$kept"
  else
    od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n'
  fi
}

wrong_files_of_role() {
  files_of_role=""
  if [ ! -s "$AGENT_SECRET_FILE" ]; then files_of_role=agent-secret; fi
  if [ -n "$(noted installed)" ] && [ ! -s "$KUBECONFIG_FILE" ] && is_active; then
    files_of_role="$files_of_role kubeconfig"
  fi
  [ -n "$files_of_role" ]
}

# Refuses to change k3s while pods with GPUs run. The installer makes systemd read its units again, which
# takes the GPUs from running pods (gpu-operator#485), and a restart of k3s disturbs them even more.
guard_gpu_pods() {
  if [ "${K3S_FORCE:-}" = true ] || ! is_active; then
    return
  fi
  # shellcheck disable=SC2016 # each $ belongs to the template
  running=$(k3s_kubectl get pods --all-namespaces --field-selector=status.phase=Running -o \
    'go-template={{range .items}}{{$n := .metadata}}{{range .spec.containers}}{{with .resources}}{{with .limits}}{{if index . "nvidia.com/gpu"}}{{$n.namespace}}/{{$n.name}} {{end}}{{end}}{{end}}{{end}}{{end}}') ||
    fail "the running k3s does not say whether pods use GPUs. To go on all the same: \
pulumi config set k3sForce true"
  [ -z "$running" ] || fail_for_gpu_pods "" "$running"
}

# Whether the node is Ready. After a start of k3s, a node that was Ready before is still called Ready for
# a while. So the kubelet must also have renewed its lease since the start. All these times come from
# this host and have microseconds, so they can be compared as texts.
is_ready() {
  server_nodes=$(k3s_kubectl get nodes --no-headers -l "!$AGENT_LABEL" 2>/dev/null) || return 1
  server_node=$(echo "$server_nodes" | awk '$2 ~ /^Ready/ { print $1; exit }')
  [ -n "$server_node" ] || return 1
  [ -z "${CLUSTER_INIT:-}" ] || is_voter "$server_node" || return 1
  [ -n "${started:-}" ] || return 0
  renewed=$(k3s_kubectl -n kube-node-lease get lease "$server_node" \
    -o 'jsonpath={.spec.renewTime}' 2>/dev/null)
  [ -n "$renewed" ] &&
    [ "$(printf '%s\n%s\n' "$started" "$renewed" | sort | head -n 1)" = "$started" ]
}

wait_ready() {
  start=$(date +%s) shown=$(date +%s)
  until is_ready; do
    now=$(date +%s)
    if systemctl is-failed --quiet k3s || [ $((now - start)) -ge "$READY_SECONDS" ]; then
      journalctl --unit=k3s --lines=20 --no-pager --output=cat | cut -c 1-300 >&2
      fail "k3s did not get its node Ready in $((now - start)) s; its last lines are above"
    fi
    if [ $((now - shown)) -ge 20 ]; then
      echo "$((now - start)) s: the node is not Ready yet"
      shown=$now
    fi
    sleep 0.5
  done
}

note_generation() {
  [ -n "${GENERATION_ID:-}" ] || return 0
  if [ "$(noted generation)" = "$GENERATION_ID" ] && has_noted_data; then return; fi
  mkdir -p "${GENERATION_FILE%/*}"
  (umask 077 && echo "$GENERATION_ID" >"$GENERATION_FILE.new")
  sync "$GENERATION_FILE.new"
  mv "$GENERATION_FILE.new" "$GENERATION_FILE"
  note generation "$GENERATION_ID"
}

adopt() {
  [ -x "$BINARY" ] || fail "k3sExisting: adopt, but this host has no $BINARY"
  is_active || fail "k3sExisting: adopt, but the k3s of this host does not run (systemctl status k3s)"
  dry || wait_ready
  range=$(k3s_kubectl get nodes -o 'jsonpath={.items[0].spec.podCIDR}')
  echo "taken as it is: $("$BINARY" --version | head -n 1), pods in $range; it is not ours"
}

# Refuses other networks for a cluster that exists. A node keeps its part of the pods' network, and
# Services keep their addresses. With other networks k3s would end at each start, or pods could not look
# up names.
refuse_other_networks() {
  has_noted_data || return 0
  refuse_other_network podCidr cluster-cidr "$POD_CIDR"
  refuse_other_network serviceCidr service-cidr "$SERVICE_CIDR"
}

refuse_other_network() { # setting, key of k3s, network
  there=$(sed -n "s/^$2: \"\(.*\)\"\$/\1/p" "$CONFIG" 2>/dev/null) || true
  [ -n "$there" ] && [ "$there" != "$3" ] || return 0
  fail "$1: '$3' cannot be used: the cluster of this host was made with $there, and keeps its networks \
for as long as it lives. k3s was not changed. Set it back: pulumi config set $1 $there. Or make the \
cluster anew, which keeps the data: pulumi destroy, and then pulumi up"
}

# Refuses an earlier minor version for a cluster that exists, and one that leaves a minor version out.
# Kubernetes supports neither: one version may be unable to read what the other has stored. What counts is
# the version that was up last. So the setting can be set back after an upgrade that has failed.
refuse_other_minor() {
  has_noted_data || return 0
  last=$(noted installed)
  [ -n "$last" ] || return 0
  next=$(($(minor "$last") + 1))
  why=""
  if [ "$(minor "$K3S_VERSION")" -lt "$(minor "$last")" ]; then
    why="Kubernetes does not support a return to an earlier minor version, which may be unable to read \
what $last has stored. k3s was not changed. Set it back: pulumi config set k3sVersion $last. If an older \
checkout of disttrain has this version as its default, a newer checkout is the other way"
  elif [ "$(minor "$K3S_VERSION")" -gt "$next" ]; then
    why="Kubernetes goes on by one minor version at a time. k3s was not changed. Set a release of v1.$next \
first, run pulumi up, and go on from there"
  fi
  [ -z "$why" ] || fail "k3sVersion: '$K3S_VERSION' cannot be used: the cluster of this host has run \
$last, and $why"
}

minor() { echo "$1" | cut -d . -f 2; } # of a release such as v1.34.2+k3s1

create() {
  one_at_a_time
  if is_adopted; then
    adopt
    return
  fi
  refuse_other_networks
  refuse_other_minor
  bring_to_version
  if dry; then return; fi
  wait_ready
  note_state
  note_generation
  echo "k3s $K3S_VERSION is up, the node is Ready"
}

update() {
  one_at_a_time
  if is_adopted; then
    adopt
    return
  fi
  if [ -n "$(noted generation)" ] && ! has_noted_data; then
    fail "the data of k3s on this host were wiped while this up was at work, or this host could \
not be asked before; run pulumi up again: it makes what was in them anew"
  fi
  refuse_other_networks
  refuse_other_minor
  bring_to_version
  if dry; then return; fi
  wait_ready
  note_state
  echo "k3s $K3S_VERSION is up, the node is Ready"
}

end_pods() {
  is_active || return 0
  k3s_kubectl delete namespace "$NAMESPACE" --ignore-not-found \
    --timeout="$(end_limit --namespace "$NAMESPACE")" || echo "namespace $NAMESPACE did not go in time"
}

delete() {
  one_at_a_time
  removable || return 0
  refuse_other_runs "" "runs of other stacks use this platform, and would be lost:" \
    "Nothing was removed. First take these runs away; their data are kept:"
  end_pods
  take_away
}
