package docs_test

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const chinese = "docs/i18n/zh_CN"

// chineseOnly are the pages that are no translations.
var chineseOnly = []string{chinese + "/from-redisson.md"}

// translations returns the pages in Chinese that have an original in English.
func translations(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(chinesePages(t), func(page string) bool { return slices.Contains(chineseOnly, page) })
}

// chinesePages returns all pages in Chinese.
func chinesePages(t *testing.T) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(chinese, func(file string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(file) == ".md" {
			all = append(all, filepath.ToSlash(file))
		}
		return err
	}))
	return all
}

// original returns the English page of a translation.
func original(page string) string {
	page = strings.TrimPrefix(page, chinese+"/")
	if page == "README.md" {
		return page
	}
	return path.Join("docs", page)
}

// A translation has the code of the original, to the letter: code is tested in English only.
func TestDocs_translationsHaveTheCodeOfTheOriginal(t *testing.T) {
	t.Parallel()
	all := translations(t)
	require.NotEmpty(t, all)
	for _, page := range all {
		want := fencedCode.FindAllString(readPage(t, original(page)), -1)
		got := fencedCode.FindAllString(readPage(t, page), -1)
		require.Equal(t, want, got, "the code blocks of %s are those of %s", page, original(page))
	}
}

// headings returns how many headings of each level a page has.
func headings(text string) map[int]int {
	all := map[int]int{}
	for _, row := range headingRow.FindAllString(fencedCode.ReplaceAllString(text, ""), -1) {
		level, _, _ := strings.Cut(row, " ")
		all[len(level)]++
	}
	return all
}

// A translation that lacks a section of the original is out of date.
func TestDocs_translationsHaveTheHeadingsOfTheOriginal(t *testing.T) {
	t.Parallel()
	for _, page := range translations(t) {
		require.Equal(t, headings(readPage(t, original(page))), headings(readPage(t, page)),
			"the headings of %s at each level are as many as those of %s", page, original(page))
	}
}
