# SPDX-License-Identifier: MIT
# bash completion of txdad and the txda tools. Options, what their values are, and subcommands come from
# each program's own --help, so this never lags behind them.

# What --help says stands behind an option: FILE, USER, "start|demand", ... Underscores are dashes.
_txda_value() {
	"$1" --help 2>/dev/null | sed -n "s/.*${2//_/-}[ =]\([^ ,]*\).*/\1/p;T;q"
}

# Completes the value of an option, as far as it is known what it may be; false: it has none.
_txda_values() {
	local cur=$2 value
	value=$(_txda_value "$1" "$3")
	case $value in
	PATH* | *]PATH | FILE | CASE | HF_DIR)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	DIR)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		;;
	USER) mapfile -t COMPREPLY < <(compgen -u -- "$cur") ;;
	GROUP) mapfile -t COMPREPLY < <(compgen -g -- "$cur") ;;
	FORMAT)
		# A list of words that ends the description.
		value=$("$1" --help | sed -n "/^ *${3//_/-} /,/^ *--/p" | sed '2,$ { /^ *--/d; }; s/.*)://; s/,/ /g')
		mapfile -t COMPREPLY < <(compgen -W "$value" -- "$cur")
		;;
	LEVEL) mapfile -t COMPREPLY < <(compgen -W "error warning info debug" -- "$cur") ;;
	*[a-z]\|[a-z]*) mapfile -t COMPREPLY < <(compgen -W "${value//|/ }" -- "$cur") ;;
	[A-Z]*) ;;
	*) return 1 ;;
	esac
}

_txda() {
	local cur=$2 prev=$3 help
	# bash takes --option=value for three words.
	[[ $cur == = ]] && cur=
	[[ $prev == = || $2 == = ]] && prev=${COMP_WORDS[COMP_CWORD - 1]}
	[[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}
	if [[ $prev =~ ^--[a-z_-]+$ ]] && _txda_values "$1" "$cur" "$prev"; then
		return
	fi
	if [[ $cur == -* ]]; then
		help=$("$1" --help 2>/dev/null | sed 's/--\[no-\]\([a-z-]*\)/--\1 --no-\1/g' |
			grep -oE -- '(^|[ ,[])--[a-z][a-z-]*' | tr -d ' ,[' | sort -u)
		mapfile -t COMPREPLY < <(compgen -W "$help" -- "$cur")
		return
	fi
	if [[ ${1##*/} == txdactl && $prev =~ ^(load|wake|unload|sleep|pin|unpin|plan)$ ]]; then
		help=$("$1" models 2>/dev/null | sed -n '2,$s/ .*//p')
		mapfile -t COMPREPLY < <(compgen -W "$help" -- "$cur")
		return
	fi
	if [[ ${1##*/} == txdactl && $prev == cancel ]]; then
		help=$("$1" requests 2>/dev/null | sed -n '2,$s/ .*//p')
		mapfile -t COMPREPLY < <(compgen -W "$help" -- "$cur")
		return
	fi
	if [[ ${1##*/} =~ ^(txda-smi|txda-cdi|txdactl)$ ]] && [[ $COMP_CWORD -eq 1 ]]; then
		help=$("$1" --help 2>/dev/null | sed -n "s/^ *${1##*/} \([a-z][a-z]*\) .*/\1/p")
		mapfile -t COMPREPLY < <(compgen -W "$help" -- "$cur")
		return
	fi
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
complete -F _txda txdad txdad-text txdactl txda-run txda-smi txda-cdi txda-compile txda-verify txda-decode txda-bench txda-holder txda-cmodel
