# make test     what tells a contributor whether a change is right: unit tests, the suite of the
#               backends on real Redis servers, each adapter on its framework, a short simulation.
#               With the race detector, in random order. About six minutes on two processors
# make check    the rest, in a short form: tests named TestLong, examples, models, benchmarks,
#               fuzzing, the simulation, mutants, faults, load, systems of processes, soak. A
#               quarter of an hour
# .ci/run       make test, make lint and make check
# make lint     formatting, go.mod, vet and golangci-lint
# make lowest   the library's tests with the lowest versions that go.mod allows; everything else
#               runs with the newest. make lowest-short compiles all modules without the workspace
# make cross    the command and the library, compiled for each platform of a release
# make bench    what a run costs on real Redis servers, ROUNDS times (default 5), beside SET NX and
#               a script by hand, the peers, and bare asynq; then a table of the goals. Half an hour
# make bench-short, sim-short, model-short, fuzz-short, lowest-short, cross, long, verify: parts of
#               make check
# make bench-growth   how the cost grows with waiters, held keys and processes; a part of make bench
# make fuzz     parsers of foreign input, keys in telemetry, and odd bytes in the backends, FUZZTIME
#               each (default 1m; 10000x is a number of inputs)
# make fault    the proof: worlds, mutants and models; servers that freeze, die, forget, refuse and
#               lose replies, and the metric that shows it; then all faults of the plan on real
#               processes, on each backend. The table of results is also in faults.md. Half an hour
# make cron     five processes with different clocks, killed, frozen and replaced, over TICKS ticks
#               (default 120)
# make sim      the simulation over SEEDS seeds for each backend (default 5000)
# make worlds   the simulation over WORLDS seeds of all backends (default 10000), and of keys that
#               are shared, in two processes
# make model    the models of the rules in internal/verify/model, searched by spin, and with each
#               rule broken
# make mutants  the rules of the engine, each broken on purpose, and the tests that notice; some of
#               them with MUTANTS="mutant_a mutant_b". Minutes
# make load     100,000 leases held, and as many waiters, on real servers, for a minute each
# make servers  the suite of the backends, and faults, on each server that Debian's suites have, and
#               by TLS, as a user, by a unix socket and so on; then docs/servers.md. 15 minutes.
#               ONERUN_REDIS_SERVERS="name=program,..." adds servers
# make scale    what one server carries and what a fleet costs, and one key that 1,000 processes
#               want; then docs/scale.md. Ten minutes, on a machine that does nothing else
# make fleets   our locks beside those of gocron-redis-lock, redis-py, node-redlock, redis-semaphore
#               and node-redisson, in processes that are killed, for FLEETS (default 30s) each
# make soak     six processes with all adapters for DURATION (default 10m), under faults by SEED;
#               their events stay in bin/_artifacts
# make screenshots   the pictures of the page for operators in docs/, taken in Chromium
# make release-check   what docs/development.md says of releasing, tried with a module proxy in a
#               folder. Three minutes
# make demo     coupon and lottery: the examples, then in processes that are frozen and killed

GOLANGCI_LINT_VERSION := v2.15.0
GOBIN := $(shell go env GOPATH)/bin
export CGO_ENABLED ?= 1

# The folders of the modules of the workspace, go.work.
MODULES := . examples examples/sqlfence cmd/onerun internal/verify bench middleware/grpc middleware/http/frameworks

# Where the promtool target puts promtool.
export PATH := $(PATH):$(CURDIR)/bin

.PHONY: test check shells cross long verify lint lowest lowest-short bench bench-short bench-rounds bench-growth fuzz fuzz-short fault cron sim sim-short worlds mutants model model-short load servers scale fleets fleet-tools soak screenshots demo redis postgres spin promtool chromium

