#!/bin/sh
# Builds what a real node runs beside rollcall itself into OUTDIR: containerd, its
# shim, runc, the CNI plugins, node_exporter and pause. The versions are those of
# the go.mod files here. Quick when nothing has changed.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 OUTDIR" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"

# What was built is remembered by the content that it was built from: asking the
# go command again costs seconds.
stamp=$(cat build.sh go.mod go.sum pause/* nodeexporter/go.* | cksum; go version)
have() {
	for f in containerd containerd-shim-runc-v2 runc bridge host-local loopback portmap node_exporter pause; do
		[ -x "$out/$f" ] || return 1
	done
	[ "$(cat "$out/.built" 2>/dev/null)" = "$stamp" ]
}

# Pods that ask for the profile RuntimeDefault, as the Pod Security standard
# "restricted" wants, need a runc with seccomp, and that needs libseccomp's header
# (Debian: libseccomp-dev) to build. runc needs a C compiler in any case.
seccomp=
if pkg-config --exists libseccomp 2>/dev/null; then seccomp=yes; fi
filters() { "$out/runc" features 2>/dev/null | tr -d ' \n' | grep -q '"seccomp":{"enabled":true'; }
if have && { [ -z "$seccomp" ] || filters; }; then exit 0; fi

containerd=$(go list -m -f '{{.Version}}' github.com/containerd/containerd/v2)
runc=$(go list -m -f '{{.Version}}' github.com/opencontainers/runc)
strip='-s -w'
build() { go build -trimpath "$@"; }
CGO_ENABLED=0 build -ldflags "$strip" -o "$out/pause" ./pause
exporter=$(cd nodeexporter && go list -m -f '{{.Version}}' github.com/prometheus/node_exporter)
(cd nodeexporter && CGO_ENABLED=0 build -ldflags "$strip -X github.com/prometheus/common/version.Version=${exporter#v}" -o "$out/" tool)
CGO_ENABLED=1 build -ldflags "$strip -X github.com/containerd/containerd/v2/version.Version=$containerd -X main.version=${runc#v}" \
	-tags no_btrfs,no_zfs,no_devmapper,urfave_cli_no_docs -o "$out/" tool
if [ -n "$seccomp" ]; then
	# Static where the library is there for it, so that bin/ can be carried elsewhere.
	for link in '-extldflags -static' ''; do
		CGO_ENABLED=1 build -ldflags "$strip -X main.version=${runc#v} $link" -tags seccomp,netgo,osusergo,urfave_cli_no_docs \
			-o "$out/runc" github.com/opencontainers/runc && break
	done
fi
filters || echo "build.sh: no libseccomp header here: pods with the seccomp profile RuntimeDefault will not start" >&2
printf '%s' "$stamp" > "$out/.built"
