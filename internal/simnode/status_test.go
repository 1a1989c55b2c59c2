package simnode

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
)

var (
	began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	here  = &node{spec: Spec{Name: "sim-1"}}
)

func aPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec: corev1.PodSpec{NodeName: "sim-1", Containers: []corev1.Container{{Name: "c", Image: "i:1"}}}}
}

// script plays a pod as the fleet does, without an API.
type script struct {
	pod  *corev1.Pod
	life life
	b    behaviour
}

func begin(p *corev1.Pod, b behaviour) *script {
	return &script{pod: p, b: b, life: life{uid: p.UID, ip: 258, seen: began}}
}

// at decides, and writes the status unless nothing is to be written.
func (s *script) at(t *testing.T, age time.Duration) (wait time.Duration, wrote bool) {
	t.Helper()
	d := here.decide(moment{pod: s.pod, life: s.life, behaviour: s.b, readyDelay: time.Second, now: began.Add(age)})
	if d.status == nil || d.settled(s.pod, &s.life) {
		return d.wait, false
	}
	patch, err := statusPatch(s.pod, d.status)
	if err != nil {
		t.Fatal(err)
	}
	old, err := json.Marshal(s.pod)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(old, patch, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	s.pod, s.life = &corev1.Pod{}, d.life
	if err := json.Unmarshal(merged, s.pod); err != nil {
		t.Fatal(err)
	}
	return d.wait, true
}

func (s *script) check(t *testing.T, phase corev1.PodPhase, ready bool) {
	t.Helper()
	if s.pod.Status.Phase != phase || isReady(s.pod.Status.Conditions) != ready {
		t.Fatalf("phase %s, conditions %+v; want %s, ready %v", s.pod.Status.Phase, s.pod.Status.Conditions, phase, ready)
	}
}

func TestAHealthyPodIsReadyAfterTheDelayAndWrittenOnce(t *testing.T) {
	p := aPod()
	p.Spec.InitContainers = []corev1.Container{{Name: "once", Image: "i"}, {Name: "side", Image: "i", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	s := begin(p, behaviour{})
	if wait, wrote := s.at(t, 0); wrote || wait != time.Second {
		t.Fatalf("wrote %v, wait %v before the delay", wrote, wait)
	}
	s.at(t, time.Second)
	s.check(t, corev1.PodRunning, true)
	st := s.pod.Status
	for _, want := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		if c := condition(s.pod, want); c == nil || c.Status != corev1.ConditionTrue {
			t.Errorf("condition %s is %+v", want, c)
		}
	}
	if st.HostIP != "198.18.0.1" || st.PodIP != "198.19.1.2" || st.PodIPs[0].IP != st.PodIP || st.HostIPs[0].IP != st.HostIP || st.StartTime == nil {
		t.Errorf("addresses and start: %+v", st)
	}
	c := st.ContainerStatuses[0]
	if !c.Ready || !*c.Started || c.State.Running == nil || c.ContainerID != "sim://u/c" || c.ImageID == "" || c.Image != "i:1" {
		t.Errorf("container %+v", c)
	}
	if x := st.InitContainerStatuses[0].State.Terminated; x == nil || x.Reason != "Completed" {
		t.Errorf("init container %+v", st.InitContainerStatuses[0])
	}
	if st.InitContainerStatuses[1].State.Running == nil {
		t.Errorf("sidecar %+v", st.InitContainerStatuses[1])
	}
	if _, wrote := s.at(t, time.Minute); wrote {
		t.Error("written again though nothing changed")
	}
	condition(s.pod, corev1.PodReady).Status = corev1.ConditionFalse
	if _, wrote := s.at(t, 2*time.Minute); !wrote {
		t.Error("not written again after someone else called it unready")
	}
}

func TestAPodInTheHostsNetworkHasTheNodesAddress(t *testing.T) {
	s := begin(aPod(), behaviour{})
	s.life.ip = 0
	s.at(t, time.Second)
	if s.pod.Status.PodIP != s.pod.Status.HostIP {
		t.Errorf("pod %s, host %s", s.pod.Status.PodIP, s.pod.Status.HostIP)
	}
}

func TestACrashingPodBacksOffAsUnderAKubelet(t *testing.T) {
	for word, b := range map[string]behaviour{"Error": {crash: true}, "OOMKilled": {oom: true}} {
		s := begin(aPod(), b)
		age := time.Second
		for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			want *= time.Second
			wait, wrote := s.at(t, age)
			if !wrote || wait != want {
				t.Fatalf("%s, crash %d: wrote %v, wait %v, want %v", word, i+1, wrote, wait, want)
			}
			s.check(t, corev1.PodRunning, false)
			c := s.pod.Status.ContainerStatuses[0]
			if c.RestartCount != int32(i+1) || c.LastTerminationState.Terminated.Reason != word {
				t.Errorf("%s, crash %d: %+v", word, i+1, c)
			}
			if got, want := c.State.Waiting.Message, "back-off "+want.String()+" restarting failed container=c pod=p_ns(u)"; got != want {
				t.Errorf("message %q, want %q", got, want)
			}
			if r := condition(s.pod, corev1.PodReady); r.Reason != "ContainersNotReady" || r.Message != "containers with unready status: [c]" {
				t.Errorf("Ready %+v", r)
			}
			if _, wrote := s.at(t, age+time.Second); wrote {
				t.Fatalf("%s: its own write made it crash again", word)
			}
			age += wait
		}
	}
}

func TestAnImageThatCannotBePulled(t *testing.T) {
	p := aPod()
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "d", Image: "i:non-existent"})
	s := begin(p, behaviour{})
	for _, step := range []struct {
		age    time.Duration
		reason string
	}{{0, "ErrImagePull"}, {10 * time.Second, "ImagePullBackOff"}} {
		if _, wrote := s.at(t, step.age); !wrote {
			t.Fatalf("nothing written at %v", step.age)
		}
		s.check(t, corev1.PodPending, false)
		w := s.pod.Status.ContainerStatuses[1].State.Waiting
		if w == nil || w.Reason != step.reason || !strings.Contains(w.Message, `"i:non-existent"`) {
			t.Errorf("at %v: %+v", step.age, w)
		}
		if s.pod.Status.ContainerStatuses[0].State.Running == nil {
			t.Error("the container whose image is there does not run")
		}
	}
	p = aPod()
	p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "i:non-existent"}, {Name: "second", Image: "i"}}
	s = begin(p, behaviour{})
	s.at(t, 0)
	if c := condition(s.pod, corev1.PodInitialized); c.Message != "containers with incomplete status: [first second]" {
		t.Errorf("Initialized %+v", c)
	}
}

