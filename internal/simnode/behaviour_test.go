package simnode

import (
	"strings"
	"testing"
	"time"
)

func TestAnnotationTellsHowAPodMisbehaves(t *testing.T) {
	labels := map[string]string{"zone": "a", "rollcall.dev/gpu": ""}
	for _, c := range []struct {
		value string
		want  behaviour
	}{
		{"", behaviour{}},
		{" , ", behaviour{}},
		{"crash", behaviour{crash: true}},
		{"oom, never-ready", behaviour{oom: true, neverReady: true}},
		{"slow=30s", behaviour{slow: 30 * time.Second}},
		{"stuck-terminating", behaviour{stuck: true}},
		{"crash@zone=a", behaviour{crash: true}},
		{"crash@zone=b", behaviour{}},
		{"crash@zone=", behaviour{}},
		{"image-pull-error@zone", behaviour{noImage: true}},
		{"crash@rollcall.dev/gpu", behaviour{crash: true}},
		{"crash@rollcall.dev/gpu=", behaviour{crash: true}},
		{"crash@gpu, slow=1m@zone", behaviour{slow: time.Minute}},
	} {
		if got, err := parseBehaviour(c.value, labels); err != nil || got != c.want {
			t.Errorf("%q: got %+v, %v; want %+v", c.value, got, err, c.want)
		}
	}
}

func TestUnknownMisbehaviourIsRefusedOnEveryNode(t *testing.T) {
	for _, value := range []string{"krash", "slow", "slow=soon", "slow=-1s", "krash@zone=b", "crash=1", "crash@", "crash@=a", "crash;node=zone=a", "crash,@zone"} {
		if got, err := parseBehaviour(value, map[string]string{"zone": "a"}); err == nil {
			t.Errorf("%q was read as %+v", value, got)
		}
	}
	_, err := parseBehaviour("krash", nil)
	for _, word := range []string{"crash", "oom", "never-ready", "image-pull-error", "slow=DURATION", "stuck-terminating"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the refusal does not name %s: %v", word, err)
		}
	}
}

func TestTheTagNonExistentCannotBePulled(t *testing.T) {
	for image, want := range map[string]bool{"a:1": true, "a": true, "non-existent": true, "a:non-existent": false,
		"r:5000/a:non-existent": false, "a:non-existent@sha256:00": false} {
		if got := pullable(image); got != want {
			t.Errorf("%s: pullable %v, want %v", image, got, want)
		}
	}
}
