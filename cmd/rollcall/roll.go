package main

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/engine"
)

// rollEvery is how often the roll call is looked at for changes.
const rollEvery = 500 * time.Millisecond

// watchRoll prints the engine's own roll call: a line for each node whose answer
// has changed, and a total.
func watchRoll(ctx context.Context, out io.Writer, client kubernetes.Interface, eng *engine.Engine) error {
	shown := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rollEvery):
		}
		sets, err := client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, ds := range sets.Items {
			plan, ok := eng.Plan(ds.Namespace, ds.Name)
			if !ok {
				continue
			}
			changed := false
			name := ds.Namespace + "/" + ds.Name
			for _, p := range plan.Roll {
				key, line := name+" "+p.Node, p.String()
				if shown[key] != line {
					shown[key], changed = line, true
					fmt.Fprintf(out, "%s  %s\n", name, line)
				}
			}
			if s := plan.Status; changed {
				fmt.Fprintf(out, "%s  %d of %d nodes have an available pod; %d nodes excluded\n", name, s.NumberAvailable,
					s.DesiredNumberScheduled, len(plan.Roll)-int(s.DesiredNumberScheduled))
			}
		}
	}
}
