#!/bin/sh
# SPDX-License-Identifier: MIT
#
# deps.sh PURPOSE... - make sure that the Debian packages for each PURPOSE are installed.
# deps.sh --list PURPOSE... - print their names, one a line, and do nothing.
#
#   build    what `make` needs
#   demo     what `make demo` needs on top of that
#   check    what `make check` needs on top of `make`
#   check-all
#            what more of the tests needs
#   module   what `make module` needs
#   deb      what `make deb` needs on top of `make`
#   vm       what `make vm` and `make check-vm` need on top of `make`
#   kernel   what a kernel is built with, on top of that for its modules
#   bare     what bare.sh needs
#
# Does nothing (quickly) when all is there. Otherwise says what is missing and what for, then installs it,
# with sudo where that is needed; without root and sudo it prints the command to run as root and fails.
# On other distributions it prints the list and looks only for the commands.
set -eu

usage() {
	sed -n '4,21s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

# One line a package: name, a command that makes the package needless, and what it is for.
packages() {
	case $1 in
	build)
		cat <<-'END'
			gcc gcc C compiler
			libc6-dev - C library headers
			meson meson build system of user space
			ninja-build ninja runs what meson planned
			pkg-config pkg-config finds libraries
			libcjson-dev - JSON of configs, requests and answers
			libevent-dev - event loop and HTTP of the daemon
			libpcre2-dev - pre-tokeniser expressions of tokenizer.json
			libutf8proc-dev - Unicode normalisation of the tokeniser
			libedit-dev - line editing and history of txda-run
			libdrm-dev - ioctls to the kernel driver
			libudev-dev - finds chips, tells of hotplug
			libseccomp-dev - confinement of what parses checkpoints
			libturbojpeg0-dev - pictures: JPEG
			libpng-dev - pictures: PNG
			libwebp-dev - pictures: WebP
			libgif-dev - pictures: GIF
			libnl-3-dev - health events of the kernel driver
			libnl-genl-3-dev - health events of the kernel driver
			libsystemd-dev - readiness, watchdog and socket activation of the daemon
		END
		;;
	demo)
		echo "curl curl asks the daemon whether it is ready"
		;;
	check)
		cat <<-'END'
			g++ g++ the public headers must compile as C++ too
			libcmocka-dev - unit tests
			clang-format clang-format lays out C files
			curl curl first client of the end-to-end tests
			git git end-to-end tests of what documents show
			groff-base groff renders the manual pages
			man-db lexgrog reads them as whatis does
			python3 python3 runs the tests, and is references and clients of some
			shellcheck shellcheck reads the scripts
			systemd systemd-analyze reads the units of the daemon
			procps ps memory of the daemon under test
			util-linux setarch sanitizers need a fixed address layout on some kernels
		END
		;;
	check-all)
		cat <<-'END'
			abigail-tools abidiff the binary interface of the library
			clang clang second compiler, ThreadSanitizer
			openssl openssl certificate of the test with TLS
			stunnel4 stunnel TLS in front of the daemon
			nodejs node runs the OpenAI client against the daemon
			npm npm fetches the OpenAI client
			sparse sparse reads the driver for mistaken address spaces and byte orders
			perl - runs the kernel's checkpatch
			coccinelle spatch applies the kernel's semantic patches to the driver
			libpython3-dev - which Coccinelle loads for those in Python
		END
		echo "$(clang_runtime) - sanitizer runtimes of clang"
		[ "$(uname -m)" = aarch64 ] || cat <<-'END'
			gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc compiles the kernels for ARM
			libc6-dev-arm64-cross - C library of ARM
			qemu-user qemu-aarch64 runs programs for ARM
		END
		;;
	module)
		cat <<-'END'
			gcc gcc C compiler
			make make runs kbuild
			dpkg dpkg unpacks kernel headers into the build directory
		END
		;;
	deb)
		# dpkg-buildpackage asks for packages; commands from elsewhere do not satisfy it.
		cat <<-'END'
			build-essential - compiler, make and dpkg-buildpackage
			debhelper - the rules of Debian packages
			dh-dkms - packages the kernel module's sources
			meson - build system of user space
			pkg-config - finds libraries
		END
		;;
	vm)
		cat <<-'END'
			mmdebstrap mmdebstrap makes the file system of the guests
			squashfs-tools mksquashfs makes images of it
			cpio cpio makes the initramfs
			kmod depmod orders modules of Debian's kernels
			xz-utils xz unpacks them
			util-linux flock keeps two from making the same image
		END
		;;
	kernel)
		cat <<-'END'
			bc bc computes constants
			flex flex reads Kconfig files
			bison bison reads Kconfig files
			libelf-dev - reads objects
			libssl-dev - hashes
			xz-utils xz unpacks the sources
		END
		;;
	bare)
		cat <<-'END'
			mmdebstrap mmdebstrap makes bare roots
			git git hands the sources over as a clone
			lintian lintian reads the packages as a distribution does
			curl curl asks the container image's daemon
			python3-yaml - reads the files that start the container image
			util-linux unshare namespaces for the roots
		END
		[ "$(id -u)" -eq 0 ] || echo "uidmap newuidmap the roots have more than one user"
		;;
	*) usage ;;
	esac
}

