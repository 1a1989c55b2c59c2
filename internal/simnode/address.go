package simnode

import (
	"fmt"
	"net/netip"
)

// Addresses come out of the range for benchmarks (RFC 2544): no packet goes there.
// Nodes have its lower half, pods its upper.
const maxNodes = 250 * 256

func (n *node) address() string {
	return fmt.Sprintf("198.18.%d.%d", n.index/250, n.index%250+1)
}

// addresses hands out the last two bytes of pods' addresses. The
// first and the last are left out; once all others are taken, addresses are handed
// out twice rather than pods held up.
type addresses struct {
	used [1 << 16 / 64]uint64
	last uint16
}

func (a *addresses) taken(i uint16) bool { return a.used[i/64]&(1<<(i%64)) != 0 }

// take returns an address that no pod has. It goes round, so that one is not used
// again at once.
func (a *addresses) take() uint16 {
	for range 1 << 16 {
		a.last++
		if a.last != 0 && a.last != 1<<16-1 && !a.taken(a.last) {
			break
		}
	}
	if a.last == 0 || a.last == 1<<16-1 {
		a.last = 1
	}
	a.used[a.last/64] |= 1 << (a.last % 64)
	return a.last
}

// reserve keeps the address of a pod that was there before; false for one that is
// not out of the range, or taken.
func (a *addresses) reserve(ip string) (uint16, bool) {
	addr, err := netip.ParseAddr(ip)
	if err != nil || !addr.Is4() {
		return 0, false
	}
	b := addr.As4()
	i := uint16(b[2])<<8 | uint16(b[3])
	if b[0] != 198 || b[1] != 19 || i == 0 || i == 1<<16-1 || a.taken(i) {
		return 0, false
	}
	a.used[i/64] |= 1 << (i % 64)
	return i, true
}

func (a *addresses) release(i uint16) { a.used[i/64] &^= 1 << (i % 64) }

func podAddress(i uint16) string { return fmt.Sprintf("198.19.%d.%d", i>>8, i&0xff) }
