package docs_test

import (
	"flag"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updatePicture = flag.Bool("update-picture", false, "draw docs/architecture.svg anew")

// The picture in the README is made from a text that people can read and change.
func TestDocs_pictureIsThatOfItsSource(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("docs/architecture.txt")
	require.NoError(t, err)
	picture, err := draw(string(source))
	require.NoError(t, err)
	if *updatePicture {
		require.NoError(t, os.WriteFile("docs/architecture.svg", []byte(picture), 0o600))
	}
	drawn, err := os.ReadFile("docs/architecture.svg")
	require.NoError(t, err)
	require.Equal(t, picture, string(drawn), "draw it anew with -update-picture")
}

func TestDocs_pictureWithAMistakeIsRefused(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"box a 1 2 3", "box a 1 2 3 4 nokind | A", "arrow a b", "line a b"} {
		_, err := draw(source)
		require.Error(t, err, source)
	}
}

// pictureStyle has colours for light and dark pages.
const pictureStyle = `<style>
  .ground { fill: #ffffff }
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 } .quiet { fill: #59636e; font-size: 12px }
  rect.yours { fill: #f6f8fa; stroke: #59636e } rect.onerun { fill: #ddf4ff; stroke: #0969da }
  rect.store { fill: #fff8c5; stroke: #9a6700 }
  path { stroke: #59636e; fill: none; stroke-width: 1.5 } .head { fill: #59636e; stroke: none }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 }
    text { fill: #f0f6fc } .quiet { fill: #9198a1 }
    rect.yours { fill: #151b23; stroke: #9198a1 } rect.onerun { fill: #121d2f; stroke: #4493f8 }
    rect.store { fill: #272115; stroke: #d29922 }
    path { stroke: #9198a1 } .head { fill: #9198a1 }
  }
</style>
`

// A pictureBox is a box of the picture.
type pictureBox struct{ x, y, w, h int }

// draw makes an SVG of a text, whose first lines explain its form.
func draw(source string) (string, error) {
	var shapes strings.Builder
	boxes, title, width, height := map[string]pictureBox{}, "", 0, 0
	for line := range strings.Lines(source) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		var kind, name, to string
		var b pictureBox
		switch word, rest, _ := strings.Cut(fields[0], " "); word {
		case "", "#":
		case "title":
			title = rest
		case "box":
			if _, err := fmt.Sscan(rest, &name, &b.x, &b.y, &b.w, &b.h, &kind); err != nil {
				return "", fmt.Errorf("%q: %w", line, err)
			}
			if !strings.Contains(pictureStyle, "rect."+kind+" ") {
				return "", fmt.Errorf("%q: no colour for %q", line, kind)
			}
			boxes[name] = b
			width, height = max(width, b.x+b.w+20), max(height, b.y+b.h+20)
			drawBox(&shapes, b, kind, fields[1:])
		case "arrow":
			if _, err := fmt.Sscan(rest, &name, &to); err != nil {
				return "", fmt.Errorf("%q: %w", line, err)
			}
			from, known := boxes[name]
			end, alsoKnown := boxes[to]
			if !known || !alsoKnown {
				return "", fmt.Errorf("%q: no such box", line)
			}
			drawArrow(&shapes, from, end, strings.Join(fields[1:], " "))
		default:
			return "", fmt.Errorf("%q: not known", line)
		}
	}
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n"+
		"<title>%s</title>\n%s<rect class=\"ground\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n%s</svg>\n",
		width, height, width, height, html.EscapeString(title), pictureStyle, width, height, shapes.String()), nil
}

func drawBox(out *strings.Builder, b pictureBox, kind string, lines []string) {
	fmt.Fprintf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", kind, b.x, b.y, b.w, b.h)
	y := b.y + b.h/2 + 5 - 10*(len(lines)-1)
	for i, text := range lines {
		class := "title"
		if i > 0 {
			class = "quiet"
		}
		fmt.Fprintf(out, "<text class=\"%s\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			class, b.x+b.w/2, y+20*i, html.EscapeString(text))
	}
}

// drawArrow draws an arrow down, above or below the middle of the narrower box.
func drawArrow(out *strings.Builder, from, to pictureBox, label string) {
	x, y := from.x+from.w/2, from.y+from.h
	if to.w < from.w {
		x = to.x + to.w/2
	}
	fmt.Fprintf(out, "<path d=\"M%d %d V%d\"/>\n<path class=\"head\" d=\"M%d %d l-4 -8 h8 z\"/>\n", x, y, to.y-6, x, to.y)
	if label != "" {
		fmt.Fprintf(out, "<text class=\"quiet\" x=\"%d\" y=\"%d\">%s</text>\n", x+10, (y+to.y)/2+4, html.EscapeString(label))
	}
}
