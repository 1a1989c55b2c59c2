package cli

import "errors"

// The exit codes of the reading commands.
const (
	ExitError      = 1
	ExitFound      = 2 // something that wants attention was found
	ExitIncomplete = 3 // the answer lacks something, which is named
)

// Exit is an error that says nothing, because all has been printed, but ends the
// program with its code.
type Exit int

func (Exit) Error() string { return "see above" }

// Code is the exit code for what a command returned.
func Code(err error) int {
	var e Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return int(e)
	default:
		return ExitError
	}
}
