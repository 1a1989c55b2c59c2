package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// dataVersion is the layout of the data directory; a change that an older
// program could not read raises it.
const dataVersion = 1

// checkDataVersion refuses a data directory that a newer program has written. A new
// one is marked, if it may be, or else refused too.
func checkDataVersion(dir string, mark bool) error {
	file := filepath.Join(dir, "version")
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !mark {
		return fmt.Errorf("%s holds no cluster (it has no file named version)", dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(file, []byte(strconv.Itoa(dataVersion)+"\n"), 0o600)
	}
	if err != nil {
		return fmt.Errorf("read the data directory's version: %w", err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return fmt.Errorf("%s holds %q, not a number; is %s another program's directory?", file, strings.TrimSpace(string(raw)), dir)
	}
	if v > dataVersion {
		return fmt.Errorf("%s was written by a newer rollcall (data version %d, this one knows %d): use that version, or another --data-dir", dir, v, dataVersion)
	}
	return nil
}
