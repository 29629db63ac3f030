# Runs on the other side, in any POSIX shell. $base is the directory of what fabro keeps there, $id the name of this
# program, $all is 1 where every process belongs to the run.
dir=$base/$id

begin() {
  mkdir -p "$dir" && echo $$ >"$dir/pid" || exit 125
  if [ -e "$dir/stop" ]; then end 143; fi
}

end() {
  rm -rf "$dir"
  exit "$1"
}

# Whether another program of ours runs beside this one.
others() {
  for other in "$base"/*/pid; do
    [ "$other" = "$dir/pid" ] && continue
    { read -r other <"$other"; } 2>/dev/null || continue
    [ -d "/proc/$other" ] && return 0
  done
  return 1
}

# Sets $left to what is left of the session $1, of what was started with $2 in its environment and, where no other
# program runs, of what has lost its parent. A process without a parent in the container was started from outside: it is
# a program of ours that has not begun yet, or the shell of a person.
find_left() {
  stats=$(sed -n 's/^\([0-9]*\) (.*) \([A-WYa-wy]\) \([0-9]*\) [0-9]* \([0-9]*\) .*/\1 \3 \4/p' /proc/[0-9]*/stat 2>/dev/null)
  # This shell is one of them; nothing is listed where no program can be started any more.
  blind=
  if [ -z "$stats" ]; then blind=1; fi
  marked=$(unset FABRO_SCRIPT; grep -slF "FABRO_SCRIPT=$2" /proc/[0-9]*/environ)
  found=
  orphans=" "
  # shellcheck disable=SC2086
  set -- "$1" $stats
  session=$1
  shift
  while [ $# -ge 3 ]; do
    if [ "$3" = "$session" ]; then found="$found $1"; fi
    if [ "$2" = 1 ] && [ "$3" != 1 ]; then orphans="$orphans$1 "; fi
    shift 3
  done
  for pid in $marked; do
    pid=${pid#/proc/}
    found="$found ${pid%/environ}"
  done
  if [ "$all" = 1 ] && [ "$orphans" != " " ] && ! others; then
    add_descendants
    found="$found $orphans"
  fi
  left=
  for pid in $found; do
    if [ "$pid" != $$ ] && [ "$pid" != "$keep" ] && [ -d "/proc/$pid" ]; then left="$left $pid"; fi
  done
}

# Adds the descendants of $orphans, of the processes in $stats.
add_descendants() {
  before=
  while [ "$before" != "$orphans" ]; do
    before=$orphans
    # shellcheck disable=SC2086
    set -- $stats
    while [ $# -ge 3 ]; do
      case $orphans in
        *" $1 "*) ;;
        *" $2 "*) orphans="$orphans$1 " ;;
      esac
      shift 3
    done
  done
}

# Whether nothing is left within $3 twentieths of a second.
gone() {
  turns=$3
  while find_left "$1" "$2"; [ -n "$left$blind" ]; do
    [ "$turns" -gt 0 ] || return 1
    turns=$((turns - 1))
    sleep 0.05 2>/dev/null || sleep 1
  done
}

# Sends the signal $1 to what is left.
send() {
  # shellcheck disable=SC2086
  if [ -n "$left" ]; then kill "-$1" $left 2>/dev/null; fi
}

# Ends what the session $1 and the mark $2 have left: a moment to finish, SIGTERM, two seconds, SIGKILL.
end_left() {
  gone "$1" "$2" 2 && return
  send TERM
  send CONT
  gone "$1" "$2" 40 && return
  kill_left "$1" "$2"
}

kill_left() {
  rounds=0
  until gone "$1" "$2" 1 || [ "$rounds" -ge 40 ]; do
    send KILL
    rounds=$((rounds + 1))
  done
}
keep=
