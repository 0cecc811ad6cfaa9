#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bare.sh [-L] [-r FILE] SUITE - what a new user does, on a bare Debian SUITE (bookworm or trixie): README's first
# command (bookworm: as root, and what a user is told who may install nothing; trixie: as a user with sudo), the packages
# built, installed, used, installed again, removed and purged.
#
#   -L        packages (with trixie) and the container image (with bookworm) are built a second time, and must be the same
#   -r FILE   append the results there: OK, FAIL or SKIP, name, reason, separated by tabs
#
# The packages must please lintian; with trixie they go to a virtual machine, see tests/vm/packages.sh. They stay in
# build/bare/SUITE.debs. With bookworm they are made into a container image, which runs.
#
# A root file system with git, make and ca-certificates is made once, build/bare/SUITE.tar; all happens in
# fresh copies of it, in namespaces of their own. Downloaded packages are kept in build/bare/SUITE.archives.
# The whole output is in build/bare/SUITE.log. Stops at the first failure. Exit status 77: this machine
# cannot do it, the last line says why.
#
# shellcheck disable=SC2016 # many expressions here are for other shells
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=scripts/debian.sh
. scripts/debian.sh

usage() {
	sed -n '4,16s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

results=/dev/null long=''
while getopts Lr: option; do
	case $option in
	L) long=1 ;;
	r) results=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -eq 1 ] || usage
suite=$1
case $suite in
# The plain way: a git clone.
bookworm) dir=txda umask=022 language='' ;;
# The awkward one: an unpacked archive without .git, in a directory with a space, and an account that is set up
# in its own way.
trixie) dir='my txda' umask=077 language=de_DE.UTF-8 ;;
*) usage ;;
esac

mkdir -p "${B:=build}/bare"
bare=$(cd "$B/bare" && pwd)
archives=$bare/$suite.archives
debs=$bare/$suite.debs
log=$bare/$suite.log
start=$(date +%s)
: >"$log"

say() {
	printf 'bare %s [%3ds] %s\n' "$suite" $(($(date +%s) - start)) "$1" | tee -a "$log"
}

# record RESULT NAME [REASON]
record() {
	printf '%s\tbare %s: %s\t%s\n' "$1" "$suite" "$2" "${3:-}" >>"$results"
}

unable() {
	record SKIP all "$1"
	say "$1"
	exit 77
}

# passed NAME, failed NAME REASON - the result of one assertion.
passed() {
	record OK "$1"
	say "ok: $1"
}

failed() {
	sed -n "$step_line,\$p" "$log" | tail -n 200
	record FAIL "$1" "$2"
	say "FAILED: $1: $2; all output is in $log"
	exit 1
}

# check NAME COMMAND... - assert that COMMAND succeeds. Lines "@ok NAME" of its output are assertions of their
# own that passed.
check() {
	name=$1 status=0
	shift
	step_line=$(($(wc -l <"$log") + 1))
	"$@" >>"$log" 2>&1 || status=$?
	sed -n "$step_line,\$s/^@ok //p" "$log" >"$work/ok"
	while read -r part; do
		passed "$part"
	done <"$work/ok"
	[ $status -eq 0 ] || failed "$name" "exit status $status"
	passed "$name"
}

# in_machine - the packages on a machine with systemd and chips, which not every host can start.
in_machine() {
	step_line=$(($(wc -l <"$log") + 1))
	if sh tests/vm/prepare.sh root base >>"$log" 2>&1; then
		check "packages in a virtual machine" sh tests/vm/packages.sh "$debs"
	elif [ $? -eq 77 ]; then
		record SKIP "packages in a virtual machine" "$(tail -n 1 "$log")"
	else
		failed "packages in a virtual machine" "its root file system cannot be made"
	fi
}

# Root of a user namespace stands in for root.
map=
[ "$(id -u)" -eq 0 ] || map="--user --map-auto --map-root-user"

# outside COMMAND... - run a program on the host's files as the owner of the roots.
outside() {
	# shellcheck disable=SC2086 # words or none
	if [ -n "$map" ]; then unshare $map "$@"; else "$@"; fi
}

# inside ROOT USER - run the shell commands on standard input in ROOT, in a login shell of USER, with the
# fewest mounts that programs can live with. Whatever they started ends with them, or when they hang for good.
inside() {
	{ echo "dir=\$HOME/'$dir'" && cat scripts/bare-lib.sh -; } |
		outside sh -c 'umask 022 && cat >"$1/commands"' sh "$1" || return 1
	# shellcheck disable=SC2086 # words or none
	timeout --foreground -k 10 3600 unshare $map --mount --pid --fork --kill-child --ipc --uts sh -c '
		set -e
		root=$1
		hostname bare
		mount -t proc proc "$root/proc"
		mount -t tmpfs -o mode=755 dev "$root/dev"
		mkdir "$root/dev/pts"
		mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
		ln -s pts/ptmx "$root/dev/ptmx"
		ln -s /proc/self/fd "$root/dev/fd"
		for device in null zero full random urandom tty; do
			: >"$root/dev/$device"
			mount --bind "/dev/$device" "$root/dev/$device"
		done
		mount --bind "$3" "$root/var/cache/apt/archives"
		exec chroot "$root" su - "$2" -s /bin/sh -c "sh -eu /commands" </dev/null
	' sh "$1" "$2" "$archives"
}

