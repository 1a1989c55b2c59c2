package simnode

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Annotation tells a simulated node how a pod is to misbehave. Its grammar:
//
//	value  = clause { "," clause }
//	clause = word [ "@" label-key [ "=" label-value ] ]
//	word   = "crash" | "oom" | "never-ready" | "image-pull-error"
//	       | "slow=" duration | "stuck-terminating"
//
// A clause with a label applies on nodes that have it (with that value), as in
//
//	crash@zone=a,slow=30s
const Annotation = "rollcall.dev/sim"

// words are what the annotation understands.
const words = "crash, oom, never-ready, image-pull-error, slow=DURATION, stuck-terminating, each optionally with @LABEL or @LABEL=VALUE"

// behaviour is how a pod lives.
type behaviour struct {
	crash, oom, neverReady, noImage, stuck bool
	slow                                   time.Duration
}

// parseBehaviour reads the annotation for a node with the labels. A word it does
// not know is an error even where its clause would not apply.
func parseBehaviour(value string, labels map[string]string) (behaviour, error) {
	var b behaviour
	for clause := range strings.SplitSeq(value, ",") {
		clause = strings.TrimSpace(clause)
		if clause == "" {
			continue
		}
		word, where, only := strings.Cut(clause, "@")
		next := b
		if err := next.add(strings.TrimSpace(word)); err != nil {
			return behaviour{}, err
		}
		if !only {
			b = next
			continue
		}
		key, want, valued := strings.Cut(strings.TrimSpace(where), "=")
		if key == "" {
			return behaviour{}, fmt.Errorf("%s: %q names no label after @", Annotation, clause)
		}
		if have, ok := labels[key]; ok && (!valued || have == want) {
			b = next
		}
	}
	return b, nil
}

func (b *behaviour) add(word string) error {
	name, value, valued := strings.Cut(word, "=")
	if name == "slow" {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return fmt.Errorf("%s: %q is not a duration such as 30s", Annotation, value)
		}
		b.slow = d
		return nil
	}
	flag := map[string]*bool{"crash": &b.crash, "oom": &b.oom, "never-ready": &b.neverReady,
		"image-pull-error": &b.noImage, "stuck-terminating": &b.stuck}[name]
	if flag == nil || valued {
		return fmt.Errorf("%s: %q is not one of %s", Annotation, word, words)
	}
	*flag = true
	return nil
}

// behaviourOf reads a pod's annotation.
func behaviourOf(p *corev1.Pod, labels map[string]string) (behaviour, error) {
	value := p.Annotations[Annotation]
	if value == "" {
		return behaviour{}, nil
	}
	return parseBehaviour(value, labels)
}

// pullable is false for an image whose tag is non-existent.
func pullable(image string) bool {
	name, _, _ := strings.Cut(image, "@")
	return !strings.HasSuffix(name, ":non-existent")
}
