#!/usr/bin/env bash
# install_packages.sh NAME...: installs the Debian packages that are missing, as root or through sudo.
# If optional:NAME cannot be installed, the script prints a message and continues.
set -u
installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
needed=() optional=()
for name in "$@"; do
  case $name in
    optional:*) installed "${name#optional:}" || optional+=("${name#optional:}") ;;
    *) installed "$name" || needed+=("$name") ;;
  esac
done
[ $((${#needed[@]} + ${#optional[@]})) -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null; then
  echo "This system has no apt-get; please install by hand: ${needed[*]} (useful too: ${optional[*]})" >&2
  [ ${#needed[@]} -eq 0 ]
  exit
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Neither root nor sudo: please have these installed: ${needed[*]} ${optional[*]}" >&2
    [ ${#needed[@]} -eq 0 ]
    exit
  fi
  as_root=(sudo)
fi
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}
"${as_root[@]}" apt-get update -q || echo "The package lists could not be renewed; going on with the old ones" >&2
if [ ${#needed[@]} -gt 0 ] && ! install "${needed[@]}"; then
  echo "These packages are needed and could not be installed: ${needed[*]}" >&2
  exit 1
fi
for name in "${optional[@]}"; do
  install "$name" || echo "Going on without $name: what needs it is skipped" >&2
done
