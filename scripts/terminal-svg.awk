# SPDX-License-Identifier: MIT
#
# terminal-svg.awk FILE - draws what a program wrote to a terminal as an SVG: lines of 80 columns, bold, and the colours red and green.
# Longer lines go on in the next row, as in a terminal. Each piece of a row is stretched to its columns, so that it does not matter
# which monospaced font a reader has. Run with LC_ALL=C: a character is its first byte and the continuation bytes behind it.
BEGIN {
	columns = 80
	wide = 8.4
	high = 18
	margin = 16
}

{
	column = 0
	rest = $0
	while (rest != "") {
		if (match(rest, /^\033\[[0-9;]*m/)) {
			put()
			style(substr(rest, 3, RLENGTH - 3))
		} else if (match(rest, /^\033\[[0-9;?]*[A-Za-z]/) || match(rest, /^[\001-\037]/)) {
			# It moves the cursor or erases, which the programs do not do with what is shown.
		} else {
			match(rest, /^.[\200-\277]*/)
			if (column == columns)
				new_row()
			piece = piece substr(rest, 1, RLENGTH)
			column++
		}
		rest = substr(rest, RLENGTH + 1)
	}
	new_row()
}

END {
	print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" columns * wide + 2 * margin "\" height=\"" rows * high + 2 * margin "\">\n<!-- SPDX-License-Identifier: MIT -->"
	print "<style>text { font: 14px 'DejaVu Sans Mono', Menlo, Consolas, monospace; white-space: pre; fill: #d8dee9 }"
	print ".b { font-weight: bold } .red { fill: #ff7b72 } .green { fill: #7ee787 }</style>"
	print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>"
	printf "%s", drawn
	print "</svg>"
}

function style(codes,   n, i, code) {
	n = split(codes, code, ";")
	if (n == 0)
		bold = colour = ""
	for (i = 1; i <= n; i++) {
		if (code[i] + 0 == 0)
			bold = colour = ""
		else if (code[i] == 1)
			bold = "b"
		else if (code[i] == 31)
			colour = "red"
		else if (code[i] == 32)
			colour = "green"
	}
}

function new_row() {
	put()
	rows++
	column = begin = 0
}

# Draws the piece of a row that has one style.
function put(   class, n) {
	n = column - begin
	gsub(/&/, "\\&amp;", piece)
	gsub(/</, "\\&lt;", piece)
	gsub(/>/, "\\&gt;", piece)
	class = bold (bold != "" && colour != "" ? " " : "") colour
	if (piece ~ /[^ ]/)
		drawn = drawn sprintf("<text xml:space=\"preserve\" x=\"%.1f\" y=\"%d\" textLength=\"%.1f\"%s>%s</text>\n", margin + begin * wide,
			margin + rows * high + 13, n * wide, class == "" ? "" : " class=\"" class "\"", piece)
	piece = ""
	begin = column
}