make_root() {
	[ ! -e "$bare/$suite.tar" ] || return 0
	mirror=$(debian_mirror) || unable "apt's configuration names no Debian mirror, so no bare root can be made"
	say "making a bare root from $mirror"
	apt_proxies >"$bare/$suite.proxies"
	# Writing back each file of each package is for machines that keep them.
	if ! mmdebstrap --variant=minbase --include=git,make,ca-certificates --aptopt="$bare/$suite.proxies" \
		--dpkgopt=force-unsafe-io "$suite" "$bare/$suite.new" "$mirror" --format=tar >>"$log" 2>&1; then
		tail -n 20 "$log"
		unable "mmdebstrap cannot make a bare root, see above"
	fi
	mv "$bare/$suite.new" "$bare/$suite.tar"
}

# fresh ROOT - a copy of the bare root, with the sources as they come to a user: a repository to clone from
# and an archive.
fresh() {
	outside mkdir -p "$1"
	outside tar -C "$1" -xpf "$bare/$suite.tar" --exclude='./dev/*'
	outside cp "$work/txda.bundle" "$work/txda.tar" "$1/srv/"
	outside sh -c 'cat /etc/resolv.conf >"$1/etc/resolv.conf"' sh "$1"
	printf 'umask %s\n' "$umask" | outside tee "$1/etc/profile.d/umask.sh" >/dev/null
	[ -z "$language" ] || echo "export LANG=$language" | outside tee "$1/etc/profile.d/language.sh" >/dev/null
}

# pack - the tree as git knows it, as a git bundle and as a tar archive.
pack() {
	sh scripts/copy-source.sh "$work/source"
	(
		cd "$work/source"
		tar -cf "$work/txda.tar" .
		git init -q -b main
		git add -A -f
		git -c commit.gpgsign=false -c user.name=bare -c user.email=bare@localhost commit -q -m "The tree under test"
		git bundle create -q "$work/txda.bundle" HEAD main
	)
	chmod 644 "$work/txda.bundle" "$work/txda.tar"
}

# A user types README's first command before anything is installed.
as_user() {
	root=$work/user
	fresh "$root"
	check "a user is made" inside "$root" root <<-'END'
		useradd --create-home --shell /bin/bash tester
	END
	check "make demo without sudo fails, and names one command for root" inside "$root" tester <<-'END'
		git clone -q /srv/txda.bundle txda
		cd txda
		if make demo >~/out 2>&1; then
			exit 1
		fi
		cat ~/out
		grep 'apt-get install' ~/out >~/line
		[ "$(wc -l <~/line)" -eq 1 ]
	END
	case $suite in
	bookworm)
		check "that command works as it stands, and installs all that is missing" inside "$root" root <<-'END'
			sh -eu ~tester/line
			su tester -c 'cd ~/txda && sh scripts/deps.sh build demo' >~/out 2>&1
			cat ~/out
			[ ! -s ~/out ]
			# Root reads the sources of a user, whose repository git does not trust.
			sh ~tester/txda/scripts/copy-source.sh /tmp/copy
			diff -r --exclude=.git --exclude=build ~tester/txda /tmp/copy
			rm -r /tmp/copy
		END
		;;
	trixie)
		check "sudo is installed" inside "$root" root <<-'END'
			apt-get update -q
			apt-get install -q -y --no-install-recommends sudo
			echo 'tester ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/tester
		END
		check "make demo as a user" inside "$root" tester <<-'END'
			cd txda
			demo
		END
		;;
	esac
	outside rm -rf "$root"
}

# lint - errors and warnings of lintian. Packages of debug symbols are made by debhelper and cannot have overrides, see
# packaging/debian/overrides.
lint() {
	find "$debs" -name '*.deb' ! -name '*-dbgsym_*' -exec lintian --allow-root --fail-on error,warning {} + &&
		find "$debs" -name '*-dbgsym_*' -exec lintian --allow-root --fail-on error,warning \
			--suppress-tags bogus-mail-host {} +
}

