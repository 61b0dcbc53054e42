//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
	"github.com/seed-1795987d/onerun/guard"
)

// A message is what run tells the user, on the standard error: the rest belongs to the command.
type message struct {
	Outcome string   `json:"outcome"`         // busy, done, lost, signal, error or warning
	Error   string   `json:"error,omitempty"` // the text of an error, as of other commands
	Keys    []string `json:"keys"`
	Bytes   [][]byte `json:"key_bytes,omitempty"` // all keys, if one is not UTF-8
	Text    string   `json:"text"`
	Holder  string   `json:"holder,omitempty"`
	Left    seconds  `json:"left,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Hint    string   `json:"hint,omitempty"` // what to change
	Exit    int      `json:"exit"`
}

// print prints the message.
func (m message) print(to io.Writer, asJSON bool) {
	if asJSON {
		if m.Outcome == "error" {
			m.Error = m.Text
		}
		if slices.ContainsFunc(m.Keys, func(key string) bool { return !utf8.ValidString(key) }) {
			for _, key := range m.Keys {
				m.Bytes = append(m.Bytes, []byte(key))
			}
		}
		_ = terminal.JSON(to, "", m)
		return
	}
	terminal.Line(to, "onerun: %s", m.Text)
	if m.Hint != "" {
		terminal.Line(to, "onerun: %s", m.Hint)
	}
}

// onceHint is for a schedule whose period is about as long as --once.
const onceHint = "the window of --once counts from the end of the run; " +
	"for a schedule, use --once-per, or a window shorter than the period"

// hintAbout returns the hint for a done marker that expires in left. If a schedule has the window
// as its period, each run leaves a marker that outlasts the next tick by the length of that run.
func hintAbout(left, window time.Duration) string {
	const part = 20 // a twentieth of a day is 72 minutes
	if left <= 0 || left > window/part {
		return ""
	}
	return onceHint
}

// messageOf returns the message for the error of a call of the Guard, and the exit code.
func (r *runCommand) messageOf(err error) message {
	m := message{Outcome: "error", Keys: r.Keys, Text: asFlag(err).Error(), Exit: exitError}
	var (
		busy *guard.BusyError
		done *guard.DoneError
		lost *guard.LostError
		sent *signalError
	)
	switch {
	case errors.As(err, &lost):
		m.Outcome, m.Exit, m.Reason = "lost", exitLost, string(lost.Reason)
		m.Text = fmt.Sprintf("lease on %q was lost (%s), so the command was ended", lost.Key, lost.Reason)
		if lost.Renew != nil {
			m.Text += fmt.Sprintf("; last renewal: %v", lost.Renew)
		}
		if m.Holder = lost.Broken; m.Holder != "" {
			m.Text += ": " + m.Holder
		}
	case errors.As(err, &sent):
		m.Outcome, m.Exit = "signal", exitSignal+int(sent.signal)
		m.Text = fmt.Sprintf("%v while waiting for %q", sent.signal, r.Keys)
	case errors.As(err, &busy):
		m.Outcome, m.Exit, m.Holder, m.Left = "busy", r.ConflictExitCode, busy.Label, seconds(max(busy.Left, 0))
		m.Text = fmt.Sprintf("%q is busy", busy.Key)
		switch {
		case busy.Foreign:
			m.Text += ": another library holds it"
			if busy.Label != "" {
				m.Text += " as " + busy.Label
			}
		case busy.Label != "":
			m.Text += fmt.Sprintf(": %s holds it", busy.Label)
		}
	case errors.As(err, &done):
		m.Outcome, m.Exit, m.Holder, m.Left = "done", r.DoneExit, done.Label, seconds(max(done.Left, 0))
		m.Text = fmt.Sprintf("%q is done", done.Key)
		if done.Label != "" {
			m.Text += fmt.Sprintf(": %s has run it", done.Label)
			if !done.At.IsZero() {
				m.Text += " at " + instant(done.At)
			}
		}
		m.Hint = hintAbout(done.Left, r.Once)
		if done.Left > 0 {
			m.Text += fmt.Sprintf("; it can run again in %v", done.Left.Round(time.Second))
		}
	case errors.Is(err, guard.ErrMarker):
		m.Outcome, m.Exit = "warning", 0
	}
	return m
}
