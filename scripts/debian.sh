#!/bin/sh
# SPDX-License-Identifier: MIT
#
# debian.sh - sourced by scripts that fetch Debian packages without installing them.
#
#   debian_mirror                 print the mirror that this machine's apt uses for its own release
#   debian_apt_setup [-a ARCH] DIR SUITE...
#                                 an apt of its own in DIR: lists, cache, sources; nothing of the
#                                 machine's apt is touched and no package is installed; ARCH: not of
#                                 the machine's own architecture
#   debian_apt DIR TOOL ARG...    run apt-get or apt-cache with it
#   apt_proxies                   print the proxies of this machine, as lines of an apt configuration
#   debian_kernel DIR PREFIX      release of the newest kernel whose version begins with PREFIX (whole
#                                 numbers; "": of all), 6.12.107+deb13-amd64 for 6.12
#
# Needs apt; works as any user.

debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

debian_mirror() {
	command -v apt-get >/dev/null && [ -e $debian_keyring ] || return 1
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	# shellcheck disable=SC2016 # the format is apt's, not the shell's
	mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 2>/dev/null |
		awk -v c="$codename" '($1 == c || $1 ~ /stable$/) && $2 == "main" { print $3; exit }')
	[ -n "$mirror" ] && echo "$mirror"
}

apt_proxies() {
	apt-config dump 2>/dev/null | grep -i '^Acquire::https\{0,1\}::Proxy' || true
}

debian_apt() {
	dir=$1
	tool=$2
	shift 2
	"$tool" -q -o Dir::Etc::sourcelist="$dir/debian.sources" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::Etc::preferencesparts=/dev/null -o Dir::State::lists="$dir/lists" \
		-o Dir::State::status="$dir/status" -o Dir::Cache="$dir" -o APT::Sandbox::User= \
		-o Acquire::Languages=none -o Acquire::Retries=2 "$@"
}

debian_apt_setup() {
	arch=$(dpkg --print-architecture)
	if [ "$1" = -a ]; then
		arch=$2
		shift 2
	fi
	dir=$1
	shift
	uri=$(debian_mirror) || return 1
	rm -rf "$dir/lists"
	mkdir -p "$dir/lists/partial" "$dir/archives/partial"
	: >"$dir/status"
	cat >"$dir/debian.sources" <<-END
		Types: deb
		URIs: $uri
		Suites: $*
		Components: main
		Architectures: $arch
		Signed-By: $debian_keyring
	END
	debian_apt "$dir" apt-get update >/dev/null 2>&1
}

debian_kernel() {
	arch=$(dpkg --print-architecture)
	debian_apt "$1" apt-cache search --names-only "^linux-headers-[0-9.]+[+]deb[0-9]+-$arch\$" |
		sed -n "s/^linux-headers-\([^ ]*\) .*/\1/p" |
		awk -v p="$2" 'p == "" || index($0, p ".") == 1 || index($0, p "+") == 1' | sort -V | tail -n 1 | grep .
}
