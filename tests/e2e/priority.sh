#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Priorities: of the requests that wait for the one place there is, the one that came last goes first.
set -eu
. "$(dirname "$0")/lib.sh"

comp=/v1/completions
start_daemon --max-num-seqs 1
: >"$tmp/order"
waiters=
for priority in none 5 0 -5; do
	case $priority in
	none) body='{"prompt":"Once","max_tokens":1800,"ignore_eos":true}' ;;
	*) body="{\"prompt\":\"Once\",\"max_tokens\":200,\"ignore_eos\":true,\"priority\":$priority}" ;;
	esac
	{
		post $comp "$body" >/dev/null
		echo "$priority" >>"$tmp/order"
	} &
	waiters="$waiters $!"
	case $priority in
	none) until_true 20 running 1 || fail "it does not run" ;;
	5) until_true 20 waiting 1 || fail "5 does not wait" ;;
	0) until_true 20 waiting 2 || fail "0 does not wait" ;;
	*) until_true 20 waiting 3 || fail "$priority does not wait" ;;
	esac
done
# shellcheck disable=SC2086 # processes are words
wait $waiters
[ "$(tr '\n' ' ' <"$tmp/order")" = "none -5 0 5 " ] || fail "by priority they end in the order $(tr '\n' ' ' <"$tmp/order")"

conclude
