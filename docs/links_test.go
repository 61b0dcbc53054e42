package docs_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

var (
	linkTarget = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	headingRow = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fencedCode = regexp.MustCompile("(?ms)^```.*?^```")
	nextLink   = regexp.MustCompile(`(?m)^(Next|下一页)[:：] ?\[.*\]\(.*\)[.。]?\s*\z`)
)

// anchors returns the anchors that GitHub gives to the headings of a page.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, heading := range headingRow.FindAllStringSubmatch(fencedCode.ReplaceAllString(text, ""), -1) {
		title := proseLink.ReplaceAllString(heading[1], "$1")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, title)
		all[anchor] = true
	}
	return all
}

// links returns the files of the repository to which a page links, and what is wrong with them.
func links(t *testing.T, page, text string) (to []string, wrong []string) {
	t.Helper()
	for _, found := range linkTarget.FindAllStringSubmatch(fencedCode.ReplaceAllString(text, ""), -1) {
		target, anchor, _ := strings.Cut(found[1], "#")
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		file := page
		if target != "" {
			file = path.Join(path.Dir(page), target)
			if _, err := os.Stat(file); err != nil {
				wrong = append(wrong, found[1]+": there is no "+file)
				continue
			}
			to = append(to, file)
		}
		there := text
		if target != "" && strings.HasSuffix(file, ".md") {
			there = readPage(t, file)
		}
		if anchor != "" && strings.HasSuffix(file, ".md") && !anchors(there)[anchor] {
			wrong = append(wrong, found[1]+": "+file+" has no heading for it")
		}
	}
	return to, wrong
}

func TestDocs_linksAndAnchorsResolve(t *testing.T) {
	t.Parallel()
	for _, page := range append(append(pages(t), chinesePages(t)...), "CHANGELOG.md", "middleware/http/PROBLEMS.md", "internal/verify/model/README.md") {
		_, wrong := links(t, page, readPage(t, page))
		for _, w := range wrong {
			t.Errorf("%s: %s", page, w)
		}
	}
}

func TestDocs_linksThatDoNotResolveAreFound(t *testing.T) {
	t.Parallel()
	_, wrong := links(t, "docs/faq.md", "# One `two`, three!\n\n[a](#one-two-three) [b](#four) [c](nothing.md) [d](acl.md#no) [e](acl.md)\n")
	require.Len(t, wrong, 3, "%v", wrong)
}

// Every page is found by following links from the README, and says where to go on.
func TestDocs_everyPageIsReachableAndEndsWithALink(t *testing.T) {
	t.Parallel()
	seen, todo := map[string]bool{"README.md": true}, []string{"README.md"}
	for len(todo) > 0 {
		page := todo[0]
		todo = todo[1:]
		to, _ := links(t, page, readPage(t, page))
		for _, file := range to {
			if strings.HasSuffix(file, ".md") && !seen[file] {
				seen[file] = true
				todo = append(todo, file)
			}
		}
	}
	for _, page := range append(pages(t), chinesePages(t)...) {
		if !seen[page] {
			t.Errorf("no chain of links leads from the README to %s", page)
		}
		if strings.HasPrefix(page, "docs/") &&
			!strings.HasSuffix(page, "README.md") && !nextLink.MatchString(readPage(t, page)) {
			t.Errorf("%s does not end with a link to the next page", page)
		}
	}
}
