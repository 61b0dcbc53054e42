package postgres

import (
	_ "embed"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
)

var (
	//go:embed acquire.sql
	acquireSource string
	//go:embed renew.sql
	renewSource string
	//go:embed renew_batch.sql
	renewBatchSource string
	//go:embed release.sql
	releaseSource string
	//go:embed read.sql
	readSource string
	//go:embed write.sql
	writeSource string
	//go:embed check.sql
	checkSource string
	//go:embed append.sql
	appendSource string
	//go:embed entries.sql
	entriesSource string
	//go:embed counters.sql
	countersSource string
	//go:embed marked.sql
	markedSource string
	//go:embed counter.sql
	counterSource string
	//go:embed raise.sql
	raiseSource string
	//go:embed keep.sql
	keepSource string
	//go:embed keys.sql
	keysSource string
	//go:embed clean.sql
	cleanSource string
	//go:embed mark.sql
	markSource string
	//go:embed poll.sql
	pollSource string
	//go:embed warnings.sql
	warningsSource string
	//go:embed notify.sql
	notifySource string
	//go:embed resolve.sql
	resolveSource string
)

// comments are those of the sources, which the server need not read.
var comments = regexp.MustCompile(`(?m)^--.*\n|[ \t]*-- .*$`)

// statements are the statements for a table.
type statements struct {
	acquire, renew, renewBatch, release string // of claims that hold a key alone
	read, write                         string // of everything else
	check                               string // of CheckFence
	append, entries                     string // of the ledger
	counter, counters, raise, keep      string // of the ledger, too
	keys, marked                        string // of the inspector
	clean, mark, poll, notify, warnings string
}

// newStatements returns the statements, with words replaced by what follows each of them.
func newStatements(words ...string) statements {
	names := strings.NewReplacer(append(words, "AHEAD", strconv.Itoa(holders.Ahead))...)
	in := func(source string) string { return names.Replace(comments.ReplaceAllString(source, "")) }
	return statements{
		acquire: in(acquireSource), renew: in(renewSource), renewBatch: in(renewBatchSource),
		release: in(releaseSource), read: in(readSource), write: in(writeSource),
		check: in(checkSource), append: in(appendSource), entries: in(entriesSource),
		counter: in(counterSource), counters: in(countersSource), raise: in(raiseSource), keep: in(keepSource),
		keys: in(keysSource), marked: in(markedSource), clean: in(cleanSource), mark: in(markSource),
		poll: in(pollSource), notify: in(notifySource), warnings: in(warningsSource),
	}
}
