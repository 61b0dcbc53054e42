package web

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-1795987d/onerun/inspect"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// An action is something that an operator may do to a key, or to a job.
type action struct {
	Action  inspect.Action
	Title   string
	Effect  string // what happens, and what does not
	OfJob   bool
	NeedsID bool
	// For is a proposal for how long, if the action needs that. It is optional if Optional is set.
	For      time.Duration
	Optional bool
	do       func(ctx context.Context, i *inspect.Inspector, c change) (done bool, err error)
}

// A change is what a form asks for.
type change struct {
	target string // a key or a job
	id     string
	span   time.Duration
	by     inspect.By
	jobs   *guardcron.Control
}

// actions returns what can be done.
func actions() map[inspect.Action]action {
	all := map[inspect.Action]action{}
	add := func(a action) { all[a.Action] = a }
	add(action{
		Action: inspect.ActionBreak, Title: "Break the lease", NeedsID: true,
		Effect: "The holder learns of it at its next renewal, and its context ends. The key stays taken until the lease " +
			"would have ended, so that no two runs overlap.",
		do: func(ctx context.Context, i *inspect.Inspector, c change) (bool, error) {
			return i.Break(ctx, c.target, c.id, c.by)
		},
	})
	add(action{
		Action: inspect.ActionBreakNow, Title: "Free the key now", NeedsID: true,
		Effect: "Another run can begin at once. If the holder still runs, two runs overlap until its next renewal. " +
			"Do this only if the holder is dead for certain, or to end a hold.",
		do: func(ctx context.Context, i *inspect.Inspector, c change) (bool, error) {
			return i.BreakNow(ctx, c.target, c.id, c.by)
		},
	})
	add(action{
		Action: inspect.ActionForget, Title: "Forget that it is done",
		Effect: "The done marker and its record are deleted. The work runs again when it is asked for.",
		do: func(ctx context.Context, i *inspect.Inspector, c change) (bool, error) {
			return i.Forget(ctx, c.target, c.by)
		},
	})
	add(action{
		Action: inspect.ActionHold, Title: "Keep the key busy", For: time.Hour,
		Effect: "Nothing runs under this key until the time is over. It can be freed before that.",
		do: func(ctx context.Context, i *inspect.Inspector, c change) (bool, error) {
			_, err := i.Hold(ctx, c.target, c.span, c.by)
			return true, err
		},
	})
	add(action{
		Action: inspect.ActionPause, Title: "Pause the job", OfJob: true, For: 2 * time.Hour, Optional: true,
		Effect: "No process starts the job for a tick. A run that has begun goes on. Ticks that are left out are not caught up with.",
		do: func(ctx context.Context, _ *inspect.Inspector, c change) (bool, error) {
			return true, c.jobs.Pause(ctx, c.target, c.span, c.by)
		},
	})
	add(action{
		Action: inspect.ActionResume, Title: "Resume the job", OfJob: true,
		Effect: "The job runs again at its next tick.",
		do: func(ctx context.Context, _ *inspect.Inspector, c change) (bool, error) {
			return true, c.jobs.Resume(ctx, c.target, c.by)
		},
	})
	add(action{
		Action: inspect.ActionTrigger, Title: "Run the job now", OfJob: true,
		Effect: "One of the processes that have the job runs it now, also if it is paused.",
		do: func(ctx context.Context, _ *inspect.Inspector, c change) (bool, error) {
			return true, c.jobs.Trigger(ctx, c.target, c.by)
		},
	})
	return all
}

// asked returns the action that a link or a form names, and its target.
func (h *handler) asked(form url.Values) (a action, target string, err error) {
	a, ok := actions()[inspect.Action(form.Get("what"))]
	if !ok {
		return a, "", badForm("%q is no action", form.Get("what"))
	}
	if a.OfJob {
		return a, form.Get("job"), nil
	}
	target, err = h.linked(form.Get("k"))
	return a, target, err
}

// confirm asks whether an action is meant, and why.
func (h *handler) confirm(r *http.Request) (any, string, error) {
	actor, ok := h.actorOf(r)
	if !ok {
		return nil, "", errForbidden
	}
	link := r.URL.Query()
	a, target, err := h.asked(link)
	if err != nil {
		return nil, "", err
	}
	v := struct {
		action
		Target, Link, ID, Actor string
	}{a, target, link.Get("k"), link.Get("id"), actor}
	if !a.OfJob {
		v.Target = h.shown(target)
	} else {
		v.Link = target
	}
	return v, "confirm", nil
}

// act does what a form asks for, and leads back to the key or the job.
func (h *handler) act(w http.ResponseWriter, r *http.Request) {
	actor, ok := h.actorOf(r)
	if !ok {
		h.write(w, r, 0, "", nil, errForbidden)
		return
	}
	back, err := h.do(r.Context(), r.PostForm, actor)
	if err != nil {
		h.write(w, r, 0, "", nil, err)
		return
	}
	redirect(w, back, http.StatusSeeOther)
}

func (h *handler) do(ctx context.Context, form url.Values, actor string) (back string, err error) {
	// Browsers change line breaks in a field, and bytes that are not UTF-8, so it is escaped.
	for _, name := range []string{"k", "job"} {
		if !form.Has(name) || !form.Has("escaped") {
			continue
		}
		text, err := url.QueryUnescape(form.Get(name))
		if err != nil {
			return "", badForm("the form has no key or job")
		}
		form.Set(name, text)
	}
	a, target, err := h.asked(form)
	if err != nil {
		return "", err
	}
	if a.OfJob && h.noControl != nil {
		return "", h.noControl
	}
	c := change{target: target, id: form.Get("id"), by: inspect.By{Actor: actor, Reason: form.Get("reason")}, jobs: h.control}
	if text := form.Get("for"); a.For > 0 && (text != "" || !a.Optional) {
		if c.span, err = time.ParseDuration(text); err != nil || c.span <= 0 {
			return "", badForm("for how long: %q must be a duration such as 90m or 2h", text)
		}
	}
	done, err := a.do(ctx, h.inspector, c)
	switch {
	case err != nil:
		return "", err
	case !done:
		return "", badForm("%s %s found nothing to do: it has ended, or another has the key by now", a.Action, h.shown(target))
	case a.OfJob:
		return fmt.Sprintf("job?name=%s", template.URLQueryEscaper(target)), nil
	default:
		return fmt.Sprintf("key?k=%s", template.URLQueryEscaper(form.Get("k"))), nil
	}
}
