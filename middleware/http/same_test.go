package guardhttp_test

import (
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

const streamsMaxAnswer = 20_000

// Row 33: what comes back is what comes back without us, and a retry gets the same, or learns that
// the handler ran. The other writers are in TestLong_streamsSameAsWithoutUs.
func TestStreams_sameAsWithoutUs(t *testing.T) {
	t.Parallel()
	streamsRequireSameBy(t, nil, "net/http", "hidden", "lazy", "outer")
}

// So it is if the answer is held back until its record is in the store.
func TestStreams_sameAfterTheRecord(t *testing.T) {
	t.Parallel()
	streamsRequireSameBy(t, []guardhttp.Option{idempotency.WithAnswerAfterRecord()}, "net/http", "hidden")
}

// In the modes that keep no answers, too, if their status decides whether anything is kept.
func TestStreams_sameInOtherModes(t *testing.T) {
	t.Parallel()
	files := streamsMakeFiles(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for _, opt := range []guardhttp.Option{idempotency.WithMode(idempotency.Reject), idempotency.WithMode(idempotency.Exclusive), patientShadow, idempotency.WithOptionalKey()} {
			bare, ours := streamsStages(t, lifeGuard(t, memory.New()), http2, streamsWriters["net/http"], opt)
			for _, play := range []streamsPlay{
				{}, {streamsWrite(10), streamsStatus(500)}, {files.copyFile(0), streamsStatus(502), streamsWrite(10)},
				{files.copyFailing(0), streamsStatus(502), streamsWrite(10)}, {streamsCopyReader(4), streamsStatus(502)},
			} {
				streamsRequireSame(t, bare, ours, play, rand.Text())
			}
		}
	})
}

func TestLong_streamsSameAsWithoutUs(t *testing.T) {
	redistest.Long(t)
	streamsRequireSameBy(t, nil, slices.Collect(maps.Keys(streamsWriters))...)
	streamsRequireSameBy(t, []guardhttp.Option{idempotency.WithAnswerAfterRecord()}, slices.Collect(maps.Keys(streamsWriters))...)
}

// streamsRequireSameBy has handlers answer through each of the writers, with the middleware and
// without.
func streamsRequireSameBy(t *testing.T, opts []guardhttp.Option, writers ...string) {
	t.Helper()
	files := streamsMakeFiles(t)
	for _, name := range writers {
		t.Run(name, func(t *testing.T) {
			contentProtocols(t, func(t *testing.T, http2 bool) {
				bare, ours := streamsStages(t, lifeGuard(t, memory.New()), http2, streamsWriters[name], append(opts, idempotency.WithMaxAnswer(streamsMaxAnswer))...)
				plays := streamsPlays(files)
				if name == "net/http" {
					plays = append(plays, streamsTypes()...)
				}
				if name == "net/http" && !http2 { // see TestStreams_tooMuchOverHTTP2
					plays = append(plays, streamsOfHTTP1()...)
				}
				late := name == "net/http" || name == "lazy"
				if late {
					plays = append(plays, streamsLate()...)
				}
				for _, play := range plays {
					if len(opts) > 0 && !http2 && play.any(func(s streamsStep) bool { return s.hijacks }) &&
						(name == "hidden, flusher" || name == "only a Flusher" || name == "only deadlines") {
						continue // the middleware does not see it
					}
					if http2 && play.any(func(s streamsStep) bool {
						return s.name == `header Connection ["close"]` || strings.HasPrefix(s.name, "header Transfer")
					}) {
						continue // not of that protocol
					}
					streamsRequireReplay(t, bare, ours, play)
				}
				if !late { // some send it only if the answer is kept: a retry gets what was sent
					for _, play := range streamsLate() {
						key := rand.Text()
						streamsRequireRetry(t, ours, play, key, ours.perform(t, play, key, true))
					}
				}
			})
		})
	}
}

// The same for random handlers.
func TestLong_streamsSameAsWithoutUsAtRandom(t *testing.T) {
	redistest.Long(t)
	files := streamsMakeFiles(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		t.Parallel()
		for _, name := range []string{"net/http", "hidden", "only a Flusher"} {
			bare, ours := streamsStages(t, lifeGuard(t, memory.New()), http2, streamsWriters[name], idempotency.WithMaxAnswer(streamsMaxAnswer))
			random := mathrand.New(mathrand.NewPCG(1, uint64(len(name))))
			for range 120 {
				streamsRequireReplay(t, bare, ours, streamsAtRandom(random, files, http2, name != "net/http"))
			}
		}
		for name, opt := range map[string]guardhttp.Option{
			"reject": idempotency.WithMode(idempotency.Reject), "exclusive": idempotency.WithMode(idempotency.Exclusive), "shadow": idempotency.WithShadow(),
			"no fingerprint": guardhttp.WithFingerprint(nil), "client cancel": idempotency.WithClientCancel(), "no answers": idempotency.WithMaxAnswer(0),
		} {
			bare, ours := streamsStages(t, lifeGuard(t, memory.New()), http2, streamsWriters["net/http"], opt)
			random := mathrand.New(mathrand.NewPCG(2, uint64(len(name))))
			for range 30 {
				streamsRequireSame(t, bare, ours, streamsAtRandom(random, files, http2, false), rand.Text())
			}
		}
	})
}

