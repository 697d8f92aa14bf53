#!/usr/bin/env bash
# node.sh DIR
#
# Runs a private RabbitMQ node from the binaries on this machine until standard input ends, so that it cannot outlive the
# process that started it. Prints its URL once it accepts connections. All its files and ports are recorded in DIR: run
# again with the same DIR, it is the same node with the same data. It touches nothing outside DIR, no other node and no
# other epmd. Exits with 3 if there are no binaries, and with 1 if the node does not start or ends by itself. NODE_FIND=1
# only prints which ones it would use; NODE_SETTINGS are lines for a new node's rabbitmq.conf.
set -euo pipefail

find_server() {
  local server
  server=$(printf '%s\n' /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server /opt/rabbitmq/sbin/rabbitmq-server | sort -V | tail -n 1)
  for server in "$server" /usr/lib/rabbitmq/bin/rabbitmq-server; do
    if [[ -x $server ]] && command -v erl >/dev/null && command -v epmd >/dev/null; then echo "$server"; return; fi
  done
  return 1
}
server=$(find_server) || { echo "no RabbitMQ on this machine" >&2; exit 3; }
if [[ -n ${NODE_FIND:-} ]]; then echo "$server"; exit; fi

dir=$1
mkdir -p "$dir"
cd "$dir"
dir=$PWD
exec 3<&0 # background processes have no standard input unless they are given one

listens() { (exec 4<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Ports below the range from which the system takes those of clients.
free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); listens "$port"; do :; done
  echo "$port"
}

configure() {
  local amqp epmd distribution password
  amqp=$(free_port) epmd=$(free_port) distribution=$(free_port)
  [[ $amqp != "$epmd" && $amqp != "$distribution" && $epmd != "$distribution" ]] || { configure; return; }
  password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  # A machine whose disk is nearly full is no reason to stop the tests by an alarm.
  cat >rabbitmq.conf <<CONF
listeners.tcp.local = 127.0.0.1:$amqp
default_user = outbox
default_pass = $password
disk_free_limit.absolute = 50MB
log.file.level = info
${NODE_SETTINGS:-}
CONF
  : >rabbitmq-env.conf
  echo '[].' >enabled_plugins
  echo "amqp=$amqp epmd=$epmd distribution=$distribution url=amqp://outbox:$password@127.0.0.1:$amqp/" >node
}

# A port that was free may be another node's by the time the server takes it: a new node then gets others.
tries=3
if [[ -f node ]]; then tries=1; fi

epmd_pid='' server_pid='' input_pid=''
gone() { ! kill -0 "$1" 2>/dev/null; }

start() {
  [[ -f node ]] || configure
  # shellcheck disable=SC1091
  . ./node
  export HOME=$dir # the cookie's place
  export ERL_EPMD_PORT=$epmd ERL_EPMD_ADDRESS=127.0.0.1
  export RABBITMQ_NODENAME="outbox$amqp@localhost" RABBITMQ_DIST_PORT=$distribution
  export RABBITMQ_CONF_ENV_FILE=$dir/rabbitmq-env.conf RABBITMQ_CONFIG_FILE=$dir/rabbitmq.conf
  export RABBITMQ_MNESIA_BASE=$dir/data RABBITMQ_LOG_BASE=$dir/log RABBITMQ_PID_FILE=$dir/pid
  export RABBITMQ_ENABLED_PLUGINS_FILE=$dir/enabled_plugins RABBITMQ_PLUGINS_EXPAND_DIR=$dir/plugins
  export RABBITMQ_GENERATED_CONFIG_DIR=$dir/config RABBITMQ_SCHEMA_DIR=$dir/schema
  export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
  export RUNNING_UNDER_SYSTEMD=1 # the script becomes the server, so that its process id is the server's

  : >output.log # what the last one wrote says nothing of this one
  # Its epmd is started here and not by the server, as a daemon that nobody would stop.
  epmd -port "$epmd" -address 127.0.0.1 >epmd.log 2>&1 3<&- &
  epmd_pid=$!
  "$server" >output.log 2>&1 3<&- &
  server_pid=$!
}

# Whether the server has started, by its own word: who listens on its port may be somebody else.
started() { grep -q 'Starting broker\.\.\. completed' output.log && ! gone "$server_pid" && ! gone "$epmd_pid"; }

stop() {
  trap '' INT TERM
  kill -TERM "$server_pid" 2>/dev/null || true
  for _ in {1..300}; do # 30 s
    gone "$server_pid" && break
    sleep 0.1
  done
  kill -KILL "$server_pid" 2>/dev/null || true
  kill -TERM "$epmd_pid" 2>/dev/null || true
  wait "$server_pid" "$epmd_pid" 2>/dev/null || true
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

cat <&3 >/dev/null &
input_pid=$!
trap 'kill "$input_pid" 2>/dev/null || true; stop' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

while :; do
  start
  for _ in {1..1200}; do # 2 min
    if gone "$server_pid" || gone "$epmd_pid" || gone "$input_pid" || started; then break; fi
    sleep 0.1
  done
  if gone "$input_pid"; then exit 0; fi
  if started; then break; fi
  { echo "RabbitMQ did not start:"; tail -n 50 epmd.log output.log; } >&2
  ((--tries)) || exit 1
  stop
  rm -rf node data
done
# shellcheck disable=SC2154
echo "$url"
until gone "$server_pid" || gone "$input_pid"; do sleep 0.1; done # not wait -n, which misses what has ended before it
if gone "$input_pid"; then exit 0; fi
{ echo "RabbitMQ has ended by itself:"; tail -n 50 epmd.log output.log; } >&2
exit 1
