#!/bin/sh
# SPDX-License-Identifier: MIT
#
# TCP: what is refused at the start (more of it: test_listen_tcp, test_api_keys), keys and whom they
# stand for, reloads, no keys on loopback; systemd: its sockets, and the time that it gives the
# daemon to end. How many connections there may be of whom is for test_http_tcp and flood.py.
set -eu
. "$(dirname "$0")/lib.sh"

: "${PYTHON:?names python3}" "${TXDA_BENCH:?names the program txda-bench}"
comp=/v1/completions
keys=$tmp/keys
alice=sk-alice-0123456789abcdef
bob=sk-bob-0123456789abcdef
admin=sk-admin-0123456789abcdef
account=sk-daemon-0123456789abcdef
forever='{"prompt":"Once upon a time","max_tokens":1500,"ignore_eos":true,"stream":true}'

write_keys() {
	printf '# who may ask\nalice:%s\nbob:%s\n\nroot:%s:admin\ndaemon:%s\n' $alice $bob $admin $account >"$keys"
	chmod 600 "$keys"
}
write_keys

# refused WORDS OPTION...: the daemon does not start with them, and says why
refused() {
	words=$1
	shift
	status=0
	"$TXDAD" --socket "$socket" --model "demo=$MODEL" "$@" 2>"$tmp/refused" || status=$?
	[ "$status" -eq 78 ] || fail "txdad $*: exit status $status"
	grep -qF -- "$words" "$tmp/refused" || fail "txdad $*: no '$words' in $(cat "$tmp/refused")"
	if grep -qF 0123456789abcdef "$tmp/refused"; then fail "txdad $* tells a key"; fi
	[ ! -e "$socket" ] || fail "txdad $* leaves a socket"
}

# tcp KEY PATH [CURL-OPTION...]: over TCP
tcp() {
	key=$1
	path=$2
	shift 2
	curl -sS --max-time 60 -H "Authorization: Bearer $key" "$@" "http://$host$path"
}

# tcp_status STATUS WORDS KEY PATH [CURL-OPTION...]
tcp_status() {
	status=$1
	words=$2
	shift 2
	got=$(tcp "$@" -D "$tmp/head" -o "$tmp/answer" -w '%{http_code}') || true
	[ "$got" = "$status" ] || fail "$*: status $got, not $status: $(head -c 300 "$tmp/answer")"
	grep -qF -- "$words" "$tmp/answer" || fail "$*: no '$words' in $(head -c 300 "$tmp/answer")"
}

# said WORDS: the log holds them
said() {
	grep -qF -- "$1" "$tmp/txdad.log"
}

# where IP: host and port on which the daemon that was started last listens there
where() {
	sed -n "s|.*listening on http://\($1:[0-9]*\)\$|\1|p" "$tmp/txdad.log" | tail -n 1
}

# ---- what does not start -----------------------------------------------------------------------
refused 'is not opened without API keys' --port 0
refused '0.0.0.0:0 is not opened without API keys, as other machines reach it' --host 0.0.0.0 --port 0 --no-api-key
refused '--api-key-file and --no-api-key contradict each other' --port 0 --api-key-file "$keys" --no-api-key
refused '--port must be a number between 0 and 65535, not 65536' --port 65536
chmod 640 "$keys"
refused "group or others have access to $keys (mode 0640); it must be 0600 or less" --port 0 --api-key-file "$keys"
write_keys

# ---- off by default ----------------------------------------------------------------------------
start_daemon
if said 'listening on http'; then fail "TCP is opened although nobody asked for it"; fi
stop

# ---- keys --------------------------------------------------------------------------------------
mkdir "$tmp/broken"
echo '{"model_type":5}' >"$tmp/broken/config.json"
FAKE_TOKEN_US=5000 start_daemon --port 0 --api-key-file "$keys" --socket-mode 0666 --model "mine=$MODEL" --model-user daemon \
	--model "broken=$tmp/broken" --load demand --model-user daemon
host=$(where 127.0.0.1)
[ -n "$host" ] || { fail "no address in the log"; conclude; }

