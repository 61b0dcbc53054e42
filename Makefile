# make test    what tells a contributor whether a change is right: unit tests, the suite of the
#              backends on real servers, each adapter on its framework, a short simulation. With the
#              race detector, in random order. About six minutes on two processors
# make lint    formatting, go.mod, vet and golangci-lint
# make check   the rest, in a short form: tests named TestLong, examples, models, benchmarks,
#              fuzzing, the simulation, mutants, faults, load, processes, soak. About six minutes
# .ci/run      make test, make lint and make check
# make bench   what a run costs on real servers beside SET NX and a script by hand, the peers and
#              bare asynq; then the table of the goals, and charts. Half an hour
# make test-mysql    the tests of backend/mysql on your own server, such as a MySQL 8:
#              ONERUN_MYSQL_DSN='root:secret@tcp(127.0.0.1:3306)/' make test-mysql
#              They make databases named onerun_test_…, and remove them
# make demo    the examples, with the guard and without; then in processes, frozen and killed
# make tools   installs all that tests need and this machine lacks (Debian and Ubuntu)
#
# The parts of check and bench, and the proof in its long form, are parts of one program:
#
#     go run ./internal/verify/cmd/proof -h

GOLANGCI_LINT_VERSION := v2.15.0
GOBIN := $(shell go env GOPATH)/bin
INSTALL := @internal/verify/install.sh
PROOF := go run ./internal/verify/cmd/proof
export CGO_ENABLED ?= 1

# The folders of the modules of the workspace, go.work: those of backends and adapters, and all.
PARTS := backend/etcd $(addprefix middleware/,grpc http/frameworks jetstream river watermill)
MODULES := . examples examples/sqlfence cmd/onerun internal/verify bench $(PARTS)

.PHONY: help test test-mysql lint check bench demo tools

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# What make test runs. A test whose name begins with TestLong_ proves more than a contributor waits
# for: make check runs these, and all tests of the other packages. Those named TestWeekly_ are for
# proof long -weekly.
TESTED := ./... $(PARTS:%=./%/...) $(addprefix ./internal/verify/,postgres mysql sqlite simulation)

# With ONERUN_REQUIRE_REDIS, a test that finds no redis-server fails instead of being skipped; the
# other variables are for PostgreSQL, MariaDB and etcd. The demo traces with -tags trace. -w leaves
# out what only debuggers read, which links faster. The race detector would let each test binary
# sleep for a second at its end. GOGC=200 saves a tenth of the processor time. make lint runs vet.
# SQLite itself, which is C in Go, is compiled without the detector, in half the time.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -tags trace
GOTEST := GORACE=atexit_sleep_ms=0 GOGC=200 ONERUN_REQUIRE_REDIS=1 ONERUN_REQUIRE_POSTGRES=1 ONERUN_REQUIRE_MYSQL=1 ONERUN_REQUIRE_ETCD=1 \
	go test $(RACE) -shuffle=on -timeout 15m -ldflags=-w -vet=off

# Two packages at a time: with three, the test is a fourth shorter, but tests that depend on the
# clock fail now and then, because the processors are busy all the time.
test:
	$(INSTALL) redis postgres mysql etcd
	@echo "== compile first, so that no compiler runs beside tests that depend on the clock"
	@go list $(RACE) -test -deps -export $(TESTED) >/dev/null && go build -o /dev/null ./cmd/onerun
	@echo "== tests, with the race detector and in random order; make check runs the others"
	$(GOTEST) -p 2 -skip '^Test(Long|Weekly)_' $(TESTED)

test-mysql:
	@test -n "$$ONERUN_MYSQL_DSN" || { echo "set ONERUN_MYSQL_DSN, such as root:secret@tcp(127.0.0.1:3306)/"; exit 2; }
	go test -count=1 ./internal/verify/mysql

check:
	$(PROOF) check

lint: $(GOBIN)/golangci-lint
	@echo "== gofmt"
	@files=$$(gofmt -l .); test -z "$$files" || { echo "gofmt would change:" $$files; exit 1; }
	@echo "== go mod tidy"
	@for module in $(MODULES); do (cd $$module && go mod tidy -diff) || exit; done
	@echo "== golangci-lint, go vet's analyzers among it"
	@$(GOBIN)/golangci-lint run $(MODULES:%=./%/...)

$(GOBIN)/golangci-lint:
	@echo "== installing golangci-lint $(GOLANGCI_LINT_VERSION)"
	go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

bench:
	$(PROOF) bench

demo:
	@echo "== the examples, with the guard and without"
	go run ./examples/coupon
	-go run ./examples/coupon -guard=false
	go run ./examples/lottery
	-go run ./examples/lottery -guard=false
	@echo "== the same in processes, one of which is frozen; then one that is killed"
	go run ./internal/verify/demo/coupon
	go run ./internal/verify/demo/lottery -kill

tools: $(GOBIN)/golangci-lint
	$(INSTALL) redis postgres mysql etcd oldest-etcd rabbitmq chromium spin promtool shells fleets
