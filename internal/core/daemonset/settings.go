package daemonset

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/core/fit"
)

// settingPrefix begins the annotations by which users set what apps/v1 has no
// field for. On a Namespace they are the defaults of its DaemonSets.
const settingPrefix = "rollcall.dev/"

// defaultProgressDeadline is how long a rollout may go without progress, as long
// as a Deployment's.
const defaultProgressDeadline = 10 * time.Minute

// settings are the values of a DaemonSet's annotations.
type settings struct {
	progressDeadline time.Duration // 0 for none
	hash             string        // of the annotations; empty without any
}

// readers read one setting each, and say what a value must look like.
var readers = map[string]func(*settings, string) error{
	"progress-deadline": func(s *settings, v string) error {
		if v == "none" {
			s.progressDeadline = 0
			return nil
		}
		d, err := time.ParseDuration(v)
		if err != nil || d < time.Second {
			return fmt.Errorf("write a duration of at least 1s, such as 10m, or none")
		}
		s.progressDeadline = d
		return nil
	},
}

// CheckSettings says what is wrong with the settings among an object's annotations,
// sorted by name: a value that cannot be read, or a name that is not known.
func CheckSettings(annotations map[string]string) []fit.Reason {
	_, wrong := readSettings(annotations, nil)
	return wrong
}

// readSettings reads the DaemonSet's annotations, and those of its namespace for
// what the DaemonSet does not set.
func readSettings(own, defaults map[string]string) (settings, []fit.Reason) {
	out := settings{progressDeadline: defaultProgressDeadline}
	values := map[string]string{}
	for _, from := range []map[string]string{defaults, own} {
		for _, k := range slices.Sorted(maps.Keys(from)) {
			if strings.HasPrefix(k, settingPrefix) {
				values[k] = from[k]
			}
		}
	}
	if len(values) == 0 {
		return out, nil
	}
	var wrong []fit.Reason
	h := fnv.New32a()
	for _, k := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(h, "%q=%q ", k, values[k])
		name := strings.TrimPrefix(k, settingPrefix)
		read, known := readers[name]
		if !known {
			wrong = append(wrong, fit.Reason{Code: fit.SettingInvalid, Object: "annotation/" + k, Asked: values[k],
				Message: fmt.Sprintf("annotation %s is not known; known are %s", k, settingNames()), Remedy: "remove the annotation or correct its name"})
			continue
		}
		if err := read(&out, values[k]); err != nil {
			wrong = append(wrong, fit.Reason{Code: fit.SettingInvalid, Object: "annotation/" + k, Asked: values[k],
				Message: fmt.Sprintf("annotation %s: %q cannot be read", k, values[k]), Remedy: err.Error()})
		}
	}
	out.hash = fmt.Sprintf("%08x", h.Sum32())
	return out, wrong
}

func settingNames() string {
	names := slices.Sorted(maps.Keys(readers))
	for i := range names {
		names[i] = settingPrefix + names[i]
	}
	return strings.Join(names, ", ")
}
