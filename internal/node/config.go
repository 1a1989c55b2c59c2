package node

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
)

// Config is what a node is started from.
type Config struct {
	Name       string // of the node
	DataDir    string // the node's own, absolute: DATA/node
	BinDir     string // containerd, its shim, runc, the CNI plugins and pause
	ServerURL  string // of the API
	CAFile     string // the certificates that the API and its clients are checked with
	NodeLabels map[string]string

	// BootstrapToken is what the kubelet joins with: ID.SECRET.
	BootstrapToken string
	// Images are archives to import and pin, in addition to pause.
	Images []string
	// KubeletCommand starts the kubelet; flags are appended. Empty: no kubelet, only
	// containerd.
	KubeletCommand []string
	// BoxCommand calls BoxMain. Empty: this program with the argument "node-box".
	BoxCommand []string
	// PodCIDR is what pods without hostNetwork get addresses from. Empty: SetPodCIDR
	// says it once the Node has its range; until then the node is not Ready.
	PodCIDR string
	// NodeIP is the machine's address in the cluster. Empty: the IPv4 address of the
	// interface with the default route, or else the first that is not loopback.
	NodeIP string
	// LogDir gets containerd.log and kubelet.log. Empty: DataDir/logs.
	LogDir string
	// Log gets a line for each thing worth knowing. Nil: nothing.
	Log io.Writer
}

var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// complete checks a configuration and fills in what may be left out.
func (c Config) complete() (Config, error) {
	if !nodeName.MatchString(c.Name) {
		return c, fmt.Errorf("node name %q: write up to 63 of a-z, 0-9, - and .", c.Name)
	}
	for what, dir := range map[string]*string{"data": &c.DataDir, "program": &c.BinDir} {
		if *dir == "" {
			return c, fmt.Errorf("no %s directory is given", what)
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return c, err
		}
		*dir = abs
	}
	if len(c.KubeletCommand) > 0 && (c.ServerURL == "" || c.CAFile == "" || c.BootstrapToken == "") {
		return c, errors.New("a kubelet needs the API's URL, its CA file and a bootstrap token")
	}
	if len(c.BoxCommand) == 0 {
		self, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("find this program: %w", err)
		}
		c.BoxCommand = []string{self, "node-box"}
	}
	if c.PodCIDR != "" {
		if err := checkPodCIDR(c.PodCIDR); err != nil {
			return c, err
		}
	}
	if c.LogDir == "" {
		c.LogDir = filepath.Join(c.DataDir, "logs")
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	for _, image := range c.Images {
		if _, err := os.Stat(image); err != nil {
			return c, fmt.Errorf("image archive: %w", err)
		}
	}
	return c, nil
}

func checkPodCIDR(cidr string) error {
	if p, err := netip.ParsePrefix(cidr); err != nil || !p.Addr().Is4() {
		return fmt.Errorf("pod addresses %q: write an IPv4 range such as 10.42.0.0/24", cidr)
	}
	return nil
}

// dir is a path below the data directory.
func (c Config) dir(elem ...string) string {
	return filepath.Join(append([]string{c.DataDir}, elem...)...)
}

func (c Config) logf(format string, args ...any) { fmt.Fprintf(c.Log, format+"\n", args...) }
