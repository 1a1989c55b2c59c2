package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// gcPercent trades some processor time for memory: agents' nodes are often small
// machines. GOGC in the environment overrides it.
const gcPercent = 50

func limitMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// releaseMemory gives back what only the start has needed: the free part of the
// heap, and the pages of this program's own file, of which most hold code that runs
// once. The kernel maps those that are needed again from its cache. That it fails
// harms nothing.
func releaseMemory() {
	debug.FreeOSMemory()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	for _, m := range unwritten(maps, self) {
		// In pages of 2 MiB, as newer kernels map files, one call holds far more than it needs.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_NOHUGEPAGE)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
	}
}

type mapping struct{ from, to uintptr }

// unwritten reads a process's smaps and returns the mappings of file that hold
// nothing but the file: they are read-only now, and were never written before, as
// the linker's tables are before they are made read-only.
func unwritten(smaps io.Reader, file string) []mapping {
	var out []mapping
	var current mapping
	readOnly := false
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		line := lines.Text()
		var m mapping
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &m.from, &m.to, &rights); n == 3 {
			current, readOnly = m, !strings.Contains(rights, "w") && strings.HasSuffix(line, " "+file)
			continue
		}
		var own int
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &own); n == 1 && own == 0 && readOnly {
			out = append(out, current)
		}
	}
	return out
}
