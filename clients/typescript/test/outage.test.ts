import assert from 'node:assert/strict'
import { once } from 'node:events'
import net from 'node:net'
import test, { type TestContext } from 'node:test'
import pg from 'pg'
import { type HandlerContext } from '../src/index.js'
import { pause } from '../src/wait.js'
import { databaseUrl, effects, namespace, open, run, sql, until } from './world.js'

/** Forwards connections to the database, and can stop that without closing them. */
class Proxy {
  private readonly sockets = new Set<net.Socket>()
  private isSilent = false
  private isDown = false
  private isDeaf = false
  private readonly hung = new WeakSet<net.Socket>()
  connections = 0

  private constructor(private readonly server: net.Server) {}

  static async start(t: TestContext): Promise<Proxy> {
    const { hostname, port } = new URL(databaseUrl)
    const server = net.createServer((client) => {
      proxy.connections++
      if (proxy.isDown) return void client.destroy()
      if (proxy.isDeaf) return void proxy.sockets.add(client.on('error', () => undefined))
      const upstream = net.connect(Number(port || 5432), hostname)
      for (const [from, to] of [[client, upstream], [upstream, client]] as const) {
        proxy.sockets.add(from)
        from.on('data', (data) => proxy.isSilent || proxy.hung.has(from) || to.write(data))
        from.on('error', () => undefined)
        from.on('close', () => {
          proxy.sockets.delete(from)
          if (proxy.hung.has(from)) return
          if (!proxy.isSilent || from === client) to.destroy()
        })
      }
    })
    const proxy = new Proxy(server)
    await once(server.listen(0, '127.0.0.1'), 'listening')
    t.after(() => {
      server.close()
      proxy.sockets.forEach((socket) => socket.destroy())
    })
    return proxy
  }

  get address(): string {
    return `127.0.0.1:${(this.server.address() as net.AddressInfo).port}`
  }

  /** The URL of the database through the proxy, and behind it other hosts. */
  url(...others: string[]): string {
    const url = new URL(databaseUrl)
    return databaseUrl.replace(url.host, [this.address, ...others].join(','))
  }

  silence(): void {
    this.isSilent = true
  }

  /** Forwards nothing on the open connections, and closes neither side of them. New ones work. */
  hang(): void {
    this.sockets.forEach((socket) => this.hung.add(socket))
  }

  /** Accepts new connections and forwards nothing on them. The open ones work. */
  deafen(): void {
    this.isDeaf = true
  }

  hear(): void {
    this.isDeaf = false
  }

  /** Closes all connections, also new ones. */
  crash(): void {
    this.isDown = true
    this.sockets.forEach((socket) => socket.destroy())
  }

  speak(): void {
    this.isSilent = false
  }
}

test('a client goes on when its connections break', async (t) => {
  const space = await namespace()
  const table = await effects(t)
  const ph = await open(t, { namespace: space, applicationName: space })
  ph.group('g', { start: 'beginning', leaseFor: 2000, delays: [1], attempts: 100 }).handleTx('h', '>', (tx, e) => tx.query(`insert into ${table} (event) values ($1)`, [e.id]))
  const done = new Set<bigint>()
  ph.work([], { leaseFor: 2000 }, (job) => done.add(job.id))
  run(ph)
  const other = await open(t, { namespace: space })
  const ids: bigint[] = []
  const jobs: bigint[] = []
  for (let round = 0; round < 4; round++) {
    for (let i = 0; i < 20; i++) {
      ids.push(...await other.publish(other.pool, Array.from({ length: 10 }, () => ({ type: 'x' }))))
      jobs.push(await other.enqueue(other.pool, { title: 'x' }))
    }
    await until('some are handled', async () => (await sql(`select from ${table}`)).length > 150 * round)
    await sql('select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1', [space])
  }
  await until('all are handled', async () => (await sql(`select from ${table}`)).length >= ids.length)
  assert.deepEqual((await sql(`select event from ${table} order by event`)).map((row) => BigInt(row.event)), ids)
  await until('all jobs are completed', async () => (await Promise.all(jobs.map((id) => other.admin.job(id)))).every((job) => job.status === 'COMPLETED'))
  assert.deepEqual([...done].sort(), jobs.sort())
})

