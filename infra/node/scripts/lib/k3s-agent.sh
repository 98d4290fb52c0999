# shellcheck shell=sh
# k3s as an agent: a further node, which joins the server by its token. Needs the other files of
# k3s-agent.sh.
readonly K3S_EXEC=agent
# One that cannot join tries for ever, and with some versions systemd would wait for it as long.
readonly START_OPTION=--no-block

configuration() {
  echo "server: \"$SERVER_URL\""
  echo "token-file: \"$TOKEN_FILE\""
  echo "node-name: \"$NODE\""
  chosen_interface
}

# What the kubelet registers its Node with, so that no pod comes before the taints. Later changes are
# made at the server (k3s-member.sh), as are all further labels: a kubelet refuses some of them.
registration() {
  echo "node-label: [\"$AGENT_LABEL=true\"]"
  printf '%s\n' "${TAINTS:-}" | awk 'NF { print (begun++ ? "" : "node-taint:\n") "- \"" $0 "\"" }'
}

put_files_of_role() {
  put "$TOKEN_FILE" "$K3S_TOKEN"
  put_registration
}

put_registration() { put "$REGISTRATION" "$(registration)"; }

wrong_files_of_role() {
  files_of_role=token
  wrong_text "$TOKEN_FILE" "$K3S_TOKEN"
}

# The server was asked: an agent has no right to see the pods of its node.
guard_gpu_pods() {
  if [ "${K3S_FORCE:-}" = true ] || ! is_active || [ -z "${GPU_PODS:-}" ]; then
    return
  fi
  fail "pods with GPUs run on $NODE, and would lose them: $GPU_PODS. \
Wait for their end, or disturb them: pulumi config set k3sForce true"
}

create() {
  one_at_a_time
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
