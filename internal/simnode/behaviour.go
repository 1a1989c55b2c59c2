package simnode

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Annotation tells a simulated node how a pod is to misbehave: words separated by
// commas, each optionally only on nodes with a label, as in
//
//	crash@zone=a,slow=30s
const Annotation = "rollcall.dev/sim"

// words are what the annotation understands.
const words = "crash, never-ready, oom, image-pull-error, slow=DURATION, each optionally with @LABEL or @LABEL=VALUE"

// behaviour is how a pod lives.
type behaviour struct {
	crash, oom, neverReady, noImage bool
	slow                            time.Duration
}

// parseBehaviour reads the annotation for a node with the labels. A word it does
// not know is an error: nothing that was meant as a fault passes as health.
func parseBehaviour(value string, labels map[string]string) (behaviour, error) {
	var b behaviour
	for _, clause := range strings.Split(value, ",") {
		clause = strings.TrimSpace(clause)
		if clause == "" {
			continue
		}
		word, where, only := strings.Cut(clause, "@")
		var next behaviour = b
		if err := next.add(word); err != nil {
			return behaviour{}, err
		}
		if !only || onNode(where, labels) {
			b = next
		}
	}
	return b, nil
}

func onNode(where string, labels map[string]string) bool {
	key, value, valued := strings.Cut(where, "=")
	have, ok := labels[key]
	return ok && (!valued || have == value)
}

func (b *behaviour) add(word string) error {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "crash":
		b.crash = true
	case "oom":
		b.oom = true
	case "never-ready":
		b.neverReady = true
	case "image-pull-error":
		b.noImage = true
	case "slow":
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return fmt.Errorf("%s: %q is not a duration such as 30s", Annotation, value)
		}
		b.slow = d
	default:
		return fmt.Errorf("%s: %q is not one of %s", Annotation, word, words)
	}
	return nil
}

// behaviourOf reads a pod's annotation, and its images: a tag non-existent cannot
// be pulled.
func behaviourOf(p *corev1.Pod, labels map[string]string) (behaviour, error) {
	b, err := parseBehaviour(p.Annotations[Annotation], labels)
	for _, c := range p.Spec.Containers {
		if strings.HasSuffix(c.Image, ":non-existent") {
			b.noImage = true
		}
	}
	return b, err
}