func TestSlowAndNeverReady(t *testing.T) {
	s := begin(aPod(), behaviour{neverReady: true})
	s.at(t, time.Hour)
	s.check(t, corev1.PodRunning, false)
	s = begin(aPod(), behaviour{slow: 30 * time.Second})
	if wait, _ := s.at(t, time.Second); wait != 29*time.Second {
		t.Errorf("wait %v", wait)
	}
	s.check(t, corev1.PodRunning, false)
	started := s.pod.Status.ContainerStatuses[0].State.Running.StartedAt
	s.at(t, 30*time.Second)
	s.check(t, corev1.PodRunning, true)
	if c := condition(s.pod, corev1.PodReady); c.Reason != "" || c.Message != "" {
		t.Errorf("an old reason stays: %+v", c)
	}
	if got := s.pod.Status.ContainerStatuses[0].State.Running.StartedAt; !got.Equal(&started) {
		t.Errorf("started at %v, before at %v", got, started)
	}
}

func TestAReadinessGateHoldsReadyBack(t *testing.T) {
	p := aPod()
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x/open"}}
	s := begin(p, behaviour{})
	s.at(t, time.Second)
	s.check(t, corev1.PodRunning, false)
	s.pod.Status.Conditions = append(s.pod.Status.Conditions, corev1.PodCondition{Type: "x/open", Status: corev1.ConditionTrue})
	s.at(t, 2*time.Second)
	s.check(t, corev1.PodRunning, true)
	if len(s.pod.Status.Conditions) != 6 {
		t.Errorf("conditions %+v", s.pod.Status.Conditions)
	}
}

func TestAnAddressThatIsNoLongerThePodsGoes(t *testing.T) {
	p := aPod()
	p.Status = corev1.PodStatus{HostIP: "10.0.0.1", HostIPs: []corev1.HostIP{{IP: "10.0.0.1"}}, PodIP: "10.0.0.2", PodIPs: []corev1.PodIP{{IP: "10.0.0.2"}}}
	s := begin(p, behaviour{})
	s.at(t, time.Second)
	if st := s.pod.Status; len(st.HostIPs) != 1 || len(st.PodIPs) != 1 || st.PodIPs[0].IP != st.PodIP {
		t.Errorf("%+v %+v", st.HostIPs, st.PodIPs)
	}
}

func TestAddressesAreUnique(t *testing.T) {
	var a addresses
	kept, ok := a.reserve("198.19.0.1")
	if !ok || kept != 1 {
		t.Fatalf("reserved %d, %v", kept, ok)
	}
	for _, ip := range []string{"198.19.0.1", "198.18.0.9", "10.0.0.1", "", "198.19.0.0"} {
		if _, ok := a.reserve(ip); ok {
			t.Errorf("%q was reserved", ip)
		}
	}
	seen := map[uint16]bool{kept: true}
	for range 1<<16 - 3 {
		i := a.take()
		if i == 0 || i == 1<<16-1 || seen[i] {
			t.Fatalf("%s twice, or outside", podAddress(i))
		}
		seen[i] = true
	}
	a.take() // all are taken: it still answers
	a.release(77)
	if got := a.take(); got != 77 {
		t.Errorf("took %d, 77 was free", got)
	}
}
