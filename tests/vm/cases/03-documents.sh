#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=systemd plug=later about=user
# What the documents say to type about the module, units and users of an installed system.
. /rig/guest/lib.sh
install_module
plug 0 || fail "no chip"
sh /t/documents/tests/docs/commands.sh --place vm || fail "a command of the documents fails"
loaded || fail "the module is not loaded"
for group in render txda; do
	id -nG nobody | grep -qw $group || fail "nobody is not in group $group: $(id nobody)"
done
[ "$(systemctl is-enabled txdad.service)" = masked ] || fail "the daemon is not masked"
systemctl unmask txdad.service
unplug_all
