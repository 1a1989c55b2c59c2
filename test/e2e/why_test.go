package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/program"
)

// why runs the small binary, as kubectl would, and returns what it prints and its
// exit code.
func why(t *testing.T, p *program.Program, args ...string) (string, int) {
	t.Helper()
	plugin := filepath.Join(filepath.Dir(program.Bin(t)), "kubectl-rollcall")
	out, err := exec.Command(plugin, append([]string{"why", "--kubeconfig", filepath.Join(p.Dir, "admin.kubeconfig")}, args...)...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// whySaysWhatIsMissing is called while two of the example's pods cannot pull.
func whySaysWhatIsMissing(t *testing.T, p *program.Program) {
	t.Helper()
	program.Eventually(t, "why sees the failed pulls", func() string {
		out, code := why(t, p, "-A")
		if code == 2 && strings.Count(out, "\n") == 2 && strings.Contains(out, " 20      0          20 ") {
			return ""
		}
		return out
	})
	out, code := why(t, p, "-n", "monitoring", "ds/node-exporter", "-o", "json")
	var answer struct {
		Items []struct {
			Name string
			Roll []struct {
				Node, State string
				Reasons     []struct{ Code, Message string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	missing := 0
	for _, r := range answer.Items[0].Roll {
		if r.State == "Missing" && len(r.Reasons) > 0 && r.Reasons[0].Code != "" {
			missing++
		}
	}
	if code != 2 || missing != 2 || len(answer.Items[0].Roll) != 20 {
		t.Errorf("exit code %d, %d of %d nodes missing with a reason; want 2, 2 of 20\n%s", code, missing, len(answer.Items[0].Roll), out)
	}
	for want, args := range map[string][]string{
		"no DaemonSet ghost in namespace monitoring": {"-n", "monitoring", "ds", "ghost"},
		"no node ghost":        {"-n", "monitoring", "ds/node-exporter", "--node", "ghost"},
		"write ds NAME":        {"deployment/web"},
		"--output":             {"-o", "xml"},
		"do not go together":   {"-A", "ds/node-exporter"},
		"does not exist":       {"--context", "ghost"},
		"the DaemonSet's name": {"ds/"},
	} {
		if out, code := why(t, p, args...); code != 1 || !strings.Contains(out, want) {
			t.Errorf("why %v: exit code %d, %q; want 1 and %q", args, code, out, want)
		}
	}
}
