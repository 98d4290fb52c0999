# shellcheck shell=sh
# k3s on a further machine, which joins the first machine with a token. lib/k3s-agent.sh and
# lib/k3s-further-server.sh contain what is special for an agent and for a server. Needs the other files
# that k3s-agent.sh includes.
# A k3s that cannot join tries forever. With some versions systemd would wait for it as long, so systemd
# is told not to wait.
readonly START_OPTION=--no-block

# The label and the taints with which the kubelet registers its Node, so that no pod is scheduled there
# before the taints are set. k3s-member.sh makes later changes on the server. It also sets all other
# labels, because a kubelet refuses some of them.
registration() {
  echo "node-label: [\"$AGENT_LABEL=true\"]"
  printf '%s\n' "${TAINTS:-}" | awk 'NF { print (begun++ ? "" : "node-taint:\n") "- \"" $0 "\"" }'
}

put_registration() { put "$REGISTRATION" "$(registration)"; }

# Refuses to change k3s while pods with GPUs run on the node. GPU_PODS comes from the server, because an
# agent has no right to see the pods of its node.
guard_gpu_pods() {
  if [ "${K3S_FORCE:-}" = true ] || ! is_active || [ -z "${GPU_PODS:-}" ]; then
    return
  fi
  fail_for_gpu_pods " on $NODE" "$GPU_PODS"
}

# Brings the files of k3s while the first machine is being installed, so that the slow steps run on all
# machines at the same time. If k3s is here already, only `create` changes it, because that may disturb
# pods.
prepare() {
  one_at_a_time
  if [ -n "$(noted installed)" ]; then
    echo "k3s is here already"
    return
  fi
  preflight
  compare
  if dry; then
    echo "would bring k3s $K3S_VERSION here, and not start it"
    return
  fi
  lay_out
  note installed "$K3S_VERSION"
  echo "k3s $K3S_VERSION is here, and is started once the first machine is up"
}

# Removes what `prepare` has brought, if the machine has never joined.
unprepare() { [ -e "$TOKEN_FILE" ] || delete; }

# Does the same when no other command of the machine is in the state any more. If the machine has joined,
# or was about to, infra/node/agent.py then lets it leave the cluster.
clear() {
  one_at_a_time
  if came_by_other_address || ! removable >/dev/null; then
    return 0
  elif [ -e "$TOKEN_FILE" ]; then
    echo "left=joined"
  else
    delete
  fi
}

create() {
  : "${K3S_TOKEN:?}"
  one_at_a_time
  if ! dry && [ -d "$NO_RESTART" ]; then
    rm -rf "$NO_RESTART"
    systemctl daemon-reload
  fi
  bring_to_version
  if dry; then return; fi
  if wrong_text "$REGISTRATION" "$(registration)"; then
    open_scratch
    put_registration
  fi
  note_state
  echo "started=${started:-}"
}

update() { create; }

delete() {
  one_at_a_time
  removable || return 0
  take_away
}
