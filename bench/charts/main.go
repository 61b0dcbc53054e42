// Charts draws the pictures of docs/performance.md and docs/reliability.md from the tables that
// have their figures: those of the newest report that has them, or of the files that are named.
//
//	go run ./charts                        draws docs/pictures/*.svg anew
//	go run ./charts -out . report.md       draws what is in a report of your own
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	out := flag.String("out", "../docs/pictures", "the folder of the pictures")
	flag.Parse()
	pages := flag.Args()
	if len(pages) == 0 {
		pages = defaultPages("../docs")
	}
	if err := run(*out, pages); err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		os.Exit(1)
	}
}

// defaultPages returns the pages with figures, the newest report first.
func defaultPages(docs string) []string {
	// sorted by date
	reports, _ := filepath.Glob(filepath.Join(docs, "reports", "performance-*.md"))
	slices.Reverse(reports)
	return append(reports, filepath.Join(docs, "asynq.md"), filepath.Join(docs, "reliability.md"))
}

// run draws each chart whose table is in one of the pages, from the first page that has it.
func run(out string, pages []string) error {
	texts := make([]string, len(pages))
	for i, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		texts[i] = string(text)
	}
	drawn := 0
	for _, c := range charts {
		for i, text := range texts {
			rows := tableBelow(text, c.headings, c.has)
			if len(rows) == 0 {
				continue
			}
			svg, err := c.draw(rows)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", pages[i], c.file, err)
			}
			//nolint:gosec // a picture for everyone
			if err := os.WriteFile(filepath.Join(out, c.file), svg, 0o644); err != nil {
				return err
			}
			drawn++
			break
		}
	}
	if drawn == 0 {
		return fmt.Errorf("none of the pages has a table that is drawn: %s", strings.Join(pages, ", "))
	}
	return nil
}

// tableBelow returns the rows, by the names of the columns, of the first table in Markdown that has
// the column and is below one of the headings. An empty first cell has the text of the cell above.
func tableBelow(text string, headings []string, column string) (rows []map[string]string) {
	var columns []string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "#"); ok {
			inside = slices.Contains(headings, strings.TrimLeft(heading, "# "))
		}
		if !inside || !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				return rows
			}
			columns = nil
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case columns == nil:
			columns = cells
		case strings.HasPrefix(cells[0], "--") || !slices.Contains(columns, column):
		default:
			if cells[0] == "" && len(rows) > 0 {
				cells[0] = rows[len(rows)-1][columns[0]]
			}
			row := map[string]string{}
			for i := range min(len(cells), len(columns)) {
				row[columns[i]] = cells[i]
			}
			rows = append(rows, row)
		}
	}
	return rows
}
