package main

// examples are the calls in the help of each command.
var examples = map[string][]string{
	"run": {
		"onerun run --once-per 24h nightly-backup -- ./backup.sh",
		"onerun run --wait 5m --ttl 1m migration -- ./migrate --all",
	},
	"doctor": {
		"onerun doctor",
		"onerun doctor --redis redis+sentinel://10.0.0.5:26379/mymaster/0",
	},
	"key http": {
		"onerun key http --scope alice POST /claims k1",
		`onerun show "$(onerun key http --scope alice POST /claims k1)"`,
	},
	"key grpc": {
		"onerun key grpc --scope alice /shop.Orders/Create k1",
		"onerun key grpc --exclusive /shop.Orders/Create k1",
	},
	"key asynq": {
		"onerun key asynq invoice:send type",
		"onerun key asynq --once invoice:send payload:42",
	},
	"key cron": {
		"onerun key cron nightly-report",
		"onerun key cron --gocron nightly-report",
	},
	"key redacted": {
		"onerun key redacted 9f86d081884c7d65",
		`onerun show "$(onerun key redacted 9f86d081884c7d65)"`,
	},
	"show": {
		"onerun show nightly-report",
		"onerun show --json --namespace billing invoices",
	},
	"ls": {
		"onerun ls",
		"onerun ls -n 50 cron:",
	},
	"break": {
		"onerun break nightly-report --why 'it hangs'",
		"onerun break --now migration",
	},
	"forget": {
		"onerun forget nightly-backup --why 'its input was wrong'",
		"onerun forget cron:nightly-report",
	},
	"hold": {
		"onerun hold migration --for 2h --why 'the schema changes'",
		"onerun hold nightly-report --for 30m --wait 10m",
	},
	"ps": {
		"onerun ps",
		"onerun ps --json",
	},
	"jobs": {
		"onerun jobs",
		"onerun jobs --namespace billing",
	},
	"records": {
		"onerun records nightly-report",
		"onerun records nightly-report -n 100 --json",
	},
	"pause": {
		"onerun pause 'nightly*' --for 2h --why maintenance",
		"onerun pause nightly-report hourly-report",
	},
	"resume": {
		"onerun resume 'nightly*'",
		"onerun resume nightly-report --why 'the store is back'",
	},
	"trigger": {
		"onerun trigger nightly-report",
		"onerun trigger nightly-report --why 'its input was wrong'",
	},
	"log": {
		"onerun log",
		"onerun log -n 100 --json",
	},
	"ui": {
		"onerun ui",
		"onerun ui --read-only --listen 127.0.0.1:0",
	},
	"migrate": {
		"onerun migrate --store 'postgres://10.0.0.6/app?sslmode=verify-full'",
		"onerun migrate --store 'mysql://10.0.0.6/app?tls=true'",
		"onerun migrate --store sqlite:/var/lib/app/leases.db",
	},
	"completion": {
		"source <(onerun completion bash)",
		"onerun completion fish | source",
	},
}
