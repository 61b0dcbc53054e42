package main

import (
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// forgotten returns the share of rounds, in percent, in which a store forgot a lease.
func forgotten(row map[string]string) (float64, error) {
	rounds, err := amount(row["rounds"])
	if err != nil {
		return 0, err
	}
	if rounds <= 0 {
		return 0, fmt.Errorf("%q rounds", row["rounds"])
	}
	n, err := amount(row["leases forgotten"])
	return 100 * n / rounds, err
}

// room is between a name and its bar, for fonts that are wider than Arial.
const room = "          "

// drawBars draws a bar for each row, the first row on top. Its length is at its end.
func (c chart) drawBars(p *plot.Plot, rows []map[string]string) ([]byte, error) {
	var lengths plotter.Values
	var names, texts []string
	var ends plotter.XYs
	for i, row := range slices.Backward(rows) {
		length, err := c.bar(row)
		if err != nil {
			return nil, err
		}
		lengths, names = append(lengths, length), append(names, strings.ReplaceAll(row["store"], "`", "")+room)
		texts = append(texts, fmt.Sprintf(" %.3g", length))
		ends = append(ends, plotter.XY{X: length, Y: float64(len(rows) - 1 - i)})
	}
	bars, err := plotter.NewBarChart(lengths, vg.Points(9))
	if err != nil {
		return nil, err
	}
	bars.Horizontal, bars.Color, bars.LineStyle.Width = true, colors[1], 0
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: ends, Labels: texts})
	if err != nil {
		return nil, err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Variant, labels.TextStyle[i].YAlign = "Sans", -0.5
	}
	p.Title.Text, p.X.Label.Text, p.Title.Padding = c.title, c.x, vg.Points(8)
	p.Add(bars, labels)
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, 110
	return svgOf(p, vg.Length(len(rows))*vg.Points(15)+vg.Points(70))
}
