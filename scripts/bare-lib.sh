# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# bare-lib.sh - what the commands of bare.sh have in common; it stands before each of them, inside of the root.

# demo - README's first command: it succeeds, its output holds a tale and a chip, and it leaves nothing behind.
demo() {
	status=0
	make demo >~/demo.out 2>&1 || status=$?
	cat ~/demo.out
	[ $status -eq 0 ]
	# The prompt has nine words, and the line of figures after the tale is none of it.
	[ "$(sed -n '/^Once upon a time there was a little fox/,/^FTL/{/^FTL/!p}' ~/demo.out | wc -w)" -ge 12 ]
	grep -E -q '^\|  *0 \| TX8' ~/demo.out
	rm ~/demo.out
	# Where programs of a user without XDG_RUNTIME_DIR find each other's simulated chips.
	find /tmp -mindepth 1 ! -path "/tmp/txda-$(id -u)" | { ! grep .; }
}

# wait_for_health SOCKET PID
wait_for_health() {
	tries=0
	until curl -fs -o /dev/null --unix-socket "$1" http://localhost/health; do
		tries=$((tries + 1))
		if [ $tries -gt 600 ] || ! kill -0 "$2"; then
			cat ~/txdad.log
			return 1
		fi
		sleep 0.2
	done
}

# answers SOCKET - the daemon continues a text.
answers() {
	curl -fsS --unix-socket "$1" http://localhost/v1/completions -H 'Content-Type: application/json' \
		-d '{"model": "demo", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0}' >~/answer
	cat ~/answer && echo
	grep -E -q '"text": ?"[^"]' ~/answer
}

# serve - start the installed daemon with its settings, until it answers: process $daemon at ~/socket.
serve() {
	txdad --config /etc/txda/txdad.conf --cache-dir ~/cache --socket ~/socket 2>~/txdad.log &
	daemon=$!
	wait_for_health ~/socket $daemon
	answers ~/socket
}

# packages - the names of those that were built.
packages() {
	for deb in build/deb/*.deb; do
		dpkg-deb -f "$deb" Package
	done
}

# systemd_state - what systemd makes for the daemon: directories of a dynamic user, and that of the socket.
systemd_state() {
	for kind in lib cache; do
		mkdir -p "/var/$kind/private/txda"
		echo kept >"/var/$kind/private/txda/file"
		ln -s private/txda "/var/$kind/txda"
	done
	mkdir /run/txda
}

# snapshot - every file, user and group; of settings the contents, too. Records of apt and dpkg are theirs.
snapshot() {
	find / -xdev \( -path "$HOME" -o -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache/apt \) \
		-prune -o -printf '%p %M %U:%G %l\n' | sort
	find /etc -type f ! -name ld.so.cache -exec sha256sum {} + | sort -k 2
}
