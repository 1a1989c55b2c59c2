package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// removeBridge removes the bridge of the pods and the links that are left on it.
func removeBridge(name string) error {
	if name == "" {
		return nil
	}
	ports, _ := os.ReadDir(filepath.Join("/sys/class/net", name, "brif"))
	var errs []error
	for _, p := range ports {
		errs = append(errs, removeLink(p.Name()))
	}
	return errors.Join(append(errs, removeLink(name))...)
}

// removeLink removes a network link; one that is gone is fine.
func removeLink(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("remove the link %s: %w", name, err)
	}
	defer unix.Close(fd)
	// A header and, with nothing but the index set, an ifinfomsg.
	req := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(req[0:], uint32(len(req)))
	binary.NativeEndian.PutUint16(req[4:], unix.RTM_DELLINK)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	binary.NativeEndian.PutUint32(req[8:], 1)
	binary.NativeEndian.PutUint32(req[unix.SizeofNlMsghdr+4:], uint32(link.Index))
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("remove the link %s: %w", name, err)
	}
	resp := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, resp, 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("remove the link %s: no answer: %w", name, err)
	}
	code := int32(binary.NativeEndian.Uint32(resp[unix.SizeofNlMsghdr:]))
	if code != 0 && unix.Errno(-code) != unix.ENODEV {
		return fmt.Errorf("remove the link %s: %w", name, unix.Errno(-code))
	}
	return nil
}
