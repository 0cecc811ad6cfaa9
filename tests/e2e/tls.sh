#!/bin/sh
# SPDX-License-Identifier: MIT
#
# TLS by the reverse proxies of docs/network.md, with their settings as they stand there: the certificate is checked, a client's key
# goes through, a wrong one is told, and events come while the answer is still being made.
set -eu

command -v openssl >/dev/null 2>&1 || {
	echo "openssl is not installed"
	exit 77
}
PATH=$PATH:/usr/sbin
found=
for proxy in stunnel nginx; do
	if command -v $proxy >/dev/null 2>&1; then found="$found $proxy"; fi
done
[ -n "$found" ] || {
	echo "neither stunnel nor nginx is installed"
	exit 77
}

. "$(dirname "$0")/lib.sh"

page=$(dirname "$0")/../../docs/network.md
key=sk-alice-0123456789abcdef
printf 'alice:%s\n' $key >"$tmp/keys"
chmod 600 "$tmp/keys"
# Two tokens, so far apart that the first one is seen before there is a second.
FAKE_TOKEN_US=4000000 start_daemon --host 127.0.0.1 --port 0 --api-key-file "$tmp/keys"
port=$(sed -n 's|.*listening on http://127.0.0.1:||p' "$tmp/txdad.log")
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=models.example.com \
	-addext subjectAltName=DNS:models.example.com -keyout "$tmp/models.key" -out "$tmp/models.crt" 2>"$tmp/openssl.log"
cat "$tmp/models.key" "$tmp/models.crt" >"$tmp/models.pem"

# settings WORD: the block of the page that has it, with this test's paths. The proxy listens on a Unix socket: no port to be found.
settings() {
	awk -v word="$1" '
	/^```/ { if (inside && index(block, word)) printf "%s", block; inside = !inside; block = ""; next }
	inside { block = block $0 "\n" }' "$page" |
		sed -e "s|127.0.0.1:8000|127.0.0.1:$port|" -e "s|/etc/ssl/[a-z]*/|$tmp/|" \
			-e "s|listen 443 ssl;|listen unix:$tmp/tls ssl;|" -e "s|^accept = 443$|accept = $tmp/tls|"
}

start_stunnel() {
	printf 'foreground = yes\npid =\n' >"$tmp/stunnel.conf"
	settings '[txdad]' >>"$tmp/stunnel.conf"
	stunnel "$tmp/stunnel.conf" >"$tmp/proxy.log" 2>&1 &
}
start_nginx() {
	mkdir -p "$tmp/logs"
	{
		printf 'daemon off;\nmaster_process off;\npid %s/nginx.pid;\nevents {}\nhttp {\naccess_log off;\n' "$tmp"
		printf "%s_temp_path $tmp/logs;\n" client_body proxy fastcgi uwsgi scgi
		settings 'listen 443 ssl;'
		printf '}\n'
	} >"$tmp/nginx.conf"
	nginx -p "$tmp" -e stderr -c "$tmp/nginx.conf" >"$tmp/proxy.log" 2>&1 &
}

tls() {
	curl -sS --max-time 60 --unix-socket "$tmp/tls" --cacert "$tmp/models.crt" "$@"
}
there() {
	tls -o /dev/null https://models.example.com/ 2>/dev/null || ! kill -0 "$proxy_pid" 2>/dev/null
}
first_event() {
	cp "$tmp/stream" "$tmp/seen"
	grep -q '^data: {' "$tmp/seen"
}

for proxy in $found; do
	rm -f "$tmp/tls"
	case $proxy in
	stunnel) start_stunnel ;;
	nginx) start_nginx ;;
	esac
	proxy_pid=$!
	until_true 60 there || fail "$proxy does not answer: $(cat "$tmp/proxy.log")"
	tls -H "Authorization: Bearer $key" https://models.example.com/v1/models | grep -qF '"demo"' ||
		fail "$proxy: $(cat "$tmp/proxy.log")"
	tls https://models.example.com/v1/models | grep -qF invalid_api_key || fail "$proxy lets in who has no key"
	if tls https://other.example.com/ -o /dev/null 2>/dev/null; then fail "$proxy: the certificate is good for another host"; fi
	: >"$tmp/stream"
	curl -sS -N --unix-socket "$tmp/tls" --cacert "$tmp/models.crt" -H "Authorization: Bearer $key" \
		-d '{"prompt":"Once","max_tokens":2,"ignore_eos":true,"stream":true}' \
		https://models.example.com/v1/completions >"$tmp/stream" 2>&1 &
	stream=$!
	until_true 60 first_event || fail "$proxy: no event comes: $(cat "$tmp/stream")"
	if grep -qF '[DONE]' "$tmp/seen"; then fail "$proxy keeps events back"; fi
	# Who leaves is gone behind the proxy, too.
	kill $stream
	wait $stream 2>/dev/null || true
	until_true 60 running 0 || fail "$proxy: a request whose client left goes on"
	kill "$proxy_pid"
	wait "$proxy_pid" 2>/dev/null || true
	echo "$proxy: passed"
done
conclude
