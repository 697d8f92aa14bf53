package readme

import (
	"regexp"
	"strings"
)

// A document is a Markdown file, in parts.
type document struct {
	text   string
	blocks []block
}

// A block is a fenced block of code.
type block struct{ language, text string }

var (
	fence   = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	code    = regexp.MustCompile("`[^`\n]+`")
	goGet   = regexp.MustCompile(`(?m)^ {4}go get (\S+)$`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
)

func parse(text string) document {
	d := document{text: comment.ReplaceAllString(text, "")}
	for _, m := range fence.FindAllStringSubmatch(d.text, -1) {
		d.blocks = append(d.blocks, block{m[1], m[2]})
	}
	return d
}

// program is the Go block that is a whole program; example is the one that is not; output is what the program prints.
func (d document) program() string { return d.only("go", true) }
func (d document) example() string { return d.only("go", false) }
func (d document) output() string  { return d.only("output", false) }

// only returns the one block of a kind, and nothing if there are more or none.
func (d document) only(language string, program bool) string {
	var found []string
	for _, b := range d.blocks {
		if b.language == language && strings.HasPrefix(b.text, "package main\n") == program {
			found = append(found, b.text)
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// modules are what the document tells the reader to go get.
func (d document) modules() []string { return submatches(goGet, d.text) }

// links are the targets of its links and pictures.
func (d document) links() []string { return submatches(link, d.prose()) }

// prose is the document without its blocks of code.
func (d document) prose() string { return fence.ReplaceAllString(d.text, "") }

// anchors are the headings as GitHub links to them.
func (d document) anchors() []string {
	var anchors []string
	for _, text := range submatches(heading, d.prose()) {
		text = strings.ToLower(strings.ReplaceAll(text, "`", ""))
		text = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(text, "")
		anchors = append(anchors, strings.ReplaceAll(text, " ", "-"))
	}
	return anchors
}

// tableUnder returns the rows of the table whose first header is a text, cell by cell.
func (d document) tableUnder(header string) (rows [][]string) {
	inside := false
	for line := range strings.SplitSeq(d.text, "\n") {
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == header:
			inside = true
		case inside && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	return rows
}

func submatches(pattern *regexp.Regexp, text string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
