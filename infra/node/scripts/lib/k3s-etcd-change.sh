# shellcheck shell=sh
# Lets etcd get or lose a member without losing the majority of its members. Needs lib/k3s.sh,
# lib/k3s-etcd.sh, NODE, NEW_MACHINE and the function `await_answer` of k3s-member.sh.
readonly SERVER_TOKEN=/var/lib/rancher/k3s/server/token # k3s' own, by which servers join
readonly LEAVE_SECONDS=120 # how long etcd may take to let a member go
readonly SETTLE_SECONDS=20 # k3s looks every 15 s at how its members are

is_server() { [ "${ROLE:-}" = server ]; }

# Fails if the k3s of the first machine does not answer. With etcd that may mean that it has lost the
# majority of its servers. Then no change of another server helps, and that server may be the one that is
# needed.
require_answer() {
  await_answer || fail "the k3s of the first machine does not answer, so nothing was done to the \
server $NODE: with etcd that happens when half of the servers or more are away. Start k3s on those \
that can be reached (systemctl start k3s), and run pulumi up again. If they are lost for good: \
docs/node.md, Several servers"
}

# Refuses to let a server join while a member does not answer. etcd accepts no new member then, and k3s
# would try again forever. A server that is a member already is only repaired, which is never refused.
refuse_join_beside_lost() {
  if within_settling may_join; then return; fi
  refuse_unknown_members
  fail "the server $NODE cannot join: etcd takes no new member while one does not \
answer, and that is so of: $away. Bring it back, or, if it is lost for good, set \`gone: true\` in its \
item of nodes and run pulumi up"
}

# Sets `members` to the lines of etcd_members, and `away` to those of the others that do not answer. Fails,
# with empty `members`, if k3s does not list its members.
ask_members() {
  members=$(etcd_members) || return 1
  away=$(echo "$members" | members_away "$NODE")
}

# A request for the members may fail just when a server restarts. Then nobody knows whether one is lost.
refuse_unknown_members() {
  [ -n "$members" ] || fail "k3s does not say which servers are in etcd and answer, so nothing was done \
to the server $NODE: see journalctl -u k3s on the first machine, and run pulumi up again"
}

may_join() {
  ask_members || return 1
  if has_asked_member && [ "${NEW_MACHINE:-}" != yes ]; then return 0; fi
  [ -z "$away" ]
}

has_asked_member() { echo "$members" | grep -q "^$NODE "; } # in the lines of ask_members

within_settling() { # condition
  asked=$(date +%s)
  until "$1"; do
    [ $(($(date +%s) - asked)) -lt "$SETTLE_SECONDS" ] || return 1
    sleep 1
  done
}

# Refuses to let a server leave if too few of the others answer. They must be more than half of the
# members that remain. Otherwise etcd would refuse it too, and k3s would try again forever.
refuse_lost_quorum() {
  if within_settling others_are_enough; then return; fi
  refuse_unknown_members
  fail "the server $NODE cannot leave: of the $remaining others $there would be left that answer, and \
etcd needs $((remaining / 2 + 1)). Nothing was changed. Bring back: $away. Or, if that one is lost for \
good, leave $NODE in the list, set \`gone: true\` in the item of the lost one and run pulumi up"
}

others_are_enough() {
  ask_members || return 1
  has_asked_member || return 0
  remaining=$(echo "$members" | grep -vc "^$NODE ") || true
  there=$((remaining - $(echo "$away" | wc -w)))
  [ "$there" -ge $((remaining / 2 + 1)) ]
}

# Takes the server out of etcd, in the way of k3s: an annotation on the Node, which the leader answers with
# another one. The Node stays until k3s is removed from the machine, because a running kubelet would make
# it again.
leave_etcd() {
  k3s_kubectl annotate node "$NODE" --overwrite etcd.k3s.cattle.io/remove=true >/dev/null
  asked=$(date +%s)
  until [ -n "$(get_node "jsonpath={.metadata.annotations['etcd\.k3s\.cattle\.io/removed-node-name']}")" ]; do
    [ $(($(date +%s) - asked)) -lt "$LEAVE_SECONDS" ] ||
      fail "etcd did not let the server $NODE go in $LEAVE_SECONDS s. k3s is still on that machine; \
see journalctl -u k3s on the first one, and run pulumi up again"
    sleep 1
  done
  echo "the server $NODE has left etcd"
}
