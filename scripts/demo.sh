#!/bin/sh
# SPDX-License-Identifier: MIT
#
# demo.sh - from a bare Debian to a fairy tale: install what is missing, build, start the daemon on the
# simulated chips, let the shipped model write, and show the chips at work.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "${B:=build}"
prompt=${PROMPT:-Once upon a time there was a little fox}
start=$(date +%s)

step() {
	printf '\n\033[1m== [%3ds] %s\033[0m\n' $(($(date +%s) - start)) "$1"
}

sh scripts/deps.sh build demo
step "building into $B/"
# Only what the demo runs: the tests can wait.
if ! { make --no-print-directory "$B/build.ninja" B="$B" &&
	ninja -C "$B" daemon/txdad tools/compile/txda-compile tools/run/txda-run tools/smi/txda-smi; } >"$B/demo-build.log" 2>&1; then
	grep -E -A 6 'error|FAILED' "$B/demo-build.log" | head -n 40
	echo "The build failed; all of it is in $B/demo-build.log" >&2
	exit 1
fi

tmp=$(mktemp -d)
socket=$tmp/txda.sock
daemon=
workers=
cleanup() {
	for pid in $workers $daemon; do
		kill "$pid" 2>/dev/null || true
	done
	# The daemon lets running requests go and leaves no socket behind.
	[ -z "$daemon" ] || wait "$daemon" 2>/dev/null || true
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

step "starting the daemon with the model tests/models/demo"
CACHE_DIRECTORY=$(cd "$B" && pwd)/demo-cache "$B/daemon/txdad" --model demo=tests/models/demo \
	--socket "$socket" >"$tmp/txdad.log" 2>&1 &
daemon=$!
tries=0
until curl -fsS --max-time 2 --unix-socket "$socket" http://localhost/health >/dev/null 2>&1; do
	tries=$((tries + 1))
	if ! kill -0 "$daemon" 2>/dev/null || [ "$tries" -gt 300 ]; then
		cat "$tmp/txdad.log"
		echo "The daemon did not become healthy." >&2
		exit 1
	fi
	sleep 0.1
done
echo "txdad listens on $socket"

step "a fairy tale, as it is written"
printf '%s' "$prompt"
"$B/tools/run/txda-run" --socket "$socket" --model demo --raw --seed "${SEED:-7}" -n 400 --stats "$prompt"

step "the chips while eight tales are written at once"
i=0
while [ $i -lt 8 ]; do
	(
		while :; do
			"$B/tools/run/txda-run" --socket "$socket" --model demo --raw "$prompt" >/dev/null 2>&1 || exit
		done
	) &
	workers="$workers $!"
	i=$((i + 1))
done
sleep 2
"$B/tools/smi/txda-smi"

step "done"
cat <<END
The same by hand:
  $B/daemon/txdad --model demo=tests/models/demo --socket /tmp/txda.sock &
  $B/tools/run/txda-run --socket /tmp/txda.sock --model demo
  curl --unix-socket /tmp/txda.sock http://localhost/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{"model": "demo", "messages": [{"role": "user", "content": "Tell me of a fox."}]}'
END
