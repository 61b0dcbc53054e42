module github.com/seed-1795987d/onerun/middleware/jetstream

go 1.26.0

replace github.com/seed-1795987d/onerun => ../..

require (
	github.com/nats-io/nats.go v1.55.0
	github.com/seed-1795987d/onerun v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.9.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/klauspost/compress v1.20.0 // indirect
	github.com/kr/text v0.2.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
