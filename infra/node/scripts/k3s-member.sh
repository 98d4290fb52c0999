#!/bin/sh
# The steps on the first machine for a further machine, which runs k3s-agent.sh or k3s-further-server.sh:
# look: prints whether this host has a k3s, one `key=value` a line.
# join: prints, one `key=value` a line, the token for joining, the agents' secret if the machine is a server,
#   the pods with GPUs on the node, and whether the Node exists. With NEW_MACHINE=yes it first deletes the
#   Node, because the new machine does not have the password of the former one.
# await: waits until the node is Ready (since STARTED, if given) and a server votes in etcd; then it sets
#   labels and taints.
# drain: lets the node's pods end, for at most a minute longer than they may take (at least GRACE_SECONDS).
#   It refuses to drain a server without which etcd would have no majority.
# leave: takes the server out of etcd.
# forget: deletes the Node and the Secret with its machine's password. With its Node, a server leaves etcd.
# Needs: NODE, GRACE_SECONDS. May be empty: ROLE (server; else an agent), LABELS and TAINTS, one a line;
# NEW_MACHINE, STARTED, DRY_RUN (1: only says what would change).
# Usage: k3s-member.sh look|join|await|drain|leave|forget
set -eu

: "${NODE:?}" "${GRACE_SECONDS:?}"
. ./lib/k3s.sh
. ./lib/k3s-etcd.sh
. ./lib/k3s-etcd-change.sh

readonly READY_SECONDS=300
readonly ANSWER_SECONDS=30 # how long a k3s that starts, or is in trouble, is asked again
readonly TOKEN=/var/lib/rancher/k3s/server/agent-token # not k3s' own: see lib/k3s-server.sh
readonly MANIFEST="/run/disttrain-node-$NODE.yaml" DRAIN_LOG="/run/disttrain-drain-$NODE.log"
readonly TAINTS_NOTE=disttrain.dev/taints # annotation of the Node: those that are from TAINTS

get_node() { k3s_kubectl get node "$NODE" --ignore-not-found -o "$1"; }

await_answer() {
  case $(systemctl is-active k3s) in
    inactive | failed) return 1 ;;
  esac
  asked=$(date +%s)
  until k3s_kubectl get --raw /readyz >/dev/null 2>&1; do
    [ $(($(date +%s) - asked)) -lt "$ANSWER_SECONDS" ] || return 1
    sleep 1
  done
}

refuse_node_of_others() {
  found=$(get_node "jsonpath={.metadata.name}{.metadata.labels['disttrain\.dev/agent']}")
  case $found in
    "" | "$NODE"?*) ;;
    *) fail "nodes: the cluster has a node $NODE already, which is none of this list (the first \
machine is named after its host). Choose another name" ;;
  esac
}

look() {
  if [ -x "$BINARY" ]; then echo "there=yes"; else echo "there=no"; fi
  echo "done=yes"
}

join() {
  token_file=$TOKEN
  if is_server; then token_file=$SERVER_TOKEN; fi
  if dry; then
    echo "would read: $token_file"
    return
  fi
  if is_server; then require_answer; fi
  await_answer || fail "the k3s of the server does not answer"
  [ -s "$token_file" ] || fail "$token_file is missing: k3s has not started here"
  refuse_node_of_others
  if is_server; then refuse_join_beside_lost; fi
  if [ "${NEW_MACHINE:-}" = yes ]; then delete_node >&2; fi
  # shellcheck disable=SC2016 # each $ belongs to the template
  pods=$(k3s_kubectl get pods --all-namespaces \
    --field-selector="status.phase=Running,spec.nodeName=$NODE" -o \
    'go-template={{range .items}}{{$n := .metadata}}{{range .spec.containers}}{{with .resources}}{{with .limits}}{{if index . "nvidia.com/gpu"}}{{$n.namespace}}/{{$n.name}} {{end}}{{end}}{{end}}{{end}}{{end}}')
  echo "token=$(cat "$token_file")"
  if is_server; then echo "agent_secret=$(cat "$AGENT_SECRET_FILE")"; fi
  echo "gpu_pods=$pods"
  if [ -n "$(get_node name)" ]; then echo "has_node=yes"; else echo "has_node=no"; fi
  echo "done=yes"
}

