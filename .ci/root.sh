#!/usr/bin/env bash
# Makes folders with a minimal Debian 12, in which commands run as on a fresh machine. DHP_SUITE names another release,
# such as trixie (Debian 13).
#   root.sh make DIR [PACKAGE]...   makes DIR, with these packages (status 77: impossible here; prints the reason)
#   root.sh copy DIR [PACKAGE]...   the same, with all files in DIR itself, for callers that read them or mount more
#   root.sh run DIR COMMAND...      runs a command in DIR, as root, with / as its folder
#   root.sh remove DIR
# ~/.cache/dhp keeps systems, sets of packages and downloads. DIR is an overlay mount above this cache or, if the kernel
# has no overlays, a copy. Commands share ccache's folder with this machine; their mount and process namespaces end with
# them.
set -eu
suite=${DHP_SUITE:-bookworm}
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/dhp/$suite
here=$(cd "$(dirname "$0")" && pwd)

impossible() { echo "left out: no empty Debian system can be made here: $1"; exit 77; }

run() {
  local dir=$1 name proxies=()
  shift
  mkdir -p "$dir/etc"
  cp -L /etc/resolv.conf /etc/hosts "$dir/etc/"
  mkdir -p "$dir/ccache" "$cache/archives/partial" "$(ccache_folder)"
  while read -r name; do proxies+=("$name=${!name}"); done < <(compgen -e | grep -iE '^(https?|ftp|no)_proxy$')
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child bash -euc '
    dir=$1 archives=$2 ccache=$3; shift 3
    mount --make-rprivate /
    [ ! -e "$dir.under" ] ||
      mount -t overlay overlay -o "lowerdir=$dir.under/kept,upperdir=$dir,workdir=$dir.under/work" "$dir"
    mount -t proc proc "$dir/proc"
    mount --rbind /dev "$dir/dev"
    mount --rbind /sys "$dir/sys"
    mount --bind "$archives" "$dir/var/cache/apt/archives"
    mount --bind "$ccache" "$dir/ccache"
    exec chroot "$dir" "$@"' bash "$dir" "$cache/archives" "$(ccache_folder)" \
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb \
    CCACHE_DIR=/ccache DHP_WERROR="${DHP_WERROR:-}" "${proxies[@]}" "$@"
}
ccache_folder() { ccache --get-config cache_dir 2>/dev/null || echo "$cache/ccache"; }

# Takes the mirror and its access settings from this machine's apt. Only sid has no suites of updates beside it.
make_base() {
  local dir=$1 sources own
  own=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  # shellcheck disable=SC2016
  sources=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    awk -v suite="$suite" -v own="$own" '$2 ~ "^" own (suite == "sid" ? "$" : "") && !seen[$0]++ {
      sub("^" own, suite, $2); print "deb", $0 }')
  [ -n "$sources" ] || impossible "this machine's apt knows no mirror of Debian"
  debootstrap --variant=minbase --cache-dir="$cache/archives" "$suite" "$dir" \
    "$(awk -v suite="$suite" '$3 == suite { print $2; exit }' <<<"$sources")" ||
    { [ "$suite" = "$own" ] && exit 1; impossible "this machine's mirror of Debian gives no $suite"; }
  echo "$sources" >"$dir/etc/apt/sources.list"
  apt-config dump | grep -E '^Acquire::(https?|Check-|Retries)' >"$dir/etc/apt/apt.conf.d/90host" || true
  mkdir -p "$dir/etc/ssl/certs"
  cp -L /etc/ssl/certs/ca-certificates.crt "$dir/etc/ssl/certs/" 2>/dev/null || true
  echo force-unsafe-io >"$dir/etc/dpkg/dpkg.cfg.d/unsafe-io"  # the folder need not survive a power cut
  printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d"  # packages start no services
  chmod +x "$dir/usr/sbin/policy-rc.d"
}

# kept NAME PACKAGE...: makes the cache's folder NAME unless it exists and is less than a month old.
kept() {
  local dir=$cache/$1
  shift
  if [ -z "$(find "$dir" -maxdepth 0 -mtime -30 2>/dev/null)" ]; then
    rm -rf "$dir" "$dir.new"
    if [ $# -eq 0 ]; then
      make_base "$dir.new"
    else
      kept base
      cp -a "$cache/base" "$dir.new"
      run "$dir.new" apt-get update -q
      run "$dir.new" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
    fi
    touch "$dir.new"
    mv "$dir.new" "$dir"
  fi
}

what=$1 dir=$(realpath -m "$2")
shift 2
case $what in
  make|copy)
    [ "$(id -u)" -eq 0 ] || impossible "that takes root"
    unshare --mount --pid --fork true 2>/dev/null || impossible "this machine allows no mounts"
    bash "$here/install_packages.sh" optional:debootstrap
    command -v debootstrap >/dev/null || impossible "there is no debootstrap"
    [ ! -e "$dir" ] || { echo "root.sh: $dir exists already" >&2; exit 1; }
    mkdir -p "$cache/archives"
    name=base
    [ $# -eq 0 ] || name=with-$(printf '%s\n' "$@" | sort | sha256sum | cut -c 1-12)
    exec 9>"$cache/lock"
    flock 9
    kept "$name" "$@"
    if [ "$what" = copy ]; then
      cp -aT "$cache/$name" "$dir"
      exit
    fi
    mkdir -p "$dir" "$dir.under/work"
    ln -s "$cache/$name" "$dir.under/kept"
    run "$dir" true 2>/dev/null || { rm -rf "$dir.under"; cp -aT "$cache/$name" "$dir"; } ;;
  run) run "$dir" "$@" ;;
  remove) rm -rf --one-file-system "$dir" "$dir.under" ;;
  *) echo "root.sh make|copy|run|remove DIR ..." >&2; exit 2 ;;
esac
