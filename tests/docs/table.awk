# SPDX-License-Identifier: MIT
#
# table.awk commands.table COMMANDS - joins what extract.awk printed with the table: lines of PLACE, FILE:LINE, COMMAND and what is
# to be run (as), input, output, each followed by the unit separator. A row that no document needs is an error, one that says too
# little, and a command without a row that may do more to a machine than a program of ours or curl.
BEGIN { sep = "\037" }

FNR == NR && (/^#/ || /^$/) { next }
FNR == NR && /^\t/ {
	key = $1
	sub(/^\t[a-z]+: /, "")
	if (key !~ /^(why|as|input|output):$/)
		complain(FILENAME ":" FNR ": '" key "' is not why, as, input or output")
	known[command, key] = $0
	next
}
FNR == NR {
	place = $1
	command = substr($0, length(place) + 2)
	if (place !~ /^(here|bare|dkms|vm|stage|none)$/)
		complain(FILENAME ":" FNR ": '" place "' is no place")
	if (command in places)
		complain(FILENAME ":" FNR ": a second row for: " command)
	places[command] = place
	rows[command] = FILENAME ":" FNR
	next
}
{
	where = $0
	sub(/\t.*/, "", where)
	command = substr($0, length(where) + 2)
	used[command] = 1
	as = (command, "as:") in known ? known[command, "as:"] : command
	place = command in places ? places[command] : "here"
	if (!(command in places) && !is_harmless(command))
		complain(where ": no row of commands.table says where this runs: " command)
	else
		print place sep where sep command sep as sep known[command, "input:"] sep known[command, "output:"] sep
}

END {
	for (command in places) {
		if (!(command in used))
			complain(rows[command] ": no document shows this any more: " command)
		if (places[command] ~ /stage|none/ && !((command, "why:") in known))
			complain(rows[command] ": without a reason: " command)
	}
	exit failed
}

function is_harmless(command)
{
	while (match(command, /^[A-Z_]+=("[^"]*"|[^ ]*) /))
		command = substr(command, RLENGTH + 1)
	return command ~ /^((build\/bin\/)?txda[a-z-]*|curl) / && command !~ /[|;`$]|&.*[^ ]/
}

function complain(what)
{
	print what >"/dev/stderr"
	failed = 1
}