// streamsAtRandom makes up a play. What net/http itself does differently from one time to the next
// is left out.
func streamsAtRandom(random *mathrand.Rand, files streamsFiles, http2, hidden bool) streamsPlay {
	pick := func(of ...int) int { return of[random.IntN(len(of))] }
	size := func() int {
		// HTTP/2 refuses even a write of no bytes if the status allows no body.
		if http2 {
			return pick(1, 2, 10, 511, 512, 600, 2047, 2048, 2049, 4096, 5000, streamsMaxAnswer, 33_000, 70_000)
		}
		return pick(0, 1, 2, 10, 511, 512, 600, 2047, 2048, 2049, 4096, 5000, streamsMaxAnswer, 33_000, 70_000)
	}
	var play streamsPlay
	for range random.IntN(7) {
		var s streamsStep
		switch random.IntN(22) {
		case 0:
			s = streamsHeader(fmt.Sprint("X-", random.IntN(3)), strconv.Itoa(random.IntN(3)))
		case 1:
			s = streamsHeader("Content-Type", "a/b")
		case 2:
			s = streamsHeader("Content-Type")
		case 3:
			s = streamsHeader("Set-Cookie", "a=b")
		case 4:
			s = streamsHeader("Trailer", "X-0")
		case 5:
			s = streamsHeader(http.TrailerPrefix+"X-1", "b")
		case 6, 7:
			s = streamsStatus(pick(200, 201, 404, 204, 304, 418))
		case 8:
			s = streamsStatus(pick(102, 103))
		case 9, 10, 11:
			s = streamsWrite(size())
		case 12:
			s = streamsWriteString(size())
		case 13:
			s = streamsCopyReader(size())
		case 14:
			s = files.copyFile(size())
		case 15:
			s = files.copyPart(size())
		case 16:
			s = files.copyFailing(size())
		case 17:
			s = files.readFrom(size())
		case 18:
			s = streamsFlush
		case 19:
			s = streamsControlFlush
			if hidden {
				s = streamsFlush // the middleware does not see the other one
			}
		case 20:
			s = []streamsStep{streamsDeadlines, streamsDuplex, streamsPush}[random.IntN(3)]
		case 21:
			// how much of that has left is not defined
			written := play.any(func(s streamsStep) bool { return s.bytes > 0 })
			if random.IntN(4) == 0 && !hidden && !written {
				s = streamsHijack
			} else {
				s = streamsHeader("Etag", `"e"`)
			}
		}
		if hidden && strings.HasPrefix(s.name, "header ") && play.any(func(s streamsStep) bool { return strings.HasPrefix(s.name, "status ") }) {
			// It is sent, and net/http would not: streamsLate.
			continue
		}
		play = append(play, s)
		if s.hijacks {
			break
		}
	}
	if random.IntN(4) == 0 { // later, the client may have given up sending, as the answer has come
		play = slices.Insert(play, 0, streamsRead)
	}
	total := 0
	for _, s := range play {
		total += s.bytes
	}
	switch random.IntN(4) {
	case 0: // the length is announced
		play = slices.Insert(play, 0, streamsHeader("Content-Length", strconv.Itoa(total)))
	case 1:
		// the length is too small, which HTTP/2 does not notice, nor net/http if it copies a file
		copied := play.any(func(s streamsStep) bool { return s.copies })
		if random.IntN(2) == 0 && !http2 && !copied && total > 0 {
			play = slices.Insert(play, 0, streamsHeader("Content-Length", strconv.Itoa(random.IntN(total))))
		}
	case 2: // and too large
		if random.IntN(3) == 0 {
			play = slices.Insert(play, 0, streamsHeader("Content-Length", strconv.Itoa(total+pick(1, 10, 10_000))))
		}
	}
	return play
}

// Behind a writer of which nothing shows whether it takes the header in WriteHeader or later, a
// header that is changed in between is not replayed as something that the client did not get.
func TestStreams_headersThatNothingShows(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"only deadlines", "only a Hijacker"} {
		contentProtocols(t, func(t *testing.T, http2 bool) {
			_, ours := streamsStages(t, lifeGuard(t, memory.New()), http2, streamsWriters[name])
			for _, play := range streamsLate() {
				key := rand.Text()
				streamsRequireRetry(t, ours, play, key, ours.perform(t, play, key, true))
			}
		})
	}
}
