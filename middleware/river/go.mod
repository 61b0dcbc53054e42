module github.com/seed-1795987d/onerun/middleware/river

go 1.26.0

replace github.com/seed-1795987d/onerun => ../..

require (
	github.com/riverqueue/river/rivertype v0.51.2
	github.com/seed-1795987d/onerun v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.22.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.37.0 // indirect
)
