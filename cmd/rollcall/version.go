package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
)

// rollcallVersion is stamped at build.
var rollcallVersion = "v0.0.0-dev"

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of Rollcall and of the Kubernetes it is built on", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Rollcall   string `json:"rollcall"`
				Kubernetes string `json:"kubernetes"`
				Go         string `json:"go"`
				Platform   string `json:"platform"`
			}{rollcallVersion, version.Get().GitVersion, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			switch output {
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			case "":
				fmt.Fprintf(cmd.OutOrStdout(), "rollcall %s\nkubernetes %s\n%s %s\n", v.Rollcall, v.Kubernetes, v.Go, v.Platform)
				return nil
			default:
				return fmt.Errorf("--output %q: the only format is json", output)
			}
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for machines")
	return cmd
}
