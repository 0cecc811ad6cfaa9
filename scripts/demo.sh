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
bold='' plain=''
[ ! -t 1 ] || bold=$(printf '\033[1m') plain=$(printf '\033[0m')

step() {
	printf '\n%s== [%3ds] %s%s\n' "$bold" $(($(date +%s) - start)) "$1" "$plain"
}

echo "make demo installs what is missing, builds, and lets the shipped model write on a simulated chip."
sh scripts/deps.sh build demo
step "building into $B/"
# Only what the demo runs: the tests can wait.
if ! make --no-print-directory "$B/build.ninja" B="$B" >"$B/demo-build.log" 2>&1 ||
	! sh scripts/progress.sh "$B/demo-build.log" \
		ninja -C "$B" bin/txdad bin/txdad-text bin/txda-compile bin/txda-run bin/txda-smi; then
	grep -E -A 6 'error|ERROR|FAILED' "$B/demo-build.log" | head -n 40
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
CACHE_DIRECTORY=$(cd "$B" && pwd)/demo-cache "$B/bin/txdad" --model demo=tests/models/demo \
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
"$B/bin/txda-run" --socket "$socket" --model demo --raw --seed "${SEED:-7}" -n 400 --stats "$prompt"

step "the chips while eight tales are written at once"
i=0
while [ $i -lt 8 ]; do
	(
		while :; do
			"$B/bin/txda-run" --socket "$socket" --model demo --raw "$prompt" >/dev/null 2>&1 || exit
		done
	) &
	workers="$workers $!"
	i=$((i + 1))
done
sleep 2
"$B/bin/txda-smi"

step "done"
cat <<END
"make" builds the other programs, too, for README's next steps. The same by hand:
  $B/bin/txdad --model demo=tests/models/demo --socket /tmp/txda.sock &
  $B/bin/txda-run --socket /tmp/txda.sock --model demo
  curl --unix-socket /tmp/txda.sock http://localhost/v1/chat/completions -H 'Content-Type: application/json' \\
      -d '{"model": "demo", "messages": [{"role": "user", "content": "Tell me of a fox."}]}'
END