# The sanitizer runtimes that fit the installed clang, or those of the default one.
clang_runtime() {
	if command -v clang >/dev/null 2>&1; then
		version=$(clang -dumpversion)
		echo "libclang-rt-${version%%.*}-dev"
	else
		echo libclang-rt-dev
	fi
}

installed() {
	dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
		awk '$2 == "installed" { sub(/:.*/, "", $1); print $1 }'
}

only_list=
if [ "${1:-}" = --list ]; then
	only_list=1
	shift
fi
[ $# -gt 0 ] || usage
for purpose in "$@"; do
	packages "$purpose" >/dev/null
done
# Of lines for the same package the first one counts.
list=$(for purpose in "$@"; do packages "$purpose"; done | sort -u -k 1,1)
if [ -n "$only_list" ]; then
	printf '%s\n' "$list" | cut -d ' ' -f 1
	exit 0
fi

# What a command answers for needs no look into the package database.
wanted=$(printf '%s\n' "$list" | while read -r name cmd why; do
	[ "$cmd" != - ] && command -v "$cmd" >/dev/null 2>&1 || printf '%s %s\n' "$name" "$why"
done)
[ -n "$wanted" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	commands=$(printf '%s\n' "$list" | while read -r name cmd why; do
		[ "$cmd" = - ] || command -v "$cmd" >/dev/null 2>&1 || echo "$cmd"
	done)
	echo "This is no Debian, so nothing is installed here. Needed (Debian's names):"
	printf '%s\n' "$wanted" | awk '{ n = $1; $1 = ""; printf "  %-20s%s\n", n, $0 }'
	[ -z "$commands" ] && exit 0
	echo "Missing commands: $(printf "%s" "$commands" | tr "\n" " ")" >&2
	exit 1
fi

# shellcheck disable=SC2046 # package names have no spaces
have=" $(installed $(printf '%s\n' "$wanted" | cut -d ' ' -f 1) | tr '\n' ' ')"
missing=$(printf '%s\n' "$wanted" | while read -r name why; do
	case $have in *" $name "*) ;; *) printf '%s %s\n' "$name" "$why" ;; esac
done)
[ -n "$missing" ] || exit 0

names=$(printf '%s\n' "$missing" | cut -d ' ' -f 1 | paste -s -d ' ')
echo "These Debian packages are needed and not installed yet:"
printf '%s\n' "$missing" | awk '{ n = $1; $1 = ""; printf "  %-20s%s\n", n, $0 }'

by_hand() {
	printf '\n%s, run this command as root:\n\n' "$1" >&2
	printf '  apt-get update && apt-get install -y --no-install-recommends %s\n\n' "$names" >&2
	exit 1
}

sudo=
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null 2>&1 || by_hand "Only root can install them. You are not root, and there is no sudo"
	sudo=sudo
	echo "They are installed with sudo, which may ask for your password."
fi

tmp=$(mktemp -d)
: >"$tmp/log" # not root's
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

# apt ARGUMENT... - apt-get; its output is shown only if it fails. sudo is outermost: nothing may write over
# its question for the password.
apt() {
	$sudo sh "$(dirname "$0")/progress.sh" "$tmp/log" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" || {
		tail -n 30 "$tmp/log" >&2
		by_hand "apt-get $1 failed. To try again by hand"
	}
}

echo "Fetching the lists of packages: apt-get update"
apt update
echo "Installing these packages and what they depend on: apt-get install --no-install-recommends"
# shellcheck disable=SC2086 # names are words
apt install -y --no-install-recommends $names
echo "Installed."
