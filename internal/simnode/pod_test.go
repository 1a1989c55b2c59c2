package simnode

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func TestTerminationTakesItsDelayWithinTheGracePeriod(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration
		grace *int64
		phase corev1.PodPhase
		want  time.Duration
	}{
		{0, ptr.To[int64](30), corev1.PodRunning, defaultTerminationDelay},
		{time.Minute, ptr.To[int64](30), corev1.PodRunning, 30 * time.Second},
		{time.Minute, ptr.To[int64](0), corev1.PodRunning, 0},
		{time.Second, nil, corev1.PodRunning, time.Second},
		{time.Minute, ptr.To[int64](30), corev1.PodFailed, 0},
		{time.Minute, ptr.To[int64](30), corev1.PodSucceeded, 0},
	} {
		p := aPod()
		p.DeletionGracePeriodSeconds, p.Status.Phase = c.grace, c.phase
		if got := New(Config{TerminationDelay: c.delay}).terminationDelay(p); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestAFailedWriteIsTriedAgainWithinBounds(t *testing.T) {
	f, l := New(Config{}), &life{}
	key, pods := cache.NewObjectName("ns", "p"), schema.GroupResource{Resource: "pods"}
	for _, err := range []error{apierrors.NewNotFound(pods, "p"), apierrors.NewConflict(pods, "p", errors.New("another uid"))} {
		if wait := f.retry(context.Background(), key, l, err); wait != 0 || l.fails != 0 {
			t.Errorf("%v: tried again after %v", err, wait)
		}
	}
	tries := 0
	for last := time.Duration(0); ; tries++ {
		wait := f.retry(context.Background(), key, l, errors.New("no connection"))
		if wait == 0 {
			break
		}
		if wait < last || wait > lastRetry {
			t.Fatalf("try %d waits %v after %v", tries, wait, last)
		}
		last = wait
	}
	if tries != retries {
		t.Errorf("%d tries, want %d", tries, retries)
	}
}
