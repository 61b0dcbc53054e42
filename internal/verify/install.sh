#!/bin/sh
# install.sh NAME...: installs what tests need and this machine lacks, on Debian and Ubuntu. make
# runs it. The names are redis, postgres, mysql, etcd, oldest-etcd (that of Debian), rabbitmq,
# chromium, spin, promtool, shells (zsh and fish) and fleets (redis-py, and libraries of Node.js in
# bin/fleets).
set -eu
cd "$(dirname "$0")/../.."
export PATH="$PATH:/usr/sbin:$PWD/bin"

# packages WHY OPTIONS NAME... installs packages.
packages() {
	echo "== $1: installing it"
	shift
	sudo=$(test "$(id -u)" = 0 || echo sudo)
	$sudo apt-get update -qq
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"
}

# stop NAME stops a service that a package has started: tests start their own servers.
stop() {
	$(test "$(id -u)" = 0 || echo sudo) service "$1" stop || true
}

# take PROGRAM PACKAGE takes one program out of a package, which would start a service, into bin.
take() (
	echo "== $1 is missing: taking it out of the package $2"
	$(test "$(id -u)" = 0 || echo sudo) apt-get update -qq
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	(cd "$dir" && apt-get download -qq "$2" && dpkg-deb --fsys-tarfile "$2"_*.deb | tar -x "./usr/bin/$1")
	install -D "$dir/usr/bin/$1" "bin/$1"
)

has() {
	command -v "$1" >/dev/null 2>&1
}

for name in "$@"; do
	case $name in
	redis)
		has redis-server || { packages "redis-server is missing" redis-server && stop redis-server; }
		;;
	postgres)
		{ ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || has initdb; } && has pgbouncer || {
			packages "PostgreSQL or PgBouncer is missing" postgresql pgbouncer
			stop pgbouncer
			stop postgresql
		}
		;;
	mysql)
		has mariadbd && has mariadb-install-db || { packages "MariaDB is missing" mariadb-server && stop mariadb; }
		;;
	etcd) # the go command builds it, and keeps it in its cache
		(cd internal/testkit/etcdtest/server && GOWORK=off GOFLAGS=-trimpath CGO_ENABLED=0 go tool -n go.etcd.io/etcd/server/v3 >/dev/null)
		;;
	rabbitmq)
		test -x /usr/lib/rabbitmq/bin/rabbitmq-server || {
			packages "RabbitMQ is missing" --no-install-recommends rabbitmq-server
			stop rabbitmq-server
		}
		;;
	chromium) # Debian's name, Ubuntu's, and that of Google's build
		has chromium || has chromium-browser || has google-chrome ||
			packages "Chromium is missing" --no-install-recommends chromium fonts-dejavu-core
		;;
	spin)
		has spin || packages "spin is missing" spin gcc libc6-dev
		;;
	promtool)
		has promtool || take promtool prometheus
		;;
	oldest-etcd) # beside the one that the go command builds
		test -x bin/etcd || take etcd etcd-server
		;;
	shells)
		has zsh && has fish || packages "zsh or fish is missing" --no-install-recommends zsh fish
		;;
	fleets)
		{ python3 -c 'import redis' || /usr/bin/python3 -c 'import redis'; } >/dev/null 2>&1 ||
			packages "redis-py is missing" python3-redis
		has npm || packages "npm is missing" nodejs npm
		cmp -s bench/fleet/package.json bin/fleets/package.json || {
			echo "== installing libraries of Node.js into bin/fleets"
			rm -rf bin/fleets && mkdir -p bin/fleets
			(cd bin/fleets && cp ../../bench/fleet/package.json . &&
				npm install --silent --no-audit --no-fund --no-package-lock) || { rm -rf bin/fleets; exit 1; }
		}
		;;
	*)
		echo "install.sh: no such name: $name" >&2
		exit 2
		;;
	esac
done
