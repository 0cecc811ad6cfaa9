# SPDX-License-Identifier: MIT
#
# extract.awk FILE... - prints the command lines that Markdown and manual pages show, as FILE:LINE<tab>COMMAND.
#
# They are: in Markdown the lines of ```sh blocks, and `code` in a line of text that begins with a program's name and says more
# than that; in manual pages the lines of literal blocks (.nf, .EX, .Bd) but for those of the SYNOPSIS and those that a comment
# .\" no commands or .\" a program in C stands above; in scripts the indented lines of a here-document. A line goes on while it ends in a
# backslash or a quote is open. "a && b" are two, since each may have another place to run in, but "a && cd b" is one. A block
# of Markdown that does not say what it is written in is an error.

FNR == 1 {
	if (fence != "")
		complain(started, "this block has no end")
	fence = span = before = line = ""
	in_span = literal = no_commands = 0
	section = ""
	page = FILENAME ~ /\.[1-8]$/
	script = FILENAME ~ /\.sh$/
	here = 0
}

script { script_line($0); next }

page { manual_line($0); next }

fence == "" && /^ *```/ {
	in_span = 0
	started = FNR
	fence = $0
	sub(/^ *```/, "", fence)
	if (fence == "") {
		complain(FNR, "this block does not say what it is written in (```sh: command lines that the tests run; ```text)")
		fence = "text"
	}
	next
}
/^ *```/ { fence = ""; flush(); next }
fence == "sh" { shell_line($0); next }
fence != "" { next }
/^(    |\t)/ && before == "" { complain(FNR, "a block by indentation does not say what it is written in: use ```sh or ```text") }
{ before = $0; text_line($0) }

END {
	if (fence != "")
		complain(started, "this block has no end")
	exit failed
}

function complain(at, what)
{
	printf "%s:%d: %s\n", FILENAME, at, what >"/dev/stderr"
	failed = 1
}

# Code within text; it may go on in the next line of its paragraph.
function text_line(s,   parts, n, i)
{
	if (s ~ /^ *$/) {
		in_span = 0
		return
	}
	if (in_span) # as a list's lines are indented
		sub(/^ +/, "", s)
	n = split(s, parts, "`")
	for (i = 1; i <= n; i++) {
		if (i > 1) {
			if (in_span && is_command(span))
				split_command(span_at, span)
			in_span = !in_span
			span = ""
			span_at = FNR
		}
		if (in_span)
			span = span (span == "" || i > 1 ? "" : " ") parts[i]
	}
}

function is_command(s,   first)
{
	while (match(s, /^[A-Z_]+=("[^"]*"|[^ ]*) /))
		s = substr(s, RLENGTH + 1)
	first = s
	sub(/ .*/, "", first)
	if (first ~ /^build\/.*bin\/./)
		return 1
	return s ~ / / && first ~ /^(txda[a-z-]*|[a-z]+\/[^ ]*|make|curl|sudo|sh|meson|ninja|git|python3|man|apt|apt-get|apt-cache|dpkg|dkms|echo|systemctl|udevadm|mokutil|modprobe|insmod|rmmod|modinfo)$/
}

function manual_line(s)
{
	if (s ~ /^\.S[Hh]/)
		section = s
	if (s ~ /^\.\\" (no commands|a program in C)/)
		no_commands = 1
	else if (s ~ /^\.(nf|EX|Bd)/)
		literal = 1
	else if (s ~ /^\.(fi|EE|Ed)/) {
		literal = no_commands = 0
		flush()
	} else if (literal && !no_commands && section !~ /SYNOPSIS/ && s !~ /^\./) {
		gsub(/\\-/, "-", s)
		gsub(/\\[\\e]/, "\\", s)
		gsub(/\\\(aq/, "'", s)
		shell_line(s)
	}
}

# What a script says to its user in a here-document: command lines are indented.
function script_line(s)
{
	if (s ~ /<<END$/)
		here = 1
	else if (s == "END")
		here = 0
	else if (here && s ~ /^  /) {
		gsub(/\$B\//, "build/", s)
		gsub(/\\\\/, "\\", s)
		shell_line(s)
	}
}

# A line of a block: complete, or the beginning or continuation of a command.
function shell_line(s)
{
	if (line == "")
		line_at = FNR
	sub(/^ +/, "", s)
	line = line (line == "" ? "" : " ") s
	if (line ~ /\\$/)
		sub(/ *\\$/, "", line)
	else if (!quoted(line))
		flush()
}

function flush()
{
	if (line != "")
		split_command(line_at, line)
	line = ""
}

# Is a quote open at the end of s? Leaves in joint[] where && stands outside of quotes, and in comment where a comment begins.
function quoted(s,   i, c, quote)
{
	joints = comment = 0
	for (i = 1; i <= length(s); i++) {
		c = substr(s, i, 1)
		if (quote != "") {
			if (c == quote)
				quote = ""
		} else if (c == "'" || c == "\"")
			quote = c
		else if (c == "#" && (i == 1 || substr(s, i - 1, 1) == " ")) {
			comment = i
			return 0
		} else if (substr(s, i, 4) == " && ")
			joint[++joints] = i
	}
	return quote != ""
}

function split_command(at, s,   i, from)
{
	quoted(s)
	if (comment)
		s = substr(s, 1, comment - 1)
	from = 1
	for (i = 1; i <= joints; i++) {
		if (substr(s, joint[i] + 4) ~ /^cd /)
			continue
		print_command(at, substr(s, from, joint[i] - from))
		from = joint[i] + 4
	}
	print_command(at, substr(s, from))
}

function print_command(at, s)
{
	gsub(/^ +| +$/, "", s)
	if (s != "")
		printf "%s:%d\t%s\n", FILENAME, at, s
}
