#!/bin/sh
# Fetches the Redis-like servers of Debian's suites into bin/servers, without installing any, and
# writes them to bin/servers/list as ONERUN_REDIS_SERVERS expects them. A server comes with the
# libraries of its suite. What cannot be had is named on stderr and left out.
#
# Usage: internal/verify/servers/fetch.sh, in the root of the repository.
set -u
root=$PWD/bin/servers
mkdir -p "$root"
: > "$root/list"

uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
	grep -v security | grep '/debian/*$' | sort -u | head -n 1)
if [ -z "$uri" ]; then
	echo "no source of Debian packages is configured: nothing is fetched" >&2
	exit 0
fi

# fetch SUITES PACKAGE PROGRAM takes the package from the first suite, and what it needs from all
# of them.
fetch() {
	suites=$1 package=$2 program=$3 first=${1%% *}
	dir=$root/$first-$package
	apt=$dir/apt
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/etc"
	printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$uri" "$suites" > "$apt/etc/debian.sources"
	get() {
		apt-get -qq -o Dir::Etc::sourcelist="$apt/etc/debian.sources" -o Dir::Etc::sourceparts=/dev/null \
			-o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" -o Dir::State::status=/dev/null \
			-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
			-o APT::Sandbox::User=root -o Acquire::Retries=2 "$@"
	}
	get update &&
		get install --download-only --yes --no-install-recommends --target-release "$first" "$package" || return 1
	rm -rf "$dir/files" && mkdir -p "$dir/files"
	for deb in "$apt"/cache/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dir/files" --no-same-owner --exclude='./dev/*' || return 1
	done
	loader=$(find "$dir/files" -name 'ld-linux*.so*' | head -n 1)
	libraries=$(find "$dir/files" -name '*.so*' -exec dirname {} + | sort -u | tr '\n' ':')
	server=$dir/files/usr/bin/$program
	[ -n "$loader" ] && [ -e "$server" ] || return 1
	# Only what the program needs is kept.
	rm -rf "$dir/bin" && mkdir -p "$dir/bin"
	cp -L "$server" "$dir/bin/redis-server" && cp -L "$loader" "$dir/bin/loader" &&
		"$loader" --library-path "$libraries" --list "$server" | sed -n 's/.* => \([^ ]*\) .*/\1/p' |
		while read -r library; do cp -L "$library" "$dir/bin/"; done
	rm -rf "$apt" "$dir/files"
	cat > "$dir/redis-server" <<-WRAPPER
		#!/bin/sh
		exec "$dir/bin/loader" --library-path "$dir/bin" "$dir/bin/redis-server" "\$@"
	WRAPPER
	chmod +x "$dir/redis-server"
	version=$("$dir/redis-server" --version) || return 1
	echo "$first $package: $version"
	echo "Debian $first $package=$dir/redis-server" >> "$root/list"
}

try() {
	fetch "$@" > "$root/log" 2>&1 && tail -n 1 "$root/log" && return
	echo "not to be had: $2 of $1" >&2
	sed 's/^/  /' "$root/log" | tail -n 3 >&2
}

try "bookworm-backports bookworm" valkey-server valkey-server
try "bookworm-backports bookworm" redict-server redict-server
try "trixie" redis-server redis-server
try "trixie" valkey-server valkey-server
try "sid" redis-server redis-server
try "sid" valkey-server valkey-server
try "experimental sid" redis-server redis-server
