#compdef onerun
# zsh completion of onerun: source <(onerun completion zsh), after compinit
_onerun() {
	local line at
	local -a found
	while IFS= read -r line; do
		case $line in
		:files) _files; return ;;
		:command*)
			at=${line#:command }
			shift $at words
			((CURRENT -= at))
			_normal
			return
			;;
		*)
			line=${line//:/\\:}
			found+=("${line/$'\t'/:}")
			;;
		esac
	done < <(onerun __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)
	_describe onerun found
}
compdef _onerun onerun
