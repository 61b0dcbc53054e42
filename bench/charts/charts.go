package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A chart is a picture of a table.
type chart struct {
	file     string
	headings []string // above the table: in a report, and as bench/table prints it
	has      string   // a column of the table
	title    string
	x, y     string
	logX     bool
	logY     bool
	series   []series
	// points returns the points of a series.
	points func(rows []map[string]string, s series) (plotter.XYs, error)
	// bar returns the length of the bar of a row. A chart that has it has bars instead of lines.
	bar func(row map[string]string) (float64, error)
}

// A series is a line of a chart.
type series struct{ column, label string }

var libraries = []series{
	{"onerun", "Onerun"},
	{"redsync", "redsync"},
	{"redislock", "redislock"},
	{"rueidislock", "rueidislock"},
	{"raw", "SET NX and a script by hand"},
}

var charts = []chart{
	{
		file: "callers.svg", headings: []string{"Many callers, a key each", "Uncontended"}, has: "time",
		title: "Time of a run: lower is better", x: "callers in one process, a key each", y: "µs",
		logX: true, logY: true, series: libraries, points: byCase("g", "time"),
	},
	{
		file: "waiters.svg", headings: []string{"Waiters on one key, 1 to 10,000, in one process", "Waiters"}, has: "cmds/s",
		title: "Commands of waiters for one key: lower is better", x: "waiters in one process", y: "commands in a second",
		logX: true, logY: true, series: libraries[:4], points: byCase("waiters", "cmds/s"),
	},
	{
		file: "asynq.svg", headings: []string{"When the key is busy"}, has: "processes",
		title: "1,000 tasks of 50 customers: lower is better",
		x:     "processes of 20 workers", y: "s",
		series: []series{{"guardasynq", "guardasynq"}, {"ideal scheduler", "ideal scheduler"}, {"handlers alone", "handlers alone"}},
		points: byProcesses,
	},
	{
		file: "failover.svg", headings: []string{"What a failover forgets"}, has: "leases forgotten",
		title: "Leases forgotten after kill -9 of their server: lower is better", x: "% of the rounds",
		bar: forgotten,
	},
}

// byCase returns a function for tables of bench/table: a series has the rows of an implementation,
// x is a number in the case, and y is in a column.
func byCase(number, column string) func([]map[string]string, series) (plotter.XYs, error) {
	return func(rows []map[string]string, s series) (points plotter.XYs, err error) {
		for _, row := range rows {
			text, ok := strings.CutPrefix(row["case"], number+"=")
			if row["impl"] != s.column || !ok || strings.Contains(text, "/") {
				continue
			}
			x, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, err
			}
			y, err := amount(row[column])
			if err != nil {
				return nil, err
			}
			points = append(points, plotter.XY{X: x, Y: y})
		}
		return points, nil
	}
}

// byProcesses is for the first load of the table in docs/asynq.md.
func byProcesses(rows []map[string]string, s series) (points plotter.XYs, err error) {
	for _, row := range rows {
		if row["load"] != rows[0]["load"] {
			break
		}
		x, err := strconv.ParseFloat(row["processes"], 64)
		if err != nil {
			return nil, err
		}
		y, err := amount(row[s.column])
		if err != nil {
			return nil, err
		}
		points = append(points, plotter.XY{X: x, Y: y})
	}
	return points, nil
}

// amount parses a number with its unit, or the middle of a range as in "0.9 to 1.2 s". Milliseconds
// become microseconds.
func amount(cell string) (float64, error) {
	if from, to, isRange := strings.Cut(cell, " to "); isRange {
		low, err := amount(from)
		high, err2 := amount(to)
		return (low + high) / 2, errors.Join(err, err2)
	}
	number, unit, _ := strings.Cut(cell, " ")
	n, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", cell)
	}
	if unit == "ms" {
		n *= 1000
	}
	return n, nil
}

// colors are told apart also by those who do not see all colors (Okabe and Ito).
var colors = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x66, 0x66, 0x66, 0xff},
}

// draw returns the picture as SVG.
func (c chart) draw(rows []map[string]string) ([]byte, error) {
	p := plot.New()
	if c.bar != nil {
		return c.drawBars(p, rows)
	}
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Title.Padding, p.Legend.Top, p.Legend.Left, p.Legend.Padding = vg.Points(8), true, true, vg.Points(4)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(10), -vg.Points(4)
	p.Add(plotter.NewGrid())
	for i, s := range c.series {
		points, err := c.points(rows, s)
		if err != nil {
			return nil, err
		}
		if len(points) == 0 {
			return nil, fmt.Errorf("the table has no figures of %s", s.column)
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = colors[i], vg.Points(2)
		marks.Color, marks.Shape, marks.Radius = colors[i], draw.CircleGlyph{}, vg.Points(3)
		p.Add(line, marks)
		p.Legend.Add(s.label, line, marks)
	}
	if p.X.Min == p.X.Max {
		p.X.Min, p.X.Max = p.X.Min/2, p.X.Max*2
	}
	if c.logX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticksOfPowers{}
	}
	if c.logY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, ticksOfPowers{}
		p.Y.Min, p.Y.Max = p.Y.Min*0.7, p.Y.Max*20 // room for the legend
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*1.5
	}
	return svgOf(p, 10*vg.Centimeter)
}

// svgOf returns a picture of a width that suits a page.
func svgOf(p *plot.Plot, height vg.Length) ([]byte, error) {
	for _, style := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
	}
	canvas := vgsvg.New(18*vg.Centimeter, height)
	p.Draw(draw.New(canvas))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	// Arial has the widths by which the texts were placed.
	return bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Arial,Liberation Sans,sans-serif")), nil
}

// ticksOfPowers are ticks at the powers of ten, with labels that are numbers and no exponents.
type ticksOfPowers struct{}

func (ticksOfPowers) Ticks(from, to float64) (ticks []plot.Tick) {
	for power := math.Floor(math.Log10(from)); power <= math.Ceil(math.Log10(to)); power++ {
		ten := math.Pow(10, power)
		for _, n := range []float64{1, 2, 5} {
			label := ""
			if n == 1 {
				label = strconv.FormatFloat(ten, 'f', -1, 64)
			}
			if v := n * ten; v >= from*0.999 && v <= to*1.001 {
				ticks = append(ticks, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return ticks
}