# built_twice - what root built, in an awkward directory, is what someone else builds elsewhere.
built_twice() {
	check "another user builds the packages" inside "$root" root <<-'END'
		useradd --create-home --shell /bin/bash other
		cd ~other
		mkdir elsewhere
		tar -C elsewhere -xf /srv/txda.tar
		chown -R other: elsewhere
		su other -c 'umask 027 && cd elsewhere && exec env LC_ALL=C TZ=Pacific/Apia TMPDIR=$HOME make deb'
	END
	check "both builds are the same, bit for bit" inside "$root" root <<-'END'
		cd "$dir"
		for deb in build/deb/*.deb build/deb/dbgsym/*.deb; do
			cmp "$deb" ~other/elsewhere/"$deb"
		done
		userdel --remove other
	END
}

# Root gets the tree, makes the packages and uses them.
as_root() {
	root=$work/root
	fresh "$root"
	if [ "$dir" = txda ]; then
		check "git clone" inside "$root" root <<-'END'
			git clone -q /srv/txda.bundle "$dir"
		END
	else
		check "archive without git" inside "$root" root <<-'END'
			mkdir "$dir"
			tar -C "$dir" -xf /srv/txda.tar
		END
	fi
	[ "$suite" = trixie ] || check "make demo as root" inside "$root" root <<-'END'
		cd "$dir"
		demo
	END
	[ "$suite" = bookworm ] || check "curl is installed, as a client" inside "$root" root <<-'END'
		apt-get update -q
		apt-get install -q -y --no-install-recommends curl
	END
	check "make deb" inside "$root" root <<-'END'
		cd "$dir"
		make deb
		mkdir -p /srv/debs
		install -m 644 build/deb/*.deb build/deb/dbgsym/*.deb /srv/debs/
	END
	rm -rf "$debs"
	cp -r "$root/srv/debs" "$debs"
	check "lintian" lint
	[ -z "$long" ] || [ "$suite" = bookworm ] || built_twice
	check "apt-get install of the packages" inside "$root" root <<-'END'
		cd "$dir"
		apt-get install -y ./build/deb/*.deb
	END
	check "removal while the daemon serves" inside "$root" root <<-'END'
		echo "model = demo=$dir/tests/models/demo" >>/etc/txda/txdad.conf
		serve
		echo "@ok the installed txdad answers curl"
		txda-smi | grep 'TX8'
		txda-run --socket ~/socket --model demo --raw --temperature 0 -n 20 "Once upon a time" | grep '[a-z]'
		txdactl --socket ~/socket models | grep demo
		echo "@ok the installed tools work"
		cd "$dir"
		apt-get install -y --reinstall ./build/deb/*.deb
		grep "^model = demo=$dir" /etc/txda/txdad.conf
		echo "@ok installing again keeps the settings"
		systemd_state
		# No systemd stops the daemon here: it goes on until it is told, and leaves nothing.
		apt-get remove -y $(packages)
		grep "^model = demo=$dir" /etc/txda/txdad.conf
		[ -e /var/lib/txda/file ]
		answers ~/socket
		kill $daemon
		wait $daemon
		[ ! -e ~/socket ]
		rm -r ~/cache ~/txdad.log
	END
	check "purge after that leaves no file of the name" inside "$root" root <<-'END'
		apt-get purge -y txdad txda-tools
		# Directories in /tmp are those of users, for the simulated chips.
		find / -xdev \( -path "$HOME" -o -path /srv -o -path /tmp \) -prune -o -name '*txda*' -print | tee ~/left
		[ ! -s ~/left ]
	END
	# What the packages depend on is installed by now, and stays.
	check "purge leaves everything as it was" inside "$root" root <<-'END'
		cd "$dir"
		sh scripts/older-debs.sh ~/older 0.0.0 build/deb/*.deb
		snapshot >~/before
		apt-get install -y ~/older/*.deb
		echo "model = demo=$dir/tests/models/demo" >>/etc/txda/txdad.conf
		cp /etc/txda/txdad.conf ~/settings
		serve
		apt-get install -y ./build/deb/*.deb
		[ "$(dpkg-query -W -f '${Version}' txdad)" = "$(dpkg-deb -f build/deb/txdad_*.deb Version)" ]
		answers ~/socket
		kill $daemon
		wait $daemon
		cmp ~/settings /etc/txda/txdad.conf
		serve
		kill $daemon
		wait $daemon
		echo "@ok an upgrade while the daemon serves keeps the settings"
		systemd_state
		apt-get purge -y $(packages)
		snapshot >~/after
		diff ~/before ~/after
	END
	check "what README and docs/install.md tell root to type" inside "$root" root <<-'END'
		cd "$dir"
		sh tests/docs/commands.sh --place bare
	END
	outside rm -rf "$root"
}

# The packages as a container image.
as_image() {
	check "a container image of the packages" sh packaging/container/image.sh -s "$suite" "$debs" "$work/image.tar"
	if [ -n "$long" ]; then
		check "the image made again" sh packaging/container/image.sh -s "$suite" "$debs" "$work/again.tar"
		check "both images are the same, bit for bit" cmp "$work/image.tar" "$work/again.tar"
	fi
	mkdir "$work/image"
	# shellcheck disable=SC2086 # words or none
	check "the image runs as the compose file says" timeout --foreground -k 10 600 \
		unshare $map --mount --net --pid --fork --kill-child --ipc --uts sh tests/container/run.sh "$work/image.tar" "$work/image"
}

sh scripts/deps.sh bare || unable "packages for it are missing, see above"
# shellcheck disable=SC2086 # words or none
unshare $map --mount --pid --fork --ipc --uts sh -c 'mount -t proc proc /proc' 2>>"$log" ||
	unable "no namespaces for a root file system can be made here, as $(id -un)"
work=$(mktemp -d "$bare/$suite.XXXXXX")
trap 'outside rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
outside mkdir -p "$archives"
make_root
pack
as_user
as_root
if [ "$suite" = trixie ]; then in_machine; else as_image; fi
say "done"
