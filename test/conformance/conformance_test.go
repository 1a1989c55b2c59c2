package conformance

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"

	"github.com/rollcall-dev/rollcall/test/program"
)

const (
	nodes = 5
	focus = `\[sig-apps\] (Daemon set|ControllerRevision)`
	// least is how many specs the focus selects in Kubernetes 1.37.2: a run of fewer
	// has left something out and proves too little.
	least = 11
)

// settings are the suite's flags, unless the command line says otherwise. The
// suite ends by itself before `go test` would end it without cleaning up.
var settings = map[string]string{
	"provider":             "skeleton",
	"ginkgo.timeout":       "30m",
	"ginkgo.no-color":      "true",
	"ginkgo.silence-skips": "true",
}

// ran are the specs that were started, in that order.
var ran []types.SpecReport

var _ = ginkgo.ReportAfterSuite("the specs that ran", func(r types.Report) {
	for _, s := range r.SpecReports {
		if s.LeafNodeType.Is(types.NodeTypeIt) && s.NumAttempts > 0 {
			ran = append(ran, s)
		}
	}
})

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	for name, value := range settings {
		set(name, value)
	}
	flag.Parse()
	if suite, _ := ginkgo.GinkgoConfiguration(); len(suite.FocusStrings) == 0 {
		set("ginkgo.focus", focus)
	}
	code := m.Run()
	list(os.Stdout, ran) // last, after what the program said if it failed
	os.Exit(code)
}

func set(name, value string) {
	if err := flag.Set(name, value); err != nil {
		fmt.Fprintf(os.Stderr, "set -%s: %v\n", name, err)
		os.Exit(2)
	}
}

// TestUpstreamSpecs runs upstream's specs of DaemonSets and ControllerRevisions.
func TestUpstreamSpecs(t *testing.T) {
	// The framework exits when it dislikes its flags: before there is anything to end.
	dir := t.TempDir()
	framework.TestContext.KubeConfig = filepath.Join(dir, "admin.kubeconfig")
	framework.AfterReadingAllFlags(&framework.TestContext)

	p := program.Start(t, dir, "--sim-nodes", strconv.Itoa(nodes))
	// The suite is content with no node at all, and looks every 30 s only.
	program.Eventually(t, "all nodes take pods", func() string {
		all, err := p.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		free := slices.DeleteFunc(all.Items, func(n corev1.Node) bool { return len(n.Spec.Taints) > 0 })
		if len(free) != nodes {
			return fmt.Sprintf("%d of %d", len(free), nodes)
		}
		return ""
	})
	e2e.RunE2ETests(t) // fails t itself, also for what fails beside the specs
	if err := verdict(ran); err != nil {
		t.Error(err)
	}
}

// verdict says why what ran is not enough.
func verdict(specs []types.SpecReport) error {
	switch passed, failed := count(specs); {
	case failed > 0:
		return fmt.Errorf("%d specs failed", failed)
	case passed < least:
		return fmt.Errorf("%d specs ran to their end, fewer than %d", passed, least)
	}
	return nil
}

// list prints each spec's result, then the total.
func list(w io.Writer, specs []types.SpecReport) {
	for _, s := range specs {
		fmt.Fprintf(w, "%-11s %6.1fs  %s\n", s.State, s.RunTime.Seconds(), s.FullText())
	}
	passed, failed := count(specs)
	fmt.Fprintf(w, "%d passed, %d failed\n", passed, failed)
}

// count leaves out a spec that skipped itself: it has shown nothing.
func count(specs []types.SpecReport) (passed, failed int) {
	for _, s := range specs {
		switch s.State {
		case types.SpecStatePassed:
			passed++
		case types.SpecStateSkipped:
		default:
			failed++
		}
	}
	return passed, failed
}

// TestTooLittleIsAFailure: a focus that selects nothing must not pass.
func TestTooLittleIsAFailure(t *testing.T) {
	of := func(n int, state types.SpecState) []types.SpecReport {
		specs := make([]types.SpecReport, n)
		for i := range specs {
			specs[i].State = state
		}
		return specs
	}
	enough := of(least, types.SpecStatePassed)
	if err := verdict(enough); err != nil {
		t.Errorf("all passed: %v", err)
	}
	for what, specs := range map[string][]types.SpecReport{
		"none":              nil,
		"one too few":       enough[1:],
		"one skipped":       append(of(1, types.SpecStateSkipped), enough[1:]...),
		"one failed":        append(of(1, types.SpecStateFailed), enough...),
		"one panicked":      append(of(1, types.SpecStatePanicked), enough...),
		"one ran too long":  append(of(1, types.SpecStateTimedout), enough...),
		"one was cut short": append(of(1, types.SpecStateInterrupted), enough...),
	} {
		if verdict(specs) == nil {
			t.Errorf("%s: no failure", what)
		}
	}
}
