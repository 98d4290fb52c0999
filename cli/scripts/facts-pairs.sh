#!/bin/sh
# Prints what this host sees of other machines, one fact on each line, as facts-host.sh does. It
# changes nothing. PEERS has a line for each probe: `NAME ADDRESS tcp PORT`, `NAME ADDRESS udp PORT`,
# `NAME ADDRESS mtu BYTES` or `NAME ADDRESS way -`. The probes run side by side. Each of their
# commands has a limit of PROBE_SECONDS.
# Usage: facts-pairs.sh
set -u

: "${PROBE_SECONDS:?}" "${PEERS:=}"
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH

fact() { printf '%s=%.300s\n' "$1" "$2"; }
unseen() { printf '%s?%.300s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
limited() { timeout -k 1 "$PROBE_SECONDS" "$@" </dev/null 2>&1; }

# A program of bash that tries all ports side by side. One bash does it, because the start of many
# programs takes longer than the packets do. Its argument has a probe on each line. For each probe
# that is answered in time it prints `NAME KIND PORT WORDS`, where WORDS are `open` or the kernel's
# error text. No program answers such a packet over UDP. But if nobody listens at the port, the other
# host refuses the packet, which shows that the packet arrived. A host sends such a refusal at most
# once a second to each other host, so packets count as lost only after more than two seconds.
# shellcheck disable=SC2016 # bash is to expand it
readonly KNOCK='
knock() { # kind address port
  exec 3<>"/dev/$1/$2/$3" || return
  [ "$1" = udp ] || return 0
  for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13; do
    echo >&3 || return
    read -r -t 0.2 -u 3 || [ $? -gt 128 ] || return
  done
  echo timed out
  return 1
}
while read -r name address kind port; do
  { words=$(knock "$kind" "$address" "$port" 2>&1) && words=open
    printf "%s %s %s %s\n" "$name" "$kind" "$port" "${words//[[:cntrl:]]/ }"; } </dev/null &
done <<<"$1"
wait'

# pair.NAME.KIND.PORT=open, refused (packets arrive, nobody listens), silent (no answer), or
# unreachable (another error of the kernel).
ask_ports() {
  questions=$(printf '%s\n' "$PEERS" | asked_ports)
  [ -n "$questions" ] || return
  has bash || {
    printf '%s\n' "$questions" | awk '{ print "pair." $1 "." $3 "." $4 "?the host has no bash" }'
    return
  }
  {
    limited bash -c "$KNOCK" knock "$questions"
    echo
    printf '%s\n' "$questions"
  } | awk '
    !asking && !NF { asking = 1; next }
    !asking {
      what = $1 "." $2 "." $3
      seen[what] = $4 == "open" ? "open" : /refused/ ? "refused" : /timed out/ ? "silent" : "unreachable"
      next
    }
    { what = $1 "." $3 "." $4; print "pair." what "=" (what in seen ? seen[what] : "silent") }'
}

# Prints the probes of ports. A host that is in k3s' pod network makes no probe over UDP: the other
# machines then listen at that port and never answer, so it would wait in vain.
asked_ports() {
  if ip link show flannel.1 >/dev/null 2>&1; then
    awk '$3 == "tcp"'
  else
    awk '$3 == "tcp" || $3 == "udp"'
  fi
}

# pair.NAME.mtu=fits, too large, or silent (nobody answers pings). If all is well, the first packet
# is answered at once. Otherwise two packets of each size are sent, because one late answer of a busy
# machine does not prove that the packet is too large for the network.
ask_mtu() { # name address bytes
  has ping || { unseen "pair.$1.mtu" "the host has no ping" && return; }
  case $2 in *:*) header=48 ;; *) header=28 ;; esac
  whole="-M do -s $(($3 - header))"
  # shellcheck disable=SC2086 # words
  if answer=$(limited ping -c 1 -W 1 $whole "$2"); then
    fact "pair.$1.mtu" fits
    ask_latency "$1" "$2" "$(printf '%s\n' "$answer" | fastest)"
    return
  fi
  limited ping -c 2 -i 0.2 -W 2 "$2" >/dev/null &
  small=$!
  # shellcheck disable=SC2086 # words
  if limited ping -c 2 -i 0.2 -W 2 $whole "$2" >/dev/null; then
    fact "pair.$1.mtu" fits
  elif wait "$small"; then
    fact "pair.$1.mtu" "too large"
  else
    fact "pair.$1.mtu" silent
  fi
}

fastest() { sed -n 's|^rtt min[^=]* = \([0-9.]*\)/.*|\1|p'; } # of what ping has counted, in ms

# pair.NAME.milliseconds=the time until the answer of a ping. A busy machine answers late once, but a
# slow network is late each time. So if the first answer takes 2 ms or more, eight more packets are
# sent, and the fastest answer counts.
ask_latency() { # name address milliseconds
  [ -n "$3" ] || return
  if [ "${3%%.*}" -lt 2 ]; then
    fact "pair.$1.milliseconds" "$3"
  else
    again=$(limited ping -c 8 -i 0.2 -W 1 "$2" | fastest)
    fact "pair.$1.milliseconds" "${again:-$3}"
  fi
}

# pair.NAME.name=the name and the addresses to which this host resolves it, if ADDRESS is a name.
# pair.NAME.source=the address and the device from which this host sends packets to that machine.
ask_way() { # name address
  at=$2
  case $2 in
    *[!0-9.]*)
      case $2 in
        *:*) ;;
        *)
          found=$(limited getent ahosts "$2" | awk '!seen[$1]++ { printf " %s", $1 }')
          fact "pair.$1.name" "$2$found"
          at=$(echo "$found" | awk '{ print $1 }')
          ;;
      esac
      ;;
  esac
  [ -n "$at" ] && has ip || return
  source=$(limited ip -o route get "$at" | awk '{
    for (i = 1; i < NF; i++) { if ($i == "dev") d = $(i + 1); if ($i == "src") s = $(i + 1) }
    if (s != "" && d != "") print s, d; exit }')
  [ -z "$source" ] || fact "pair.$1.source" "$source"
}

main() {
  ask_ports &
  printf '%s\n' "$PEERS" | {
    while read -r name address kind bytes; do
      case $kind in
        mtu) ask_mtu "$name" "$address" "$bytes" & ;;
        way) ask_way "$name" "$address" & ;;
      esac
    done
    wait
  }
  wait
  fact pairs_done yes
}

main
