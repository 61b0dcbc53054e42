package redistest

import (
	"strings"
	"time"
)

// request names a request by its command.
func (l *link) request(raw []byte) message {
	return message{raw: raw, name: firstWord(raw), came: time.Now()}
}

// expect notes that a reply to the command will come. SUBSCRIBE and its kin are answered by
// pushes, one for each channel; an empty line is not answered.
func (l *link) expect(command string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case strings.HasSuffix(command, "subscribe"):
		l.subscribed = true
	case command != "":
		l.awaited = append(l.awaited, command)
	}
}

// reply names a reply by the command it answers: Redis answers in the order of the requests.
func (l *link) reply(raw []byte) message {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := message{raw: raw, came: time.Now()}
	switch {
	case l.isPush(raw):
		m.push, m.name = true, firstWord(raw)
	case len(l.awaited) == 0:
		m.push = true // MONITOR, or an error before the connection is closed
	default:
		m.name, l.awaited = l.awaited[0], l.awaited[1:]
	}
	return m
}

// isPush knows RESP3 pushes by their type; RESP2 sends them as arrays, to subscribers only.
func (l *link) isPush(raw []byte) bool {
	if raw[0] == '>' {
		return true
	}
	if raw[0] != '*' || !l.subscribed {
		return false
	}
	kind := firstWord(raw)
	return isMessage(kind) || strings.HasSuffix(kind, "subscribe")
}

// isMessage tells the pushes that wake somebody from those that confirm a subscription.
func isMessage(kind string) bool {
	switch kind {
	case "message", "pmessage", "smessage", "invalidate":
		return true
	}
	return false
}
