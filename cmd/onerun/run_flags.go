package main

import "time"

// The variables that name the store, with passwords. No other variable of a flag has a secret:
// those of TLS name files.
const redisEnv, storeEnv = "ONERUN_REDIS", "ONERUN_STORE"

// runCommand is "onerun run".
type runCommand struct {
	Keys []string `arg:"" name:"key" help:"What must not run twice at the same time. Several keys are held together, all or none."`

	TTL              time.Duration  `name:"ttl" default:"30s" help:"How long the key stays taken after this host has died."`
	Wait             wait           `default:"0s" help:"How long to wait for a busy key; \"forever\" has no end."`
	Fair             bool           `help:"Serve waiters in the order in which they came. Give it to all runs for the key."`
	Shared           bool           `xor:"among" help:"Hold the key together with all that are --shared."`
	Limit            int            `xor:"among" placeholder:"N" help:"Up to N hold the key at a time."`
	Once             time.Duration  `xor:"once" placeholder:"20h" help:"After a success, do not run again for that long, counted from the end of the run. For a schedule, use --once-per."`
	OncePer          time.Duration  `xor:"once" placeholder:"24h" help:"Run at most once in each period of a schedule, such as 24h for once a day. It counts from the start of the run, and ends a tenth of the period before the next one."`
	MinHold          time.Duration  `default:"0s" help:"Keep the key for at least that long."`
	MaxHold          time.Duration  `default:"0s" help:"End the command after that long."`
	Grace            *time.Duration `placeholder:"10s" help:"The command gets SIGTERM that long before its lease ends, and SIGKILL at the end. At most a third of --ttl, and that by default if it is less than 10s."`
	Label            string         `help:"How others see the holder of the key. Default: host and process."`
	Owner            string         `env:"ONERUN_OWNER" help:"Runs of one owner hold a key together, with --backend reentrant."`
	ConflictExitCode int            `short:"E" default:"75" placeholder:"CODE" help:"Exit code if the key is busy, 0 to 255. Default: 75."`
	DoneExit         int            `default:"0" placeholder:"CODE" help:"Exit code if the work is done (--once, --once-per), 0 to 255. Default: 0."`

	PassRedis bool `help:"Give the command ONERUN_REDIS and ONERUN_STORE, which may have a password. A nested onerun needs them."`

	command []string // what follows "--"
}

// Help implements kong.HelpProvider.
func (r *runCommand) Help() string {
	return `The command follows "--", with its arguments, and is run without a shell.

Exit codes: that of the command; 128 and the signal that killed it; 75 if the key is busy (-E); 0
if the work is done (--done-exit); 124 if the lease was lost; 125 for errors of onerun itself; 126
and 127 if the command cannot be executed, or is not found. A script without #! cannot be executed.

A program without a slash in its name is looked up in PATH, but not in the working directory.

The command finds ONERUN_KEY, ONERUN_FENCE, ONERUN_ID, ONERUN_OWNER and TRACEPARENT in its
environment. It does not get ONERUN_REDIS and ONERUN_STORE without --pass-redis.`
}