for path in /health /metrics /version /v1/models /v1/requests /v1/devices /nowhere; do
	got=$(curl -sS --max-time 60 -D "$tmp/head" -o "$tmp/answer" -w '%{http_code}' "http://$host$path")
	[ "$got" = 401 ] || fail "$path without a key: status $got"
	grep -qi '^WWW-Authenticate: Bearer realm="txdad"' "$tmp/head" || fail "$path without a key: $(cat "$tmp/head")"
	grep -q '^{"error":{"message":".*","type":"authentication_error","param":null,"code":"invalid_api_key"}}$' "$tmp/answer" ||
		fail "$path without a key: $(cat "$tmp/answer")"
	tcp_status 401 'the API key is not valid' sk-nobody-0123456789abcdef $path
	grep -qi '^WWW-Authenticate: Bearer .*error="invalid_token"' "$tmp/head" || fail "$path with a wrong key: $(cat "$tmp/head")"
done
# answer STATUS [CURL-OPTION...]: of /version
answer() {
	status=$1
	shift
	got=$(curl -sS --max-time 60 -o /dev/null -w '%{http_code}' "$@" "http://$host/version")
	[ "$got" = "$status" ] || fail "$*: status $got, not $status"
}
answer 200 -H "authorization: bearer  $alice"
printf 'Authorization: Bearer %s\n' $alice >"$tmp/header"
answer 200 -H "@$tmp/header"
answer 401 -H "Authorization: $alice"
answer 401 -H "Authorization: Basic $alice"
answer 401 -H "Authorization: Bearer"
answer 401 -H "Authorization: Bearer $alice $bob"
answer 401 -H "Authorization: Bearer $alice" -H "Authorization: Bearer $bob"
answer 401 -u "alice:$alice"
answer 401 -H "X-Api-Key: $alice"
tcp_status 401 'the API key is not valid' none "/version?api_key=$alice"
answer 401 -X OPTIONS -H 'Origin: http://example.com' -H 'Access-Control-Request-Headers: authorization'
if tcp $alice /version -D - -H 'Origin: http://example.com' | grep -qi access-control; then fail "pages of other origins are let in"; fi

# The same answers as over the Unix socket, whole and streamed.
body='{"model":"demo","prompt":"Once upon a time","max_tokens":12,"seed":7}'
text_of() {
	sed 's/.*"choices"/"choices"/; s/"usage".*//'
}
[ "$(tcp $alice $comp -d "$body" | text_of)" = "$(post $comp "$body" | text_of)" ] || fail "TCP answers otherwise than the Unix socket"
tcp $alice $comp -N -d '{"model":"demo","prompt":"Once","max_tokens":4,"stream":true}' | tr -d '\r' | grep -qx 'data: \[DONE\]' ||
	fail "a stream over TCP has no end"
six=$(where '\[::1\]')
if [ -n "$six" ]; then
	curl -sS --max-time 60 -g -H "Authorization: Bearer $bob" "http://$six/version" | grep -q version || fail "IPv6 does not answer"
else
	echo "(this machine has no IPv6 loopback)"
fi
# benched PLACE [OPTION...]: txda-bench is served there
benched() {
	place=$1
	shift
	"$TXDA_BENCH" serve --host "$place" --model demo --requests 4 --concurrency 2 --output 3 --json "$@" >"$tmp/report" 2>&1 || return 1
	[ "$(member completed <"$tmp/report")" = 4 ]
}
if [ -n "$six" ]; then TXDA_API_KEY=$bob benched "$six" || fail "txda-bench over IPv6: $(cat "$tmp/report")"; fi
TXDA_API_KEY=$bob benched "localhost:${host##*:}" || fail "txda-bench over TCP: $(cat "$tmp/report")"
if benched "$host"; then fail "txda-bench needs no key"; fi
if TXDA_API_KEY="$bob
X: y" benched "$host"; then fail "txda-bench takes a key of two lines"; fi
grep -qF 'TXDA_API_KEY is not a valid key' "$tmp/report" || fail "a key of two lines: $(cat "$tmp/report")"
tcp_status 400 unix_socket_needed $alice /v1/forward -d '{"model":"demo"}'

