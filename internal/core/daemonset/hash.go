package daemonset

import (
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/dump"
	"k8s.io/apimachinery/pkg/util/rand"
)

// templateData is the template as a revision stores it: a patch that replaces it,
// byte for byte as upstream writes it.
func templateData(ds *appsv1.DaemonSet) ([]byte, error) {
	raw, err := json.Marshal(ds.Spec.Template)
	if err != nil {
		return nil, err
	}
	template := map[string]any{}
	if err := json.Unmarshal(raw, &template); err != nil {
		return nil, err
	}
	template["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
}

// templateHash is the hash upstream gives a template: FNV-32a over its dump and
// the collision count.
func templateHash(template *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	h.Write([]byte(dump.ForHash(*template))) //nolint:staticcheck // its successor is in k8s.io/utils, which core does not import
	if collisions != nil {
		var count [8]byte
		binary.LittleEndian.PutUint32(count[:], uint32(*collisions))
		h.Write(count[:])
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// maxBase is how much of a DaemonSet's name goes into its pods' names: a name
// serves as host name, of 63 characters at most.
const maxBase = 52

// podName is derived from the place, the revision and the last pod seen in the
// place: a create that is repeated cannot make a second pod.
func podName(ds *appsv1.DaemonSet, node types.UID, hash string, place Place) string {
	h := fnv.New64a()
	for _, part := range []string{string(ds.UID), string(node), hash, string(place.LastPod), strconv.Itoa(int(place.Salt))} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	base := ds.Name
	if len(base) > maxBase {
		base = strings.TrimRight(base[:maxBase], ".-") // no label of a name may be empty or begin with a dash
	}
	return base + "-" + suffix(h.Sum64())
}

// suffix is ten characters of the alphabet that spells no words.
func suffix(sum uint64) string {
	out := make([]byte, 10)
	for i := range out {
		out[i] = byte('0' + sum%27)
		sum /= 27
	}
	return rand.SafeEncodeString(string(out))
}
