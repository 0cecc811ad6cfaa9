#!/bin/sh
# SPDX-License-Identifier: MIT
#
# packages.sh DIR - the Debian packages in DIR, built for the guests' release, as a user of Debian's current stable
# meets them: installed with apt, the module built by DKMS, a chip plugged in, an answer for who is in the group, an upgrade
# while the daemon serves, removal while it serves, purge. What passed is printed as lines "@ok NAME". Exit status 77:
# it cannot be done here, the last line says why.
#
# DKMS builds on the host, in a scratch copy of the guests' root file system: a compiler takes its time on an
# emulated processor. All else happens in the machine, where systemd and udev run, with guest/packages.sh.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"
if [ $# -ne 1 ] || [ ! -d "$1" ]; then
	sed -n '4,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
debs=$(cd "$1" && pwd)
# The kernel of Debian's current stable.
k=6.12
sh "$top/tests/vm/prepare.sh" root
sh "$top/tests/vm/prepare.sh" kernel $k
release=$(cat "$vm/kernel/$k/release")
lower=$vm/kernel/$k/tree:$root
work=$(mktemp -d "$vm/packages.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
mkdir -p "$work/upper/debs" "$work/work" "$work/root" "$work/stage/models"
in_copy true || unable "no overlay of the root file system can be mounted here"
cp "$debs"/*.deb "$work/upper/debs/"
in_copy sh -eu -s "$release" <<'END'
# Whose kernel runs here is not whose kernel this is.
apt-get install -q -y --no-install-recommends /debs/txda-dkms_*.deb || {
	cat /var/lib/dkms/txda/*/build/make.log
	exit 1
}
dkms status txda -k "$1" | grep installed
rm -r /debs
END
mv "$work/upper" "$work/stage/sysroot"
mkdir "$work/stage/debs"
cp "$debs"/*.deb "$work/stage/debs/"
sh "$top/scripts/older-debs.sh" "$work/stage/older" 0.0.0 "$work"/stage/debs/libtxda0_*.deb \
	"$work"/stage/debs/txda-tools_*.deb "$work"/stage/debs/txdad_*.deb
cp -al "$top/tests/models/demo" "$work/stage/models/" 2>/dev/null || cp -r "$top/tests/models/demo" "$work/stage/models/"

# The device model is that of the packages, too.
dpkg-deb -x "$work"/stage/debs/txda-tools_*.deb "$work/tools"
cat >"$work/model" <<END
#!/bin/sh
exec "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \\
	"$work/tools/usr/bin/txda-cmodel" "\$@"
END
chmod +x "$work/model"
sh "$top/tests/vm/run.sh" -k $k -n 1 -i msi -s -p -l 900 -t "$work/stage" -M "$work/model" -- 'sh /rig/guest/packages.sh'