# A test whose name begins with TestLong_ proves more than a contributor waits for. make test leaves
# these tests to make check. So does go test -short.
LONG := ^TestLong_
# What make test runs; make check runs their TestLong_ tests, and all tests of the others. Those run
# without the race detector: with it, the servers that the examples embed take minutes for a crowd.
TESTED := ./... ./middleware/grpc/... ./middleware/http/frameworks/... \
	./internal/verify/postgres ./internal/verify/simulation
OTHERS := ./cmd/onerun/... ./examples/... ./examples/sqlfence ./bench/... ./internal/verify/history ./internal/verify/demo/...
# The packages that fail soonest come first, and then the one that takes longest: the others run
# beside it.
PROOF := ./internal/verify/page ./internal/verify/dashboard ./internal/verify/system \
	./internal/verify/browser ./internal/verify/mutants ./internal/verify/scale \
	./internal/verify/servers ./internal/verify/load ./internal/verify/soak

# With ONERUN_REQUIRE_REDIS, a test that finds no redis-server fails instead of being skipped. So
# does a test that finds no PostgreSQL, or no Chromium, with the other two variables.
# The demo traces with -tags trace. -w leaves out what only debuggers read, which links faster.
# The race detector would let each test binary sleep for a second at its end. GOGC=200 saves a tenth
# of the processor time.
GOTEST := ONERUN_REQUIRE_FLEETS=1 ONERUN_REQUIRE_SHELLS=1 GORACE=atexit_sleep_ms=0 GOGC=200 ONERUN_REQUIRE_REDIS=1 ONERUN_REQUIRE_POSTGRES=1 ONERUN_REQUIRE_CHROMIUM=1 go test -race -tags trace -shuffle=on -timeout 15m -ldflags=-w
COMPILE := go list -race -tags trace -test -deps -export

# Two packages at a time: with three, the test is a fourth shorter, but tests that depend on the
# clock fail now and then, because the processors are busy all the time.
test: redis postgres
	@echo "== compile first, so that no compiler runs beside tests that depend on the clock"
	@$(COMPILE) $(TESTED) >/dev/null && go build -o /dev/null ./cmd/onerun
	@echo "== tests, with the race detector and in random order; make check runs the others"
	$(GOTEST) -p 2 -skip '$(LONG)' $(TESTED)

# What fails soonest comes first. What does not depend on the clock runs two at a time.
check: redis postgres spin chromium
	@$(MAKE) --no-print-directory -j2 -O promtool cross model-short lowest-short fuzz-short bench-short sim-short
	@$(MAKE) --no-print-directory long
	@$(MAKE) --no-print-directory verify

# The race detector triples the processor time of tests, and make test has run the same code with
# it. So the long tests and the proof run without it, unless by make long RACE=-race.
RACE :=
LONGTEST = $(subst -race ,$(RACE) ,$(GOTEST))
long: redis postgres fleet-tools shells
	@echo "== the long tests that make test leaves out"
	$(LONGTEST) -run '$(LONG)' $$(grep -rl --include='*_test.go' '^func TestLong_' . | xargs -n 1 dirname | grep -Ev '^./(cmd|examples|bench)\b' | sort -u)
	@echo "== the tests of the command, the examples, the benchmarks and the judges"
	@$(subst -race ,,$(COMPILE)) $(OTHERS) >/dev/null
	$(subst -race ,,$(GOTEST)) $(OTHERS)

verify: redis promtool spin chromium
	@echo "== the proof, in its short form"
	@$(subst -race ,,$(COMPILE)) $(PROOF) ./internal/verify/faults >/dev/null
	$(LONGTEST) $(PROOF)
	@echo "== faults, alone: a lease lasts 600 ms there, and another package would use that up"
	$(LONGTEST) ./internal/verify/faults

