package guardhttp_test

import (
	"net/http"
	"strings"
)

// streamsPlays are what handlers do, for any writer.
func streamsPlays(files streamsFiles) []streamsPlay {
	return []streamsPlay{
		{},
		{streamsHeader("X-A", "b")},
		{streamsStatus(201)},
		{streamsStatus(204)},
		{streamsStatus(204), streamsWrite(10)},
		{streamsStatus(304), streamsWriteString(10)},
		{streamsStatus(304), files.copyFile(10)},
		{streamsStatus(204), files.readFrom(10), streamsFlush},
		{streamsStatus(205), streamsWrite(10)},
		{streamsWrite(0)},
		{streamsWrite(0), streamsStatus(500)},
		{streamsWrite(10)},
		{streamsWrite(10), streamsStatus(500)},
		{streamsWriteString(10), streamsWriteString(0), streamsWrite(3000)},
		{streamsCopyReader(3000)},
		{streamsCopyReader(0), streamsStatus(201)},
		{files.copyFile(0), streamsStatus(201)},
		{files.copyFile(0), streamsHeader("X-A", "b"), streamsWrite(10)},
		{files.copyFailing(0), streamsStatus(502), streamsWrite(10)},
		{files.copyFailing(10), streamsStatus(502), streamsWrite(10)},
		{files.readFrom(0), streamsStatus(201)},
		{files.copyFile(10)},
		{files.copyFile(600)},
		{files.copyFile(100_000)},
		{files.copyPart(100_000)},
		{streamsHeader("Content-Length", "100000"), files.copyFile(100_000)},
		{streamsHeader("Content-Length", "10000"), files.copyFile(10_000)},
		{streamsHeader("Content-Length", "10000"), files.copyPart(5_000), files.copyPart(5_000)},
		{streamsHeader("Content-Length", "10000"), files.copyFile(5_000)},
		{streamsHeader("Content-Length", "100000"), streamsWrite(50_000), files.copyFile(50_000)},
		{streamsHeader("Content-Length", "100000"), streamsWrite(50_000), files.copyFile(49_999), streamsWrite(1)},
		{streamsHeader("Content-Length", "1"), streamsWrite(1)},
		{streamsHeader("Content-Length", "1"), files.copyFile(1)},
		{streamsHeader("Content-Length", "0")},
		{streamsHeader("Content-Length", "0"), streamsStatus(304)},
		{streamsHeader("Content-Length", "10"), streamsStatus(204)},
		{streamsHeader("Content-Length", "10"), streamsStatus(304), streamsWrite(10)},
		{streamsHeader("Content-Length", "nonsense"), streamsWrite(10)},
		{streamsHeader("Content-Length", "-1"), streamsWrite(10)},
		{streamsHeader("Content-Length", "010"), streamsWrite(10)},
		{streamsHeader("Content-Length", "10", "10"), streamsWrite(10)},
		{streamsHeader("Content-Length", "99999999999999999999"), streamsWrite(10)},
		{streamsHeader("Content-Length"), streamsWrite(10)},
		{streamsHeader("Content-Type"), streamsWrite(10)},
		{streamsHeader("Content-Type", "a/b"), streamsHeader("Set-Cookie", "a=b"), streamsHeader("Etag", `"e"`), streamsWrite(10)},
		{streamsHeader("Transfer-Encoding", "identity"), streamsHeader("Content-Type", "a/b"), streamsWrite(10)},
		{streamsHeader("Connection", "close"), streamsWrite(10)},
		{streamsHeader("X Bad", "b"), streamsHeader("X-Cr", "a\rb"), streamsWrite(10)},
		{streamsStatus(103), streamsHeader("X-A", "b"), streamsStatus(102), streamsStatus(200), streamsWrite(10)},
		{streamsStatus(100), streamsWrite(10)},
		{streamsStatus(103)},
		{streamsFlush},
		{streamsFlush, streamsStatus(500), streamsWrite(10)},
		{streamsWrite(10), streamsFlush, streamsWrite(10), streamsFlush},
		{streamsWrite(10), streamsControlFlush, streamsWrite(10)},
		{streamsHeader("Content-Length", "20"), streamsWrite(10), streamsFlush, streamsWrite(10)},
		{streamsHeader("Content-Length", "20"), streamsWrite(20), streamsFlush},
		{streamsHeader("Content-Length", "20"), streamsWrite(20), streamsControlFlush, streamsStatus(500)},
		{streamsFlush, files.copyFile(10_000)},
		{streamsStatus(204), streamsFlush},
		{streamsFlush, streamsStatus(500), streamsWrite(10)},
		{streamsWrite(10), streamsControlFlush, streamsStatus(500), streamsWrite(10)},
		{streamsHeader("Trailer", "X-A"), streamsWrite(10), streamsHeader("X-A", "b")},
		{streamsWrite(10), streamsFlush, streamsHeader(http.TrailerPrefix+"X-A", "b")},
		{streamsWrite(10), streamsHeader(http.TrailerPrefix+"X-A", "b")},
		{streamsDeadlines, streamsDuplex, streamsRead, streamsPush, streamsWrite(10)},
		{streamsWrite(10), streamsRead},
		{streamsWrite(50_000), streamsRead, streamsWrite(50_000)},
		{streamsWrite(streamsMaxAnswer), streamsWrite(1)},
		{streamsWrite(streamsMaxAnswer)},
		{streamsHijack},
		{streamsHeader("X-A", "b"), streamsHijack, streamsStatus(500), streamsWrite(10)},
		{streamsRead, streamsHijack},
		{streamsStatus(200), streamsFlush, streamsHijack},
		{streamsWrite(10), streamsHijack},
		{streamsWrite(10), streamsFlush, streamsHijack},
		{streamsHeader("Content-Encoding", "gzip"), streamsHeader("Content-Type"), streamsWrite(600)},
		{streamsStatus(201), streamsWrite(1), streamsWrite(2047)},
		{streamsWrite(2048)},
		{streamsHeader("Content-Length", "2049"), streamsWrite(2049)},
		{streamsHeader("X-Bad", "a\r\nX-Injected: b"), streamsWrite(10)},
		{streamsHeader("X-Bad\r\nX-Injected", "b"), streamsWrite(10)},
		{streamsHeader("", "b"), streamsHeader("X-Tab", "\ta"), streamsHeader("X-Spaces", "a  "), streamsWrite(10)},
		{streamsHeader("Trailer", "X-A"), streamsWrite(10), streamsHeader("Trailer"), streamsHeader("X-A", "b")},
		{streamsHeader("Trailer", "X-B"), streamsWrite(10_000), streamsHeader(http.TrailerPrefix+"X-A", "b")},
		{streamsHeader("Content-Length", "10"), streamsWrite(10), streamsHeader(http.TrailerPrefix+"X-A", "b")},
		{streamsCopyReader(4), streamsStatus(502)},
		{streamsStatus(202), streamsStatus(502)},
	}
}

