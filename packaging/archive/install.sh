#!/bin/sh
# Installs engined from the archive that this script lies in:
#
#   ./install.sh              into /usr/local, with units of systemd and a configuration, if there is none
#   ./install.sh --uninstall  takes away what it has installed; data and configuration stay
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local
units=/etc/systemd/system
user_units=/etc/systemd/user

if [ "$(id -u)" -ne 0 ]; then
  echo "install.sh: it writes to $prefix and $units: run it as root" >&2
  exit 1
fi
has_systemd() { [ -d /run/systemd/system ]; }

case "${1:-}" in
  '') ;;
  --uninstall)
    has_systemd && systemctl disable --now engined.socket engined.service || true
    rm -rf "$prefix/lib/engined" "$prefix/libexec/engined" "$units/engined.socket" "$units/engined.service" "$units/engined.service.d"
    rm -f "$prefix/bin/engined-rootless" "$user_units/engined.service"
    rm -f "$prefix/bin/engined" "$prefix/share/man/man8/engined.8.gz" "$prefix/share/man/man5/engined-daemon.json.5.gz"
    rm -f "$prefix/share/man/man1/engined-rootless.1.gz"
    rm -f "$prefix/share/bash-completion/completions/engined" "$prefix/share/zsh/site-functions/_engined"
    has_systemd && systemctl daemon-reload || true
    echo "The data in /var/lib/engine and the configuration in /etc/engine are left."
    exit 0
    ;;
  *)
    echo "install.sh: unknown argument: $1" >&2
    exit 1
    ;;
esac

# The running daemon needs none of its files again, so they are replaced as a whole.
mkdir -p "$prefix/lib" "$prefix/bin" "$units" "$user_units" /etc/engine
rm -rf "$prefix/lib/engined.new"
cp -R "$here/lib/engined" "$prefix/lib/engined.new"
rm -rf "$prefix/lib/engined"
mv "$prefix/lib/engined.new" "$prefix/lib/engined"
ln -sf ../lib/engined/dist/bundle/main.js "$prefix/bin/engined"
cp -R "$here/share" "$here/libexec" "$prefix/"
cp "$here/bin/engined-rootless" "$prefix/bin/"
cp "$here"/systemd/engined.socket "$here"/systemd/engined.service "$units/"
cp "$here"/systemd/user/engined.service "$user_units/"
[ -e /etc/engine/daemon.json ] || cp "$here/daemon.json" /etc/engine/daemon.json
getent group engine > /dev/null || groupadd --system engine
if has_systemd; then
  systemctl daemon-reload
  systemctl enable engined.socket engined.service
  systemctl start engined.socket
  systemctl restart engined.service
fi
"$prefix/bin/engined" check || echo "install.sh: the programs above are missing; see README.md" >&2