bench-short: redis postgres
	@echo "== benchmarks, a few rounds each, so that they cannot rot"
	ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -bench . -benchtime 20x ./backend/memory ./backend/single
	cd bench && ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -bench 'RedLock$$|Reentrant$$|HTTP|Asynq|Frozen$$/impl=onerun' -benchtime 10x ./...
	cd bench && ONERUN_REQUIRE_REDIS=1 go test -short -run '^$$' -bench '[Cc]ontended$$|RedLock$$|Alone$$|HandOff|Readers|Limits' -benchtime 20x -timeout 5m . > short.out || { cat short.out; exit 1; }
	cd bench && ONERUN_REQUIRE_REDIS=1 go test -short -run '^$$' -bench 'Waiters|Held|Processes' -benchtime 1x -timeout 5m . >> short.out || { cat short.out; exit 1; }
	cd bench && go run ./table < short.out
	cd bench && ONERUN_REQUIRE_POSTGRES=1 go test -run '^$$' -bench Postgres -benchtime 10x .

sim-short:
	@echo "== the simulation: 504 seeds, and what finds out when it is broken (fewer with the tests, where the race detector makes it slow)"
	go test -timeout 15m ./internal/verify/simulation

# It runs without guidance by coverage, which would compile everything once more.
SHORT_FUZZ = ONERUN_REQUIRE_REDIS=1 $(CURDIR)/bin/fuzz.test -test.run '^$$' -test.fuzzcachedir "$$(go env GOCACHE)/fuzz"
fuzz-short: redis
	@echo "== the parsers of what comes from outside, on random input"
	@mkdir -p bin
	@fuzz() { \
		go test -c -o bin/fuzz.test ./$$1 || return; targets=$$(bin/fuzz.test -test.list '^Fuzz') && test -n "$$targets" || return; \
		for target in $$targets; do \
			(cd $$1 && $(SHORT_FUZZ) -test.fuzz "^$$target$$" -test.fuzztime $$2) || return; \
		done; \
	}; \
	fuzz middleware/http 10000x && fuzz middleware/grpc 10000x && fuzz tracing 2000x && fuzz backend 500x

lint: $(GOBIN)/golangci-lint
	@echo "== gofmt"
	@files=$$(gofmt -l .); test -z "$$files" || { echo "gofmt would change:" $$files; exit 1; }
	@echo "== go mod tidy"
	@for module in $(MODULES); do (cd $$module && go mod tidy -diff) || exit; done
	@echo "== golangci-lint, go vet's analyzers among it"
	@$(GOBIN)/golangci-lint run $(MODULES:%=./%/...)

# Everything else runs in the workspace, with the newest versions.
LOWEST := . ./guard/... ./backend/... ./middleware/... ./tracing/...
lowest: redis
	@echo "== the library with the lowest versions that go.mod allows"
	GOWORK=off ONERUN_REQUIRE_REDIS=1 go test -timeout 15m $(LOWEST)

lowest-short:
	@echo "== the lowest versions compile, and each module does without the workspace"
	@for module in $(MODULES); do (cd $$module && GOWORK=off go vet -tags trace ./...) || exit; done
	GOWORK=off go test -short -timeout 5m ./guard/... ./backend/memory ./tracing

# The platforms of .goreleaser.yaml. The proof and most tests are for Linux.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
cross:
	@echo "== the command and the library compile for $(PLATFORMS)"
	@for platform in $(PLATFORMS); do \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} \
			go build ./guard/... ./backend/... ./middleware/... ./tracing/... ./logging/... ./inspect/... ./cmd/onerun/... || exit; \
	done