# Rights: those of the key, and of the account where it is one's.
tcp_status 403 'user alice is not an administrator' $alice /v1/devices
tcp_status 200 '"data"' $admin /v1/devices
tcp_status 404 'served are: demo"' $alice $comp -d '{"model":"mine","prompt":"Once","max_tokens":1}'
tcp_status 200 '"choices"' $account $comp -d '{"model":"mine","prompt":"Once","max_tokens":1}'
# Nothing is told of such a model.
tcp_status 503 "$tmp/broken" $account $comp -d '{"model":"broken","prompt":"Once","max_tokens":1}'
for path in /v1/models/mine /v1/models/broken; do
	tcp_status 404 'served are: demo"' $alice $path
	tcp_status 200 '"root"' $account $path
	tcp_status 200 '"root"' $admin $path
done
tcp_status 200 '{"demo":{"state":"ready"}}' $alice /health
for path in /health /v1/models /metrics; do
	if tcp $alice $path | grep -F -e "$tmp/broken" -e '"id":"mine"'; then fail "$path tells alice too much"; fi
done
tcp_status 503 "$tmp/broken" $account /health
tcp_status 200 '"id":"mine"' $account /v1/models
tcp_status 403 'user daemon is not an administrator' $account /v1/models/pin -d '{"model":"mine"}'

# A user sees and ends his own requests only; whose client leaves ends too.
printf '%s' "$forever" >"$tmp/body"
curl -sS -N -H "Authorization: Bearer $alice" --data-binary "@$tmp/body" "http://$host$comp" >"$tmp/stream" 2>/dev/null &
stream=$!
until_true 60 running 1 || fail "a stream over TCP does not run"
tcp $bob /v1/requests | grep -qF '"data":[]' || fail "bob sees $(tcp $bob /v1/requests)"
id=$(tcp $alice /v1/requests | member id | tr -d '"')
tcp_status 404 request_not_found $bob /v1/requests/cancel -d "{\"id\":\"$id\"}"
tcp $admin /v1/requests | grep -qF '"user":"alice"' || fail "the administrator sees $(tcp $admin /v1/requests)"
# A process that has a uid like such a user's number, or its lower half, is not that user.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	chmod 711 "$tmp"
	for uid in 1 2147483649; do
		setpriv --reuid $uid --regid 65534 --clear-groups curl -sS --max-time 60 --unix-socket "$socket" http://localhost/v1/requests >"$tmp/answer"
		grep -qF '"data":[]' "$tmp/answer" || fail "uid $uid sees $(cat "$tmp/answer")"
	done
fi
http http://localhost/v1/requests | grep -qF '"user":"alice"' || fail "over the Unix socket it is $(http http://localhost/v1/requests)"
tcp_status 200 "$id" $alice /v1/requests/cancel -d "{\"id\":\"$id\"}"
wait $stream || true
until_true 60 running 0 || fail "a cancelled request goes on"