// streamsTypes have bodies of many kinds, with a Content-Type header and without.
func streamsTypes() (plays []streamsPlay) {
	for _, body := range []string{
		"<!DOCTYPE html><p>", "only text", "\x00\x01\x02", "\x89PNG\x0D\x0A\x1A\x0A....", `{"a":1}`, "",
		strings.Repeat(" ", 600) + "<html>", strings.Repeat("text ", 2000), "\xfe\xff\x00a",
	} {
		for _, header := range []streamsStep{
			streamsHeader("X-A", "b"), streamsHeader("Content-Type"), streamsHeader("Content-Type", ""), streamsHeader("Content-Encoding", "br"),
		} {
			plays = append(plays, streamsPlay{header, streamsText(body)})
		}
	}
	return plays
}

// streamsOfHTTP1 switch to another protocol, or announce a length, and do not always keep to it.
// That is the handler's mistake.
func streamsOfHTTP1() []streamsPlay {
	plays := []streamsPlay{{streamsHeader("Upgrade", "echo"), streamsStatus(101)}}
	for _, parts := range [][]int{
		{}, {3}, {1, 1, 1}, {5}, {2, 3}, {7}, {3, 4}, {5, 1}, {3, 4, 2}, {7, 5}, {5, 0}, {5000},
	} {
		for _, length := range []string{"5", "0", "x", "-5", "5, 5"} {
			play := streamsPlay{streamsHeader("Content-Length", length)}
			for _, size := range parts {
				play = append(play, streamsWriteString(size))
			}
			plays = append(plays, play)
		}
	}
	return plays
}

// streamsLate set headers after the status, which net/http does not send, and some writers do.
func streamsLate() []streamsPlay {
	return []streamsPlay{
		{streamsHeader("X-A", "early"), streamsStatus(201), streamsHeader("X-A", "late"), streamsHeader("Content-Type", "a/b"), streamsWrite(10)},
		{streamsHeader("X-A", "early"), streamsStatus(201), streamsHeader("X-B", "late"), streamsStatus(500)},
		{streamsStatus(201), streamsHeader("X-A", "late"), streamsCopyReader(5000)},
		{streamsStatus(201), streamsHeader("Content-Length", "10"), streamsWrite(10)},
		{streamsStatus(201), streamsHeader("X-A", "late"), streamsFlush, streamsHeader("X-B", "later"), streamsWrite(10)},
		{streamsWrite(10), streamsHeader("X-A", "late"), streamsStatus(500)},
		{streamsHeader("Content-Length", "1"), streamsWrite(1), streamsHeader("X-A", "late"), streamsStatus(500)},
	}
}
