#!/bin/sh
# SPDX-License-Identifier: MIT
#
# packages.sh DIR - the Debian packages in DIR, built for the guests' release, as a user of Debian's current stable
# meets them: installed with apt, the module built by DKMS, a chip plugged in, an answer for who is in the group, an upgrade
# while the daemon serves, removal while it serves, purge. What passed is printed as lines "@ok NAME". Exit status 77:
# it cannot be done here, the last line says why.
#
# DKMS builds on the host, in a root file system of its own: a compiler takes its time on an emulated processor. There it
# also does what the documents say to type about it, and leaves out kernels that cannot have the module. All else happens
# in the machine, where systemd and udev run, with guest/packages.sh.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"
if [ $# -ne 1 ] || [ ! -d "$1" ]; then
	sed -n '4,11s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
debs=$(cd "$1" && pwd)
# The kernel of Debian's current stable.
k=6.12
sh "$top/tests/vm/prepare.sh" root base
sh "$top/tests/vm/prepare.sh" kernel $k
release=$(cat "$vm/kernel/$k/release")
# What apt would fetch comes with the root file system, since there is no network.
for deb in "$debs"/libtxda0_*.deb "$debs"/txda-tools_*.deb "$debs"/txdad_*.deb "$debs"/txda-dkms_*.deb; do
	dpkg-deb -f "$deb" Depends | tr , '\n' | sed 's/^ *//; s/[ (:|].*//'
done | sort -u | grep -v txda >"$vm/packages.depends"
# shellcheck disable=SC2046 # names are words
sh "$top/tests/vm/prepare.sh" root dkms "linux-headers-$release" $(cat "$vm/packages.depends")
# Root of a user namespace stands in for root.
map=
[ "$(id -u)" -eq 0 ] || map="--user --map-auto --map-root-user"
# outside COMMAND... - run a program on the host's files as the owner of the root.
outside() {
	# shellcheck disable=SC2086 # words or none
	if [ -n "$map" ]; then unshare $map "$@"; else "$@"; fi
}
work=$(mktemp -d "$vm/packages.XXXXXX")
trap 'outside rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
root=$work/root
mkdir -p "$root" "$work/stage/models" "$work/stage/debs" "$work/stage/sysroot/usr/lib/modules"
outside tar -C "$root" -xpf "$vm/root-dkms.tar" --exclude='./dev/*'
outside cp -r "$vm/kernel/$k/tree/usr/lib/modules" "$root/usr/lib/"
outside mkdir "$root/debs" "$root/documents"
outside cp "$debs"/*.deb "$root/debs/"
(cd "$top" && outside cp -a --parents README.md CONTRIBUTING.md docs scripts/demo.sh tests/docs "$root/documents/")

# in_root - run the shell commands on standard input in the root, with $release for $1.
in_root() {
	# shellcheck disable=SC2016,SC2086 # for the inner shell; words or none
	unshare $map --mount sh -c 'mount --rbind /dev "$1/dev" && mount --rbind /proc "$1/proc" && exec chroot "$1" sh -eu -s "$2"' \
		sh "$root" "$release"
}

in_root <<'END'
# The running kernel is the host's, not that of this root file system.
apt-get install -q -y --no-install-recommends /debs/txda-dkms_*.deb || {
	cat /var/lib/dkms/txda/*/build/make.log
	exit 1
}
dkms status txda -k "$1" | grep installed
modinfo -k "$1" -F filename txda | grep "/updates/dkms/txda.ko"
version=$(dkms status txda | sed -n 's,^txda/\([^,]*\).*,\1,p' | head -n 1)
# Kernels that cannot have the module: one is too old, one was built without the accel subsystem.
for none in 6.1.0-0-amd64 6.12.0-0-amd64; do
	mkdir -p /usr/src/linux-headers-$none/include/config /usr/lib/modules/$none
	echo CONFIG_PCI=y >/usr/src/linux-headers-$none/.config
	echo $none >/usr/src/linux-headers-$none/include/config/kernel.release
	ln -s /usr/src/linux-headers-$none /usr/lib/modules/$none/build
	status=0
	dkms build "txda/$version" -k $none >/exclusive 2>&1 || status=$?
	cat /exclusive
	if [ $status -ne 77 ] || ! grep -q BUILD_EXCLUSIVE /exclusive; then
		echo "DKMS does not leave out kernel $none: exit status $status"
		exit 1
	fi
	! dkms status txda -k $none | grep $none
	rm -r /usr/lib/modules/$none /usr/src/linux-headers-$none
done
echo "@ok DKMS builds for a kernel that can have the module, and leaves out others"
# The documents' commands use the release of the running kernel.
cat >/usr/local/bin/uname <<-SCRIPT
	#!/bin/sh
	[ "\$*" != -r ] || exec echo $1
	exec /usr/bin/uname "\$@"
SCRIPT
chmod +x /usr/local/bin/uname
sh /documents/tests/docs/commands.sh --place dkms
echo "@ok what the documents say to type about DKMS"
dkms status txda | grep "$1" || dkms install "txda/$version" -k "$1"
rm -r /debs /documents /exclusive /usr/local/bin/uname
END
cp -a "$root/usr/lib/modules/$release" "$work/stage/sysroot/usr/lib/modules/"
image "$root" "$work/root.img"
cp "$debs"/*.deb "$work/stage/debs/"
sh "$top/scripts/older-debs.sh" "$work/stage/older" 0.0.0 "$work"/stage/debs/libtxda0_*.deb \
	"$work"/stage/debs/txda-tools_*.deb "$work"/stage/debs/txdad_*.deb
cp -r "$top/tests/models/demo" "$work/stage/models/"

# The device model is that of the packages, too, with the libraries of their release.
dpkg-deb -x "$work"/stage/debs/txda-tools_*.deb "$work/tools"
cat >"$work/model" <<END
#!/bin/sh
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$work/tools/usr/bin/txda-cmodel" "\$@"
END
chmod +x "$work/model"
sh "$top/tests/vm/run.sh" -k $k -n 1 -i msi -s -p -l 900 -R "$work/root.img" -t "$work/stage" -M "$work/model" -- 'sh /rig/guest/packages.sh'