test('a client goes on when the database falls silent and answers again', async (t) => {
  const proxy = await Proxy.start(t)
  const space = await namespace()
  const ph = await open(t, { databaseUrl: proxy.url(), namespace: space })
  const seen: string[] = []
  ph.group('g', { start: 'beginning', leaseFor: 3000 }).handle('h', '>', (e) => seen.push(e.type))
  run(ph)
  const other = await open(t, { namespace: space })
  await other.publish(other.pool, { type: 'before' })
  await until('the first one comes', () => seen.length === 1)
  proxy.silence()
  await other.publish(other.pool, { type: 'after' })
  const { connections } = proxy
  await until('the client has connected anew', () => proxy.connections > connections + 1)
  proxy.speak()
  await until('the other one comes', () => seen.includes('after'))
})

test('a client connects to the next host when one does not answer', async (t) => {
  const proxy = await Proxy.start(t)
  const space = await namespace()
  const ph = await open(t, { databaseUrl: proxy.url(new URL(databaseUrl).host), namespace: space })
  const seen: string[] = []
  ph.group('g', { start: 'beginning', leaseFor: 3000 }).handleTx('h', '>', async (tx, e) => {
    await tx.query('select 1')
    seen.push(e.type)
  })
  run(ph)
  const other = await open(t, { namespace: space })
  await other.publish(other.pool, { type: 'before' })
  await until('the first one comes', () => seen.length === 1)
  proxy.silence()
  await other.publish(other.pool, { type: 'after' })
  await until('the other one comes', () => seen.includes('after'))
})

for (const own of [true, false]) {
  test(`a call on ${own ? "the client's" : "the program's"} pool ends when the database falls silent, and idle connections are left`, async (t) => {
    const proxy = await Proxy.start(t)
    const space = await namespace()
    const pool = new pg.Pool({ connectionString: proxy.url() })
    const ph = await open(t, own ? { databaseUrl: proxy.url(), namespace: space } : { pool, namespace: space })
    const publish = () => ph.publish(ph.pool, { type: 'x' })
    await Promise.all([publish(), publish()])
    assert.equal(ph.pool.idleCount, 2)
    proxy.hang()
    proxy.silence()
    let error: unknown
    publish().catch((thrown: unknown) => (error = thrown))
    await until('it ends', () => error)
    proxy.speak()
    await publish()
    await pool.end()
  })
}

test('a transaction on a silent connection is given up', async (t) => {
  const proxy = await Proxy.start(t)
  const space = await namespace()
  const table = await effects(t)
  const ph = await open(t, { databaseUrl: proxy.url(), namespace: space })
  let calls = 0
  ph.group('g', { start: 'beginning', leaseFor: 3000, delays: [1, 1, 1] }).handleTx('h', '>', async (tx, e) => {
    if (++calls === 1) proxy.silence()
    await tx.query(`insert into ${table} (event) values ($1)`, [e.id]) // the first one gets no answer
  })
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  const { connections } = proxy
  await until('the client has tried to connect', () => calls === 1 && proxy.connections > connections + 5)
  proxy.speak()
  await until('it is noted', async () => (await sql(`select from ${table}`)).length === 1)
})

test('a transaction on a connection that hangs is given up, and keeps no locks', async (t) => {
  const proxy = await Proxy.start(t)
  const space = await namespace()
  const table = await effects(t)
  await sql(`create unique index on ${table} (event)`)
  const ph = await open(t, { databaseUrl: proxy.url(), namespace: space })
  let calls = 0
  ph.group('g', { start: 'beginning', delays: [1, 1, 1], timeout: 3600_000 }).handleTx('h', '>', async (tx, e) => {
    await tx.query(`insert into ${table} (event) values ($1)`, [e.id]) // the first transaction keeps others from it
    if (++calls === 1) proxy.hang()
    await tx.query('select 1')
  })
  await ph.publish(ph.pool, { type: 'x' })
  run(ph)
  await until('it is noted', async () => (await sql(`select from ${table}`)).length === 1)
})

test('a statement that takes long goes on', async (t) => {
  const proxy = await Proxy.start(t)
  const space = await namespace()
  const table = await effects(t)
  const ph = await open(t, { databaseUrl: proxy.url(), namespace: space })
  await ph.publish(ph.pool, { type: 'x' })
  const lock = await ph.pool.connect()
  await lock.query(`begin; lock table ${table}`)
  let calls = 0
  let asked = 0
  const monitor = ph.database.monitor as any
  const { resting } = monitor
  monitor.resting = (...args: unknown[]) => (asked++, resting.apply(monitor, args))
  ph.group('g', { start: 'beginning', delays: [1, 1, 1], timeout: 3600_000 }).handleTx('h', '>', async (tx, e) => {
    calls++
    await tx.query(`insert into ${table} (event) values ($1)`, [e.id])
  })
  run(ph)
  await until('the server is asked about it', () => asked >= 2)
  await lock.query('commit')
  lock.release()
  await until('it is noted', async () => (await sql(`select from ${table}`)).length === 1)
  assert.equal(calls, 1)
})

