# Sourced by install, quickstart and test, in the checkout's root: under sudo only Debian's packages
# are root's business. All else goes on as the user who called sudo, so that build/ and .cache/ are
# theirs, what an earlier run left to root too. A checkout that this user can't write stays root's.
# install_for: the option of tools/install that says whose packages; may be unset.
if [ "$(id -u)" = 0 ] && [ "${SUDO_UID:-0}" != 0 ]; then
  drop=(setpriv "--reuid=$SUDO_UID" "--regid=$SUDO_GID" --clear-groups)
  if caller_home=$(getent passwd "$SUDO_UID" | cut -d: -f6) && [ -n "$caller_home" ]; then
    drop=(setpriv "--reuid=$SUDO_UID" "--regid=$SUDO_GID" --init-groups)
  fi
  if "${drop[@]}" test -w "$PWD"; then
    # shellcheck disable=SC2086  # none or one option
    tools/install --packages ${install_for:-}
    mkdir -p build .cache
    chown -Rh "$SUDO_UID:$SUDO_GID" build .cache
    exec "${drop[@]}" env -u SUDO_UID -u SUDO_GID HOME="${caller_home:-/tmp}" \
      "$PWD/tools/$(basename "$0")" "$@"
  fi
fi
