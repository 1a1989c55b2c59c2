package controlplane

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// Identity is a user of the API that lives in this process.
type Identity struct {
	User   string
	Groups []string
	token  string
}

// The identities of upstream's components in this process.
var (
	controllerManager = Identity{User: "system:kube-controller-manager"}
	scheduler         = Identity{User: "system:kube-scheduler"}
)

// issueTokens gives each identity a random token, good until the process ends,
// and writes the file from which the API server knows them.
func issueTokens(file string, ids []*Identity) error {
	var b strings.Builder
	for i, id := range ids {
		var raw [32]byte
		if _, err := rand.Read(raw[:]); err != nil {
			return err
		}
		id.token = hex.EncodeToString(raw[:])
		fmt.Fprintf(&b, "%s,%s,in-process-%d,%q\n", id.token, id.User, i, strings.Join(id.Groups, ","))
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write the tokens of the components in this process: %w", err)
	}
	return nil
}
