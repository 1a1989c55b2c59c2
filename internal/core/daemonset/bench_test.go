package daemonset

import (
	"fmt"
	"testing"
)

// BenchmarkDecide is one pass over a large fleet in which nothing is to be done.
func BenchmarkDecide(b *testing.B) {
	c := newCluster()
	for i := range 5000 {
		c.addNode(fmt.Sprintf("n%04d", i), map[string]string{"zone": fmt.Sprint(i % 3)})
	}
	c.apply(c.decide())
	for i, p := range c.pods {
		c.pods[i] = p.DeepCopy()
		c.pods[i].Spec.NodeName = target(p)
		c.changeReady(c.pods[i], "True", "", "")
	}
	c.apply(c.decide())
	in := c.input()
	b.ResetTimer()
	for b.Loop() {
		if p := Decide(in); len(p.Actions) > 0 {
			b.Fatal(p)
		}
	}
}
