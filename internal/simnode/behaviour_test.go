package simnode

import (
	"testing"
	"time"
)

func TestAnnotationTellsHowAPodMisbehaves(t *testing.T) {
	zone := map[string]string{"zone": "a"}
	for value, want := range map[string]behaviour{
		"":                       {},
		"crash":                  {crash: true},
		"oom, never-ready":       {oom: true, neverReady: true},
		"slow=30s":               {slow: 30 * time.Second},
		"crash@zone=a":           {crash: true},
		"crash@zone=b":           {},
		"image-pull-error@zone":  {noImage: true},
		"crash@gpu,slow=1m@zone": {},
	} {
		if value == "crash@gpu,slow=1m@zone" {
			want = behaviour{slow: time.Minute}
		}
		if got, err := parseBehaviour(value, zone); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", value, got, err, want)
		}
	}
}

func TestUnknownMisbehaviourIsRefusedOnEveryNode(t *testing.T) {
	for _, value := range []string{"krash", "slow", "slow=soon", "slow=-1s", "krash@zone=b"} {
		if got, err := parseBehaviour(value, map[string]string{"zone": "a"}); err == nil {
			t.Errorf("%q was read as %+v", value, got)
		}
	}
}
