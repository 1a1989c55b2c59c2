package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/program"
)

// idle is how long the program is left alone before its memory is read: the
// collector has then given back what the start had needed.
const idle = 30 * time.Second

// BenchmarkStart reports the time to the line `ready` on a directory that was used
// before (ready-s), on a new one (first-ready-s), and the memory that the process
// holds while idle with ten simulated nodes (rss-MB).
func BenchmarkStart(b *testing.B) {
	for name, args := range map[string][]string{"full": {"--sim-nodes", "10"}, "lean": {"--sim-nodes", "10", "--lean"}} {
		b.Run(name, func(b *testing.B) {
			var first, again time.Duration
			var rss float64
			for range b.N {
				dir := b.TempDir()
				began := time.Now()
				p := program.Start(b, dir, args...)
				first += time.Since(began)
				p.Interrupt()
				began = time.Now()
				p = program.Start(b, dir, args...)
				again += time.Since(began)
				time.Sleep(idle)
				rss += residentMB(b, p.PID())
				p.Interrupt()
			}
			n := float64(b.N)
			b.ReportMetric(first.Seconds()/n, "first-ready-s")
			b.ReportMetric(again.Seconds()/n, "ready-s")
			b.ReportMetric(rss/n, "rss-MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// residentMB is a process's resident memory in 10^6 bytes.
func residentMB(b *testing.B, pid int) float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, line := range strings.Split(string(raw), "\n") {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kib); n == 1 {
			return kib * 1024 / 1e6
		}
	}
	b.Fatalf("no VmRSS in the status of process %d", pid)
	return 0
}
