package main

import (
	"fmt"
	"html"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/internal/verify/demo/spans"
)

// Sizes, in pixels. Letters are all as wide as each other.
const (
	letter     = 7.5 // a bit more than any of the fonts needs at 12 pixels
	rowHeight  = 20
	barHeight  = 11
	barsWidth  = 420
	margin     = 14
	gap        = 14 // between columns
	indent     = 14
	laneWidth  = 12
	axisHeight = 26
)

// A picture is a table: what, when, how long and with what result; and right of it the links, each
// in a lane.
type picture struct {
	rows   []row
	begin  time.Time
	took   time.Duration
	links  []link
	bars   float64 // where the second column begins
	texts  float64 // and the third
	lanes  float64 // and the links
	width  float64
	height int
	svg    strings.Builder
	rowOf  map[string]int // by trace and span
	lane   []int          // the last row of each
}

// A link leads from the span of a row to that of another one.
type link struct{ from, to, lane int }

func newPicture(all []spans.Span) *picture {
	p := &picture{rows: rowsOf(all), rowOf: map[string]int{}}
	p.begin, p.took = took(p.rows)
	first, third := 0.0, 0
	for i, r := range p.rows {
		if r.span != nil {
			p.rowOf[r.span.Trace+r.span.ID] = i
		}
		first = max(first, float64(r.depth*indent)+float64(utf8.RuneCountInString(r.label()))*letter)
	}
	for _, r := range p.rows {
		third = max(third, utf8.RuneCountInString(p.outcome(r)))
	}
	p.findLinks()
	p.bars = margin + first + gap
	p.texts = p.bars + barsWidth + gap
	p.lanes = p.texts + float64(third)*letter + gap
	p.width = p.lanes + float64(len(p.lane)*laneWidth) + margin
	p.height = axisHeight + len(p.rows)*rowHeight + margin
	return p
}

// findLinks gives each link whose ends are in the picture a lane that no other one uses beside it.
func (p *picture) findLinks() {
	for from, r := range p.rows {
		if r.span == nil {
			continue
		}
		for _, l := range r.span.Links {
			to, ok := p.rowOf[l.Trace+l.ID]
			if !ok || to == from {
				continue
			}
			lane := 0
			for lane < len(p.lane) && p.lane[lane] >= min(from, to) {
				lane++
			}
			if lane == len(p.lane) {
				p.lane = append(p.lane, 0)
			}
			p.lane[lane] = max(from, to)
			p.links = append(p.links, link{from, to, lane})
		}
	}
}

// label is what the first column says.
func (r row) label() string {
	if r.span == nil {
		return r.heading
	}
	return r.span.Name
}

// outcome is the text of the third column: how long the span took, its result, and its links.
func (p *picture) outcome(r row) string {
	if r.span == nil {
		return ""
	}
	words := []string{brief(r.span.End.Sub(r.span.Start))}
	for _, key := range []string{"onerun.result", "http.response.status_code"} {
		if result := r.span.Attributes[key]; result != "" {
			words = append(words, result)
		}
	}
	links := ""
	for _, l := range r.span.Links {
		how := "→ " + l.Attributes["onerun.link"]
		if _, ok := p.rowOf[l.Trace+l.ID]; !ok {
			how += " (not drawn)"
		}
		links += " " + how
	}
	return strings.Join(words, " · ") + links
}

// style has the colours: where the reader's system is dark, so is the picture, on a ground of its
// own in either case.
const style = `
  .ground { fill: #ffffff; stroke: #d0d7de }
  text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328 }
  .quiet { fill: #59636e }
  .grid { stroke: #d8dee4 }
  .bar { fill: #0969da } .server { fill: #59636e } .failed { fill: #cf222e }
  .link { fill: none; stroke: #8250df; stroke-width: 1.5; stroke-dasharray: 4 3 } .head { fill: #8250df }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .quiet { fill: #9198a1 }
    .grid { stroke: #2a313c }
    .bar { fill: #4493f8 } .server { fill: #9198a1 } .failed { fill: #f85149 }
    .link { stroke: #ab7df8 } .head { fill: #ab7df8 }
  }
`

// String returns the picture as SVG.
func (p *picture) String() string {
	p.svg.Reset()
	p.draw(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img">`, p.width, p.height, p.width, p.height)
	p.draw(`<title>%d spans within %s</title>`, len(p.rowOf), brief(p.took))
	p.draw("<style>%s</style>", style)
	p.draw(`<rect class="ground" x="0.5" y="0.5" width="%.0f" height="%d" rx="6"/>`, p.width-1, p.height-1)
	p.drawAxis()
	for i, r := range p.rows {
		p.drawRow(i, r)
	}
	for _, l := range p.links {
		p.drawLink(l)
	}
	p.draw("</svg>")
	return p.svg.String()
}

func (p *picture) draw(format string, args ...any) { fmt.Fprintf(&p.svg, format+"\n", args...) }

func (p *picture) text(x float64, y int, class, text string) {
	p.draw(`<text x="%.1f" y="%d"%s>%s</text>`, x, y, class, html.EscapeString(text))
}

// at returns where an instant is.
func (p *picture) at(t time.Time) float64 {
	return p.bars + barsWidth*float64(t.Sub(p.begin))/float64(p.took)
}

// drawAxis draws a line for each step of time. The label of the last one is left out if it would
// run into the third column.
func (p *picture) drawAxis() {
	every := step(p.took)
	for t := time.Duration(0); t <= p.took; t += every {
		x := p.at(p.begin.Add(t))
		p.draw(`<path class="grid" d="M%.1f %d V%d"/>`, x, axisHeight-4, p.height-margin)
		label := "0"
		if t > 0 {
			label = brief(t)
		}
		if x+float64(len(label))*letter < p.texts {
			p.text(x, axisHeight-9, ` class="quiet"`, label)
		}
	}
}

// middle returns the height of the middle of a row.
func middle(i int) int { return axisHeight + i*rowHeight + rowHeight/2 }

func (p *picture) drawRow(i int, r row) {
	base := middle(i) + 4
	if r.span == nil {
		p.text(margin, base, ` class="quiet"`, r.heading)
		return
	}
	p.text(margin+float64(r.depth*indent), base, "", r.span.Name)
	class := "bar"
	switch {
	case r.span.Failed:
		class = "failed"
	case r.span.Kind == 2:
		class = "server"
	}
	x := p.at(r.span.Start)
	p.draw(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="1.5"/>`, class, x, middle(i)-barHeight/2, max(p.at(r.span.End)-x, 2), barHeight)
	p.text(p.texts, base, "", p.outcome(r))
}

// drawLink draws an arrow from the text of one row, down or up its lane, to the text of the other
// one.
func (p *picture) drawLink(l link) {
	lane := p.lanes + float64(l.lane*laneWidth)
	from, to := p.textEnd(l.from), p.textEnd(l.to)
	y := middle(l.to)
	if l.from < l.to {
		y -= 3 // where an arrow begins and another one ends, they keep apart
	} else {
		y += 3
	}
	p.draw(`<path class="link" d="M%.1f %d H%.1f V%d H%.1f"/>`, from, middle(l.from), lane, y, to+6)
	p.draw(`<path class="head" d="M%.1f %d l7 -4 v8 z"/>`, to, y)
}

func (p *picture) textEnd(i int) float64 {
	return p.texts + float64(utf8.RuneCountInString(p.outcome(p.rows[i])))*letter + 4
}