bench: redis postgres
	@echo "== the stores; and a run beside SET NX and a script by hand, on one client and one redis-server"
	ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -bench . -benchmem -count 5 ./backend/...
	@echo "== reentrant beside single"
	cd bench && ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -bench 'Reentrant$$' -count 5 .
	@echo "== idempotent endpoints beside the same round trips by hand"
	cd bench && ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -bench HTTP -benchmem -count 5 ./...
	@echo "== tasks through asynq beside bare asynq"
	cd bench && ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -bench Asynq -benchtime 10000x -count 5 ./...
	@echo "== a queue of tasks on one, two and four worker processes"
	cd bench && ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -bench Replicas -benchtime 1x -count 5 .
	@echo "== PostgreSQL beside advisory locks and unique jobs of River"
	cd bench && ONERUN_REQUIRE_POSTGRES=1 go test -run '^$$' -bench Postgres -benchmem -count 5 .
	@echo "== RedLock with some of five servers frozen; a pair of redsync's takes seconds then, so it makes one"
	cd bench && ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -bench 'RedLockFrozen/impl=onerun' -benchtime 3000x -count 3 ./...
	cd bench && ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -bench 'RedLockFrozen/impl=redsync' -benchtime 1x ./...
	@$(MAKE) --no-print-directory bench-rounds bench-growth
	@echo "== what was to be reached"
	cd bench && cat rounds.out growth.out | go run ./table -complete > report.md || { cat report.md; exit 1; }
	cd bench && cat report.md && go run ./charts -out . report.md

# Each round runs all benchmarks in turn, so that slow minutes of the machine affect all of them.
# The table has the medians.
ROUNDS ?= 5
BENCH = ONERUN_REQUIRE_REDIS=1 ./bench.test -test.run '^$$' -test.timeout 15m
bench-rounds: redis
	@echo "== ours and the peers, on the same servers in the same run: $(ROUNDS) rounds, in bench/rounds.out"
	cd bench && go test -c -o bench.test . && rm -f rounds.out
	@cd bench && for round in $$(seq $(ROUNDS)); do \
		echo "round $$round"; \
		{ $(BENCH) -test.bench 'Uncontended$$|RedLock$$|Alone$$' -test.benchtime 0.5s && \
		  $(BENCH) -test.bench 'Contended$$' -test.benchtime 2s && \
		  $(BENCH) -test.bench 'HTTP(Guard|Empty)$$/impl=/g=1$$' -test.benchtime 0.5s && \
		  $(BENCH) -test.bench 'Readers|Limits' -test.benchtime 0.5s && \
		  $(BENCH) -test.bench HandOff -test.benchtime 500x; } >> rounds.out || { tail -n 50 rounds.out; exit 1; }; \
	done

bench-growth: redis
	@echo "== how the cost grows, in bench/growth.out"
	cd bench && go test -c -o bench.test . && { $(BENCH) -test.bench 'Waiters|Held|Processes' -test.benchtime 1x > growth.out || { tail -n 50 growth.out; exit 1; }; }
	cd bench && go run ./table -figures < growth.out

FUZZTIME ?= 1m
fuzz: redis
	@fuzz() { \
		targets=$$(go test -list '^Fuzz' ./$$1 | grep '^Fuzz') || return; \
		for target in $$targets; do ONERUN_REQUIRE_REDIS=1 go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) ./$$1 || return; done; \
	}; \
	fuzz middleware/http && fuzz middleware/grpc && fuzz tracing && fuzz backend

# The table explains itself. The rows that take little time are part of make check.
fault: redis spin
	@status=0; \
		echo "== the simulation: $(WORLDS) seeds"; \
		$(MAKE) --no-print-directory worlds || status=1; \
		echo "== the rules of the engine, each broken on purpose"; \
		$(MAKE) --no-print-directory mutants || status=1; \
		echo "== the models of the rules, and with each rule broken"; \
		$(MAKE) --no-print-directory model || status=1; \
		echo "== faults of the servers, and the metrics that show them"; \
		ONERUN_REQUIRE_REDIS=1 go test -race -v -run '^Test(Long_f|F)ault' -timeout 15m ./backend/single ./backend/redlock > fault.log 2>&1 || status=1; \
		sed -n 's/^.*fault report: //p' fault.log | sort; grep -E '^( *--- FAIL|FAIL|ok)' fault.log; \
		echo "== all faults, on real processes"; \
		rm -f faults.md; \
		ONERUN_FAULTS=all ONERUN_FAULTS_REPORT=$(CURDIR)/faults.md ONERUN_REQUIRE_REDIS=1 \
			go test -race -count=1 -timeout 30m ./internal/verify/faults > faults.log 2>&1 || { status=1; grep -E '^( *--- FAIL|FAIL|panic)' faults.log; }; \
		cat faults.md || status=1; exit $$status

