package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
)

// keyView is a key as --json prints it.
type keyView struct {
	Key         string       `json:"key"`
	Bytes       []byte       `json:"key_bytes,omitempty"` // of a key that is not UTF-8
	State       string       `json:"state"`
	Time        time.Time    `json:"time"` // the clock of the store
	Holders     []holderView `json:"holders,omitempty"`
	Done        *doneView    `json:"done,omitempty"`
	Queue       []string     `json:"queue,omitempty"`
	Wanted      string       `json:"wanted,omitempty"`
	Subscribers int          `json:"subscribers"` // -1 if it is not known
	Foreign     string       `json:"foreign,omitempty"`
	Elsewhere   []placeView  `json:"elsewhere,omitempty"` // of a key that is free
	Related     []keyView    `json:"related,omitempty"`   // keys of jobs of that name
	// The newest change that an operator asked for.
	Changed *operationView `json:"changed,omitempty"`
}

type holderView struct {
	ID         string     `json:"id"`
	Label      string     `json:"label,omitempty"`
	Owner      string     `json:"owner,omitempty"`
	Fence      uint64     `json:"fence,omitempty"`
	Since      *time.Time `json:"since,omitempty"`
	Left       seconds    `json:"left"`
	MaxHolders int        `json:"max_holders,omitempty"` // 0 is any number
	Seat       int        `json:"seat,omitempty"`
	Kept       bool       `json:"kept,omitempty"`
	Broken     bool       `json:"broken,omitempty"`
	Foreign    bool       `json:"foreign,omitempty"`
	Nodes      int        `json:"nodes,omitempty"`
}

type doneView struct {
	Label string     `json:"label,omitempty"`
	Name  string     `json:"name,omitempty"`
	At    *time.Time `json:"at,omitempty"` // by the clock of the store
	Left  seconds    `json:"left"`
	Size  int        `json:"size"`
}

func viewOf(k inspect.Key) keyView {
	v := keyView{
		Key: k.Name, State: string(k.State()), Time: k.Time.UTC(), Queue: k.Queue, Wanted: k.Wanted,
		Subscribers: k.Subscribers, Foreign: k.Foreign,
	}
	v.Bytes = bytesOf(k.Name)
	for _, h := range k.Holders {
		of := holderView{
			ID: h.ID, Label: h.Label, Fence: h.Fence, Left: seconds(h.Left), MaxHolders: h.MaxHolders, Seat: h.Seat,
			Kept: h.Kept, Broken: h.Broken(), Foreign: h.Foreign, Nodes: h.Nodes,
		}
		if h.Owner != h.ID {
			of.Owner = h.Owner
		}
		if h.MaxHolders == driver.Unlimited {
			of.MaxHolders = 0
		}
		if since := h.Since().UTC(); h.Fence != 0 {
			of.Since = &since
		}
		v.Holders = append(v.Holders, of)
	}
	if m := k.Marker; m != nil {
		v.Done = &doneView{Label: m.Label, Name: m.Name, Left: seconds(m.Left), Size: m.Size}
		if at := m.DoneAt.UTC(); !m.DoneAt.IsZero() {
			v.Done.At = &at
		}
	}
	return v
}

// bytesOf returns the bytes of a key that is not UTF-8, which JSON cannot have, or nil.
func bytesOf(key string) []byte {
	if utf8.ValidString(key) {
		return nil
	}
	return []byte(key)
}

// who names the holder.
func (h *holderView) who() string {
	if h.Label != "" {
		return h.Label
	}
	return h.ID
}

// left is for how long the key stays taken, unless the lease is renewed.
func (h *holderView) left() string { return span(time.Duration(h.Left)) }

// age is for how long a holder has held a key, or "".
func (v *keyView) age(h holderView) string {
	if h.Since == nil {
		return ""
	}
	return span(max(v.Time.Sub(*h.Since), 0))
}

// who names the run that finished, and its kind of work.
func (d *doneView) who() string {
	if d.Name == "" {
		return d.Label
	}
	return strings.TrimSpace(fmt.Sprintf("%s (%s)", d.Label, d.Name))
}

// doneAge is for how long the work has been done, or "-".
func (v *keyView) doneAge() string {
	if v.Done.At == nil {
		return "-"
	}
	return span(max(v.Time.Sub(*v.Done.At), 0))
}

// print prints the key for people.
func (v keyView) print(w *terminal.Page) {
	hints := hintsOf(v.Elsewhere)
	for _, r := range v.Related {
		hints += fmt.Sprintf("; the key %s of that name is not", r.Key)
	}
	w.Line("%s is %s%s", v.Key, v.State, hints)
	line := func(name, text string) {
		if text != "" {
			w.Detail(name, text)
		}
	}
	for i, h := range v.Holders {
		if i > 0 {
			w.Line("")
		}
		line("by", h.Label)
		if h.Since != nil {
			line("since", fmt.Sprintf("%s (%s)", instant(*h.Since), v.age(h)))
		}
		switch left := h.left(); {
		case h.Foreign:
			line("left", left+", by another library")
		case h.Broken:
			line("left", left+"; the broken run may go on until its next renewal")
		case h.Kept:
			line("left", left+"; nobody holds it any more")
		default:
			line("left", left+", unless it is renewed")
		}
		line("owner", h.Owner)
		switch h.MaxHolders {
		case 1:
		case 0:
			line("with", "any number of others")
		default:
			line("with", fmt.Sprintf("%d at a time", h.MaxHolders))
		}
		if h.Seat > 0 {
			line("seat", fmt.Sprint(h.Seat))
		}
		if h.Fence > 0 {
			line("fence", fmt.Sprint(h.Fence))
		}
		line("id", h.ID)
		if h.Nodes > 0 {
			line("nodes", fmt.Sprint(h.Nodes))
		}
	}
	if d := v.Done; d != nil {
		line("by", d.Label)
		line("name", d.Name)
		if d.At != nil {
			line("at", fmt.Sprintf("%s (%s ago)", instant(*d.At), v.doneAge()))
		}
		line("left", span(time.Duration(d.Left)))
		line("record", fmt.Sprintf("%d bytes", d.Size))
	}
	line("other", v.Foreign)
	if v.Wanted != "" {
		line("wanted", v.Wanted+", a waiter for which newcomers are kept away")
	}
	if len(v.Queue) > 0 {
		line("queue", fmt.Sprintf("%d waiting, %s is first", len(v.Queue), v.Queue[0]))
	}
	if o := v.Changed; o != nil {
		line("changed", fmt.Sprintf("%s by %s, %s", o.what(), o.Actor, instant(o.Time)))
		line("why", o.Reason)
		line("was", o.Holder)
	}
	if v.Subscribers > 0 {
		line("waiting", fmt.Sprintf("%d processes", v.Subscribers))
	}
	for _, r := range v.Related {
		r.print(w)
	}
}
