package daemonset

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestStories runs the stories in testdata: each is a file named after what
// happens in it. `go test -rewrite` writes the answers anew, to be reviewed.
// testdata/README.md has the words of the script.
func TestStories(t *testing.T) {
	stories, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(stories) == 0 {
		t.Fatal("no stories", err)
	}
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			c := newCluster()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return c.run(words{t, d}) })
		})
	}
}

// words are one command of a story.
type words struct {
	t *testing.T
	d *datadriven.TestData
}

func (w words) has(key string) bool { return w.d.HasArg(key) }

// get is the value of an argument, "" if it is not there or has none.
func (w words) get(key string) string {
	for _, a := range w.d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return ""
}

// list is a value of several, joined by plus signs.
func (w words) list(key string) []string { return strings.Split(w.get(key), "+") }

func (w words) number(key string) int {
	n, err := strconv.Atoi(cmp.Or(w.get(key), "0"))
	if err != nil {
		w.t.Fatalf("%s: %v", key, err)
	}
	return n
}

func (w words) duration(key, otherwise string) time.Duration {
	dur, err := time.ParseDuration(cmp.Or(w.get(key), otherwise))
	if err != nil {
		w.t.Fatalf("%s: %v", key, err)
	}
	return dur
}

func (c *cluster) run(w words) string {
	if change, ok := changes[w.d.Cmd]; ok {
		change(c, w)
		return ""
	}
	switch w.d.Cmd {
	case "decide":
		p := c.decide()
		c.wake = p.Wake
		refused := c.apply(p)
		return show(p, w.has("brief")) + line("refused", refused)
	case "settle":
		worst := c.settle(w.duration("quiet", "40s"))
		p := c.decide()
		return line("worst unavailable", worst) + show(p, w.has("brief")) + line("images", c.images(w.has("brief"))) + line("revisions", c.numbers())
	default:
		w.t.Fatalf("unknown command %q", w.d.Cmd)
		return ""
	}
}

func line(what string, v any) string {
	if s := strings.Trim(fmt.Sprint(v), "[]"); s != "" {
		return what + " " + s + "\n"
	}
	return ""
}

// show is the plan, or for a large fleet only what is done how often and the rest
// without the roll.
func show(p Plan, brief bool) string {
	if !brief {
		return p.String()
	}
	var all []string
	for _, a := range p.Actions {
		all = append(all, fmt.Sprintf("%s (%s)", a.Verb, a.Reason.Code))
	}
	out := counted(all, "%[2]d x %[1]s\n")
	p.Actions, p.Roll = nil, nil
	return out + p.String()
}

// counted writes each different text once, in the order of the first, with how
// often it is there.
func counted(all []string, format string) string {
	var b strings.Builder
	for i, s := range all {
		if slices.Index(all, s) == i {
			n := 0
			for _, o := range all {
				if o == s {
					n++
				}
			}
			fmt.Fprintf(&b, format, s, n)
		}
	}
	return b.String()
}

// images are the pods' images.
func (c *cluster) images(brief bool) string {
	var all []string
	for _, p := range c.pods {
		all = append(all, p.Spec.Containers[0].Image)
	}
	slices.Sort(all)
	if brief {
		return strings.TrimSpace(counted(all, "%s=%d "))
	}
	return strings.Join(all, " ")
}

func (c *cluster) numbers() string {
	var all []string
	for _, r := range c.revisions {
		all = append(all, fmt.Sprint(r.Revision))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
