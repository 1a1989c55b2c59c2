package daemonset

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// FuzzAnnotations reads settings, and the rollout that the Progressing condition
// carries: text that users and others can write.
func FuzzAnnotations(f *testing.F) {
	for _, v := range []string{"", "10m", "none", "0s", "-1h", "1s", "9223372036854775807ns", "5", "[revision a since b, 1 done, last progress c]",
		"x [revision 5f4 since 2026-01-02T03:04:05Z, 3 done, last progress 2026-01-02T03:04:05Z]"} {
		f.Add("progress-deadline", v, "progress-deadline", "1h")
		f.Add("progress-deadlin", v, "", v)
	}
	f.Fuzz(func(t *testing.T, name, value, defaultName, defaultValue string) {
		own := map[string]string{settingPrefix + name: value, "example.com/" + name: value}
		defaults := map[string]string{settingPrefix + defaultName: defaultValue}
		s, wrong := readSettings(own, defaults)
		if again, _ := readSettings(own, defaults); again != s {
			t.Fatalf("read as %+v and as %+v", s, again)
		}
		if s.progressDeadline != 0 && s.progressDeadline < time.Second {
			t.Fatalf("a deadline of %s", s.progressDeadline)
		}
		for _, w := range wrong {
			if w.Code != fit.SettingInvalid || !strings.HasPrefix(w.Object, "annotation/"+settingPrefix) || w.Remedy == "" {
				t.Fatalf("wrong: %+v", w)
			}
		}
		// What the DaemonSet sets is judged as if its namespace set nothing.
		for _, w := range CheckSettings(own) {
			if !slices.ContainsFunc(wrong, func(o fit.Reason) bool { return reflect.DeepEqual(o, w) }) {
				t.Fatalf("%+v is wrong alone, but not with the namespace's defaults: %+v", w, wrong)
			}
		}
		checkCarried(t, name, value)
	})
}

// checkCarried: whatever stands before it, what one plan carries the next one reads.
func checkCarried(t *testing.T, reason, message string) {
	read := func(m string) Rollout {
		r, _ := readRollout([]appsv1.DaemonSetCondition{{Type: Progressing, Status: corev1.ConditionTrue, Reason: reason, Message: m}})
		return r
	}
	r := read(message)
	if r.Revision == "" {
		r = Rollout{Revision: "5f4", Began: time.Unix(1e9, 0).UTC(), Done: len(message), LastProgress: time.Unix(2e9, 0).UTC()}
	}
	r.Complete = reason == RolloutComplete
	if got := read(message + " " + r.carry()); !reflect.DeepEqual(got, r) {
		t.Fatalf("carried %+v, read %+v", r, got)
	}
}