/** A client with a statement that takes long. Its monitor checks when it is told to, by a clock that the test sets ahead. */
async function duringAStatement(t: TestContext, proxy: Proxy, use: (long: {
  check: (seconds: number, meanwhile?: () => Promise<unknown>) => Promise<void>
  hasEnded: () => boolean
  pool: pg.Pool
}) => Promise<void>): Promise<void> {
  const ph = await open(t, { databaseUrl: proxy.url() })
  const monitor = ph.database.monitor as any
  clearInterval(monitor.timer)
  const client = await ph.pool.connect()
  let ended = false
  const statement = client.query('select pg_sleep(3600)').catch(() => undefined).finally(() => (ended = true))
  let ahead = 0
  const { now } = Date
  t.mock.method(Date, 'now', () => now() + ahead)
  const check = async (seconds: number, meanwhile?: () => Promise<unknown>) => {
    ahead += seconds * 1000
    monitor.check()
    await until('the check ends', async () => {
      await meanwhile?.()
      return !monitor.probing
    })
  }
  try {
    await use({ check, hasEnded: () => ended, pool: ph.pool })
  } finally {
    await sql('select pg_terminate_backend($1)', [(client as any).processID])
    await statement
    client.release(true)
  }
}

test('a statement that takes long is checked less and less often, once a minute in the end', async (t) => {
  const proxy = await Proxy.start(t)
  await duringAStatement(t, proxy, async ({ check, hasEnded }) => {
    const probes: number[] = []
    for (let second = 1; second <= 600; second++) {
      const { connections } = proxy
      await check(1)
      if (proxy.connections > connections) probes.push(second)
    }
    assert.equal(hasEnded(), false)
    assert.ok(probes[0]! <= 6 && probes.length <= 15, `probes at ${probes}`)
    for (const [i, second] of probes.entries()) assert.ok(second - (probes[i - 1] ?? second) <= 61, `probes at ${probes}`)
  })
})

test('a statement that takes long outlives a new connection without an answer, and ends after two of them in a row', async (t) => {
  const proxy = await Proxy.start(t)
  await duringAStatement(t, proxy, async ({ check, hasEnded, pool }) => {
    await pool.query('select 1')
    proxy.deafen()
    await check(6, () => pool.query('select 1'))
    assert.equal(hasEnded(), false, 'the server answers others')
    proxy.hear()
    await check(6)
    proxy.deafen()
    await check(60)
    assert.equal(hasEnded(), false, 'one connection got no answer')
    await check(6)
    await until('it has ended', hasEnded)
  })
})

test('a server that is not there at first is awaited by run', async (t) => {
  const proxy = await Proxy.start(t)
  const ph = await open(t, { databaseUrl: proxy.url() })
  let seen = 0
  ph.group('g', { start: 'beginning' }).handle('h', '>', () => seen++)
  const other = await open(t, { namespace: ph.namespace })
  await other.publish(other.pool, { type: 'x' })
  proxy.silence()
  const { connections } = proxy
  run(ph)
  await until('it has tried', () => proxy.connections > connections)
  proxy.speak()
  await until('it comes', () => seen === 1)
})

test('a client that stops while the database is down waits between its attempts to record results', async (t) => {
  const proxy = await Proxy.start(t)
  const ph = await open(t, { databaseUrl: proxy.url(), drainFor: 1 })
  const leaseFor = 5000 // and so long it makes attempts
  let running = 0
  const untilStopped = (_: unknown, { signal }: HandlerContext) => {
    running++
    return pause(3600_000, signal)
  }
  ph.group('g', { start: 'beginning', leaseFor }).handle('h', '>', untilStopped)
  ph.work([], { leaseFor }, untilStopped)
  await ph.publish(ph.pool, { type: 'x' })
  await ph.enqueue(ph.pool, { title: 'x' })
  const { stop } = run(ph)
  await until('both are in work', () => running >= 2)
  const attempts: string[] = []
  const call = ph.database.call.bind(ph.database)
  ph.database.call = (signature, ...rest) => {
    attempts.push(signature.split('(')[0]!)
    return call(signature, ...rest)
  }
  proxy.crash()
  await stop()
  const made = (name: string) => attempts.filter((attempt) => attempt === name).length
  for (const name of ['settle', 'complete_jobs']) {
    assert.ok(made(name) >= 1 && made(name) <= 4, `${made(name)} attempts of ${name}`) // without the pause, thousands
  }
})
