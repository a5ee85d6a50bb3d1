# Run by watchdog.go. $1 is the directory of the test server.
trap '' HUP INT TERM
cat >/dev/null # ends when the test process has

pidfile=$1/pgdata/postmaster.pid
if [ -e "$pidfile" ]; then
	pid=$(head -n 1 "$pidfile")
	kill -QUIT "$pid" # an immediate shutdown; the postmaster removes the file
	tries=100
	while [ -e "$pidfile" ] && [ $tries -gt 0 ]; do
		sleep 0.05
		tries=$((tries - 1))
	done
	[ -e "$pidfile" ] && kill -KILL "$pid"
fi

# A server that was just starting may still be making files.
tries=20
until rm -rf "$1" || [ $tries = 0 ]; do
	sleep 0.1
	tries=$((tries - 1))
done
