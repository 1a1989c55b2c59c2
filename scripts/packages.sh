#!/bin/sh
# Installs what building and running a real node needs beyond Go, gcc and make, on
# Debian and its kin as root. Elsewhere it says what is missing and goes on: all but
# the named ability then works.
set -eu
lacking() {
	pkg-config --exists libseccomp 2>/dev/null || printf 'pkg-config libseccomp-dev '
	command -v nft >/dev/null 2>&1 || [ -x /usr/sbin/nft ] || printf 'nftables '
}
packages=$(lacking)
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing $packages"
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
else
	echo "not here: $packages(pods that ask for a seccomp profile, and pods' own network beyond this machine, need them)" >&2
fi