# Like is_ready of lib/k3s-server.sh. STARTED and the lease's time both come from the node's own clock.
is_ready() {
  k3s_kubectl get node "$NODE" --no-headers 2>/dev/null | awk '$2 !~ /^Ready/ { exit 1 }' || return 1
  if is_server && ! is_voter "$NODE"; then return 1; fi
  renewed=$(k3s_kubectl -n kube-node-lease get lease "$NODE" \
    -o 'jsonpath={.spec.renewTime}' 2>/dev/null) && [ -n "$renewed" ] &&
    [ "$(printf '%s\n%s\n' "${STARTED:-}" "$renewed" | sort | head -n 1)" = "${STARTED:-}" ]
}

await() {
  if dry; then
    echo "would wait for: node $NODE, and set its labels and taints"
    return
  fi
  start=$(date +%s)
  until is_ready; do
    [ $(($(date +%s) - start)) -lt "$READY_SECONDS" ] ||
      fail "node $NODE did not get Ready in $READY_SECONDS s"
    sleep 0.5
  done
  set_labels
  set_taints
  echo "node $NODE is Ready"
}

# Server-side apply removes labels that this program has set earlier and that are not in LABELS any more.
set_labels() {
  {
    printf 'apiVersion: v1\nkind: Node\nmetadata:\n  name: "%s"\n  labels:\n' "$NODE"
    printf '%s\n' "$AGENT_LABEL=true" "${LABELS:-}" | awk -F = 'NF { print "    \"" $1 "\": \"" $2 "\"" }'
  } >"$MANIFEST"
  k3s_kubectl apply --server-side --force-conflicts --field-manager="$LABELS_MANAGER" \
    -f "$MANIFEST" >/dev/null
  rm -f "$MANIFEST"
}

# Kubernetes also sets taints itself, so only those that were set from TAINTS are changed.
set_taints() {
  wanted=$(printf '%s\n' "${TAINTS:-}" | tr '\n' ' ' | sed 's/ *$//')
  before=$(get_node "jsonpath={.metadata.annotations['disttrain\.dev/taints']}")
  set --
  for taint in $before; do # of which a taint is known by its key and its effect
    id=$(taint_id "$taint")
    case " $(for other in $wanted; do taint_id "$other"; done | tr '\n' ' ')" in
      *" $id "*) ;;
      *) set -- "$@" "$id-" ;;
    esac
  done
  for id in "$@"; do # one that was taken away by hand is no error
    k3s_kubectl taint node "$NODE" "$id" >/dev/null 2>&1 || true
  done
  # shellcheck disable=SC2086 # one word for each
  [ -z "$wanted" ] || k3s_kubectl taint node "$NODE" --overwrite $wanted >/dev/null
  [ "$before" = "$wanted" ] ||
    k3s_kubectl annotate node "$NODE" --overwrite "$TAINTS_NOTE=$wanted" >/dev/null
}

taint_id() { echo "${1%%[=:]*}:${1##*:}"; }

drain() {
  if dry; then
    echo "would drain: node $NODE"
    return
  fi
  if is_server; then
    require_answer
    refuse_lost_quorum
  elif ! await_answer; then
    echo "the k3s of the server does not answer, so $NODE is not drained"
    return
  fi
  [ -n "$(get_node name)" ] || return 0
  k3s_kubectl drain "$NODE" --ignore-daemonsets --delete-emptydir-data --force \
    --timeout="$(end_limit --all-namespaces --field-selector="spec.nodeName=$NODE")" >"$DRAIN_LOG" 2>&1 || {
    tail -n 5 "$DRAIN_LOG" | cut -c 1-300
    echo "not every pod of $NODE ended in time; going on"
  }
  rm -f "$DRAIN_LOG"
}

leave() {
  if dry; then
    echo "would take out of etcd: $NODE"
    return
  fi
  require_answer
  refuse_lost_quorum
  if has_asked_member; then leave_etcd; fi
}

forget() {
  if dry; then
    echo "would delete: node $NODE and its password"
    return
  fi
  if is_server; then
    require_answer
    refuse_lost_quorum
  fi
  if await_answer; then
    refuse_node_of_others
    delete_node
  else
    echo "the k3s of the server does not answer, so $NODE is not deleted there"
  fi
}

delete_node() {
  # The Node of a server disappears only when etcd has removed its member.
  k3s_kubectl delete node "$NODE" --ignore-not-found --timeout="${LEAVE_SECONDS}s"
  k3s_kubectl -n kube-system delete secret "$NODE.node-password.k3s" --ignore-not-found
}

main() {
  case $1 in
    look | join | await | drain | leave | forget) "$1" ;;
    *) echo "unknown action $1" >&2 && exit 2 ;;
  esac
}

main "$@"
