// Runs a worker of graphile-worker, of pg-boss, or of Posthorn's client for Node, for the
// benchmark, which starts this program and talks with it in lines, as it does with workers
// written in Go:
//
//   start {settings}   begins to take jobs; answered by started
//   enqueue N          enqueues N jobs in bulk; answered by enqueued. Only pg-boss: the
//                      others have an API outside of Node.js
//   one N              enqueues N jobs one by one, 16 at a time; answered by enqueued
//   stop               answered by stopped
//
// While it works it prints "n COUNT" for jobs that have been done since the last such
// line, and "took MICROSECONDS..." for those of the task note.
import { createInterface } from 'node:readline'
import pg from 'pg'

const config = JSON.parse(process.argv[2])

const say = (line) => process.stdout.write(line + '\n')
const complain = (error) => process.stderr.write(error + '\n')

const openPool = () => {
  const pool = new pg.Pool({ connectionString: config.url, max: config.connections })
  pool.on('error', complain)
  return pool
}

// The clock of the other processes, which have microseconds: that of Date has none, and
// the other one does not follow it. Waiting for the next millisecond finds the difference.
let difference
const compareClocks = () => {
  const before = Date.now()
  let now
  while ((now = Date.now()) === before);
  difference = now - performance.now()
}
const microseconds = () => (performance.now() + difference) * 1000

let done = 0
let took = []
let due = false // a report, in a moment: nothing wakes a process that waits
const did = (n) => {
  done += n
  if (!due) setTimeout(report, 5)
  due = true
}
const report = () => {
  due = false
  for (let i = 0; i < took.length; i += 1000) say('took ' + took.slice(i, i + 1000).join(' '))
  took = []
  if (done > 0) {
    say('n ' + done)
    done = 0
  }
}
if (config.task === 'note') {
  compareClocks()
  setInterval(compareClocks, 1000)
}

const millisecond = () => new Promise((resolve) => setTimeout(resolve, 1))

const insert = 'insert into bare.effects (event_id, payload) values ($1, $2)'

const bulk = 1000 // jobs in one statement

// eachOf calls do for 0 to n-1, a number of calls at a time.
async function eachOf(atOnce, n, do_) {
  let next = 0
  const one = async () => {
    while (next < n) await do_(next++)
  }
  await Promise.all(Array.from({ length: atOnce }, one))
}

// inBulk calls do with the size of each of the statements that add n jobs, two at a time.
const inBulk = (n, do_) => eachOf(2, Math.ceil(n / bulk), (i) => do_(Math.min(bulk, n - i * bulk)))

async function graphile() {
  const { run, runMigrations, Logger } = await import('graphile-worker')
  const logger = new Logger(() => (level, message) => {
    if (level === 'error') complain(message)
  })
  const pool = openPool()
  await runMigrations({ pgPool: pool, logger })
  const tasks = {
    none: () => did(1),
    sleep: async () => {
      await millisecond()
      did(1)
    },
    // The library completes a job after its task, in another transaction.
    insert: async (payload, helpers) => {
      await helpers.withPgClient((client) => client.query({ name: 'insert', text: insert, values: [helpers.job.id, payload] }))
      did(1)
    },
    note: (payload) => {
      if (payload.at > 0) took.push(Math.round(microseconds() - payload.at))
      did(1)
    },
  }
  let runner
  return {
    start: async (settings) => {
      runner = await run({
        pgPool: pool,
        logger,
        noHandleSignals: true,
        parsedCronItems: [],
        taskList: { [config.task]: tasks[config.task] },
        preset: {
          worker: {
            concurrentJobs: settings.concurrency,
            // Jobs are fetched by one statement for all concurrent jobs of the
            // process; without it each job is one statement.
            localQueue: { size: settings.batch },
            // Completions and failures are written together. 0 waits for the other
            // jobs of the same turn of the event loop; more only delays them.
            completeJobBatchDelay: settings.delay,
            failJobBatchDelay: settings.delay,
          },
        },
      })
      runner.promise.catch(complain)
    },
    stop: () => runner.stop(),
  }
}

async function pgboss() {
  const { PgBoss } = await import('pg-boss')
  const boss = new PgBoss({
    connectionString: config.url,
    max: config.connections,
    // What it does beside jobs would only cost.
    supervise: false,
    schedule: false,
  })
  boss.on('error', complain)
  await boss.start()
  const pool = openPool()
  let effects = 0 // its jobs have no number
  // A table of its own keeps the queue's indexes small.
  await boss.createQueue('bench', { partition: true })
  let running
  const work = async (settings) => {
    while (running) {
      // Without metadata a job is its id and its data.
      const jobs = await boss.fetch('bench', { batchSize: settings.batch, includeMetadata: false })
      if (jobs.length === 0) {
        // Its own workers ask twice a second at most.
        await new Promise((resolve) => setTimeout(resolve, 5))
        continue
      }
      if (config.task === 'sleep') await Promise.all(jobs.map(millisecond))
      // Like graphile-worker it completes jobs in another transaction.
      if (config.task === 'insert') {
        await Promise.all(jobs.map((job) => pool.query({ name: 'insert', text: insert, values: [effects++, job.data] })))
      }
      await boss.complete('bench', jobs.map((job) => job.id))
      did(jobs.length)
    }
  }
  let workers
  return {
    start: async (settings) => {
      if (settings.idle) return boss.work('bench', () => {})
      running = true
      workers = Array.from({ length: settings.concurrency }, () => work(settings))
    },
    stop: async () => {
      running = false
      await Promise.all(workers ?? [boss.offWork('bench')])
    },
    enqueue: (n) => inBulk(n, (k) => boss.insert('bench', Array.from({ length: k }, () => ({ data: config.payload })))),
    one: (n) => eachOf(16, n, () => boss.send('bench', config.payload)),
  }
}

// Posthorn's client for Node works on jobs, or on the events of a group. It stays open
// between rounds.
async function posthorn() {
  const { Posthorn } = await import(config.client)
  const handle = () => did(1)
  let client, used, stopping, running
  return {
    start: async (settings) => {
      if (used !== JSON.stringify(settings)) {
        await client?.close()
        client = await Posthorn.open({ databaseUrl: config.url, maxConnections: config.connections })
        used = JSON.stringify(settings)
        const options = { concurrency: settings.concurrency, batchSize: settings.batch }
        if (config.system === 'node') client.work(['bench'], options, handle)
        else client.group('bench', options).handle('bench', '>', handle)
      }
      stopping = new AbortController()
      running = client.run(stopping.signal)
      running.catch(complain)
    },
    stop: () => {
      stopping.abort()
      return running
    },
  }
}

const peer = await { graphile, pgboss, node: posthorn, 'node events': posthorn }[config.system]()
const answers = { start: 'started', stop: 'stopped', enqueue: 'enqueued', one: 'enqueued' }
const lines = createInterface({ input: process.stdin })
lines.on('line', async (line) => {
  const space = line.indexOf(' ')
  const [command, argument] = space < 0 ? [line, ''] : [line.slice(0, space), line.slice(space + 1)]
  try {
    await peer[command](argument && JSON.parse(argument))
    if (command === 'stop') report()
    say(answers[command])
  } catch (error) {
    process.stderr.write(`${command}: ${error}\n`)
    process.exit(1)
  }
})
lines.on('close', () => process.exit(0)) // the benchmark has ended
say('ready')
