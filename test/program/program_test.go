package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTheProgramEndsWithItsTest: also with one that is killed.
func TestTheProgramEndsWithItsTest(t *testing.T) {
	if os.Getenv("ROLLCALL_TEST_TO_KILL") != "" {
		fmt.Println("pid", Start(t, t.TempDir()).PID())
		select {}
	}
	bin := filepath.Join(t.TempDir(), "rollcall")
	if err := os.WriteFile(bin, []byte("#!/bin/sh\necho ready now\nexec sleep 300\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	test := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	test.Env = append(os.Environ(), "ROLLCALL_TEST_TO_KILL=1", "ROLLCALL_BIN="+bin, "TMPDIR="+t.TempDir())
	stdout, err := test.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	_, err = fmt.Fscanf(stdout, "pid %d\n", &pid)
	if killErr := test.Process.Kill(); err != nil || killErr != nil {
		t.Fatal(err, killErr)
	}
	_ = test.Wait()
	Eventually(t, "the program has ended", func() string {
		// Empty once it is a zombie, which its new parent may be slow to bury.
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return string(command)
	})
}
