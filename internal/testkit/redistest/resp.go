package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxBytes is proto-max-bulk-len, the longest string Redis takes by default.
const maxBytes = 512 << 20

// readValue reads one whole RESP2 or RESP3 value and returns its bytes as they came, nested
// values included (https://redis.io/docs/latest/develop/reference/protocol-spec/). Streamed
// values ("$?") are refused: Redis does not send them.
func readValue(r *bufio.Reader) ([]byte, error) {
	var raw []byte
	for left := 1; left > 0; left-- {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		raw = append(raw, line...)
		if strings.IndexByte("+-:_,#(", line[0]) >= 0 {
			continue
		}
		n, err := length(line)
		if err != nil {
			return nil, err
		}
		switch line[0] {
		case '$', '!', '=':
			raw, err = readString(r, raw, n)
		case '*', '~', '>':
			left += max(n, 0) // -1 is the RESP2 null
		case '%':
			left += 2 * n
		case '|': // attributes, and then the value they are about
			left += 2*n + 1
		default:
			err = fmt.Errorf("redistest: not a RESP value: %q", line)
		}
		if err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// length reads the number after the type byte of a line.
func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil || n < -1 || n > maxBytes {
		return 0, fmt.Errorf("redistest: not a RESP value: %q", line)
	}
	return n, nil
}

// readString appends the n bytes of a string and its line end to raw; n = -1 is a null.
func readString(r io.Reader, raw []byte, n int) ([]byte, error) {
	if n < 0 {
		return raw, nil
	}
	start := len(raw)
	raw = append(raw, make([]byte, n+len("\r\n"))...)
	_, err := io.ReadFull(r, raw[start:])
	return raw, err
}

// readRequest reads one command: an array, or a text line (an inline command).
func readRequest(r *bufio.Reader) ([]byte, error) {
	first, err := r.Peek(1)
	if err != nil {
		return nil, err
	}
	if first[0] == '*' {
		return readValue(r)
	}
	return r.ReadBytes('\n')
}

// firstWord is the first element of an array or a push, or the first field of a line, in lower
// case: the name of a command, or the kind of a push.
func firstWord(raw []byte) string {
	text := string(raw)
	if text[0] == '*' || text[0] == '>' {
		_, text, _ = strings.Cut(text, "\r\n")
	}
	if strings.HasPrefix(text, "$") {
		_, text, _ = strings.Cut(text, "\r\n")
	}
	line, _, _ := strings.Cut(strings.TrimPrefix(text, "+"), "\r\n")
	word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	return strings.ToLower(word)
}