# The short form of it, of 36 ticks, is part of make check.
TICKS ?= 120
cron:
	ONERUN_CRON_TICKS=$(TICKS) ONERUN_REQUIRE_REDIS=1 go test -race -run TestLong_processesRunEachTickOnce -timeout 30m ./middleware/cron

SEEDS ?= 5000
sim:
	ONERUN_SIM_SEEDS=$(SEEDS) go test -timeout 60m -run Simulation ./internal/verify/simulation

# A world of redlock has five servers and takes as long as three other worlds, so it gets a tenth of
# the seeds.
WORLDS ?= 10000
worlds:
	go test -c -o bin/simulation.test ./internal/verify/simulation
	@run() { simulate "$$@" "TestSimulation$$/^$$1$$"; }; \
	simulate() { \
		ONERUN_SIM_FIRST=$$2 ONERUN_SIM_SEEDS=$$3 bin/simulation.test -test.v -test.timeout 60m -test.run "$$4" > bin/worlds.$$1.$$2 2>&1; status=$$?; \
		if [ $$status = 0 ]; then sed -n "s/^.*_test.go:[0-9]*: \(.* runs .*\)/$$1, $$3 seeds from $$2 on: \1/p" bin/worlds.$$1.$$2; else tail -n 300 bin/worlds.$$1.$$2; fi; \
		return $$status; \
	}; n=$$(($(WORLDS) / 20)); \
	{ run single 0 $$((9 * n)) && run reentrant 0 $$((2 * n)); } & other=$$!; \
	{ run redlock 0 $$((2 * n)) && run reentrant $$((2 * n)) $$((7 * n)) && \
		simulate sharing 0 $$((20 * n)) "TestSharing$$" && simulate quorum 0 $$((20 * n)) "TestSharing_quorum$$"; }; mine=$$?; \
	wait $$other && [ $$mine = 0 ]

model: spin
	@internal/verify/model/check.sh

model-short: spin
	@echo "== the models of the rules, a few of them"
	@internal/verify/model/check.sh short

# The short form of it is part of make check.
load: redis
	ONERUN_LOAD=1 ONERUN_REQUIRE_REDIS=1 go test -v -timeout 30m -run TestLoad ./internal/verify/load

# What make check runs of it takes a quarter of a minute.
servers: redis
	@echo "== fetching servers into bin/servers"
	@internal/verify/servers/fetch.sh
	@status=0; \
		ONERUN_REDIS_SERVERS="$$(cat bin/servers/list),$$ONERUN_REDIS_SERVERS" ONERUN_SERVERS=all ONERUN_REQUIRE_REDIS=1 \
			ONERUN_SERVERS_REPORT=1 go test -v -count=1 -timeout 60m ./internal/verify/servers > servers.log 2>&1 || status=1; \
		grep -E '^ {8,16}--- |^( *--- FAIL|FAIL|ok|panic)' servers.log; cat docs/servers.md; exit $$status

# go test runs all of it in a short form.
scale: redis
	@ONERUN_SCALE=1 ONERUN_REQUIRE_REDIS=1 go test -count=1 -timeout 30m ./internal/verify/scale
	@ONERUN_SCALE=1 go test -count=1 -timeout 30m -run TestFleet ./internal/verify/simulation
	@cat docs/scale.md

# The other libraries are real ones. make check runs three seconds of it.
FLEETS ?= 30s
fleets: redis fleet-tools
	ONERUN_FLEET=$(FLEETS) ONERUN_REQUIRE_FLEETS=1 ONERUN_REQUIRE_REDIS=1 \
		go test -v -count=1 -timeout 60m -run '^TestFleets_' ./bench

