package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"

	"github.com/rollcall-dev/rollcall/internal/core/daemonset"
)

type whyOptions struct {
	flags *genericclioptions.ConfigFlags
	all   bool
	node  string
	json  bool
	out   io.Writer
	errs  io.Writer
}

// NewWhyCommand explains, for each node, why a DaemonSet's pod is or is not there.
// kubeconfig is read where the user names none; "" for kubectl's own rules.
func NewWhyCommand(kubeconfig func() string) *cobra.Command {
	o := whyOptions{flags: genericclioptions.NewConfigFlags(true)}
	var output string
	cmd := &cobra.Command{
		Use: "why [ds NAME | ds/NAME]", Short: "Say, node by node, why an agent is there or is not",
		Long: "Say why agents are missing. Without a name: a line for each DaemonSet, worst first.\nWith one: a line for each node.\n\n" +
			"Only reads. Exit code 0: every node that should have a pod has an available one;\n1: error; 2: a pod is missing; 3: the answer is incomplete, and what it lacks is said.",
		Example: "  rollcall why -A\n  rollcall why -n monitoring ds/node-exporter\n  rollcall why -n monitoring ds node-exporter --node worker-7 -o json",
		Args:    cobra.MaximumNArgs(2), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output %q: write json, or leave it out", output)
			}
			name, err := daemonSetName(args)
			if err != nil {
				return err
			}
			if *o.flags.KubeConfig == "" {
				*o.flags.KubeConfig = kubeconfig()
			}
			o.out, o.errs, o.json = cmd.OutOrStdout(), cmd.ErrOrStderr(), output == "json"
			return o.run(cmd.Context(), name)
		},
	}
	o.flags.AddFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "look at all namespaces")
	cmd.Flags().StringVar(&o.node, "node", "", "look at this node only")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for machines")
	return cmd
}

// daemonSetName reads "ds NAME", "ds/NAME" or nothing.
func daemonSetName(args []string) (string, error) {
	var kind, name string
	switch len(args) {
	case 0:
		return "", nil
	case 1:
		var ok bool
		if kind, name, ok = strings.Cut(args[0], "/"); !ok {
			return "", fmt.Errorf("%q: write ds NAME or ds/NAME", args[0])
		}
	default:
		kind, name = args[0], args[1]
	}
	switch strings.ToLower(kind) {
	case "ds", "daemonset", "daemonsets", "daemonsets.apps", "daemonset.apps":
	default:
		return "", fmt.Errorf("%q is no kind this command knows: write ds NAME or ds/NAME", kind)
	}
	if name == "" {
		return "", fmt.Errorf("the DaemonSet's name is missing: write ds/NAME")
	}
	return name, nil
}

func (o whyOptions) run(ctx context.Context, name string) error {
	cfg, err := o.flags.ToRESTConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	namespace, _, err := o.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}
	if o.all && name != "" {
		return fmt.Errorf("a name and -A do not go together: say the namespace with -n")
	}
	if o.all {
		namespace = ""
	}
	f, err := gather(ctx, client, namespace)
	if err != nil {
		return err
	}
	all := f.answers(func(ds *appsv1.DaemonSet) bool { return name == "" || ds.Name == name })
	if name != "" && len(all) == 0 {
		return fmt.Errorf("no DaemonSet %s in namespace %s", name, namespace)
	}
	if err := o.narrow(all); err != nil {
		return err
	}
	if err := o.print(all, name, namespace); err != nil {
		return err
	}
	for _, m := range f.missing {
		fmt.Fprintln(o.errs, "incomplete:", m)
	}
	switch {
	case len(f.missing) > 0:
		return Exit(ExitIncomplete)
	case slices.ContainsFunc(all, func(a answer) bool { return len(a.in(daemonset.Missing)) > 0 }):
		return Exit(ExitFound)
	}
	return nil
}

// narrow keeps of each roll call the node that was asked for.
func (o whyOptions) narrow(all []answer) error {
	if o.node == "" {
		return nil
	}
	for i := range all {
		roll := slices.DeleteFunc(slices.Clone(all[i].plan.Roll), func(p daemonset.Presence) bool { return p.Node != o.node })
		if len(roll) == 0 {
			return fmt.Errorf("no node %s", o.node)
		}
		all[i].plan.Roll = roll
	}
	return nil
}

// in is the part of the roll call in one state.
func (a answer) in(state daemonset.State) []daemonset.Presence {
	var out []daemonset.Presence
	for _, p := range a.plan.Roll {
		if p.State == state {
			out = append(out, p)
		}
	}
	return out
}

// topCause is the reason that most missing nodes share, with their number.
func (a answer) topCause() string {
	count := map[string]int{}
	for _, p := range a.in(daemonset.Missing) {
		if len(p.Reasons) > 0 {
			count[string(p.Reasons[0].Code)]++
		}
	}
	best := ""
	for code, n := range count {
		if best == "" || n > count[best] || n == count[best] && code < best {
			best = code
		}
	}
	if best == "" {
		return "-"
	}
	return fmt.Sprintf("%s (%d)", best, count[best])
}

func (o whyOptions) print(all []answer, name, namespace string) error {
	switch {
	case o.json:
		return o.printJSON(all)
	case len(all) == 0 && namespace == "":
		fmt.Fprintln(o.errs, "no DaemonSets found")
	case len(all) == 0:
		fmt.Fprintf(o.errs, "no DaemonSets found in namespace %s\n", namespace)
	case name == "" && o.node == "":
		return o.printTable(all)
	default:
		for _, a := range all {
			for _, p := range a.plan.Roll {
				fmt.Fprintf(o.out, "%s/%s  %s\n", a.set.Namespace, a.set.Name, p)
			}
		}
	}
	return nil
}

func (o whyOptions) printTable(all []answer) error {
	slices.SortStableFunc(all, func(a, b answer) int {
		return cmp.Compare(len(b.in(daemonset.Missing)), len(a.in(daemonset.Missing)))
	})
	w := tabwriter.NewWriter(o.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tNODES\tEXCLUDED\tDESIRED\tREADY\tUP-TO-DATE\tAVAILABLE\tMISSING\tTOP-CAUSE")
	for _, a := range all {
		s := a.plan.Status
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", a.set.Namespace, a.set.Name, len(a.plan.Roll), len(a.in(daemonset.Excluded)),
			s.DesiredNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled, s.NumberAvailable, len(a.in(daemonset.Missing)), a.topCause())
	}
	return w.Flush()
}

func (o whyOptions) printJSON(all []answer) error {
	type item struct {
		Namespace string                 `json:"namespace"`
		Name      string                 `json:"name"`
		Status    appsv1.DaemonSetStatus `json:"status"`
		Roll      []daemonset.Presence   `json:"roll"`
	}
	items := []item{}
	for _, a := range all {
		items = append(items, item{a.set.Namespace, a.set.Name, a.plan.Status, a.plan.Roll})
	}
	e := json.NewEncoder(o.out)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"items": items})
}
