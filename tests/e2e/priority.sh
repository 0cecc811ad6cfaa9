#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Priorities: of the requests that wait for the one place there is, the one that came last goes first.
set -eu
. "$(dirname "$0")/lib.sh"

comp=/v1/completions
start_daemon --max-num-seqs 1
waiters=
sent=0
# submitted N: so many requests are in the engine's queue or run
submitted() {
	[ "$(http http://localhost/v1/requests | grep -o '"running":[1-9]' | wc -l)" = "$1" ]
}
# The first one has the place until all others wait: its choices, one after the other, go before them.
for priority in -32 5 0 -5; do
	case $priority in
	-32) more=',"max_tokens":1800,"n":4' ;;
	*) more=",\"max_tokens\":$((600 + priority))" ;;
	esac
	body="{\"prompt\":\"Once\",\"ignore_eos\":true,\"priority\":$priority$more}"
	post $comp "$body" >/dev/null &
	waiters="$waiters $!"
	sent=$((sent + 1))
	until_true 60 submitted $sent || fail "$priority is not submitted"
done
# shellcheck disable=SC2086 # processes are words
wait $waiters
# In the daemon's own order: clients may be told late. Each is known by its tokens.
order=$(sed -n 's/.*POST .* [0-9]*+\([0-9]*\) tokens.*/\1/p' "$tmp/txdad.log" | tr '\n' ' ')
[ "$order" = "7200 595 600 605 " ] || fail "by tokens they end in the order $order"

conclude