DURATION ?= 10m
SEED ?= 1
soak: redis
	@rm -rf bin/_artifacts && mkdir -p bin
	ONERUN_SOAK=$(DURATION) ONERUN_SOAK_SEED=$(SEED) ONERUN_REQUIRE_REDIS=1 go test -v -count=1 -timeout 0 -artifacts -outputdir bin -run TestSoak ./internal/verify/soak

# make check runs a few of them, and checks that all are up to date.
MUTANTS ?=
mutants: redis
	@go run ./internal/verify/mutants $(MUTANTS)

screenshots: chromium
	ONERUN_SCREENSHOTS=1 ONERUN_REQUIRE_CHROMIUM=1 \
		go test -count=1 -run TestScreenshots ./internal/verify/browser
	@ls -l docs/page-*.png

release-check:
	go test -tags release -run '^TestRelease_' -v ./cmd/onerun

demo:
	@echo "== the examples, with the guard and without"
	go run ./examples/coupon
	-go run ./examples/coupon -guard=false
	go run ./examples/lottery
	-go run ./examples/lottery -guard=false
	@echo "== the same in processes, one of which is frozen; then one that is killed"
	go run ./internal/verify/demo/coupon
	go run ./internal/verify/demo/lottery -kill

# Tests start their own servers, so the one that the package starts is stopped.
redis:
	@command -v redis-server >/dev/null || { \
		echo "== redis-server is missing: installing it"; \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server && \
		{ $$sudo service redis-server stop || true; }; }

# Debian has redis-py. What npm installs goes into a folder of its own.
fleet-tools:
	@{ { python3 -c 'import redis' || /usr/bin/python3 -c 'import redis'; } && command -v npm; } >/dev/null 2>&1 || { \
		echo "== redis-py or npm is missing: installing them"; \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-redis && \
		{ command -v npm >/dev/null || \
			$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nodejs npm; }; }
	@cmp -s bench/fleet/package.json bin/fleets/package.json || { \
		echo "== installing libraries of Node.js into bin/fleets"; \
		rm -rf bin/fleets && mkdir -p bin/fleets && \
		cp bench/fleet/package.json bin/fleets/ && \
		(cd bin/fleets && npm install --silent --no-audit --no-fund --no-package-lock) || \
		{ rm -rf bin/fleets; exit 1; }; }

# Completions are tried in each shell.
shells:
	@command -v zsh >/dev/null && command -v fish >/dev/null || { \
		echo "== zsh or fish is missing: installing them"; \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zsh fish; }

postgres:
	@{ ls /usr/lib/postgresql/*/bin/initdb || command -v initdb; } >/dev/null 2>&1 && \
		PATH=$$PATH:/usr/sbin command -v pgbouncer >/dev/null || { \
		echo "== PostgreSQL or PgBouncer is missing: installing them"; \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql pgbouncer && \
		{ $$sudo service pgbouncer stop; $$sudo service postgresql stop || true; }; }

# Each of the three names will do: Debian's, Ubuntu's, and that of Google's build.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	command -v google-chrome >/dev/null || { \
		echo "== Chromium is missing: installing it"; \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			chromium fonts-dejavu-core; }

spin:
	@command -v spin >/dev/null || { \
		echo "== spin is missing: installing it"; \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq spin gcc libc6-dev; }

$(GOBIN)/golangci-lint:
	@echo "== installing golangci-lint $(GOLANGCI_LINT_VERSION)"
	go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

# promtool checks the rules in deploy/. Its package would start a Prometheus, so only the one
# program is taken from it.
promtool:
	@command -v promtool >/dev/null || { \
		echo "== promtool is missing: taking it out of the package prometheus"; \
		sudo=$$(test "$$(id -u)" = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		dir=$$(mktemp -d) && (cd $$dir && apt-get download -qq prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool) && \
		install -D $$dir/usr/bin/promtool $(CURDIR)/bin/promtool; \
		status=$$?; rm -rf $$dir; exit $$status; }
