# shellcheck shell=sh
# k3s on a further machine, which joins the first one by a token. lib/k3s-agent.sh and
# lib/k3s-further-server.sh say what an agent and a server are. Needs the other files of k3s-agent.sh.
# One that cannot join tries for ever, and with some versions systemd would wait for it as long.
readonly START_OPTION=--no-block

# What the kubelet registers its Node with, so that no pod comes before the taints. Later changes are
# made at the server (k3s-member.sh), as are all further labels: a kubelet refuses some of them.
registration() {
  echo "node-label: [\"$AGENT_LABEL=true\"]"
  printf '%s\n' "${TAINTS:-}" | awk 'NF { print (begun++ ? "" : "node-taint:\n") "- \"" $0 "\"" }'
}

put_registration() { put "$REGISTRATION" "$(registration)"; }

# The server was asked: an agent has no right to see the pods of its node.
guard_gpu_pods() {
  if [ "${K3S_FORCE:-}" = true ] || ! is_active || [ -z "${GPU_PODS:-}" ]; then
    return
  fi
  fail "pods with GPUs run on $NODE, and would lose them: $GPU_PODS. \
Wait for their end, or disturb them: pulumi config set k3sForce true"
}

# Beside the installation of the first machine, so that what takes long is done on all at one time. A
# k3s that is here already is left to create, which may have to disturb pods.
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

# Takes away what prepare brought, where it has never joined.
unprepare() { [ -e "$TOKEN_FILE" ] || delete; }

# The same when nothing of the machine is in the state any more. A machine that has joined, or was
# about to, leaves the cluster in the steps of infra/node/agent.py.
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
