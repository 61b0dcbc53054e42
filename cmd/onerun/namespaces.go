package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
)

// inNamespace says which keys or jobs a command shows.
func inNamespace(namespace string) string {
	if namespace == "" {
		return "without a namespace"
	}
	return "of the namespace " + namespace
}

// placeView is a namespace under which a key is not free, as --json prints it.
type placeView struct {
	Namespace string `json:"namespace"`
	keyView
}

// elsewhere returns where a key that is free here is held, kept or done. It is a hint, so an error
// of the search is none of the command.
func elsewhere(ctx context.Context, i *inspect.Inspector, key string) (views []placeView) {
	places, err := i.Elsewhere(ctx, key)
	if err != nil {
		return nil
	}
	for _, p := range places {
		views = append(views, placeView{p.Namespace, viewOf(p.Key)})
	}
	return views
}

// ofJobs are what the keys of jobs begin with.
var ofJobs = []string{"cron:", "gocron:", "gocron-leader:"}

// related returns the keys of jobs of that name that are not free. It is a hint, as elsewhere is.
func related(ctx context.Context, i *inspect.Inspector, name string) (views []keyView) {
	for _, prefix := range ofJobs {
		k, err := i.Show(ctx, prefix+name)
		if state := k.State(); err == nil && state != driver.KeyFree && state != driver.KeyForeign {
			views = append(views, viewOf(k))
		}
	}
	return views
}

// hint says where a key is not free.
func (p placeView) hint() string {
	where, use := "without a namespace", `use --namespace ""`
	if p.Namespace != "" {
		where, use = "under the namespace "+p.Namespace, "use --namespace "+p.Namespace
	}
	text := fmt.Sprintf("%s it is %s", where, p.State)
	who := ""
	switch {
	case len(p.Holders) > 0:
		who = p.Holders[0].who()
	case p.Done != nil:
		who = p.Done.who()
	}
	if who != "" {
		text += " by " + who
	}
	return text + "; " + use
}

// hintsOf returns the hints about a key, as the end of a sentence.
func hintsOf(places []placeView) string {
	var text strings.Builder
	for _, p := range places {
		fmt.Fprintf(&text, "; %s", p.hint())
	}
	return text.String()
}

// otherNamespaces lists the namespaces of the store that a command does not show.
func otherNamespaces(ctx context.Context, i *inspect.Inspector) string {
	all, _, err := i.Namespaces(ctx)
	if err != nil {
		return ""
	}
	var names []string
	for _, n := range all {
		if n.Name != "" && n.Name != i.Namespace() {
			names = append(names, n.Name)
		}
	}
	return strings.Join(names, ", ")
}
