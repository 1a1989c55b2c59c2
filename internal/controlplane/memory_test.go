package controlplane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

func TestADeadlineThatWasTakenBackNeverStrikes(t *testing.T) {
	l := newMemoryListener()
	defer l.Close()
	there := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		there <- c
	}()
	here, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	server := <-there
	defer server.Close()
	buf := make([]byte, 1)
	for i := range 20000 {
		if err := server.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := server.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := here.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(server, buf); err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
	}
}

func TestRequestsInMemoryAreNotCanceled(t *testing.T) {
	l := newMemoryListener()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(100 * time.Microsecond)
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }, MaxIdleConnsPerHost: 8,
	}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				resp, err := client.Get("http://memory/")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("the server saw its client go: %s", resp.Status)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAClosedListenerTakesNobody(t *testing.T) {
	l := newMemoryListener()
	l.Close()
	l.Close()
	if _, err := l.DialContext(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	open := newMemoryListener()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open.DialContext(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("dial after the context's end: %v", err)
	}
}
