# shellcheck shell=sh
# k3s as an agent: a further node that has no copy of the cluster's data. Needs lib/k3s-further.sh.
readonly K3S_EXEC=agent

configuration() {
  echo "server: \"$SERVER_URL\""
  echo "token-file: \"$TOKEN_FILE\""
  echo "node-name: \"$NODE\""
  chosen_interface
}

put_files_of_role() {
  put "$TOKEN_FILE" "${K3S_TOKEN:-}"
  put_registration
}

wrong_files_of_role() {
  files_of_role=token
  wrong_text "$TOKEN_FILE" "${K3S_TOKEN:-}"
}
