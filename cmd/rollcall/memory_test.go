package main

import (
	"reflect"
	"strings"
	"testing"
)

// Pages that the dynamic linker has written are read-only afterwards, and still not
// what the file holds: to drop them ends the program at its next call into C.
func TestOnlyMappingsThatWereNeverWrittenAreGivenBack(t *testing.T) {
	const smaps = `00400000-00500000 r-xp 00000000 fe:00 11 /bin/rollcall
Rss:                 900 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00500000-00600000 r--p 00100000 fe:00 11 /bin/rollcall
Rss:                 900 kB
Anonymous:             0 kB
00600000-00601000 r--p 00200000 fe:00 11 /bin/rollcall
Rss:                   4 kB
Anonymous:             4 kB
00601000-00701000 rw-p 00201000 fe:00 11 /bin/rollcall
Rss:                   0 kB
Anonymous:             0 kB
7f0000000000-7f0000100000 r-xp 00000000 fe:00 12 /lib/libc.so.6
Rss:                 900 kB
Anonymous:             0 kB
7f0000200000-7f0000300000 r--p 00000000 00:00 0
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x500000}, {0x500000, 0x600000}}
	if got := unwritten(strings.NewReader(smaps), "/bin/rollcall"); !reflect.DeepEqual(got, want) {
		t.Errorf("given back: %x, want %x", got, want)
	}
}
