module github.com/seed-1795987d/onerun

go 1.26.0

// These are the lowest versions that pass the tests (proof lowest), so that the library does not
// force its users to upgrade. The other modules of go.work require the newest versions, and the
// everyday tests run with those. Do not run go work sync or go get -u here: both raise versions.
require (
	github.com/alicebob/miniredis/v2 v2.40.0 // for tests; the first with ClockTTL
	github.com/felixge/httpsnoop v1.1.0 // the first with hooks for WriteString and FlushError
	github.com/hibiken/asynq v0.26.0 // the first with headers on tasks
	github.com/redis/go-redis/v9 v9.22.0 // the first with a pool for pipelines, which our own connections turn off
	github.com/robfig/cron/v3 v3.0.1
	github.com/stretchr/testify v1.9.0 // for tests, and guard/guardtest
	go.opentelemetry.io/otel v1.28.0
	go.opentelemetry.io/otel/metric v1.28.0
	go.opentelemetry.io/otel/sdk v1.28.0 // for tests
	go.opentelemetry.io/otel/sdk/metric v1.28.0 // for tests
	go.opentelemetry.io/otel/trace v1.28.0
	go.uber.org/goleak v1.3.0 // for tests
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/go-logr/logr v1.4.2 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/spf13/cast v1.10.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.37.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	google.golang.org/protobuf v1.36.10 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
