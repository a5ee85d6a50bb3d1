# Run by testdir.go. $1 is the directory, $2 the process group of its servers.
trap '' HUP INT TERM
cat >/dev/null # ends when the test, or its process, has

kill -s KILL -- "-$2"
# Postgres is in groups of its own.
find "$1" -name postmaster.pid | while read -r pidfile; do
	pid=$(head -n 1 "$pidfile")
	kill -s QUIT "$pid" || continue # an immediate shutdown; the postmaster removes the file
	tries=100
	while [ -e "$pidfile" ] && [ $tries -gt 0 ]; do
		sleep 0.05
		tries=$((tries - 1))
	done
	[ -e "$pidfile" ] && kill -s KILL "$pid"
done

# A server that was just starting may still be making files.
tries=20
until rm -rf "$1" || [ $tries = 0 ]; do
	sleep 0.1
	tries=$((tries - 1))
done
[ ! -e "$1" ]
