package redisproxy

import (
	"bufio"
	"errors"
	"io"
	"strconv"
)

// read reads a command or an answer of RESP2. texts are the strings of a flat array.
func read(r *bufio.Reader) (raw []byte, texts []string, err error) {
	raw, err = r.ReadBytes('\n')
	if err != nil {
		return nil, nil, err
	}
	if len(raw) < 3 {
		return nil, nil, errors.New("redisproxy: an empty line")
	}
	head := string(raw[1 : len(raw)-2])
	switch raw[0] {
	case '$':
		n, err := strconv.Atoi(head)
		if err != nil || n < 0 {
			return raw, nil, err
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, nil, err
		}
		return append(raw, body...), []string{string(body[:n])}, nil
	case '*':
		n, err := strconv.Atoi(head)
		if err != nil {
			return nil, nil, err
		}
		for range n {
			part, text, err := read(r)
			if err != nil {
				return nil, nil, err
			}
			raw, texts = append(raw, part...), append(texts, text...)
		}
	}
	return raw, texts, nil
}
