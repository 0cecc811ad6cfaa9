# SPDX-License-Identifier: MIT
# shellcheck shell=sh
# Helpers of the end-to-end tests, to be sourced. TXDAD is the daemon, MODEL a model's directory; $tmp is the test's own directory,
# $socket the daemon's socket, $daemon its pid.

: "${TXDAD:?names the daemon to test}" "${MODEL:?names the directory of a model}"
tmp=$(mktemp -d)
socket=$tmp/txda.sock
daemon=
failures=0
: "${CACHE_DIRECTORY:=$tmp/cache}"
export CACHE_DIRECTORY

# Whatever happens, no daemon is left behind, and its words are shown when something was wrong.
finish() {
	status=$?
	trap - EXIT
	if [ -n "$daemon" ] && kill "$daemon" 2>/dev/null; then
		wait "$daemon" 2>/dev/null || true
	fi
	if [ "$status" -ne 0 ] && [ -s "$tmp/txdad.log" ]; then
		echo "--- the daemon's log:"
		tail -n 40 "$tmp/txdad.log"
	fi
	rm -rf "$tmp"
	exit "$status"
}
trap finish EXIT
trap 'exit 1' INT TERM

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# Ends the test: what failed decides.
conclude() {
	if [ "$failures" -ne 0 ]; then
		echo "$failures checks failed"
		exit 1
	fi
	echo "all checks passed"
	exit 0
}

# The time is for machines that are slow or busy: it ends a test that hangs.
http() {
	curl -sS --max-time 240 --unix-socket "$socket" "$@"
}

# post PATH BODY [CURL-OPTION...]
post() {
	path=$1
	body=$2
	shift 2
	printf '%s' "$body" | http -H 'Content-Type: application/json' --data-binary @- "$@" "http://localhost$path"
}

wait_healthy() {
	tries=0
	until curl -sf -o /dev/null --max-time 5 --unix-socket "$socket" http://localhost/health; do
		tries=$((tries + 1))
		if ! kill -0 "$daemon" 2>/dev/null || [ "$tries" -gt 600 ]; then
			echo "FAIL: the daemon did not become healthy"
			exit 1
		fi
		sleep 0.1
	done
}

# start [OPTION...]: a daemon; start_daemon: with the model as "demo"; stop: its end, which is to be a good one
start() {
	"$TXDAD" --socket "$socket" "$@" 2>>"$tmp/txdad.log" &
	daemon=$!
	wait_healthy
}
start_daemon() {
	start --model "demo=$MODEL" "$@"
}
stop() {
	kill "$daemon"
	wait "$daemon" || fail "exit status $?"
	daemon=
}

# A member of a JSON answer on one line: member NAME <FILE
member() {
	sed -n "s/.*\"$1\":\(\"\([^\"\\\\]\|\\\\.\)*\"\|[^,}]*\).*/\1/p"
}

# request STATUS WORDS PATH [CURL-OPTION...]: an answer that holds WORDS, in OpenAI's shape if it is an error
request() {
	status=$1
	words=$2
	path=$3
	shift 3
	got=$(http -o "$tmp/answer" -w '%{http_code}' "$@" "http://localhost$path") || true
	if [ "$got" != "$status" ]; then
		fail "$path $(printf '%.120s' "$*"): status $got, not $status: $(head -c 300 "$tmp/answer")"
	elif ! grep -qF -- "$words" "$tmp/answer"; then
		fail "$path $(printf '%.120s' "$*"): no '$words' in $(head -c 400 "$tmp/answer")"
	elif [ "$status" -ge 400 ] && ! grep -q '^{"error":{"message":".*","type":".*","param":.*,"code":.*}}$' "$tmp/answer"; then
		fail "$path $(printf '%.120s' "$*"): not OpenAI's shape: $(head -c 400 "$tmp/answer")"
	fi
}

# expect STATUS WORDS PATH BODY
expect() {
	request "$1" "$2" "$3" -H 'Content-Type: application/json' --data-binary "$4"
}

metric() {
	http http://localhost/metrics | sed -n "s/^$1 //p"
}

# running N, waiting N: so many requests of the model "demo" do
running() {
	[ "$(metric 'txda_num_requests_running{model_name="demo"}')" = "$1" ]
}
waiting() {
	[ "$(metric 'txda_num_requests_waiting{model_name="demo"}')" = "$1" ]
}

# ask MODEL: what is the same to the last bit whenever it is asked, and tells what the model computes with
ask() {
	post /v1/completions "{\"model\":\"$1\",\"prompt\":\"Once upon a time\",\"max_tokens\":12,\"temperature\":1,\"seed\":7,\"logprobs\":2}" |
		sed 's/.*"choices"/"choices"/; s/"usage".*//'
}

# The daemon's resident memory in KiB; its open files, which only root sees: others count none.
rss() {
	sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$daemon/status"
}
fds() {
	# shellcheck disable=SC2012 # names are numbers
	ls "/proc/$daemon/fd" 2>/dev/null | wc -l
}

# until_true SECONDS COMMAND...: whether it becomes true; the time is for machines that are slow or busy, and no expectation
until_true() {
	tries=$(($1 * 10))
	shift
	while ! "$@"; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.1
	done
}