# ---- reloads -----------------------------------------------------------------------------------
printf 'alice:%s\nshort:key\n' $alice >"$keys"
kill -HUP "$daemon"
until_true 60 said "$keys, line 2: the key has 3 characters; it must have 16 to 256" || fail "a wrong file of keys is taken without a word"
tcp_status 200 version $bob /version
printf '%s' "$forever" >"$tmp/body"
curl -sS -N -H "Authorization: Bearer $alice" --data-binary "@$tmp/body" "http://$host$comp" >/dev/null 2>&1 &
alices=$!
until_true 60 running 1 || fail "a stream over TCP does not run"
id=$(tcp $alice /v1/requests | member id | tr -d '"')
curl -sS -N -H "Authorization: Bearer $bob" --data-binary "@$tmp/body" "http://$host$comp" >/dev/null 2>&1 &
bobs=$!
until_true 60 running 2 || fail "two streams over TCP do not run"
printf 'alice:%s-new\n' $alice >"$keys"
kill -HUP "$daemon"
until_true 60 said "1 API key from $keys" || fail "the keys were not read again"
until_true 60 tcp $alice-new /version -f -o /dev/null 2>"$tmp/waited" || fail "a new key is not known: $(cat "$tmp/waited")"
tcp_status 401 invalid_api_key $alice /version
tcp_status 401 invalid_api_key $bob /version
# Bob has no key any more, and no answer; alice has another one.
if wait $bobs; then fail "the answer of a user without keys ends well"; fi
# Hers may have ended by now.
http http://localhost/v1/requests/cancel -d "{\"id\":\"$id\"}" >/dev/null
wait $alices || fail "alice's answer was cut off: status $?"
until_true 60 running 0 || fail "a cancelled request goes on"
write_keys
kill -HUP "$daemon"
until_true 60 tcp $bob /version -f -o /dev/null 2>"$tmp/waited" || fail "an old key is not known again: $(cat "$tmp/waited")"

# ---- no key is told ----------------------------------------------------------------------------
until_true 60 grep -q 'refused .* over TCP; the last came from 127.0.0.1:[0-9]*: the API key is not valid' "$tmp/txdad.log" ||
	fail "nobody tells of wrong keys"
# The log has the reason why a request cannot be read.
if curl -sS --max-time 60 "https://$host/version" 2>"$tmp/err"; then fail "the port speaks TLS"; fi
until_true 60 grep -q 'over TCP; the last came from 127.0.0.1:[0-9]*: this is TLS; only plain HTTP is supported' "$tmp/txdad.log" ||
	fail "a client that uses TLS is not logged"
request 417 'fun is not supported' /version -H 'Expect: fun'
grep -q '^txdad: uid .* "- -" 417 .* Expect: fun is not supported$' "$tmp/txdad.log" || fail "the log does not say why a request was refused"
said 'user alice uid 4294967297 from 127.0.0.1:' || fail "the log does not tell who asked"
if grep -qF 0123456789abcdef "$tmp/txdad.log"; then fail "the log tells a key"; fi
if tr '\0' ' ' <"/proc/$daemon/cmdline" | grep -qF 0123456789abcdef; then fail "the command line tells a key"; fi
[ "$(metric txda_http_auth_failures_total)" -ge 20 ] || fail "$(metric txda_http_auth_failures_total) failures are counted"

stop

# ---- without keys, on loopback -----------------------------------------------------------------
start_daemon --host 127.0.0.1 --host 127.0.0.2 --port 0 --no-api-key
host=$(where 127.0.0.2)
[ -n "$host" ] || { fail "no address in the log"; conclude; }
answer 200
host=$(where 127.0.0.1)
tcp_status 200 '"choices"' any $comp -d "$body"
answer 200
answer 200 -H 'Host: LocalHost:8000'
answer 200 -H 'Host: [::1]'
answer 200 -H 'Host: [::1]:8000'
answer 200 -H 'Host: 127.0.1.1:8000'
answer 403 -H 'Host: 127.0.0.1.example.com'
answer 403 -H 'Host: 128.0.0.1'
answer 403 -H 'Host: [2001:db8::1]'
answer 403 -H 'Host: [::1'
answer 403 -H 'Host: [::1]x'
answer 403 -H 'Host: [127.0.0.1]'
answer 403 -H 'Host: 127.1'
answer 403 -H 'Host: example.com'
answer 403 -H 'Host: localhost.example.com'
answer 403 -H 'Origin: http://localhost'
answer 403 -H 'Origin: null'
answer 403 -H 'Sec-Fetch-Site: cross-site'
answer 200 -H 'Sec-Fetch-Site: none'
tcp_status 403 'user anonymous is not an administrator' any /v1/devices
stop

# ---- an address given twice --------------------------------------------------------------------
# One that no other program uses.
own=127.$((1 + $$ / 65536 % 250)).$(($$ / 256 % 256)).$((1 + $$ % 254))
start_daemon --host "$own" --host "$own" --port 8123 --api-key-file "$keys"
host=$own:8123
tcp_status 200 version $alice /version
stop

