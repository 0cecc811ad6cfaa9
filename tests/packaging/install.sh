#!/bin/sh
# SPDX-License-Identifier: MIT
#
# install.sh BUILD MESON... - settings are installed, and installing again keeps them as they are by then.
set -eu
build=$1
shift
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root="$tmp/a root"

install_settings() {
	"$@" install -C "$build" --no-rebuild --destdir "$root" --tags settings
}
install_settings "$@"
settings=$(find "$root" -name txdad.conf)
find "$root" -name txda.com-daemon.json | grep .
[ "$(stat -c %a "$settings")" = 644 ]
echo 'model = mine=/srv/models/mine' >>"$settings"
cp "$settings" "$tmp/edited"
install_settings "$@"
cmp "$tmp/edited" "$settings"
# Also a link to settings that are elsewhere, and not there at the moment.
ln -sf "$tmp/elsewhere" "$settings"
install_settings "$@"
[ "$(readlink "$settings")" = "$tmp/elsewhere" ]
[ ! -e "$tmp/elsewhere" ]
