package main

import (
	"bufio"
	"fmt"
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
// once. The kernel reads those that are needed again. That it fails harms nothing.
//
// MADV_PAGEOUT keeps what a page holds, whatever it is. MADV_DONTNEED would not: it
// loses the tables that the dynamic linker has written and made read-only.
func releaseMemory() {
	debug.FreeOSMemory()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x", &from, &to); n != 2 || !strings.HasSuffix(lines.Text(), " "+self) {
			continue
		}
		// In pages of 2 MiB, as newer kernels map files, one call holds far more than it needs.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_NOHUGEPAGE)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_PAGEOUT)
	}
}