# ---- sockets of systemd ------------------------------------------------------------------------
# A TCP socket and a Unix one, in the order in which nobody expects them.
cat >"$tmp/activate" <<'END'
import os, socket, sys
tcp = socket.create_server((sys.argv[2], 0))
unix = socket.socket(socket.AF_UNIX)
unix.bind(sys.argv[1])
unix.listen()
tcp, unix = os.dup(tcp.fileno()), os.dup(unix.fileno())
os.dup2(tcp, 3)
os.dup2(unix, 4)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2", LISTEN_FDNAMES="tcp:unix")
os.execv(sys.argv[3], sys.argv[3:])
END
status=0
"$PYTHON" "$tmp/activate" "$socket" 0.0.0.0 "$TXDAD" --model "demo=$MODEL" --no-api-key 2>"$tmp/refused" || status=$?
[ "$status" -eq 78 ] || fail "a socket without keys for all: exit status $status"
grep -qF 'as other machines reach it' "$tmp/refused" || fail "a socket without keys for all: $(cat "$tmp/refused")"
rm -f "$socket"
"$PYTHON" "$tmp/activate" "$socket" 127.0.0.1 "$TXDAD" --model "demo=$MODEL" --api-key-file "$keys" --port 1 2>>"$tmp/txdad.log" &
daemon=$!
wait_healthy
host=$(where 127.0.0.1)
tcp_status 200 version $alice /version
answer 401
said '--host and --port are ignored' || fail "--port is ignored without a word"
stop

# Settings are wrong, and a client has started the daemon: it is told, and nobody is left waiting,
# for whom systemd would start the daemon again at once, until it gives the socket up.
cat >"$tmp/refused.py" <<'END'
import os, select, socket, sys
path, program = sys.argv[1:3]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()

def client():
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return s

clients = [client() for _ in range(100)]
pid = os.fork()
if pid == 0:
    os.set_inheritable(os.dup2(listener.fileno(), 3), True)
    os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="unix", NOTIFY_SOCKET=path + ".notify")
    os.execv(program, [program, *sys.argv[3:]])
for s in clients:
    s.settimeout(60)
    answer = b""
    while part := s.recv(4096):
        answer += part
    s.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ") and b"its settings are wrong" in body, answer
    assert b"Content-Length: %d\r\n" % len(body) in head, answer
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 78
assert not select.select([listener], [], [], 0)[0], "a client waits"
END
for wrong in '--tp-size none' '--no-api-key --api-key-file /nothing' "--log-file $tmp" "--model none=$tmp"; do
	rm -f "$socket"
	# shellcheck disable=SC2086 # words
	"$PYTHON" "$tmp/refused.py" "$socket" "$TXDAD" $wrong --model "demo=$MODEL" --strict 2>"$tmp/refused" ||
		fail "a client of a daemon with $wrong: $(tail -n 5 "$tmp/refused")"
done

# What the daemon tells systemd at its end: to wait for as long as the settings let requests run.
cat >"$tmp/notified.py" <<'END'
import os, socket, subprocess, sys
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(sys.argv[1])
notify.settimeout(60)

def said(word):
    while True:
        fields = dict(line.split("=", 1) for line in notify.recv(65536).decode().splitlines())
        if word in fields:
            return fields

daemon = subprocess.Popen(sys.argv[2:], env={**os.environ, "NOTIFY_SOCKET": sys.argv[1]})
said("READY")
daemon.terminate()
microseconds = int(said("STOPPING")["EXTEND_TIMEOUT_USEC"])
assert daemon.wait() == 0
assert microseconds >= 3600 * 1000000, microseconds
END
rm -f "$socket"
"$PYTHON" "$tmp/notified.py" "$tmp/notify" "$TXDAD" --model "demo=$MODEL" --socket "$socket" --drain-seconds 3600 2>"$tmp/refused" ||
	fail "the time for the end: $(tail -n 5 "$tmp/refused")"
conclude
